"""Defines the limits on evictions, and enforces those of a policy in a plan. The evictor enforces the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from trimtab.api.descheduler_policy import Limits
from trimtab.api.reasons import LIMIT_REACHED
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod

LimitScope = tuple[str, ...]
"""The scope that a limit applies to.

It is ``("node", name)``, ``("namespace", name)``, ``("owner", namespace, kind, name)``, or ``("causing", namespace)``
for the namespace of the pod that causes the eviction. :data:`ALL` stands for all evictions.
"""

ALL: Final[LimitScope] = ("",)

NODE: Final = "node"
NAMESPACE: Final = "namespace"
OWNER: Final = "owner"
CAUSING: Final = "causing"

MINUTE: Final = 60.0
BURST_SHARE: Final = 6
"""Divisor of the rate per minute: that fraction of a minute's evictions may start at once.

A short plan therefore finishes soon.
"""

LARGEST_BURST: Final = 10


class EvictionLimits(Struct, frozen=True, kw_only=True):
    """Operator-wide limits on the evictions of all controllers. ``None`` means no limit.

    Example: ``EvictionLimits(per_minute=60, max_concurrent_per_namespace=2)``.

    Attributes:
        max_concurrent: maximum concurrent evictions. An eviction counts toward it from the request until the pod no
            longer exists, but at most until 30 s after its grace period. An eviction with a deadline counts until the
            API server responds to its request.
        max_concurrent_per_namespace: the same per namespace.
        max_concurrent_per_node: the same per node.
        max_concurrent_per_owner: the same per controller of the pods (ReplicaSet, StatefulSet, ...).
        per_minute: maximum evictions in any minute.
        per_minute_per_namespace: the same per namespace.
        per_minute_per_node: the same per node.
        per_minute_per_owner: the same per controller of the pods.
    """

    max_concurrent: int | None = None
    max_concurrent_per_namespace: int | None = None
    max_concurrent_per_node: int | None = None
    max_concurrent_per_owner: int | None = None
    per_minute: int | None = None
    per_minute_per_namespace: int | None = None
    per_minute_per_node: int | None = None
    per_minute_per_owner: int | None = None

    def concurrent_of(self, kind: str) -> int | None:
        """Return the limit on concurrent evictions for a kind of scope."""
        limit: int | None = getattr(self, f"max_concurrent_per_{kind}" if kind else "max_concurrent")
        return limit

    def per_minute_of(self, kind: str) -> int | None:
        """Return the limit on evictions per minute for a kind of scope."""
        limit: int | None = getattr(self, f"per_minute_per_{kind}" if kind else "per_minute")
        return limit


class PlannedEvictions:
    """Counts the planned evictions of all policies in a plan, because limits such as ``perNode`` apply to their sum.

    Args:
        leaving: pods that are already being evicted in the background. They are counted as planned evictions.

    Attributes:
        pods: the pods that will be evicted, by ``namespace/name``.
        in_background: number of pods that are already being evicted in the background.
    """

    def __init__(self, leaving: Iterable[Pod] = ()) -> None:
        self.pods: set[str] = set()
        self._counts: Counter[LimitScope] = Counter()
        self._uncounted: list[Pod] = []
        """Evictions that are not counted by scope yet. Counting is deferred because most policies have no limit per
        scope.
        """
        self._causing: dict[str, str] = {}
        """By evicted pod, the namespace of the pod whose scheduling rule causes the eviction."""
        for pod in leaving:
            self.add(pod)
        self.in_background = len(self.pods)

    def add(self, pod: Pod, causing: str = "") -> None:
        """Count a planned eviction.

        Args:
            pod: the pod in its state before the move.
            causing: the namespace of the pod that causes the eviction; ``""`` if none does.
        """
        self.pods.add(pod.key)
        self._uncounted.append(pod)
        if causing:
            self._causing[pod.key] = causing
            self._counts[CAUSING, causing] += 1

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`add`."""
        self.pods.discard(pod.key)
        self._counts.subtract(limit_scopes(pod))
        causing = self._causing.pop(pod.key, "")
        if causing:
            self._counts[CAUSING, causing] -= 1

    def count(self, place: LimitScope) -> int:
        """Return the number of planned evictions in a scope."""
        for pod in self._uncounted:
            for each in limit_scopes(pod):  # Counter.update takes ten times as long
                self._counts[each] += 1
        self._uncounted.clear()
        return self._counts[place]


