"""What the controller believes: what it watches, and what it has just written and not seen yet.

Without the second part it would decide twice on one state: after machines were made the watch needs a moment to show
them, and another look within that moment would make as many again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from trimtab.kube.clock import Clock
from trimtab.kube.watching.store import Store
from trimtab.local.machines.live import Live

UNSEEN_FOR: Final = 15.0
"""Seconds after which something of our own that the watch never showed is taken for gone."""


class Picture:
    """Objects of one kind.

    Attributes:
        store: what is watched.
    """

    def __init__(self, clock: Clock) -> None:
        self.store: Store[Live] = Store(clock=clock)
        self._clock = clock
        self._written: dict[str, tuple[Live, float]] = {}
        self._deleted: set[str] = set()
        self._by_owner: defaultdict[str, set[str]] = defaultdict(set)
        self.store.subscribe(self._seen)

    def get(self, key: str) -> Live | None:
        """An object as last seen or written, whichever is later."""
        seen = self.store.get(key)
        written = self._unseen(key)
        if written is None or (seen is not None and _version(seen) >= _version(written)):
            return seen
        return written

    def controlled_by(self, uid: str) -> Iterator[Live]:
        """The objects that have this controller. One whose deletion was asked for counts as being deleted at once."""
        for key in tuple(self._by_owner.get(uid, ())):
            found = self.get(key)
            if found is None:
                continue
            if found.uid in self._deleted and not found.deleting:
                metadata = found.metadata | {"deletionTimestamp": "1970-01-01T00:00:00Z"}
                found = Live(found.manifest | {"metadata": metadata})
            yield found

    def wrote(self, live: Live) -> None:
        """Remember an answer of the API server until the watch shows it."""
        self._written[live.key] = live, self._clock.monotonic()
        self._by_owner[live.controller.get("uid", "")].add(live.key)

    def deleted(self, live: Live) -> None:
        """Remember that the object's deletion was asked for."""
        self._deleted.add(live.uid)

    def _unseen(self, key: str) -> Live | None:
        written, when = self._written.get(key, (None, 0.0))
        if written is not None and self._clock.monotonic() - when > UNSEEN_FOR:
            del self._written[key]
            return None
        return written

    def _seen(self, old: Live | None, new: Live | None) -> None:
        if new is not None:
            self._by_owner[new.controller.get("uid", "")].add(new.key)
            written = self._written.get(new.key)
            if written is not None and _version(new) >= _version(written[0]):
                del self._written[new.key]
        elif old is not None:
            self._by_owner[old.controller.get("uid", "")].discard(old.key)
            self._written.pop(old.key, None)
            self._deleted.discard(old.uid)


def _version(live: Live) -> int:
    """Resource versions of one kind are ordered since Kubernetes 1.35, and always were with etcd below."""
    return int(live.resource_version or 0)
