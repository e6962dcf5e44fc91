"""From the snapshot to its node groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trimtab.api import reasons
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups.annotations import Limits, annotated_options, problem
from trimtab.autoscaling.groups.cluster_api import ClusterApi
from trimtab.autoscaling.groups.external import NO_EXTERNAL_GROUPS, ExternalGroups, external_groups
from trimtab.autoscaling.groups.limits import limits_of, owners
from trimtab.autoscaling.groups.machine_api import MachineApi
from trimtab.autoscaling.groups.membership import membership
from trimtab.autoscaling.groups.node_group import GroupMachine, GroupOptions, Groups, NodeGroup, Problem, TemplateSource
from trimtab.autoscaling.groups.provider import Candidate, Provider
from trimtab.cluster.snapshot import Snapshot

PROVIDERS: Final[tuple[Provider, ...]] = (MachineApi(), ClusterApi())
"""Every API of machines that groups are made from."""

DEFAULT_REPLICAS: Final = 1
"""What both APIs make of ``replicas`` that is left out."""


def groups(
    snapshot: Snapshot,
    autoscalers: Sequence[MachineAutoscaler] = (),
    external: ExternalGroups = NO_EXTERNAL_GROUPS,
) -> Groups:
    """The node groups of a cluster.

    Pure, and the same whatever the order of any argument.

    Args:
        snapshot: with the machines, and what makes them.
        autoscalers: all MachineAutoscalers; a target of theirs has their limits, whatever its annotations say.
        external: what providers outside of the cluster say of their groups; a node that a machine claims as well is
            the machine's.

    Returns:
        The groups, and what is wrong with objects that were to be groups or to govern one; these are left out.
    """
    candidates = sorted(
        (candidate for provider in PROVIDERS for candidate in provider.candidates(snapshot)), key=lambda each: each.id
    )
    owning, told = owners(candidates, autoscalers)
    problems = list(told)
    limited: list[tuple[Candidate, Limits]] = []
    for candidate in candidates:
        limits = _wrong_size(candidate) or limits_of(candidate, owning)
        if isinstance(limits, Problem):
            problems.append(limits)
        elif limits is not None:
            limited.append((candidate, limits))
    members = membership([candidate for candidate, _ in limited], snapshot)
    problems += members.problems
    made = {}
    for candidate, limits in limited:
        options, wrong = annotated_options(candidate.source)
        problems += wrong
        if candidate.paused:
            message = f"is not scaled: {candidate.paused}"
            problems.append(problem(candidate.source, reasons.GROUP_PAUSED, message))
        made[candidate.id] = _group(candidate, limits, members.machines[candidate.id], options, owning)
    of_node = _of_node(made)
    further, told_by_providers = external_groups(external, snapshot, of_node)
    if further:
        made = {group.id: group for group in sorted((*made.values(), *further), key=lambda each: each.id)}
        of_node = _of_node(made)
    return Groups(by_id=made, of_node=of_node, problems=tuple(sorted((*problems, *told_by_providers))))


def _wrong_size(candidate: Candidate) -> Problem | None:
    """What is wrong with the size that is asked for: not every API server refuses one that cannot be."""
    source = candidate.source
    if source.replicas is None or source.replicas >= 0:
        return None
    return problem(source, reasons.INVALID_LIMITS, f"spec.replicas must be 0 or more, not {source.replicas}")


def _group(
    candidate: Candidate,
    limits: Limits,
    machines: tuple[GroupMachine, ...],
    options: GroupOptions,
    owning: Mapping[str, MachineAutoscaler],
) -> NodeGroup:
    source = candidate.source
    owner = owning.get(candidate.id)
    return NodeGroup(
        id=candidate.id,
        api_version=source.api_version,
        kind=source.kind,
        namespace=source.namespace,
        name=source.name,
        minimum=limits.minimum,
        maximum=limits.maximum,
        target=DEFAULT_REPLICAS if source.replicas is None else source.replicas,
        uid=source.uid,
        resource_version=source.resource_version,
        autoscaler="" if owner is None else owner.key,
        machines=machines,
        options=options,
        template=TemplateSource(
            source.annotations,
            source.node_labels,
            source.node_taints,
            source.initial_taints,
            machine_type=source.machine_type,
        ),
        paused=candidate.paused,
    )


def _of_node(made: Mapping[str, NodeGroup]) -> dict[str, str]:
    found: dict[str, str] = {}
    for group in made.values():
        for machine in group.machines:
            if machine.node:
                found.setdefault(machine.node, group.id)
    return found
