"""Which pods of one node go first, when what matters is how much they take away from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from msgspec import Struct

from trimtab.descheduling.utilization import Excess
from trimtab.kube.objects import Pod

Amounts = tuple[int, ...]


class Victim(Struct, frozen=True, gc=False):
    """A pod and what it takes away from its node, by column."""

    pod: Pod
    amounts: Amounts


class Victims:
    """Pods between which only amounts and the order given decide.

    Kept by amounts: those that take away the same go in their order, and a node has far fewer amounts than pods.

    Args:
        victims: the pods in order.
    """

    def __init__(self, victims: Sequence[Victim]) -> None:
        self._by_amounts: dict[Amounts, deque[tuple[int, Victim]]] = {}
        for place, victim in enumerate(victims):
            queue = self._by_amounts.get(victim.amounts)
            if queue is None:
                queue = self._by_amounts[victim.amounts] = deque()
            queue.append((place, victim))

    def __bool__(self) -> bool:
        return bool(self._by_amounts)

    def __iter__(self) -> Iterator[Victim]:
        """Those that are left, in order."""
        for _, victim in sorted((each for queue in self._by_amounts.values() for each in queue), key=_place):
            yield victim

    def take(self, over: Sequence[Excess]) -> Victim | None:
        """Take out who goes next: of those with some of the worst resource the smallest that ends it, else the largest.

        If none has any of it, the next resource decides; ``None`` if none has any of what is too much.

        Args:
            over: what the node has too much of, the worst first.
        """
        for excess in over:
            amounts = self._best(excess.level.column, excess.amount)
            if amounts is not None:
                queue = self._by_amounts[amounts]
                _, victim = queue.popleft()
                if not queue:
                    del self._by_amounts[amounts]
                return victim
        return None

    def _best(self, column: int, amount: int) -> Amounts | None:
        """The amounts that suit best, of equal ones those of the pod that comes first."""
        best: Amounts | None = None
        least: tuple[bool, int, int] | None = None
        for amounts, queue in self._by_amounts.items():
            has = amounts[column]
            if has <= 0:
                continue
            rank = (False, has, queue[0][0]) if has >= amount else (True, -has, queue[0][0])
            if least is None or rank < least:
                best, least = amounts, rank
        return best


def _place(each: tuple[int, Victim]) -> int:
    return each[0]
