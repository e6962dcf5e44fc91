"""Groups asked for more and set right: side by side, each failure alone, none twice."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.fakes.node_provider import FakeProvider
from tests.unit.autoscaling.remembering import SPEC, T0, A, Seen, after, groups_of, options
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.corrections import Correction, corrections
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.growing import AGAIN, SECONDS, Asking, Growing, Outcomes, noted
from trimtab.autoscaling.memory import Findings, State
from trimtab.autoscaling.providers import Failure, Scaled
from trimtab.autoscaling.report.pass_report import Grown

pytestmark = pytest.mark.looptime

B, C = "MachineSet/m/b", "MachineSet/m/c"
THREE = groups_of(Seen(1, name="a"), Seen(2, name="b"), Seen(3, name="c"))[0]


class LoopClock:
    """The running loop's time."""

    def now(self) -> float:
        return T0 + self.monotonic()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def growing(provider: FakeProvider) -> Growing:
    return Growing({"machine.openshift.io": provider}, LoopClock())


def up(groups: Groups, by: Mapping[str, int]) -> list[ScaleUp]:
    made = []
    for id_, more in by.items():
        group = groups.by_id[id_]
        made.append(
            ScaleUp(group.key, from_=group.target, to=group.target + more, reason="", pods=(), message="", group=id_)
        )
    return made


async def test_groups_are_asked_side_by_side() -> None:
    provider = FakeProvider(*THREE.all)
    provider.slow = {A: 1.5, B: 1.5, C: 1.5}

    outcomes = await growing(provider).grow(up(THREE, {A: 1, B: 2, C: 3}), THREE)

    assert asyncio.get_running_loop().time() == pytest.approx(1.5)
    assert [(each.group, each.after, each.done) for each in outcomes] == [(A, 2, True), (B, 4, True), (C, 6, True)]


@pytest.mark.parametrize(
    ("broken", "failure", "doubt"),
    [
        ({"fails": {"failure": Failure.REFUSED}}, Failure.REFUSED, False),
        ({"fails": {"failure": Failure.TIMED_OUT, "doubt": True}}, Failure.TIMED_OUT, True),
        ({"raises": ValueError("a mistake of the provider's own")}, Failure.UNREACHABLE, True),
    ],
    ids=["refuses", "times out", "raises"],
)
async def test_one_groups_failure_is_its_own(broken: dict[str, object], failure: Failure, doubt: bool) -> None:
    provider = FakeProvider(*THREE.all)
    for name, value in broken.items():
        getattr(provider, name)[B] = value

    outcomes = {each.group: each for each in await growing(provider).grow(up(THREE, {A: 1, B: 2, C: 3}), THREE)}

    assert (outcomes[B].failure, outcomes[B].doubt) == (failure, doubt)
    assert outcomes[A].done
    assert outcomes[C].done
    assert provider.targets == {A: 2, B: 2, C: 6}


async def test_a_pass_does_not_wait_for_a_group_that_hangs_and_does_not_ask_it_twice() -> None:
    provider = FakeProvider(*THREE.all)
    provider.hangs = {B}
    all_ = growing(provider)

    first = await all_.grow(up(THREE, {A: 1, B: 2}), THREE, patience=2)
    second = await all_.grow(up(THREE, {B: 2, C: 1}), THREE, patience=2)

    assert [each.group for each in first] == [A]
    assert [each.group for each in second] == [C]
    assert provider.asked == ["increase a to 2", "increase b to 4", "increase c to 4"]
    assert all_.running == {B: Asking(2, 4, T0)}
    assert asyncio.get_running_loop().time() == pytest.approx(2), "the second pass does not wait for it again"
    await asyncio.sleep(SECONDS)
    [late] = all_.take().grown
    assert (late.scaled.failure, late.scaled.doubt, late.at) == (Failure.TIMED_OUT, True, T0)
    assert all_.running == {}
    provider.hangs = set()
    assert [each.done for each in await all_.grow(up(THREE, {B: 2}), THREE)] == [True]


async def test_outcomes_are_told_once() -> None:
    all_ = growing(FakeProvider(*THREE.all))
    all_.begin(up(THREE, {A: 1}), THREE)
    await all_.settled()

    assert len(all_.take().grown) == 1
    assert all_.take() == Outcomes()


