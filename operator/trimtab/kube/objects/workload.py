"""What makes pods: read for the spreading that kube-scheduler does without being asked, and for pods to come."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.pod import NO_SPEC, PodSpec
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


class DaemonSet(_Selecting, frozen=True, gc=False):
    """apps/v1 DaemonSet, of which the pods are read that it puts on each node that suits them.

    ``pod_labels`` and ``pod_spec`` are its template's.
    """

    deleted: float | None = None
    pod_labels: Labels = NO_LABELS
    pod_spec: PodSpec = NO_SPEC
