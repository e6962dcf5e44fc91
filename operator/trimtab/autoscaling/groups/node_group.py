"""NodeGroup: nodes that one number governs, whatever kind of object holds the number.

All of it is a frozen value made from the snapshot, so that planners need not know a provider. What acts on a group
(patching replicas, marking machines) finds its object by :attr:`NodeGroup.api_version`, ``kind``, namespace and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import Node, Taint


class MachineState(StrEnum):
    """What a machine is doing, as far as capacity goes; the first that holds of Deleting, Failed, Running, Pending."""

    PENDING = "Pending"
    """It has no node (yet): it is being made, or its node is gone."""
    RUNNING = "Running"
    """Its node is in the snapshot; whether that is ready the node says."""
    FAILED = "Failed"
    """Its API says that it failed for good. It keeps its place in the group's size until somebody deletes it."""
    DELETING = "Deleting"
    """It has a deletion timestamp. The group's controller no longer counts it."""


class GroupMachine(Struct, frozen=True, gc=False):
    """A machine of a group.

    Attributes:
        namespace: of the Machine object; empty of an instance that no object stands for.
        name: of the Machine object; empty of a node that a MachinePool has without showing a Machine; the provider ID
            of an instance that no object stands for.
        state: what it is doing.
        node: the name of its node, where that is in the snapshot; a failed or deleting machine may have one.
        since: when the state that counts began, as far as that is recorded: of a machine that is being deleted when
            that was asked for, of all others when the machine was created; seconds since the epoch.
        marked: whether its deletion is asked for by annotation, so that it goes first when replicas fall.
        reason: of a failed machine, its API's own code, e.g. ``InsufficientResources``.
        message: the same in words.
        node_labels: what the Machine gives its node; a set's template may say otherwise by now.
        node_taints: what the Machine gives its node.
    """

    namespace: str
    name: str
    state: MachineState
    node: str = ""
    since: float | None = None
    marked: bool = False
    reason: str = ""
    message: str = ""
    node_labels: Labels = NO_LABELS
    node_taints: tuple[Taint, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name`` of the Machine; the provider ID of an instance that has no object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class GroupOptions(Struct, frozen=True, gc=False):
    """What a group's annotations (``autoscaling-options-…``) say otherwise than the ClusterAutoscaler; else ``None``.

    Thresholds are shares of allocatable between 0 and 1, times are seconds.
    """

    utilization_threshold: float | None = None
    gpu_utilization_threshold: float | None = None
    unneeded_seconds: float | None = None
    unready_seconds: float | None = None
    provision_seconds: float | None = None
    startup_seconds: float | None = None


class TemplateSource(Struct, frozen=True, gc=False):
    """What the group's object says of the nodes it makes; :mod:`trimtab.autoscaling.template` reads it.

    Attributes:
        annotations: of the object: capacities, labels and taints by upstream's keys.
        labels: what its template gives each node.
        taints: what its template gives each node.
        initial_taints: those of them that nodes get once, and that may be taken off soon after.
        node: a new node as a whole, where a provider outside of the cluster says it.
        untold: why such a provider does not say it, in words.
        machine_type: what is rented for each node, as far as that is told; to be compared only.
    """

    annotations: Labels = NO_LABELS
    labels: Labels = NO_LABELS
    taints: tuple[Taint, ...] = ()
    initial_taints: tuple[Taint, ...] = ()
    node: Node | None = None
    untold: str = ""
    machine_type: str = ""


class NodeGroup(Struct, frozen=True, gc=False):
    """A group of alike nodes that can grow and shrink.

    Attributes:
        id: unique in the cluster: ``MachineSet/openshift-machine-api/workers-a``. A MachineSet of Cluster API is
            ``MachineSet.cluster.x-k8s.io/…``, since both APIs may have one of that name. A group that is no object
            has its provider before its name: ``external/workers-a``.
        api_version: of the object that holds the size; else the provider's name.
        kind: of the object.
        namespace: of the object.
        name: of the object.
        uid: of the object.
        resource_version: of the object as it was read: what a guarded patch names.
        minimum: the fewest nodes that scale-down leaves.
        maximum: the most nodes that scale-up asks for.
        target: the size that is asked for at present (``spec.replicas``).
        autoscaler: the MachineAutoscaler that the limits are from, ``namespace/name``; empty if they are annotations.
        machines: by ``namespace/name``; nodes of a pool that have no Machine come last, by node.
        options: what the group wants otherwise.
        template: what its nodes are like, as far as the object says.
        paused: why the group must not be acted on, in words; empty where it may be. It still counts and is reported.
    """

    id: str
    api_version: str
    kind: str
    namespace: str
    name: str
    minimum: int
    maximum: int
    target: int
    uid: str = ""
    resource_version: str = ""
    autoscaler: str = ""
    machines: tuple[GroupMachine, ...] = ()
    options: GroupOptions = GroupOptions()
    template: TemplateSource = TemplateSource()
    paused: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``, as plans name a group; the id of a group that is no object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.id

    def in_state(self, *states: MachineState) -> tuple[GroupMachine, ...]:
        """The machines in one of the states."""
        return tuple(machine for machine in self.machines if machine.state in states)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The names of the nodes that belong to the group and are not being deleted, sorted; ready or not."""
        return tuple(
            sorted(
                machine.node for machine in self.machines if machine.node and machine.state is not MachineState.DELETING
            )
        )

    @property
    def upcoming(self) -> int:
        """How many nodes are asked for and can still join: the target without nodes that are there and failures.

        A machine that failed without a node takes part of the target and never joins. Machines that are being deleted
        do not count: their controller replaces them up to the target.
        """
        failed = sum(not machine.node for machine in self.in_state(MachineState.FAILED))
        return max(0, self.target - len(self.nodes) - failed)


class Problem(Struct, frozen=True, order=True, gc=False):
    """What is wrong with an object that was to be a group, or to govern one; told, and the rest goes on.

    Attributes:
        kind: of the object, e.g. ``MachineAutoscaler``.
        namespace: of the object.
        name: of the object.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: what is wrong, naming the field or annotation, what it says, and what is allowed.
    """

    kind: str
    namespace: str
    name: str
    reason: str
    message: str


class Groups(Struct, frozen=True):
    """The node groups of a snapshot.

    Attributes:
        by_id: the groups by their ids, in the order of the ids.
        of_node: the id of the group that a node belongs to, by the node's name; nodes of no group are not in it.
        problems: sorted.
    """

    by_id: Mapping[str, NodeGroup] = {}
    of_node: Mapping[str, str] = {}
    problems: tuple[Problem, ...] = ()

    @property
    def all(self) -> tuple[NodeGroup, ...]:
        """The groups in the order of their ids."""
        return tuple(self.by_id.values())

    def group_of(self, node: str) -> NodeGroup | None:
        """The group that a node belongs to."""
        found = self.of_node.get(node)
        return None if found is None else self.by_id[found]
