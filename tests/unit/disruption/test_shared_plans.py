"""What controllers of one process let each other know of their plans."""

from __future__ import annotations

import pytest

from trimtab.api.plan import SURGE, Evict
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, SKIPPED, STARTED, Outcome
from trimtab.disruption.shared_plans import COUNTS_FOR, FORGOTTEN_AFTER, SharedPlans

NOW = 1_000.0


def move(name: str = "web-1", **more: str) -> Evict:
    fields = {"node": "n1", "target": "n2", "uid": f"uid-{name}", **more}
    return Evict(policy="default", strategy="S", namespace="shop", pod=name, reason="R", message="m", **fields)


def outcome(action: Evict, result: str) -> Outcome:
    return Outcome(action, result, "R", "m", NOW)


def counted(plans: SharedPlans, now: float = NOW) -> list[str]:
    return [each.pod for each in plans.moves(now=now)]


def test_moves_count_during_execution() -> None:
    plans = SharedPlans()
    with plans.carrying_out([move("b"), move("a")], now=NOW):
        assert counted(plans) == ["shop/a", "shop/b"]
    assert counted(plans) == []


@pytest.mark.parametrize(
    "action", [move(target=""), move(target="n1"), move(how=SURGE)], ids=["removal", "restart in place", "surge"]
)
def test_actions_that_free_no_capacity_do_not_count(action: Evict) -> None:
    plans = SharedPlans()
    with plans.carrying_out([action], now=NOW):
        assert counted(plans) == []


@pytest.mark.parametrize("result", [FAILED, REFUSED, SKIPPED, STARTED])
def test_failed_move_stops_counting(result: str) -> None:
    plans = SharedPlans()
    with plans.carrying_out([move("a"), move("b")], now=NOW):
        plans.settle(outcome(move("a"), result))
        assert counted(plans) == ["shop/b"]


def test_evicted_pod_counts_until_expiry() -> None:
    plans = SharedPlans()
    with plans.carrying_out([move("a"), move("b")], now=NOW):
        plans.settle(outcome(move("a"), EVICTED))
    assert counted(plans) == ["shop/a"]
    assert counted(plans, NOW + COUNTS_FOR - 1) == ["shop/a"]
    assert counted(plans, NOW + COUNTS_FOR) == []


def test_stuck_plan_counts_for_two_minutes() -> None:
    plans = SharedPlans()
    with plans.carrying_out([move()], now=NOW):
        assert counted(plans, NOW + COUNTS_FOR) == []


def test_repeated_move_does_not_extend_expiry() -> None:
    plans = SharedPlans()
    for cycle in range(5):
        now = NOW + 60 * cycle
        with plans.carrying_out([move()], now=now):
            assert counted(plans, now) == (["shop/web-1"] if 60 * cycle < COUNTS_FOR else [])


def test_move_counts_again_after_an_hour_without_plan() -> None:
    plans = SharedPlans()
    with plans.carrying_out([move()], now=NOW):
        pass
    with plans.carrying_out([move()], now=NOW + FORGOTTEN_AFTER):
        assert counted(plans, NOW + FORGOTTEN_AFTER) == ["shop/web-1"]


def test_error_during_execution_withdraws_moves() -> None:
    plans = SharedPlans()
    with pytest.raises(RuntimeError), plans.carrying_out([move()], now=NOW):
        raise RuntimeError
    assert counted(plans) == []
