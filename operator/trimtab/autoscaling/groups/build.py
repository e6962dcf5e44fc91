"""Builds the node groups of a snapshot from the objects that have size limits.

The limits are set by a MachineAutoscaler or by annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import NodeGroupAutoDiscovery
from trimtab.api.machine_autoscaler import KIND, MachineAutoscaler
from trimtab.autoscaling.groups.annotations import (
    OWNER,
    SizeLimits,
    annotated_limits,
    annotated_options,
    object_problem,
)
from trimtab.autoscaling.groups.discovery import discover, find_scope
from trimtab.autoscaling.groups.external import NO_EXTERNAL_GROUPS, ExternalGroups, external_groups
from trimtab.autoscaling.groups.machine_groups import ClusterApi, GroupCandidate, GroupSource, MachineApi
from trimtab.autoscaling.groups.membership import match_nodes
from trimtab.autoscaling.groups.node_group import (
    GroupMachine,
    GroupOptions,
    Groups,
    NodeGroup,
    ObjectProblem,
    TemplateSource,
)
from trimtab.cluster.snapshot import Snapshot

Owners = dict[str, MachineAutoscaler]


def match_owners(
    candidates: Iterable[GroupCandidate], autoscalers: Sequence[MachineAutoscaler]
) -> tuple[Owners, tuple[ObjectProblem, ...]]:
    """Return the MachineAutoscaler of each candidate by candidate id, and problems of those that own no target.

    If several MachineAutoscalers have the same target, :func:`choose_owner` decides. MachineAutoscalers that are being
    deleted own nothing.

    OpenShift's operator copies the limits of MachineAutoscalers into annotations. Here the MachineAutoscaler itself is
    used, because a plan from files has no copies, and an outdated copy must not take precedence.
    """
    by_target = {_target_key(candidate): candidate for candidate in candidates}
    claims: dict[str, list[MachineAutoscaler]] = {}
    problems = []
    for autoscaler in sorted(autoscalers, key=lambda each: each.key):
        if autoscaler.metadata.deletion_timestamp is not None:
            continue
        target = autoscaler.spec.scale_target_ref
        group = target.api_version.partition("/")[0]
        candidate = by_target.get((group, target.kind, f"{autoscaler.metadata.namespace}/{target.name}"))
        if candidate is None:
            problems.append(
                _autoscaler_problem(autoscaler, reasons.TARGET_NOT_FOUND, target_not_found_message(autoscaler))
            )
        elif candidate.size_manager:
            message = target_unsupported_message(autoscaler, candidate.size_manager)
            problems.append(_autoscaler_problem(autoscaler, reasons.TARGET_UNSUPPORTED, message))
        else:
            claims.setdefault(candidate.id, []).append(autoscaler)
    by_id = {candidate.id: candidate for candidate in by_target.values()}
    found = {}
    for id_, claiming in claims.items():
        first = found[id_] = choose_owner(claiming, by_id[id_].source.annotations.get(OWNER, ""))
        problems += [
            _autoscaler_problem(autoscaler, reasons.TARGET_ALREADY_OWNED, target_owned_message(autoscaler, first.key))
            for autoscaler in claiming
            if autoscaler is not first
        ]
    return found, tuple(problems)


def size_limits(
    candidate: GroupCandidate, owners: Mapping[str, MachineAutoscaler]
) -> SizeLimits | ObjectProblem | None:
    """Return the size limits of a candidate, a problem if they are invalid, or ``None`` if it is no group."""
    if candidate.size_manager:
        return None
    owner = owners.get(candidate.id)
    if owner is not None:
        return SizeLimits(owner.spec.min_replicas, owner.spec.max_replicas)
    return annotated_limits(candidate.source)


def choose_owner(claiming: Sequence[MachineAutoscaler], current_owner: str) -> MachineAutoscaler:
    """Return the owner of a target that several MachineAutoscalers reference.

    This is the MachineAutoscaler that the target's annotation names, else the oldest, else the first by name. The
    current owner keeps its target, because an older MachineAutoscaler that is restored from a backup must not change
    the limits.
    """
    return min(
        claiming, key=lambda each: (each.key != current_owner, each.metadata.creation_timestamp or "~", each.key)
    )


def target_not_found_message(autoscaler: MachineAutoscaler) -> str:
    """Return the message for a MachineAutoscaler whose target does not exist."""
    target = autoscaler.spec.scale_target_ref
    kind = f"{target.kind}.{target.api_version.partition('/')[0]}"
    return f'spec.scaleTargetRef: {kind} "{target.name}" not found in namespace {autoscaler.metadata.namespace}'


def target_unsupported_message(autoscaler: MachineAutoscaler, governed: str) -> str:
    """Return the message for a MachineAutoscaler whose target another object or program scales."""
    target = autoscaler.spec.scale_target_ref
    name = f"{autoscaler.metadata.namespace}/{target.name}"
    return f"spec.scaleTargetRef: {target.kind} {name} cannot be scaled: {governed}"


def target_owned_message(autoscaler: MachineAutoscaler, owner: str) -> str:
    """Return the message for a MachineAutoscaler whose target is owned by another one (``namespace/name``)."""
    target = autoscaler.spec.scale_target_ref
    return f"spec.scaleTargetRef: the MachineAutoscaler {owner} already scales {target.kind} {target.name}"


def _autoscaler_problem(autoscaler: MachineAutoscaler, reason: str, message: str) -> ObjectProblem:
    return ObjectProblem(KIND, autoscaler.metadata.namespace, autoscaler.metadata.name, reason, message)


def _target_key(candidate: GroupCandidate) -> tuple[str, str, str]:
    source = candidate.source
    return source.api_group, source.kind, source.key


GROUP_SOURCES: Final[tuple[GroupSource, ...]] = (MachineApi(), ClusterApi())
"""The machine APIs whose objects can be node groups."""

_ANY_CLUSTER: Final = NodeGroupAutoDiscovery()

DEFAULT_REPLICAS: Final = 1
"""Default of ``replicas`` in both APIs."""


def build_groups(
    snapshot: Snapshot,
    autoscalers: Sequence[MachineAutoscaler] = (),
    external: ExternalGroups = NO_EXTERNAL_GROUPS,
    discovery: NodeGroupAutoDiscovery = _ANY_CLUSTER,
    confirmed: Iterable[str] = (),
) -> Groups:
    """Return the node groups of a cluster. The result does not depend on the order of any argument.

    Args:
        snapshot: the cluster with machines and their owners.
        autoscalers: all MachineAutoscalers; their limits override annotations of the target.
        external: groups of external providers. If a machine also claims a node of such a group, the node is assigned to
            the machine.
        discovery: ``spec.nodeGroupAutoDiscovery``: which objects of the machine APIs belong to this cluster.
        confirmed: ``confirmed_namespaces`` of an earlier result, so that the groups remain groups if they have no
            nodes.

    Returns:
        The groups, and the problems of objects that could not be used.
    """
    all_candidates = sorted(
        (candidate for provider in GROUP_SOURCES for candidate in provider.candidates(snapshot)),
        key=lambda each: each.id,
    )
    scope = find_scope(
        all_candidates,
        snapshot,
        discovery,
        earlier=set(confirmed),
        autoscaled=(autoscaler.metadata.namespace for autoscaler in autoscalers),
        external=external.configured,
    )
    discovered = discover(all_candidates, snapshot, scope)
    candidates = discovered.candidates
    owners, owner_problems = match_owners(candidates, autoscalers)
    problems = [*owner_problems, *discovered.problems]
    limited: list[tuple[GroupCandidate, SizeLimits]] = []
    for candidate in candidates:
        limits = _wrong_size(candidate) or size_limits(candidate, owners)
        if isinstance(limits, ObjectProblem):
            problems.append(limits)
        elif limits is not None:
            limited.append((candidate, limits))
    members = match_nodes([candidate for candidate, _ in limited], snapshot)
    problems += members.problems
    several_clusters: set[ObjectProblem] = set()
    made = {}
    for candidate, limits in limited:
        options, wrong = annotated_options(candidate.source)
        problems += wrong
        if candidate.paused in discovered.ambiguous:
            several_clusters.add(discovered.ambiguous[candidate.paused])
        elif candidate.paused:
            message = f"is not scaled: {candidate.paused}"
            problems.append(object_problem(candidate.source, reasons.GROUP_PAUSED, message))
        made[candidate.id] = _group(candidate, limits, members.machines[candidate.id], options, owners)
    of_node = _of_node(made)
    further, provider_problems = external_groups(external, snapshot, of_node)
    if further:
        made = {group.id: group for group in sorted((*made.values(), *further), key=lambda each: each.id)}
        of_node = _of_node(made)
    return Groups(
        by_id=made,
        of_node=of_node,
        problems=tuple(sorted((*problems, *several_clusters, *provider_problems))),
        confirmed_namespaces=scope.entries(all_candidates),
    )


def _wrong_size(candidate: GroupCandidate) -> ObjectProblem | None:
    """Return a problem if ``spec.replicas`` is negative, which not every API server rejects, else ``None``."""
    source = candidate.source
    if candidate.size_manager or source.replicas is None or source.replicas >= 0:
        return None
    return object_problem(source, reasons.INVALID_LIMITS, f"spec.replicas must be 0 or more, not {source.replicas}")


def _group(
    candidate: GroupCandidate,
    limits: SizeLimits,
    machines: tuple[GroupMachine, ...],
    options: GroupOptions,
    owners: Mapping[str, MachineAutoscaler],
) -> NodeGroup:
    source = candidate.source
    owner = owners.get(candidate.id)
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
