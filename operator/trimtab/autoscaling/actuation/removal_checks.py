"""Determines in each reconcile which removals must stop and which leftovers must be cleaned up.

Leftovers are removal taints and annotations on nodes, and deletion annotations on machines, for which no removal is
running. In this module a machine is *marked* if it has the annotation that tells its group's controller to delete it
before others. All functions are pure; only :class:`StrayMarks` has state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import RemoveNode
from trimtab.autoscaling.actuation.node_markers import RemovalMarkers, has_markers, removal_markers
from trimtab.autoscaling.actuation.removal import Phase, RemovalSettings, RemovalState
from trimtab.autoscaling.actuation.removal_batch import RemovalBatches, machines_with_pods
from trimtab.autoscaling.actuation.removal_review import RemovalReview
from trimtab.autoscaling.groups import GroupMachine, Groups, MachineState, NodeGroup
from trimtab.autoscaling.providers import MachineRemoval, failed_machines_tie
from trimtab.autoscaling.scale_down.eligibility import SCALE_DOWN_DISABLED
from trimtab.disruption.outcome import Refusal
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Node
from trimtab.kube.permissions import Permission
from trimtab.kube.resources import CLUSTER_MACHINES, MACHINES, NODES, PODS

NOT_READY_NODE_GRACE = 600.0
"""Age of the removal taint in seconds up to which a not-ready node without a machine is left unchanged.

Such a node usually disappears soon after its machine. If it still exists later, its markers are removed.
"""

READY_NODE_GRACE = 120.0
"""Age of the removal taint in seconds up to which a ready node without a machine is left unchanged.

Its kubelet may have stopped before the Ready condition was updated.
"""


def is_for_removals(permission: Permission) -> bool:
    """Return whether removals of nodes need the permission: to change nodes and machines, to evict, and to scale."""
    if permission.resource == PODS:
        return permission.subresource == "eviction"
    if permission.resource == NODES:
        return permission.verb in ("get", "patch") and not permission.subresource
    if permission.resource in (MACHINES, CLUSTER_MACHINES):
        return permission.verb in ("get", "patch")
    return permission.subresource == "scale"


class LeftoverAction(StrEnum):
    """The action for the leftovers on a node."""

    LEAVE = "Leave"
    """Do nothing, because another program added the taint or the node is being deleted."""
    VERIFY = "Verify"
    """Verify which machine is deleted, because the machine is marked and the size has been lowered."""
    RESUME = "Resume"
    """Resume the removal if a review still allows it."""
    ROLL_BACK = "RollBack"
    """Remove trimtab's taint, cordon and annotations from the node."""


class Leftover(Struct, frozen=True):
    """A node with taints or annotations of a removal that is not running.

    Attributes:
        node: the node.
        markers: the taint, the cordon and the annotations of removals on the node.
        action: the action to take.
        group: the group of the node; ``None`` if it belongs to no group.
        machine: the machine of the node; ``None`` if the group reports none.
        removal: the size change that the earlier process must have requested; ``None`` unless the action is Verify.
    """

    node: Node
    markers: RemovalMarkers
    action: LeftoverAction
    group: NodeGroup | None = None
    machine: GroupMachine | None = None
    removal: MachineRemoval | None = None


def leftovers(
    nodes: Iterable[Node],
    groups: Groups,
    spec: ClusterAutoscalerSpec | None,
    *,
    ours: Callable[[Node], bool],
    settings: RemovalSettings,
    now: float,
) -> list[Leftover]:
    """Return the nodes with leftovers of removals that are not running, sorted by name.

    Args:
        nodes: all nodes of the cluster.
        groups: the node groups of the same snapshot.
        spec: spec of the ClusterAutoscaler; ``None`` if it does not exist.
        ours: returns whether a removal of the node is in progress or has just ended.
        settings: contains the maximum age of removals to resume.
        now: the current time in seconds since the epoch.
    """
    found = []
    for node in nodes:
        if not has_markers(node):
            continue
        markers = removal_markers(node)
        if (markers.any or markers.foreign) and not ours(node):
            found.append(_judge(node, markers, groups, spec, settings, now))
    return sorted(found, key=lambda each: each.node.name)


