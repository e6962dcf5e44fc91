"""The kinds of objects that the operator watches and that a snapshot contains."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from trimtab.kube.resources import (
    BUDGETS,
    CLUSTER_MACHINE_SETS,
    CLUSTER_MACHINES,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    DAEMON_SETS,
    EVICTION_REQUESTS,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    MACHINE_DEPLOYMENTS,
    MACHINE_POOLS,
    MACHINE_SETS,
    MACHINES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RUNTIME_CLASSES,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VERTICAL_POD_AUTOSCALERS,
    VOLUME_ATTACHMENTS,
    Resource,
)

VOLUMES: Final[tuple[Resource, ...]] = (
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
)
"""Kinds that determine on which nodes a pod's volumes are available."""

OWNERS: Final[tuple[Resource, ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS, JOBS)
"""Services and the controllers of pods.

Their selectors determine how the scheduler spreads pods without topology spread constraints. The templates show which
pods the controllers will create.
"""

ADDITIONAL: Final[tuple[Resource, ...]] = (VERTICAL_POD_AUTOSCALERS, EVICTION_REQUESTS)
"""Kinds that many clusters do not serve, and that every controller watches where they are served.

VerticalPodAutoscalers determine the requests of new pods. With EvictionRequests (Kubernetes 1.37, alpha), other
components ask for evictions.
"""

KINDS: Final[tuple[Resource, ...]] = (
    NODES,
    NAMESPACES,
    PRIORITY_CLASSES,
    BUDGETS,
    *VOLUMES,
    *OWNERS,
    *ADDITIONAL,
    PODS,
)
"""Kinds that planners of all types read. The operator always watches them, :data:`OPTIONAL` ones if they are served.

To add a kind, extend this tuple and the chart's ClusterRole.
"""

NODE_GROUPS: Final[tuple[Resource, ...]] = (
    MACHINE_SETS,
    MACHINES,
    MACHINE_DEPLOYMENTS,
    CLUSTER_MACHINE_SETS,
    MACHINE_POOLS,
    CLUSTER_MACHINES,
)
"""Custom resources that create nodes. A cluster may serve some of them or none."""

POD_DEFAULTS: Final[tuple[Resource, ...]] = (LIMIT_RANGES, RUNTIME_CLASSES)
"""Kinds from which admission takes fields of new pods, in addition to PriorityClasses."""

AUTOSCALING: Final[tuple[Resource, ...]] = (*POD_DEFAULTS, DAEMON_SETS, *NODE_GROUPS)
"""Kinds that only the autoscaler reads.

These are node groups, machines, and the DaemonSets whose pods run on every new node, with what determines their
requests.
"""

TAINTING: Final[tuple[Resource, ...]] = (LEASES,)
"""Kinds that only the taint manager reads: the kubelets' Leases.

The taint manager needs the permissions ``get``, ``list`` and ``watch`` only in the namespace kube-node-lease.
"""

SNAPSHOT_KINDS: Final[tuple[Resource, ...]] = (*KINDS[:-1], *AUTOSCALING, PODS)
"""Kinds that ``trimtab snapshot`` writes and that cluster files may contain."""

CHILD_KINDS: Final[dict[Resource, tuple[Resource, ...]]] = {
    MACHINE_SETS: (MACHINES,),
    MACHINE_DEPLOYMENTS: (CLUSTER_MACHINE_SETS, CLUSTER_MACHINES),
    CLUSTER_MACHINE_SETS: (CLUSTER_MACHINES,),
    MACHINE_POOLS: (CLUSTER_MACHINES,),
}
"""The kinds of objects that each kind of node group creates.

They must be readable if the node group is, because otherwise its machines would appear to be missing.
"""

OPTIONAL: Final[frozenset[Resource]] = frozenset((*ADDITIONAL, *AUTOSCALING))
"""Kinds that the server may not serve or the user may not read.

Without VerticalPodAutoscalers, the requests of replacements are taken from templates. Without EvictionRequests, no
eviction waits for those of other components. All other kinds affect only the autoscaler.
"""

REQUIRED: Final[tuple[Resource, ...]] = tuple(each for each in KINDS if each not in OPTIONAL)
"""The kinds of :data:`KINDS` without which no planner can work."""

ABSENT_ON_OLD_SERVERS: Final[frozenset[Resource]] = frozenset(VOLUMES) - {PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS}
"""Kinds whose v1 is newer than the oldest supported Kubernetes version.

A server that does not serve such a kind has no objects of it. The newest is CSIStorageCapacity (Kubernetes 1.24).
"""


def versions(resource: Resource) -> tuple[Resource, ...]:
    """Return the resource in all its API versions, newest first."""
    older = _OLDER.get(resource.group, ()) if resource in OPTIONAL else ()
    return (resource, *(replace(resource, version=version) for version in older))


_OLDER: Final = {"cluster.x-k8s.io": ("v1beta1",)}
"""Cluster API 1.11 introduced v1beta2."""
