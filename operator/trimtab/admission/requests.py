"""Admission requests (admission.k8s.io/v1), decoded only as far as the rules need, and the patches that answer them.

The content of a request is untrusted: any tenant may have written it. The decoder skips fields that no rule reads,
and a patch replaces only the fields that a rule has changed, so that fields of later Kubernetes versions survive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

POD: Final = "Pod"
DAEMON_SET: Final = "DaemonSet"
EPHEMERAL_CONTAINERS: Final = "ephemeralcontainers"
"""The subresource of pods with which users add ephemeral containers."""

KUBE_SYSTEM: Final = "kube-system"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

TEMPLATE_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("apps.openshift.io", "DeploymentConfig"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): ("spec", "template"),
}
"""Where the pod template is in an object, by API group and kind."""

TEMPLATE_RESOURCES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("", ("podtemplates", "replicationcontrollers")),
    ("apps", ("deployments", "replicasets", "statefulsets")),
    ("apps.openshift.io", ("deploymentconfigs",)),
    ("batch", ("cronjobs", "jobs")),
)
"""The resources of the kinds in :data:`TEMPLATE_PATHS` by API group, without DaemonSets."""

REVIEW_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("security.openshift.io", kind): ("spec", "template")
    for kind in ("PodSecurityPolicyReview", "PodSecurityPolicySelfSubjectReview", "PodSecurityPolicySubjectReview")
}
"""Where the pod template is in OpenShift's reviews, which the API server answers and does not store."""


class _Wire(Struct, frozen=True, rename="camel"):
    """Base of all types that are decoded from requests. Unknown fields are ignored."""


class GroupVersionKind(_Wire, frozen=True):
    """metav1.GroupVersionKind."""

    group: str = ""
    version: str = ""
    kind: str = ""


class UserInfo(_Wire, frozen=True):
    """authentication/v1 UserInfo: the user who sends the request."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


class Toleration(_Wire, frozen=True, omit_defaults=True):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Requirement(_Wire, frozen=True, omit_defaults=True):
    """core/v1 NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


class NodeTerm(_Wire, frozen=True, omit_defaults=True):
    """core/v1 NodeSelectorTerm."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class RequiredTerms(_Wire, frozen=True, omit_defaults=True):
    """core/v1 NodeSelector."""

    node_selector_terms: tuple[NodeTerm, ...] | None = None


class PreferredTerm(_Wire, frozen=True, omit_defaults=True):
    """core/v1 PreferredSchedulingTerm."""

    preference: NodeTerm = NodeTerm()


class NodeAffinity(_Wire, frozen=True, omit_defaults=True):
    """core/v1 NodeAffinity."""

    required: RequiredTerms | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: tuple[PreferredTerm, ...] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class AffinityTerm(_Wire, frozen=True, omit_defaults=True):
    """The topology key of core/v1 PodAffinityTerm."""

    topology_key: str = ""


class WeightedAffinityTerm(_Wire, frozen=True, omit_defaults=True):
    """core/v1 WeightedPodAffinityTerm."""

    pod_affinity_term: AffinityTerm = AffinityTerm()


class PodAffinity(_Wire, frozen=True, omit_defaults=True):
    """core/v1 PodAffinity, or PodAntiAffinity."""

    required: tuple[AffinityTerm, ...] | None = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[WeightedAffinityTerm, ...] | None = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(_Wire, frozen=True, omit_defaults=True):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(_Wire, frozen=True):
    """The topology key of core/v1 TopologySpreadConstraint."""

    topology_key: str = ""


class Resources(_Wire, frozen=True):
    """core/v1 ResourceRequirements: the names of the requested resources. Quantities are not decoded."""

    requests: dict[str, Raw] | None = None
    limits: dict[str, Raw] | None = None


class Container(_Wire, frozen=True):
    """core/v1 Container."""

    name: str = ""
    image: str = ""
    resources: Resources | None = None


class SchedulingGate(_Wire, frozen=True):
    """core/v1 PodSchedulingGate."""

    name: str = ""


class PodSpec(_Wire, frozen=True):
    """The fields of core/v1 PodSpec that concern placement. Absent lists and maps may be ``None``."""

    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[SpreadConstraint, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    ephemeral_containers: tuple[Container, ...] | None = None
    resources: Resources | None = None

    @property
    def node_affinity(self) -> NodeAffinity:
        """Return the node affinity; empty if the pod has none."""
        return (self.affinity and self.affinity.node_affinity) or NodeAffinity()


class Owner(_Wire, frozen=True):
    """metav1.OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class Metadata(_Wire, frozen=True):
    """The fields of metav1.ObjectMeta that rules and messages need."""

    name: str = ""
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[Owner, ...] | None = None