class LimitCounter:
    """Checks planned evictions against the limits of one policy.

    ``perCycle`` applies only to the policy's own evictions and to those in the background.

    Args:
        limits: the limits of the policy.
        planned: the planned evictions that all policies of the plan share.
    """

    def __init__(self, limits: Limits, planned: PlannedEvictions) -> None:
        self._limits = limits
        self._planned = planned
        self._own = 0
        self._by_place = any(limit is not None for limit in (limits.per_node, limits.per_namespace, limits.per_owner))

    def refusal(self, pod: Pod, causing: str = "") -> Refusal | None:
        """Return a refusal if the pod's eviction would exceed a limit; otherwise ``None``.

        Args:
            pod: the pod in its state before the move.
            causing: the namespace of the pod that causes the eviction; ``""`` if none does.
        """
        limits = self._limits
        most = limits.per_causing_namespace
        if causing and most is not None and self._planned.count((CAUSING, causing)) >= most:
            return self._limit_refusal("perCausingNamespace", most, f" because of pods of namespace {causing}")
        if limits.per_cycle is not None and self._own + self._planned.in_background >= limits.per_cycle:
            return self._limit_refusal("perCycle", limits.per_cycle, "")
        for place in limit_scopes(pod) if self._by_place else ():
            name, limit = self._limit(place)
            if limit is not None and self._planned.count(place) >= limit:
                return self._limit_refusal(name, limit, f" for {describe_scope(place)}")
        return None

    def take(self, pod: Pod, causing: str = "") -> None:
        """Count a planned eviction for this policy and for all policies; ``causing`` is as in :meth:`refusal`."""
        self._own += 1
        self._planned.add(pod, causing)

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`take`."""
        self._own -= 1
        self._planned.take_back(pod)

    def _limit(self, place: LimitScope) -> tuple[str, int | None]:
        if place[0] == NODE:
            return "perNode", self._limits.per_node
        if place[0] == NAMESPACE:
            return "perNamespace", self._limits.per_namespace
        return "perOwner", self._limits.per_owner

    def _limit_refusal(self, name: str, limit: int, where: str) -> Refusal:
        planned = "1 eviction is" if limit == 1 else f"{limit} evictions are"
        in_background = " or in progress" if self._planned.in_background else ""
        return Refusal(
            reason=LIMIT_REACHED, message=f"limits.{name} is {limit}, and {planned} planned{in_background}{where}"
        )


def limit_scopes(pod: Pod) -> tuple[LimitScope, ...]:
    """Return the scopes whose limits an eviction of the pod counts against."""
    return scopes(pod.node, pod.namespace, owner_key(pod))


def scopes(node: str, namespace: str, owner: OwnerKey | None) -> tuple[LimitScope, ...]:
    """Return the scopes of a pod's node, namespace and controller, without :data:`ALL`."""
    found: tuple[LimitScope, ...] = ((NODE, node), (NAMESPACE, namespace))
    return found if owner is None else (*found, (OWNER, *owner[:3]))


def describe_scope(place: LimitScope) -> str:
    """Return the kind and name of a scope's object."""
    if place[0] == OWNER:
        return f"{place[2]} {place[1]}/{place[3]}"
    return " ".join(place)


def pace_of(per_minute: int) -> tuple[tuple[int, float], tuple[int, float]]:
    """Return the arguments of a :class:`~trimtab.kube.token_bucket.SlidingWindow` that enforces a rate limit.

    Args:
        per_minute: number of evictions per minute, at least 1.
    """
    burst = max(1, min(LARGEST_BURST, per_minute // BURST_SHARE))
    return (per_minute, MINUTE), (burst, MINUTE * burst / per_minute)
