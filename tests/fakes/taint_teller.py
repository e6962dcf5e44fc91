"""A teller of the taint manager that remembers what it was told."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import ZoneStatus
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.outcome import Ended


class ToldOfNode(Struct, frozen=True):
    """An event on a node."""

    name: str
    uid: str
    reason: str
    note: str
    warning: bool


class FakeTeller:
    """A :class:`~trimtab.tainting.report.Teller` for tests.

    Attributes:
        set: deadlines, with the one before.
        dropped: deadlines, and whether the pod stays.
        outcomes: what came of pods.
        taints: changes of taints, with the node's uid.
        nodes: what else was told of nodes.
        stuck_nodes: terminating pods by node, those with none left out.
        last_zones: as last told.
        spec: as last configured.
    """

    def __init__(self) -> None:
        self.set: list[tuple[Deadline, Deadline | None]] = []
        self.dropped: list[tuple[Deadline, bool]] = []
        self.outcomes: list[Ended] = []
        self.taints: list[tuple[TaintChange, str]] = []
        self.nodes: list[ToldOfNode] = []
        self.stuck_nodes: dict[str, int] = {}
        self.last_zones: tuple[ZoneStatus, ...] = ()
        self.spec: TaintManagerSpec | None = None

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """See the protocol."""
        self.spec = spec

    def deadline_set(self, deadline: Deadline, *, before: Deadline | None = None) -> None:
        """See the protocol."""
        self.set.append((deadline, before))

    def deadline_dropped(self, deadline: Deadline, *, stays: bool) -> None:
        """See the protocol."""
        self.dropped.append((deadline, stays))

    def ended(self, ended: Ended) -> None:
        """See the protocol."""
        self.outcomes.append(ended)

    def taint_changed(self, change: TaintChange, *, uid: str) -> None:
        """See the protocol."""
        self.taints.append((change, uid))

    def node(self, name: str, *, uid: str, reason: str, note: str, warning: bool = False) -> None:
        """See the protocol."""
        self.nodes.append(ToldOfNode(name, uid, reason, note, warning))

    def stuck(self, node: str, *, uid: str, terminating: int, note: str) -> None:
        """See the protocol."""
        if terminating:
            self.stuck_nodes[node] = terminating
        else:
            self.stuck_nodes.pop(node, None)

    def zones(self, zones: Iterable[ZoneStatus]) -> None:
        """See the protocol."""
        self.last_zones = tuple(zones)