async def test_a_group_that_nothing_acts_on_is_refused_in_words() -> None:
    [outcome] = await Growing({}, LoopClock()).grow(up(THREE, {A: 1}), THREE)

    assert outcome.failure is Failure.REFUSED
    assert outcome.message == "nothing here acts on groups of machine.openshift.io"


async def test_the_end_of_the_process_leaves_nothing_running() -> None:
    provider = FakeProvider(*THREE.all)
    provider.hangs = {A}
    all_ = growing(provider)
    await all_.grow(up(THREE, {A: 1}), THREE)

    await all_.finish()

    assert not all_.busy
    assert [task for task in asyncio.all_tasks() if task.get_name().startswith("scale ")] == []


def fix(groups: Groups, findings: Findings) -> list[tuple[str, int, tuple[str, ...]]]:
    return [
        (each.reason, each.to, tuple(machine.name for machine in each.machines))
        for each in corrections(findings, groups)
    ]


@pytest.mark.parametrize(
    ("seen", "time", "expected"),
    [
        (Seen(3, "x=ready@-9999 y!@2 z!@2"), 10, [("DeleteUnregistered", 1, ("y", "z"))]),
        (Seen(3, "x=ready@-9999 y!@2 z!@2", minimum=2), 10, [("DeleteUnregistered", 2, ("y",))]),
        (Seen(3, "x=ready@-9999 y!@2 z!@2", minimum=3), 10, []),
        (Seen(3, "x=ready@-9999 y!@2 z!@2", paused="for a reason"), 10, []),
        (Seen(3, "x=ready@-9999 y@2 z@2"), 899, []),
        (Seen(3, "x=ready@-9999 y@2 z@2"), 902, [("DeleteUnregistered", 1, ("z", "y"))]),
        (Seen(3, "x=ready@-9999 y@2"), 902, [("TargetLowered", 2, ())]),
        (Seen(3, "x=ready@-9999 y!@2"), 902, [("TargetLowered", 2, ())]),
        (Seen(3, "x=ready@-9999", minimum=2), 902, [("TargetLowered", 2, ())]),
        (Seen(3, "x=ready@-9999", minimum=3), 902, []),
        (Seen(3, "x=ready@-9999 y!=ready@2 z-@2"), 10, []),
    ],
    ids=[
        "failed machines go",
        "not below the minimum",
        "none of a group at its minimum",
        "none of a paused group",
        "machines have their time",
        "machines that never joined go",
        "a target without machines is lowered first",
        "also before a failed machine",
        "a target is lowered to the minimum",
        "and not below it",
        "a failed machine with a node stays",
    ],
)
def test_what_is_to_be_done_about_machines_that_will_not_come(
    seen: Seen, time: float, expected: list[tuple[str, int, tuple[str, ...]]]
) -> None:
    state, _ = after(State(targets={A: 1}), 1, Seen(seen.group.target, "x=ready@-9999"))
    _, findings = after(state, time, seen)

    found = [(reason, to, tuple(sorted(names))) for reason, to, names in fix(groups_of(seen)[0], findings)]

    assert found == [(reason, to, tuple(sorted(names))) for reason, to, names in expected]


def test_nothing_is_set_right_while_a_request_does_not_show() -> None:
    seen = Seen(2, "x=ready@-9999 y!@2")
    findings = Findings(asked={A: "a moment ago"}, hopeless={A: seen.group.machines[1:]})

    assert fix(groups_of(seen)[0], findings) == []


def test_a_correction_says_what_goes_and_what_stays() -> None:
    seen = Seen(6, "x=ready v!@2 w!@2 y!@2 z!@2 u!@2", minimum=2)
    [correction] = corrections(Findings(hopeless={A: seen.group.machines[1:]}), groups_of(seen)[0])

    assert correction.message == (
        "failed, or did not become nodes in time, and are taken away: v, w, y and 1 more; 1 more stay, for 2 is its "
        "minimum"
    )


