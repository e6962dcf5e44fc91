"""Which nodes each group has: those that are in the picture, and those that are on their way into it or out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trimtab.autoscaling.external.kwok.templates import GROUP, provider_id
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node

LATE: Final = 60.0
"""Seconds after which a node that was made and is not in the picture is taken for gone; else it comes in one."""


class Ledger:
    """The size of a group is the number of its nodes, so it needs no record and survives every restart.

    The picture lags behind what has just been done, by a moment. Until it has caught up, nodes that were made count
    though it lacks them, and nodes that were deleted do not though it has them; else the same would be done twice.

    Args:
        snapshot: the cluster at present.
        monotonic: seconds.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], *, monotonic: Callable[[], float]) -> None:
        self._snapshot = snapshot
        self._monotonic = monotonic
        self._made: dict[str, tuple[str, float]] = {}
        self._deleted: set[str] = set()

    def made(self, group: str, name: str) -> None:
        """A node was created."""
        self._made[name] = (group, self._monotonic())

    def deleted(self, uid: str) -> None:
        """A node was deleted."""
        self._deleted.add(uid)

    def nodes(self) -> Mapping[str, dict[str, Node | None]]:
        """The nodes of each group by name; ``None`` for those that are not in the picture yet."""
        nodes = self._snapshot().nodes
        found: dict[str, dict[str, Node | None]] = {}
        uids = set()
        for slot in nodes.order().tolist():
            node = nodes.node(slot)
            uids.add(node.uid)
            group = node.annotations.get(GROUP, "")
            if group and node.provider_id == provider_id(node.name) and node.uid not in self._deleted:
                found.setdefault(group, {})[node.name] = node
        self._deleted &= uids
        late = self._monotonic() - LATE
        self._made = {
            name: (group, since)
            for name, (group, since) in self._made.items()
            if since > late and name not in nodes.slot_of
        }
        for name, (group, _) in self._made.items():
            found.setdefault(group, {})[name] = None
        return found
