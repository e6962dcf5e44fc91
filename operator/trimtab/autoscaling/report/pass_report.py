"""PassReport: everything that a pass knows when it ends, and the one value from which all that is told is made.

Status, events, metrics and the ConfigMap read nothing else, so that they say the same, and so that each is a pure
function of it. What other rooms own (the memory, drains that go on) is named here by what is read of it only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal, Protocol

from msgspec import Struct

from trimtab.api.plan import Plan, ScaleUp
from trimtab.autoscaling.groups import Groups, Problem
from trimtab.autoscaling.providers import Scaled

Mode = Literal["Act", "Simulate"]


class Readiness(StrEnum):
    """What a node is, as far as capacity goes."""

    READY = "Ready"
    UNREADY = "Unready"
    """It is there and its Ready condition does not say True."""
    STARTING = "Starting"
    """It is there and not usable yet: young, or with a startup taint. It counts as on its way."""
    GOING = "Going"
    """It is being deleted, or has the taint of those that are."""


class Trouble(Protocol):
    """What last went wrong with a group, as the memory keeps it."""

    @property
    def time(self) -> float:
        """When: seconds since the epoch."""
        ...

    @property
    def reason(self) -> str:
        """A code of :mod:`trimtab.api.reasons`, or that of the machine's API."""
        ...

    @property
    def message(self) -> str:
        """The same in words."""
        ...


class GroupMemory(Protocol):
    """What is remembered of a group."""

    @property
    def failures(self) -> int:
        """How often in a row adding nodes failed."""
        ...

    @property
    def backoff_until(self) -> float | None:
        """Until when nothing is added, in seconds since the epoch."""
        ...

    @property
    def last_error(self) -> Trouble | None:
        """What last went wrong."""
        ...


class OpenScaleUp(Protocol):
    """Nodes that were asked for and are not all there."""

    @property
    def from_(self) -> int:
        """The size before."""
        ...

    @property
    def to(self) -> int:
        """The size that was asked for."""
        ...

    @property
    def since(self) -> float:
        """When they were asked for: seconds since the epoch."""
        ...

    @property
    def deadline(self) -> float:
        """When they are given up: seconds since the epoch."""
        ...


class Memory(Protocol):
    """What the autoscaler remembers from pass to pass, and reads back from the status after a restart."""

    @property
    def groups(self) -> Mapping[str, GroupMemory]:
        """By the groups' ids; a group of which nothing is remembered is not in it."""
        ...

    @property
    def open(self) -> Mapping[str, OpenScaleUp]:
        """By the groups' ids."""
        ...

    @property
    def unneeded(self) -> Mapping[str, float]:
        """Since when nodes are unneeded, by name, in seconds since the epoch."""
        ...

    @property
    def last_scale_up(self) -> float | None:
        """When nodes were last asked for."""
        ...

    @property
    def last_scale_down(self) -> float | None:
        """When a node was last removed."""
        ...

    @property
    def last_scale_down_failure(self) -> float | None:
        """When removing a node last failed."""
        ...


class Going(Protocol):
    """A removal that goes on: what is told of it."""

    @property
    def node(self) -> str:
        """The node's name."""
        ...

    @property
    def phase(self) -> str:
        """How far it is, one word."""
        ...


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


class Removed(Struct, frozen=True):
    """How a removal ended.

    Attributes:
        node: its name.
        uid: of the node.
        group: the id of its group.
        reason: why it was to go: Underutilized, Empty or Unready.
        failure: why it did not: a code of :mod:`trimtab.api.reasons`; empty where it went.
        message: in words.
        at: when it ended, in seconds since the epoch.
        seconds: how long it took from the taint on.
        evicted: the pods that were evicted, ``namespace/name``, with their UIDs.
        refused: the pod that kept it, ``namespace/name``; empty where none did.
        refused_uid: of that pod.
        calls: requests that were sent.
    """

    node: str
    group: str
    reason: str
    at: float
    uid: str = ""
    failure: str = ""
    message: str = ""
    seconds: float = 0.0
    evicted: Mapping[str, str] = {}
    refused: str = ""
    refused_uid: str = ""
    calls: int = 0

    @property
    def done(self) -> bool:
        """Whether the node went."""
        return not self.failure


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


class Health(Struct, frozen=True):
    """Whether the cluster, and each group, is well enough to be scaled.

    Attributes:
        cluster: why the whole cluster is not, in words; empty where it is.
        groups: why a group is not, by its id; groups that are well are not in it.
    """

    cluster: str = ""
    groups: Mapping[str, str] = {}


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
        timed_out: what is said of scale-ups whose nodes did not come in time, by the groups' ids; since the last
            report.
        cleaned: nodes from which leftovers of an earlier process were taken (taints, cordons), with their UIDs.
        problems: what is wrong with objects that the autoscaler reads, beside those of the groups.
        error: what ended the pass early, in words; empty where nothing did.
        phases: how many seconds each part of planning took, by its name.
    """

    started: float
    finished: float
    mode: Mode
    generation: int
    plan: Plan
    groups: Groups
    memory: Memory
    readiness: Mapping[str, Readiness] = {}
    totals: Totals = Totals()
    waiting: Mapping[str, Waiting] = {}
    grown: Sequence[Grown] = ()
    going: Mapping[str, Going] = {}
    ended: Sequence[Removed] = ()
    corrected: Sequence[Scaled] = ()
    health: Health = Health()
    timed_out: Mapping[str, str] = {}
    cleaned: Mapping[str, str] = {}
    problems: Sequence[Problem] = ()
    error: str = ""
    phases: Mapping[str, float] = {}
