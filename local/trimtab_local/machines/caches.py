"""The machine controller's caches, which include its own recent writes and can lag behind by a configured time.

Controllers of the Machine API and Cluster API read Machines and MachineSets from separate watches, and either watch may
lag behind the other. The annotations ``mark-lag`` and ``size-lag`` simulate this deterministically. The first list
after a start is visible at once, as in a new process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from trimtab.kube.clock import Clock
from trimtab.kube.watching.store import Store
from trimtab_local.machines.machine import LiveObject
from trimtab_local.machines.sets import DELETE_MACHINE, OLD_DELETE_MACHINE

UNSEEN_FOR: Final = 15.0
"""Seconds after which an object that the controller created, but that the watch never delivered, counts as deleted."""


class ObjectCache:
    """A cache of the objects of one kind.

    Attributes:
        store: the store that the watch updates.
    """

    def __init__(self, clock: Clock) -> None:
        self.store: Store[LiveObject] = Store(clock=clock)
        self._clock = clock
        self._written: dict[str, tuple[LiveObject, float]] = {}
        self._deleted: set[str] = set()
        self._by_owner: defaultdict[str, set[str]] = defaultdict(set)
        self.store.subscribe(self._seen)

    def get(self, key: str) -> LiveObject | None:
        """Return the latest known version of an object, from the watch or from a write of this controller."""
        seen = self.store.get(key)
        written = self._unseen(key)
        if written is None or (seen is not None and _version(seen) >= _version(written)):
            return seen
        return written

    def controlled_by(self, uid: str) -> Iterator[LiveObject]:
        """Yield the objects with this controller.

        An object counts as terminating as soon as its deletion was requested.
        """
        for key in tuple(self._by_owner.get(uid, ())):
            found = self.get(key)
            if found is None:
                continue
            if found.uid in self._deleted and not found.deleting:
                metadata = found.metadata | {"deletionTimestamp": "1970-01-01T00:00:00Z"}
                found = LiveObject(found.manifest | {"metadata": metadata})
            yield found

    def wrote(self, live: LiveObject) -> None:
        """Store a response of the API server until the watch delivers it."""
        self._written[live.key] = live, self._clock.monotonic()
        self._by_owner[live.controller.get("uid", "")].add(live.key)

    def deleted(self, live: LiveObject) -> None:
        """Record that the deletion of the object was requested."""
        self._deleted.add(live.uid)

    def _unseen(self, key: str) -> LiveObject | None:
        written, when = self._written.get(key, (None, 0.0))
        if written is not None and self._clock.monotonic() - when > UNSEEN_FOR:
            del self._written[key]
            return None
        return written

    def _seen(self, old: LiveObject | None, new: LiveObject | None) -> None:
        if new is not None:
            self._by_owner[new.controller.get("uid", "")].add(new.key)
            written = self._written.get(new.key)
            if written is not None and _version(new) >= _version(written[0]):
                del self._written[new.key]
        elif old is not None:
            self._by_owner[old.controller.get("uid", "")].discard(old.key)
            self._written.pop(old.key, None)
            self._deleted.discard(old.uid)


def _version(live: LiveObject) -> int:
    """Return the resource version as a number. Resource versions of one kind are ordered since Kubernetes 1.35."""
    return int(live.resource_version or 0)


MARKS: Final = (DELETE_MACHINE, OLD_DELETE_MACHINE)

V = TypeVar("V")


class LaggingField(Generic[V]):
    """Keeps the previous values of one field of each object, by UID.

    Args:
        clock: provides the times of the values.
        field: reads the field of an object.
    """

    def __init__(self, clock: Clock, field: Callable[[LiveObject], V]) -> None:
        self._clock = clock
        self._field = field
        self._history: dict[str, list[tuple[float, V]]] = {}

    def observe(self, old: LiveObject | None, new: LiveObject | None) -> None:
        """Process a watch event, as a :data:`~trimtab.kube.watching.store.Listener`."""
        if new is None:
            if old is not None:
                self._history.pop(old.uid, None)
            return
        history = self._history.setdefault(new.uid, [])
        value = self._field(new)
        if not history or history[-1][1] != value:
            history.append((self._clock.monotonic(), value))

    def visible(self, live: LiveObject, lag: float) -> tuple[V, float | None]:
        """Return the value of the field ``lag`` seconds ago, and the seconds until the next value becomes visible.

        The second value is ``None`` if there is no later one. An object that is younger than ``lag`` has its first
        value.
        """
        history = self._history.get(live.uid)
        if not history or lag <= 0:
            return self._field(live), None
        now = self._clock.monotonic()
        while len(history) > 1 and history[1][0] + lag <= now:
            del history[0]
        return history[0][1], history[1][0] + lag - now if len(history) > 1 else None


def marks_of(machine: LiveObject) -> dict[str, str]:
    """Return the annotations that request the deletion of a machine before others."""
    return {key: machine.annotations[key] for key in MARKS if key in machine.annotations}


def size_of(owner: LiveObject) -> tuple[int, int]:
    """Return the replicas and the generation of a MachineSet."""
    return int(owner.spec.get("replicas", 1)), int(owner.metadata.get("generation", 0))


def with_marks(machine: LiveObject, marks: dict[str, str]) -> LiveObject:
    """Return a copy of the machine with exactly these deletion annotations."""
    annotations = {key: text for key, text in machine.annotations.items() if key not in MARKS} | marks
    return LiveObject(machine.manifest | {"metadata": machine.metadata | {"annotations": annotations}})


def with_size(owner: LiveObject, size: tuple[int, int]) -> LiveObject:
    """Return a copy of the MachineSet with these replicas and this generation."""
    replicas, generation = size
    metadata = owner.metadata | {"generation": generation}
    return LiveObject(owner.manifest | {"metadata": metadata, "spec": owner.spec | {"replicas": replicas}})
