"""A teller of the taint manager that remembers what it was told."""

from __future__ import annotations

from msgspec import Struct

from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import TaintManagerStatus
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
        status: as last told.
        spec: as last configured.
    """

    def __init__(self) -> None:
        self.set: list[tuple[Deadline, Deadline | None]] = []
        self.dropped: list[tuple[Deadline, bool]] = []
        self.outcomes: list[Ended] = []
        self.taints: list[tuple[TaintChange, str]] = []
        self.nodes: list[ToldOfNode] = []
        self.status = TaintManagerStatus()
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

    def observe(self, status: TaintManagerStatus) -> None:
        """See the protocol."""
        self.status = status
