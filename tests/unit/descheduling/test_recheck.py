"""The look at a move right before it is made: by what was measured since it was planned."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import DUPLICATES, NOW, built, policy, web
from tests.unit.descheduling.test_low_node_utilization import CPU as BY_REQUESTS
from tests.unit.descheduling.test_low_node_utilization import big, filled
from tests.unit.descheduling.test_measured_utilization import CPU as BY_USE
from tests.unit.descheduling.test_measured_utilization import used
from tests.unit.descheduling.test_queried_utilization import LOAD, loads
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.descheduling.planning.recheck import recheck_move

THINGS = [big("n1"), big("n2"), *filled("n1", 2)]
BUSY = used({"n1": 6, "n2": 1}, {"p0": 1, "p1": 1})
LOADED = loads({"n1": 0.6, "n2": 0.1})


def judged(strategies: dict[str, Any], before: Usage | None, now: Usage | None, later: list[Any] = THINGS) -> Any:
    """What is thought of the plan's only move, with what is there and measured later."""
    given = policy(strategies)
    usages = {} if before is None else {"default": before}
    (action,) = plan_evictions(Snapshot(built(THINGS)), [given], now=NOW, usages=usages).actions
    refusal = recheck_move(Snapshot(built(later)), given, action, NOW, usage=now)
    return None if refusal is None else (refusal.reason, refusal.message)


@pytest.mark.parametrize(
    ("strategies", "before", "now", "reason", "words"),
    [
        pytest.param(BY_USE, BUSY, BUSY, None, "", id="unchanged"),
        pytest.param(BY_USE, BUSY, used({"n1": 5, "n2": 1}), "PlanOutdated", "cpu 50%", id="the node is busy no more"),
        pytest.param(
            BY_USE,
            BUSY,
            used({"n1": 6, "n2": 4.5}, {"p0": 1}),
            "PlanOutdated",
            "would exceed a target",
            id="others are",
        ),
        pytest.param(BY_USE, BUSY, used({"n2": 1}), "NotMeasured", "no value for it", id="the node was not measured"),
        pytest.param(
            BY_USE, BUSY, used({"n1": 6}), "PlanOutdated", "was not measured", id="the other nodes were not measured"
        ),
        pytest.param(BY_USE, BUSY, used({}, problem="gone"), "NotMeasured", "gone", id="no measurement any more"),
        pytest.param(LOAD, LOADED, LOADED, None, "", id="a query's answer has not changed"),
        pytest.param(LOAD, LOADED, loads({"n1": 0.4, "n2": 0.1}), "PlanOutdated", "MetricResource 40%", id="it has"),
        pytest.param(
            LOAD, LOADED, loads({"n1": 0.6, "n2": 0.5}), "PlanOutdated", "exceed a target", id="for the others"
        ),
    ],
)
def test_eviction_by_measured_utilization_is_rechecked(
    strategies: dict[str, Any], before: Usage, now: Usage, reason: str | None, words: str
) -> None:
    found = judged(strategies, before, now)
    assert (found and found[0]) == reason
    assert words in (found[1] if found else "")


def test_newly_terminating_pods_no_longer_count_as_utilization(golden: Golden) -> None:
    first, second = filled("n1", 2)
    later = [big("n1"), big("n2"), first, second.deleted()]
    reason, message = judged(BY_USE, BUSY, BUSY, later)
    assert reason == "PlanOutdated"
    golden(message)


def test_other_strategies_evictions_are_not_rechecked_by_utilization() -> None:
    given = policy({DUPLICATES: {}, **BY_USE})
    objects = built([big("n1"), big("n2"), web("a", "n1"), web("b", "n1")])
    idle = used({"n1": 0, "n2": 0})
    (action,) = plan_evictions(Snapshot(objects), [given], now=NOW, usages={"default": idle}).actions
    assert action.strategy == DUPLICATES
    assert recheck_move(Snapshot(objects), given, action, NOW, usage=used({})) is None


def test_plan_by_requests_needs_no_measurement() -> None:
    objects = [big("n1"), big("n2"), *filled("n1", 6)]
    given = policy(BY_REQUESTS)
    (action,) = plan_evictions(Snapshot(built(objects)), [given], now=NOW).actions
    assert recheck_move(Snapshot(built(objects)), given, action, NOW, usage=used({})) is None
