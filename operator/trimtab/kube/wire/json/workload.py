"""Services and owners of pods: core/v1 and apps/v1, of which the selectors are read, and the pods of DaemonSets."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.base import Message
from trimtab.kube.wire.json.meta import LabelSelector, ObjectMeta
from trimtab.kube.wire.json.pod import PodSpec


class ServiceSpec(Message):
    """core/v1 ServiceSpec."""

    selector: dict[str, str] = {}


class Service(Message):
    """core/v1 Service."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ReplicationControllerSpec(Message):
    """core/v1 ReplicationControllerSpec."""

    selector: dict[str, str] = {}


class ReplicationController(Message):
    """core/v1 ReplicationController."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ReplicationControllerSpec = field(default_factory=ReplicationControllerSpec)


class ReplicaSetSpec(Message):
    """apps/v1 ReplicaSetSpec."""

    selector: LabelSelector | None = None


class ReplicaSet(Message):
    """apps/v1 ReplicaSet."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)


class StatefulSetSpec(Message):
    """apps/v1 StatefulSetSpec."""

    selector: LabelSelector | None = None


class StatefulSet(Message):
    """apps/v1 StatefulSet."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: StatefulSetSpec = field(default_factory=StatefulSetSpec)


class PodTemplateSpec(Message):
    """core/v1 PodTemplateSpec."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: PodSpec = field(default_factory=PodSpec)


class DaemonSetSpec(Message):
    """apps/v1 DaemonSetSpec."""

    template: PodTemplateSpec = field(default_factory=PodTemplateSpec)


class DaemonSet(Message):
    """apps/v1 DaemonSet."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DaemonSetSpec = field(default_factory=DaemonSetSpec)
