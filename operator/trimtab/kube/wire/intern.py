"""Interns values, so that objects share one copy of identical values.

Pods of one template have identical specs, labels and owners, and many pods contain the same node names. With separate
copies for each pod, the caches would need ten times the memory. An :class:`Interner` stores one copy of each value.

Unused values must be removed, because templates are replaced over time. Weak references would cost more memory than the
table entries and need a slot in every type, and scanning all pods would require knowing every place that keeps pods. So
:meth:`Interner.prune` uses reference counts: it drops values that only the tables refer to. It runs when the tables
have doubled in size, so its cost per decoded object is constant.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.objects import Pod, PodSpec
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits

T = TypeVar("T")

_MIN_PRUNE_SIZE: Final = 16_384
"""Minimum number of entries at which the tables are pruned."""

_STEP: Final = 1_000
"""Number of values that one step of pruning checks, which takes a fraction of a millisecond."""


class LookupTable(Protocol):
    """A cache with references to interned values."""

    def clear(self) -> None:
        """Drop all entries."""
        ...


class InternerStatistics(Struct, frozen=True):
    """The sizes of the tables, and the number of times that they were pruned."""

    specs: int
    values: int
    strings: int
    prunes: int


class Interner:
    """Stores one copy of each distinct value. It is not thread-safe, so use one for each event loop or file.

    Args:
        limits: the complexity limits, which decoders read from the interner.
    """

    __slots__ = ("_limit", "_prunes", "_pruning", "_specs", "_strings", "_tables", "_values", "limits")

    def __init__(self, limits: ComplexityLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._specs: dict[bytes, PodSpec] = {}
        self._values: dict[Any, Any] = {}
        self._strings: dict[str, str] = {}
        self._limit = _MIN_PRUNE_SIZE
        self._prunes = 0
        self._tables: WeakSet[LookupTable] = WeakSet()
        self._pruning = False

    def string(self, value: str) -> str:
        """Return the shared copy of a string such as a namespace, a node name or a phase."""
        return self._strings.setdefault(value, value)

    def share(self, value: T) -> T:
        """Return the shared copy of a hashable, immutable value."""
        return self._values.setdefault(value, value)  # type: ignore[no-any-return]

    def spec(self, key: bytes, make: Callable[[], PodSpec]) -> PodSpec:
        """Return the shared spec for an encoded form. The form is projected only if it is new.

        Args:
            key: identifies the encoded form, for example a digest of its bytes.
            make: projects the encoded form. Two forms that differ only in omitted fields project to equal specs. The
                interner then returns the same object for both, so that specs can be compared by identity.
        """
        spec = self._specs.get(key)
        if spec is None:
            spec = self._specs[key] = self.share(make())
        return spec

    @property
    def has_doubled(self) -> bool:
        """Return whether the tables have doubled in size since they were last pruned.

        Callers check this while they decode many objects, and then prune.
        """
        return self._size() > self._limit and not self._pruning

    def add_table(self, table: LookupTable) -> None:
        """Register a cache that must be cleared before each pruning.

        The registration ends when the cache is garbage-collected.
        """
        self._tables.add(table)

    def prune_if_grown(self) -> bool:
        """Prune if the tables have doubled in size, and return whether they were pruned."""
        if not self.has_doubled:
            return False
        self.prune()
        return True

    def prune(self) -> None:
        """Drop every value that only these tables refer to."""
        for _ in self.pruning():
            pass

    def pruning(self) -> Iterator[None]:
        """Return an iterator that prunes in small steps. Other tasks may run and intern values between two steps."""
        if self._pruning:
            return
        self._pruning = True
        for table in [*self._tables]:
            table.clear()
        try:
            self._strings.clear()  # refilled by the next pods; second copies of short strings are acceptable
            while (yield from self._prune_once()):
                pass  # after a spec is dropped, its containers, tolerations, … may be unused, too
            self._values, self._specs = dict(self._values), dict(self._specs)  # a dictionary never shrinks by itself
            self._limit = max(_MIN_PRUNE_SIZE, 2 * self._size())
            self._prunes += 1
        finally:
            self._pruning = False

    def _size(self) -> int:
        return len(self._specs) + len(self._values) + len(self._strings)

    def _prune_once(self) -> Generator[None, None, int]:
        keys_of: dict[int, list[bytes]] = {}
        for key in self._specs:  # no variable may refer to a spec
            keys_of.setdefault(id(self._specs[key]), []).append(key)
        yield
        values, dropped = list(self._values), 0
        while values:
            value = values.pop()
            keys = keys_of.get(id(value), ())
            if sys.getrefcount(value) - len(keys) <= _UNSHARED_REFERENCES:
                del self._values[value]
                for key in keys:
                    del self._specs[key]
                dropped += 1
            if len(values) % _STEP == 0:
                yield
        return dropped

    def statistics(self) -> InternerStatistics:
        """Return the sizes of the tables."""
        return InternerStatistics(
            specs=len(self._specs), values=len(self._values), strings=len(self._strings), prunes=self._prunes
        )


def share_pod(pod: Pod, interner: Interner) -> Pod:
    """Intern the spec, labels and owners of a pod that another interner decoded."""
    share = interner.share
    return replace(pod, spec=share(pod.spec), labels=share(pod.labels), owners=share(pod.owners))


def _reference_count_of_unshared_value() -> int:
    """Measure ``sys.getrefcount`` of a value that only a table refers to.

    The result depends on the Python version.
    """
    table = {value: value for value in [("probe", str(object()))]}
    values = list(table)
    value = values.pop()
    return sys.getrefcount(value)


_UNSHARED_REFERENCES: Final = _reference_count_of_unshared_value()
