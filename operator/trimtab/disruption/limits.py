"""Limits: how many evictions one plan may hold for a node, a namespace, an owner, and in all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from trimtab.api.descheduler_policy import Limits
from trimtab.api.reasons import LIMIT_REACHED
from trimtab.cluster.owners import owner_key
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

Place = tuple[str, ...]
"""What is counted: ``("node", name)``, ``("namespace", name)`` or ``("owner", namespace, kind, name)``."""

NODE: Final = "node"
NAMESPACE: Final = "namespace"
OWNER: Final = "owner"


class PlannedEvictions:
    """What a plan takes so far, of all its policies: a node has one share of trouble to bear, whoever makes it.

    Args:
        leaving: pods whose eviction was begun before and goes on in the background: they count as planned ones.

    Attributes:
        pods: the pods that are to be evicted, by ``namespace/name``.
        underway: how many of them are leaving already.
    """

    def __init__(self, leaving: Iterable[Pod] = ()) -> None:
        self.pods: set[str] = set()
        self._counts: Counter[Place] = Counter()
        self._uncounted: list[Pod] = []
        """Evictions that are not counted by place yet: most policies have no limits that ask."""
        for pod in leaving:
            self.add(pod)
        self.underway = len(self.pods)

    def add(self, pod: Pod) -> None:
        """Count one eviction of the pod from where it is."""
        self.pods.add(pod.key)
        self._uncounted.append(pod)

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`add`."""
        self.pods.discard(pod.key)
        self._counts.subtract(places(pod))

    def count(self, place: Place) -> int:
        """How many are planned there."""
        for pod in self._uncounted:
            for each in places(pod):  # Counter.update takes ten times as long
                self._counts[each] += 1
        self._uncounted.clear()
        return self._counts[place]


class LimitCounter:
    """One policy's limits over what the plan takes; ``perCycle`` counts the policy's own evictions only.

    Args:
        limits: of the policy.
        planned: shared by all policies of the plan.
    """

    def __init__(self, limits: Limits, planned: PlannedEvictions) -> None:
        self._limits = limits
        self._planned = planned
        self._own = 0
        self._by_place = any(limit is not None for limit in (limits.per_node, limits.per_namespace, limits.per_owner))

    def refusal(self, pod: Pod) -> Refusal | None:
        """Which limit is used up for the pod where it is now, or ``None``."""
        limits = self._limits
        if limits.per_cycle is not None and self._own + self._planned.underway >= limits.per_cycle:
            return self._reached("perCycle", limits.per_cycle, "")
        for place in places(pod) if self._by_place else ():
            name, limit = self._limit(place)
            if limit is not None and self._planned.count(place) >= limit:
                return self._reached(name, limit, f" for {_words(place)}")
        return None

    def take(self, pod: Pod) -> None:
        """Count one eviction of the pod, for this policy and for all."""
        self._own += 1
        self._planned.add(pod)

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`take`."""
        self._own -= 1
        self._planned.take_back(pod)

    def _limit(self, place: Place) -> tuple[str, int | None]:
        if place[0] == NODE:
            return "perNode", self._limits.per_node
        if place[0] == NAMESPACE:
            return "perNamespace", self._limits.per_namespace
        return "perOwner", self._limits.per_owner

    def _reached(self, name: str, limit: int, where: str) -> Refusal:
        planned = "1 eviction is" if limit == 1 else f"{limit} evictions are"
        underway = " or under way" if self._planned.underway else ""
        return Refusal(
            reason=LIMIT_REACHED, message=f"limits.{name} is {limit}, and {planned} planned{underway}{where}"
        )


def places(pod: Pod) -> tuple[Place, ...]:
    """Where an eviction of the pod counts."""
    owner = owner_key(pod)
    found: tuple[Place, ...] = ((NODE, pod.node), (NAMESPACE, pod.namespace))
    return found if owner is None else (*found, (OWNER, *owner))


def _words(place: Place) -> str:
    if place[0] == OWNER:
        return f"{place[2]} {place[1]}/{place[3]}"
    return " ".join(place)
