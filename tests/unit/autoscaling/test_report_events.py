"""The autoscaler's events: on which objects, with which reasons, and how often."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.recorder import FakeRecorder
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.iteration_reports import (
    NOW,
    group,
    grown,
    id_of,
    kept_node,
    kept_pod,
    plan,
    removal,
    remove,
    removed,
    report,
    scale_up,
    waiting,
)
from trimtab.api import reasons
from trimtab.api.plan import Kept
from trimtab.autoscaling.actuation.removal import RemovalObserver, RemovalResult
from trimtab.autoscaling.cluster_state.readiness import ClusterHealth
from trimtab.autoscaling.cluster_state.state import GroupFinding
from trimtab.autoscaling.groups import ObjectProblem
from trimtab.autoscaling.providers.outcome import ScaleFailure
from trimtab.autoscaling.report.events import BLOCKED_REPEAT, MAX_POD_EVENTS, AutoscalerEventReporter
from trimtab.autoscaling.report.iteration_report import Mode
from trimtab.kube.events.event import RecentlyReported


@pytest.fixture
def recorder() -> FakeRecorder:
    return FakeRecorder()


@pytest.fixture
def events(recorder: FakeRecorder) -> AutoscalerEventReporter:
    return AutoscalerEventReporter(recorder)


AUTOSCALER = "ClusterAutoscaler/default"


def targets_of(events: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    return [(about, reason) for about, reason, _ in events]


def notes_of(events: list[tuple[str, str, str]]) -> str:
    return "\n".join(note for _, _, note in events)


class TestScaleUp:
    def test_scale_up_is_reported_on_the_autoscaler_and_each_pod(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
    ) -> None:
        action = scale_up(pods=("shop/web-1", "shop/web-2"))
        events.report(
            report(
                group(), scale_up_outcomes=[grown(action)], pending_pods=waiting("shop/web-1", "shop/web-2"), uid="u"
            )
        )

        first, *pods = recorder.events
        assert (first["regarding"].name, first["regarding"].uid, first["reason"]) == ("default", "u", "ScaledUpGroup")
        assert (first["related"].kind, first["related"].uid) == ("MachineSet", "uid-of-a")
        assert [(each["regarding"].uid, each["reason"]) for each in pods] == [
            ("uid-of-shop/web-1", "TriggeredScaleUp"),
            ("uid-of-shop/web-2", "TriggeredScaleUp"),
        ]
        golden(notes_of(recorder.take()))

    def test_failed_scale_up_is_reported_on_the_autoscaler_and_each_pod(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
    ) -> None:
        failed = grown(scale_up(), failure=ScaleFailure.CONFLICT, message="its size is 3 by now")
        events.report(report(group(), scale_up_outcomes=[failed]))
        assert recorder.events[0]["type"] == "Warning"
        taken = recorder.take()
        assert targets_of(taken) == [
            (AUTOSCALER, "FailedToScaleUpGroup"),
            ("Pod/shop/web-1", "NotTriggerScaleUp"),
        ]
        golden(notes_of(taken))

    def test_unhelped_pods_get_an_event_with_the_reason(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
    ) -> None:
        events.report(
            report(group(), scale_up_outcomes=[grown(scale_up())], plan=plan(scale_up(), kept=(kept_pod("shop/db-0"),)))
        )
        [message] = [
            text for about, reason, text in recorder.take() if (about, reason) == ("Pod/shop/db-0", "NotTriggerScaleUp")
        ]
        golden(message)

    @pytest.mark.parametrize(
        "reason", ["FitsOnNode", "FitsOnUpcomingNode", "Nominated", "NotUnschedulable", "Terminating", "ScaleUpDelayed"]
    )
    def test_pods_that_need_no_scale_up_get_no_event(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, reason: str
    ) -> None:
        events.report(report(group(), plan=plan(kept=(kept_pod("shop/a", reason),))))
        assert recorder.take() == []

    @pytest.mark.parametrize(
        ("later", "message", "again"),
        [
            pytest.param(10, "a has 9 of 9 nodes", False, id="unchanged"),
            pytest.param(10, "a has 8 of 8 nodes", False, id="other numbers"),
            pytest.param(10, "a has 9 (3 planned now) of 9 nodes", False, id="nodes that are only planned"),
            pytest.param(10, "a is paused", True, id="another reason"),
            pytest.param(299, "a has 9 of 9 nodes", False, id="almost five minutes later"),
            pytest.param(300, "a has 9 of 9 nodes", True, id="five minutes later"),
        ],
    )
    def test_event_is_repeated_for_a_new_reason_or_after_five_minutes(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, later: float, message: str, again: bool
    ) -> None:
        events.report(report(group(), finished=NOW, plan=plan(kept=(kept_pod("shop/a"),))))
        recorder.take()
        events.report(report(group(), finished=NOW + later, plan=plan(kept=(kept_pod("shop/a", message=message),))))
        assert len(recorder.take()) == again

    def test_events_per_iteration_are_limited_and_the_rest_follows(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter
    ) -> None:
        pods = tuple(f"shop/web-{number:04}" for number in range(1200))
        kept = tuple(kept_pod(f"bank/web-{number:04}") for number in range(1200))
        action = scale_up(pods=pods)
        observed: list[tuple[str, str]] = []
        for number in range(4):
            events.report(
                report(
                    group(),
                    finished=NOW + 10 * number,
                    scale_up_outcomes=[] if number else [grown(action)],
                    plan=plan(kept=kept),
                )
            )
            now = [(whom, reason) for whom, reason, _ in recorder.take() if whom.startswith("Pod/")]
            assert len(now) <= 2 * MAX_POD_EVENTS
            observed += now
        assert len(observed) == len(set(observed)) == 2400

    def test_cluster_limits_are_reported_once(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
    ) -> None:
        kept = tuple(kept_pod(f"shop/{name}", "MaxNodesTotalReached", "24 of 24 nodes") for name in "ab")
        for later in (0, 10):
            events.report(report(group(), finished=NOW + later, plan=plan(kept=kept)))
        limits = [each for each in recorder.take() if each[0] == AUTOSCALER]
        assert [reason for _, reason, _ in limits] == ["MaxNodesTotalReached"]
        golden(notes_of(limits))

    @pytest.mark.parametrize("failure", [True, False])
    def test_findings_are_reported(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, failure: bool, golden: Golden
    ) -> None:
        finding = GroupFinding(id_of("a"), reasons.SCALE_UP_TIMED_OUT, "2 nodes did not come in 900s", 2, failure)
        events.report(report(group(), findings=[finding]))
        assert recorder.events[0]["type"] == ("Warning" if failure else "Normal")
        taken = recorder.take()
        assert targets_of(taken) == [(AUTOSCALER, "ScaleUpTimedOut")]
        golden(notes_of(taken))


class TestScaleDown:
    def test_start_and_end_of_a_removal_are_reported(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter
    ) -> None:
        listening: RemovalObserver = events
        listening.began(removal())
        listening.ended(removed())
        assert [reason for _, reason, _ in recorder.take()] == ["ScaleDown", "ScaleDown"]

    @pytest.mark.parametrize("more", [{}, {"resumed": True, "message": "x"}], ids=["new", "resumed"])
    def test_start_of_a_removal_is_reported_on_the_node(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, more: dict[str, Any], golden: Golden
    ) -> None:
        events.began(removal(**more))
        assert recorder.events[0]["regarding"].uid == "uid-of-a-0"
        taken = recorder.take()
        assert targets_of(taken) == [("Node/a-0", "ScaleDown")]
        golden(notes_of(taken))

    @pytest.mark.parametrize(("why", "reason"), [("Underutilized", "ScaleDown"), ("Empty", "ScaleDownEmpty")])
    def test_removed_node_is_reported_with_its_evicted_pods(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, why: str, reason: str, golden: Golden
    ) -> None:
        events.ended(removed(why=why, evicted={"shop/web-1": "uid-1"}))
        taken = recorder.take()
        assert targets_of(taken) == [
            ("Pod/shop/web-1", "ScaleDown"),
            (AUTOSCALER, reason),
        ]
        golden(notes_of(taken))

    @pytest.mark.parametrize(
        ("result", "left", "type_"),
        [
            (RemovalResult.FAILED, "", "Warning"),
            (RemovalResult.ABORTED, "", "Normal"),
            (RemovalResult.ABORTED, "the taint", "Warning"),
        ],
        ids=["failed", "aborted", "rollback failed"],
    )
    def test_kept_node_is_reported_with_the_blocking_pod(
        self,
        recorder: FakeRecorder,
        events: AutoscalerEventReporter,
        result: RemovalResult,
        left: str,
        type_: str,
        golden: Golden,
    ) -> None:
        events.ended(
            removed(
                result=result,
                reason="NotEnoughPdb",
                message="web allows none",
                refused="shop/web-1",
                refused_uid="1",
                left=left,
            )
        )
        assert {each["type"] for each in recorder.events} == {type_}
        taken = recorder.take()
        assert targets_of(taken) == [
            ("Node/a-0", "ScaleDownFailed"),
            ("Pod/shop/web-1", "ScaleDownFailed"),
        ]
        golden(notes_of(taken))

    def test_wrong_machine_is_reported_once_on_the_autoscaler(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
    ) -> None:
        for node in ("a-0", "a-1"):
            events.ended(
                removed(
                    node,
                    result=RemovalResult.FAILED,
                    reason="WrongMachineRemoved",
                    message="m-3 was deleted without a mark",
                )
            )
        taken = recorder.take()
        assert targets_of(taken) == [
            ("Node/a-0", "ScaleDownFailed"),
            ("ClusterAutoscaler/default", "WrongMachineRemoved"),
            ("Node/a-1", "ScaleDownFailed"),
        ]
        golden(notes_of(taken))

    def test_cleanup_of_leftovers_is_reported_on_the_node(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
    ) -> None:
        events.report(report(group(), cleaned_nodes={"a-1": "uid-1"}))
        taken = recorder.take()
        assert targets_of(taken) == [("Node/a-1", "ClusterAutoscalerCleanup")]
        golden(notes_of(taken))


def test_only_invalid_priorities_are_reported(
    recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
) -> None:
    problems = [
        ObjectProblem("ConfigMap", "t", "p", "PriorityConfigMapInvalid", "data[priorities]: no list"),
        ObjectProblem("MachineAutoscaler", "m", "x", "TargetNotFound", "there is no MachineSet y"),
    ]
    for later in (0, 10):
        events.report(report(group(), finished=NOW + later, problems=problems))
    taken = recorder.take()
    assert targets_of(taken) == [(AUTOSCALER, "PriorityConfigMapInvalid")]
    golden(notes_of(taken))


def test_unhealthy_cluster_is_reported_every_five_minutes(
    recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
) -> None:
    for later, words in ((0, "6 of 9 nodes"), (10, "7 of 9 nodes"), (310, "7 of 9 nodes")):
        events.report(report(group(), finished=NOW + later, health=ClusterHealth(cluster=words)))
    taken = recorder.take()
    assert [reason for _, reason, _ in taken] == ["ClusterUnhealthy", "ClusterUnhealthy"]
    golden(notes_of(taken))


def test_simulate_reports_only_on_the_autoscaler(
    recorder: FakeRecorder, events: AutoscalerEventReporter, golden: Golden
) -> None:
    made = plan(scale_up(), remove("a-1"), kept=(kept_pod("shop/a"),))
    for later in (0, 10):
        events.report(report(group(), finished=NOW + later, mode="Simulate", plan=made))
    taken = recorder.take()
    assert targets_of(taken) == [(AUTOSCALER, "Simulated")]
    golden(notes_of(taken))


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(0, 200)), max_size=60))
def test_reported_events_are_bounded_and_not_repeated_early(steps: list[tuple[int, str, int]]) -> None:
    recent = RecentlyReported(window=100, most=10)
    now = 0.0
    reported: dict[str, tuple[str, float]] = {}
    for item, text, later in steps:
        now += later
        key = str(item)
        before = reported.get(key)
        if recent.is_new(key, text, now=now):
            recent.note(key, text, now=now)
            reported[key] = (text, now)
        else:
            assert before is not None
            assert before[0] == text
            assert now - before[1] < 100
        assert len(recent) <= 10


@pytest.mark.parametrize(("forget", "expected"), [(True, (1, 0.0)), (False, (2, 1.0))])
def test_keys_are_forgotten_after_the_window(forget: bool, expected: tuple[int, float]) -> None:
    recent = RecentlyReported(window=100, forget=forget)
    recent.note("old", "text", now=1.0)
    recent.note("new", "text", now=102.0)
    assert (len(recent), recent.last("old")) == expected
    assert recent.is_new("old", "text", now=102.0)


def test_pods_and_nodes_that_are_gone_are_forgotten(events: AutoscalerEventReporter) -> None:
    for number in range(5):
        blocked = kept_node(f"n-{number}", "BlockedByPod")
        made = plan(kept=(kept_pod(f"shop/pending-{number}"), kept_pod("shop/stays"), blocked))
        events.report(report(group(), finished=NOW + number * (BLOCKED_REPEAT + 1), plan=made))
    assert set(events._pods._reported) == {"shop/pending-4", "shop/stays"}
    assert set(events._blocked_nodes._reported) == {"n-4"}


def test_keys_that_are_still_reported_are_not_forgotten() -> None:
    recent = RecentlyReported(window=100.0, forget=False)
    for key in ("stays", "gone"):
        recent.note(key, "text", now=1.0)
    recent.note("new", "text", now=101.5)
    recent.forget_except({"stays"}, now=102.0)
    assert [recent.last(key) for key in ("stays", "gone", "new")] == [1.0, recent.last("never"), 101.5]


def test_reported_messages_are_not_kept() -> None:
    """Tenants can make messages as long as some kilobytes, and the messages of 20,000 pods are remembered."""
    recent = RecentlyReported()
    tracemalloc.start()
    try:
        for number in range(1000):
            recent.note(str(number), f"{number} " + "x" * 4000, now=1.0)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
    assert not recent.is_new("7", "7 " + "x" * 4000, now=2.0)
    assert recent.is_new("7", "8 " + "x" * 4000, now=2.0)


class TestBlockedNodes:
    @staticmethod
    def report_at(events: AutoscalerEventReporter, seconds: float, *kept: Kept, mode: Mode = "Act") -> None:
        uids = {each.name: f"uid-of-{each.name}" for each in kept}
        events.report(report(group(), finished=NOW + seconds, plan=plan(kept=kept), node_uids=uids, mode=mode))

    def test_event_names_the_node_the_reason_and_the_pod(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter
    ) -> None:
        blocked = kept_node("a-0", "BlockedByPod", "pod shop/db-0 blocks the removal", "shop/db-0")
        self.report_at(events, 0, blocked)
        self.report_at(events, 10, blocked)
        [event] = recorder.events
        assert (event["regarding"].name, event["regarding"].uid) == ("a-0", "uid-of-a-0")
        assert (event["reason"], event["note"].partition(":")[0]) == ("ScaleDownBlocked", "BlockedByPod")
        assert str(event["related"]) == "Pod/shop/db-0"

    @pytest.mark.parametrize("reason", ["NotUnderutilized", "NotAutoscaled", "NotUnneededLongEnough", "DelayAfterAdd"])
    def test_nodes_without_a_blocker_get_no_event(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, reason: str
    ) -> None:
        for seconds in (0, 10):
            self.report_at(events, seconds, kept_node("a-0", reason))
        assert recorder.events == []

    def test_mode_simulate_posts_no_event_on_nodes(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter
    ) -> None:
        for seconds in (0, 10):
            self.report_at(events, seconds, kept_node("a-0", "BlockedByPod"), mode="Simulate")
        assert recorder.events == []

    @pytest.mark.parametrize(
        ("later", "node", "again"),
        [
            pytest.param(60, kept_node("a-0", "BlockedByPod", "2 of 3", "shop/a"), False, id="other message"),
            pytest.param(60, kept_node("a-0", "NoPlaceToMovePods", "1 of 3", "shop/a"), True, id="other reason"),
            pytest.param(60, kept_node("a-0", "BlockedByPod", "1 of 3", "shop/b"), True, id="other pod"),
            pytest.param(899, kept_node("a-0", "BlockedByPod", "1 of 3", "shop/a"), False, id="almost 15 minutes"),
            pytest.param(900, kept_node("a-0", "BlockedByPod", "1 of 3", "shop/a"), True, id="15 minutes"),
        ],
    )
    def test_event_is_repeated_for_another_blocker_or_after_15_minutes(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter, later: float, node: Kept, again: bool
    ) -> None:
        self.report_at(events, -60)
        self.report_at(events, 0, kept_node("a-0", "BlockedByPod", "1 of 3", "shop/a"))
        assert len(recorder.take()) == 1
        self.report_at(events, later, node)
        assert len(recorder.take()) == again

    def test_5000_nodes_get_20_events_per_minute_in_turn(
        self, recorder: FakeRecorder, events: AutoscalerEventReporter
    ) -> None:
        kept = [kept_node(f"n-{number:04}", "NodeGroupMinSizeReached") for number in range(5000)]
        per_minute = []
        names: list[str] = []
        for minute in range(3):
            for second in range(0, 60, 10):
                self.report_at(events, 60 * minute + second, *kept)
            taken = [about for about, _, _ in recorder.take()]
            per_minute.append(len(taken))
            names += taken
        assert per_minute[0] <= 20
        assert all(number in (19, 20, 21) for number in per_minute[1:])
        assert len(set(names)) == len(names)

    def test_restart_causes_no_burst(self, recorder: FakeRecorder) -> None:
        kept = [kept_node(f"n-{number:02}", "BlockedByPod") for number in range(30)]
        for restart in range(5):
            self.report_at(AutoscalerEventReporter(recorder), restart, *kept)
        assert recorder.events == []
