"""Compares the state with the cluster once per iteration, to find out which open scale-ups completed or failed.

This module does no I/O and reads no clock. The target size of a group is the source of truth; its machines and nodes
show how much of the target exists. The autoscaler waits for each missing node until a deadline. The deadline starts
with the request. If another actor requested the node, it starts when the node was first found missing. For example, a
user changed the target, a machine is being replaced, or a previous process was killed. So missing nodes are handled in
the same way, regardless of who requested them.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.cluster_state.backoff import backoff_messages, with_expired_failures
from trimtab.autoscaling.cluster_state.group_state import GroupState
from trimtab.autoscaling.cluster_state.readiness import (
    HEALTH_DEFAULTS,
    ClusterHealth,
    HealthSettings,
    Readiness,
    assess_health,
    readiness_by_node,
)
from trimtab.autoscaling.cluster_state.state import (
    AutoscalerState,
    GroupFinding,
    GroupFindings,
    GroupRecord,
    OpenScaleUp,
    state_from_status,
)
from trimtab.autoscaling.groups import GroupMachine, Groups, NodeGroup
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node


def advance(
    state: AutoscalerState,
    groups: Groups,
    nodes: Mapping[str, Node],
    spec: ClusterAutoscalerSpec,
    now: float,
    *,
    node_readiness: Mapping[str, Readiness] | None = None,
) -> tuple[AutoscalerState, GroupFindings]:
    """Compare the state with the cluster, and return the updated state and the findings.

    Args:
        state: the state after the previous iteration.
        groups: node groups of the snapshot.
        nodes: nodes of the snapshot by name.
        spec: spec of the ClusterAutoscaler.
        now: the current time in seconds since the epoch.
        node_readiness: readiness by node name, if the caller has already computed it.

    Returns:
        The new state, and the findings about earlier scale-ups.
    """
    now = float(int(now))
    if node_readiness is None:
        node_readiness = readiness_by_node(nodes, groups, now=now, startup=spec.startup_taints)
    records: dict[str, GroupRecord] = {}
    open_: dict[str, tuple[OpenScaleUp, ...]] = {}
    reported: list[GroupFinding] = []
    upcoming: dict[str, int] = {}
    unobserved_requests: dict[str, str] = {}
    unregistered: dict[str, tuple[GroupMachine, ...]] = {}
    shortfall: dict[str, int] = {}
    starting: dict[str, str] = {}
    added = [state.last_scale_up]
    provision = spec.provision_seconds
    for group in groups.all:
        memory = GroupState(group, state, node_readiness, now=now, seconds=provision_seconds(group, provision))
        memory.advance(nodes)
        reported += memory.reported
        added.append(memory.added)
        if memory.record != _NO_RECORD:
            records[group.id] = memory.record
        if memory.increases:
            open_[group.id] = memory.increases
        if memory.upcoming != group.upcoming:
            upcoming[group.id] = memory.upcoming
        if memory.unobserved_request:
            unobserved_requests[group.id] = memory.unobserved_request
        if memory.unregistered:
            unregistered[group.id] = memory.unregistered
        if memory.shortfall:
            shortfall[group.id] = memory.shortfall
        starting |= {name: group.id for name in memory.starting if name not in groups.of_node}
    after = replace(
        state,
        groups=_with_absent(records, state, groups, now),
        scale_ups=open_,
        targets={group.id: target for group in groups.all if (target := _target(group, open_))},
        unneeded={name: min(since, now) for name, since in state.unneeded.items()},
        held={name: min(since, now) for name, since in state.held.items()},
        last_scale_up=_latest(added, now),
        last_scale_down=_latest([state.last_scale_down], now),
        last_scale_down_failure=_latest([state.last_scale_down_failure], now),
    )
    return after, GroupFindings(tuple(reported), upcoming, unobserved_requests, unregistered, shortfall, starting)


_NO_RECORD = GroupRecord()


def provision_seconds(group: NodeGroup, default: float) -> float:
    """Return the maximum time in seconds from the creation of a machine until its node is registered.

    This is the group's own option, or ``maxNodeProvisionTime`` if the group has none.
    """
    own = group.options.provision_seconds
    return default if own is None else own


def _target(group: NodeGroup, open_: Mapping[str, tuple[OpenScaleUp, ...]]) -> int:
    return open_[group.id][-1].to if group.id in open_ else group.target


def _with_absent(
    records: dict[str, GroupRecord], state: AutoscalerState, groups: Groups, now: float
) -> dict[str, GroupRecord]:
    """Return the records, plus those of groups that do not exist at present but failed recently.

    A group may be undiscovered for a while, for example because a user mistyped its limits.
    """
    for id_, record in state.groups.items():
        if id_ not in groups.by_id:
            left = with_expired_failures(replace(record, given_up=0, known_failures=()), now)
            if left.failures:
                records[id_] = left
    return dict(sorted(records.items()))


def _latest(times: list[float | None], now: float) -> float | None:
    return max((min(time, now) for time in times if time is not None), default=None)


def inputs_with_state(
    inputs: PlanInputs, state: AutoscalerState, findings: GroupFindings, cluster_health: ClusterHealth
) -> PlanInputs:
    """Return the plan inputs with the state and the health of this iteration added.

    Args:
        inputs: the plan inputs, to which the state and the health are added.
        state: the state that :func:`~trimtab.autoscaling.cluster_state.advance` returned.
        findings: the findings that the same call returned.
        cluster_health: health of the cluster and of its groups.
    """
    return replace(
        inputs,
        backoff={**backoff_messages(state, inputs.now), **inputs.backoff},
        unhealthy_groups=cluster_health.groups,
        unobserved_requests=findings.unobserved_requests,
        upcoming=findings.upcoming,
        starting=findings.starting,
        cluster_unhealthy=cluster_health.cluster,
    )


def inputs_from_status(
    snapshot: Snapshot, inputs: PlanInputs, *, settings: HealthSettings = HEALTH_DEFAULTS
) -> PlanInputs:
    """Return the plan inputs with the state from the ClusterAutoscaler's status added.

    Planners outside the controller, such as ``trimtab plan``, use this function. They lack any state that the
    controller has not written to the status yet.
    """
    found = inputs.node_groups(snapshot)
    nodes = {node.name: node for node in snapshot.nodes.at if node is not None}
    node_readiness = readiness_by_node(nodes, found, now=inputs.now, startup=inputs.spec.startup_taints)
    state, findings = advance(
        state_from_status(inputs.status), found, nodes, inputs.spec, inputs.now, node_readiness=node_readiness
    )
    cluster_health = assess_health(found, node_readiness, settings=settings)
    return inputs_with_state(inputs, state, findings, cluster_health)
