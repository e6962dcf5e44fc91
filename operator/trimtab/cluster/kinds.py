"""Which kinds make the picture of the cluster."""

from __future__ import annotations

from typing import Final

from trimtab.kube.resources import (
    BUDGETS,
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
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
"""What planners read: what the operator watches, ``trimtab plan`` loads and ``trimtab snapshot`` writes.

A kind that planners come to read is one more entry here, and one more rule in the chart's ClusterRole.
"""

MAY_LACK: Final[frozenset[Resource]] = frozenset(VOLUMES) - {PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS}
"""Kinds whose v1 is younger than the oldest clusters there are: a server that does not know one has no such objects.

The youngest is CSIStorageCapacity, of Kubernetes 1.24.
"""
