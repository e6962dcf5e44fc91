"""Which kinds make the picture of the cluster."""

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
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
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
"""What says where a pod's volumes can be."""

OWNERS: Final[tuple[Resource, ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
"""What says which pods the scheduler spreads of its own accord."""

KINDS: Final[tuple[Resource, ...]] = (NODES, NAMESPACES, PRIORITY_CLASSES, BUDGETS, *VOLUMES, *OWNERS, PODS)
"""What all planners read: what the operator watches, whichever controllers it runs.

A kind that planners come to read is one more entry here, and one more rule in the chart's ClusterRole.
"""

NODE_GROUPS: Final[tuple[Resource, ...]] = (
    MACHINE_SETS,
    MACHINES,
    MACHINE_DEPLOYMENTS,
    CLUSTER_MACHINE_SETS,
    MACHINE_POOLS,
    CLUSTER_MACHINES,
)
"""Custom resources that make nodes: of each cluster some or none are there, and what is not there makes none."""

AUTOSCALING: Final[tuple[Resource, ...]] = (DAEMON_SETS, *NODE_GROUPS)
"""What the autoscaler reads besides: which nodes there could be, and what would come with each."""

EVERYTHING: Final[tuple[Resource, ...]] = (*KINDS[:-1], *AUTOSCALING, PODS)
"""What ``trimtab snapshot`` writes, and what files may hold."""

MADE_BY: Final[dict[Resource, tuple[Resource, ...]]] = {
    MACHINE_SETS: (MACHINES,),
    MACHINE_DEPLOYMENTS: (CLUSTER_MACHINE_SETS, CLUSTER_MACHINES),
    CLUSTER_MACHINE_SETS: (CLUSTER_MACHINES,),
    MACHINE_POOLS: (CLUSTER_MACHINES,),
}
"""What each kind of node groups makes: whoever sees the one and not the other takes machines for missing."""

OPTIONAL: Final[frozenset[Resource]] = frozenset(AUTOSCALING)
"""Kinds that may be absent, or hidden from who reads: then there is nothing to autoscale, and all else holds."""

MAY_LACK: Final[frozenset[Resource]] = frozenset(VOLUMES) - {PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS}
"""Kinds whose v1 is younger than the oldest clusters there are: a server that does not know one has no such objects.

The youngest is CSIStorageCapacity, of Kubernetes 1.24.
"""


def versions(resource: Resource) -> tuple[Resource, ...]:
    """The resource as servers of several ages have it, the newest first."""
    older = _OLDER.get(resource.group, ()) if resource in OPTIONAL else ()
    return (resource, *(replace(resource, version=version) for version in older))


_OLDER: Final = {"cluster.x-k8s.io": ("v1beta1",)}
"""Cluster API's v1beta2 came with its release 1.11."""
