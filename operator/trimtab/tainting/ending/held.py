"""Pods whose time is over and that a rate holds back: the first due first, of those that may go. Pure.

Pods of one zone and namespace stand in one line, since the rates treat them alike. Only the heads of lines are looked
at, and a line that may not go yet is not looked at again before it may: 7,200 pods that wait cost nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import TypeAlias

from trimtab.tainting.ending.rates import Paid, Rates

Line: TypeAlias = tuple[str, str]
"""A zone and a namespace."""


class HeldBack:
    """Who waits for the rates. Times of rates are a monotonic clock's, ``due`` is only compared with others.

    Args:
        rates: how fast pods go.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._number = 0
        self._entries: dict[str, tuple[float, int, Line]] = {}
        self._lines: dict[Line, list[tuple[float, int, str]]] = {}
        self._open: list[tuple[float, Line]] = []
        self._shut: list[tuple[float, Line]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    @property
    def next_at(self) -> float | None:
        """When it is worth while to take again; ``None`` while nobody waits."""
        if not self._entries:
            return None
        if self._open or not self._shut:
            return self._rates.total_at
        return max(self._rates.total_at, self._shut[0][0])

    def add(self, key: str, *, due: float, zone: str, namespace: str) -> None:
        """Put a pod into its line; one that stands there already keeps no two places."""
        self._number += 1
        line = (zone, namespace)
        self._entries[key] = (due, self._number, line)
        if line not in self._lines:
            self._lines[line] = []
            heapq.heappush(self._open, (due, line))
        heapq.heappush(self._lines[line], (due, self._number, key))

    def drop(self, key: str) -> None:
        """Take a pod out of its line."""
        self._entries.pop(key, None)

    def take(self, now: float, *, limit: int) -> list[tuple[str, Paid]]:
        """Let those go that may, at most so many, with what that took of the rates."""
        taken: list[tuple[str, Paid]] = []
        self._reopen(now)
        while self._open and len(taken) < limit and self._rates.total_at <= now:
            due, line = heapq.heappop(self._open)
            head = self._head(line)
            if head is None:
                del self._lines[line]
            elif (at := self._rates.at(*line)) > now:
                heapq.heappush(self._shut, (at, line))
            else:
                if head[0] <= due:  # else the head has gone, and another line may come first
                    heapq.heappop(self._lines[line])
                    del self._entries[head[2]]
                    taken.append((head[2], self._rates.take(*line, now)))
                    head = self._head(line) or head
                heapq.heappush(self._open, (head[0], line))
        return taken

    def regulate(self, rates: Rates) -> None:
        """Go by other rates from now on; those that wait keep their places."""
        self._rates = rates
        self._open += ((0.0, line) for _, line in self._shut)
        self._shut.clear()
        heapq.heapify(self._open)

    def clear(self) -> Iterable[str]:
        """Take everybody out; their keys, the first due first."""
        keys = [key for key, _ in sorted(self._entries.items(), key=lambda item: item[1][:2])]
        self._entries.clear()
        self._lines.clear()
        self._open.clear()
        self._shut.clear()
        return keys

    def _reopen(self, now: float) -> None:
        while self._shut and self._shut[0][0] <= now:
            _, line = heapq.heappop(self._shut)
            head = self._head(line)
            if head is None:
                del self._lines[line]
            else:
                heapq.heappush(self._open, (head[0], line))

    def _head(self, line: Line) -> tuple[float, int, str] | None:
        """The first of a line that still waits; ``None`` for an empty line."""
        waiting = self._lines[line]
        while waiting:
            _, number, key = waiting[0]
            if self._entries.get(key, (0.0, 0, line))[1] == number:
                return waiting[0]
            heapq.heappop(waiting)
        return None