def is_being_deleted(node: Node, groups: Groups) -> bool:
    """Return whether a node or its machine is already being deleted."""
    if node.deleted is not None:
        return True
    group = groups.group_of(node.name)
    machines = () if group is None else group.machines
    return any(each.node == node.name and each.state is MachineState.DELETING for each in machines)


def _judge(
    node: Node,
    markers: RemovalMarkers,
    groups: Groups,
    spec: ClusterAutoscalerSpec | None,
    settings: RemovalSettings,
    now: float,
) -> Leftover:
    group = groups.group_of(node.name)
    machine = None
    if group is not None:
        machine = next((each for each in group.machines if each.node == node.name), None)

    def to(step: LeftoverAction, removal: MachineRemoval | None = None) -> Leftover:
        return Leftover(node, markers, step, group, machine, removal)

    if not markers.any or node.deleted is not None:
        return to(LeftoverAction.LEAVE)
    age = None if markers.since is None else now - markers.since
    if group is None or machine is None:
        most = READY_NODE_GRACE if node.ready else NOT_READY_NODE_GRACE
        lingers = markers.ours and spec is not None and age is not None and 0 <= age < most
        return to(LeftoverAction.LEAVE if lingers else LeftoverAction.ROLL_BACK)
    if machine.state is MachineState.DELETING:
        return to(LeftoverAction.LEAVE)
    if markers.ours and machine.marked and live_machines(group) > group.target:
        return to(LeftoverAction.VERIFY, resumed_removal(group, machine))
    if (
        not markers.ours
        or age is None
        or not 0 <= age < settings.max_taint_age
        or not _may_remove_nodes(spec)
        or group.paused
    ):
        return to(LeftoverAction.ROLL_BACK)
    return to(LeftoverAction.RESUME)


def _may_remove_nodes(spec: ClusterAutoscalerSpec | None) -> bool:
    return spec is not None and spec.mode == "Act" and spec.scaling_down.enabled


def live_machines(group: NodeGroup) -> int:
    """Return the number of machines that count toward the group's size."""
    return sum(machine.state is not MachineState.DELETING for machine in group.machines)


def resumed_removal(group: NodeGroup, machine: GroupMachine) -> MachineRemoval:
    """Return the size change that an earlier process must have requested for a marked machine.

    The size has been lowered, and the machine has not been deleted yet.
    """
    others = sorted(
        each.name
        for each in group.machines
        if each.name and each.name != machine.name and not each.marked and each.state is not MachineState.DELETING
    )
    return MachineRemoval(group.id, live_machines(group), group.target, machines=(machine.name,), others=tuple(others))


RECHECK_SECONDS: Final = 600.0
"""Seconds after which a mark that another program set is checked again. Such marks are not removed."""


def stray_marks(group: NodeGroup, *, busy: Collection[str] = ()) -> list[str]:
    """Return the names of a group's marked machines that no removal explains; empty while any removal might.

    Marks are stray if the group is not above its target size and none of its nodes is in ``busy``.

    Args:
        group: the group.
        busy: names of the nodes that are being removed or have leftovers.
    """
    if live_machines(group) > group.target or any(machine.node in busy for machine in group.machines if machine.node):
        return []
    return sorted(
        machine.name
        for machine in group.machines
        if machine.marked and machine.name and machine.state is not MachineState.DELETING
    )


SETTLE_SECONDS: Final = 30.0
"""Seconds for which a snapshot may still lack a recent write or the end of a removal."""


