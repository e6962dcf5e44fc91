"""Which approved moves are made once they are judged again, and what is reported about the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.descheduling.runs.runs import kept, made, move
from trimtab.api.plan import Evict, Kept
from trimtab.descheduling.runs.record import recheck_approved

A, B, C = move("a"), move("b"), move("c")
HIGH = {"strategy": "HighNodeUtilization", "reason": "NodeUnderutilized"}
REMOVED = {"target": "", "strategy": "RemoveFailedPods", "reason": "PodFailed"}


@pytest.mark.parametrize(
    ("approved", "fresh", "left", "present", "execute", "dropped"),
    [
        pytest.param([A, B], [A, B], [], "ab", "ab", [], id="all still hold"),
        pytest.param([A, B], [B, A], [], "ab", "ba", [], id="in the order of the new plan"),
        pytest.param([A], [A, C], [], "a", "a", [], id="an eviction that was not approved is not made"),
        pytest.param(
            [A, B], [A], [], "ab", "a", [("b", "Skipped", "NoLongerPlanned")], id="the violation no longer exists"
        ),
        pytest.param([A, B], [A], [], "a", "a", [("b", "Gone", "AlreadyGone")], id="gone"),
        pytest.param([A], [], [kept("a")], "a", "", [("a", "Skipped", "NoPlace")], id="with the reason that keeps it"),
        pytest.param(
            [A],
            [],
            [kept("a", "LimitReached", strategy="PodLifeTime")],
            "a",
            "",
            [("a", "Skipped", "NoLongerPlanned")],
            id="a refusal for another strategy does not count",
        ),
        pytest.param(
            [A],
            [move("a", strategy="PodLifeTime", reason="PodLifeTimeExceeded")],
            [],
            "a",
            "",
            [("a", "Skipped", "NoLongerPlanned")],
            id="for another reason than was approved",
        ),
        pytest.param(
            [move("a", **REMOVED)],
            [move("a", **{**REMOVED, "target": "n2"})],
            [],
            "a",
            "",
            [("a", "Skipped", "PlanOutdated")],
            id="a removal that would be a move",
        ),
        pytest.param(
            [A],
            [move("a", uid="uid-other")],
            [],
            "",
            "",
            [("a", "Gone", "AlreadyGone")],
            id="a later pod of the same name",
        ),
        pytest.param(
            [move("a", **HIGH), move("b", node="n3", **HIGH)],
            [move("a", **HIGH), move("c", **HIGH), move("b", node="n3", **HIGH)],
            [],
            "abc",
            "b",
            [("a", "Skipped", "NoLongerPlanned")],
            id="a node that the approved evictions cannot drain",
        ),
    ],
)
def test_only_valid_approved_moves_are_executed(
    approved: list[Evict],
    fresh: list[Evict],
    left: list[Kept],
    present: str,
    execute: str,
    dropped: list[tuple[str, str, str]],
) -> None:
    judged = recheck_approved(approved, made(*fresh, kept=left), present=frozenset(f"uid-{name}" for name in present))
    assert [action.pod for action in judged.execute] == list(execute)
    assert [(each.action.pod, each.result, each.reason) for each in judged.dropped] == dropped


def test_target_of_new_plan_is_used() -> None:
    judged = recheck_approved([A], made(move("a", target="n9")), present=frozenset({A.uid}))
    assert judged.execute[0].target == "n9"


def test_every_move_is_executed_or_reported() -> None:
    judged = recheck_approved([A, B, C], made(C), present=frozenset({A.uid, C.uid}))
    assert {each.uid for each in judged.execute} | {each.action.uid for each in judged.dropped} == {A.uid, B.uid, C.uid}


@given(
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["RemoveDuplicates", "HighNodeUtilization"])), max_size=20)
)
def test_unchanged_cluster_executes_all_approved_moves(pods: list[tuple[int, str]]) -> None:
    plan = made(*(move(f"p{number}", strategy=strategy) for number, strategy in dict(pods).items()))
    judged = recheck_approved(plan.actions, plan, present=frozenset(action.uid for action in plan.actions))
    assert judged.execute == plan.actions
    assert judged.dropped == ()


@given(
    approved=st.sets(st.integers(0, 9)),
    fresh=st.sets(st.integers(0, 9)),
    present=st.sets(st.integers(0, 9)),
    strategy=st.sampled_from(["RemoveDuplicates", "HighNodeUtilization"]),
)
def test_unapproved_or_invalid_moves_are_not_executed(
    approved: set[int], fresh: set[int], present: set[int], strategy: str
) -> None:
    moves = {number: move(f"p{number}", strategy=strategy) for number in range(10)}
    wanted = [moves[number] for number in sorted(approved)]
    here = frozenset(moves[number].uid for number in present)
    judged = recheck_approved(wanted, made(*(moves[number] for number in sorted(fresh))), present=here)
    deleted = {action.uid for action in judged.execute}
    assert deleted <= {moves[number].uid for number in approved & fresh & present}
    assert deleted | {outcome.action.uid for outcome in judged.dropped} == {action.uid for action in wanted}
    assert len(judged.execute) + len(judged.dropped) == len(wanted)
