"""Protections: rules that prevent a policy from evicting a pod, and their order (:data:`PROTECTIONS`).

To add a protection, add a class here, a reason code in :mod:`trimtab.api.reasons`, and an entry in :data:`PROTECTIONS`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicySpec, PriorityThreshold
from trimtab.cluster.workloads.deployments import workload
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.surge import SurgeChecker
from trimtab.kube.objects import SYSTEM_CLASSES, PersistentVolumeClaim, Pod

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

EVICT_ANNOTATION_KEY: Final = "descheduler.alpha.kubernetes.io/evict"
"""Annotation key that the upstream descheduler defines.

Upstream permits the eviction if the annotation is present, even of static pods. Here its value is significant.
"""

PREFER_NO_EVICTION_KEY: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
"""Annotation key that the upstream descheduler defines.

Upstream treats any value as a preference. Here ``"false"`` means no preference.
"""

MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
"""Annotation that the kubelet sets on mirror pods (core/v1 ``MirrorPodAnnotationKey``)."""

CONFIG_SOURCE_ANNOTATION: Final = "kubernetes.io/config.source"
"""Annotation that the kubelet sets to a pod's source (kubelet/types ``ConfigSourceAnnotationKey``).

The value is ``api`` for all pods that are not static.
"""

CRITICAL_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/critical-pod"
"""Former annotation on critical pods. Its value was always empty, so only its presence is checked."""

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Kubernetes' ``SystemCriticalPriority``, which is twice the highest priority that users may set."""

SYSTEM_NAMESPACE_PREFIXES: Final = ("kube-", "openshift-")
"""Prefixes of the namespaces that Kubernetes and OpenShift reserve for themselves."""

SYSTEM_NAMESPACES: Final = frozenset({"openshift"})

LOCAL_VOLUME_KINDS: Final = ("emptyDir", "hostPath")

CLAIM_VOLUME_KINDS: Final = frozenset({"persistentVolumeClaim", "ephemeral"})
"""Volume kinds that use a PersistentVolumeClaim.

The claim of a generic ephemeral volume is created and deleted together with its pod.
"""

START_GRACE: Final = 300
"""Seconds after a pod's creation within which it is expected to pull its images and mount its volumes."""


class ProtectionContext(Struct, frozen=True):
    """The input of protections. It does not change during a plan.

    Attributes:
        spec: the policy's spec.
        snapshot: the cluster state.
        budgets: returns the PodDisruptionBudgets that select a pod.
        surges: determines whether a pod is the only ready one of its owner, and whether a rollout can replace it.
        now: the time of the plan in seconds since the epoch.
        held_too_long: workloads whose pods are no longer protected by annotations (``protections.maxHold``).
    """

    spec: DeschedulerPolicySpec
    snapshot: Snapshot
    budgets: BudgetLedger
    surges: SurgeChecker
    now: float
    held_too_long: frozenset[OwnerKey] = frozenset()

    def no_longer_held(self, pod: Pod) -> bool:
        """Return whether annotations no longer protect the pod, because ``protections.maxHold`` has passed."""
        return bool(self.held_too_long) and workload(pod) in self.held_too_long


class Protection(ABC):
    """A rule that protects pods from eviction. An instance is created per policy and plan, and called once per pod.

    Attributes:
        name: the reason code of its refusals.
        liftable: whether the pod's own annotation ``evict: "true"`` disables the protection for it. A protection is not
            liftable if moving the pod would break the pod or the cluster.
        of_template: whether the result depends only on what all pods of a template share: namespace, spec, owners and
            annotations. It is then computed once per template, not once per pod.
    """

    name: ClassVar[str]
    liftable: ClassVar[bool] = True
    of_template: ClassVar[bool] = False

    def __init__(self, context: ProtectionContext) -> None:
        self.context = context

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Return whether the policy enables the protection."""
        return True

    @abstractmethod
    def refusal(self, pod: Pod) -> Refusal | None:
        """Return the reason why the pod is protected; ``None`` if it is not."""

    def refuse(self, message: str) -> Refusal:
        """Return a refusal with the protection's reason code."""
        return Refusal(reason=self.name, message=message)


# Protections that depend on the kind of pod.


