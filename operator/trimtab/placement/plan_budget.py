"""Limits the time of a plan, and divides that time between namespaces.

Before a planner evaluates a pod, it checks the budget. The time is charged to the pod's namespace:

    if (late := budget.exceeded(pod.namespace)) is None:
        with budget.charged(pod.namespace):
        ...

In the first half of the time no pod is skipped, so a plan that is complete by then does not depend on the clock. In the
second half, the pods of a namespace that has used more time than the average are skipped. So the pods of one namespace,
however many or expensive, cannot use up the time of the others. After the deadline every pod is skipped. Skipped pods
are not evicted (reason ``PlanDeadlineExceeded``).

:class:`PlanBackoff` gives a namespace that used more time than the average, and whose pods were skipped, little time in
the next plans, so that these do not take until the deadline as well. After a minute, one plan gives the namespace all
of its time. If that does not suffice, the backoff doubles, up to half an hour.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeVar

from msgspec import Struct

from trimtab.kube.objects import PodSpec
from trimtab.kube.retry import Backoff

T = TypeVar("T")

MIN_DEADLINE: Final = 30.0
"""Minimum default deadline in seconds. Ordinary plans of large clusters take much less time."""

MAX_DEADLINE: Final = 120.0
"""Maximum default deadline in seconds. Other controllers cannot use the snapshot while a plan is being computed."""


BACKOFF: Final = Backoff(initial=60.0, maximum=1800.0, jitter=0.0)
"""Backoff before a namespace whose pods were skipped has its full time again."""

BACKOFF_SHARE: Final = 0.05
"""The share of a plan's time that a namespace has during its backoff."""


def default_deadline(interval: float, *, at_most: float = math.inf) -> float:
    """Return the default deadline of a plan in seconds: half of the interval between plans, within limits.

    Args:
        interval: seconds between plans.
        at_most: upper limit in seconds, which takes precedence over :data:`MIN_DEADLINE`.
    """
    return min(at_most, MAX_DEADLINE, max(MIN_DEADLINE, interval / 2))


