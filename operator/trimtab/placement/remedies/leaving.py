"""Which pods are being deleted, per node, kept from one explanation to the next."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from trimtab.cluster.snapshot import Snapshot


class Leaving:
    """The pods on nodes that are being deleted; only nodes whose pods changed are read again.

    Attributes:
        on: keys of pods, ``namespace/name``, by the slot of their node; slots without any are left out.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.on: dict[int, tuple[str, ...]] = {}
        self._epoch = -1
        self._seen = 0
        self.refresh(snapshot)

    def refresh(self, snapshot: Snapshot) -> None:
        """Read what changed since the last time; the table of nodes logs it."""
        nodes = snapshot.nodes
        if self._epoch == nodes.epoch:
            slots = set(nodes.touched[self._seen :])
        else:  # all: by pods, as that is one pass
            self.on.clear()
            leaving = [pod for pod in snapshot.pods.values() if pod.deleted is not None]
            slots = {slot for pod in leaving if (slot := snapshot.slot(pod)) is not None}
        for slot in slots:
            self._read(snapshot, slot)
        self._epoch, self._seen = nodes.epoch, len(nodes.touched)

    def _read(self, snapshot: Snapshot, slot: int) -> None:
        node = snapshot.nodes.at[slot]
        pods = [] if node is None else snapshot.pods_on(node.name)
        keys = tuple(pod.key for pod in pods if pod.deleted is not None and not pod.terminal)
        if keys:
            self.on[slot] = keys
        else:
            self.on.pop(slot, None)


_KEPT: Final[WeakKeyDictionary[Snapshot, Leaving]] = WeakKeyDictionary()


def leaving_of(snapshot: Snapshot) -> dict[int, tuple[str, ...]]:
    """The pods that are being deleted, by slot, as the snapshot is now; only to read, and until it changes."""
    found = _KEPT.get(snapshot)
    if found is None:
        found = _KEPT[snapshot] = Leaving(snapshot)
    else:
        found.refresh(snapshot)
    return found.on
