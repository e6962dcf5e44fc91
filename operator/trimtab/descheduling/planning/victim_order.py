"""Defines the order in which pods are evicted: by rank, then by the gain for the strategy, then by size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop
from typing import Final

from msgspec import Struct

from trimtab.descheduling.planning.node_usage import TargetExcess
from trimtab.disruption.protections import prefers_to_stay
from trimtab.kube.objects import Pod, PodSpec

QOS_RANK: Final = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}

Rank = tuple[int, int, bool]
Size = tuple[int, int, float, str, str]


def rank(pod: Pod) -> Rank:
    """Return the first sort key of victims, which takes precedence over a strategy's gain.

    It consists of the priority, the QoS class (BestEffort first) and the annotation ``prefer-no-eviction``. Pods
    without the annotation are evicted first. If a pod has no priority, it is 0, which the API server also assigns if no
    default PriorityClass exists.
    """
    return pod.priority, QOS_RANK[pod.spec.qos], prefers_to_stay(pod)


def size(pod: Pod) -> Size:
    """Return the sort key for pods with equal rank and gain: requested cpu and memory, age and name.

    Smaller pods are evicted first. Of equally large pods, the youngest is evicted first, because it has done the least
    work. A pod without a creation time, as in hand-written files, is treated as the oldest.
    """
    requests = pod.spec.requests
    return requests.get("cpu", 0), requests.get("memory", 0), -(pod.created or 0.0), pod.namespace, pod.name


def victim_order(pod: Pod, gain: float = 0.0) -> tuple[Rank, float, Size]:
    """Return the sort key of victims: rank, then the strategy's gain (higher first), then size."""
    return rank(pod), -gain, size(pod)


Amounts = tuple[int, ...]

_Sized = tuple[int, int, float, str, str, Pod]
"""The :data:`Size` of a pod, followed by the pod. Sizes contain the unique name, so the pods are never compared."""

_Template = tuple[PodSpec, Rank, Rank, int, int, int]
"""Values that depend only on a pod's spec.

They are the ranks without and with the annotation ``prefer-no-eviction``, cpu, memory, and the index of its amounts.
"""


class Victim(Struct, frozen=True, gc=False):
    """A pod and the amounts that its eviction frees on its node, by column."""

    pod: Pod
    amounts: Amounts


class VictimQueue:
    """Sorts the pods of each overutilized node into eviction order.

    Values that depend only on a spec are computed once, because about ten times as many pods are sorted as are evicted.

    Args:
        amounts_of: returns the amounts that the eviction of a pod frees.
        of_spec: whether these amounts depend only on the pod's spec.
    """

    def __init__(self, amounts_of: Callable[[Pod], Amounts], *, of_spec: bool) -> None:
        self._amounts_of = amounts_of
        self._of_spec = of_spec
        self._templates: dict[int, _Template] = {}
        self._ranks: dict[Rank, Rank] = {}
        self._amounts: list[Amounts] = []
        self._number_of: dict[Amounts, int] = {}

    def groups(self, pods: Iterable[Pod]) -> list[VictimGroup]:
        """Group the pods by rank (:func:`rank`), the lowest rank first."""
        ranked: dict[Rank, dict[int, list[_Sized]]] = {}
        templates, of_spec = self._templates, self._of_spec
        last: Rank | None = None
        heaps: dict[int, list[_Sized]] = {}
        for pod in pods:
            template = templates.get(id(pod.spec))
            if template is None:
                template = templates[id(pod.spec)] = self._template(pod)
            _, key, preferring_key, cpu, memory, number = template
            if pod.annotations and prefers_to_stay(pod):
                key = preferring_key
            if key is not last:
                last, heaps = key, ranked.setdefault(key, {})
            if not of_spec:
                number = self._number(pod)
            sized = (cpu, memory, -(pod.created or 0.0), pod.namespace, pod.name, pod)
            if number in heaps:
                heaps[number].append(sized)
            else:
                heaps[number] = [sized]
        return [VictimGroup(ranked[key], self._amounts) for key in sorted(ranked)]

    def _template(self, pod: Pod) -> _Template:
        priority, qos, _ = rank(pod)
        plain, preferring_key = (
            self._ranks.setdefault(key, key) for key in ((priority, qos, False), (priority, qos, True))
        )
        return (pod.spec, plain, preferring_key, *size(pod)[:2], self._number(pod))

    def _number(self, pod: Pod) -> int:
        amounts = self._amounts_of(pod)
        number = self._number_of.setdefault(amounts, len(self._amounts))
        if number == len(self._amounts):
            self._amounts.append(amounts)
        return number


class VictimGroup:
    """Pods of one rank on one node, from which the next victim is selected by its amounts, then by size.

    The pods are stored in one heap per combination of amounts, because many pods of a node have the same amounts.
    Heaps are used because most pods are not evicted, so they need not be sorted completely.

    Args:
        pods: the pods by the index of their amounts, unsorted. The lists are modified.
        amounts: the amounts by index.
    """

    def __init__(self, pods: dict[int, list[_Sized]], amounts: Sequence[Amounts]) -> None:
        self._heaps = pods
        self._amounts = amounts
        for heap in pods.values():
            heapify(heap)

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def __iter__(self) -> Iterator[Victim]:
        """Yield the remaining pods, smallest first."""
        left = [(sized, number) for number, heap in self._heaps.items() for sized in heap]
        for sized, number in sorted(left, key=_first):
            yield Victim(sized[-1], self._amounts[number])

    def take(self, over: Sequence[TargetExcess]) -> Victim | None:
        """Remove and return the next victim; ``None`` if no pod uses an overutilized resource.

        Only pods that use the most overutilized resource are considered. The one with the smallest usage that ends the
        excess is selected. If none ends the excess, the one with the largest usage is selected. If no pod uses the
        resource, the next one is tried. Ties are broken by size.

        Args:
            over: the node's excess of each resource above its target, the largest first.
        """
        for excess in over:
            number = self._best(excess.level.column, excess.amount)
            if number is not None:
                heap = self._heaps[number]
                victim = Victim(heappop(heap)[-1], self._amounts[number])
                if not heap:
                    del self._heaps[number]
                return victim
        return None

    def _best(self, column: int, amount: int) -> int | None:
        """Return the index of the amounts of the next victim; ``None`` if no pod uses the resource.

        Ties are broken by the size of the first pod with the amounts.
        """
        best: int | None = None
        least: tuple[bool, int, _Sized] | None = None
        for number, heap in self._heaps.items():
            has = self._amounts[number][column]
            if has > 0:
                rank = (False, has, heap[0]) if has >= amount else (True, -has, heap[0])
                if least is None or rank < least:
                    best, least = number, rank
        return best


def _first(each: tuple[_Sized, int]) -> _Sized:
    return each[0]
