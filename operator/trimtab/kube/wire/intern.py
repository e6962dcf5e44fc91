"""Sharing of equal values.

Pods of one template have equal specs, labels and owners; the nodes' names recur in every pod. Decoded naively each pod
would hold copies of its own: ten times the memory. An :class:`Interner` gives every value once.

Its tables must not grow for ever: templates come and go. Weak references would cost more per value than the value's
share of the table and would need a slot in every type; a walk over all pods would have to know who keeps pods. So
:meth:`Interner.prune` asks the reference counts: what nobody but the tables refers to is dropped. It runs when the
tables have doubled, which makes its cost per decoded object constant.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct

from trimtab.kube.objects import PodSpec

T = TypeVar("T")

_FLOOR: Final = 16_384
"""Entries below which pruning is not worth its while."""


class InternerStatistics(Struct, frozen=True):
    """How many values are shared: for metrics, tests and memory questions."""

    specs: int
    values: int
    strings: int
    prunes: int


class Interner:
    """Gives each distinct value once; belongs to one event loop or one read of a file (not thread-safe)."""

    __slots__ = ("_limit", "_prunes", "_specs", "_strings", "_values")

    def __init__(self) -> None:
        self._specs: dict[bytes, PodSpec] = {}
        self._values: dict[Any, Any] = {}
        self._strings: dict[str, str] = {}
        self._limit = _FLOOR
        self._prunes = 0

    def string(self, value: str) -> str:
        """Return the one copy of a string that recurs: a namespace, a node's name, a phase."""
        return self._strings.setdefault(value, value)

    def share(self, value: T) -> T:
        """Return the one copy of a hashable, immutable value."""
        return self._values.setdefault(value, value)  # type: ignore[no-any-return]

    def spec(self, key: bytes, make: Callable[[], PodSpec]) -> PodSpec:
        """Return the spec of a wire form, made only where the wire form is new.

        Args:
            key: what stands for the wire form, e.g. a digest of its bytes.
            make: projects the wire form. Two wire forms may project to equal specs (they differ in what is left out);
                these are the same object too, so that identity is equality.
        """
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = self.share(make())
        return spec

    def prune_if_grown(self) -> bool:
        """Prune where the tables have doubled since the last time; call it now and then while decoding."""
        if self._size() <= self._limit:
            return False
        self.prune()
        return True

    def prune(self) -> None:
        """Drop every value that nobody but these tables refers to."""
        while self._prune_once():
            pass  # a dropped spec was the last to refer to its containers, tolerations, …
        self._strings.clear()  # refilled by the next pods; a second copy of a short string is no loss
        self._limit = max(_FLOOR, 2 * self._size())
        self._prunes += 1

    def _size(self) -> int:
        return len(self._specs) + len(self._values) + len(self._strings)

    def _prune_once(self) -> int:
        keys = Counter(map(id, self._specs.values()))
        dead = {id(value) for value in self._values if sys.getrefcount(value) - keys[id(value)] <= _ALONE}
        if dead:
            self._specs = {key: spec for key, spec in self._specs.items() if id(spec) not in dead}
            self._values = {value: value for value in self._values if id(value) not in dead}
        return len(dead)

    def statistics(self) -> InternerStatistics:
        """How full the tables are."""
        return InternerStatistics(
            specs=len(self._specs), values=len(self._values), strings=len(self._strings), prunes=self._prunes
        )


def _references_of_a_lone_value() -> int:
    """What ``sys.getrefcount`` says, in a loop like the one above, of a value that only a table holds.

    Measured, for it depends on the interpreter's version.
    """
    table = {value: value for value in [("probe", str(object()))]}
    return next(iter({sys.getrefcount(value) for value in table}))


_ALONE: Final = _references_of_a_lone_value()
