"""Defines the report of one iteration, from which the status, events, metrics and status ConfigMap are built.

Each of them is a pure function of the report, so they are consistent with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.conditions import ConditionUpdate
from trimtab.api.plan import Kept, Plan, ScaleUp
from trimtab.api.waiting_evictions import WaitingEvictions
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.cluster_state.readiness import ClusterHealth, Readiness
from trimtab.autoscaling.cluster_state.state import AutoscalerState, GroupFinding
from trimtab.autoscaling.groups import Groups, ObjectProblem
from trimtab.autoscaling.providers import ScaleResult
from trimtab.autoscaling.scale_down import STRATEGY as SCALE_DOWN
from trimtab.autoscaling.scale_up.messages import STRATEGY as SCALE_UP
from trimtab.autoscaling.template.node_template import DAEMON_SET

Mode = Literal["Act", "Simulate"]


class ScaleUpOutcome(Struct, frozen=True):
    """The outcome of a scale-up request to a provider.

    Attributes:
        action: the planned scale-up, with the pending pods for which nodes are added.
        scaled: the result that the provider returned.
        at: the time at which the request was sent, in seconds since the epoch.
    """

    action: ScaleUp
    scaled: ScaleResult
    at: float


class PendingPod(Struct, frozen=True, gc=False):
    """A pod without a node.

    Attributes:
        uid: UID of the pod, for events that refer to it.
        since: the time at which the pod's condition PodScheduled became False, in seconds since the epoch; ``None`` if
            it has not.
    """

    uid: str
    since: float | None = None


class ClusterTotals(Struct, frozen=True):
    """The total resources of all nodes, in whole units as in ``resourceLimits``.

    Nodes outside of node groups are included.

    Attributes:
        nodes: the number of nodes.
        cores: the number of whole cores.
        memory_gib: memory in whole GiB.
    """

    nodes: int = 0
    cores: int = 0
    memory_gib: int = 0


class IterationReport(Struct, frozen=True):
    """The observations, the plan and the actions of one iteration.

    Attributes:
        started: the time at which the iteration started, in seconds since the epoch; also the plan's ``now``.
        finished: the time at which the iteration ended, in seconds since the epoch.
        mode: Act, or Simulate if the iteration planned without acting.
        generation: ``metadata.generation`` of the ClusterAutoscaler that the iteration used.
        plan: the actions, and a reason for each object that the plan does not change.
        groups: the node groups at the start of the iteration.
        state: the autoscaler's state after the iteration.
        readiness: the readiness of each node, by name.
        node_uids: the UID of each node, by name, for events that refer to it.
        totals: the total resources of all nodes.
        pending_pods: all pods without a node by ``namespace/name``, including pods that trigger no scale-up.
        scale_up_outcomes: scale-up requests that ended since the last report.
        removals: node removals in progress, by node.
        removal_outcomes: node removals that ended since the last report.
        size_corrections: changes to groups' target sizes since the last report that are not part of a scale-up.
        health: the health of the cluster and of its node groups.
        findings: observed changes in node groups, for example failed machines and nodes that did not register in time.
        cleaned_nodes: the UIDs of nodes from which taints and cordons of an earlier process were removed, by node name.
        problems: invalid objects that the autoscaler reads, other than those in ``groups.problems``.
        waiting_evictions: evictions of drains that the evictor has not admitted yet.
        conflicting: the condition Conflicting; ``None`` if no DeschedulerPolicy exists.
        error: the error that ended the iteration early; empty if there was none.
        phases: the duration of each phase (observe, plan, act) in seconds.
        uid: UID of the ClusterAutoscaler, for events that refer to it.
    """

    started: float
    finished: float
    mode: Mode
    generation: int
    plan: Plan
    groups: Groups
    state: AutoscalerState
    readiness: Mapping[str, Readiness] = {}
    node_uids: Mapping[str, str] = {}
    totals: ClusterTotals = ClusterTotals()
    pending_pods: Mapping[str, PendingPod] = {}
    scale_up_outcomes: Sequence[ScaleUpOutcome] = ()
    removals: Mapping[str, RemovalState] = {}
    removal_outcomes: Sequence[RemovalOutcome] = ()
    size_corrections: Sequence[ScaleResult] = ()
    health: ClusterHealth = ClusterHealth()
    findings: Sequence[GroupFinding] = ()
    cleaned_nodes: Mapping[str, str] = {}
    problems: Sequence[ObjectProblem] = ()
    waiting_evictions: tuple[WaitingEvictions, ...] = ()
    conflicting: ConditionUpdate | None = None
    error: str = ""
    phases: Mapping[str, float] = {}
    uid: str = ""


NOT_PENDING_REASONS: Final = frozenset({reasons.NOT_UNSCHEDULABLE, reasons.SCHEDULING_GATED, reasons.TERMINATING})
"""Reasons for pods without a node that the scheduler has not reported as unschedulable."""

PLACED_REASONS: Final = frozenset(
    {
        reasons.FITS_ON_NODE,
        reasons.FITS_ON_UPCOMING_NODE,
        reasons.FITS_AFTER_MOVES,
        reasons.FITS_AFTER_REMOVALS,
        reasons.NOMINATED,
    }
)
"""Reasons for pods that fit on an existing or upcoming node."""

_DELAYED_REASONS: Final = frozenset({reasons.SCALE_UP_DELAYED, reasons.SCALE_UP_NOT_SEEN})
"""Reasons for pods for which a later iteration may scale up, even if the cluster does not change."""


def remains_unschedulable(kept: Kept) -> bool:
    """Return whether a pod is unschedulable and fits on no existing, upcoming or planned node."""
    reason = kept.reason
    return reason not in NOT_PENDING_REASONS and reason not in PLACED_REASONS and reason not in _DELAYED_REASONS


class PendingPodSummary(Struct, frozen=True):
    """A group of pending pods in one namespace with the same reason and message.

    Attributes:
        namespace: the namespace of the pods.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the message of the first pod.
        pod: the first pod, by name.
        count: the number of pods.
        unschedulable: whether the pods remain unschedulable, see :func:`remains_unschedulable`.
    """

    namespace: str
    reason: str
    message: str
    pod: str
    count: int
    unschedulable: bool


def planned_scale_ups(plan: Plan) -> Iterator[ScaleUp]:
    """Yield the scale-ups of a plan."""
    return (action for action in plan.scaling or () if isinstance(action, ScaleUp))


def kept_pods(plan: Plan) -> Iterator[Kept]:
    """Yield the pending pods for which a plan adds no node, with the reasons."""
    return (kept for kept in plan.kept if kept.kind == "Pod" and kept.strategy == SCALE_UP)


def kept_daemon_sets(plan: Plan) -> Iterator[Kept]:
    """Yield the DaemonSets that a plan reports, with the reasons.

    The plan does not expect their pods on new nodes, or their pods use capacity that pending pods need.
    """
    return (kept for kept in plan.kept if kept.kind == DAEMON_SET and kept.strategy == SCALE_UP)


def kept_nodes(plan: Plan) -> Iterator[Kept]:
    """Yield the nodes that a plan does not remove, with the reasons."""
    return (kept for kept in plan.kept if kept.kind == "Node" and kept.strategy == SCALE_DOWN)


def count_pending_pods(plan: Plan) -> int:
    """Return the number of unschedulable pods, including pods for which the plan adds nodes."""
    helped = sum(len(action.pods) for action in planned_scale_ups(plan))
    return helped + sum(kept.reason not in NOT_PENDING_REASONS for kept in kept_pods(plan))


def summarize_pending_pods(kept: Iterable[Kept]) -> list[PendingPodSummary]:
    """Group pods with the same namespace, reason and message.

    The message of a pod that fits on a node contains the node's name. Therefore such pods are grouped by reason only.

    Returns:
        The summaries. Pods that remain unschedulable come first; then the order is by descending count, then by name.
    """
    found: dict[tuple[str, str, str], list[Kept]] = {}
    for each in kept:
        message = each.message if remains_unschedulable(each) else ""
        found.setdefault((each.namespace, each.reason, message), []).append(each)
    made = []
    for pods in found.values():
        first = min(pods, key=lambda each: each.name)
        made.append(
            PendingPodSummary(
                first.namespace,
                first.reason,
                first.message,
                first.name,
                len(pods),
                remains_unschedulable(first),
            )
        )
    return sorted(made, key=lambda each: (not each.unschedulable, -each.count, each.namespace, each.pod, each.reason))
