"""What the autoscaler tells in events: whom, why, once, and not more than a pass may tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.recorder import Told
from tests.unit.autoscaling.reporting import (
    NOW,
    group,
    grown,
    id_of,
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
from trimtab.autoscaling.actuation.removal import Result, Teller
from trimtab.autoscaling.groups import Problem
from trimtab.autoscaling.memory.findings import Finding
from trimtab.autoscaling.memory.health import Health
from trimtab.autoscaling.providers.outcome import Failure
from trimtab.autoscaling.report.events import POD_EVENTS, EventTeller
from trimtab.kube.events.lately import Lately


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def teller(told: Told) -> EventTeller:
    return EventTeller(told)


AUTOSCALER = "ClusterAutoscaler/default"


class TestScaleUp:
    def test_the_group_and_each_pod_are_told_with_sizes(self, told: Told, teller: EventTeller) -> None:
        action = scale_up(pods=("shop/web-1", "shop/web-2"))
        teller.tell(report(group(), grown=[grown(action)], waiting=waiting("shop/web-1", "shop/web-2"), uid="u"))

        first, *pods = told.events
        sizes = "MachineSet openshift-machine-api/a 2->4 (max: 9)"
        assert (first["regarding"].name, first["regarding"].uid, first["reason"]) == ("default", "u", "ScaledUpGroup")
        assert first["note"] == f"asked for 2 nodes: {sizes}; 2 nodes"
        assert (first["related"].kind, first["related"].uid) == ("MachineSet", "uid-of-a")
        assert [(each["regarding"].uid, each["reason"], each["note"]) for each in pods] == [
            ("uid-of-shop/web-1", "TriggeredScaleUp", f"nodes were asked for: {sizes}"),
            ("uid-of-shop/web-2", "TriggeredScaleUp", f"nodes were asked for: {sizes}"),
        ]

    def test_a_group_that_could_not_be_asked_is_told_and_so_are_its_pods(self, told: Told, teller: EventTeller) -> None:
        failed = grown(scale_up(), failure=Failure.CONFLICT, message="its size is 3 by now")
        teller.tell(report(group(), grown=[failed]))
        assert told.events[0]["type"] == "Warning"
        assert told.take() == [
            (
                AUTOSCALER,
                "FailedToScaleUpGroup",
                "MachineSet openshift-machine-api/a 2->4 (max: 9): ScaleConflict: its size is 3 by now",
            ),
            (
                "Pod/shop/web-1",
                "NotTriggerScaleUp",
                "ScaleConflict: openshift-machine-api/a could not be asked: its size is 3 by now",
            ),
        ]

    def test_pods_that_get_no_node_are_told_why_while_others_get_theirs(self, told: Told, teller: EventTeller) -> None:
        teller.tell(report(group(), grown=[grown(scale_up())], plan=plan(scale_up(), kept=(kept_pod("shop/db-0"),))))
        assert ("Pod/shop/db-0", "NotTriggerScaleUp", "MaxSizeReached: a has 9 of 9 nodes") in told.take()

    @pytest.mark.parametrize(
        "reason", ["FitsOnNode", "FitsOnUpcomingNode", "Nominated", "NotUnschedulable", "Terminating", "ScaleUpDelayed"]
    )
    def test_pods_that_need_no_help_are_told_nothing(self, told: Told, teller: EventTeller, reason: str) -> None:
        teller.tell(report(group(), plan=plan(kept=(kept_pod("shop/a", reason),))))
        assert told.take() == []

    @pytest.mark.parametrize(
        ("later", "message", "again"),
        [
            pytest.param(10, "a has 9 of 9 nodes", False, id="the same"),
            pytest.param(10, "a has 8 of 8 nodes", False, id="other numbers"),
            pytest.param(10, "a has 9 (3 planned now) of 9 nodes", False, id="nodes that are only planned"),
            pytest.param(10, "a is paused", True, id="another story"),
            pytest.param(299, "a has 9 of 9 nodes", False, id="almost five minutes later"),
            pytest.param(300, "a has 9 of 9 nodes", True, id="five minutes later"),
        ],
    )
    def test_a_pod_is_told_again_for_news_or_after_five_minutes(
        self, told: Told, teller: EventTeller, later: float, message: str, again: bool
    ) -> None:
        teller.tell(report(group(), finished=NOW, plan=plan(kept=(kept_pod("shop/a"),))))
        told.take()
        teller.tell(report(group(), finished=NOW + later, plan=plan(kept=(kept_pod("shop/a", message=message),))))
        assert len(told.take()) == again

    def test_what_a_pass_tells_is_bounded_and_the_rest_follows(self, told: Told, teller: EventTeller) -> None:
        pods = tuple(f"shop/web-{number:04}" for number in range(1200))
        kept = tuple(kept_pod(f"bank/web-{number:04}") for number in range(1200))
        action = scale_up(pods=pods)
        seen: list[tuple[str, str]] = []
        for turn in range(4):
            teller.tell(
                report(
                    group(),
                    finished=NOW + 10 * turn,
                    grown=[] if turn else [grown(action)],
                    plan=plan(kept=kept),
                )
            )
            now = [(whom, reason) for whom, reason, _ in told.take() if whom.startswith("Pod/")]
            assert len(now) <= 2 * POD_EVENTS
            seen += now
        assert len(seen) == len(set(seen)) == 2400

    def test_limits_of_the_cluster_are_told_once_beside_the_pods(self, told: Told, teller: EventTeller) -> None:
        kept = tuple(kept_pod(f"shop/{name}", "MaxNodesTotalReached", "24 of 24 nodes") for name in "ab")
        for later in (0, 10):
            teller.tell(report(group(), finished=NOW + later, plan=plan(kept=kept)))
        limits = [each for each in told.take() if each[0] == AUTOSCALER]
        assert limits == [(AUTOSCALER, "MaxNodesTotalReached", "2 pods wait for it: 24 of 24 nodes")]

    @pytest.mark.parametrize("failure", [True, False])
    def test_what_became_of_nodes_is_told_as_it_was_found(self, told: Told, teller: EventTeller, failure: bool) -> None:
        finding = Finding(id_of("a"), reasons.SCALE_UP_TIMED_OUT, "2 nodes did not come in 900s", 2, failure)
        teller.tell(report(group(), told=[finding]))
        assert told.events[0]["type"] == ("Warning" if failure else "Normal")
        assert told.take() == [
            (AUTOSCALER, "ScaleUpTimedOut", "MachineSet openshift-machine-api/a: 2 nodes did not come in 900s")
        ]


class TestScaleDown:
    def test_removals_are_told_as_they_happen(self, told: Told, teller: EventTeller) -> None:
        listening: Teller = teller
        listening.began(removal())
        listening.ended(removed())
        assert [reason for _, reason, _ in told.take()] == ["ScaleDown", "ScaleDown"]

    @pytest.mark.parametrize(
        ("more", "words"),
        [({}, "begins: Underutilized"), ({"resumed": True, "message": "x"}, "goes on: Underutilized, x")],
        ids=["a new one", "an earlier process's"],
    )
    def test_a_node_is_told_that_it_goes(
        self, told: Told, teller: EventTeller, more: dict[str, Any], words: str
    ) -> None:
        teller.began(removal(**more))
        assert told.events[0]["regarding"].uid == "uid-of-a-0"
        assert told.take() == [("Node/a-0", "ScaleDown", f"the removal of the node {words}")]

    @pytest.mark.parametrize(("why", "reason"), [("Underutilized", "ScaleDown"), ("Empty", "ScaleDownEmpty")])
    def test_a_node_that_went_is_told_with_its_pods(
        self, told: Told, teller: EventTeller, why: str, reason: str
    ) -> None:
        teller.ended(removed(why=why, evicted={"shop/web-1": "uid-1"}))
        assert told.take() == [
            ("Pod/shop/web-1", "ScaleDown", "evicted from a-0, which is to be removed"),
            (AUTOSCALER, reason, f"node a-0 removed from {id_of('a')} ({why}) after 40s, 1 pod evicted"),
        ]

    @pytest.mark.parametrize(
        ("result", "left", "type_"),
        [
            (Result.FAILED, "", "Warning"),
            (Result.ABORTED, "", "Normal"),
            (Result.ABORTED, "the taint", "Warning"),
        ],
        ids=["a failure", "another mind", "something is left"],
    )
    def test_a_node_that_stays_is_told_and_so_is_the_pod_that_keeps_it(
        self, told: Told, teller: EventTeller, result: Result, left: str, type_: str
    ) -> None:
        teller.ended(
            removed(
                result=result,
                reason="NotEnoughPdb",
                message="web allows none",
                refused="shop/web-1",
                refused_uid="1",
                left=left,
            )
        )
        assert {each["type"] for each in told.events} == {type_}
        more = f"; not taken back: {left}" if left else ""
        assert told.take() == [
            ("Node/a-0", "ScaleDownFailed", f"the node stays: NotEnoughPdb: web allows none{more}"),
            ("Pod/shop/web-1", "ScaleDownFailed", f"keeps node a-0: NotEnoughPdb: web allows none{more}"),
        ]

    def test_what_an_earlier_process_left_is_told_on_its_node(self, told: Told, teller: EventTeller) -> None:
        teller.tell(report(group(), cleaned={"a-1": "uid-1"}))
        assert told.take() == [("Node/a-1", "ClusterAutoscalerCleanup", "what an earlier process had left was removed")]


def test_priorities_that_cannot_be_read_are_told_and_other_objects_tell_of_themselves(
    told: Told, teller: EventTeller
) -> None:
    problems = [
        Problem("ConfigMap", "t", "p", "PriorityConfigMapInvalid", "data[priorities]: no list"),
        Problem("MachineAutoscaler", "m", "x", "TargetNotFound", "there is no MachineSet y"),
    ]
    for later in (0, 10):
        teller.tell(report(group(), finished=NOW + later, problems=problems))
    assert told.take() == [(AUTOSCALER, "PriorityConfigMapInvalid", "ConfigMap t/p: data[priorities]: no list")]


def test_an_ill_cluster_is_told_once_in_five_minutes(told: Told, teller: EventTeller) -> None:
    for later, words in ((0, "6 of 9 nodes"), (10, "7 of 9 nodes"), (310, "7 of 9 nodes")):
        teller.tell(report(group(), finished=NOW + later, health=Health(cluster=words)))
    assert [(reason, note) for _, reason, note in told.take()] == [
        ("ClusterUnhealthy", "nothing is scaled: 6 of 9 nodes"),
        ("ClusterUnhealthy", "nothing is scaled: 7 of 9 nodes"),
    ]


def test_a_simulating_autoscaler_tells_what_it_would_do_and_no_pod_or_node(told: Told, teller: EventTeller) -> None:
    made = plan(scale_up(), remove("a-1"), kept=(kept_pod("shop/a"),))
    for later in (0, 10):
        teller.tell(report(group(), finished=NOW + later, mode="Simulate", plan=made))
    assert told.take() == [
        (
            AUTOSCALER,
            "Simulated",
            "would raise 1 node group: openshift-machine-api/a 2->4; would remove 1 node: a-1",
        )
    ]


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("ab"), st.integers(0, 200)), max_size=60))
def test_what_is_remembered_is_bounded_and_nothing_is_repeated_too_soon(steps: list[tuple[int, str, int]]) -> None:
    lately = Lately(window=100, most=10)
    now = 0.0
    told: dict[str, tuple[str, float]] = {}
    for thing, text, later in steps:
        now += later
        key = str(thing)
        before = told.get(key)
        if lately.is_news(key, text, now=now):
            lately.note(key, text, now=now)
            told[key] = (text, now)
        else:
            assert before is not None
            assert before[0] == text
            assert now - before[1] < 100
        assert len(lately) <= 10