class TerminatingPods(Protection):
    """Refuses pods with a deletion timestamp."""

    name = reasons.TERMINATING
    liftable = False

    def refusal(self, pod: Pod) -> Refusal | None:
        return None if pod.deleted is None else self.refuse("the pod is already terminating")


class TerminalPods(Protection):
    """Refuses pods in phase Succeeded or Failed, because they use no resources of their node."""

    name = reasons.TERMINAL
    liftable = False

    def refusal(self, pod: Pod) -> Refusal | None:
        return self.refuse(f"the pod is terminal (phase {pod.phase})") if pod.terminal else None


class ComplexPods(Protection):
    """Refuses pods that are too complex to evaluate, on their own or together with other pods in their namespace."""

    name = reasons.POD_TOO_COMPLEX
    liftable = False

    def refusal(self, pod: Pod) -> Refusal | None:
        found = self.context.snapshot.complexity.refusal(pod)
        return None if found is None else Refusal(reason=found[0], message=found[1])


class PodGroups(Protection):
    """Refuses pods of a PodGroup, which the scheduler places together (KEP-4671)."""

    name = reasons.POD_GROUPS_STAY
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        return self.refuse(f"the pod belongs to PodGroup {pod.spec.pod_group}") if pod.spec.pod_group else None


def _evicts_failed_bare_pods(spec: DeschedulerPolicySpec) -> bool:
    return "FailedBarePods" in spec.protections.disabled


class BarePods(Protection):
    """Refuses pods without a controller, because nothing would recreate them.

    Owners that are not the controller are ignored, because they matter only for garbage collection.
    """

    name = reasons.BARE_POD
    liftable = False
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return not _evicts_failed_bare_pods(spec)

    def refusal(self, pod: Pod) -> Refusal | None:
        if pod.controller is not None:
            return None
        if not pod.owners:
            return self.refuse("no controller owns the pod: nothing would recreate it")
        owners = ", ".join(f"{owner.kind} {owner.name}" for owner in pod.owners)
        return self.refuse(
            f"no controller owns the pod: nothing would recreate it ({owners}: without controller: true)"
        )


class LivingBarePods(BarePods):
    """Refuses pods without a controller, except failed pods."""

    of_template = False

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return _evicts_failed_bare_pods(spec)

    def refusal(self, pod: Pod) -> Refusal | None:
        return None if pod.phase == "Failed" else super().refusal(pod)


class MirrorPods(Protection):
    """Refuses mirror pods, which have an annotation that the kubelet sets, or are owned by a Node.

    A mirror pod represents a static pod in the API. Deleting it does not stop the static pod.
    """

    name = reasons.MIRROR_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        if MIRROR_ANNOTATION in pod.annotations:
            return self.refuse(f"a mirror pod: it has the annotation {MIRROR_ANNOTATION}")
        if any(owner.kind == "Node" for owner in pod.owners):
            return self.refuse("a mirror pod: its owner is a Node")
        return None


class StaticPods(Protection):
    """Refuses static pods, which the kubelet of their node runs from local files or URLs."""

    name = reasons.STATIC_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        source = pod.annotations.get(CONFIG_SOURCE_ANNOTATION, "api")
        return None if source == "api" else self.refuse(f"a static pod: its source is {source!r}, not the API server")


class DaemonSetPods(Protection):
    """Refuses pods owned by a DaemonSet of any API group, which would recreate them on the same node."""

    name = reasons.DAEMON_SET_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        owner = next((owner for owner in pod.owners if owner.kind == "DaemonSet"), None)
        return None if owner is None else self.refuse(f"DaemonSet {owner.name} would recreate the pod on this node")


class CriticalPods(Protection):
    """Refuses pods with a critical priority or priority class, or with :data:`CRITICAL_ANNOTATION`."""

    name = reasons.CRITICAL_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        if pod.priority >= SYSTEM_CRITICAL_PRIORITY:
            return self.refuse(f"priority {pod.priority} is system-critical (at least {SYSTEM_CRITICAL_PRIORITY})")
        if pod.spec.priority_class_name in SYSTEM_CLASSES:
            return self.refuse(f"priority class {pod.spec.priority_class_name} is system-critical")
        if CRITICAL_ANNOTATION in pod.annotations:
            return self.refuse(f"the pod has the annotation {CRITICAL_ANNOTATION}")
        return None


# Protections for policies that refer to missing objects.


