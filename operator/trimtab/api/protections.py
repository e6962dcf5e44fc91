"""Which pods a policy never moves: what it protects besides, what it lifts, and by which priority."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from trimtab.api.base import MAX_INT32, Name, PositiveInt, Rule, Spec, bounded, doc
from trimtab.api.scalars import DURATION_RULE, Duration, parse_duration
from trimtab.api.strategies import SET

DefaultProtection = Literal["PodsWithLocalStorage", "SystemNamespaces", "FailedBarePods"]
ExtraProtection = Literal["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"]
NoEvictionPolicy = Literal["Preferred", "Mandatory"]


class Protections(Spec, frozen=True):
    """Which pods are never moved.

    Always protected: pods of critical priority, pods without a controller, static and mirror pods, DaemonSets' pods,
    and pods that are on their way out. Protected unless disabled: pods with local storage and in system namespaces.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.protectedStorageClasses) || (has(self.extra) && 'PodsWithPVC' in self.extra)",
            message="protectedStorageClasses narrows PodsWithPVC, which must be in extra",
            field_path=".protectedStorageClasses",
            reason="FieldValueForbidden",
        ),
    )

    disabled: Annotated[
        tuple[DefaultProtection, ...],
        bounded(
            "Protections to lift. PodsWithLocalStorage: pods with emptyDir or hostPath volumes may be moved, whose "
            "data is lost. SystemNamespaces: pods in kube-system and the cluster's other own namespaces may be moved. "
            "FailedBarePods: pods without a controller may be removed once they have failed, and are gone then. "
            "No other protection can be lifted.",
            limit=3,
            **SET,
        ),
    ] = ()
    extra: Annotated[
        tuple[ExtraProtection, ...],
        bounded(
            "Protections to add. PodsWithPVC: pods that use a PersistentVolumeClaim stay. PodsWithoutPDB: pods that "
            "no PodDisruptionBudget selects stay. PodsWithResourceClaims: pods that use a ResourceClaim stay.",
            limit=3,
            **SET,
        ),
    ] = ()
    protected_storage_classes: Annotated[
        tuple[Name, ...],
        bounded(
            "Narrows PodsWithPVC, which must be in extra: only pods stay that use a claim of one of these "
            "StorageClasses, or a claim whose class is not known. Without it: pods with any claim.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()
    no_eviction_policy: Annotated[
        NoEvictionPolicy,
        doc(
            "What the annotation descheduler.alpha.kubernetes.io/prefer-no-eviction of a pod means. Preferred: of "
            "pods of equal priority and QoS class, those without it go first. Mandatory: those with it stay."
        ),
    ] = "Preferred"
    min_replicas: Annotated[
        PositiveInt | None,
        doc(
            "Pods stay whose owner has fewer pods than this, e.g. 2 for single replicas; but for those that "
            "singleReplica: Surge lets go, as nobody misses them."
        ),
    ] = None
    min_pod_age: Annotated[
        Duration | None,
        doc("Pods stay that started less than this long ago, e.g. 10m, or have not started.", DURATION_RULE),
    ] = None

    @property
    def min_pod_age_seconds(self) -> int:
        """``minPodAge`` in seconds, 0 where there is none."""
        return parse_duration(self.min_pod_age) if self.min_pod_age else 0


class PriorityThreshold(Spec, frozen=True):
    """Pods of this priority and above stay; it is given as a number or as a PriorityClass's name.

    Without it only critical pods are held back by their priority.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(rule="has(self.name) != has(self.value)", message="give exactly one of name and value"),
    )

    name: Annotated[Name | None, doc("A PriorityClass, whose value is the threshold.")] = None
    value: Annotated[int, Meta(ge=-MAX_INT32 - 1, le=MAX_INT32), doc("The threshold as a number.")] | None = None
