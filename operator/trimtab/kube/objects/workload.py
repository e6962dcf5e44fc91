"""Services, PodDisruptionBudgets and owners of pods, for default spreading and for DaemonSet pods on upcoming nodes."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects.meta import LabelSelector, Namespaced, OwnerReference
from trimtab.kube.objects.pod import NO_SPEC, PodSpec


class Service(Namespaced, frozen=True, gc=False):
    """core/v1 Service.

    ``selector`` is ``None`` if it is absent or empty, because it then selects no pods.
    """

    selector: Labels | None = None


class PodTemplate(Struct, frozen=True, gc=False):
    """The labels and the spec of the pods that a controller creates, before admission changes them.

    ``node`` is ``spec.nodeName``, which binds each of these pods to a node without a scheduler; it is usually empty.
    """

    labels: Labels = NO_LABELS
    spec: PodSpec = NO_SPEC
    node: str = ""


class ReplicaSet(Namespaced, frozen=True, gc=False):
    """apps/v1 ReplicaSet.

    ``replicas`` is the desired number of pods, or ``None`` if it is unset. ``template`` is ``None`` if it has no
    containers, and if the ReplicaSet should have no pods, as most of a Deployment should. ``revision`` is the revision
    of the Deployment that it was last used for, or 0. The newest ReplicaSet of a Deployment has the highest, also after
    a rollback to an old one.
    """

    owners: tuple[OwnerReference, ...] = ()
    replicas: int | None = None
    revision: int = 0
    selector: LabelSelector | None = None
    template: PodTemplate | None = None


class StatefulSet(Namespaced, frozen=True, gc=False):
    """apps/v1 StatefulSet.

    ``replicas`` and ``template`` are as in :class:`ReplicaSet`. ``update_revision`` is ``status.updateRevision``, the
    value of the label ``controller-revision-hash`` of pods that are created from the present template.
    """

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None
    update_revision: str = ""


class ReplicationController(Namespaced, frozen=True, gc=False):
    """core/v1 ReplicationController. Its selector is ``None`` if absent, and the other fields are as in ReplicaSet."""

    replicas: int | None = None
    selector: Labels | None = None
    template: PodTemplate | None = None


class DaemonSet(Namespaced, frozen=True, gc=False):
    """apps/v1 DaemonSet.

    ``desired`` is ``status.desiredNumberScheduled``, the number of nodes that should run its pod. ``current`` is
    ``status.currentNumberScheduled``, the number of these nodes for which a pod exists, bound or not. Both are ``None``
    without a status.
    """

    deleted: float | None = None
    template: PodTemplate = PodTemplate()
    desired: int | None = None
    current: int | None = None


class Job(Namespaced, frozen=True, gc=False):
    """batch/v1 Job. ``template`` is ``None`` if it has no containers, and if the Job is complete or has failed."""

    template: PodTemplate | None = None


class VerticalPodAutoscaler(Namespaced, frozen=True, gc=False):
    """autoscaling.k8s.io/v1 VerticalPodAutoscaler.

    ``target_kind`` is the kind of the workload with its API group, as in
    :attr:`~trimtab.kube.objects.OwnerReference.qualified_kind`. ``sets_requests`` is whether new pods of the workload
    get the recommended requests, which is so in every update mode except Off.
    """

    target_kind: str = ""
    target_name: str = ""
    sets_requests: bool = True


class PodEvictionRequest(Namespaced, frozen=True, gc=False):
    """lifecycle.k8s.io/v1alpha1 EvictionRequest (Kubernetes 1.37, KEP-4563).

    ``pod`` and ``pod_uid`` identify the pod to evict; both are ``""`` if the target is not a pod. ``requester`` is a
    domain-prefixed key such as ``example.com/drainer``. ``active`` is whether the intent is Eviction and the request
    has neither failed nor evicted the pod.
    """

    created: float | None = None
    pod: str = ""
    pod_uid: str = ""
    requester: str = ""
    active: bool = False

    @property
    def pod_key(self) -> str:
        """Return the key of the pod, ``namespace/name``."""
        return f"{self.namespace}/{self.pod}"


class PodDisruptionBudget(Namespaced, frozen=True, gc=False):
    """A PodDisruptionBudget with the status that the disruption controller last wrote.

    ``disrupted_pods`` are the pods whose eviction the API server has allowed but whose deletion the controller has not
    observed yet. The status is stale while ``observed_generation`` < ``generation``, and the API server then refuses
    evictions.
    """

    labels: Labels = NO_LABELS
    generation: int = 0
    observed_generation: int = 0
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: tuple[str, ...] = ()
