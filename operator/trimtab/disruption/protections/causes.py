"""Decides which pods may cause the eviction of which other pods.

The anti-affinity, affinity and topology spread constraints of a pod are its scheduling rules. They, or the load of an
unmovable pod, are the cause of an eviction. A rule of the evicted pod itself always justifies its eviction. Another pod
justifies it if

- both are in the same namespace, and the evicted pod does not have a higher priority; or
- the policy has ``crossNamespace: Allow``, the evicted pod has a lower priority, a scheduler placed the other pod, and
  that pod is not unmovable because of its own spec.

Therefore the pods of a tenant disrupt only the tenant's own pods, unless the administrator allows more.

A pod does not show directly whether a scheduler placed it, because ``schedulerName`` is always set and the kubelet
sets the condition PodScheduled on every pod that it runs. Any of four observations indicates that ``spec.nodeName`` was
set at creation. First, an entry of ``managedFields`` has that field; binding a pod adds none. Users can edit these
entries, and an entry of a bound pod also has the field if a user has applied the whole pod. Second, the template of the
pod's controller sets ``spec.nodeName``. Third, the API server binds a pod and sets PodScheduled in one step, so a pod
that is on a node but does not have that condition was not bound by a scheduler. Fourth, required anti-affinity is
immutable, and a scheduler never places a pod next to an existing pod that it selects. Users cannot change the start
times, which show that order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.replacements import bound_by_template
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""The annotation by which users of cluster-autoscaler control whether a pod may be evicted to remove its node."""

POD_SPEC_REASONS: Final = frozenset(
    {
        reasons.BARE_POD,
        reasons.MIRROR_POD,
        reasons.STATIC_POD,
        reasons.DAEMON_SET_POD,
        reasons.CRITICAL_POD,
        reasons.EVICT_ANNOTATION,
        reasons.NO_EVICTION_ANNOTATION,
        reasons.LOCAL_STORAGE,
        reasons.RESOURCE_CLAIM,
        reasons.PERSISTENT_VOLUME_CLAIM,
        reasons.NO_DISRUPTION_BUDGET,
        reasons.TOO_FEW_REPLICAS,
        reasons.CANNOT_SURGE,
        reasons.DISRUPTION_BUDGET,
        reasons.NOT_SAFE_TO_EVICT_ANNOTATION,
        reasons.POD_TOO_COMPLEX,
        reasons.NAMESPACE_TOO_COMPLEX,
    }
)
"""Reason codes of protections that follow from a pod's own spec or annotations.

They do not include system namespaces, the policy's priority threshold, or temporary states (the pod is starting or
young).
"""


class Cause(Struct, frozen=True):
    """A pod whose scheduling rule or load is a reason to evict a pod.

    Attributes:
        pod: the pod with the rule; the evicted pod itself if its own rule is the reason.
        enforced: whether the rule is required anti-affinity, which no scheduler violates when it places the pod.
    """

    pod: Pod
    enforced: bool = False


class CauseGroup(Struct, frozen=True, order=True):
    """The properties that determine which evictions a pod may cause. Pods with the same properties form a group.

    Attributes:
        namespace: namespace of the pods.
        priority: priority of the pods.
        crosses: whether the pods may cause evictions in other namespaces at all.
    """

    namespace: str
    priority: int
    crosses: bool

    def may_evict(self, namespace: str, priority: int) -> bool:
        """Return whether pods of the group may cause the eviction of a pod with this namespace and priority."""
        if namespace == self.namespace:
            return priority <= self.priority
        return self.crosses and priority < self.priority


class EvictionCauses:
    """Decides for one policy which pods may cause the eviction of which other pods.

    Args:
        spec: the policy's spec.
        unmovable: returns the reason why a pod cannot be moved if that follows from its own spec
            (:data:`POD_SPEC_REASONS`); otherwise ``None``.
        snapshot: the cluster state, with the controllers of the pods.
    """

    def __init__(
        self, spec: DeschedulerPolicySpec, unmovable: Callable[[Pod], Refusal | None], snapshot: Snapshot
    ) -> None:
        self.crosses = spec.cross_namespace == "Allow"
        self._unmovable = unmovable
        self._snapshot = snapshot

    def kind_of(self, cause: Pod) -> CauseGroup:
        """Return the group of a pod that may be the cause of evictions."""
        crosses = self.crosses and not self._not_scheduled(cause) and self._unmovable(cause) is None
        return CauseGroup(cause.namespace, cause.priority, crosses)

    def refusal(self, victim: Pod, cause: Cause) -> Refusal | None:
        """Return the reason why the cause does not justify the pod's eviction; ``None`` if it does."""
        other = cause.pod
        if other.key == victim.key:
            return None
        if other.namespace == victim.namespace:
            if victim.priority <= other.priority:
                return None
            return Refusal(
                reasons.CAUSE_OF_LOWER_PRIORITY,
                f"{other.key}, which is the reason to move the pod, has priority {other.priority}, the pod "
                f"{victim.priority}",
            )
        if not self.crosses:
            return Refusal(
                reasons.CAUSED_FROM_OTHER_NAMESPACE,
                f"{other.key} of another namespace is the reason to move the pod, and crossNamespace is Deny",
            )
        if victim.priority >= other.priority:
            return Refusal(
                reasons.CAUSE_OF_LOWER_PRIORITY,
                f"{other.key} of another namespace, which is the reason to move the pod, has priority "
                f"{other.priority}, the pod {victim.priority}, which is not lower",
            )
        if self._not_scheduled(other) or (cause.enforced and not came_first(other, victim)):
            return Refusal(
                reasons.CAUSE_NOT_SCHEDULED,
                f"{other.key} of another namespace, which is the reason to move the pod, was not placed by a scheduler",
            )
        unmovable = self._unmovable(other)
        if unmovable is None:
            return None
        return Refusal(
            reasons.CAUSE_UNMOVABLE,
            f"{other.key} of another namespace, which is the reason to move the pod, cannot be moved itself "
            f"({unmovable.reason}: {unmovable.message})",
        )

    def refusal_of(self, victim: Pod, causes: Iterable[Cause]) -> Refusal | None:
        """Return the reason why none of the causes justifies the eviction.

        The result is ``None`` if one of them does, or if there are no causes.
        """
        first: Refusal | None = None
        for cause in causes:
            refusal = self.refusal(victim, cause)
            if refusal is None:
                return None
            first = first or refusal
        return first

    def responsible(self, victim: Pod, causes: Iterable[Cause]) -> Pod | None:
        """Return the first of the causes that justifies the eviction; ``None`` if none does.

        Pods of the victim's own namespace are considered first.
        """
        enough = [cause.pod for cause in causes if self.refusal(victim, cause) is None]
        return min(enough, key=lambda pod: pod.namespace != victim.namespace, default=None)

    def _not_scheduled(self, pod: Pod) -> bool:
        return bound_by_name(pod) or bound_by_template(pod, self._snapshot)


def bound_by_name(pod: Pod) -> bool:
    """Return whether the pod is on a node although no scheduler bound it.

    A pod in a file that contains no status is assumed to be bound by a scheduler.
    """
    if not pod.node:
        return False
    if pod.node_name_managed:
        return True
    if not (pod.conditions or pod.phase == "Pending"):
        return False
    return not any(each.type == "PodScheduled" and each.status == "True" for each in pod.all_conditions())


def came_first(pod: Pod, other: Pod) -> bool:
    """Return whether a pod arrived on its node before the other pod did; ``True`` if one of the times is unknown.

    The times are in seconds. Of two pods that arrived in the same second, neither came first.
    """
    mine, theirs = arrival(pod), arrival(other)
    return mine is None or theirs is None or mine < theirs


def arrival(pod: Pod) -> float | None:
    """Return the time at which the kubelet accepted the pod, in seconds since the epoch.

    If that time is unknown, the pod's creation time is returned, or ``None`` if that is unknown as well.
    """
    return pod.started if pod.started is not None else pod.created
