"""Nodes and their Leases, and namespaces."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList
from trimtab.kube.objects.meta import ClusterScoped, Namespaced


class Taint(Struct, frozen=True, gc=False):
    """core/v1 Taint. ``time_added`` is in seconds since the epoch, or ``None`` if it is absent."""

    key: str
    effect: str
    value: str = ""
    time_added: float | None = None


class NodeCondition(Struct, frozen=True, gc=False):
    """core/v1 NodeCondition. Its heartbeat is in :attr:`Node.heartbeat`, for the Ready condition only."""

    type: str
    status: str
    reason: str = ""
    since: float | None = None


class Node(ClusterScoped, frozen=True, gc=False):
    """core/v1 Node.

    ``images`` are the sizes in bytes of the images on the node, by image name. ``declared_features`` are the sorted
    ``status.declaredFeatures``, which pods may require. ``heartbeat`` is the time at which the kubelet last reported
    its status (``lastHeartbeatTime`` of the Ready condition), by the kubelet's clock, in seconds since the epoch. It is
    ``None`` before the first report. ``addresses`` are those at which the kubelet may serve its API: the first
    internal IP address, the first external one, and the host name. ``kubelet_port`` is its port, or 0 if it is unknown.
    """

    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
    created: float | None = None
    deleted: float | None = None
    unschedulable: bool = False
    provider_id: str = ""
    taints: tuple[Taint, ...] = ()
    allocatable: ResourceList = NO_RESOURCES
    capacity: ResourceList = NO_RESOURCES
    conditions: tuple[NodeCondition, ...] = ()
    images: ResourceList = NO_RESOURCES
    declared_features: tuple[str, ...] = ()
    heartbeat: float | None = None
    addresses: tuple[str, ...] = ()
    kubelet_port: int = 0

    @property
    def ready(self) -> bool:
        """Return whether the Ready condition is True."""
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.conditions)

    @property
    def ready_condition(self) -> NodeCondition | None:
        """Return the Ready condition; ``None`` if the node has none yet."""
        for each in self.conditions:  # not a generator: planners read it for every node in every iteration
            if each.type == "Ready":
                return each
        return None

    @property
    def ready_status(self) -> str | None:
        """Return the status of the Ready condition; ``None`` if the node has none yet."""
        condition = self.ready_condition
        return None if condition is None else condition.status

    @property
    def condition_statuses(self) -> dict[str, str]:
        """Return the status of each condition by the condition's type."""
        return {condition.type: condition.status for condition in self.conditions}


NODE_LEASES: Final = "kube-node-lease"
"""The namespace in which each kubelet renews the Lease of its node (v1.14 and later)."""


class Lease(Namespaced, frozen=True, gc=False):
    """A Lease of a node.

    ``renewed`` is the renew time by the holder's clock, in seconds since the epoch with microseconds. That clock may be
    wrong, so only changes of the value prove that the holder is alive. ``duration`` is the lease duration in seconds,
    in which a kubelet renews the Lease four times. :mod:`trimtab.runtime.leader_election.lease_lock` defines the type
    for leader election.
    """

    holder: str = ""
    duration: int = 0
    renewed: float | None = None


class Namespace(ClusterScoped, frozen=True, gc=False):
    """core/v1 Namespace. In a live cluster ``labels`` always contains ``kubernetes.io/metadata.name``."""

    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS
