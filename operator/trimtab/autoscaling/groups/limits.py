"""Which candidates are groups, within which limits: by a MachineAutoscaler, else by their own annotations.

OpenShift's operator copies the limits of MachineAutoscalers into annotations. Here a MachineAutoscaler speaks for
itself: a plan from files has nobody who copies, and where somebody does, an old copy must not win.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trimtab.api import reasons
from trimtab.api.machine_autoscaler import KIND, MachineAutoscaler
from trimtab.autoscaling.groups.annotations import Limits, annotated_limits
from trimtab.autoscaling.groups.keys import OWNER
from trimtab.autoscaling.groups.node_group import Problem
from trimtab.autoscaling.groups.provider import Candidate

Owners = dict[str, MachineAutoscaler]


def owners(
    candidates: Iterable[Candidate], autoscalers: Sequence[MachineAutoscaler]
) -> tuple[Owners, tuple[Problem, ...]]:
    """Which MachineAutoscaler has which candidate, by the candidate's id; and what is wrong with the others.

    Of several with one target that one has it which the target's annotation names, else the oldest, else the first by
    name. MachineAutoscalers that are being deleted have nothing.
    """
    by_target = {_target_key(candidate): candidate for candidate in candidates}
    wanted: dict[str, list[MachineAutoscaler]] = {}
    problems = []
    for autoscaler in sorted(autoscalers, key=lambda each: each.key):
        if autoscaler.metadata.deletion_timestamp is not None:
            continue
        target = autoscaler.spec.scale_target_ref
        group = target.api_version.partition("/")[0]
        candidate = by_target.get((group, target.kind, f"{autoscaler.metadata.namespace}/{target.name}"))
        if candidate is None:
            message = (
                f"spec.scaleTargetRef: there is no {target.kind} {target.name} of {group} in the namespace "
                f"{autoscaler.metadata.namespace}"
            )
            problems.append(_problem(autoscaler, reasons.TARGET_NOT_FOUND, message))
        elif candidate.governed:
            message = (
                f"spec.scaleTargetRef: {target.kind} {candidate.source.key} cannot be scaled: {candidate.governed}"
            )
            problems.append(_problem(autoscaler, reasons.TARGET_UNSUPPORTED, message))
        else:
            wanted.setdefault(candidate.id, []).append(autoscaler)
    by_id = {candidate.id: candidate for candidate in by_target.values()}
    found = {}
    for id_, wanting in wanted.items():
        first = found[id_] = _first(wanting, by_id[id_].source.annotations.get(OWNER, ""))
        problems += [_second(autoscaler, first) for autoscaler in wanting if autoscaler is not first]
    return found, tuple(problems)


def limits_of(candidate: Candidate, owners: Mapping[str, MachineAutoscaler]) -> Limits | Problem | None:
    """The limits of a candidate; ``None`` where it is no group, a problem where it was meant to be one."""
    if candidate.governed:
        return None
    owner = owners.get(candidate.id)
    if owner is not None:
        return Limits(owner.spec.min_replicas, owner.spec.max_replicas)
    return annotated_limits(candidate.source)


def _first(wanting: Sequence[MachineAutoscaler], named: str) -> MachineAutoscaler:
    return min(wanting, key=lambda each: (each.key != named, each.metadata.creation_timestamp or "~", each.key))


def _second(autoscaler: MachineAutoscaler, first: MachineAutoscaler) -> Problem:
    target = autoscaler.spec.scale_target_ref
    message = f"spec.scaleTargetRef: the MachineAutoscaler {first.key} already has {target.kind} {target.name}"
    return _problem(autoscaler, reasons.TARGET_ALREADY_OWNED, message)


def _problem(autoscaler: MachineAutoscaler, reason: str, message: str) -> Problem:
    return Problem(KIND, autoscaler.metadata.namespace, autoscaler.metadata.name, reason, message)


def _target_key(candidate: Candidate) -> tuple[str, str, str]:
    source = candidate.source
    return source.api_group, source.kind, source.key
