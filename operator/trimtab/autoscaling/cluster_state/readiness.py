"""Computes the readiness of nodes, and the health of the cluster and of its node groups.

If many nodes become unready at the same time, the cause is probably the network or a stalled watch, and adding or
removing nodes would make it worse. Cluster-autoscaler then stops scaling the whole cluster. Here an unhealthy group is
only excluded from scaling itself. Scaling stops everywhere only if the cluster as a whole is unhealthy. The
autoscaler's state is kept meanwhile.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct

from trimtab.autoscaling.groups import GroupMachine, GroupOptions, Groups, MachineState, NodeGroup
from trimtab.autoscaling.scale_down.eligibility import unready
from trimtab.autoscaling.scale_up.upcoming_nodes import STARTUP_SECONDS
from trimtab.autoscaling.template.node_template import TO_BE_DELETED, is_startup_taint
from trimtab.kube.objects import Node

_NO_OPTIONS = GroupOptions()


class Readiness(StrEnum):
    """The readiness of a node: whether it provides capacity."""

    READY = "Ready"
    UNREADY = "Unready"
    """The node's Ready condition is not True, although its startup time has passed."""
    STARTING = "Starting"
    """The node was created recently and is not ready or has a startup taint. It counts as upcoming."""
    GOING = "Going"
    """The node is being deleted, or has the taint of nodes that are being removed."""


def readiness_by_node(
    nodes: Mapping[str, Node], groups: Groups, *, now: float, startup: Collection[str] = ()
) -> dict[str, Readiness]:
    """Return the readiness of all nodes by name, including nodes without a group.

    Args:
        nodes: nodes by name.
        groups: node groups of the same snapshot. A group may set its own startup time.
        now: the current time in seconds since the epoch.
        startup: keys of startup taints (``spec.startupTaints``), in addition to taints with upstream's prefixes.
    """
    found = {}
    for name, node in nodes.items():
        group = groups.group_of(name)
        found[name] = node_readiness(node, _NO_OPTIONS if group is None else group.options, now=now, startup=startup)
    return found


def node_readiness(node: Node, options: GroupOptions, *, now: float, startup: Collection[str]) -> Readiness:
    """Return the readiness of one node.

    A node counts as starting for at most ``maxnodestartuptime`` after its creation. If it is not ready after that, or
    still has a startup taint, it counts as unready (upstream's rule).
    """
    if node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints):
        return Readiness.GOING
    unwell = unready(node) or any(is_startup_taint(taint, startup) for taint in node.taints)
    if node.conditions and not unwell:
        return Readiness.READY
    limit = STARTUP_SECONDS if options.startup_seconds is None else options.startup_seconds
    if node.created is not None and now - node.created < limit:
        return Readiness.STARTING
    return Readiness.UNREADY if unwell else Readiness.READY


def count_by_readiness(groups: Groups, node_readiness: Mapping[str, Readiness]) -> defaultdict[str, Counter[Readiness]]:
    """Return the number of nodes by readiness, by group id. The id of nodes without a group is empty.

    Starting nodes that do not confirm their machines count toward the groups of these machines, although they belong to
    no group yet.
    """
    group_of = dict(groups.of_node)
    for group in groups.all:
        for machine in group.in_state(MachineState.UNCONFIRMED):
            if node_readiness.get(machine.unconfirmed_node) is Readiness.STARTING:
                group_of.setdefault(machine.unconfirmed_node, group.id)
    counts: defaultdict[str, Counter[Readiness]] = defaultdict(Counter)
    for name, readiness in node_readiness.items():
        counts[group_of.get(name, "")][readiness] += 1
    return counts


def count_upcoming(group: NodeGroup, counts: Mapping[Readiness, int]) -> int:
    """Return the number of a group's requested nodes that have not registered yet or are still starting.

    Args:
        group: the group.
        counts: the group's counts from :func:`count_by_readiness`.
    """
    return group.upcoming + counts.get(Readiness.STARTING, 0)


class MachineCounts(Struct, frozen=True):
    """The machines of one group by state. Machines that are being deleted are not included.

    Attributes:
        target: the target size of the group.
        present: machines whose node exists and is not starting, even if the node does not confirm the machine.
        starting: machines whose node exists and is starting, except those in ``pending``.
        unready: machines in ``present`` whose node is not ready.
        failed: failed machines without a node.
        pending: machines that have not failed and have no node, or a starting node that does not confirm them.
    """

    target: int
    present: tuple[GroupMachine, ...] = ()
    starting: tuple[GroupMachine, ...] = ()
    unready: tuple[GroupMachine, ...] = ()
    failed: tuple[GroupMachine, ...] = ()
    pending: tuple[GroupMachine, ...] = ()

    @property
    def absent(self) -> int:
        """Return how many nodes of the target size do not exist yet, but can still be provisioned."""
        return max(0, self.target - len(self.present) - len(self.starting) - len(self.failed))

    @property
    def awaited(self) -> int:
        """Return how many nodes of the target size can still become ready: absent and starting nodes."""
        return max(0, self.target - len(self.present) - len(self.failed))

    @property
    def without_machine(self) -> int:
        """Return the number of nodes of the target size for which no machine exists."""
        made = len(self.present) + len(self.starting) + len(self.failed) + len(self.pending)
        return max(0, self.target - made)


