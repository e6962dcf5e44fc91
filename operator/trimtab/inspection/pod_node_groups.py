"""Explains for a pending pod what each node group could do for it, and which change of a group would help.

All verdicts are the autoscaling planner's. A suggested change was made on a copy of the planner's inputs, and the
planner then added a node for the pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import KIND, NAME

if TYPE_CHECKING:
    from trimtab.api.cluster_autoscaler_status import NodeGroupStatus
    from trimtab.api.plan import Kept, ScaleUp
    from trimtab.autoscaling.groups import NodeGroup
    from trimtab.autoscaling.scale_up import GroupVerdict, PlanInputs, PodScaleUp
    from trimtab.autoscaling.scale_up.limits import LimitReason
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.kube.objects import Pod

Document = dict[str, Any]

CLEAR_BACKOFF: Final = 'kubectl annotate clusterautoscaler default --overwrite trimtab.dev/try-again="$(date +%s)"'
"""The command that ends the backoff of all node groups."""

WAIT: Final = 0.4
"""Wait for a node that is booting or that the autoscaler adds. Cheaper than any change, see the costs of
:mod:`trimtab.placement.remedies.costs`."""

CHANGE_GROUP: Final = 1.2
"""Raise a maximum, end a backoff or resume a group. Each further change of the same suggestion costs as much."""

ADD_TO_GROUP: Final = 1.6
"""Add a node to a group by hand, because the autoscaler does not add nodes for such pods."""

MAX_TRIED_GROUPS: Final = 4
"""Maximum number of groups for which changes are tried."""

_MAX_CHANGES: Final = 4
"""Maximum number of changes of one suggestion."""

_WAITING: Final = frozenset({reasons.FITS_ON_UPCOMING_NODE, reasons.FITS_AFTER_MOVES, reasons.FITS_AFTER_REMOVALS})
"""Reasons of the planner with which the pod fits without a further change."""

_BY_HAND: Final = frozenset(
    {
        reasons.PRIORITY_BELOW_THRESHOLD,
        reasons.POD_TOO_COMPLEX,
        reasons.NAMESPACE_TOO_COMPLEX,
        reasons.CLUSTER_UNHEALTHY,
        reasons.GROUP_UNHEALTHY,
        reasons.SCALE_UP_NOT_SEEN,
    }
)
"""Reasons for which the autoscaler adds no node although a group could have one more."""


class NodeGroupAdvice(Struct, frozen=True):
    """What the autoscaler does for a pending pod.

    Attributes:
        autoscaling: the planner's decision: ``reason``, ``message``, and ``assumed`` if the decision holds only once
            the scheduler has reported the pod as unschedulable.
        groups: a document for each node group.
        remedies: suggestions in the form of :meth:`trimtab.placement.remedies.search.RemedyPlan.document`.
    """

    autoscaling: Document
    groups: tuple[Document, ...]
    remedies: tuple[Document, ...] = ()


def advise_on_node_groups(cluster: ClusterInput, pod: Pod) -> NodeGroupAdvice | None:
    """Return what the autoscaler does for a pending pod; ``None`` if nothing configures autoscaling.

    Args:
        cluster: the cluster.
        pod: a pending pod of the cluster.
    """
    if not cluster.policies.autoscaled:
        return None
    from trimtab.autoscaling.cluster_state import inputs_from_status

    snapshot = cluster.snapshot
    inputs = cluster.policies.autoscaling_inputs(now=cluster.now)
    inputs = inputs_from_status(snapshot, replace(inputs, groups=inputs.node_groups(snapshot)))
    return _Advisor(cluster, inputs, pod).advise()


class _Advisor:
    def __init__(self, cluster: ClusterInput, inputs: PlanInputs, pod: Pod) -> None:
        self._cluster = cluster
        self._inputs = inputs
        self._pod = pod
        self._assumed = False
        self._statuses = {each.id: each for each in inputs.status.node_groups}

    def advise(self) -> NodeGroupAdvice:
        found = self._plan(self._inputs)
        action, kept = _decision(found, self._pod)
        if kept is not None and kept.reason == reasons.NOT_UNSCHEDULABLE:
            self._assumed = True
            found = self._plan(self._inputs)
            action, assumed = _decision(found, self._pod)
            if assumed is not None and assumed.reason != reasons.FITS_ON_NODE:
                kept = assumed
        documents = tuple(self._document(each, action) for each in found.groups)
        if action is not None:
            waits = "; it is added once the scheduler has reported the pod as unschedulable" if self._assumed else ""
            autoscaling = {"reason": action.reason, "message": f"{_sizes(action)}: {action.message}{waits}"}
        else:
            reason, message = ("", "") if kept is None else (kept.reason, kept.message)
            autoscaling = {"reason": reason, "message": message}
        remedies = sorted(self._remedies(found, action, kept), key=lambda each: each["cost"])
        return NodeGroupAdvice({**autoscaling, "assumed": self._assumed}, documents, tuple(remedies))

    def _plan(self, inputs: PlanInputs) -> PodScaleUp:
        """Run the planner, if necessary as if the scheduler had reported the pod as unschedulable."""
        from trimtab.autoscaling.scale_up import scale_up_of_pod
        from trimtab.kube.objects import PodCondition

        snapshot = self._cluster.snapshot
        with snapshot.fork():
            pod = self._pod
            if self._assumed:
                reported = PodCondition(type="PodScheduled", status="False", reason="Unschedulable")
                others = tuple(each for each in pod.conditions if each.type != reported.type)
                pod = replace(pod, conditions=(*others, reported))
                snapshot.put(pod)
            return scale_up_of_pod(snapshot, inputs, pod)

    def _document(self, verdict: GroupVerdict, action: ScaleUp | None) -> Document:
        group = verdict.group
        planned = action if action is not None and action.group == group.id else None
        limit = None if planned is not None else verdict.limit
        return {
            "nodeGroup": group.key,
            "id": group.id,
            "size": group.target,
            "minimum": group.minimum,
            "maximum": group.maximum,
            "upcoming": self._inputs.upcoming.get(group.id, group.upcoming),
            "autoscaler": group.autoscaler,
            "backoff": backoff_document(self._inputs.backoff.get(group.id), self._statuses.get(group.id)),
            "fits": verdict.fits,
            "reasons": list(verdict.reasons),
            "limit": None if limit is None else {"reason": limit.reason, "message": limit.message},
            "scaleUp": None if planned is None else {"from": planned.from_, "to": planned.to},
        }

    # --- suggestions --------------------------------------------------------------------------------------------------

    def _remedies(self, found: PodScaleUp, action: ScaleUp | None, kept: Kept | None) -> Iterator[Document]:
        if action is not None:
            change = f"wait: the autoscaler scales up {_sizes(action)} for it"
            yield _remedy([_step("WaitForScaleUp", change, WAIT, "NodeGroup", action.machine_set)], action.machine_set)
            return
        if kept is None or kept.reason == reasons.FITS_ON_NODE:
            return
        if kept.reason in _WAITING:
            yield _remedy([_step("WaitForNode", f"wait: {kept.message}", WAIT, "Node", kept.node)], "")
            return
        if kept.reason == reasons.SCALE_UP_DELAYED:
            yield _remedy([_step("WaitForScaleUp", f"wait: {kept.message}", WAIT, "Pod", self._pod.key)], "")
            return
        fitting = [each for each in found.groups if each.fits]
        for verdict in fitting[:MAX_TRIED_GROUPS]:
            if verdict.limit is not None:
                yield from self._changes(verdict)
        if kept.reason in _BY_HAND:
            yield from (self._by_hand(each.group) for each in fitting if each.limit is None)

    def _changes(self, verdict: GroupVerdict) -> Iterator[Document]:
        """Yield the changes with which the planner adds a node for the pod, if there are such changes of the group."""
        inputs, steps, group = self._inputs, list[Document](), verdict.group
        limit = verdict.limit
        while limit is not None and len(steps) < _MAX_CHANGES:
            tried = self._without(inputs, limit.reason, group)
            if tried is None:
                return
            inputs, found = tried
            action, _ = _decision(found, self._pod)
            steps.append(_change_step(limit, group, inputs, action))
            if action is not None:
                yield _remedy(steps, group.key)
                return
            after = next(each for each in found.groups if each.group.id == group.id).limit
            limit = after if after is not None and after.reason != limit.reason else None

    def _without(self, inputs: PlanInputs, reason: str, group: NodeGroup) -> tuple[PlanInputs, PodScaleUp] | None:
        """Lift one limit of a group and plan again; ``None`` if an administrator cannot lift such a limit.

        A maximum is raised by one node, or if that node is needed for other pods, by one node for each pending pod.
        """
        if reason != reasons.MAX_SIZE_REACHED:
            lifted = _without(inputs, reason, group)
            return None if lifted is None else (lifted, self._plan(lifted))
        raised, found = inputs, None
        for more in (1, sum(1 for _ in self._cluster.snapshot.unbound())):
            maximum = max(group.maximum, group.target) + more
            raised = _with_maximum(inputs, group, maximum)
            found = self._plan(raised)
            if _decision(found, self._pod)[0] is not None:
                break
        return None if found is None else (raised, found)

    def _by_hand(self, group: NodeGroup) -> Document:
        change = f"scale node group {group.key} from {group.target} to {group.target + 1}"
        details = {"field": "spec.replicas", "from": group.target, "to": group.target + 1}
        step = _step("AddNodeToGroup", change, ADD_TO_GROUP, group.kind, group.key, **details)
        return _remedy([step], group.key)


def _decision(found: PodScaleUp, pod: Pod) -> tuple[ScaleUp | None, Kept | None]:
    """Return the scale-up for the pod, or else the entry of the plan that says why there is none."""
    for action in found.plan.actions:
        if pod.key in action.pods:
            return action, None
    for kept in found.plan.kept:
        if kept.kind == "Pod" and (kept.namespace, kept.name) == (pod.namespace, pod.name):
            return None, kept
    return None, None


def _sizes(action: ScaleUp) -> str:
    return f"node group {action.machine_set} from {action.from_} to {action.to}"


def backoff_document(message: str | None, status: NodeGroupStatus | None) -> Document | None:
    """Return the backoff of a node group, ready for JSON; ``None`` if it is not in backoff.

    Args:
        message: why the group is in backoff, see ``PlanInputs.backoff``; ``None`` if it is not.
        status: the status of the group; ``None`` if it is unknown.
    """
    if message is None:
        return None
    from trimtab.api.plan import rfc3339

    error = None if status is None else status.last_error
    until = None if status is None or status.backoff_until is None else rfc3339(status.backoff_until.timestamp())
    return {
        "until": until,
        "failures": 0 if status is None else status.failures,
        "reason": "" if error is None else error.reason,
        "message": error.message if error is not None and error.message else message,
    }


def _with_maximum(inputs: PlanInputs, group: NodeGroup, maximum: int) -> PlanInputs:
    return _with_group(inputs, replace(_group(inputs, group), maximum=maximum))


def _without(inputs: PlanInputs, reason: str, group: NodeGroup) -> PlanInputs | None:
    """Return the inputs without one limit of a group; ``None`` if an administrator cannot lift such a limit."""
    limits = inputs.spec.resource_limits
    match reason:
        case reasons.GROUP_PAUSED:
            return _with_group(inputs, replace(_group(inputs, group), paused=""))
        case reasons.GROUP_BACKS_OFF:
            return replace(inputs, backoff={id_: each for id_, each in inputs.backoff.items() if id_ != group.id})
        case reasons.MAX_NODES_TOTAL_REACHED:
            limits = replace(limits, max_nodes_total=None)
        case reasons.MAX_CORES_REACHED:
            limits = replace(limits, cores=None)
        case reasons.MAX_MEMORY_REACHED:
            limits = replace(limits, memory=None)
        case reasons.MAX_GPUS_REACHED:
            limits = replace(limits, gpus=())
        case reasons.MAX_NODES_PER_NAMESPACE_REACHED:
            limits = replace(limits, max_nodes_per_namespace=None)
        case _:
            return None
    return replace(inputs, spec=replace(inputs.spec, resource_limits=limits))


def _group(inputs: PlanInputs, group: NodeGroup) -> NodeGroup:
    assert inputs.groups is not None, "the inputs contain the groups, see advise_on_node_groups"
    return inputs.groups.by_id[group.id]


def _with_group(inputs: PlanInputs, group: NodeGroup) -> PlanInputs:
    assert inputs.groups is not None, "the inputs contain the groups, see advise_on_node_groups"
    return replace(inputs, groups=replace(inputs.groups, by_id={**inputs.groups.by_id, group.id: group}))


_FIELDS: Final = {
    reasons.MAX_NODES_TOTAL_REACHED: "maxNodesTotal",
    reasons.MAX_CORES_REACHED: "cores.max",
    reasons.MAX_MEMORY_REACHED: "memory.max",
    reasons.MAX_GPUS_REACHED: "gpus",
    reasons.MAX_NODES_PER_NAMESPACE_REACHED: "maxNodesPerNamespace",
}
"""The field of resourceLimits by the reason that it causes."""


def _change_step(limit: LimitReason, group: NodeGroup, inputs: PlanInputs, action: ScaleUp | None) -> Document:
    """Return the step that lifts a limit, with the object and the field to change.

    Args:
        limit: the limit.
        group: the group before the change.
        inputs: the inputs after the change.
        action: the scale-up for the pod after the change, if there is one.
    """
    if limit.reason == reasons.MAX_SIZE_REACHED:
        to = _group(inputs, group).maximum
        if action is not None and action.group == group.id:
            to = action.to
        kind, name = ("MachineAutoscaler", group.autoscaler) if group.autoscaler else (group.kind, group.key)
        field = "spec.maxReplicas" if group.autoscaler else "metadata.annotations"
        change = f"raise the maximum of node group {group.key} from {group.maximum} to {to} ({kind} {name})"
        details = {"field": field, "from": group.maximum, "to": to}
        return _step("RaiseMaximum", change, CHANGE_GROUP, kind, name, **details)
    if limit.reason == reasons.GROUP_BACKS_OFF:
        change = (
            f"clear the backoff of node group {group.key}, after its cause is removed, with {CLEAR_BACKOFF}: "
            f"{limit.message}"
        )
        return _step("ClearBackoff", change, CHANGE_GROUP, group.kind, group.key, command=CLEAR_BACKOFF)
    if limit.reason == reasons.GROUP_PAUSED:
        change = f"resume scaling of node group {group.key}: {group.paused}"
        return _step("ResumeGroup", change, CHANGE_GROUP, group.kind, group.key)
    field = f"spec.resourceLimits.{_FIELDS[limit.reason]}"
    change = f"raise {field} of the ClusterAutoscaler: {limit.message}"
    return _step("RaiseResourceLimit", change, CHANGE_GROUP, KIND, NAME, field=field)


def _step(reason: str, change: str, cost: float, kind: str, name: str, **details: Any) -> Document:
    return {"reason": reason, "change": change, "kind": kind, "name": name, "cost": cost, **details}


def _remedy(steps: list[Document], group: str) -> Document:
    costs = [each["cost"] for each in steps]
    return {
        "change": "; ".join(each["change"] for each in steps),
        "node": None,
        "nodeGroup": group or None,
        "reason": steps[0]["reason"],
        "cost": round(sum(costs), 2),
        "steps": [{key: value for key, value in each.items() if key != "cost"} for each in steps],
    }
