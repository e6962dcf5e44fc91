"""What says which pods belong together: read for the spreading that kube-scheduler does without being asked."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import Labels
from trimtab.kube.objects.selector import LabelSelector


class _Selecting(Struct, frozen=True, gc=False):
    """What all of them have."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class Service(_Selecting, frozen=True, gc=False):
    """core/v1 Service; ``selector`` is nil for a service without one or with an empty one, which picks nothing."""

    selector: Labels | None = None


class ReplicaSet(_Selecting, frozen=True, gc=False):
    """apps/v1 ReplicaSet, of which only the selector is read."""

    selector: LabelSelector | None = None


class StatefulSet(_Selecting, frozen=True, gc=False):
    """apps/v1 StatefulSet, of which only the selector is read."""

    selector: LabelSelector | None = None


class ReplicationController(_Selecting, frozen=True, gc=False):
    """core/v1 ReplicationController, of which only the selector is read; nil where none is given."""

    selector: Labels | None = None
