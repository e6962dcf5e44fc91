"""A reporter of the taint manager that stores the reports."""

from __future__ import annotations

from msgspec import Struct

from trimtab.api.taint_manager import TaintManagerSpec, TaintManagerStatus
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.due_pods import DuePodReport
from trimtab.tainting.lifecycle.planner import TaintChange
from trimtab.tainting.report import Reporter


class NodeEvent(Struct, frozen=True):
    """An event on a node."""

    name: str
    uid: str
    reason: str
    note: str
    warning: bool


class FakeTaintReporter(Reporter):
    """A :class:`~trimtab.tainting.report.Reporter` for tests.

    Attributes:
        set: deadlines, with the one before.
        dropped: deadlines, and whether the pod pod_kept.
        outcomes: what came of pods.
        taints: changes of taints, with the node's uid.
        nodes: other events on nodes.
        status: as last reported.
        spec: as last configured.
    """

    def __init__(self) -> None:
        self.set: list[tuple[Deadline, Deadline | None]] = []
        self.dropped: list[tuple[Deadline, bool]] = []
        self.outcomes: list[DuePodReport] = []
        self.taints: list[tuple[TaintChange, str]] = []
        self.nodes: list[NodeEvent] = []
        self.status = TaintManagerStatus()
        self.spec: TaintManagerSpec | None = None

    def configure(self, spec: TaintManagerSpec, *, uid: str) -> None:
        """See the superclass."""
        self.spec = spec

    def deadline_set(self, deadline: Deadline, *, before: Deadline | None = None) -> None:
        """See the superclass."""
        self.set.append((deadline, before))

    def deadline_cancelled(self, deadline: Deadline, *, pod_kept: bool) -> None:
        """See the superclass."""
        self.dropped.append((deadline, pod_kept))

    def due_pod_outcome(self, report: DuePodReport) -> None:
        """See the superclass."""
        self.outcomes.append(report)

    def taint_changed(self, change: TaintChange, *, uid: str) -> None:
        """See the superclass."""
        self.taints.append((change, uid))

    def node_event(self, name: str, *, uid: str, reason: str, note: str, warning: bool = False) -> None:
        """See the superclass."""
        self.nodes.append(NodeEvent(name, uid, reason, note, warning))

    def observe(self, status: TaintManagerStatus) -> None:
        """See the superclass."""
        self.status = status
