"""How fast pods go because of user taints: in all, of a zone, of a namespace. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.api.taint_manager import UserTaintRates

NEVER: Final = float("-inf")

CATCH_UP: Final = 0.1
"""Seconds of a rate that may be made up for after the loop was late; a pause is never made up for."""

_TIDY_FROM: Final = 1024


class Paid(Struct, frozen=True, gc=False):
    """What a pod's turn took of the rates: of each limit the time from which on the next one may go."""

    zone: str
    namespace: str
    times: tuple[float, float, float]


class Limit:
    """One rate, by key: a bucket that holds one, told as the time from which on the next may go.

    In any time of ``T`` seconds at most ``rate * (T + CATCH_UP) + 1`` go of a key.

    Args:
        rate: a second; ``None`` for no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._step = 0.0 if rate is None else 1.0 / rate
        self._next: dict[str, float] = {}
        self._tidy_at = _TIDY_FROM

    def at(self, key: str) -> float:
        """From when on the next may go."""
        return self._next.get(key, NEVER)

    def take(self, key: str, now: float) -> float:
        """Let one go; from when on the next may."""
        if self.rate is None:
            return NEVER
        after = max(self._next.get(key, NEVER), now - CATCH_UP) + self._step
        self._next[key] = after
        if len(self._next) >= self._tidy_at:
            self._next = {each: at for each, at in self._next.items() if at > now - CATCH_UP}
            self._tidy_at = max(_TIDY_FROM, 2 * len(self._next))
        return after

    def give_back(self, key: str, after: float) -> None:
        """Undo a :meth:`take` that returned this; where another was let go since then its turn is lost."""
        if self._next.get(key) == after != NEVER:
            self._next[key] = after - self._step


class Rates:
    """The three limits together; times are of a monotonic clock, in seconds.

    Args:
        spec: of the TaintManager.
    """

    def __init__(self, spec: UserTaintRates) -> None:
        self.spec = spec
        self._total = Limit(spec.total)
        self._zone = Limit(spec.per_zone)
        self._namespace = Limit(spec.per_namespace)

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.spec != UserTaintRates()

    @property
    def total_at(self) -> float:
        """From when on the next pod may go, whosever it is."""
        return self._total.at("")

    def at(self, zone: str, namespace: str) -> float:
        """From when on the next pod of a zone and namespace may go."""
        return max(self.total_at, self._zone.at(zone), self._namespace.at(namespace))

    def take(self, zone: str, namespace: str, now: float) -> Paid:
        """Let a pod go."""
        times = self._total.take("", now), self._zone.take(zone, now), self._namespace.take(namespace, now)
        return Paid(zone, namespace, times)

    def give_back(self, paid: Paid) -> None:
        """The pod did not go after all."""
        total, zone, namespace = paid.times
        self._total.give_back("", total)
        self._zone.give_back(paid.zone, zone)
        self._namespace.give_back(paid.namespace, namespace)