class PodTemplate(_Wire, frozen=True):
    """A pod, or the pod template of a workload."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()


class NamespaceInfo(Struct, frozen=True):
    """The name, labels and annotations of the namespace of a request."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


NULL: Final = Raw(b"null")
"""A field that is missing or null, see :func:`is_null`. msgspec cannot decode unions with Raw."""


def is_null(raw: Raw) -> bool:
    """Return whether a field is missing or null."""
    return raw == NULL


class WireRequest(_Wire, frozen=True):
    """admission/v1 AdmissionRequest. :func:`trimtab.admission.reviewer.attributes` decodes the objects."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    user_info: UserInfo = UserInfo()
    object: Raw = NULL
    old_object: Raw = NULL
    dry_run: bool | None = None


class AdmissionReview(_Wire, frozen=True):
    """admission/v1 AdmissionReview, as kube-apiserver sends it."""

    request: WireRequest
    api_version: str = ""
    kind: str = ""


class Attributes(Struct, frozen=True, kw_only=True):
    """The parts of an admission request that rules use, like ``admission.Attributes`` of k8s.io/apiserver.

    Attributes:
        kind: kind of the object, e.g. Pod or CronJob.
        group: API group of the object.
        operation: CREATE or UPDATE.
        subresource: ``""``, or e.g. ``ephemeralcontainers``.
        name: name of the object; its generateName if it has no name yet.
        namespace: the namespace of the object.
        user: the user who sends the request.
        pod: the pod, or the pod template of the object.
        old: the pod or template before an update; ``None`` for a creation.
        path: JSON pointer of the object's pod or template: ``""`` for a pod.
        same_template: whether an update of a workload leaves its whole pod template as it was, including the fields
            that are not decoded.
        controlled: whether the workload has a controller owner reference. Tenants write owner references, so this
            permits nothing.
    """

    kind: str
    operation: str
    namespace: NamespaceInfo
    user: UserInfo
    pod: PodTemplate
    group: str = ""
    subresource: str = ""
    name: str = ""
    old: PodTemplate | None = None
    path: str = ""
    same_template: bool = False
    controlled: bool = False

    @property
    def is_pod(self) -> bool:
        """Return whether the object is a pod, rather than a workload with a pod template."""
        return self.kind == POD and not self.group

    @property
    def subject(self) -> str:
        """Return the name of the checked object in messages."""
        return "pod" if self.is_pod else "pod template"

    @property
    def of_daemon_set(self) -> bool:
        """Return whether the object is a DaemonSet or a pod whose controller is one."""
        if not self.is_pod:
            return self.kind == DAEMON_SET
        owners = self.pod.metadata.owner_references or ()
        return any(owner.controller and owner.kind == DAEMON_SET for owner in owners)


class PatchOperation(Struct, frozen=True, omit_defaults=True):
    """An operation of a JSON patch (RFC 6902)."""

    op: str
    path: str
    value: Any = msgspec.UNSET


def pointer(parts: Sequence[str]) -> str:
    """Return the JSON pointer (RFC 6901) of a path."""
    return "".join(f"/{part.replace('~', '~0').replace('/', '~1')}" for part in parts)
