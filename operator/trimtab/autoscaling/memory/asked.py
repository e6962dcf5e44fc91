"""What a pass writes down of what it did itself: groups that were asked for more, or for less."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from trimtab.autoscaling.memory.backoff import failed, settled
from trimtab.autoscaling.memory.increases import bounded, upto
from trimtab.autoscaling.memory.state import OpenScaleUp, State, Trouble
from trimtab.autoscaling.providers import Failure, Scaled

NOT_ITS_FAULT: Final = frozenset({Failure.CONFLICT, Failure.NOT_FOUND})
"""Failures for which a group does not back off: it is not what was planned on, and the next plan counts anew."""


def begun(state: State, group: str, before: int, after: int, *, now: float, seconds: float) -> State:
    """A group is being asked for more, and nobody knows yet what comes of it.

    Written down before there is an answer, it is known to the next process if this one is killed.

    Args:
        state: so far.
        group: its id.
        before: its target.
        after: the target it is asked for.
        now: seconds since the epoch.
        seconds: how long its machines may take (:func:`~trimtab.autoscaling.memory.advance.provision_seconds`).
    """
    now = float(int(now))
    others = [each for each in state.scale_ups.get(group, ()) if (each.from_, each.to) != (before, after)]
    one = OpenScaleUp(before, after, now, now + seconds, doubt=True)
    return _with(state, group, (*upto(others, before), one), after)


def answered(state: State, scaled: Scaled, *, now: float, seconds: float) -> State:
    """A group was asked for more.

    An increase in doubt counts as open; the group's target tells later. One that failed makes the group back off.

    Args:
        state: so far.
        scaled: what came of it.
        now: seconds since the epoch.
        seconds: how long its machines may take.
    """
    now = float(int(now))
    group, size = scaled.group, (scaled.before, scaled.after)
    before = state.scale_ups.get(group, ())
    known = next((each for each in before if each.doubt and (each.from_, each.to) == size), None)
    if scaled.done or scaled.doubt:
        since = now if known is None else known.since
        others = [each for each in before if each is not known]
        one = OpenScaleUp(*size, since, since + seconds, doubt=not scaled.done)
        state = _with(state, group, (*upto(others, scaled.before), one), scaled.after)
        state = replace(state, last_scale_up=max(since, state.last_scale_up or since))
    elif known is not None:
        state = _with(state, group, tuple(each for each in before if each is not known), scaled.before)
    if scaled.failure is None or scaled.failure in NOT_ITS_FAULT or not scaled.calls:
        return state  # what was refused without a request is only the plan's affair
    trouble = Trouble(now, scaled.failure.value, scaled.message[:1024])
    record = failed(settled(state.record(group), now), trouble, now)
    return replace(state, groups=dict(sorted({**state.groups, group: record}.items())))


def lowered(state: State, scaled: Scaled) -> State:
    """A group was asked for less, for whatever reason: its nodes that are waited for are waited for as before."""
    if not scaled.done:
        return state
    shift = scaled.after - scaled.before
    target = state.targets.get(scaled.group, scaled.before) + shift
    increases = state.scale_ups.get(scaled.group, ())
    return _with(state, scaled.group, upto(increases, max(0, target)), max(0, target))


def _with(state: State, group: str, increases: tuple[OpenScaleUp, ...], target: int) -> State:
    scale_ups = {**state.scale_ups, group: bounded(increases)}
    targets = {**state.targets, group: target}
    return replace(
        state,
        scale_ups={id_: each for id_, each in sorted(scale_ups.items()) if each},
        targets={id_: each for id_, each in sorted(targets.items()) if each},
    )
