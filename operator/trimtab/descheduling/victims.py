"""Which pods of one node go first, when what matters is how much they take away from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop

from msgspec import Struct

from trimtab.descheduling.order import Rank, rank, size
from trimtab.descheduling.utilization import Excess
from trimtab.disruption.protections.no_eviction_annotation import prefers_to_stay
from trimtab.kube.objects import Pod, PodSpec

Amounts = tuple[int, ...]

_Sized = tuple[int, int, float, str, str, Pod]
"""A pod behind its :data:`~trimtab.descheduling.order.Size`; no two have one name, so pods are never compared."""

_Template = tuple[PodSpec, Rank, Rank, int, int, int]
"""What follows from a spec: ranks without and with a wish to stay, cpu and memory as in sizes, number of amounts."""


class Victim(Struct, frozen=True, gc=False):
    """A pod and what it takes away from its node, by column."""

    pod: Pod
    amounts: Amounts


class Lineup:
    """Brings the pods of one node after the other into the order in which they may have to go.

    There are some ten times as many of them as go, so what follows from a spec is read off it once.

    Args:
        amounts_of: what a pod takes away from its node.
        of_spec: whether that follows from its spec.
    """

    def __init__(self, amounts_of: Callable[[Pod], Amounts], *, of_spec: bool) -> None:
        self._amounts_of = amounts_of
        self._of_spec = of_spec
        self._templates: dict[int, _Template] = {}
        self._ranks: dict[Rank, Rank] = {}
        self._amounts: list[Amounts] = []
        self._number_of: dict[Amounts, int] = {}

    def groups(self, pods: Iterable[Pod]) -> list[Victims]:
        """Pods of equal rank (:func:`~trimtab.descheduling.order.rank`), the lesser first."""
        ranked: dict[Rank, dict[int, list[_Sized]]] = {}
        templates, of_spec = self._templates, self._of_spec
        last: Rank | None = None
        heaps: dict[int, list[_Sized]] = {}
        for pod in pods:
            template = templates.get(id(pod.spec))
            if template is None:
                template = templates[id(pod.spec)] = self._template(pod)
            _, key, wishful, cpu, memory, number = template
            if pod.annotations and prefers_to_stay(pod):
                key = wishful
            if key is not last:
                last, heaps = key, ranked.setdefault(key, {})
            if not of_spec:
                number = self._number(pod)
            sized = (cpu, memory, -(pod.created or 0.0), pod.namespace, pod.name, pod)
            if number in heaps:
                heaps[number].append(sized)
            else:
                heaps[number] = [sized]
        return [Victims(ranked[key], self._amounts) for key in sorted(ranked)]

    def _template(self, pod: Pod) -> _Template:
        priority, qos, _ = rank(pod)
        plain, wishful = (self._ranks.setdefault(key, key) for key in ((priority, qos, False), (priority, qos, True)))
        return (pod.spec, plain, wishful, *size(pod)[:2], self._number(pod))

    def _number(self, pod: Pod) -> int:
        amounts = self._amounts_of(pod)
        number = self._number_of.setdefault(amounts, len(self._amounts))
        if number == len(self._amounts):
            self._amounts.append(amounts)
        return number


class Victims:
    """Pods of one rank on one node: between them amounts decide, then size.

    Kept by amounts, of which a node has far fewer than pods; the pods of each are a heap, for most of them stay.

    Args:
        pods: by the number of their amounts, in any order; nobody else keeps them.
        amounts: by number.
    """

    def __init__(self, pods: dict[int, list[_Sized]], amounts: Sequence[Amounts]) -> None:
        self._heaps = pods
        self._amounts = amounts
        for heap in pods.values():
            heapify(heap)

    def __bool__(self) -> bool:
        return bool(self._heaps)

    def __iter__(self) -> Iterator[Victim]:
        """Those that are left, the smaller first."""
        left = [(sized, number) for number, heap in self._heaps.items() for sized in heap]
        for sized, number in sorted(left, key=_first):
            yield Victim(sized[-1], self._amounts[number])

    def take(self, over: Sequence[Excess]) -> Victim | None:
        """Take out who goes next: of those with some of the worst resource the smallest that ends it, else the largest.

        If none has any of it, the next resource decides; ``None`` if none has any of what is too much. Of equal ones
        the first by size goes.

        Args:
            over: what the node has too much of, the worst first.
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
        """The amounts that suit best, of equal ones those of the pod that comes first."""
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
