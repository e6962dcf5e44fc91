"""Size changes of groups run concurrently, fail independently, and are never repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.fakes.node_provider import FakeProvider
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.cluster_state_helpers import SPEC, T0, A, Observed, after, groups_of, options
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.cluster_state import AutoscalerState, GroupFindings
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.providers import ScaleFailure, ScaleResult
from trimtab.autoscaling.report.iteration_report import ScaleUpOutcome
from trimtab.autoscaling.scale_up_executor import (
    REQUEST_SECONDS,
    RETRY_SECONDS,
    ExecutorResults,
    PendingIncrease,
    ScaleUpExecutor,
    TargetCorrection,
    plan_corrections,
    record_results,
)

pytestmark = pytest.mark.looptime

B, C = "MachineSet/m/b", "MachineSet/m/c"
THREE = groups_of(Observed(1, name="a"), Observed(2, name="b"), Observed(3, name="c"))[0]


class LoopClock:
    """A clock with the running event loop's time."""

    def now(self) -> float:
        return T0 + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def cpu(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def executor_with(provider: FakeProvider) -> ScaleUpExecutor:
    return ScaleUpExecutor({"machine.openshift.io": provider}, LoopClock(), mark_delay=lambda _: 0.0)


def up(groups: Groups, by: Mapping[str, int]) -> list[ScaleUp]:
    made = []
    for id_, more in by.items():
        group = groups.by_id[id_]
        made.append(
            ScaleUp(group.key, from_=group.target, to=group.target + more, reason="", pods=(), message="", group=id_)
        )
    return made


async def test_groups_are_scaled_concurrently() -> None:
    provider = FakeProvider(*THREE.all)
    provider.slow = {A: 1.5, B: 1.5, C: 1.5}

    outcomes = await executor_with(provider).scale_up(up(THREE, {A: 1, B: 2, C: 3}), THREE)

    assert asyncio.get_running_loop().time() == pytest.approx(1.5)
    assert [(each.group, each.after, each.done) for each in outcomes] == [(A, 2, True), (B, 4, True), (C, 6, True)]


@pytest.mark.parametrize(
    ("broken", "failure", "doubt"),
    [
        ({"fails": {"failure": ScaleFailure.REFUSED}}, ScaleFailure.REFUSED, False),
        ({"fails": {"failure": ScaleFailure.TIMED_OUT, "doubt": True}}, ScaleFailure.TIMED_OUT, True),
        ({"raises": ValueError("a mistake of the provider's own")}, ScaleFailure.UNREACHABLE, True),
    ],
    ids=["refuses", "times out", "raises"],
)
async def test_failure_of_one_group_does_not_affect_others(
    broken: dict[str, object], failure: ScaleFailure, doubt: bool
) -> None:
    provider = FakeProvider(*THREE.all)
    for name, value in broken.items():
        getattr(provider, name)[B] = value

    outcomes = {
        each.group: each for each in await executor_with(provider).scale_up(up(THREE, {A: 1, B: 2, C: 3}), THREE)
    }

    assert (outcomes[B].failure, outcomes[B].doubt) == (failure, doubt)
    assert outcomes[A].done
    assert outcomes[C].done
    assert provider.targets == {A: 2, B: 2, C: 6}


async def test_iteration_does_not_wait_for_a_hanging_group_and_does_not_repeat_its_request() -> None:
    provider = FakeProvider(*THREE.all)
    provider.hangs = {B}
    executor = executor_with(provider)

    first = await executor.scale_up(up(THREE, {A: 1, B: 2}), THREE, patience=2)
    second = await executor.scale_up(up(THREE, {B: 2, C: 1}), THREE, patience=2)

    assert [each.group for each in first] == [A]
    assert [each.group for each in second] == [C]
    assert provider.asked == [("increase", "a", 2), ("increase", "b", 4), ("increase", "c", 4)]
    assert executor.running == {B: PendingIncrease(2, 4, T0)}
    assert asyncio.get_running_loop().time() == pytest.approx(2), "the second pass does not wait for it again"
    await asyncio.sleep(REQUEST_SECONDS)
    [late] = executor.take_results().scale_ups
    assert (late.scaled.failure, late.scaled.doubt, late.at) == (ScaleFailure.TIMED_OUT, True, T0)
    assert executor.running == {}
    provider.hangs = set()
    assert [each.done for each in await executor.scale_up(up(THREE, {B: 2}), THREE)] == [True]


async def test_results_are_returned_once() -> None:
    executor = executor_with(FakeProvider(*THREE.all))
    executor.start(up(THREE, {A: 1}), THREE)
    await executor.wait()

    assert len(executor.take_results().scale_ups) == 1
    assert executor.take_results() == ExecutorResults()


async def test_group_without_provider_is_refused(golden: Golden) -> None:
    [outcome] = await ScaleUpExecutor({}, LoopClock()).scale_up(up(THREE, {A: 1}), THREE)

    assert outcome.failure is ScaleFailure.REFUSED
    golden(outcome.message)


async def test_finish_cancels_requests_in_flight() -> None:
    provider = FakeProvider(*THREE.all)
    provider.hangs = {A}
    executor = executor_with(provider)
    await executor.scale_up(up(THREE, {A: 1}), THREE)

    await executor.finish()

    assert not executor.busy
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("scale ")] == []