class UnknownThreshold(Protection):
    """Refuses every pod while the policy's priority threshold names a PriorityClass that does not exist.

    This protection is separate from :class:`PriorityThresholdRule`, because pods' annotations must not disable it.
    """

    name = reasons.UNKNOWN_PRIORITY_CLASS
    liftable = False
    of_template = True

    def __init__(self, context: ProtectionContext) -> None:
        super().__init__(context)
        threshold = context.spec.priority_threshold
        unknown = threshold is not None and resolve_threshold(threshold, context.snapshot) is None
        wanted = threshold.name if threshold is not None else ""
        message = (
            f"spec.priorityThreshold.name: PriorityClass {wanted!r} does not exist; no pod is evicted until it does"
        )
        self._refusal = self.refuse(message) if unknown else None

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.priority_threshold is not None

    def refusal(self, pod: Pod) -> Refusal | None:
        return self._refusal


class UnknownNamespaces(Protection):
    """Refuses pods whose Namespace object is not in the snapshot, if the policy selects namespaces by label.

    Cluster files may contain pods but no Namespaces. If missing labels were treated as empty, a selector such as
    ``protected DoesNotExist`` would match every pod.
    """

    name = reasons.UNKNOWN_NAMESPACE
    liftable = False
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.namespace_selector is not None

    def refusal(self, pod: Pod) -> Refusal | None:
        if pod.namespace in self.context.snapshot.namespaces:
            return None
        return self.refuse(f"spec.namespaceSelector: the labels of namespace {pod.namespace} are unknown")


# Protections that depend on the pod's annotations.


class EvictAnnotation(Protection):
    """Refuses pods whose annotation ``evict`` has any value other than ``"true"``.

    The author of a value such as ``no`` probably wants to protect the pod, so unknown values protect it.
    """

    name = reasons.EVICT_ANNOTATION
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        value = pod.annotations.get(EVICT_ANNOTATION_KEY)
        if value is None or value == "true" or self.context.no_longer_held(pod):
            return None
        known = "" if value == "false" else '; only "true" and "false" are valid'
        return self.refuse(f'the annotation {EVICT_ANNOTATION_KEY} is "{value}"{known}')


def prefers_to_stay(pod: Pod) -> bool:
    """Return whether the pod's annotation ``prefer-no-eviction`` requests that other pods be evicted first."""
    return pod.annotations.get(PREFER_NO_EVICTION_KEY, "false") != "false"


class PodsThatPreferToStay(Protection):
    """Refuses pods with the annotation ``prefer-no-eviction`` if the policy makes it mandatory.

    Otherwise the annotation only affects the order of candidates.
    """

    name = reasons.NO_EVICTION_ANNOTATION
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.protections.no_eviction_policy == "Mandatory"

    def refusal(self, pod: Pod) -> Refusal | None:
        if not prefers_to_stay(pod) or self.context.no_longer_held(pod):
            return None
        return self.refuse(
            f"the pod has the annotation {PREFER_NO_EVICTION_KEY}, and protections.noEvictionPolicy is Mandatory"
        )


# Protections that depend on the policy's settings.


class PriorityThresholdRule(Protection):
    """Refuses pods whose priority is at or above the policy's threshold. Pods without a priority have priority 0."""

    name = reasons.PRIORITY_TOO_HIGH
    of_template = True

    def __init__(self, context: ProtectionContext) -> None:
        super().__init__(context)
        threshold = context.spec.priority_threshold
        self._threshold = None if threshold is None else resolve_threshold(threshold, context.snapshot)
        self._named = f" ({threshold.name})" if threshold is not None and threshold.name else ""

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.priority_threshold is not None

    def refusal(self, pod: Pod) -> Refusal | None:
        if self._threshold is None or pod.priority < self._threshold:
            return None
        return self.refuse(f"priority {pod.priority} is not below the threshold {self._threshold}{self._named}")


def resolve_threshold(threshold: PriorityThreshold, snapshot: Snapshot) -> int | None:
    """Return a policy's priority threshold as a number; ``None`` if its PriorityClass does not exist."""
    if threshold.name is None:
        return threshold.value
    found = snapshot.priority_classes.get(threshold.name)
    return SYSTEM_CLASSES.get(threshold.name) if found is None else found.value


