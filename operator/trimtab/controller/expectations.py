"""The writes of a controller that its watch does not show yet, like the expectations of Kubernetes' controllers.

    written: Expectations[Node, str] = Expectations(lister.node, clock, timeout=30.0)
    written.expect("n1", node.uid, "cordoned", shown_by=lambda node: node.unschedulable)
    written.pending("n1")  # the write, until the watch shows it or 30 seconds have passed

While a write is pending, a controller that plans from its caches would plan it again. The timeout covers writes that no
watch ever shows: a proxy in front of a starting API server may answer every request with 404.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from trimtab.kube.clock import Clock


class _Object(Protocol):
    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=_Object)
V = TypeVar("V")


class ExpectedWrite(Struct, Generic[T, V], frozen=True):
    """A write that the watch must show.

    Attributes:
        uid: UID of the object. The write is void if the object is deleted, or replaced by one with the same name.
        value: what was written, in the form that the controller needs.
        shown_by: returns whether a version of the object from the watch shows the write.
        until: the time on the monotonic clock from which the controller must not rely on the write any more.
    """

    uid: str
    value: V
    shown_by: Callable[[T], bool]
    until: float


class Expectations(Generic[T, V]):
    """The writes that the watch does not show yet, one for each object.

    A write is kept until :meth:`pending` or :meth:`prune` finds that the watch shows it, or that the object was deleted
    or replaced. A controller that does not ask for each key again calls :meth:`prune` from time to time.

    Args:
        cached: returns the version of an object that the watch delivered last, by key; ``None`` if it does not exist.
        clock: provides the time.
        timeout: seconds within which the watch must show a write.
    """

    def __init__(self, cached: Callable[[str], T | None], clock: Clock, *, timeout: float = math.inf) -> None:
        self._cached = cached
        self._clock = clock
        self._timeout = timeout
        self._writes: dict[str, ExpectedWrite[T, V]] = {}

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys of the expected writes, including those whose timeout has passed."""
        return iter(tuple(self._writes))

    def expect(self, key: str, uid: str, value: V, *, shown_by: Callable[[T], bool]) -> None:
        """Expect a write. It replaces an earlier write to the same object."""
        self._writes[key] = ExpectedWrite(uid, value, shown_by, self._clock.monotonic() + self._timeout)

    def pending(self, key: str) -> ExpectedWrite[T, V] | None:
        """Return the write to an object; ``None`` if there is none, the watch shows it, or its timeout has passed."""
        write = self._writes.get(key)
        if write is None:
            return None
        current = self._cached(key)
        if current is None or current.uid != write.uid or write.shown_by(current):
            del self._writes[key]
            return None
        return write if self._clock.monotonic() < write.until else None

    def forget(self, key: str) -> None:
        """Expect no write to an object any more, for example because it failed."""
        self._writes.pop(key, None)

    def prune(self) -> None:
        """Drop the writes that the watch shows, and those to objects that were deleted or replaced."""
        for key in self:
            self.pending(key)
