"""What the taint manager counts, in a bounded number of series."""

from __future__ import annotations

import logging
import math

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from tests.fakes.clock import SetClock
from tests.fakes.history import FakeHistory
from tests.fakes.recorder import FakeRecorder
from tests.fixtures.golden import Golden
from tests.unit.tainting.deadlines import START, taint
from tests.unit.tainting.reporting import change, ended, limit, refused, seen, stuck, zone
from trimtab.api.taint_manager import MAX_REFUSED, PodCounts, TaintManagerStatus
from trimtab.kube.objects import Taint
from trimtab.tainting.due_pods import DuePodResult
from trimtab.tainting.lifecycle.planner import TaintChange
from trimtab.tainting.report import Reporter, TaintManagerMetrics, build_status


class Counted:
    """The reporter, and what its metrics say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = TaintManagerMetrics(self.registry)
        self.clock = SetClock(START)
        self.recorded = FakeRecorder()
        self.reporter = Reporter(self.recorded, self.clock, self.metrics, uid_of=lambda _: "")

    def __call__(self, name: str) -> dict[tuple[str, ...], float]:
        """The samples by the values of their labels, in the order of the labels' names."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == f"trimtab_tainting_{name}"
        }


@pytest.fixture
def counted() -> Counted:
    return Counted()


def status(**more: object) -> TaintManagerStatus:
    return build_status(seen(**more), TaintManagerStatus(), base=PodCounts())


def test_gauges_show_the_status(counted: Counted) -> None:
    counted.reporter.observe(
        status(
            deadlines=(limit("a", due=-1), limit("b", due=9)),
            tainted_nodes=3,
            held=4,
            refused=tuple(refused(f"r{number}") for number in range(MAX_REFUSED + 7)),
            stuck=(stuck("n1"),),
        )
    )
    gauges = ("deadlines", "overdue_pods", "tainted_nodes", "held_pods", "refused_pods", "stuck_nodes")
    assert [counted(name)[()] for name in gauges] == [2, 1, 3, 4, MAX_REFUSED + 7, 1]
    assert counted("next_deadline_timestamp_seconds") == {(): START - 1}


def test_next_deadline_is_0_without_deadlines(counted: Counted) -> None:
    counted.reporter.observe(status())
    assert counted("next_deadline_timestamp_seconds") == {(): 0}


def test_zone_gauges_follow_zones(counted: Counted) -> None:
    counted.reporter.observe(status(zones=(zone("a", not_ready=1, waiting=1), zone("b"))))
    counted.reporter.observe(status(zones=(zone("a", "PartialDisruption", nodes=9, not_ready=6, waiting=5),)))
    assert counted("zone_state") == {("PartialDisruption", "a"): 1}
    shown = ("zone_nodes", "zone_not_ready_nodes", "zone_waiting_nodes", "zone_taints_per_second")
    assert [counted(name) for name in shown] == [{("a",): 9}, {("a",): 6}, {("a",): 5}, {("a",): 0.1}]


@pytest.mark.parametrize(
    ("result", "timed"),
    [
        (DuePodResult.DELETED, True),
        (DuePodResult.EVICTED, True),
        (DuePodResult.GONE, False),
        (DuePodResult.NOT_DUE, False),
        (DuePodResult.REFUSED, False),
        (DuePodResult.FAILED, False),
    ],
)
def test_outcomes_and_lateness_are_counted(counted: Counted, result: DuePodResult, *, timed: bool) -> None:
    counted.reporter.due_pod_outcome(ended(limit(), result, at=310, held=9.8, reason="PodsRefused"))
    assert counted("ended_pods_total") == {("PodsRefused", result.value): 1}
    assert counted("lateness_seconds_count") == ({(result.value,): 1} if timed else {})
    if timed:
        assert math.isclose(counted("lateness_seconds_sum")[(result.value,)], 0.2, abs_tol=1e-6)


def test_unknown_reason_counts_as_other(counted: Counted) -> None:
    counted.reporter.due_pod_outcome(ended(limit(), reason="whatever a server says"))
    assert counted("ended_pods_total") == {("Other", "Deleted"): 1}


def test_taint_changes_are_counted_by_key(counted: Counted) -> None:
    counted.reporter.taint_changed(change(), uid="u")
    counted.reporter.taint_changed(change(add=False, reason="NodeRecovered"), uid="u")
    counted.reporter.taint_changed(TaintChange("n", taint("example.com/mine"), True, "NodeCondition", ""), uid="u")
    assert counted("taint_changes_total") == {
        ("Added", "NoExecute", "node.kubernetes.io/unreachable", "NodeUnreachable"): 1,
        ("Removed", "NoExecute", "node.kubernetes.io/unreachable", "NodeRecovered"): 1,
        ("Added", "NoExecute", "Other", "NodeCondition"): 1,
    }


def test_watch_age_is_computed_at_scrape(counted: Counted) -> None:
    heard: list[float | None] = [None]
    counted.metrics.follow(lambda: heard[0], counted.clock.now)
    assert counted("watch_age_seconds") == {(): -1}
    heard[0] = START - 12
    assert counted("watch_age_seconds") == {(): 12}
    counted.clock.time += 3
    assert counted("watch_age_seconds") == {(): 15}


def test_no_label_has_object_names(counted: Counted) -> None:
    labels = {
        label
        for collector in counted.registry._collector_to_names
        if isinstance(collector, MetricWrapperBase)
        for label in collector._labelnames
    }
    assert labels == {"result", "reason", "change", "key", "effect", "zone", "state"}


def test_repeated_refusal_is_logged_once_in_five_minutes(
    counted: Counted, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    def refuse(message: str) -> list[str]:
        caplog.clear()
        report = ended(limit(), DuePodResult.REFUSED, reason="DeletionRefused", message=message)
        counted.reporter.due_pod_outcome(report)
        counted.reporter.drain()
        assert len(counted.recorded.take()) == len(caplog.records)
        return [record.getMessage() for record in caplog.records]

    golden("\n".join(refuse("denied, 1 of 9")))
    assert refuse("denied, 2 of 9") == []
    golden("\n".join(refuse("gone fishing")), "2")
    counted.clock.time += 300
    golden("\n".join(refuse("gone fishing")), "3")
    assert counted("ended_pods_total") == {("DeletionRefused", "Refused"): 4}


def test_refusal_is_logged_with_structured_fields(counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    counted.reporter.due_pod_outcome(ended(limit(), DuePodResult.REFUSED))
    [record] = caplog.records
    wanted = {"pod": "web", "namespace": "shop", "uid": "uid-web", "node": "n1", "result": "Refused"}
    assert wanted.items() <= vars(record).items()


def test_evictions_are_logged_by_the_evictor_only(counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    counted.reporter.due_pod_outcome(ended(limit(), at=300.5))
    assert not caplog.records


def test_taints_are_recorded_in_the_history(counted: Counted) -> None:
    history = FakeHistory()
    reporter = Reporter(counted.recorded, counted.clock, counted.metrics, uid_of=lambda _: "", history=history)
    for add in (True, False):
        change = TaintChange("n1", Taint("node.kubernetes.io/unreachable", "NoExecute"), add, "Unreachable", "why")
        reporter.taint_changed(change, uid="uid-n1")
    assert [(entry.action, entry.node, entry.uid) for entry in history.entries] == [
        ("Taint", "n1", "uid-n1"),
        ("Untaint", "n1", "uid-n1"),
    ]
    assert {entry.taint for entry in history.entries} == {"node.kubernetes.io/unreachable:NoExecute"}