def count_machines(
    group: NodeGroup, node_readiness: Mapping[str, Readiness], *, target: int | None = None
) -> MachineCounts:
    """Count the machines of a group by state.

    Args:
        group: the group in this iteration's snapshot.
        node_readiness: readiness by node name.
        target: the requested target size, if the snapshot does not contain it yet; ``None`` for the group's target
            size.
    """
    by_state: dict[str, list[GroupMachine]] = {
        name: [] for name in ("present", "starting", "unready", "failed", "pending")
    }
    for machine in group.machines:
        if machine.state is MachineState.DELETING:
            continue
        if machine.unconfirmed_node:
            # Such a node belongs to no group, so it is capacity once it has started, and is added as upcoming before.
            # A failed machine is not added, so it counts like one whose starting node confirms it.
            if node_readiness.get(machine.unconfirmed_node) is not Readiness.STARTING:
                by_state["present"].append(machine)
            else:
                by_state["starting" if machine.state is MachineState.FAILED else "pending"].append(machine)
        elif not machine.node:
            by_state["failed" if machine.state is MachineState.FAILED else "pending"].append(machine)
        elif (found := node_readiness.get(machine.node)) is Readiness.STARTING:
            by_state["starting"].append(machine)
        else:
            by_state["present"].append(machine)
            if found is Readiness.UNREADY:
                by_state["unready"].append(machine)
    counted = {name: tuple(machines) for name, machines in by_state.items()}
    return MachineCounts(group.target if target is None else target, **counted)


def boot_seconds(machines: tuple[GroupMachine, ...], nodes: Mapping[str, Node]) -> list[float]:
    """Return the seconds from the creation of each machine until its node was ready.

    Machines for which one of the two times is unknown are left out.
    """
    found = []
    for machine in machines:
        ready = ready_since(nodes.get(machine.node))
        if ready is not None and machine.since is not None and ready >= machine.since:
            found.append(round(ready - machine.since, 1))
    return found


def ready_since(node: Node | None) -> float | None:
    """Return when a node became ready, in seconds since the epoch; ``None`` if it does not exist or is not ready."""
    if node is None or not node.ready:
        return None
    return next((each.since for each in node.conditions if each.type == "Ready"), None)


class HealthSettings(Struct, frozen=True):
    """Thresholds for unready nodes. The cluster or a group is unhealthy if both are exceeded.

    Attributes:
        ok_total_unready_count: the number of unready nodes that is always acceptable (upstream's flag of that name).
        max_total_unready_percentage: the acceptable percentage of unready nodes (upstream's flag of that name).
    """

    ok_total_unready_count: int = 3
    max_total_unready_percentage: float = 45.0


class ClusterHealth(Struct, frozen=True):
    """The reasons why the cluster or groups must not be scaled at present.

    Attributes:
        cluster: the reason why the whole cluster is unhealthy; empty if it is healthy.
        groups: the reason why each unhealthy group is unhealthy, by group id. Healthy groups are not included.
    """

    cluster: str = ""
    groups: Mapping[str, str] = {}


HEALTH_DEFAULTS: Final = HealthSettings()


def assess_health(
    groups: Groups,
    node_readiness: Mapping[str, Readiness],
    *,
    settings: HealthSettings = HEALTH_DEFAULTS,
) -> ClusterHealth:
    """Determine the health of the cluster and of its groups by the readiness of their nodes.

    Failed scale-ups do not matter here: the backoff after them concerns only scale-up, as upstream's does.

    Starting and terminating nodes are neither ready nor unready, but they count toward the total number of nodes.

    Args:
        groups: node groups of the snapshot.
        node_readiness: readiness by node name. Nodes that belong to no group affect only the health of the cluster.
        settings: thresholds for unready nodes.
    """
    found = {}
    for group in groups.all:
        message = _unhealthy(
            (node_readiness[name] for name in group.nodes if name in node_readiness), settings, "of the group"
        )
        if message:
            found[group.id] = message
    return ClusterHealth(_unhealthy(node_readiness.values(), settings, "of the cluster"), found)


def _unhealthy(readiness: Iterable[Readiness], settings: HealthSettings, what: str) -> str:
    counted = Counter(readiness)
    unready, total = counted[Readiness.UNREADY], counted.total()
    percentage = settings.max_total_unready_percentage
    if unready <= settings.ok_total_unready_count or unready * 100 <= total * percentage:
        return ""
    allowed = f"at most {settings.ok_total_unready_count} or {percentage:g}% are allowed"
    return f"{unready} of the {total} nodes {what} are not ready; {allowed}"
