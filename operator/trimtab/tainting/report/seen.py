"""What the taint manager's status, conditions and gauges are made from: one value a look."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from trimtab.api.taint_manager import Mode
from trimtab.api.taint_manager_status import RefusedPod, StuckNode, ZoneStatus
from trimtab.tainting.deadlines import Deadline


class Seen(Struct, frozen=True, kw_only=True):
    """How things are at one moment.

    Attributes:
        now: seconds since the epoch.
        mode: of the spec.
        generation: of the spec.
        looked: whether all nodes and pods have been seen since the start.
        stale: what keeps the picture from being acted on, for longer than a watch takes to be renewed; ``""`` for
            nothing.
        deadlines: of all pods, in any order, e.g. the values of
            :attr:`~trimtab.tainting.deadlines.DeadlineBook.deadlines`.
        tainted_nodes: nodes with a NoExecute taint.
        waiting: pods whose time is over and that have not gone, as :class:`~trimtab.tainting.ending.Ending` has them.
        held: those of them that a rate of user taints holds back.
        refused: those of them that somebody does not let go, the longest due first.
        stuck: dead nodes on which pods are terminating.
        deleted: pods that this process deleted.
        evicted: pods that it evicted.
        nodes_tainted: NoExecute taints that it put on nodes.
        zones: as the node lifecycle last saw them; empty in other modes than Own.
        problem: what keeps the node lifecycle from going on; ``""`` for nothing.
        failed: which loops have failed of a defect and are about to begin anew, with their errors; ``""`` for none.
        missing_rights: what the mode needs and this process may not do, in words.
    """

    now: float
    mode: Mode
    generation: int
    looked: bool = True
    stale: str = ""
    deadlines: Collection[Deadline] = ()
    tainted_nodes: int = 0
    waiting: int = 0
    held: int = 0
    refused: tuple[RefusedPod, ...] = ()
    stuck: tuple[StuckNode, ...] = ()
    deleted: int = 0
    evicted: int = 0
    nodes_tainted: int = 0
    zones: tuple[ZoneStatus, ...] = ()
    problem: str = ""
    failed: str = ""
    missing_rights: tuple[str, ...] = ()
