"""The look at a move right before it is made: by what was measured since it was planned."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.descheduling.planning import DUPLICATES, NOW, built, policy, web
from tests.unit.descheduling.test_low_node_utilization import CPU as BY_REQUESTS
from tests.unit.descheduling.test_low_node_utilization import big, filled
from tests.unit.descheduling.test_real_use import CPU as BY_USE
from tests.unit.descheduling.test_real_use import used
from tests.unit.descheduling.test_use_by_query import LOAD, loads
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage
from trimtab.descheduling.planner import plan
from trimtab.descheduling.recheck import still_holds

THINGS = [big("n1"), big("n2"), *filled("n1", 2)]
BUSY = used({"n1": 6, "n2": 1}, {"p0": 1, "p1": 1})
LOADED = loads({"n1": 0.6, "n2": 0.1})


def judged(strategies: dict[str, Any], before: Usage | None, now: Usage | None, later: list[Any] = THINGS) -> Any:
    """What is thought of the plan's only move, with what is there and measured later."""
    given = policy(strategies)
    usages = {} if before is None else {"default": before}
    (action,) = plan(Snapshot(built(THINGS)), [given], now=NOW, usages=usages).actions
    refusal = still_holds(Snapshot(built(later)), given, action, NOW, usage=now)
    return None if refusal is None else (refusal.reason, refusal.message)


@pytest.mark.parametrize(
    ("strategies", "before", "now", "reason", "words"),
    [
        pytest.param(BY_USE, BUSY, BUSY, None, "", id="nothing has changed"),
        pytest.param(BY_USE, BUSY, used({"n1": 5, "n2": 1}), "PlanOutdated", "cpu 50%", id="the node is busy no more"),
        pytest.param(
            BY_USE,
            BUSY,
            used({"n1": 6, "n2": 4.5}, {"p0": 1}),
            "PlanOutdated",
            "above a target with it",
            id="others are",
        ),
        pytest.param(BY_USE, BUSY, used({"n2": 1}), "NotMeasured", "no measurement", id="nobody knows of the node"),
        pytest.param(
            BY_USE, BUSY, used({"n1": 6}), "PlanOutdated", "was not measured", id="nobody knows of the others"
        ),
        pytest.param(BY_USE, BUSY, used({}, problem="gone"), "NotMeasured", "gone", id="nobody measures any more"),
        pytest.param(LOAD, LOADED, LOADED, None, "", id="a query's answer has not changed"),
        pytest.param(LOAD, LOADED, loads({"n1": 0.4, "n2": 0.1}), "PlanOutdated", "MetricResource 40%", id="it has"),
        pytest.param(
            LOAD, LOADED, loads({"n1": 0.6, "n2": 0.5}), "PlanOutdated", "above a target", id="for the others"
        ),
    ],
)
def test_a_move_by_real_use_is_judged_again_by_it(
    strategies: dict[str, Any], before: Usage, now: Usage, reason: str | None, words: str
) -> None:
    found = judged(strategies, before, now)
    assert (found and found[0]) == reason
    assert words in (found[1] if found else "")


def test_what_is_on_its_way_out_since_no_longer_weighs_on_the_node() -> None:
    first, second = filled("n1", 2)
    later = [big("n1"), big("n2"), first, second.deleted()]
    assert judged(BY_USE, BUSY, BUSY, later) == (
        "PlanOutdated",
        "n1 is no longer above any target by real use: cpu 50%",
    )


def test_other_strategies_moves_are_not_judged_by_use() -> None:
    given = policy({DUPLICATES: {}, **BY_USE})
    things = built([big("n1"), big("n2"), web("a", "n1"), web("b", "n1")])
    idle = used({"n1": 0, "n2": 0})
    (action,) = plan(Snapshot(things), [given], now=NOW, usages={"default": idle}).actions
    assert action.strategy == DUPLICATES
    assert still_holds(Snapshot(things), given, action, NOW, usage=used({})) is None


def test_a_plan_by_requests_asks_for_no_measurement() -> None:
    things = [big("n1"), big("n2"), *filled("n1", 6)]
    given = policy(BY_REQUESTS)
    (action,) = plan(Snapshot(built(things)), [given], now=NOW).actions
    assert still_holds(Snapshot(built(things)), given, action, NOW, usage=used({})) is None
