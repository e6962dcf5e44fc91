"""Machines and node groups of OpenShift's Machine API and of Cluster API.

Both APIs have the same data in different fields, so the types here have the same fields. Both APIs have the kinds
``MachineSet`` and ``Machine``, but a MachineSet of one API never owns a Machine of the other, so there are two types
for each kind.
"""

from __future__ import annotations

from typing import ClassVar, Final

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.meta import Namespaced, OwnerReference
from trimtab.kube.objects.node import Taint

MACHINE_API: Final = "machine.openshift.io"
CLUSTER_API: Final = "cluster.x-k8s.io"

CLUSTER_LABELS: Final = {
    MACHINE_API: f"{MACHINE_API}/cluster-api-cluster",
    CLUSTER_API: f"{CLUSTER_API}/cluster-name",
}
"""The label that contains the name of the cluster of a machine or node group, by API group."""


class AnyMachine(Namespaced, frozen=True, gc=False):
    """A machine of either API.

    ``cluster`` is the name of its cluster (``spec.clusterName`` or the API's label), empty if there is none. ``node``
    is ``status.nodeRef.name``, which is empty until the node has registered. ``node_uid`` is ``status.nodeRef.uid``,
    which Cluster API's v1beta2 does not have. ``error_reason`` and ``error_message`` describe a permanent failure
    (``errorReason`` in the Machine API, ``failureReason`` in Cluster API, in v1beta2 below
    ``status.deprecated.v1beta1``). ``labels`` are the labels of the machine itself. ``node_labels`` and ``node_taints``
    are the labels and taints that the machine's node receives.
    """

    api_group: ClassVar[str] = ""
    kind: ClassVar[str] = "Machine"

    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
    owners: tuple[OwnerReference, ...] = ()
    created: float | None = None
    deleted: float | None = None
    cluster: str = ""
    provider_id: str = ""
    node: str = ""
    node_uid: str = ""
    phase: str = ""
    error_reason: str = ""
    error_message: str = ""
    node_labels: Labels = NO_LABELS
    node_taints: tuple[Taint, ...] = ()


class Machine(AnyMachine, frozen=True, gc=False):
    """A Machine of machine.openshift.io/v1beta1."""

    api_group: ClassVar[str] = MACHINE_API


class ClusterMachine(AnyMachine, frozen=True, gc=False):
    """A Machine of cluster.x-k8s.io."""

    api_group: ClassVar[str] = CLUSTER_API


class AnyMachineSet(Namespaced, frozen=True, gc=False):
    """A MachineSet, MachineDeployment or MachinePool, which is a node group if it has size limits.

    Attributes:
        api_version: the API version in which it was read, for patches.
        cluster: the name of its cluster (``spec.clusterName`` or the API's label), or empty if there is none.
        replicas: ``spec.replicas``, or ``None`` if it is absent, which means 1.
        node_labels: the labels that each node receives from the template.
        node_taints: the taints that each node receives from the template.
        initial_taints: the taints that a node receives only when it registers (Cluster API's propagation
            ``OnInitialization``).
        machine_labels: the labels that each *machine* receives from the template.
        machine_type: identifies the machine type: known fields of the template such as ``{"instanceType":"m5.large"}``,
            or the reference to the infrastructure template. It is only compared for equality.
        delete_policy: the order in which machines are deleted on scale-down: Random, Newest or Oldest.
        paused: ``spec.paused``. The annotation with the same meaning is in ``annotations``.
        authoritative_api: the API with the authoritative object (MachineAPI, ClusterAPI or Migrating) if OpenShift
            mirrors machines between the two APIs, otherwise empty.
        provider_ids: the provider IDs of a MachinePool's machines (``spec.providerIDList``).
        nodes: the names and UIDs of a MachinePool's nodes (``status.nodeRefs``). UIDs may be empty.
        error_reason: the reason code if machines cannot be created.
        error_message: the error message if machines cannot be created.
    """

    api_group: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    api_version: str = ""
    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
    owners: tuple[OwnerReference, ...] = ()
    created: float | None = None
    deleted: float | None = None
    cluster: str = ""
    replicas: int | None = None
    node_labels: Labels = NO_LABELS
    node_taints: tuple[Taint, ...] = ()
    initial_taints: tuple[Taint, ...] = ()
    machine_labels: Labels = NO_LABELS
    machine_type: str = ""
    delete_policy: str = ""
    paused: bool = False
    authoritative_api: str = ""
    provider_ids: tuple[str, ...] = ()
    nodes: tuple[tuple[str, str], ...] = ()
    error_reason: str = ""
    error_message: str = ""


class MachineSet(AnyMachineSet, frozen=True, gc=False):
    """A MachineSet of machine.openshift.io/v1beta1.

    The ``spec.metadata.labels`` of its template become the labels of the nodes.
    """

    api_group: ClassVar[str] = MACHINE_API
    kind: ClassVar[str] = "MachineSet"


class ClusterMachineSet(AnyMachineSet, frozen=True, gc=False):
    """A MachineSet of cluster.x-k8s.io.

    Its nodes receive those labels of the template that Cluster API propagates.
    """

    api_group: ClassVar[str] = CLUSTER_API
    kind: ClassVar[str] = "MachineSet"


class MachineDeployment(AnyMachineSet, frozen=True, gc=False):
    """A MachineDeployment of cluster.x-k8s.io. It owns MachineSets, which own machines."""

    api_group: ClassVar[str] = CLUSTER_API
    kind: ClassVar[str] = "MachineDeployment"


class MachinePool(AnyMachineSet, frozen=True, gc=False):
    """A MachinePool of cluster.x-k8s.io.

    The provider manages the machines, and may not represent them as Machines.
    """

    api_group: ClassVar[str] = CLUSTER_API
    kind: ClassVar[str] = "MachinePool"
