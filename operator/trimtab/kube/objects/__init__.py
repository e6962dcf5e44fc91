"""The Kubernetes objects that planners read, as frozen values.

These are projections, not models: a field is here because a planner reads it. Times are seconds since the epoch (UTC,
``float``), amounts are integers (see :data:`trimtab.kube.frozen.ResourceList`), absent strings are ``""`` and absent
lists ``()``; ``None`` is kept only where Kubernetes gives absence a meaning of its own (a nil selector, a nil
``tolerationSeconds``, a nil priority).

``gc=False`` throughout: values form no cycles, and 150,000 of them must not be walked by the garbage collector.
"""

from typing import get_args

from trimtab.kube.objects.affinity import Affinity, NodeAffinity, PodAffinityTerm, PreferredNodeTerm, WeightedPodTerm
from trimtab.kube.objects.budget import PodDisruptionBudget
from trimtab.kube.objects.lease import NODE_LEASES, Lease
from trimtab.kube.objects.machine import (
    AnyMachine,
    AnyMachineSet,
    ClusterMachine,
    ClusterMachineSet,
    Machine,
    MachineDeployment,
    MachinePool,
    MachineSet,
)
from trimtab.kube.objects.meta import OwnerReference
from trimtab.kube.objects.namespace import Namespace, PriorityClass
from trimtab.kube.objects.node import Node, NodeCondition, Taint
from trimtab.kube.objects.pod import (
    ENDED,
    Container,
    ContainerState,
    HostPort,
    Pod,
    PodCondition,
    PodSpec,
    Toleration,
    TopologySpread,
    Volume,
)
from trimtab.kube.objects.selector import (
    LabelRequirement,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
)
from trimtab.kube.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    NodeDriver,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologyRequirement,
    VolumeAttachment,
)
from trimtab.kube.objects.workload import DaemonSet, ReplicaSet, ReplicationController, Service, StatefulSet

KubeObject = (
    Pod
    | Node
    | PodDisruptionBudget
    | Namespace
    | PriorityClass
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
    | Service
    | ReplicaSet
    | StatefulSet
    | ReplicationController
    | DaemonSet
    | Lease
    | MachineSet
    | Machine
    | MachineDeployment
    | ClusterMachineSet
    | MachinePool
    | ClusterMachine
)

TYPES: dict[str, type[KubeObject]] = {kind.__name__: kind for kind in get_args(KubeObject)}
"""The types by their names, which are their kinds' but where two APIs have one kind (see :mod:`.machine`)."""

__all__ = [
    "ENDED",
    "NODE_LEASES",
    "TYPES",
    "Affinity",
    "AnyMachine",
    "AnyMachineSet",
    "CSIDriver",
    "CSINode",
    "CSIStorageCapacity",
    "ClusterMachine",
    "ClusterMachineSet",
    "Container",
    "ContainerState",
    "DaemonSet",
    "HostPort",
    "KubeObject",
    "LabelRequirement",
    "LabelSelector",
    "Lease",
    "Machine",
    "MachineDeployment",
    "MachinePool",
    "MachineSet",
    "Namespace",
    "Node",
    "NodeAffinity",
    "NodeCondition",
    "NodeDriver",
    "NodeSelector",
    "NodeSelectorTerm",
    "OwnerReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Pod",
    "PodAffinityTerm",
    "PodCondition",
    "PodDisruptionBudget",
    "PodSpec",
    "PreferredNodeTerm",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "Service",
    "StatefulSet",
    "StorageClass",
    "Taint",
    "Toleration",
    "TopologyRequirement",
    "TopologySpread",
    "Volume",
    "VolumeAttachment",
    "WeightedPodTerm",
]
