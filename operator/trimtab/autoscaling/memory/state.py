"""State: what the autoscaler remembers from pass to pass, and how it stands in the ClusterAutoscaler's status.

All of it is read back from there by a new process, which so goes on where the last one ended: nothing else is kept, and
a restart between two passes changes nothing. Times are seconds since the epoch, whole ones, as a status holds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import cluster_autoscaler_status as written
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus, NodeGroupStatus, UnneededNode

MAX_BOOTS: Final = written.MAX_BOOTS
MAX_INCREASES: Final = written.MAX_INCREASES
MAX_TROUBLED: Final = written.MAX_TROUBLED

_MOST_WORDS: Final = 200
"""Of an error: 500 groups may have one each, and the status is to stay far from what etcd takes."""


class Trouble(Struct, frozen=True):
    """What last went wrong with a group.

    Attributes:
        time: when.
        reason: a code of :mod:`trimtab.api.reasons`, or that of the machine's API.
        message: the same in words.
    """

    time: float
    reason: str
    message: str = ""


class OpenScaleUp(Struct, frozen=True):
    """Nodes that were asked for and are not all there.

    Attributes:
        from_: the group's target before.
        to: the target that was asked for.
        since: when it was asked for, or found if nobody here did.
        deadline: when they are given up; a later increase has its own and does not extend it.
        doubt: whether no answer came, so that only the group's target can tell whether they were asked for.
    """

    from_: int
    to: int
    since: float
    deadline: float
    doubt: bool = False

    @property
    def size(self) -> int:
        """How many nodes."""
        return self.to - self.from_


class GroupRecord(Struct, frozen=True):
    """What is remembered of a group.

    Attributes:
        failures: how often in a row adding nodes failed.
        backoff_until: until when nothing is added to it; it may be past.
        last_error: what last went wrong.
        boots: how long the slowest node of each of its last scale-ups took, from its machine's creation to being ready,
            in seconds, the newest last.
        given_up: how much of its target nobody waits for any more: asked for, and never there.
        troubled: machines (their names; nodes' names where there is no machine) that count as failures already.
    """

    failures: int = 0
    backoff_until: float | None = None
    last_error: Trouble | None = None
    boots: tuple[float, ...] = ()
    given_up: int = 0
    troubled: tuple[str, ...] = ()

    @property
    def boot_seconds(self) -> float | None:
        """How long a node takes at most: the 99th percentile by nearest rank, which of so few is the longest."""
        return max(self.boots, default=None)


class State(Struct, frozen=True):
    """What the autoscaler remembers.

    Attributes:
        groups: by the groups' ids; groups of which nothing is remembered are not in it.
        scale_ups: increases whose nodes are not all there, by the groups' ids; each group's in the order of time, one
            beginning where the one before ends.
        targets: what each group was last known to be asked for, by its id; groups of which that is nothing are not
            in it.
        unneeded: since when nodes are unneeded, by name.
        last_scale_up: when nodes were last asked for.
        last_scale_down: when a node was last removed.
        last_scale_down_failure: when removing a node last failed.
    """

    groups: Mapping[str, GroupRecord] = {}
    scale_ups: Mapping[str, tuple[OpenScaleUp, ...]] = {}
    targets: Mapping[str, int] = {}
    unneeded: Mapping[str, float] = {}
    last_scale_up: float | None = None
    last_scale_down: float | None = None
    last_scale_down_failure: float | None = None

    @property
    def open(self) -> dict[str, OpenScaleUp]:
        """What is asked for and not there, one a group: from the first increase to the last, by the first deadline."""
        return {id_: _span(increases) for id_, increases in self.scale_ups.items()}

    def record(self, group: str) -> GroupRecord:
        """What is remembered of a group; an empty record where that is nothing."""
        return self.groups.get(group, _NOTHING)


_NOTHING: Final = GroupRecord()


def recall(status: ClusterAutoscalerStatus) -> State:
    """What a status remembers. What makes no sense in it is left out; times ahead stay, until a pass knows the time."""
    groups = {each.id: record for each in status.node_groups if (record := _record(each)) != _NOTHING}
    scale_ups = {each.id: increases for each in status.node_groups if (increases := _increases(each.scale_up))}
    return State(
        groups=groups,
        scale_ups=scale_ups,
        targets={each.id: each.target for each in status.node_groups if each.target},
        unneeded={each.name: each.since.timestamp() for each in sorted(status.unneeded, key=lambda each: each.name)},
        last_scale_up=_seconds(status.last_scale_up),
        last_scale_down=_seconds(status.last_scale_down),
        last_scale_down_failure=_seconds(status.last_scale_down_failure),
    )


def remember(state: State, status: ClusterAutoscalerStatus | None = None) -> ClusterAutoscalerStatus:
    """Write it into a status, whose other fields stay as they are.

    Groups that the status does not have are added, and where there is no room for them they have that of groups of
    which nothing is remembered. Of the unneeded nodes those stay that have been so the longest.

    Args:
        state: what to remember.
        status: the status as it is to be otherwise; an empty one unless given.
    """
    status = status or ClusterAutoscalerStatus()
    longest = sorted(state.unneeded.items(), key=lambda each: (each[1], each[0]))
    kept = longest[: written.MAX_UNNEEDED]
    groups, cut = _groups(state, status.node_groups)
    return replace(
        status,
        node_groups=groups,
        node_groups_omitted=status.node_groups_omitted + cut,
        unneeded=tuple(UnneededNode(name, written_time(since)) for name, since in kept),
        unneeded_omitted=len(longest) - len(kept),
        last_scale_up=_time(state.last_scale_up),
        last_scale_down=_time(state.last_scale_down),
        last_scale_down_failure=_time(state.last_scale_down_failure),
    )


def written_time(seconds: float) -> datetime:
    """A time as a status holds it."""
    return datetime.fromtimestamp(seconds, UTC)


def _groups(state: State, there: Sequence[NodeGroupStatus]) -> tuple[tuple[NodeGroupStatus, ...], int]:
    """The groups with what is remembered of them, by id, and how many there is no room for."""
    found = {each.id: _remembered(each, state) for each in there}
    for id_ in sorted({*state.groups, *state.scale_ups, *state.targets} - found.keys()):
        found[id_] = _remembered(NodeGroupStatus(id=id_), state)
    first = sorted(found, key=lambda id_: (id_ not in state.scale_ups, id_ not in state.groups, id_))
    ids = sorted(first[: written.MAX_GROUPS])
    return tuple(found[id_] for id_ in ids), len(found) - len(ids)


def _remembered(status: NodeGroupStatus, state: State) -> NodeGroupStatus:
    record, increases = state.record(status.id), state.scale_ups.get(status.id, ())
    error = record.last_error
    return replace(
        status,
        target=state.targets.get(status.id, status.target),
        failures=record.failures,
        backoff_until=_time(record.backoff_until),
        last_error=None
        if error is None
        else written.LastError(written_time(error.time), error.reason[:128], error.message[:_MOST_WORDS]),
        boots=record.boots,
        given_up=record.given_up,
        troubled=record.troubled,
        scale_up=_scale_up(increases),
    )


def _record(status: NodeGroupStatus) -> GroupRecord:
    error = status.last_error
    return GroupRecord(
        failures=status.failures,
        backoff_until=_seconds(status.backoff_until),
        last_error=None if error is None else Trouble(error.time.timestamp(), error.reason, error.message),
        boots=status.boots[-MAX_BOOTS:],
        given_up=status.given_up,
        troubled=status.troubled[:MAX_TROUBLED],
    )


def _scale_up(increases: Sequence[OpenScaleUp]) -> written.OpenScaleUp | None:
    if not increases:
        return None
    span = _span(increases)
    parts = () if len(increases) == 1 else tuple(map(_part, increases))
    return written.OpenScaleUp(
        span.from_, span.to, written_time(span.since), written_time(span.deadline), doubt=span.doubt, increases=parts
    )


def _part(one: OpenScaleUp) -> written.Increase:
    return written.Increase(one.from_, one.to, written_time(one.since), written_time(one.deadline), doubt=one.doubt)


def _increases(found: written.OpenScaleUp | None) -> tuple[OpenScaleUp, ...]:
    if found is None:
        return ()
    parts: Iterable[written.Increase | written.OpenScaleUp] = found.increases or (found,)
    return tuple(
        OpenScaleUp(each.from_, each.to, each.since.timestamp(), each.deadline.timestamp(), each.doubt)
        for each in parts
        if 0 <= each.from_ < each.to
    )


def _span(increases: Sequence[OpenScaleUp]) -> OpenScaleUp:
    return OpenScaleUp(
        increases[0].from_,
        increases[-1].to,
        since=min(each.since for each in increases),
        deadline=min(each.deadline for each in increases),
        doubt=any(each.doubt for each in increases),
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else written_time(seconds)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()
