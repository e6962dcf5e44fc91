"""Objects from which admission takes fields of new pods: PriorityClasses, LimitRanges and RuntimeClasses."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, NO_RESOURCES, Labels, ResourceList
from trimtab.kube.objects.meta import ClusterScoped, Namespaced
from trimtab.kube.objects.pod import Toleration

SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The values of the PriorityClasses that every cluster has (Kubernetes' ``SystemPriorityClasses``), by name."""


class PriorityClass(Struct, frozen=True, gc=False):
    """scheduling.k8s.io/v1 PriorityClass."""

    name: str
    value: int
    uid: str = ""
    resource_version: str = ""
    global_default: bool = False

    @property
    def key(self) -> str:
        """Return the name of the object."""
        return self.name


class LimitRange(Namespaced, frozen=True, gc=False):
    """core/v1 LimitRange: the requests and limits of containers that state none."""

    requests: ResourceList = NO_RESOURCES
    limits: ResourceList = NO_RESOURCES


class RuntimeClass(ClusterScoped, frozen=True, gc=False):
    """node.k8s.io/v1 RuntimeClass: the overhead of its pods, and the nodes that support it."""

    overhead: ResourceList = NO_RESOURCES
    node_selector: Labels = NO_LABELS
    tolerations: tuple[Toleration, ...] = ()
