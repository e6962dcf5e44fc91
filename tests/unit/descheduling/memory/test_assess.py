"""What became of a watched eviction, by what the cluster shows of its owner."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.descheduling.memory.remembering import (
    COOLDOWN,
    HOUR,
    MINUTE,
    NOW,
    a_pod,
    memory,
    setback,
    watched,
    written,
)
from tests.unit.descheduling.planning import LIFE_TIME, nodes, web
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.memory.assess import assess

SIBLING = a_pod("sibling", "n2", age=2 * HOUR)


def look(before: EvictionMemory, *pods: Any, now: float = NOW) -> EvictionMemory:
    world = [*(each.build() for each in nodes("n1", "n2", "n3")), *pods]
    after = assess(before, Snapshot(world), COOLDOWN, now=now)
    assert after == assess(before, Snapshot(reversed(world)), COOLDOWN, now=now), "the order of the input has no say"
    assert after == assess(after, Snapshot(world), COOLDOWN, now=now), "a second look at once finds nothing new"
    assert after == written(after), "what is written is what is known"
    return after


WATCHING, LANDED, FORGOTTEN = "watching", "landed", "forgotten"


@pytest.mark.parametrize(
    ("eviction", "pods", "found"),
    [
        pytest.param({}, [a_pod("new", "n1", age=30)], "CameBack", id="came back to the same node"),
        pytest.param({}, [a_pod("new", "n2", age=30)], LANDED, id="came to the target"),
        pytest.param({}, [a_pod("new", "n3", age=30)], LANDED, id="came to a third node"),
        pytest.param({"age": 301.0}, [a_pod("new", age=299)], WATCHING, id="pending for less than the deadline"),
        pytest.param({"age": 301.0}, [a_pod("new", age=300)], "Pending", id="pending for as long as the deadline"),
        pytest.param({}, [], WATCHING, id="no replacement yet"),
        pytest.param({"age": HOUR - 1}, [], WATCHING, id="no replacement for less than an hour"),
        pytest.param({"age": HOUR}, [], FORGOTTEN, id="no replacement for an hour: scaled down"),
        pytest.param(
            {"age": HOUR},
            [a_pod("old", "n1", age=3 * HOUR, deleted=NOW - HOUR)],
            WATCHING,
            id="the pod terminates for hours, for which a StatefulSet waits",
        ),
        pytest.param(
            {"age": 599.0}, [a_pod("old", "n1", age=3 * HOUR)], WATCHING, id="a background eviction has not started"
        ),
        pytest.param({"age": 600.0}, [a_pod("old", "n1", age=3 * HOUR)], FORGOTTEN, id="it was not evicted after all"),
        pytest.param(
            {}, [a_pod("new", "n1", age=HOUR)], WATCHING, id="a sibling that was there before is no replacement"
        ),
        pytest.param(
            {}, [a_pod("new", "n1", age=30, owner="api")], WATCHING, id="a pod of another owner does not count"
        ),
        pytest.param({}, [a_pod("new", "n1", age=30, deleted=NOW)], WATCHING, id="a terminating pod does not count"),
        pytest.param({}, [a_pod("new", "n1", age=30, phase="Failed")], WATCHING, id="a failed pod does not count"),
        pytest.param(
            {},
            [web("new", "n1").cpu("1").uid("uid-new").created("2026-11-20T12:00:00Z").build()],
            WATCHING,
            id="a pod of another template does not count",
        ),
        pytest.param({"strategy": LIFE_TIME}, [a_pod("new", "n1", age=30)], LANDED, id="a new start on the same node"),
        pytest.param(
            {"strategy": LIFE_TIME, "age": 400.0}, [a_pod("new", age=390)], "Pending", id="a new start that never comes"
        ),
        pytest.param(
            {"after": None}, [a_pod("new", "n1", age=61)], WATCHING, id="older than the eviction, by the clock"
        ),
        pytest.param({"after": None}, [a_pod("new", "n1", age=60)], "CameBack", id="as old as the eviction"),
    ],
)
def test_evictions_are_assessed(eviction: dict[str, Any], pods: list[Any], found: str) -> None:
    after = look(memory(watched(**eviction)), SIBLING, *pods)
    if found in {WATCHING, LANDED}:
        [left] = after.watched
        assert bool(left.landed) == (found == LANDED)
        assert after.setbacks == ()
    elif found == FORGOTTEN:
        assert (after.watched, after.setbacks) == ((), ())
    else:
        [bad] = after.setbacks
        assert (bad.trouble, bad.failures, bad.gave_up) == (found, 1, False)
        assert bad.until == to_time(NOW + 10 * MINUTE)
        assert after.watched == ()


@pytest.mark.parametrize(
    ("failures", "minutes", "gave_up"),
    [pytest.param(1, 20, False, id="the second"), pytest.param(2, 40, True, id="the third is the last")],
)
def test_each_failure_doubles_cooldown(failures: int, minutes: int, gave_up: bool) -> None:
    before = memory(watched(), setback(failures, lasts=-HOUR))
    [bad] = look(before, SIBLING, a_pod("new", "n1", age=30)).setbacks
    assert (bad.failures, bad.gave_up) == (failures + 1, gave_up)
    assert bad.until == to_time(NOW + minutes * MINUTE)


def test_cooldown_is_limited() -> None:
    assert [COOLDOWN.seconds(failures) for failures in (1, 2, 3, 8, 9, 500)] == [600, 1200, 2400, 76800, 86400, 86400]


def test_staying_replacement_resets_failures() -> None:
    landed = watched(replacement="uid-new", landed="n2", landed_time=to_time(NOW))
    before = memory(landed, setback(2, age=HOUR))
    pods = SIBLING, a_pod("new", "n2", age=30)
    assert look(before, *pods, now=NOW + HOUR - 1) == before
    assert look(before, *pods, now=NOW + HOUR) == memory()


def test_success_does_not_reset_given_up_owner() -> None:
    landed = watched(replacement="uid-new", landed="n2", landed_time=to_time(NOW - HOUR))
    gave_up = setback(3, age=2 * HOUR)
    assert look(memory(landed, gave_up), SIBLING) == memory(gave_up)


def test_two_evictions_of_an_owner_have_a_replacement_each() -> None:
    before = memory(watched("old-1", age=60), watched("old-2", "n3", age=40))
    pods = SIBLING, a_pod("new-1", "n1", age=50), a_pod("new-2", "n1", age=30)
    after = look(before, *pods)
    assert [(bad.trouble, bad.replacement) for bad in after.setbacks] == [("CameBack", "uid-new-1")]
    assert [(left.uid, left.landed, left.replacement) for left in after.watched] == [("uid-old-2", "n1", "uid-new-2")]


def test_pending_eviction_claims_no_replacement() -> None:
    before = memory(watched("a-waits", age=60), watched("gone", "n1", age=60))
    after = look(before, SIBLING, a_pod("a-waits", "n1", age=3 * HOUR), a_pod("new", "n1", age=30))
    assert [left.uid for left in after.watched] == ["uid-a-waits"]
    assert [bad.replacement for bad in after.setbacks] == ["uid-new"]


def test_a_setback_is_forgotten_with_its_template() -> None:
    changed = web("new", "n1").cpu("1").created("2026-11-20T12:00:00Z").build()
    assert look(memory(setback(3)), changed) == memory()
    both = SIBLING, changed
    assert look(memory(setback(3)), *both) == memory(setback(3)), "while the old pods are replaced it stands"


def test_an_owner_without_pods_is_forgotten_after_an_hour() -> None:
    deleted = look(memory(setback(3)))
    assert deleted == memory(setback(3, gone_time=to_time(NOW)))
    assert look(deleted, now=NOW + HOUR - 1) == deleted
    assert look(deleted, SIBLING, now=NOW + HOUR - 1) == memory(setback(3)), "it had none for a moment only"
    assert look(deleted, now=NOW + HOUR) == memory()


def test_clock_set_back_limits_cooldown_to_maximum() -> None:
    [bad] = look(memory(setback(1, lasts=400 * 24 * HOUR)), SIBLING).setbacks
    assert bad.until == to_time(NOW + 24 * HOUR)


def test_restart_rollout_does_not_reset_setbacks() -> None:
    def of(replica_set: str, hash_: str, name: str) -> Any:
        return (
            web(name, "n1", owner=replica_set)
            .labels({"pod-template-hash": hash_})
            .created("2026-11-20T11:00:00Z")
            .build()
        )

    gave_up = setback(3, kind="Deployment", name="web")
    assert look(memory(gave_up), of("web-5d4f", "5d4f", "web-5d4f-x")) == memory(gave_up)
    assert look(memory(gave_up), of("web-77aa", "77aa", "web-77aa-y")) == memory(gave_up)
    renewed = msgspec.structs.replace(of("web-77aa", "77aa", "web-77aa-y"), spec=web("a").image("app:2").build().spec)
    assert look(memory(gave_up), renewed) == memory()
