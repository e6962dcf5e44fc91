"""PassReport: everything that a pass knows when it ends, and the one value from which all that is told is made.

Status, events, metrics and the ConfigMap read nothing else, so that they say the same, and so that each is a pure
function of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from trimtab.api.plan import Plan, ScaleUp
from trimtab.autoscaling.actuation.removal import RemovalOutcome, RemovalState
from trimtab.autoscaling.groups import Groups, Problem
from trimtab.autoscaling.memory.findings import Finding
from trimtab.autoscaling.memory.health import Health
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import State
from trimtab.autoscaling.providers import Scaled

Mode = Literal["Act", "Simulate"]


class Grown(Struct, frozen=True):
    """What became of asking a group for nodes.

    Attributes:
        action: as it was planned; its pods are those that waited.
        scaled: what the provider says.
        at: when the provider was asked, in seconds since the epoch.
    """

    action: ScaleUp
    scaled: Scaled
    at: float


class Waiting(Struct, frozen=True, gc=False):
    """A pod that waits for a node.

    Attributes:
        uid: of the pod, so that events on it are found beside it.
        since: when the scheduler first said that it finds no node (its condition's transition), in seconds since the
            epoch; ``None`` where it has not.
    """

    uid: str
    since: float | None = None


class Totals(Struct, frozen=True):
    """What the whole cluster has, those of no group included, as limits count it.

    Attributes:
        nodes: how many.
        cores: whole cores.
        memory_gib: whole GiB.
    """

    nodes: int = 0
    cores: int = 0
    memory_gib: int = 0


class PassReport(Struct, frozen=True):
    """What one pass saw, planned and did.

    Attributes:
        started: seconds since the epoch; also the plan's ``now``.
        finished: seconds since the epoch.
        mode: whether what was planned is done.
        generation: of the ClusterAutoscaler that the pass went by.
        plan: what was planned, and what was kept and why.
        groups: as they were when the pass began.
        readiness: of every node, by name.
        memory: what is remembered after the pass.
        totals: what the cluster has.
        waiting: pods without a node, ``namespace/name``, those that are no reason for nodes included.
        grown: what became of asking for nodes, since the last report.
        going: removals that go on, by node.
        ended: removals that ended since the last report.
        corrected: what became of lowering targets, since the last report.
        health: of the cluster and the groups.
        told: what was learned of groups in this pass: nodes that did not come, machines that failed.
        cleaned: nodes from which leftovers of an earlier process were taken (taints, cordons), with their UIDs.
        problems: what is wrong with objects that the autoscaler reads, beside those of the groups.
        error: what ended the pass early, in words; empty where nothing did.
        phases: how many seconds each part of the pass took: observe, plan, act.
        uid: of the ClusterAutoscaler, so that events on it are found beside it.
    """

    started: float
    finished: float
    mode: Mode
    generation: int
    plan: Plan
    groups: Groups
    memory: State
    readiness: Mapping[str, Readiness] = {}
    totals: Totals = Totals()
    waiting: Mapping[str, Waiting] = {}
    grown: Sequence[Grown] = ()
    going: Mapping[str, RemovalState] = {}
    ended: Sequence[RemovalOutcome] = ()
    corrected: Sequence[Scaled] = ()
    health: Health = Health()
    told: Sequence[Finding] = ()
    cleaned: Mapping[str, str] = {}
    problems: Sequence[Problem] = ()
    error: str = ""
    phases: Mapping[str, float] = {}
    uid: str = ""
