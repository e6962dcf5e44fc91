"""The Kubernetes objects that planners read, as immutable values.

The types contain only the fields that a planner reads. Times are seconds since the epoch (UTC, ``float``), amounts are
integers (see :data:`trimtab.kube.frozen.ResourceList`), absent strings are ``""`` and absent lists ``()``. ``None`` is
used only if absence has a meaning of its own in Kubernetes (a nil selector, a nil ``tolerationSeconds``, a nil
priority).

All types have ``gc=False``, because values form no cycles and the garbage collector should not scan 150,000 pods.
"""

from typing import get_args

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
from trimtab.kube.objects.meta import (
    LabelRequirement,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    OwnerReference,
)
from trimtab.kube.objects.node import NODE_LEASES, Lease, Namespace, Node, NodeCondition, Taint
from trimtab.kube.objects.pod import (
    TERMINAL_PHASES,
    Affinity,
    Container,
    ContainerState,
    HostPort,
    NodeAffinity,
    Pod,
    PodAffinityTerm,
    PodCondition,
    PodSpec,
    PreferredNodeTerm,
    Toleration,
    TopologySpread,
    Volume,
    WeightedPodTerm,
)
from trimtab.kube.objects.pod_defaults import SYSTEM_CLASSES, LimitRange, PriorityClass, RuntimeClass
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
from trimtab.kube.objects.workload import (
    DaemonSet,
    Job,
    PodDisruptionBudget,
    PodEvictionRequest,
    PodTemplate,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    VerticalPodAutoscaler,
)

KubeObject = (
    Pod
    | Node
    | PodDisruptionBudget
    | Namespace
    | PriorityClass
    | LimitRange
    | RuntimeClass
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
    | Job
    | VerticalPodAutoscaler
    | PodEvictionRequest
    | Lease
    | MachineSet
    | Machine
    | MachineDeployment
    | ClusterMachineSet
    | MachinePool
    | ClusterMachine
)

TYPES: dict[str, type[KubeObject]] = {kind.__name__: kind for kind in get_args(KubeObject)}
"""The types by name. The name is the kind, unless two APIs have the same kind (see :mod:`.machine`)."""

__all__ = [
    "NODE_LEASES",
    "SYSTEM_CLASSES",
    "TERMINAL_PHASES",
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
    "Job",
    "KubeObject",
    "LabelRequirement",
    "LabelSelector",
    "Lease",
    "LimitRange",
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
    "PodEvictionRequest",
    "PodSpec",
    "PodTemplate",
    "PreferredNodeTerm",
    "PriorityClass",
    "ReplicaSet",
    "ReplicationController",
    "RuntimeClass",
    "Service",
    "StatefulSet",
    "StorageClass",
    "Taint",
    "Toleration",
    "TopologyRequirement",
    "TopologySpread",
    "VerticalPodAutoscaler",
    "Volume",
    "VolumeAttachment",
    "WeightedPodTerm",
]
