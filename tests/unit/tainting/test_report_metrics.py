"""What the taint manager counts, in a bounded number of series."""

from __future__ import annotations

import logging
import math

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from tests.fakes.clock import SetClock
from tests.fakes.recorder import Told
from tests.unit.tainting.deadlines import START, taint
from tests.unit.tainting.telling import change, ended, limit, refused, seen, stuck, zone
from trimtab.api.taint_manager_status import MAX_REFUSED, PodCounts, TaintManagerStatus
from trimtab.tainting.conditions import TaintChange
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.report import EventTeller, Reporter, TaintManagerMetrics, build_status


class Counted:
    """The reporter, and what its metrics say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = TaintManagerMetrics(self.registry)
        self.clock = SetClock(START)
        self.told = Told()
        self.events = EventTeller(self.told, self.clock, uid_of=lambda _: "")
        self.reporter = Reporter(self.events, self.metrics, self.clock)

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


def test_a_look_shows_how_things_are(counted: Counted) -> None:
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


def test_without_deadlines_the_next_one_is_0(counted: Counted) -> None:
    counted.reporter.observe(status())
    assert counted("next_deadline_timestamp_seconds") == {(): 0}


def test_zones_show_their_state_numbers_and_rate_and_go_when_they_are_gone(counted: Counted) -> None:
    counted.reporter.observe(status(zones=(zone("a", not_ready=1, waiting=1), zone("b"))))
    counted.reporter.observe(status(zones=(zone("a", "PartialDisruption", nodes=9, not_ready=6, waiting=5),)))
    assert counted("zone_state") == {("PartialDisruption", "a"): 1}
    shown = ("zone_nodes", "zone_not_ready_nodes", "zone_waiting_nodes", "zone_taints_per_second")
    assert [counted(name) for name in shown] == [{("a",): 9}, {("a",): 6}, {("a",): 5}, {("a",): 0.1}]


@pytest.mark.parametrize(
    ("what", "timed"),
    [
        (What.DELETED, True),
        (What.EVICTED, True),
        (What.GONE, False),
        (What.NOT_DUE, False),
        (What.REFUSED, False),
        (What.FAILED, False),
    ],
)
def test_what_becomes_of_pods_is_counted_and_how_late_they_went(counted: Counted, what: What, *, timed: bool) -> None:
    counted.reporter.ended(ended(limit(), what, at=310, held=9.8, reason="PodsRefused"))
    assert counted("ended_pods_total") == {("PodsRefused", what.value): 1}
    assert counted("lateness_seconds_count") == ({(what.value,): 1} if timed else {})
    if timed:
        assert math.isclose(counted("lateness_seconds_sum")[(what.value,)], 0.2, abs_tol=1e-6)


def test_a_reason_that_is_not_ours_counts_as_other(counted: Counted) -> None:
    counted.reporter.ended(ended(limit(), reason="whatever a server says"))
    assert counted("ended_pods_total") == {("Other", "Deleted"): 1}


def test_taints_are_counted_by_key_those_of_users_together(counted: Counted) -> None:
    counted.reporter.taint_changed(change(), uid="u")
    counted.reporter.taint_changed(change(add=False, reason="NodeRecovered"), uid="u")
    counted.reporter.taint_changed(TaintChange("n", taint("example.com/mine"), True, "NodeCondition", ""), uid="u")
    assert counted("taint_changes_total") == {
        ("Added", "NoExecute", "node.kubernetes.io/unreachable", "NodeUnreachable"): 1,
        ("Removed", "NoExecute", "node.kubernetes.io/unreachable", "NodeRecovered"): 1,
        ("Added", "NoExecute", "Other", "NodeCondition"): 1,
    }


def test_the_age_of_the_watches_is_that_of_the_moment_in_which_somebody_asks(counted: Counted) -> None:
    heard: list[float | None] = [None]
    counted.metrics.follow(lambda: heard[0], counted.clock.now)
    assert counted("watch_age_seconds") == {(): -1}
    heard[0] = START - 12
    assert counted("watch_age_seconds") == {(): 12}
    counted.clock.time += 3
    assert counted("watch_age_seconds") == {(): 15}


def test_no_label_has_the_name_of_a_node_a_pod_or_a_namespace(counted: Counted) -> None:
    labels = {
        label
        for collector in counted.registry._collector_to_names
        if isinstance(collector, MetricWrapperBase)
        for label in collector._labelnames
    }
    assert labels == {"result", "reason", "change", "key", "effect", "zone", "state"}


def test_every_refusal_counts_and_the_same_one_is_told_once_in_five_minutes(
    counted: Counted, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(message: str) -> list[str]:
        caplog.clear()
        outcome = ended(limit(), What.REFUSED, reason="DeletionRefused", message=message)
        counted.reporter.ended(outcome)
        counted.events.drain()
        assert len(counted.told.take()) == len(caplog.records)
        return [record.getMessage() for record in caplog.records]

    assert refuse("denied, 1 of 9") == ["shop/web is still on n1: denied, 1 of 9"]
    assert refuse("denied, 2 of 9") == []
    assert refuse("gone fishing") == ["shop/web is still on n1: gone fishing"]
    counted.clock.time += 300
    assert refuse("gone fishing") == ["shop/web is still on n1: gone fishing"]
    assert counted("ended_pods_total") == {("DeletionRefused", "Refused"): 4}


def test_a_pod_that_goes_is_logged_with_what_a_search_needs(counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counted.reporter.ended(ended(limit(), at=300.5))
    [record] = caplog.records
    assert record.getMessage() == "shop/web deleted from n1, 0.5s after its time"
    wanted = {"pod": "web", "namespace": "shop", "uid": "uid-web", "node": "n1", "result": "Deleted"}
    assert wanted.items() <= vars(record).items()