async def test_corrections_go_to_the_provider() -> None:
    seen = Seen(3, "x=ready y!@2 z!@2")
    groups = groups_of(seen, Seen(2, name="b"))[0]
    provider = FakeProvider(*groups.all)
    all_ = growing(provider)

    wanted = [Correction(A, 1, "", "", seen.group.machines[1:]), Correction(B, 0, "", "")]
    assert list(all_.correct(wanted, groups)) == wanted
    assert all_.marking == {A, B}
    assert all_.correct(wanted, groups) == ()
    await all_.settled()

    assert provider.asked == ["remove y z of a", "lower b to 0"]
    assert [(each.group, each.after, each.done) for each in all_.take().corrected] == [(A, 1, True), (B, 0, True)]


async def test_a_correction_that_fails_is_tried_again_after_a_while() -> None:
    provider = FakeProvider(*THREE.all)
    provider.fails = {B: {}}
    all_ = growing(provider)
    wanted = [Correction(B, 1, "", "")]

    assert all_.correct(wanted, THREE)
    await all_.settled()
    assert not all_.correct(wanted, THREE)
    await asyncio.sleep(AGAIN)
    assert all_.correct(wanted, THREE)


async def test_marks_in_doubt_are_taken_back_once_it_is_clear_that_their_machines_stay() -> None:
    seen = Seen(3, "x=ready y@2 z@2")
    groups = groups_of(seen)[0]
    provider = FakeProvider(*groups.all)
    provider.fails = {A: {"failure": Failure.TIMED_OUT, "doubt": True}}
    all_ = growing(provider)
    all_.correct([Correction(A, 2, "", "", seen.group.machines[2:])], groups)
    await all_.settled()

    joined = groups_of(Seen(3, "x=ready y@2 z=ready@2"))[0]
    all_.correct((), joined)
    await all_.settled()

    assert provider.unmarked == ["z of a (trimtab 1.79518e+09)"]
    all_.correct((), joined)
    await all_.settled()
    assert len(provider.unmarked) == 1


async def test_marks_count_as_being_set_until_a_picture_shows_the_size_that_was_lowered_for_them() -> None:
    groups = groups_of(Seen(3, "x=ready y@2 z@2"))[0]
    all_ = growing(FakeProvider(*groups.all))
    all_.correct([Correction(A, 2, "", "", groups.by_id[A].machines[2:])], groups)
    await all_.settled()
    assert all_.busy == frozenset()
    assert all_.marking == {A}
    await asyncio.sleep(31)
    assert all_.marking == frozenset()


def test_what_was_done_is_noted_for_the_next_process() -> None:
    groups = groups_of(Seen(1, name="a"), Seen(2, name="b", options=options(provision_seconds=60)), Seen(5, name="c"))[
        0
    ]
    action = up(groups, {A: 1})[0]
    outcomes = Outcomes((Grown(action, Scaled(A, 1, 2, calls=1), T0),), (Scaled(C, 5, 3, calls=1),))

    state = noted(State(), outcomes, {B: Asking(2, 4, T0 - 5)}, groups, SPEC, now=T0)

    assert state.targets == {A: 2, B: 4, C: 3}
    assert [(each.to, each.doubt, each.deadline - T0) for each in state.scale_ups[A]] == [(2, False, 900)]
    assert [(each.to, each.doubt, each.deadline - T0) for each in state.scale_ups[B]] == [(4, True, 55)]
    assert state.last_scale_up == T0


def test_an_answer_after_the_pass_that_asked_settles_what_was_noted() -> None:
    groups = groups_of(Seen(1))[0]
    state = noted(State(), Outcomes(), {A: Asking(1, 3, T0)}, groups, SPEC, now=T0)
    state, _ = after(state, 10, Seen(1, "x=ready@-9999"))
    state = noted(state, Outcomes(), {A: Asking(1, 3, T0)}, groups, SPEC, now=T0 + 10)
    done = Outcomes((Grown(up(groups, {A: 2})[0], Scaled(A, 1, 3, calls=1), T0),))

    state = noted(state, done, {}, groups, SPEC, now=T0 + 20)

    [increase] = state.scale_ups[A]
    assert (increase.from_, increase.to, increase.since, increase.doubt) == (1, 3, T0, False)
