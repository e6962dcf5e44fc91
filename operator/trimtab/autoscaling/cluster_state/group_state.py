"""Updates the state of one node group from iteration to iteration: its open scale-ups, failures and deadlines.

The executor records its own requests with these functions: :func:`record_scale_up_request` before it sends a request,
:func:`record_scale_up_result` and :func:`record_target_decrease` after the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.cluster_state.backoff import format_time, record_failure, with_expired_failures
from trimtab.autoscaling.cluster_state.readiness import Readiness, boot_seconds, count_machines, ready_since
from trimtab.autoscaling.cluster_state.state import (
    MAX_BOOTS,
    MAX_TROUBLED,
    AutoscalerState,
    GroupError,
    GroupFinding,
    OpenScaleUp,
    ending_at,
    merge_closest,
    missing_by_increase,
    requested_nodes,
    with_plausible_times,
    without_newest,
)
from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers import ScaleFailure, ScaleResult
from trimtab.kube.events.event import truncate
from trimtab.kube.objects import Node

NOT_ITS_FAULT: Final = frozenset({ScaleFailure.CONFLICT, ScaleFailure.NOT_FOUND, ScaleFailure.FORBIDDEN})
"""Failures that cause no backoff, because the provider did not fail.

The plan was based on a stale target size, and the next plan uses the current one; or the service account lacks a
permission, and the request succeeds as soon as the permission is granted.
"""


def record_scale_up_request(
    state: AutoscalerState, group: str, before: int, after: int, *, now: float, seconds: float
) -> AutoscalerState:
    """Record a scale-up before the request is sent.

    If this process is killed, the next process knows about the request.

    Args:
        state: the state before the request.
        group: id of the group.
        before: the target size before the request.
        after: the requested target size.
        now: the current time in seconds since the epoch.
        seconds: the maximum provisioning time in seconds
            (:func:`~trimtab.autoscaling.cluster_state.advance.provision_seconds`).
    """
    now = float(int(now))
    others = [each for each in state.scale_ups.get(group, ()) if (each.from_, each.to) != (before, after)]
    one = OpenScaleUp(before, after, now, now + seconds, doubt=True)
    return _with(state, group, (*ending_at(others, before), one), after)


def record_scale_up_result(
    state: AutoscalerState, scaled: ScaleResult, *, now: float, seconds: float
) -> AutoscalerState:
    """Record the result of a scale-up request.

    If the outcome is unknown, the increase is treated as open, and the group's target size shows later whether it took
    effect. After a failure the group is in backoff.

    Args:
        state: the state before the result.
        scaled: the result of the request.
        now: the current time in seconds since the epoch.
        seconds: the maximum provisioning time in seconds.
    """
    now = float(int(now))
    group, size = scaled.group, (scaled.before, scaled.after)
    before = state.scale_ups.get(group, ())
    known = next((each for each in before if each.doubt and (each.from_, each.to) == size), None)
    if scaled.done or scaled.doubt:
        since = now if known is None else known.since
        others = [each for each in before if each is not known]
        one = OpenScaleUp(*size, since, since + seconds, doubt=not scaled.done)
        state = _with(state, group, (*ending_at(others, scaled.before), one), scaled.after)
        state = replace(state, last_scale_up=max(since, state.last_scale_up or since))
    elif known is not None:
        state = _with(state, group, tuple(each for each in before if each is not known), scaled.before)
    if scaled.failure is None or scaled.failure in NOT_ITS_FAULT or not scaled.calls:
        return state  # no request was sent: the plan was stale, and the provider did not fail
    error = GroupError(now, scaled.failure.value, truncate(scaled.message, 1024))
    record = record_failure(with_expired_failures(state.record(group), now), error, now)
    return replace(state, groups=dict(sorted({**state.groups, group: record}.items())))


def record_target_decrease(state: AutoscalerState, scaled: ScaleResult) -> AutoscalerState:
    """Record a lowered target size.

    The number of requested nodes that are not registered yet is unchanged.
    """
    if not scaled.done:
        return state
    shift = scaled.after - scaled.before
    target = state.targets.get(scaled.group, scaled.before) + shift
    increases = state.scale_ups.get(scaled.group, ())
    return _with(state, scaled.group, ending_at(increases, max(0, target)), max(0, target))


def _with(state: AutoscalerState, group: str, increases: tuple[OpenScaleUp, ...], target: int) -> AutoscalerState:
    scale_ups = {**state.scale_ups, group: merge_closest(increases)}
    targets = {**state.targets, group: target}
    return replace(
        state,
        scale_ups={id_: each for id_, each in sorted(scale_ups.items()) if each},
        targets={id_: each for id_, each in sorted(targets.items()) if each},
    )


UNSEEN_SECONDS: Final = 30.0
"""Seconds after a request for which a snapshot may still contain the old target size."""
SLACK: Final = 60.0
"""Maximum clock skew in seconds: a machine may appear to be this much older than the request that created it."""
_MOST_NAMES: Final = 3
_MOST_CHARACTERS: Final = 253


class GroupState:
    """Updates the state of one group in an iteration. Read its attributes after :meth:`advance`.

    Args:
        group: the group in this iteration's snapshot.
        state: the state after the previous iteration.
        node_readiness: readiness by node name.
        now: the current time in seconds since the epoch.
        seconds: the maximum provisioning time of the group's machines in seconds.

    Attributes:
        record: the failures, backoff and boot times of the group.
        increases: the open scale-ups of the group.
        reported: the new findings of this iteration.
        added: the time at which another actor requested nodes; ``None`` if only this process requested nodes.
        upcoming: the number of nodes that are still expected to register.
        unobserved_request: the reason why the target size does not include the last request yet; empty if it does.
        unregistered: machines without a node that failed or missed their deadline, except unconfirmed machines.
        shortfall: the part of the target size for which no machine was created before the deadline.
        starting: names of the starting nodes that do not confirm the machines of the group.
    """

    def __init__(
        self,
        group: NodeGroup,
        state: AutoscalerState,
        node_readiness: Mapping[str, Readiness],
        *,
        now: float,
        seconds: float,
    ) -> None:
        self._group, self._now, self._seconds = group, now, seconds
        self.record = with_expired_failures(state.record(group.id), now)
        self.increases = with_plausible_times(state.scale_ups.get(group.id, ()), now=now, seconds=seconds)
        self.reported: list[GroupFinding] = []
        self.added: float | None = None
        self.unobserved_request = ""
        self._known_target = state.targets.get(group.id)
        if self.increases:
            self._known_target = self.increases[-1].to
        self._counts = count_machines(group, node_readiness, target=self._unobserved_target())
        self.upcoming = 0
        self.unregistered: tuple[GroupMachine, ...] = ()
        self.shortfall = 0
        self.starting = [each.unconfirmed_node for each in self._counts.pending if each.unconfirmed_node]

    def advance(self, nodes: Mapping[str, Node]) -> None:
        """Compare the group with its previous state, and update the state."""
        existing = {_name(machine) for machine in self._group.machines}
        self.record = replace(
            self.record,
            given_up=min(self.record.given_up, self._counts.absent),
            known_failures=tuple(name for name in self.record.known_failures if name in existing),
        )
        self._record_failed_machines()
        self._adopt_target()
        self.increases = ending_at(self.increases, self._counts.target)
        self._close_complete(nodes)
        self._give_up_overdue()
        self.increases = merge_closest(ending_at(self.increases, self._counts.target))
        self._sum_up()

    def _unobserved_target(self) -> int | None:
        """Return the target size of a recent request that the snapshot does not contain yet, or ``None``."""
        last = self._last_request
        if last is None or self._group.target > last.from_ or self._now - last.since >= UNSEEN_SECONDS:
            return None
        self.unobserved_request = (
            f"the request for {_nodes(last.size)} at {format_time(last.since)} is not reflected in the target size yet"
        )
        return self.increases[-1].to

    @property
    def _last_request(self) -> OpenScaleUp | None:
        """Return the newest open scale-up that this process requested, or ``None``."""
        return next((each for each in reversed(self.increases) if not each.adopted), None)

    @property
    def _awaited(self) -> int:
        """Return the number of nodes that can still become ready, excluding those that missed their deadline."""
        return max(0, self._counts.awaited - self.record.given_up)

    def _record_failed_machines(self) -> None:
        """Stop waiting for machines that failed since the last iteration, and start the group's backoff."""
        new = self._record_new_failures(self._counts.failed)
        if not new:
            return
        first = new[0]
        why = f" ({first.reason})" if first.reason else ""
        text = f": {first.message}" if first.message else ""
        others = f", and {len(new) - 1} more" if len(new) > 1 else ""
        message = f"machine {first.key} failed{why}{text}{others}"
        self._fail(reasons.MACHINE_FAILED, message, len(new), code=first.reason)
        self.increases = without_newest(
            self.increases, min(len(new), max(0, requested_nodes(self.increases) - self._awaited))
        )

    def _adopt_target(self) -> None:
        """Adopt the target size of the snapshot if another actor changed it."""
        target, known_target = self._counts.target, self._known_target
        surplus = requested_nodes(self.increases) - self._awaited
        if known_target is not None and target < known_target and surplus > 0 and self.increases:
            left = without_newest(self.increases, min(known_target - target, surplus))
            # Fewer adopted nodes are no change to report. After a removal by this process, for example, the machine is
            # deleted before the snapshot contains the lower target size, so a replacement seems to be missing.
            dropped = _requested_here(self.increases) - _requested_here(left)
            if dropped and self._last_request is not None:
                self._report_dropped(self._last_request, known_target, dropped)
            self.increases = left
        missing = self._counts.absent - self.record.given_up - requested_nodes(self.increases)
        if missing > 0:
            self._add_unrequested(missing)

    def _report_dropped(self, last: OpenScaleUp, known_target: int, number: int) -> None:
        """Report nodes that are no longer requested.

        Nothing is reported if the outcome of their request was unknown.
        """
        if last.doubt:
            return
        target = self._counts.target
        if target <= last.from_ and self._now - last.since < 2 * UNSEEN_SECONDS:
            # The target size never included the request: the provider ignores it, or another actor reverted it.
            message = f"the provider accepted a target size of {known_target}, but the target size is {target}"
            self._fail(reasons.TARGET_CHANGED, message, number)
            return
        message = f"the target size changed from {known_target} to {target}: {_nodes(number)} fewer are expected"
        self._report(reasons.TARGET_CHANGED, message, number)

    def _add_unrequested(self, number: int) -> None:
        """Add an open scale-up for missing nodes that this process did not request."""
        target, known_target, now = self._counts.target, self._known_target, self._now
        since = now
        if known_target is None or target > known_target:
            made = sorted(machine.since for machine in self._counts.pending if machine.since is not None)
            others = made[requested_nodes(self.increases) :]
            since = float(int(max((time for time in others if now - self._seconds < time <= now), default=now)))
            self.added = since
            if known_target is not None and self.increases:
                message = f"the target size changed from {known_target} to {target}: {_nodes(number)} more are expected"
                self._report(reasons.TARGET_CHANGED, message, number)
        increase = OpenScaleUp(max(0, target - number), target, since, since + self._seconds, adopted=True)
        if self.unobserved_request:
            # The missing nodes are part of the target size from before the request, which is not visible yet.
            self.increases = (*self.increases[:-1], increase, self.increases[-1])
        else:
            self.increases = (*self.increases, increase)

    def _close_complete(self, nodes: Mapping[str, Node]) -> None:
        """Close the scale-ups whose nodes all exist. Nodes that did not become ready count as a failure."""
        left: list[OpenScaleUp] = []
        for each, share in zip(self.increases, missing_by_increase(self.increases, self._awaited), strict=True):
            if share:
                left.append(each)
                continue
            bad = self._record_new_failures(
                [machine for machine in self._counts.unready if _since(machine, nodes, each.since)]
            )
            if bad:
                names = _names_text([machine.node for machine in bad])
                message = f"{_nodes(len(bad))} of {each.size} registered but did not become ready in time: {names}"
                self._fail(reasons.NODE_NOT_STARTED, message, len(bad))
                continue
            provisioned = tuple(machine for machine in self._counts.present if _since(machine, nodes, each.since))
            seconds = boot_seconds(provisioned, nodes)
            if seconds:
                self.record = replace(self.record, boots=(*self.record.boots, max(seconds))[-MAX_BOOTS:])
            if not each.adopted:
                self._report_completed(each, provisioned, nodes)
        self.increases = tuple(left)

    def _report_completed(
        self, scale_up: OpenScaleUp, provisioned: Sequence[GroupMachine], nodes: Mapping[str, Node]
    ) -> None:
        """Report a completed scale-up, with the seconds from its request until the last of its nodes was ready."""
        times = sorted(time for machine in provisioned if (time := ready_since(nodes.get(machine.node))) is not None)
        last = times[: scale_up.size][-1] if len(times) >= scale_up.size else self._now
        seconds = max(0.0, min(last, self._now) - scale_up.since)
        since = format_time(scale_up.since)
        message = f"{_nodes(scale_up.size)} became ready {seconds:g}s after the scale-up was requested at {since}"
        self._report(reasons.SCALE_UP_COMPLETED, message, scale_up.size)

    def _give_up_overdue(self) -> None:
        """Stop waiting for nodes whose deadline has passed. Registered nodes may still become ready."""
        absent = max(0, self._counts.absent - self.record.given_up)
        left: list[OpenScaleUp] = []
        for each, share, missing in zip(
            self.increases,
            missing_by_increase(self.increases, self._awaited),
            missing_by_increase(self.increases, absent),
            strict=True,
        ):
            if not missing or self._now < each.deadline:
                left.append(each)
                continue
            message = (
                f"{missing} of {_nodes(each.size)} requested at {format_time(each.since)} did not register by "
                f"{format_time(each.deadline)}"
            )
            self._fail(reasons.SCALE_UP_TIMED_OUT, message, missing)
            self.record = replace(self.record, given_up=self.record.given_up + missing)
            if share > missing:
                left.append(replace(each, from_=each.to - (share - missing)))
        self.increases = tuple(left)

    def _sum_up(self) -> None:
        counted, given_up = self._counts, self.record.given_up
        self.upcoming = max(0, counted.absent - given_up)
        if self.unobserved_request:
            return  # the target size cannot be corrected before it includes the last request
        self.shortfall = min(given_up, counted.without_machine)
        late = [
            machine
            for machine in counted.pending
            if not machine.unconfirmed_node and (machine.since is None or self._now - machine.since >= self._seconds)
        ]
        late.sort(key=lambda machine: (-(machine.since or 0.0), machine.key))
        chosen = {machine.key for machine in late[: given_up - self.shortfall]}
        self.unregistered = (*counted.failed, *(machine for machine in counted.pending if machine.key in chosen))

    def _record_new_failures(self, machines: Sequence[GroupMachine]) -> list[GroupMachine]:
        """Return the machines that have not been counted as failures yet, and record them as failures."""
        known = set(self.record.known_failures)
        new = [machine for machine in machines if _name(machine) not in known]
        names = (*self.record.known_failures, *(_name(machine) for machine in new))
        self.record = replace(self.record, known_failures=names[:MAX_TROUBLED])
        return new

    def _fail(self, reason: str, message: str, count: int, *, code: str = "") -> None:
        self.record = record_failure(
            self.record, GroupError(self._now, (code or reason)[:128], truncate(message, 1024)), self._now
        )
        self.reported.append(GroupFinding(self._group.id, reason, message, count, failure=True))

    def _report(self, reason: str, message: str, count: int) -> None:
        self.reported.append(GroupFinding(self._group.id, reason, message, count))


def _name(machine: GroupMachine) -> str:
    return (machine.name or machine.node)[:_MOST_CHARACTERS]


def _since(machine: GroupMachine, nodes: Mapping[str, Node], since: float) -> bool:
    """Return whether a machine or its node may have been created for a request that was sent at time ``since``."""
    node = nodes.get(machine.node)
    created = machine.since if machine.since is not None else None if node is None else node.created
    return created is not None and created >= since - SLACK


def _requested_here(increases: Sequence[OpenScaleUp]) -> int:
    return requested_nodes([each for each in increases if not each.adopted])


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"


def _names_text(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"
