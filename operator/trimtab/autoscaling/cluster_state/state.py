"""Defines the autoscaler's state between iterations, and converts it from and to the ClusterAutoscaler's status.

A new process reads the whole state from the status and continues where the previous process stopped. So a restart
between two iterations changes nothing. Times are whole seconds since the epoch, as in the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import cluster_autoscaler_status as written
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus, HeldNode, NodeGroupStatus, UnneededNode
from trimtab.autoscaling.groups import GroupMachine
from trimtab.kube.events.event import truncate

MAX_BOOTS: Final = written.MAX_BOOTS
MAX_INCREASES: Final = written.MAX_INCREASES
MAX_TROUBLED: Final = written.MAX_TROUBLED

_MOST_WORDS: Final = 200
"""Maximum characters of an error message.

There may be a message for each of 500 groups, and the status must not exceed etcd's size limit.
"""


class GroupError(Struct, frozen=True):
    """The last scale-up error of a group.

    Attributes:
        time: the time of the error, in seconds since the epoch.
        reason: a code of :mod:`trimtab.api.reasons`, or an error code of the machine API.
        message: the error message.
    """

    time: float
    reason: str
    message: str = ""


class OpenScaleUp(Struct, frozen=True):
    """A scale-up in progress: not all of its nodes have registered yet.

    Attributes:
        from_: the target size before the scale-up.
        to: the requested target size.
        since: the time of the request, or the time at which the increase was first observed if this process did not
            request it. In seconds since the epoch.
        deadline: the time at which the autoscaler stops waiting for missing nodes, in seconds since the epoch. A later
            scale-up has its own deadline.
        doubt: whether the request received no response. Then only the group's target size shows whether it took effect.
        adopted: whether this process requested none of the nodes. They are missing because another actor raised the
            target size, or because a machine is being deleted: then it is replaced, or the target size is lowered.
    """

    from_: int
    to: int
    since: float
    deadline: float
    doubt: bool = False
    adopted: bool = False

    @property
    def size(self) -> int:
        """Return the number of requested nodes."""
        return self.to - self.from_


class GroupRecord(Struct, frozen=True):
    """The state of a group: its failures, backoff and boot times.

    Attributes:
        failures: the number of consecutive failed scale-ups.
        backoff_until: the end of the backoff, in seconds since the epoch. It may be in the past.
        last_error: the last scale-up error.
        boots: the boot time in seconds of the slowest node of each recent scale-up, newest last. The boot time is
            measured from the creation of the machine until the node was ready.
        given_up: the number of nodes of the target size that missed their deadline and are no longer expected.
        known_failures: names of machines that have been counted as failures. A node without a machine is listed by its
            own name.
    """

    failures: int = 0
    backoff_until: float | None = None
    last_error: GroupError | None = None
    boots: tuple[float, ...] = ()
    given_up: int = 0
    known_failures: tuple[str, ...] = ()

    @property
    def boot_seconds(self) -> float | None:
        """Return the longest recent boot time in seconds, or ``None`` if there is none.

        With so few samples, this is the 99th percentile.
        """
        return max(self.boots, default=None)


class AutoscalerState(Struct, frozen=True):
    """The state that the autoscaler keeps between iterations.

    Attributes:
        groups: the record of each group by group id. A group that has no record is not included.
        scale_ups: the open scale-ups of each group by group id, oldest first. Each begins at the target size at which
            the previous one ends.
        targets: the last known target size by group id. Groups with a target size of 0 are not included.
        unneeded: for each unneeded node, the time since which it has been unneeded.
        held: for each blocked node, the time since which pod annotations or PodDisruptionBudgets have blocked its
            removal.
        last_scale_up: the time at which nodes were last requested.
        last_scale_down: the time at which a node was last removed.
        last_scale_down_failure: the time at which the removal of a node last failed.
        try_again: the last processed value of the annotation ``trimtab.dev/try-again``; empty if there was none.
        confirmed_namespaces: namespaces with node groups that nodes have confirmed, sorted, each with the cluster if
            nodes have confirmed one: ``clusters/prod``.
    """

    groups: Mapping[str, GroupRecord] = {}
    scale_ups: Mapping[str, tuple[OpenScaleUp, ...]] = {}
    targets: Mapping[str, int] = {}
    unneeded: Mapping[str, float] = {}
    held: Mapping[str, float] = {}
    last_scale_up: float | None = None
    last_scale_down: float | None = None
    last_scale_down_failure: float | None = None
    try_again: str = ""
    confirmed_namespaces: tuple[str, ...] = ()

    @property
    def open(self) -> dict[str, OpenScaleUp]:
        """Return the open scale-ups, merged into one per group with the earliest deadline."""
        return {id_: _span(increases) for id_, increases in self.scale_ups.items()}

    def record(self, group: str) -> GroupRecord:
        """Return the record of a group, or an empty record if there is none."""
        return self.groups.get(group, _NO_RECORD)


_NO_RECORD: Final = GroupRecord()


def state_from_status(status: ClusterAutoscalerStatus) -> AutoscalerState:
    """Return the state that a status contains.

    Invalid entries are ignored. Times in the future are corrected later, by :func:`advance`.
    """
    groups = {each.id: record for each in status.node_groups if (record := _record(each)) != _NO_RECORD}
    scale_ups = {each.id: increases for each in status.node_groups if (increases := _increases(each.scale_up))}
    return AutoscalerState(
        groups=groups,
        scale_ups=scale_ups,
        targets={each.id: each.target for each in status.node_groups if each.target},
        unneeded={each.name: each.since.timestamp() for each in sorted(status.unneeded, key=lambda each: each.name)},
        held={each.name: each.since.timestamp() for each in sorted(status.held, key=lambda each: each.name)},
        last_scale_up=_seconds(status.last_scale_up),
        last_scale_down=_seconds(status.last_scale_down),
        last_scale_down_failure=_seconds(status.last_scale_down_failure),
        try_again=status.try_again,
        confirmed_namespaces=status.confirmed_namespaces,
    )


def status_with_state(state: AutoscalerState, status: ClusterAutoscalerStatus | None = None) -> ClusterAutoscalerStatus:
    """Return the status with the state written into it. Other fields are unchanged.

    Groups that are missing in the status are added. If there are too many groups, groups without any state are dropped.
    If there are too many unneeded nodes, those that have been unneeded the longest are kept.

    Args:
        state: the state to write.
        status: the status to change. The default is an empty status.
    """
    status = status or ClusterAutoscalerStatus()
    longest = sorted(state.unneeded.items(), key=lambda each: (each[1], each[0]))
    kept = longest[: written.MAX_UNNEEDED]
    held = sorted(state.held.items(), key=lambda each: (each[1], each[0]))[: written.MAX_HELD]
    groups, dropped = _groups(state, status.node_groups)
    return replace(
        status,
        node_groups=groups,
        node_groups_omitted=status.node_groups_omitted + dropped,
        unneeded=tuple(UnneededNode(name, status_time(since)) for name, since in kept),
        unneeded_omitted=len(longest) - len(kept),
        held=tuple(HeldNode(name, status_time(since)) for name, since in held),
        last_scale_up=_time(state.last_scale_up),
        last_scale_down=_time(state.last_scale_down),
        last_scale_down_failure=_time(state.last_scale_down_failure),
        try_again=state.try_again,
        confirmed_namespaces=state.confirmed_namespaces,
    )


def status_time(seconds: float) -> datetime:
    """Convert a time in seconds since the epoch to the representation in the status."""
    return datetime.fromtimestamp(seconds, UTC)


def _groups(state: AutoscalerState, statuses: Sequence[NodeGroupStatus]) -> tuple[tuple[NodeGroupStatus, ...], int]:
    """Return the group statuses with the state, sorted by id, and the number of groups that were dropped."""
    found = {each.id: _remembered(each, state) for each in statuses}
    for id_ in sorted({*state.groups, *state.scale_ups, *state.targets} - found.keys()):
        found[id_] = _remembered(NodeGroupStatus(id=id_), state)
    first = sorted(found, key=lambda id_: (id_ not in state.scale_ups, id_ not in state.groups, id_))
    ids = sorted(first[: written.MAX_GROUPS])
    return tuple(found[id_] for id_ in ids), len(found) - len(ids)


def _remembered(status: NodeGroupStatus, state: AutoscalerState) -> NodeGroupStatus:
    record, increases = state.record(status.id), state.scale_ups.get(status.id, ())
    error = record.last_error
    return replace(
        status,
        target=state.targets.get(status.id, status.target),
        failures=record.failures,
        backoff_until=_time(record.backoff_until),
        last_error=None
        if error is None
        else written.LastError(status_time(error.time), error.reason[:128], truncate(error.message, _MOST_WORDS)),
        boots=record.boots,
        given_up=record.given_up,
        troubled=record.known_failures,
        scale_up=_scale_up(increases),
    )


def _record(status: NodeGroupStatus) -> GroupRecord:
    error = status.last_error
    return GroupRecord(
        failures=status.failures,
        backoff_until=_seconds(status.backoff_until),
        last_error=None if error is None else GroupError(error.time.timestamp(), error.reason, error.message),
        boots=status.boots[-MAX_BOOTS:],
        given_up=status.given_up,
        known_failures=status.troubled[:MAX_TROUBLED],
    )


def _scale_up(increases: Sequence[OpenScaleUp]) -> written.OpenScaleUp | None:
    if not increases:
        return None
    span = _span(increases)
    parts = () if len(increases) == 1 else tuple(map(_part, increases))
    since, deadline = status_time(span.since), status_time(span.deadline)
    return written.OpenScaleUp(
        span.from_, span.to, since, deadline, doubt=span.doubt, adopted=span.adopted, increases=parts
    )


def _part(one: OpenScaleUp) -> written.Increase:
    since, deadline = status_time(one.since), status_time(one.deadline)
    return written.Increase(one.from_, one.to, since, deadline, doubt=one.doubt, adopted=one.adopted)


def _increases(found: written.OpenScaleUp | None) -> tuple[OpenScaleUp, ...]:
    if found is None:
        return ()
    parts: Iterable[written.Increase | written.OpenScaleUp] = found.increases or (found,)
    return tuple(
        OpenScaleUp(each.from_, each.to, each.since.timestamp(), each.deadline.timestamp(), each.doubt, each.adopted)
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
        adopted=all(each.adopted for each in increases),
    )


def _time(seconds: float | None) -> datetime | None:
    return None if seconds is None else status_time(seconds)


def _seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


Increases = tuple[OpenScaleUp, ...]


def requested_nodes(increases: Sequence[OpenScaleUp]) -> int:
    """Return the total number of nodes that the scale-ups request."""
    return sum(each.size for each in increases)


def ending_at(increases: Sequence[OpenScaleUp], target: int) -> Increases:
    """Return the scale-ups with the same sizes, shifted so that the last one ends at the given target size.

    If the target size is too small for all of them, the oldest are shortened or dropped. This happens only if a user
    edited the status.
    """
    found: list[OpenScaleUp] = []
    top = target
    for each in reversed(increases):
        bottom = max(0, top - each.size)
        if bottom < top:
            found.append(replace(each, from_=bottom, to=top))
        top = bottom
    return tuple(reversed(found))


def without_newest(increases: Sequence[OpenScaleUp], number: int) -> Increases:
    """Return the scale-ups reduced by the given number of nodes, starting with the newest."""
    left = []
    for each in reversed(increases):
        less = min(number, each.size)
        number -= less
        left.append(replace(each, to=each.to - less))
    return tuple(each for each in reversed(left) if each.size > 0)


def missing_by_increase(increases: Sequence[OpenScaleUp], number: int) -> list[int]:
    """Return how many of the missing nodes belong to each scale-up.

    Existing nodes are attributed to the oldest scale-ups.
    """
    found = []
    for each in reversed(increases):
        own = min(number, each.size)
        found.append(own)
        number -= own
    return found[::-1]


def merge_closest(increases: Increases) -> Increases:
    """Merge scale-ups until the status can store all of them.

    The two neighbours with the closest deadlines are merged, and the merged scale-up has the later deadline. So the
    autoscaler waits a little longer for some nodes, but never stops waiting too early.
    """
    found = list(increases)
    while len(found) > MAX_INCREASES:
        gaps = [later.deadline - earlier.deadline for earlier, later in pairwise(found)]
        place = gaps.index(min(gaps))
        earlier, later = found[place : place + 2]
        deadline = max(earlier.deadline, later.deadline)
        doubt, adopted = earlier.doubt and later.doubt, earlier.adopted and later.adopted
        found[place : place + 2] = [replace(earlier, to=later.to, deadline=deadline, doubt=doubt, adopted=adopted)]
    return tuple(found)


def with_plausible_times(increases: Increases, *, now: float, seconds: float) -> Increases:
    """Return the scale-ups with implausible times corrected.

    The request time is at most ``now``, and the deadline is at most ``seconds`` later.
    """
    return tuple(
        replace(each, since=min(each.since, now), deadline=min(each.deadline, now + seconds)) for each in increases
    )


class GroupFinding(Struct, frozen=True):
    """A new finding about a group, which is reported once as an event.

    Attributes:
        group: id of the group.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the message, with numbers and names.
        count: the number of affected nodes.
        failure: whether the finding is a failure that starts a backoff of the group.
    """

    group: str
    reason: str
    message: str
    count: int = 0
    failure: bool = False


class GroupFindings(Struct, frozen=True):
    """The findings of an iteration about earlier scale-ups.

    Attributes:
        reported: the new findings, in the order of the groups.
        upcoming: the number of upcoming nodes by group id, for planners. Nodes that missed their deadline are not
            counted, but recently requested nodes are. Only groups whose number differs from their own count are
            included.
        unobserved_requests: the reason why a group must not be scaled up further, by group id, for planners. Its target
            size does not include the last request yet.
        unregistered: the machines to delete, by group id. They failed or missed their deadline, and have no node.
        shortfall: the number by which to lower the target size, by group id. No machine was created for this part in
            time.
        starting: group ids by the names of starting nodes that belong to no group, because they do not confirm their
            machines. ``upcoming`` contains these machines.
    """

    reported: tuple[GroupFinding, ...] = ()
    upcoming: Mapping[str, int] = {}
    unobserved_requests: Mapping[str, str] = {}
    unregistered: Mapping[str, tuple[GroupMachine, ...]] = {}
    shortfall: Mapping[str, int] = {}
    starting: Mapping[str, str] = {}

    def of(self, reason: str) -> dict[str, str]:
        """Return the messages of the findings with this reason, by group id."""
        return {each.group: each.message for each in self.reported if each.reason == reason}
