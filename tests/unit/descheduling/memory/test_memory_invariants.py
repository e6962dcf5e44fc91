"""What holds of a memory, whatever happens."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples
from tests.unit.descheduling.memory.remembering import (
    COOLDOWN,
    HOUR,
    NOW,
    a_pod,
    memory,
    setback,
    watched,
    whose,
    written,
)
from trimtab.api.descheduler_status import MAX_SETBACKS, MAX_WATCHED, EvictionMemory
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.assess import SETBACKS_BYTES, WATCHED_BYTES, assess, trimmed_memory
from trimtab.descheduling.memory.cooldown import moved_owner_key, template_digest

NODES = st.sampled_from(["n1", "n2"])
AGES = st.integers(0, 8000)
STRATEGIES = st.sampled_from(["RemoveDuplicates", "PodLifeTime"])
OWNERS = st.sampled_from(["web", "api"])


@st.composite
def evictions(draw: st.DrawFn) -> Any:
    fields: dict[str, Any] = {"strategy": draw(STRATEGIES), "name": draw(OWNERS)}
    if draw(st.booleans()):
        fields |= {"replacement": draw(UIDS), "landed": draw(NODES), "landed_time": to_time(NOW - draw(AGES))}
    return watched(draw(NAMES), draw(NODES), age=draw(AGES), **fields)


@st.composite
def failures(draw: st.DrawFn) -> Any:
    fields = {
        "strategy": draw(STRATEGIES),
        "name": draw(OWNERS),
        "template": draw(st.sampled_from([whose()["template"], "another"])),
    }
    return setback(draw(st.integers(1, 5)), age=draw(AGES), lasts=draw(st.integers(-9999, 200_000)), **fields)


NAMES = st.sampled_from([f"p{number}" for number in range(8)])
UIDS = NAMES.map(lambda name: f"uid-{name}")
PODS = st.builds(
    lambda name, on, age, owner, gone: a_pod(name, on, age=float(age), owner=owner, deleted=NOW if gone else None),
    NAMES,
    st.sampled_from(["", "n1", "n2"]),
    AGES,
    OWNERS,
    st.booleans(),
)
MEMORIES = st.builds(
    lambda seen, bad: memory(*seen, *{moved_owner_key(each): each for each in bad}.values()),
    st.lists(evictions(), max_size=6, unique_by=lambda each: each.uid),
    st.lists(failures(), max_size=4),
).map(lambda each: trimmed_memory(each, watched=each.watched, setbacks=each.setbacks))


@given(before=MEMORIES, pods=st.lists(PODS, max_size=8, unique_by=lambda pod: pod.key), later=st.integers(0, 9000))
@settings(max_examples=examples(200), deadline=None)
def test_assessment_is_deterministic_and_survives_serialization(
    before: EvictionMemory, pods: list[Any], later: int
) -> None:
    now = NOW + later
    after = assess(before, Snapshot(pods), COOLDOWN, now=now)
    assert after == assess(before, Snapshot(reversed(pods)), COOLDOWN, now=now)
    assert after == assess(written(before), Snapshot(pods), COOLDOWN, now=now)
    assert after == written(after)
    assert {each.uid for each in after.watched} <= {each.uid for each in before.watched}


@given(before=MEMORIES, pods=st.lists(PODS, max_size=8, unique_by=lambda pod: pod.key), later=st.integers(0, 9000))
@settings(max_examples=examples(200), deadline=None)
def test_time_never_takes_back_a_failure_but_for_a_success_or_a_lost_owner(
    before: EvictionMemory, pods: list[Any], later: int
) -> None:
    observed = {moved_owner_key(each) for each in before.watched}
    may_help = {moved_owner_key(each) for each in before.watched if each.landed_time is not None}
    there = {(pod.controller.name, template_digest(pod)) for pod in pods}
    after = {moved_owner_key(each): each for each in assess(before, Snapshot(pods), COOLDOWN, now=NOW + later).setbacks}
    longest = to_time(NOW + later + 24 * HOUR)
    for each in before.setbacks:
        found = after.get(moved_owner_key(each))
        if found is None:
            assert (moved_owner_key(each) in observed and not each.gave_up) or (each.name, each.template) not in there
            continue
        if found.failures < each.failures:  # one eviction has helped, and another one after it has not
            assert moved_owner_key(each) in may_help
            assert not each.gave_up
            continue
        assert found.gave_up >= each.gave_up
        assert found.until >= min(each.until, longest)


@given(
    count=st.tuples(st.integers(0, 600), st.integers(0, 600)),
    size=st.sampled_from([3, 253]),
    gave_up=st.integers(0, 150),
)
@settings(max_examples=25, deadline=None)
def test_memory_is_bounded_and_keeps_the_most_important_entries(
    count: tuple[int, int], size: int, gave_up: int
) -> None:
    observed = [watched(f"{number:03}".ljust(size, "x"), age=float(number)) for number in range(count[0])]
    bad = [setback(3 if number < gave_up else 1, name=f"{number:03}".ljust(size, "x")) for number in range(count[1])]
    found = trimmed_memory(EvictionMemory(), watched=observed, setbacks=bad)
    assert len(found.watched) <= MAX_WATCHED
    assert len(found.setbacks) <= MAX_SETBACKS
    assert len(msgspec.json.encode(found.watched)) <= WATCHED_BYTES + 1
    assert len(msgspec.json.encode(found.setbacks)) <= SETBACKS_BYTES + 1
    assert found.forgotten == len(observed) + len(bad) - len(found.watched) - len(found.setbacks)
    assert set(found.watched) == set(observed[: len(found.watched)]), "the latest evictions"
    least = min((each.failures for each in found.setbacks), default=0)
    assert all(each in found.setbacks for each in bad if each.failures > least), "those with the most failures"
    assert found == trimmed_memory(EvictionMemory(), watched=reversed(observed), setbacks=reversed(bad))