class StrayMarks:
    """Removes stray marks: deletion annotations on machines that no removal explains.

    The group does not report who marked a machine, so each machine object is read to find out, at intervals.

    Args:
        batches: removes the marks, and delays the group's next batch after that.
        clock: the clock.
    """

    def __init__(self, batches: RemovalBatches, clock: Clock) -> None:
        self._batches = batches
        self._clock = clock
        self._checked_at: dict[tuple[str, str], float] = {}

    def due(self, groups: Iterable[NodeGroup], *, busy: Collection[str]) -> Iterator[tuple[NodeGroup, list[str]]]:
        """Yield each group with the names of its machines whose marks must be removed now.

        Args:
            groups: the groups to check.
            busy: see :func:`stray_marks`.
        """
        now = self._clock.monotonic()
        self._checked_at = {key: at for key, at in self._checked_at.items() if now - at < RECHECK_SECONDS}
        for group in groups:
            names = [name for name in stray_marks(group, busy=busy) if (group.id, name) not in self._checked_at]
            if names and self._batches.provider(group) is not None:
                self._checked_at |= {(group.id, name): now for name in names}
                yield group, names

    def settling(self, group: NodeGroup | None, *, left: Callable[[str], bool]) -> bool:
        """Return whether marks in a group are about to be removed.

        If so, no removal is started in the group until the next reconcile.

        Args:
            group: the group in the snapshot; ``None`` if it does not exist.
            left: returns whether a node has leftovers of a removal.
        """
        if group is None:
            return False
        now = self._clock.monotonic()
        removing = {machine.name for machine in group.machines if machine.node and left(machine.node)}
        return any(
            name in removing or now - self._checked_at.get((group.id, name), float("-inf")) < SETTLE_SECONDS
            for name in stray_marks(group)
        )

    async def unmark(self, group: NodeGroup, names: Sequence[str]) -> None:
        """Remove trimtab's marks from machines. The next reconcile retries marks whose removal failed."""
        for name in await self._batches.unmark(group, names):
            self._checked_at.pop((group.id, name), None)


class ActiveRemoval(Protocol):
    """The view of a removal in progress that the checks need."""

    @property
    def state(self) -> RemovalState:
        """Return the current state."""
        ...

    @property
    def can_cancel(self) -> bool:
        """Return whether the removal can still be cancelled, so that the node is kept."""
        ...


def start_refusal(
    action: RemoveNode,
    groups: Groups,
    batches: RemovalBatches,
    *,
    removing: Collection[str],
    drained: Collection[str] = (),
) -> Refusal | None:
    """Return the reason why a removal must not be started, or ``None``.

    The check runs before any pod is evicted. It finds problems that would otherwise make the removal fail at its end.

    Args:
        action: the planned removal.
        groups: the node groups that the plan is based on.
        batches: provides the providers and the backoffs of groups.
        removing: names of the nodes that are being removed. Their machines may be marked.
        drained: names of the nodes with failed machines that are drained at the same time.
    """
    group = groups.by_id.get(action.group)
    if group is None:
        return Refusal(reasons.SCALE_TARGET_GONE, f"node group {action.group} no longer exists")
    if batches.provider(group) is None:
        return Refusal(reasons.SCALE_REFUSED, f"no provider supports {group.api_version}")
    if not action.machine:
        return Refusal(reasons.SCALE_REFUSED, f"{group.kind} {group.key} reports no machine for the node")
    backoff = batches.backoff_reason(group)
    if backoff:
        return Refusal(reasons.WRONG_MACHINE_REMOVED, backoff)
    ours = {machine.name for machine in group.machines if machine.node in removing}
    rivals = [name for name in stray_marks(group) if name not in ours]
    if rivals:
        return Refusal(
            reasons.SCALE_REFUSED,
            f"machines {', '.join(rivals)} are marked by another program and might be deleted instead",
        )
    nodes = rivals_with_pods(group, batches.review) - {action.node}
    failed = any(each.node == action.node and each.state is MachineState.FAILED for each in group.machines)
    if nodes - ({*drained} if failed else set()):
        names = sorted(each.name for each in group.machines if each.node in nodes)
        message = f"failed machines {', '.join(names)} still run pods and might be deleted instead"
        return Refusal(reasons.SCALE_REFUSED, message)
    unconfirmed = [each.name for each in group.in_state(MachineState.FAILED) if each.unconfirmed_node]
    if unconfirmed and failed_machines_tie(group):
        message = f"failed machines {', '.join(unconfirmed)} may run pods and might be deleted instead"
        return Refusal(reasons.SCALE_REFUSED, message)
    return None


def rivals_with_pods(group: NodeGroup | None, review: RemovalReview) -> frozenset[str]:
    """Return the nodes that still run pods and whose failed machines the controller might delete instead.

    The result is empty unless the group's controller treats failed and marked machines alike when it deletes machines.

    Args:
        group: the group; ``None`` if it does not exist.
        review: reads the pods of nodes.
    """
    if group is None or not failed_machines_tie(group):
        return frozenset()
    failed = [each for each in group.machines if each.state is MachineState.FAILED]
    names = machines_with_pods(failed, review)
    return frozenset(each.node for each in failed if each.name in names)


