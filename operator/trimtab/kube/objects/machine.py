"""Machines and the sets that make them, of the two APIs that there are: OpenShift's Machine API and Cluster API.

Both say the same in slightly different places, so their values have the same fields; but ``MachineSet`` and ``Machine``
are kinds of both, and a set of one API never owns a machine of the other. Hence two types each, told apart by their
class as everywhere else.
"""

from __future__ import annotations

from typing import ClassVar, Final

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.meta import OwnerReference
from trimtab.kube.objects.node import Taint

MACHINE_API: Final = "machine.openshift.io"
CLUSTER_API: Final = "cluster.x-k8s.io"


class AnyMachine(Struct, frozen=True, gc=False):
    """A machine: what becomes a node, or has become one.

    ``node`` is ``status.nodeRef.name``, empty until the machine's node has joined. ``error_reason`` and
    ``error_message`` say what is wrong for good (``errorReason`` in the Machine API, ``failureReason`` in Cluster API,
    in v1beta2 below ``status.deprecated.v1beta1``). ``labels`` are the machine's own, not those of its node:
    ``node_labels`` and ``node_taints`` are what it gives its node.
    """

    api_group: ClassVar[str] = ""
    kind: ClassVar[str] = "Machine"

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
    owners: tuple[OwnerReference, ...] = ()
    created: float | None = None
    deleted: float | None = None
    provider_id: str = ""
    node: str = ""
    phase: str = ""
    error_reason: str = ""
    error_message: str = ""
    node_labels: Labels = NO_LABELS
    node_taints: tuple[Taint, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Machine(AnyMachine, frozen=True, gc=False):
    """machine.openshift.io/v1beta1 Machine."""

    api_group: ClassVar[str] = MACHINE_API


class ClusterMachine(AnyMachine, frozen=True, gc=False):
    """cluster.x-k8s.io Machine."""

    api_group: ClassVar[str] = CLUSTER_API


class AnyMachineSet(Struct, frozen=True, gc=False):
    """What keeps a number of machines: a node group, where it has limits.

    Attributes:
        api_version: the version it was read in, for whoever patches it.
        replicas: ``spec.replicas``; ``None`` where it is left out, which stands for 1.
        node_labels: labels that each node gets from the template.
        node_taints: taints that each node gets from the template.
        initial_taints: those of them that a node gets once, when it joins, and that are not put on again once somebody
            has taken them off (Cluster API's propagation ``OnInitialization``).
        machine_labels: labels that each *machine* gets from the template.
        machine_type: what is rented for each machine, as far as the template tells it in terms that are known:
            ``{"instanceType":"m5.large"}``, or the object of the provider that says it; to be compared, not read.
        delete_policy: which machine goes first when replicas fall: Random, Newest, Oldest.
        paused: ``spec.paused``; the annotation that says the same is among the annotations.
        authoritative_api: which API's object is the real one where OpenShift mirrors machines between the two:
            MachineAPI, ClusterAPI or Migrating; empty where nothing is mirrored.
        provider_ids: the machines of a MachinePool by their provider IDs (``spec.providerIDList``).
        nodes: the nodes of a MachinePool (``status.nodeRefs``).
        error_reason: what keeps it from making machines at all, as a code.
        error_message: the same in words.
    """

    api_group: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    api_version: str = ""
    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
    owners: tuple[OwnerReference, ...] = ()
    created: float | None = None
    deleted: float | None = None
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
    nodes: tuple[str, ...] = ()
    error_reason: str = ""
    error_message: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class MachineSet(AnyMachineSet, frozen=True, gc=False):
    """machine.openshift.io/v1beta1 MachineSet; its template's ``spec.metadata.labels`` are the nodes' labels."""

    api_group: ClassVar[str] = MACHINE_API
    kind: ClassVar[str] = "MachineSet"


class ClusterMachineSet(AnyMachineSet, frozen=True, gc=False):
    """cluster.x-k8s.io MachineSet; of its template's labels the nodes get those that Cluster API hands on."""

    api_group: ClassVar[str] = CLUSTER_API
    kind: ClassVar[str] = "MachineSet"


class MachineDeployment(AnyMachineSet, frozen=True, gc=False):
    """cluster.x-k8s.io MachineDeployment: owns MachineSets, which own machines."""

    api_group: ClassVar[str] = CLUSTER_API
    kind: ClassVar[str] = "MachineDeployment"


class MachinePool(AnyMachineSet, frozen=True, gc=False):
    """cluster.x-k8s.io MachinePool: the provider keeps the machines; not all providers show them as Machines."""

    api_group: ClassVar[str] = CLUSTER_API
    kind: ClassVar[str] = "MachinePool"