def is_system_namespace(namespace: str) -> bool:
    """Return whether a namespace is a system namespace, such as kube-system."""
    return namespace.startswith(SYSTEM_NAMESPACE_PREFIXES) or namespace in SYSTEM_NAMESPACES


class SystemNamespaces(Protection):
    """Refuses pods in system namespaces (such as kube-system), unless the policy disables this protection."""

    name = reasons.SYSTEM_NAMESPACE
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return "SystemNamespaces" not in spec.protections.disabled

    def refusal(self, pod: Pod) -> Refusal | None:
        if not is_system_namespace(pod.namespace):
            return None
        return self.refuse(f"namespace {pod.namespace} belongs to the cluster itself")


class PodsWithLocalStorage(Protection):
    """Refuses pods with an emptyDir or hostPath volume, because they would lose its data.

    A policy can disable this protection.
    """

    name = reasons.LOCAL_STORAGE
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return "PodsWithLocalStorage" not in spec.protections.disabled

    def refusal(self, pod: Pod) -> Refusal | None:
        kinds = {volume.kind for volume in pod.spec.volumes}.intersection(LOCAL_VOLUME_KINDS)
        return self.refuse(f"the pod has volumes of kind {', '.join(sorted(kinds))}") if kinds else None


class PodsWithResourceClaims(Protection):
    """Refuses pods that use a ResourceClaim (dynamic resource allocation), if the policy enables this protection."""

    name = reasons.RESOURCE_CLAIM
    of_template = True

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return "PodsWithResourceClaims" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        claims = pod.spec.resource_claims
        return self.refuse(f"the pod uses ResourceClaims: {', '.join(claims)}") if claims else None


class PodsWithPersistentVolumeClaims(Protection):
    """Refuses pods with a PersistentVolumeClaim if the policy enables this protection.

    If the policy lists storage classes, only claims of these classes are considered. A claim that is missing in the
    snapshot, or has no class, may be of any class, so its pod is refused.
    """

    name = reasons.PERSISTENT_VOLUME_CLAIM

    def __init__(self, context: ProtectionContext) -> None:
        super().__init__(context)
        self._classes = frozenset(context.spec.protections.protected_storage_classes)
        self._claims = context.snapshot.objects.of(PersistentVolumeClaim)

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return "PodsWithPVC" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        for volume in pod.spec.volumes:
            if volume.kind not in CLAIM_VOLUME_KINDS:
                continue
            name = volume.claim or f"{pod.name}-{volume.name}"
            if not self._classes:
                return self.refuse(f"the pod uses PersistentVolumeClaim {name}")
            claim = self._claims.get(f"{pod.namespace}/{name}")
            if claim is None or claim.storage_class is None:
                why = "does not exist" if claim is None else "has no class"
                return self.refuse(f"the pod uses PersistentVolumeClaim {name}, which {why}: it may be protected")
            if claim.storage_class in self._classes:
                return self.refuse(
                    f"the pod uses PersistentVolumeClaim {name} of the protected StorageClass {claim.storage_class}"
                )
        return None


class PodsWithoutBudget(Protection):
    """Refuses pods that no PodDisruptionBudget selects, if the policy enables this protection."""

    name = reasons.NO_DISRUPTION_BUDGET

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return "PodsWithoutPDB" in spec.protections.extra

    def refusal(self, pod: Pod) -> Refusal | None:
        return None if self.context.budgets.matching(pod) else self.refuse("no PodDisruptionBudget selects the pod")


class RollingOut(Protection):
    """Refuses the only ready pod of a Deployment that is being rolled out, because the rollout replaces it anyway.

    The protection is not liftable, because restarting the Deployment during a rollout would start a new rollout in each
    cycle.
    """

    name = reasons.ROLLOUT_IN_PROGRESS
    liftable = False

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.single_replica == "Surge"

    def refusal(self, pod: Pod) -> Refusal | None:
        surges = self.context.surges
        return surges.rollout_in_progress(pod) if surges.is_single_replica(pod) else None


class SingleReplicas(Protection):
    """Refuses the only ready pod of an owner if no rollout can start a replacement before the pod is deleted."""

    name = reasons.CANNOT_SURGE

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.single_replica == "Surge"

    def refusal(self, pod: Pod) -> Refusal | None:
        surges = self.context.surges
        return surges.surge_blocker(pod) if surges.is_single_replica(pod) else None


