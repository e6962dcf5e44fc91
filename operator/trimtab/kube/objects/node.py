"""Nodes and their taints."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList


class Taint(Struct, frozen=True, gc=False):
    """core/v1 Taint. ``time_added`` is seconds since the epoch, ``None`` where nobody recorded it."""

    key: str
    effect: str
    value: str = ""
    time_added: float | None = None


class NodeCondition(Struct, frozen=True, gc=False):
    """core/v1 NodeCondition; the heartbeat is the node's, see :attr:`Node.heartbeat`."""

    type: str
    status: str
    reason: str = ""
    since: float | None = None


class Node(Struct, frozen=True, gc=False):
    """A node as planners read it; ``images`` are the names of the images it holds, with their sizes in bytes.

    ``declared_features`` are those of its kubelet that pods may need (``status.declaredFeatures``), sorted.
    ``heartbeat`` is when the kubelet last said how it is (``lastHeartbeatTime`` of the Ready condition), by its own
    clock, in seconds since the epoch; ``None`` where it has said nothing yet.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
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

    @property
    def key(self) -> str:
        """The name: nodes have no namespace."""
        return self.name

    @property
    def ready(self) -> bool:
        """Whether the Ready condition is True."""
        return any(condition.type == "Ready" and condition.status == "True" for condition in self.conditions)
