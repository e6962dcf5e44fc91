"""The annotations by which groups, machines and nodes are known: upstream's and OpenShift's, key by key.

Both APIs have the same ones under their own prefixes; a group reads those of its own API only, for OpenShift mirrors
objects between the two.
"""

from __future__ import annotations

from typing import Final

from trimtab.kube.objects.machine import CLUSTER_API, MACHINE_API

MIN_SIZE: Final = "cluster-api-autoscaler-node-group-min-size"
MAX_SIZE: Final = "cluster-api-autoscaler-node-group-max-size"
OPTIONS: Final = "autoscaling-options-"
"""Below the API's prefix."""

OWNER: Final = "autoscaling.openshift.io/machineautoscaler"
"""On a group: the MachineAutoscaler that has it, ``namespace/name``; OpenShift's operator writes it."""

PAUSED: Final = "cluster.x-k8s.io/paused"
"""On a group of either API, with any value."""

DELETE_MACHINE: Final = {
    MACHINE_API: (f"{MACHINE_API}/delete-machine", f"{MACHINE_API}/cluster-api-delete-machine"),
    CLUSTER_API: (f"{CLUSTER_API}/delete-machine",),
}
"""On a machine that is to go first when replicas fall, with any value but the empty one."""

NODES_MACHINE: Final = f"{MACHINE_API}/machine"
"""On a node: its machine, ``namespace/name``."""

NODES_CLUSTER_MACHINE: Final = f"{CLUSTER_API}/machine"
NODES_CLUSTER_NAMESPACE: Final = f"{CLUSTER_API}/cluster-namespace"
"""On a node: name and namespace of its machine of Cluster API."""

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
"""Prefix of what says on a group what its nodes are like."""

PRICE: Final = "trimtab.dev/price"
"""On a group: what a node of it costs an hour, in whatever currency all groups use, e.g. ``0.192``."""

RESERVED: Final = "trimtab.dev/reserved"
"""On a group: what of the capacity is not allocatable, ``cpu=500m,memory=1Gi``. Only trimtab has it."""

LEARNED_NODE: Final = "trimtab.dev/learned-node"
"""On a group: what its nodes were like, in JSON; trimtab writes it, and reads it back while the group has no node."""