class MinReplicas(Protection):
    """Refuses pods whose owner has fewer pods than ``protections.minReplicas``, except those that a rollout replaces.

    Terminal and terminating pods are not counted. The pod itself always is, because planners also check pods that they
    have tentatively removed from their node. An owner's pods are counted once per plan, because moves do not change
    their number.
    """

    name = reasons.TOO_FEW_REPLICAS

    def __init__(self, context: ProtectionContext) -> None:
        super().__init__(context)
        self._least = context.spec.protections.min_replicas or 0
        self._surge = context.spec.single_replica == "Surge"
        self._known: dict[OwnerKey, int] = {}

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return (spec.protections.min_replicas or 0) > 1

    def refusal(self, pod: Pod) -> Refusal | None:
        owner = owner_key(pod)
        if owner is None:
            return None
        number = self._known.get(owner)
        if number is None:
            others = (other for other in self.context.snapshot.owned_by(owner) if other.name != pod.name)
            number = 1 + sum(not other.terminal and other.deleted is None for other in others)
            self._known[owner] = number
        if number >= self._least or (self._surge and self.context.surges.can_surge(pod)):
            return None
        return self.refuse(f"{owner.kind} {owner.name} has {number} pods, protections.minReplicas is {self._least}")


class StartingPods(Protection):
    """Refuses pods that are Pending on their node and were created less than :data:`START_GRACE` ago.

    Most such pods replace evicted pods and would otherwise be moved again and again. After that time, a pod is stuck
    rather than starting, so moving it can help. Pods without a node are refused as well, but planners do not check
    them.
    """

    name = reasons.POD_STARTING

    def refusal(self, pod: Pod) -> Refusal | None:
        if pod.phase != "Pending":
            return None
        if not pod.node:
            return self.refuse("the pod is not bound to a node yet")
        if pod.created is None:
            return self.refuse("the pod is still starting; its creation time is unknown")
        age = self.context.now - pod.created
        if age >= START_GRACE:
            return None
        return self.refuse(f"the pod was created {max(0, int(age))}s ago and is still starting (up to {START_GRACE}s)")


class MinPodAge(Protection):
    """Refuses pods whose ``status.startTime`` is less than ``protections.minPodAge`` ago, or is not set."""

    name = reasons.POD_TOO_YOUNG

    def __init__(self, context: ProtectionContext) -> None:
        super().__init__(context)
        self._least = context.spec.protections.min_pod_age_seconds

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        return spec.protections.min_pod_age_seconds > 0

    def refusal(self, pod: Pod) -> Refusal | None:
        wanted = f"protections.minPodAge is {self.context.spec.protections.min_pod_age}"
        if pod.started is None:
            return self.refuse(f"the pod has not started, {wanted}")
        age = self.context.now - pod.started
        return None if age >= self._least else self.refuse(f"the pod started {max(0, int(age))}s ago, {wanted}")


PROTECTIONS: Final[tuple[type[Protection], ...]] = (
    TerminatingPods,
    TerminalPods,
    ComplexPods,
    LivingBarePods,
    PodGroups,
    MirrorPods,
    StaticPods,
    DaemonSetPods,
    BarePods,
    CriticalPods,
    UnknownThreshold,
    UnknownNamespaces,
    EvictAnnotation,
    PodsThatPreferToStay,
    PriorityThresholdRule,
    SystemNamespaces,
    PodsWithLocalStorage,
    PodsWithResourceClaims,
    PodsWithPersistentVolumeClaims,
    PodsWithoutBudget,
    RollingOut,
    SingleReplicas,
    MinReplicas,
    StartingPods,
    MinPodAge,
)
"""All protections, in the order in which they are checked. The first refusal becomes the reported reason.

Protections that depend on the kind of pod, which cannot be lifted, come first, then those that depend on annotations
and on the policy's settings. A static pod in kube-system is therefore reported as a static pod. The protections with
``of_template`` are consecutive.
"""


def protections_of(context: ProtectionContext) -> tuple[Protection, ...]:
    """Return the protections that the policy enables, in the order of :data:`PROTECTIONS`."""
    return tuple(kind(context) for kind in PROTECTIONS if kind.applies(context.spec))
