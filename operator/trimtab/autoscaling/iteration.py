"""Plans one iteration of the autoscaler on a snapshot. It does no I/O and reads no clock.

The reconciler runs :func:`plan_iteration` in a thread, so that the event loop stays responsive.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import GIB, ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus, Replacement
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.plan import Plan
from trimtab.autoscaling.cluster_state import (
    AutoscalerState,
    ClusterHealth,
    GroupFindings,
    Readiness,
    advance,
    assess_health,
    inputs_with_state,
    readiness_by_node,
    status_with_state,
)
from trimtab.autoscaling.cluster_state.state import GroupFinding
from trimtab.autoscaling.groups import ExternalGroups, Groups, build_groups
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.report import ClusterTotals, PendingPod
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.autoscaling.template import build_templates
from trimtab.autoscaling.template.recording import LearnedNodePatch, next_records
from trimtab.cluster.disruption_signals import as_draining, is_being_removed
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.shared_plans import PlannedMove
from trimtab.kube.objects import Node
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

CORE = 1000
"""Millicores in a core."""


class IterationInput(Struct, frozen=True):
    """The inputs of an iteration in addition to the snapshot.

    Attributes:
        spec: spec of the ClusterAutoscaler.
        status: status of the ClusterAutoscaler after the previous iteration.
        state: the autoscaler's state after the previous iteration.
        now: the current time in seconds since the epoch.
        machine_autoscalers: the valid MachineAutoscalers.
        external: the node groups of external providers.
        priorities: patterns of group ids by priority, for the Priority expander.
        advice: the responses of the gRPC server, for the Grpc expander.
        record_nodes: whether to compute the node descriptions to write to node groups.
        moves: pod evictions that the descheduler is executing.
        removing: names of the nodes whose removal runs. The watch may not show their taints yet.
        budget: the time limit of the plan.
    """

    spec: ClusterAutoscalerSpec
    status: ClusterAutoscalerStatus
    state: AutoscalerState
    now: float
    machine_autoscalers: tuple[MachineAutoscaler, ...]
    external: ExternalGroups
    priorities: Mapping[int, tuple[str, ...]] = {}
    advice: Advice | None = None
    record_nodes: bool = False
    moves: tuple[PlannedMove, ...] = ()
    removing: Collection[str] = ()
    budget: PlanBudget = UNLIMITED


class IterationResult(Struct, frozen=True):
    """The observations and the plan of an iteration.

    Attributes:
        groups: the node groups of the snapshot.
        nodes: the nodes of the snapshot, by name.
        readiness: the readiness of each node, by name.
        state: the autoscaler's state, updated from this snapshot, with the unneeded and blocked nodes of the plan.
        findings: changes of node groups since the previous iteration, for example scale-ups that timed out.
        health: the health of the cluster and of its node groups.
        plan: the actions, and a reason for each object that the plan does not change.
        pending_pods: pods without a node, by ``namespace/name``.
        totals: the total resources of all nodes.
        recordings: the node descriptions to write to node groups.
        replacements: the replacements for the ClusterAutoscaler's status, including one that this plan starts.
    """

    groups: Groups
    nodes: Mapping[str, Node]
    readiness: Mapping[str, Readiness]
    state: AutoscalerState
    findings: GroupFindings
    health: ClusterHealth
    plan: Plan
    pending_pods: Mapping[str, PendingPod]
    totals: ClusterTotals
    recordings: tuple[LearnedNodePatch, ...] = ()
    replacements: tuple[Replacement, ...] = ()


def plan_iteration(snapshot: Snapshot, iteration: IterationInput) -> IterationResult:
    """Update the autoscaler's state from a snapshot, and plan scale-ups, removals and replacements.

    Args:
        snapshot: the cluster state. The planner changes it temporarily and restores it before it returns.
        iteration: the other inputs.
    """
    nodes = {name: snapshot.nodes.node(slot) for name, slot in snapshot.nodes.slot_of.items()}
    draining = {
        name: as_draining(nodes[name])
        for name in iteration.removing
        if name in nodes and not is_being_removed(nodes[name])
    }
    with snapshot.fork():
        for node in draining.values():
            snapshot.put(node)
        return replace(_plan_iteration(snapshot, iteration, nodes | draining), nodes=nodes)


def _plan_iteration(snapshot: Snapshot, iteration: IterationInput, nodes: Mapping[str, Node]) -> IterationResult:
    spec, now = iteration.spec, iteration.now
    found = build_groups(
        snapshot,
        iteration.machine_autoscalers,
        iteration.external,
        spec.node_group_auto_discovery,
        iteration.state.confirmed_namespaces,
    )
    node_readiness = readiness_by_node(nodes, found, now=now, startup=spec.startup_taints)
    state, findings = advance(iteration.state, found, nodes, spec, now, node_readiness=node_readiness)
    current_health = assess_health(found, node_readiness)
    inputs = PlanInputs(
        spec,
        now,
        iteration.machine_autoscalers,
        priorities=iteration.priorities,
        status=status_with_state(state, iteration.status),
        external=iteration.external,
        advice=iteration.advice,
        moves=iteration.moves,
        groups=found,
        budget=iteration.budget,
    )
    inputs = inputs_with_state(inputs, state, findings, current_health)
    new_plan, promises = plan(snapshot, inputs)
    return IterationResult(
        groups=found,
        nodes=nodes,
        readiness=node_readiness,
        state=replace(
            state,
            unneeded=dict(promises.removals.unneeded),
            held=dict(promises.removals.held),
            confirmed_namespaces=found.confirmed_namespaces,
        ),
        findings=replace(findings, reported=(*findings.reported, *map(_given_up_finding, promises.given_up))),
        health=current_health,
        plan=new_plan,
        pending_pods=pending_pods(snapshot),
        totals=cluster_totals(nodes),
        recordings=_node_recordings(snapshot, found, state, iteration) if iteration.record_nodes else (),
        replacements=promises.replacements,
    )


def _given_up_finding(replacement: Replacement) -> GroupFinding:
    nodes = ", ".join(each.name for each in replacement.nodes)
    message = f"{nodes} will not be replaced: {replacement.message}"
    return GroupFinding(replacement.groups[0].id, reasons.REPLACEMENT_GIVEN_UP, message, count=len(replacement.nodes))


def _node_recordings(
    snapshot: Snapshot, found: Groups, state: AutoscalerState, iteration: IterationInput
) -> tuple[LearnedNodePatch, ...]:
    """Return the node descriptions to write to node groups.

    If a node group has no nodes later, its template is built from this description.
    """
    startup = iteration.spec.startup_taints
    made = build_templates(snapshot, found.all, now=iteration.now, spec=iteration.spec)
    boots = {id_: record.boot_seconds for id_, record in state.groups.items()}
    return next_records(found.all, made, snapshot, iteration.now, startup_taints=startup, boots=boots)


def pending_pods(snapshot: Snapshot) -> dict[str, PendingPod]:
    """Return the unbound pods by ``namespace/name``, each with the time at which it was reported unschedulable."""
    found = {}
    for key, pod in snapshot.unbound():
        if pod.terminal:
            continue
        scheduled = next((each for each in pod.conditions if each.type == "PodScheduled"), None)
        refused = scheduled is not None and scheduled.status == "False"
        found[key] = PendingPod(pod.uid, scheduled.since if scheduled is not None and refused else None)
    return found


def cluster_totals(nodes: Mapping[str, Node]) -> ClusterTotals:
    """Return the total resources of all nodes, rounded down to the whole units that ``resourceLimits`` uses.

    Control plane nodes are included.
    """
    cores = memory = 0
    for node in nodes.values():
        amounts = node.capacity or node.allocatable
        cores += amounts.get("cpu", 0)
        memory += amounts.get("memory", 0)
    return ClusterTotals(len(nodes), cores // CORE, memory // GIB)