def stop_reasons(
    removals: Mapping[str, ActiveRemoval],
    nodes: Mapping[str, Node],
    groups: Groups,
    spec: ClusterAutoscalerSpec | None,
    *,
    now: float,
    halted: str = "",
) -> dict[str, Refusal]:
    """Return the removals that must stop: the reason for each, by node name.

    Args:
        removals: the removals in progress by node name.
        nodes: all nodes of the cluster, by name.
        groups: the node groups of the same snapshot.
        spec: spec of the ClusterAutoscaler; ``None`` if it does not exist.
        now: the current time in seconds since the epoch.
        halted: the reason why no node of the cluster may be removed now; empty if removals are allowed.
    """
    found: dict[str, Refusal] = {}
    for name, removal in removals.items():
        group = groups.by_id.get(removal.state.group)
        refusal = (
            _mode_refusal(spec)
            or _cluster_refusal(halted)
            or _group_refusal(group)
            or _node_refusal(nodes.get(name), removal.state, now)
        )
        if refusal is not None:
            found[name] = refusal
    return found | _below_minimum([each for name, each in removals.items() if name not in found], groups)


def _mode_refusal(spec: ClusterAutoscalerSpec | None) -> Refusal | None:
    if spec is None:
        return Refusal(reasons.AUTOSCALER_GONE, "the ClusterAutoscaler was deleted")
    if spec.mode != "Act":
        return Refusal(reasons.SIMULATED, f"spec.mode is {spec.mode}")
    if not spec.scaling_down.enabled:
        return Refusal(reasons.SCALE_DOWN_DISABLED, "spec.scaleDown.enabled is false")
    return None


def _cluster_refusal(halted: str) -> Refusal | None:
    return Refusal(reasons.CLUSTER_UNHEALTHY, halted) if halted else None


def _group_refusal(group: NodeGroup | None) -> Refusal | None:
    if group is None:
        return Refusal(reasons.SCALE_TARGET_GONE, "the node group no longer exists")
    if group.paused:
        return Refusal(reasons.GROUP_PAUSED, f"{group.kind} {group.key} is paused: {group.paused}")
    return None


def _node_refusal(node: Node | None, state: RemovalState, now: float) -> Refusal | None:
    if node is None or (state.uid and node.uid != state.uid):
        return Refusal(reasons.ALREADY_GONE, "the node no longer exists, or a new node has its name")
    if node.annotations.get(SCALE_DOWN_DISABLED) == "true":
        return Refusal(reasons.SCALE_DOWN_DISABLED_ANNOTATION, f"the node's annotation {SCALE_DOWN_DISABLED} is true")
    if now - state.since > SETTLE_SECONDS and not removal_markers(node).ours and state.phase is not Phase.TAINTING:
        return Refusal(reasons.TAINT_REMOVED, "another client removed the node's deletion taint, so the node is kept")
    return None


def _below_minimum(removals: list[ActiveRemoval], groups: Groups) -> dict[str, Refusal]:
    """Return the most recent removals that would bring a group below its minimum size.

    The sizes may have changed since the plan was made.
    """
    by_group: dict[str, list[ActiveRemoval]] = {}
    for removal in removals:
        by_group.setdefault(removal.state.group, []).append(removal)
    found = {}
    for id_, own in by_group.items():
        group = groups.by_id[id_]
        ending = [each for each in own if each.can_cancel]
        verifying = {each.state.node for each in own if each.state.phase is Phase.VERIFYING}
        if len(ending) + len(verifying) < len(own):
            continue  # the size is being lowered right now
        there = sum(node not in verifying for node in group.nodes)
        short = group.minimum - (min(group.target, there) - len(ending))
        last = sorted(ending, key=lambda each: (-each.state.since, each.state.node))
        for each in last[: max(0, short)]:
            message = f"{group.kind} {group.key} has {plural(there, 'node')}, and its minimum is {group.minimum}"
            found[each.state.node] = Refusal(reasons.NODE_GROUP_MIN_SIZE_REACHED, message)
    return found
