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
            problems.append(_problem(autoscaler, reasons.TARGET_NOT_FOUND, no_target(autoscaler)))
        elif candidate.governed:
            message = governed_target(autoscaler, candidate.governed)
            problems.append(_problem(autoscaler, reasons.TARGET_UNSUPPORTED, message))
        else:
            wanted.setdefault(candidate.id, []).append(autoscaler)
    by_id = {candidate.id: candidate for candidate in by_target.values()}
    found = {}
    for id_, wanting in wanted.items():
        first = found[id_] = rightful(wanting, by_id[id_].source.annotations.get(OWNER, ""))
        problems += [
            _problem(autoscaler, reasons.TARGET_ALREADY_OWNED, owned_target(autoscaler, first.key))
            for autoscaler in wanting
            if autoscaler is not first
        ]
    return found, tuple(problems)


def limits_of(candidate: Candidate, owners: Mapping[str, MachineAutoscaler]) -> Limits | Problem | None:
    """The limits of a candidate; ``None`` where it is no group, a problem where it was meant to be one."""
    if candidate.governed:
        return None
    owner = owners.get(candidate.id)
    if owner is not None:
        return Limits(owner.spec.min_replicas, owner.spec.max_replicas)
    return annotated_limits(candidate.source)


def rightful(wanting: Sequence[MachineAutoscaler], named: str) -> MachineAutoscaler:
    """Of those that want one target the one that has it: that which the target names, else the oldest, else by name.

    Whoever has a target keeps it: an older one may come back from a backup, and nobody expects limits to change then.
    """
    return min(wanting, key=lambda each: (each.key != named, each.metadata.creation_timestamp or "~", each.key))


def no_target(autoscaler: MachineAutoscaler) -> str:
    """Say that a target is not there."""
    target = autoscaler.spec.scale_target_ref
    group = target.api_version.partition("/")[0]
    return (
        f"spec.scaleTargetRef: there is no {target.kind} {target.name} of {group} in the namespace "
        f"{autoscaler.metadata.namespace}"
    )


def governed_target(autoscaler: MachineAutoscaler, governed: str) -> str:
    """Say that something else sets the target's size."""
    target = autoscaler.spec.scale_target_ref
    name = f"{autoscaler.metadata.namespace}/{target.name}"
    return f"spec.scaleTargetRef: {target.kind} {name} cannot be scaled: {governed}"


def owned_target(autoscaler: MachineAutoscaler, owner: str) -> str:
    """Say that another MachineAutoscaler (``namespace/name``) has the target."""
    target = autoscaler.spec.scale_target_ref
    return f"spec.scaleTargetRef: the MachineAutoscaler {owner} already has {target.kind} {target.name}"


def _problem(autoscaler: MachineAutoscaler, reason: str, message: str) -> Problem:
    return Problem(KIND, autoscaler.metadata.namespace, autoscaler.metadata.name, reason, message)


def _target_key(candidate: Candidate) -> tuple[str, str, str]:
    source = candidate.source
    return source.api_group, source.kind, source.key
