"""Namespaces and priority classes: read for selectors and thresholds."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels


class Namespace(Struct, frozen=True, gc=False):
    """A namespace; ``labels`` always has ``kubernetes.io/metadata.name`` on a live cluster."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Labels = NO_LABELS
    annotations: Labels = NO_LABELS

    @property
    def key(self) -> str:
        """The name."""
        return self.name


class PriorityClass(Struct, frozen=True, gc=False):
    """scheduling.k8s.io/v1 PriorityClass."""

    name: str
    value: int
    uid: str = ""
    resource_version: str = ""
    global_default: bool = False

    @property
    def key(self) -> str:
        """The name."""
        return self.name
