"""GroupMemory: one group from one pass to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.memory.backoff import clock, failed, settled
from trimtab.autoscaling.memory.census import booted, census
from trimtab.autoscaling.memory.findings import Finding
from trimtab.autoscaling.memory.increases import bounded, clamped, cut, shares, total, upto
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import MAX_BOOTS, MAX_TROUBLED, OpenScaleUp, State, Trouble
from trimtab.kube.objects import Node

UNSEEN: Final = 30.0
"""Seconds for which a target need not show what it was asked for: a picture may be older than the request."""
SLACK: Final = 60.0
"""Seconds by which clocks may differ, and a machine so seem older than the request that it is there for."""
_NAMED: Final = 3
_NAME: Final = 253


class GroupMemory:
    """What is remembered of one group while a pass looks at it; read its attributes after :meth:`advance`.

    Args:
        group: as it is in the snapshot.
        state: what was remembered.
        standing: what each node is, by name.
        now: seconds since the epoch.
        seconds: how long machines may take to become nodes.

    Attributes:
        record: what is remembered of the group.
        increases: what is still waited for.
        told: what is new.
        added: when nodes turned out to have been asked for; ``None`` where that is nothing new.
        upcoming: how many nodes are on their way, as far as that is still hoped.
        asked: what the target does not show yet, in words; empty where it shows all.
        hopeless: machines without a node that nobody waits for.
        shortfall: how much of the target has no machine and is not waited for.
    """

    def __init__(
        self, group: NodeGroup, state: State, standing: Mapping[str, Readiness], *, now: float, seconds: float
    ) -> None:
        self._group, self._now, self._seconds = group, now, seconds
        self.record = settled(state.record(group.id), now)
        self.increases = clamped(state.scale_ups.get(group.id, ()), now=now, seconds=seconds)
        self.told: list[Finding] = []
        self.added: float | None = None
        self.asked = ""
        self._believed = state.targets.get(group.id)
        if self.increases:
            self._believed = self.increases[-1].to
        self._census = census(group, standing, target=self._unseen())
        self.upcoming = 0
        self.hopeless: tuple[GroupMachine, ...] = ()
        self.shortfall = 0

    def advance(self, nodes: Mapping[str, Node]) -> None:
        """Go on to now."""
        there = {_name(machine) for machine in self._group.machines}
        self.record = replace(
            self.record,
            given_up=min(self.record.given_up, self._census.absent),
            troubled=tuple(name for name in self.record.troubled if name in there),
        )
        self._failed()
        self._edited()
        self.increases = upto(self.increases, self._census.target)
        self._close(nodes)
        self._late()
        self.increases = bounded(upto(self.increases, self._census.target))
        self._sum_up()

    def _unseen(self) -> int | None:
        """The target that the group was asked for a moment ago and does not show."""
        if not self.increases:
            return None
        last = self.increases[-1]
        if self._group.target > last.from_ or self._now - last.since >= UNSEEN:
            return None
        self.asked = f"it was asked for {_nodes(last.size)} at {clock(last.since)}, and does not show it yet"
        return last.to

    @property
    def _waited(self) -> int:
        """How many nodes are not ready that somebody waits for, as the group is now."""
        return max(0, self._census.lacking - self.record.given_up)

    def _failed(self) -> None:
        """Machines that failed since the last pass: nobody waits for them any more, and the group backs off at once."""
        new = self._new(self._census.failed)
        if not new:
            return
        first = new[0]
        why = f" ({first.reason})" if first.reason else ""
        text = f": {first.message}" if first.message else ""
        beside = f", and {len(new) - 1} more" if len(new) > 1 else ""
        message = f"machine {first.key} failed{why}{text}{beside}"
        self._fail(reasons.MACHINE_FAILED, message, len(new), code=first.reason)
        self.increases = cut(self.increases, min(len(new), max(0, total(self.increases) - self._waited)))

    def _edited(self) -> None:
        """A target that is not what it was: the new one is the truth, whoever set it."""
        target, believed = self._census.target, self._believed
        surplus = total(self.increases) - self._waited
        if believed is not None and target < believed and surplus > 0 and self.increases:
            dropped = min(believed - target, surplus)
            self._dropped(self.increases[-1], believed, dropped)
            self.increases = cut(self.increases, dropped)
        missing = self._census.absent - self.record.given_up - total(self.increases)
        if missing > 0:
            self._found(missing)

    def _dropped(self, last: OpenScaleUp, believed: int, number: int) -> None:
        """Say what became of nodes that nobody asks for any more; of a request in doubt it was said then."""
        if last.doubt:
            return
        target = self._census.target
        if target <= last.from_ and self._now - last.since < 2 * UNSEEN:
            # Never shown: its provider says yes and does nothing, or somebody takes back whatever is asked for.
            message = f"it was asked for {believed}, said yes, and its target is {target}"
            self._fail(reasons.TARGET_CHANGED, message, number)
            return
        message = f"the target is {target}, where it was {believed}: {_nodes(number)} fewer are waited for"
        self._tell(reasons.TARGET_CHANGED, message, number)

    def _found(self, number: int) -> None:
        """Nodes are missing that nobody here asked for."""
        target, believed, now = self._census.target, self._believed, self._now
        since = now
        if believed is None or target > believed:
            made = sorted(machine.since for machine in self._census.pending if machine.since is not None)
            others = made[total(self.increases) :]
            since = float(int(max((time for time in others if now - self._seconds < time <= now), default=now)))
            self.added = since
            if believed is not None and self.increases:
                message = f"the target is {target}, where it was {believed}: {_nodes(number)} more are waited for"
                self._tell(reasons.TARGET_CHANGED, message, number)
        increase = OpenScaleUp(max(0, target - number), target, since, since + self._seconds)
        self.increases = (*self.increases, increase)

    def _close(self, nodes: Mapping[str, Node]) -> None:
        """Increases whose nodes are all there; where some of these never became ready that is a failure."""
        left: list[OpenScaleUp] = []
        for each, share in zip(self.increases, shares(self.increases, self._waited), strict=True):
            if share:
                left.append(each)
                continue
            bad = self._new([machine for machine in self._census.unready if _since(machine, nodes, each.since)])
            if bad:
                names = _named([machine.node for machine in bad])
                message = f"{_nodes(len(bad))} of {each.size} joined and did not become ready in time: {names}"
                self._fail(reasons.NODE_NOT_STARTED, message, len(bad))
                continue
            seconds = booted(
                tuple(machine for machine in self._census.present if _since(machine, nodes, each.since)), nodes
            )
            if seconds:
                self.record = replace(self.record, boots=(*self.record.boots, max(seconds))[-MAX_BOOTS:])
            self._tell(
                reasons.SCALE_UP_COMPLETED,
                f"{_nodes(each.size)} asked for at {clock(each.since)} joined within {self._now - each.since:g}s",
                each.size,
            )
        self.increases = tuple(left)

    def _late(self) -> None:
        """Nodes whose deadline is over: nobody waits for them any more. Those that have joined may still start."""
        absent = max(0, self._census.absent - self.record.given_up)
        left: list[OpenScaleUp] = []
        for each, share, missing in zip(
            self.increases,
            shares(self.increases, self._waited),
            shares(self.increases, absent),
            strict=True,
        ):
            if not missing or self._now < each.deadline:
                left.append(each)
                continue
            message = (
                f"{missing} of {_nodes(each.size)} asked for at {clock(each.since)} did not come until "
                f"{clock(each.deadline)}"
            )
            self._fail(reasons.SCALE_UP_TIMED_OUT, message, missing)
            self.record = replace(self.record, given_up=self.record.given_up + missing)
            if share > missing:
                left.append(replace(each, from_=each.to - (share - missing)))
        self.increases = tuple(left)

    def _sum_up(self) -> None:
        counted, given_up = self._census, self.record.given_up
        self.upcoming = max(0, counted.absent - given_up)
        if self.asked:
            return  # what is to be set right the target tells, once it shows what it was asked for
        self.shortfall = min(given_up, counted.unmade)
        late = [
            machine
            for machine in counted.pending
            if machine.since is None or self._now - machine.since >= self._seconds
        ]
        late.sort(key=lambda machine: (-(machine.since or 0.0), machine.key))
        chosen = {machine.key for machine in late[: given_up - self.shortfall]}
        self.hopeless = (*counted.failed, *(machine for machine in counted.pending if machine.key in chosen))

    def _new(self, machines: Sequence[GroupMachine]) -> list[GroupMachine]:
        """Those that do not count as failures already; from now on they do."""
        known = set(self.record.troubled)
        new = [machine for machine in machines if _name(machine) not in known]
        names = (*self.record.troubled, *(_name(machine) for machine in new))
        self.record = replace(self.record, troubled=names[:MAX_TROUBLED])
        return new

    def _fail(self, reason: str, message: str, count: int, *, code: str = "") -> None:
        self.record = failed(self.record, Trouble(self._now, (code or reason)[:128], message[:1024]), self._now)
        self.told.append(Finding(self._group.id, reason, message, count, failure=True))

    def _tell(self, reason: str, message: str, count: int) -> None:
        self.told.append(Finding(self._group.id, reason, message, count))


def _name(machine: GroupMachine) -> str:
    return (machine.name or machine.node)[:_NAME]


def _since(machine: GroupMachine, nodes: Mapping[str, Node], since: float) -> bool:
    """Whether a machine's node may be one that was asked for at that time."""
    node = nodes.get(machine.node)
    created = machine.since if machine.since is not None else None if node is None else node.created
    return created is not None and created >= since - SLACK


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return shown if len(names) <= _NAMED else f"{shown} and {len(names) - _NAMED} more"