class PlanBudget:
    """The time limit of one plan, and the time that each namespace has used.

    Args:
        seconds: the time limit in seconds, starting now; infinity for no deadline.
        clock: returns the time in monotonic seconds. It is not called if there is no deadline.
        backing_off: the time limit in seconds of each namespace that is in backoff.

    Attributes:
        spent: the seconds that each namespace has used.
        skipped: the namespaces of the pods that were skipped.
        backing_off: see ``Args``.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        clock: Callable[[], float] = lambda: 0.0,
        *,
        backing_off: Mapping[str, float] | None = None,
    ) -> None:
        self.seconds = seconds
        self.spent: dict[str, float] = {}
        self.skipped: set[str] = set()
        self.backing_off: Mapping[str, float] = backing_off or {}
        self._clock = clock
        self._limited = seconds < math.inf
        self._began = clock() if self._limited else 0.0

    def stage(self, share: float) -> PlanBudget:
        """Return a budget for a stage of the plan that starts now. Its time limit is a share of this budget's.

        Both budgets share ``spent`` and ``skipped``.

        Args:
            share: the fraction of this budget's time, 0 to 1.
        """
        stage = PlanBudget(self.seconds * share, self._clock, backing_off=self.backing_off)
        stage.spent, stage.skipped = self.spent, self.skipped
        return stage

    @property
    def over(self) -> bool:
        """Return whether the deadline has passed."""
        return self._limited and self._clock() - self._began >= self.seconds

    def exceeded(self, namespace: str) -> str | None:
        """Return why the remaining pods of a namespace must be skipped, or ``None`` if they may be evaluated."""
        if not self._limited:
            return None
        if not self._backs_off(namespace):
            elapsed = self._clock() - self._began
            if elapsed < self.seconds / 2:
                return None
            if elapsed < self.seconds and self.spent.get(namespace, 0.0) <= self.average:
                return None
        self.skipped.add(namespace)
        return self.message(namespace)

    @property
    def average(self) -> float:
        """Return the average of the seconds that the namespaces have used; 0 if only one has."""
        return sum(self.spent.values()) / len(self.spent) if len(self.spent) > 1 else 0.0

    def _backs_off(self, namespace: str) -> bool:
        limit = self.backing_off.get(namespace)
        return limit is not None and self.spent.get(namespace, 0.0) >= limit

    def message(self, namespace: str) -> str:
        """Return the message that explains why a pod of the namespace was skipped."""
        mine = self.spent.get(namespace, 0.0)
        if (limit := self.backing_off.get(namespace)) is not None:
            return (
                f"planning may take {limit:g}s for pods of namespace {namespace}, which used too much of the "
                f"{self.seconds:g}s of an earlier plan; they have used {mine:.1f}s"
            )
        return f"planning may take {self.seconds:g}s, of which pods of namespace {namespace} have used {mine:.1f}s"

    def charged(self, namespace: str) -> AbstractContextManager[None]:
        """Return a context manager that charges the time spent in it to a namespace."""
        return _Charge(self, namespace) if self._limited else _FREE

    def fair_order(
        self, items: Sequence[T], namespace: Callable[[T], str], cost: Callable[[T], int], skipped: list[T]
    ) -> Iterator[T]:
        """Yield the items in order, and charge the time until the next item is requested to the item's namespace.

        In the second half of the time, the next item is the cheapest one of the namespace that has used the least time.

        Args:
            items: the items to evaluate.
            namespace: returns an item's namespace.
            cost: returns the estimated cost of an item (:func:`planning_cost`).
            skipped: receives the items that are not yielded before the deadline.
        """
        if not self._limited:
            yield from items
            return
        for place, item in enumerate(items):
            if self._clock() - self._began >= self.seconds / 2:
                yield from self._least_spent_first(items[place:], namespace, cost, skipped)
                return
            if self._backs_off(namespace(item)):
                skipped.append(item)
                self.skipped.add(namespace(item))
                continue
            began = self._clock()
            yield item
            self.charge(namespace(item), began)

    def _least_spent_first(
        self, items: Sequence[T], namespace: Callable[[T], str], cost: Callable[[T], int], skipped: list[T]
    ) -> Iterator[T]:
        waiting: dict[str, deque[T]] = {}
        for item in sorted(items, key=cost):
            waiting.setdefault(namespace(item), deque()).append(item)
        queues = [(self.spent.get(name, 0.0), place, name) for place, name in enumerate(waiting)]
        heapify(queues)
        while queues and not self.over:
            _, place, name = queues[0]
            queue = waiting[name]
            if self._backs_off(name):
                skipped += queue
                self.skipped.add(name)
                heappop(queues)
                continue
            began = self._clock()
            yield queue.popleft()
            self.charge(name, began)
            if queue:
                heapreplace(queues, (self.spent[name], place, name))
            else:
                heappop(queues)
        skipped += (item for _, _, name in sorted(queues, key=lambda entry: entry[1]) for item in waiting[name])
        self.skipped |= {name for _, _, name in queues}

    def now(self) -> float:
        """Return the current time in monotonic seconds. The clock is not read if there is no deadline."""
        return self._clock()

    def charge(self, namespace: str, began: float) -> None:
        """Charge the time since ``began`` to a namespace."""
        self.spent[namespace] = self.spent.get(namespace, 0.0) + self._clock() - began


class _Charge:
    """Charges the time spent in the context to a namespace.

    A generator-based context manager would be several times slower.
    """

    __slots__ = ("_began", "_budget", "_namespace")

    def __init__(self, budget: PlanBudget, namespace: str) -> None:
        self._budget = budget
        self._namespace = namespace
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._budget.now()

    def __exit__(self, *_: object) -> None:
        self._budget.charge(self._namespace, self._began)


_FREE: Final = nullcontext()


UNLIMITED: Final = PlanBudget()
"""A budget without a deadline. The command line and tests use it, because their plans must depend only on the input."""


class _BackingOff(Struct):
    """A namespace in backoff: until when, in monotonic seconds, and the number of plans whose time did not suffice."""

    until: float
    failures: int


class PlanBackoff:
    """Remembers the namespaces whose pods did not fit into the time of one planner's earlier plans.

    ::

        budget = backoff.budget(seconds, clock)
        ...  # plan
        backoff.finish(budget, clock())
    """

    def __init__(self) -> None:
        self._namespaces: dict[str, _BackingOff] = {}

    def budget(self, seconds: float, clock: Callable[[], float]) -> PlanBudget:
        """Return the budget of the next plan, which starts now.

        Args:
            seconds: the time limit of the plan in seconds.
            clock: returns the time in monotonic seconds.
        """
        now = clock() if self._namespaces else 0.0
        waiting = {name: seconds * BACKOFF_SHARE for name, each in self._namespaces.items() if now < each.until}
        return PlanBudget(seconds, clock, backing_off=waiting)

    def finish(self, budget: PlanBudget, now: float) -> None:
        """Update the backoffs after a plan.

        A namespace is only in backoff if there are others, whose pods would have to wait for its pods.

        Args:
            budget: the budget from :meth:`budget` that the plan has used.
            now: the current time in monotonic seconds.
        """
        average = budget.average
        late = {name for name in budget.skipped if len(budget.spent) > 1 and budget.spent.get(name, 0.0) > average}
        for name in late - budget.backing_off.keys():
            failures = self._namespaces[name].failures if name in self._namespaces else 0
            self._namespaces[name] = _BackingOff(now + BACKOFF.delay(failures), failures + 1)
        for name in self._namespaces.keys() - late - budget.backing_off.keys():
            del self._namespaces[name]  # all of its pods were evaluated in its full time


def planning_cost(spec: PodSpec) -> int:
    """Return the estimated cost of planning a pod: the number of constraints on pods, nodes and volumes in its spec.

    Planners evaluate the pods with the lowest cost first.
    """
    affinity = spec.affinity
    return (
        len(affinity.pod_required)
        + len(affinity.pod_preferred)
        + len(affinity.anti_required)
        + len(affinity.anti_preferred)
        + len(spec.topology_spread)
        + len(spec.volumes)
        + len(spec.tolerations)
        + len(spec.host_ports)
    )
