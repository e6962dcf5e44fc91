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

_Template = tuple[PodSpec, int, int, int, int, Amounts]
"""What follows from a spec: priority, QoS class, cpu and memory as orders have them, and the amounts."""


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

    def groups(self, pods: Iterable[Pod]) -> list[Victims]:
        """Pods of equal rank (:func:`~trimtab.descheduling.order.rank`), the lesser first."""
        ranked: dict[Rank, Victims] = {}
        templates, of_spec = self._templates, self._of_spec
        for pod in pods:
            spec = pod.spec
            template = templates.get(id(spec))
            if template is None:
                template = templates[id(spec)] = (spec, *rank(pod)[:2], *size(pod)[:2], self._amounts_of(pod))
            _, priority, qos, cpu, memory, amounts = template
            key = (priority, qos, bool(pod.annotations) and prefers_to_stay(pod))
            group = ranked.get(key)
            if group is None:
                group = ranked[key] = Victims()
            sized = (cpu, memory, -(pod.created or 0.0), pod.namespace, pod.name, pod)
            group.add(sized, amounts if of_spec else self._amounts_of(pod))
        return [ranked[key] for key in sorted(ranked)]


class Victims:
    """Pods of one rank on one node: between them amounts decide, then size.

    Kept by amounts, of which a node has far fewer than pods; the pods of each are a heap, for most of them stay.
    """

    def __init__(self) -> None:
        self._by_amounts: dict[Amounts, list[_Sized]] = {}
        self._ordered = False

    def __bool__(self) -> bool:
        return bool(self._by_amounts)

    def __iter__(self) -> Iterator[Victim]:
        """Those that are left, the smaller first."""
        left = [(sized, amounts) for amounts, heap in self._by_amounts.items() for sized in heap]
        for sized, amounts in sorted(left, key=_first):
            yield Victim(sized[-1], amounts)

    def add(self, sized: _Sized, amounts: Amounts) -> None:
        """Take a pod in, before any is taken out."""
        heap = self._by_amounts.get(amounts)
        if heap is None:
            heap = self._by_amounts[amounts] = []
        heap.append(sized)

    def take(self, over: Sequence[Excess]) -> Victim | None:
        """Take out who goes next: of those with some of the worst resource the smallest that ends it, else the largest.

        If none has any of it, the next resource decides; ``None`` if none has any of what is too much. Of equal ones
        the first by size goes.

        Args:
            over: what the node has too much of, the worst first.
        """
        if not self._ordered:
            self._ordered = True
            for heap in self._by_amounts.values():
                heapify(heap)
        for excess in over:
            amounts = self._best(excess.level.column, excess.amount)
            if amounts is not None:
                heap = self._by_amounts[amounts]
                victim = Victim(heappop(heap)[-1], amounts)
                if not heap:
                    del self._by_amounts[amounts]
                return victim
        return None

    def _best(self, column: int, amount: int) -> Amounts | None:
        """The amounts that suit best, of equal ones those of the pod that comes first."""
        best: Amounts | None = None
        least: tuple[bool, int, _Sized] | None = None
        for amounts, heap in self._by_amounts.items():
            has = amounts[column]
            if has <= 0:
                continue
            rank = (False, has, heap[0]) if has >= amount else (True, -has, heap[0])
            if least is None or rank < least:
                best, least = amounts, rank
        return best


def _first(each: tuple[_Sized, Amounts]) -> _Sized:
    return each[0]
