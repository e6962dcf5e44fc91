"""Limits the time of a plan, and divides that time between namespaces.

Before a planner evaluates a pod, it checks the budget. The time is charged to the pod's namespace:

    if (late := budget.exceeded(pod.namespace)) is None:
        with budget.charged(pod.namespace):
        ...

In the first half of the time no pod is skipped, so a plan that is complete by then does not depend on the clock. In the
second half, the pods of a namespace that has used more time than the average are skipped. So the pods of one namespace,
however many or expensive, cannot use up the time of the others. After the deadline every pod is skipped. Skipped pods
are not evicted (reason ``PlanDeadlineExceeded``), and the next plan evaluates them again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeVar

from trimtab.kube.objects import PodSpec

T = TypeVar("T")

MIN_DEADLINE: Final = 30.0
"""Minimum default deadline in seconds. Ordinary plans of large clusters take much less time."""

MAX_DEADLINE: Final = 120.0
"""Maximum default deadline in seconds. Other controllers cannot use the snapshot while a plan is being computed."""


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

    Attributes:
        spent: the seconds that each namespace has used.
    """

    def __init__(self, seconds: float = math.inf, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.seconds = seconds
        self.spent: dict[str, float] = {}
        self._clock = clock
        self._limited = seconds < math.inf
        self._began = clock() if self._limited else 0.0

    def stage(self, share: float) -> PlanBudget:
        """Return a budget for a stage of the plan that starts now. Its time limit is a share of this budget's.

        Both budgets share ``spent``.

        Args:
            share: the fraction of this budget's time, 0 to 1.
        """
        stage = PlanBudget(self.seconds * share, self._clock)
        stage.spent = self.spent
        return stage

    @property
    def over(self) -> bool:
        """Return whether the deadline has passed."""
        return self._limited and self._clock() - self._began >= self.seconds

    def exceeded(self, namespace: str) -> str | None:
        """Return why the remaining pods of a namespace must be skipped, or ``None`` if they may be evaluated."""
        if not self._limited:
            return None
        elapsed = self._clock() - self._began
        if elapsed < self.seconds / 2:
            return None
        share = sum(self.spent.values()) / len(self.spent) if len(self.spent) > 1 else 0.0
        if elapsed < self.seconds and self.spent.get(namespace, 0.0) <= share:
            return None
        return self.message(namespace)

    def message(self, namespace: str) -> str:
        """Return the message that explains why a pod of the namespace was skipped."""
        mine = self.spent.get(namespace, 0.0)
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
            began = self._clock()
            yield queue.popleft()
            self.charge(name, began)
            if queue:
                heapreplace(queues, (self.spent[name], place, name))
            else:
                heappop(queues)
        skipped += (item for _, _, name in sorted(queues, key=lambda entry: entry[1]) for item in waiting[name])

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
