"""How long annotations hold pods that a strategy wants to move: ``protections.maxHold``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import budget
from tests.unit.descheduling.planning import DUPLICATES, NOW, built, kept, moves, nodes, policy, utilization, web
from trimtab.api import reasons
from trimtab.api.descheduler_status import MAX_HELD, EvictionMemory, HeldWorkload
from trimtab.api.plan import Plan
from trimtab.api.scalars import to_time
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.descheduling.memory.cycle_memory import CycleMemory, valid_memory
from trimtab.descheduling.memory.holds import held_too_long, record_holds
from trimtab.descheduling.planning import planner
from trimtab.descheduling.planning.recheck import recheck_move

HOUR = 3600.0
EVICT = {"descheduler.alpha.kubernetes.io/evict": "false"}
STAY = {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "true"}
WEB = OwnerKey("shop", "ReplicaSet", "web")


def held(seconds: float, *, seen: float = 0.0) -> EvictionMemory:
    """A memory by which the ReplicaSet is held for so long."""
    return EvictionMemory(held=(HeldWorkload(*WEB[:3], since=to_time(NOW - seconds), seen=to_time(NOW - seen)),))


def duplicates(annotations: dict[str, str], *more: Any) -> list[Any]:
    """Two pods of one ReplicaSet on a node, and an empty node."""
    return [*nodes("n1", "n2"), *(web(name, "n1").annotations(annotations) for name in ("a", "b")), *more]


def cycle(
    things: list[Any], memory: EvictionMemory, max_hold: str | None = "1h", **protections: Any
) -> tuple[Plan, EvictionMemory]:
    """The plan with a memory, and the memory after it."""
    limit = {} if max_hold is None else {"maxHold": max_hold}
    given = policy({DUPLICATES: {}}, protections={**limit, **protections})
    snapshot = Snapshot(built(things))
    made = planner.plan_evictions(snapshot, [given], now=NOW, memories={"default": memory})
    keeper = CycleMemory(memory, given.spec.cooldown, max_hold=given.spec.protections.max_hold_seconds)
    keeper.planned(made, snapshot, now=NOW)
    return made, keeper.memory


@pytest.mark.parametrize(
    ("annotations", "protections", "reason"),
    [(EVICT, {}, reasons.EVICT_ANNOTATION), (STAY, {"noEvictionPolicy": "Mandatory"}, reasons.NO_EVICTION_ANNOTATION)],
)
def test_an_annotation_holds_a_pod_until_max_hold(annotations, protections, reason):
    objects = duplicates(annotations)
    made, memory = cycle(objects, EvictionMemory(), **protections)
    assert (moves(made), set(kept(made).values())) == ([], {reason})
    assert memory == held(0)
    made, memory = cycle(objects, held(HOUR - 1, seen=60), **protections)
    assert (moves(made), memory) == ([], held(HOUR - 1))
    made, memory = cycle(objects, held(HOUR), **protections)
    assert (moves(made), memory) == ([("a", "n1", "n2")], held(HOUR))
    assert (moves(cycle(objects, held(1000 * HOUR), None, **protections)[0])) == []


def test_hold_is_recorded_if_another_strategy_keeps_the_pod_too():
    low = utilization({"cpu": 30}, {"cpu": 40})
    low["LowNodeUtilization"]["params"]["evictableNamespaces"] = {"exclude": ["shop"]}
    given = policy({DUPLICATES: {}, **low}, protections={"maxHold": "1h"})
    snapshot = Snapshot(built([*nodes("n1", "n2"), *(web(name, "n1").cpu("1").annotations(EVICT) for name in "ab")]))
    made = planner.plan_evictions(snapshot, [given], now=NOW)
    assert [each.reason for each in made.kept if each.name == "b"] == [
        reasons.EVICT_ANNOTATION,
        reasons.NAMESPACE_NOT_EVICTABLE,
    ]
    assert record_holds(EvictionMemory(), made, snapshot, HOUR, now=NOW) == held(0)


def test_held_too_long_passes_recheck():
    objects = duplicates(EVICT)
    given = policy({DUPLICATES: {}}, protections={"maxHold": "1h"})
    (action,) = cycle(objects, held(HOUR))[0].actions
    snapshot = Snapshot(built(objects))
    assert recheck_move(snapshot, given, action, NOW, memory=held(HOUR)) is None
    refusal = recheck_move(snapshot, given, action, NOW)
    assert refusal is not None
    assert refusal.reason == reasons.EVICT_ANNOTATION


def test_a_change_of_the_annotation_begins_no_new_period():
    """Without the annotation the pods would go: a budget keeps them meanwhile, and the annotation comes back."""
    guard = budget("guard").selecting(app="web").allowing(0)
    made, memory = cycle(duplicates({}, guard), held(HOUR / 2, seen=60))
    assert (set(kept(made).values()), memory) == ({reasons.DISRUPTION_BUDGET}, held(HOUR / 2))


def test_pdb_applies_after_max_hold():
    guard = budget("guard").selecting(app="web").allowing(0)
    made, _ = cycle(duplicates(EVICT, guard), held(1000 * HOUR))
    assert (moves(made), set(kept(made).values())) == ([], {reasons.DISRUPTION_BUDGET})


def test_a_period_ends_once_no_strategy_has_wanted_a_pod_for_max_hold():
    objects = [*nodes("n1", "n2"), web("a", "n1").annotations(EVICT)]
    assert cycle(objects, held(2 * HOUR, seen=HOUR - 1))[1] == held(2 * HOUR, seen=HOUR - 1)
    assert cycle(objects, held(2 * HOUR, seen=HOUR))[1] == EvictionMemory()


def test_without_max_hold_nothing_is_recorded():
    assert cycle(duplicates(EVICT), held(HOUR), None)[1] == EvictionMemory()


def test_a_new_generation_of_the_spec_begins_no_new_period():
    assert valid_memory(held(HOUR), generation=7, try_again="").held == held(HOUR).held


def test_the_record_is_bounded_and_keeps_the_longest_held():
    many = [web(f"p{number}", "n1", owner=f"r{number:03}").annotations(EVICT) for number in range(MAX_HELD + 5)]
    snapshot = Snapshot(built([*nodes("n1"), *many]))
    plan = planner.plan_evictions(
        snapshot, [policy({"PodLifeTime": {"params": {"maxPodLifeTimeSeconds": 1}}})], now=NOW
    )
    assert len(record_holds(held(HOUR), plan, snapshot, HOUR, now=NOW).held) <= MAX_HELD
    assert record_holds(held(HOUR), plan, snapshot, HOUR, now=NOW).held[0] == held(HOUR).held[0]


def test_workloads_that_are_held_too_long():
    spec = policy({DUPLICATES: {}}, protections={"maxHold": "1h"}).spec
    assert held_too_long(held(HOUR), spec, now=NOW) == {WEB}
    assert held_too_long(held(HOUR - 1), spec, now=NOW) == frozenset()
    assert held_too_long(held(HOUR), policy({DUPLICATES: {}}).spec, now=NOW) == frozenset()
