"""Defines NodeGroup: a group of identical nodes with one target size, for any kind of object that contains the size.

A NodeGroup is a frozen value that is built from the snapshot, so planners need not know the provider. Code that changes
a group (patches replicas, marks machines) finds its object by :attr:`NodeGroup.api_version`, kind, namespace and name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import Node, Taint


class MachineState(StrEnum):
    """The state of a machine.

    If several states apply, it is the first of Deleting, Failed, Running, Unconfirmed and Pending.
    """

    PENDING = "Pending"
    """The machine has no node: it is being created, or its node was deleted."""
    UNCONFIRMED = "Unconfirmed"
    """A node in the snapshot seems to be the machine's, but it does not confirm that it belongs to the machine."""
    RUNNING = "Running"
    """The machine's node is in the snapshot, ready or not."""
    FAILED = "Failed"
    """The machine's API reports a permanent failure. The machine counts toward the group's size until it is deleted."""
    DELETING = "Deleting"
    """The machine has a deletion timestamp. The group's controller no longer counts it."""


class GroupMachine(Struct, frozen=True, gc=False):
    """A machine of a group.

    Attributes:
        namespace: namespace of the Machine object; empty for an instance without one.
        name: name of the Machine object. It is the provider ID for an instance without a Machine object, and empty for
            a node of a MachinePool without Machine objects.
        state: state of the machine.
        node: name of its node if the node is in the snapshot; a failed or deleting machine may have one.
        unconfirmed_node: name of a node in the snapshot that seems to be the machine's, but does not confirm this. The
            node belongs to no group because of this machine. The machine counts as registered, and is never removed.
        since: the time at which the deletion was requested if the machine is being deleted, else the creation time, in
            seconds since the epoch; ``None`` if unknown.
        marked: whether an annotation requests its deletion, so that it is deleted first when replicas are lowered.
        reason: error code of a failed machine, e.g. ``InsufficientResources``.
        message: error message of a failed machine.
        node_labels: labels that the Machine gives its node; the group's template may have changed since.
        node_taints: taints that the Machine gives its node.
    """

    namespace: str
    name: str
    state: MachineState
    node: str = ""
    unconfirmed_node: str = ""
    since: float | None = None
    marked: bool = False
    reason: str = ""
    message: str = ""
    node_labels: Labels = NO_LABELS
    node_taints: tuple[Taint, ...] = ()

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of the Machine object, or the provider ID of an instance without one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class GroupOptions(Struct, frozen=True, gc=False):
    """Options in a group's annotations (``autoscaling-options-…``) that override the ClusterAutoscaler's.

    An option that is not set is ``None``. Thresholds are shares of allocatable from 0 to 1, times are in seconds.
    """

    utilization_threshold: float | None = None
    gpu_utilization_threshold: float | None = None
    unneeded_seconds: float | None = None
    unready_seconds: float | None = None
    provision_seconds: float | None = None
    startup_seconds: float | None = None


class TemplateSource(Struct, frozen=True, gc=False):
    """The description of nodes in a group's object; input of :mod:`trimtab.autoscaling.template`.

    Attributes:
        annotations: annotations of the object: capacities, labels and taints by upstream's keys.
        labels: labels that its template gives each node.
        taints: taints that its template gives each node.
        initial_taints: the subset of ``taints`` that a node gets only when it joins, and that may be removed later.
        node: a new node as described by an external provider.
        no_node_reason: the reason why the external provider does not return a node.
        machine_type: the machine type as far as it is known; only used for comparison.
    """

    annotations: Labels = NO_LABELS
    labels: Labels = NO_LABELS
    taints: tuple[Taint, ...] = ()
    initial_taints: tuple[Taint, ...] = ()
    node: Node | None = None
    no_node_reason: str = ""
    machine_type: str = ""


class NodeGroup(Struct, frozen=True, gc=False):
    """A group of identical nodes that can be scaled up and down.

    Attributes:
        id: unique id in the cluster, e.g. ``MachineSet/openshift-machine-api/workers-a``. The kind of a Cluster API
            MachineSet is ``MachineSet.cluster.x-k8s.io``, since both APIs may have a MachineSet of that name. A group
            without an object has its provider as prefix: ``external/workers-a``.
        api_version: API version of the object that contains the size, or the provider's name if there is no object.
        kind: kind of the object.
        namespace: namespace of the object.
        name: name of the object.
        uid: UID of the object.
        resource_version: resource version at which the object was read.
        minimum: minimum size.
        maximum: maximum size.
        target: current target size (``spec.replicas``).
        autoscaler: the MachineAutoscaler that sets the limits, as ``namespace/name``; empty if annotations set them.
        machines: the machines by ``namespace/name``; nodes without a Machine come last, by node name.
        options: options that override the ClusterAutoscaler's.
        template: what the object defines about its nodes.
        paused: the reason why the group must not be scaled; empty if it may be scaled. The nodes of a paused group
            still count toward limits, and the group is still reported.
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
        """Return ``namespace/name``, by which plans refer to a group, or the id of a group without an object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.id

    def in_state(self, *states: MachineState) -> tuple[GroupMachine, ...]:
        """Return the machines in one of the given states."""
        return tuple(machine for machine in self.machines if machine.state in states)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the names of the group's nodes that are not being deleted, sorted. They may be ready or not."""
        return tuple(
            sorted(
                machine.node for machine in self.machines if machine.node and machine.state is not MachineState.DELETING
            )
        )

    @property
    def upcoming(self) -> int:
        """Return the number of requested nodes that can still register.

        This is the target size minus the number of existing nodes and failed machines. A machine that failed without a
        node uses up part of the target size and never registers. Machines that are being deleted do not count, because
        their controller replaces them.
        """
        used = 0
        for machine in self.machines:
            registered = machine.node or machine.unconfirmed_node
            used += machine.state is not MachineState.DELETING if registered else machine.state is MachineState.FAILED
        return max(0, self.target - used)


class ObjectProblem(Struct, frozen=True, order=True, gc=False):
    """A problem with an object, for example with one that should be a node group.

    It is reported, and other objects are still processed.

    Attributes:
        kind: kind of the object, e.g. ``MachineAutoscaler``.
        namespace: namespace of the object.
        name: name of the object.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: which field or annotation is invalid, its value, and what is allowed.
    """

    kind: str
    namespace: str
    name: str
    reason: str
    message: str


class Groups(Struct, frozen=True):
    """The node groups of a snapshot.

    Attributes:
        by_id: the groups by id, in the order of ids.
        of_node: group ids by node name; nodes that belong to no group are not included.
        problems: problems of objects, sorted.
        confirmed_namespaces: namespaces with objects that can be groups, which nodes confirm or have confirmed, sorted,
            each with the cluster if nodes confirm one: ``clusters/prod``.
    """

    by_id: Mapping[str, NodeGroup] = {}
    of_node: Mapping[str, str] = {}
    problems: tuple[ObjectProblem, ...] = ()
    confirmed_namespaces: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[NodeGroup, ...]:
        """Return the groups in the order of their ids."""
        return tuple(self.by_id.values())

    def group_of(self, node: str) -> NodeGroup | None:
        """Return the group of a node, or ``None`` if the node belongs to no group."""
        found = self.of_node.get(node)
        return None if found is None else self.by_id[found]