def fix(groups: Groups, findings: GroupFindings) -> list[tuple[str, int, tuple[str, ...]]]:
    return [
        (each.reason, each.to, tuple(machine.name for machine in each.machines))
        for each in plan_corrections(findings, groups)
    ]


@pytest.mark.parametrize(
    ("seen", "time", "expected"),
    [
        (Observed(3, "x=ready@-9999 y!@2 z!@2"), 10, [("DeleteUnregistered", 1, ("y", "z"))]),
        (Observed(3, "x=ready@-9999 y!@2 z!@2", minimum=2), 10, [("DeleteUnregistered", 2, ("y",))]),
        (Observed(3, "x=ready@-9999 y!@2 z!@2", minimum=3), 10, []),
        (Observed(3, "x=ready@-9999 y!@2 z!@2", paused="for a reason"), 10, []),
        (Observed(3, "x=ready@-9999 y@2 z@2"), 899, []),
        (Observed(3, "x=ready@-9999 y@2 z@2"), 902, [("DeleteUnregistered", 1, ("z", "y"))]),
        (Observed(3, "x=ready@-9999 y@2"), 902, [("TargetLowered", 2, ())]),
        (Observed(3, "x=ready@-9999 y!@2"), 902, [("TargetLowered", 2, ())]),
        (Observed(3, "x=ready@-9999", minimum=2), 902, [("TargetLowered", 2, ())]),
        (Observed(3, "x=ready@-9999", minimum=3), 902, []),
        (Observed(3, "x=ready@-9999 y!=ready@2 z-@2"), 10, []),
    ],
    ids=[
        "failed machines are deleted",
        "not below the minimum",
        "none of a group at its minimum",
        "none of a paused group",
        "machines within their deadline",
        "late machines are deleted",
        "a target without machines is lowered first",
        "also before a failed machine",
        "a target is lowered to the minimum",
        "and not below it",
        "a failed machine with a node stays",
    ],
)
def test_corrections_for_failed_and_late_machines(
    seen: Observed, time: float, expected: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    state, _ = after(AutoscalerState(targets={A: 1}), 1, Observed(seen.group.target, "x=ready@-9999"))
    _, findings = after(state, time, seen)

    found = [(reason, to, tuple(sorted(names))) for reason, to, names in fix(groups_of(seen)[0], findings)]

    assert found == [(reason, to, tuple(sorted(names))) for reason, to, names in expected]


def test_no_correction_while_a_request_is_not_visible() -> None:
    observed = Observed(2, "x=ready@-9999 y!@2")
    findings = GroupFindings(unobserved_requests={A: "a moment ago"}, unregistered={A: observed.group.machines[1:]})

    assert fix(groups_of(observed)[0], findings) == []


def test_correction_message_names_deleted_and_kept_machines(golden: Golden) -> None:
    observed = Observed(6, "x=ready v!@2 w!@2 y!@2 z!@2 u!@2", minimum=2)
    [correction] = plan_corrections(
        GroupFindings(unregistered={A: observed.group.machines[1:]}), groups_of(observed)[0]
    )

    golden(correction.message)


async def test_corrections_are_sent_to_the_provider() -> None:
    observed = Observed(3, "x=ready y!@2 z!@2")
    groups = groups_of(observed, Observed(2, name="b"))[0]
    provider = FakeProvider(*groups.all)
    executor = executor_with(provider)

    wanted = [TargetCorrection(A, 1, "", "", observed.group.machines[1:]), TargetCorrection(B, 0, "", "")]
    assert list(executor.correct(wanted, groups)) == wanted
    assert executor.marking == {A, B}
    assert executor.correct(wanted, groups) == ()
    await executor.wait()

    assert sorted(provider.asked) == [("lower", "b", 0), ("remove", "a", "y", "z")]
    assert [(each.group, each.after, each.done) for each in executor.take_results().corrections] == [
        (A, 1, True),
        (B, 0, True),
    ]


async def test_size_is_lowered_only_after_the_mark_delay() -> None:
    groups = groups_of(Observed(3, "x=ready y@2 z@2"))[0]
    provider = FakeProvider(*groups.all)
    executor = ScaleUpExecutor(
        {"machine.openshift.io": provider}, LoopClock(), mark_delay=lambda group: {A: 15.0}[group.id]
    )

    executor.correct([TargetCorrection(A, 2, "", "", groups.by_id[A].machines[2:])], groups)
    await asyncio.sleep(14)
    assert (provider.asked, executor.busy) == ([], {A})
    await asyncio.sleep(2)
    assert provider.asked == [("remove", "a", "z")]


async def test_failed_correction_is_retried_later() -> None:
    provider = FakeProvider(*THREE.all)
    provider.fails = {B: {}}
    executor = executor_with(provider)
    wanted = [TargetCorrection(B, 1, "", "")]

    assert executor.correct(wanted, THREE)
    await executor.wait()
    assert not executor.correct(wanted, THREE)
    await asyncio.sleep(RETRY_SECONDS)
    assert executor.correct(wanted, THREE)


async def test_unverified_marks_are_removed_once_their_machines_are_kept() -> None:
    observed = Observed(3, "x=ready y@2 z@2")
    groups = groups_of(observed)[0]
    provider = FakeProvider(*groups.all)
    provider.fails = {A: {"failure": ScaleFailure.TIMED_OUT, "doubt": True}}
    executor = executor_with(provider)
    executor.correct([TargetCorrection(A, 2, "", "", observed.group.machines[2:])], groups)
    await executor.wait()

    joined = groups_of(Observed(3, "x=ready y@2 z=ready@2"))[0]
    executor.correct((), joined)
    await executor.wait()

    assert provider.unmarked == [("a", "z", f"trimtab {T0:g}")]
    executor.correct((), joined)
    await executor.wait()
    assert len(provider.unmarked) == 1


async def test_group_counts_as_marking_until_a_snapshot_shows_the_lower_size() -> None:
    groups = groups_of(Observed(3, "x=ready y@2 z@2"))[0]
    executor = executor_with(FakeProvider(*groups.all))
    executor.correct([TargetCorrection(A, 2, "", "", groups.by_id[A].machines[2:])], groups)
    await executor.wait()
    assert executor.busy == frozenset()
    assert executor.marking == {A}
    await asyncio.sleep(31)
    assert executor.marking == frozenset()


def test_results_are_recorded_for_the_next_process() -> None:
    groups = groups_of(
        Observed(1, name="a"),
        Observed(2, name="b", options=options(provision_seconds=60)),
        Observed(5, name="c"),
    )[0]
    action = up(groups, {A: 1})[0]
    outcomes = ExecutorResults(
        (ScaleUpOutcome(action, ScaleResult(A, 1, 2, calls=1), T0),), (ScaleResult(C, 5, 3, calls=1),)
    )

    state = record_results(AutoscalerState(), outcomes, {B: PendingIncrease(2, 4, T0 - 5)}, groups, SPEC, now=T0)

    assert state.targets == {A: 2, B: 4, C: 3}
    assert [(each.to, each.doubt, each.deadline - T0) for each in state.scale_ups[A]] == [(2, False, 900)]
    assert [(each.to, each.doubt, each.deadline - T0) for each in state.scale_ups[B]] == [(4, True, 55)]
    assert state.last_scale_up == T0


def test_late_result_settles_the_recorded_request() -> None:
    groups = groups_of(Observed(1))[0]
    state = record_results(AutoscalerState(), ExecutorResults(), {A: PendingIncrease(1, 3, T0)}, groups, SPEC, now=T0)
    state, _ = after(state, 10, Observed(1, "x=ready@-9999"))
    state = record_results(state, ExecutorResults(), {A: PendingIncrease(1, 3, T0)}, groups, SPEC, now=T0 + 10)
    done = ExecutorResults((ScaleUpOutcome(up(groups, {A: 2})[0], ScaleResult(A, 1, 3, calls=1), T0),))

    state = record_results(state, done, {}, groups, SPEC, now=T0 + 20)

    [increase] = state.scale_ups[A]
    assert (increase.from_, increase.to, increase.since, increase.doubt) == (1, 3, T0, False)
