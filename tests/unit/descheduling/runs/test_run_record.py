"""A plan as an object: its name, its size, and whether it says anything new."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.descheduling.runs.runs import NOW, kept, made, move, policy
from trimtab.api.bounds import fitting
from trimtab.api.descheduling_run import MAX_ACTIONS, MAX_KEPT_PODS, RunPlan
from trimtab.api.plan import Evict
from trimtab.descheduling.runs import record

LONG = "x" * 253
ETCD = 1536 * 1024


def plan_of(*moves: Evict, mode: str = "Approve", generation: int = 1, reasons: tuple[str, ...] = ()) -> RunPlan:
    left = [kept(f"k{index}", reason) for index, reason in enumerate(reasons)]
    return record.run_plan(policy(mode, generation=generation), made(*moves, kept=left), nodes=2, pods=9)


@pytest.mark.parametrize(
    ("name", "attempt", "expected"),
    [
        pytest.param("default", 0, "default-20261120-120000", id="the policy and the time"),
        pytest.param("default", 1, "default-20261120-120000-2", id="the second of that second"),
        pytest.param("a.b", 0, "a.b-20261120-120000", id="a name with a dot"),
    ],
)
def test_a_run_is_named_after_its_policy_and_time(name: str, attempt: int, expected: str) -> None:
    assert record.run_name(name, 1_795_176_000.9, attempt=attempt) == expected


def test_long_policy_names_that_begin_alike_give_runs_of_different_names() -> None:
    one, two = (record.run_name(LONG[:-1] + letter, NOW, attempt=9) for letter in "ab")
    assert one != two
    assert max(len(one), len(two)) <= 253


def test_run_contains_plan_and_counts() -> None:
    plan = plan_of(move("a"), move("b"), reasons=("NoPlace", "NoPlace", "LocalStorage"))
    assert (plan.planned, plan.kept, plan.actions_omitted, plan.kept_omitted) == (2, 3, 0, 0)
    assert [(each.reason, each.count) for each in plan.kept_reasons] == [("LocalStorage", 1), ("NoPlace", 2)]
    assert plan.approve_until is not None
    assert plan.approve_until.timestamp() == NOW + 3600
    assert record.to_evictions(plan) == (move("a"), move("b"))


@pytest.mark.parametrize("mode", ["Simulate", "Act"])
def test_run_without_approval_has_no_deadline(mode: str) -> None:
    assert plan_of(move("a"), mode=mode).approve_until is None


def test_omitted_actions_are_counted() -> None:
    plan = plan_of(*(move(f"web-{index}") for index in range(3000)))
    assert len(plan.actions) == MAX_ACTIONS
    assert plan.actions_omitted == 3000 - MAX_ACTIONS
    assert [action.pod for action in plan.actions[:2]] == ["web-0", "web-1"], "the first of the plan"


def test_largest_run_is_half_of_etcd_limit() -> None:
    moves = [
        move(f"{index:03}{LONG[3:]}", node=LONG, target=LONG, owner=LONG, message="ü" * 5000, uid=f"{index:064}")
        for index in range(800)
    ]
    left = [kept(LONG, reason="R" * 128, strategy=LONG, message="ü" * 5000)] * 800
    plan = record.run_plan(policy(), made(*moves, kept=left), nodes=2, pods=9)
    size = len(msgspec.json.encode(record.manifest(record.run_name(LONG, NOW), plan)))
    assert size < ETCD / 2
    assert plan.actions_omitted == 800 - len(plan.actions) > 0
    assert plan.kept_omitted == 800 - len(plan.kept_pods) >= 800 - MAX_KEPT_PODS


@given(st.lists(st.text(max_size=60), max_size=60), st.integers(0, 50), st.integers(0, 2000))
def test_longest_fitting_prefix_is_kept(names: list[str], limit: int, size: int) -> None:
    moves = [move(name) for name in names]
    taken = fitting(moves, limit=limit, budget=size)
    assert list(taken) == moves[: len(taken)]
    assert len(taken) <= limit
    assert sum(len(msgspec.json.encode(each)) for each in taken) <= size


A, B, C = move("a"), move("b"), move("c")


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        pytest.param(plan_of(A, B), plan_of(B, A), True, id="another order"),
        pytest.param(plan_of(A), plan_of(move("a", target="n3")), True, id="another destination"),
        pytest.param(plan_of(A), plan_of(A, B), False, id="one move more"),
        pytest.param(plan_of(A), plan_of(move("a", uid="other")), False, id="another pod of the same name"),
        pytest.param(plan_of(A), plan_of(move("a", reason="Other")), False, id="another reason"),
        pytest.param(plan_of(A), plan_of(A, generation=2), False, id="another spec"),
        pytest.param(plan_of(reasons=("X",)), plan_of(reasons=("X", "X")), True, id="more kept for the same reason"),
        pytest.param(plan_of(reasons=("X",)), plan_of(reasons=("Y",)), False, id="kept for another reason"),
    ],
)
def test_fingerprints_of_equal_plans_are_equal(one: RunPlan, two: RunPlan, same: bool) -> None:
    assert (record.fingerprint(one) == record.fingerprint(two)) is same


@pytest.mark.parametrize(
    ("waiting", "later", "covered"),
    [
        pytest.param(plan_of(A, B), plan_of(A, B), True, id="the same"),
        pytest.param(plan_of(A, B), plan_of(B, reasons=("X",)), True, id="less of it"),
        pytest.param(plan_of(A, B), plan_of(A, C), False, id="something new"),
        pytest.param(plan_of(A, B), plan_of(), False, id="no actions left"),
        pytest.param(plan_of(A, B), plan_of(A, generation=2), False, id="another spec"),
    ],
)
def test_covering_run_stays_pending(waiting: RunPlan, later: RunPlan, covered: bool) -> None:
    assert record.covers(waiting, later) is covered


def test_a_run_belongs_to_its_policy() -> None:
    manifest = record.manifest("x", plan_of(A))
    [owner] = manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("DeschedulerPolicy", "default", "p1")
    assert "blockOwnerDeletion" not in owner
    assert manifest["metadata"]["labels"][record.POLICY_LABEL] == "p1"
    assert manifest["spec"]["approved"] is False
