"""The ClusterAutoscaler's status: conditions, lists and its bounded size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.strategies import examples
from tests.unit.autoscaling.iteration_reports import (
    NOW,
    full_size,
    group,
    groups,
    grown,
    id_of,
    in_trouble,
    kept_node,
    kept_pod,
    opened,
    plan,
    removal,
    remove,
    removed,
    report,
    scale_up,
)
from trimtab.api import reasons
from trimtab.api.base import status_patch
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import ConditionUpdate, find_condition
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.api.scalars import to_time
from trimtab.api.schema import check, structural_schema
from trimtab.api.waiting_evictions import WaitingEvictions
from trimtab.autoscaling.actuation.removal import RemovalResult
from trimtab.autoscaling.cluster_state.readiness import ClusterHealth, Readiness
from trimtab.autoscaling.cluster_state.state import AutoscalerState, GroupRecord, state_from_status
from trimtab.autoscaling.groups import GroupMachine, MachineState, ObjectProblem
from trimtab.autoscaling.providers.outcome import ScaleFailure
from trimtab.autoscaling.report import (
    IterationReport,
    build_status,
    worth_writing,
)
from trimtab.controller.reporter import next_status

NEW = ClusterAutoscalerStatus()
MOST = 1_000_000
"""Bytes; a request to etcd may have 1,572,864."""


def built(*of: Any, **more: Any) -> ClusterAutoscalerStatus:
    return build_status(report(*of, **more), NEW)


def held(**more: Any) -> WaitingEvictions:
    entry = WaitingEvictions(
        reason=reasons.WAITING_FOR_BUDGET, since=to_time(NOW), waits_for="descheduler a", count=1, message="x"
    )
    return replace(entry, **more)


def condition(status: ClusterAutoscalerStatus, type_: str) -> tuple[str, str, str]:
    condition = find_condition(status.conditions, type_)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def wire(status: ClusterAutoscalerStatus) -> Any:
    """As sent to the API server."""
    return {key: value for key, value in status_patch(status).items() if value is not None}


def backwards(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(reversed(list(mapping.items())))


def size(status: ClusterAutoscalerStatus) -> int:
    """Bytes in Go's encoding."""
    text = msgspec.json.encode(wire(status))
    return len(text) + 5 * sum(text.count(sign) for sign in (b"<", b">", b"&"))


class TestConditions:
    @pytest.mark.parametrize(
        ("more", "status", "reason"),
        [
            pytest.param({}, "True", "IterationCompleted", id="idle"),
            pytest.param(
                {"scale_up_outcomes": [grown(scale_up(pods=("shop/a", "shop/b")))]},
                "True",
                "IterationCompleted",
                id="scale-up",
            ),
            pytest.param(
                {"scale_up_outcomes": [grown(scale_up(pods=()))]},
                "True",
                "IterationCompleted",
                id="scale-up for no pod",
            ),
            pytest.param(
                {
                    "scale_up_outcomes": [
                        grown(scale_up(), failure=ScaleFailure.CONFLICT, message="the size is 3 by now")
                    ]
                },
                "True",
                "IterationCompleted",
                id="failed scale-up",
            ),
            pytest.param(
                {"plan": plan(scale_up(), remove("a-1")), "mode": "Simulate"},
                "True",
                "IterationCompleted",
                id="simulated",
            ),
            pytest.param(
                {"removal_outcomes": [removed("a-1")], "removals": {"a-0": removal("a-0")}},
                "True",
                "IterationCompleted",
                id="removals",
            ),
            pytest.param(
                {"plan": plan(kept=(kept_pod("shop/a"), kept_pod("shop/b", "NoGroupFits"), kept_pod("shop/c")))},
                "True",
                "IterationCompleted",
                id="unhelped pods",
            ),
            pytest.param(
                {"plan": plan(kept=(kept_pod("shop/a", "FitsOnNode"), kept_pod("shop/b", "NotUnschedulable")))},
                "True",
                "IterationCompleted",
                id="pods that fit",
            ),
            pytest.param({"error": "KeyError: 'x'"}, "False", "IterationFailed", id="failed iteration"),
            pytest.param(
                {"health": ClusterHealth(cluster="6 of 10 nodes are unready")},
                "False",
                "ClusterUnhealthy",
                id="unhealthy cluster",
            ),
        ],
    )
    def test_ready_summarizes_the_iteration(
        self, more: dict[str, Any], status: str, reason: str, golden: Golden
    ) -> None:
        found = condition(built(group(), **more), "Ready")
        assert found[:2] == (status, reason)
        golden(found[2])

    @pytest.mark.parametrize(
        ("groups", "more", "reason"),
        [
            pytest.param("a", {}, "NoNodeGroupScalable", id="the only group"),
            pytest.param("ab", {}, "IterationCompleted", id="one of two"),
            pytest.param(
                "ab",
                {"health": ClusterHealth(groups={id_of("b"): "2 of 2 nodes are unready"})},
                "NoNodeGroupScalable",
                id="the other is unhealthy",
            ),
            pytest.param("", {}, "IterationCompleted", id="no group"),
        ],
    )
    def test_autoscaler_is_not_ready_if_no_group_can_be_scaled(
        self, groups: str, more: dict[str, Any], reason: str
    ) -> None:
        state = AutoscalerState(groups={id_of("a"): in_trouble()})
        status = built(*map(group, groups), state=state, **more)
        assert condition(status, "Ready")[:2] == (str(reason == "IterationCompleted"), reason)

    def test_autoscaler_with_paused_groups_is_ready(self) -> None:
        paused = built(group("a", paused="by annotation"))
        assert condition(paused, "Ready")[1] == "IterationCompleted"
        failing = AutoscalerState(groups={id_of("b"): in_trouble()})
        paused = built(group("a", paused="by annotation"), group("b"), state=failing)
        assert condition(paused, "Ready")[1] == "NoNodeGroupScalable"

    @pytest.mark.parametrize(
        ("more", "reason"),
        [
            pytest.param({}, "AllWell", id="no problem"),
            pytest.param({"error": "boom"}, "IterationFailed", id="failed iteration"),
            pytest.param(
                {"health": ClusterHealth("x of y", {id_of("a"): "z"})},
                "ClusterUnhealthy",
                id="unhealthy cluster",
            ),
            pytest.param(
                {"health": ClusterHealth(groups={id_of("a"): "2 of 2 nodes are unready"})},
                "NodeGroupsUnhealthy",
                id="unhealthy group",
            ),
            pytest.param(
                {"state": AutoscalerState(groups={id_of("a"): in_trouble()})},
                "NodeGroupsFailing",
                id="group in backoff",
            ),
            pytest.param(
                {"state": AutoscalerState(groups={id_of("a"): in_trouble(until=NOW - 1)})},
                "AllWell",
                id="backoff just ended",
            ),
            pytest.param(
                {
                    "state": AutoscalerState(last_scale_down_failure=NOW),
                    "removal_outcomes": [
                        removed("a-0", result=RemovalResult.FAILED, reason="NotEnoughPdb", message="web allows none")
                    ],
                },
                "RemovalsFailing",
                id="failed removal",
            ),
            pytest.param(
                {
                    "state": AutoscalerState(last_scale_down_failure=NOW),
                    "removal_outcomes": [
                        removed("a-0", result=RemovalResult.FAILED, reason="NotEnoughPdb", message="web allows none"),
                        removed(
                            "a-1", result=RemovalResult.FAILED, reason="WrongMachineRemoved", message="m-3 was deleted"
                        ),
                    ],
                },
                "WrongMachineRemoved",
                id="wrong machine deleted",
            ),
            pytest.param(
                {"state": AutoscalerState(last_scale_down_failure=NOW - 60, last_scale_down=NOW - 30)},
                "AllWell",
                id="later removal succeeded",
            ),
            pytest.param(
                {"state": AutoscalerState(last_scale_down_failure=NOW - 601)},
                "AllWell",
                id="old failed removal",
            ),
            pytest.param(
                {
                    "problems": [
                        ObjectProblem("MachineAutoscaler", "m", "x", "TargetNotFound", "there is no MachineSet y")
                    ]
                },
                "InvalidNodeGroups",
                id="invalid object",
            ),
            pytest.param(
                {
                    "problems": [
                        ObjectProblem("ConfigMap", "t", "p", "PriorityConfigMapInvalid", "data[priorities]: no list")
                    ]
                },
                "PriorityConfigMapInvalid",
                id="invalid priorities",
            ),
        ],
    )
    def test_degraded_has_the_most_severe_problem(self, more: dict[str, Any], reason: str, golden: Golden) -> None:
        status, found, message = condition(built(group(), **more), "Degraded")
        assert (status, found) == ("False" if reason == "AllWell" else "True", reason)
        golden(message)

    def test_progressing_names_scale_ups_and_removals(self, golden: Golden) -> None:
        more = {"state": AutoscalerState(scale_ups={id_of("a"): opened()}), "removals": {"a-0": removal("a-0")}}
        status, reason, message = condition(built(group(), **more), "Progressing")
        assert (status, reason) == ("True", "Scaling")
        golden(message)

    @pytest.mark.parametrize(("mode", "words"), [("Act", "no node is upcoming"), ("Simulate", "nothing is changed")])
    def test_idle_autoscaler_is_not_progressing(self, mode: str, words: str) -> None:
        status, reason, message = condition(built(group(), mode=mode), "Progressing")
        assert (status, reason) == ("False", "Idle")
        assert words in message

    def test_transition_time_changes_only_with_the_status(self) -> None:
        first = built(group())
        later = {"started": NOW + 10, "finished": NOW + 10.5}
        second = build_status(report(group(), **later, error="boom"), first)
        third = build_status(report(group(), started=NOW + 20, finished=NOW + 20.5, error="bang"), second)

        def times(status: ClusterAutoscalerStatus) -> list[float]:
            return [each.last_transition_time.timestamp() - NOW for each in status.conditions]

        assert (times(first), times(second), times(third)) == ([0, 0, 0], [10, 0, 10], [10, 0, 10])
        assert {each.observed_generation for each in third.conditions} == {3}

    def test_failed_removal_is_reported_until_another_succeeds(self) -> None:
        memory = AutoscalerState(last_scale_down_failure=NOW)
        ended = [removed("a-0", result=RemovalResult.FAILED, reason="NotEnoughPdb", message="web allows none")]
        first = built(group(), state=memory, removal_outcomes=ended)
        second = build_status(report(group(), state=memory), first)
        assert condition(second, "Degraded") == condition(first, "Degraded")

    def test_failed_iteration_keeps_the_state(self) -> None:
        before = built(group(), state=AutoscalerState(unneeded={"a-0": NOW - 5}))
        problem = ("ClusterUnreachable", "no watch of nodes")
        after = next_status(before, [ConditionUpdate("Degraded", True, *problem)], generation=4, now=NOW + 60)
        assert condition(after, "Degraded") == ("True", *problem)
        assert (after.unneeded, after.observed_generation) == (before.unneeded, 4)


class TestGroups:
    def test_group_status_has_all_counts(self, golden: Golden) -> None:
        machines = (
            GroupMachine("m", "1", MachineState.RUNNING, node="n1"),
            GroupMachine("m", "2", MachineState.RUNNING, node="n2"),
            GroupMachine("m", "3", MachineState.RUNNING, node="n3"),
            GroupMachine("m", "4", MachineState.DELETING, node="n4"),
            GroupMachine("m", "5", MachineState.FAILED, reason="InsufficientResources"),
            GroupMachine("m", "6", MachineState.PENDING),
            GroupMachine("m", "7", MachineState.UNCONFIRMED, unconfirmed_node="n7"),
            GroupMachine("m", "8", MachineState.UNCONFIRMED, unconfirmed_node="n8"),
        )
        states = (Readiness.READY, Readiness.UNREADY, Readiness.STARTING, Readiness.STARTING, Readiness.READY)
        (found,) = built(
            group("a", target=8, machines=machines, autoscaler="m/a", paused="it is paused"),
            readiness=dict(zip(("n1", "n2", "n3", "n7", "n8"), states, strict=True)),
            state=AutoscalerState(
                groups={id_of("a"): in_trouble()}, scale_ups={id_of("a"): opened(2, 6)}, unneeded={"n1": NOW - 9}
            ),
            health=ClusterHealth(groups={id_of("a"): "too many are unready"}),
        ).node_groups

        assert (found.id, found.min_size, found.max_size, found.target) == (id_of("a"), 0, 9, 8)
        assert (found.ready, found.unready, found.upcoming, found.failed) == (1, 1, 4, 1)
        assert (found.deleting, found.unneeded, found.failures) == (1, 1, 1)
        assert (found.autoscaler, found.paused) == ("m/a", "it is paused")
        golden(found.unhealthy)
        assert found.backoff_until == to_time(NOW + 300)
        assert found.last_error is not None
        assert found.last_error.reason == "InsufficientResources"
        assert found.scale_up is not None
        assert (found.scale_up.from_, found.scale_up.to, found.scale_up.deadline) == (2, 6, to_time(NOW + 840))

    def test_state_survives_the_status(self) -> None:
        memory = AutoscalerState(
            groups={id_of("a"): in_trouble(boots=(61.5,), known_failures=("a-7",)), id_of("gone"): in_trouble()},
            scale_ups={id_of("b"): opened()},
            targets={id_of("a"): 2, id_of("b"): 4},
            unneeded={"a-0": NOW - 60, "a-1": NOW - 70},
            last_scale_up=NOW - 60,
            last_scale_down=NOW - 600,
            last_scale_down_failure=NOW - 900,
        )
        assert state_from_status(built(group("a"), group("b"), state=memory)) == memory

    def test_less_important_groups_are_omitted_first(self) -> None:
        of = [group(f"g-{number:03}", nodes=0) for number in range(502)]
        status = built(
            *of,
            state=AutoscalerState(scale_ups={id_of("g-501"): opened()}),
            health=ClusterHealth(groups={id_of("g-500"): "too many are unready"}),
        )
        names = [each.id.rpartition("/")[2] for each in status.node_groups]
        assert status.node_groups_omitted == 2
        assert names == [*(f"g-{number:03}" for number in range(498)), "g-500", "g-501"]


class TestNodesAndPods:
    def test_nodes_being_removed_are_listed_with_their_phase(self, golden: Golden) -> None:
        (found,) = built(group(), removals={"a-0": removal(message="shop/web-1 is ending")}).removing
        assert (found.name, found.phase, found.group) == ("a-0", "Evicting", id_of("a"))
        assert found.since == to_time(NOW - 30)
        golden(found.message)

    def test_kept_nodes_are_listed_with_the_blocking_pod(self) -> None:
        kept = (kept_node("a-0", "BlockedByPod", "pod shop/bare keeps it", "shop/bare"), kept_node("a-1"))
        status = built(group(), plan=plan(kept=kept))
        assert [(each.name, each.reason, each.blocking_pod, each.group) for each in status.kept] == [
            ("a-0", "BlockedByPod", "shop/bare", id_of("a")),
            ("a-1", "NotUnderutilized", "", id_of("a")),
        ]
        assert {each.reason: each.count for each in status.kept_reasons} == {"BlockedByPod": 1, "NotUnderutilized": 1}

    def test_no_reason_crowds_out_another(self) -> None:
        many = [kept_node(f"n-{number:04}") for number in range(1000)]
        few = [kept_node(f"x-{number}", "BlockedByPod") for number in range(3)]
        status = built(group(), plan=plan(kept=(*many, *few)))
        assert len(status.kept) == 200
        assert {"x-0", "x-1", "x-2"} <= {each.name for each in status.kept}
        assert status.kept_omitted == 803
        assert sum(each.count for each in status.kept_reasons) == 1003

    def test_longest_unneeded_nodes_are_listed(self) -> None:
        status = built(group(), state=AutoscalerState(unneeded={f"n-{each:04}": NOW - each for each in range(700)}))
        assert [each.name for each in status.unneeded[:2]] == ["n-0699", "n-0698"]
        assert (len(status.unneeded), status.unneeded_omitted) == (500, 200)

    def test_pods_with_the_same_reason_are_one_entry(self) -> None:
        kept = (
            *(kept_pod(f"shop/web-{number}") for number in (2, 1, 3)),
            kept_pod("bank/web-1"),
            *(kept_pod(f"shop/soon-{number}", "FitsOnNode", f"the pod fits on n{number}") for number in range(5)),
            kept_pod("shop/new", "NotUnschedulable"),
        )
        status = built(group(), plan=plan(scale_up(pods=("shop/x", "shop/y")), kept=kept))
        assert [(each.namespace, each.pod, each.count, each.reason) for each in status.pending] == [
            ("shop", "web-1", 3, "MaxSizeReached"),
            ("bank", "web-1", 1, "MaxSizeReached"),
            ("shop", "soon-0", 5, "FitsOnNode"),
            ("shop", "new", 1, "NotUnschedulable"),
        ]
        assert status.last_iteration is not None
        assert status.last_iteration.pending_pods == 11

    def test_omitted_pods_are_counted(self) -> None:
        kept = tuple(kept_pod(f"shop-{number}/web") for number in range(60))
        status = built(group(), plan=plan(kept=kept))
        assert (len(status.pending), status.pending_omitted) == (50, 10)


class TestSize:
    def test_status_of_maximum_size_fits_and_is_valid(self) -> None:
        status = build_status(full_size(), NEW)
        assert len(status.node_groups) + status.node_groups_omitted == 500
        assert len(status.node_groups) > 200
        assert size(status) < MOST
        assert check(wire(status), structural_schema(ClusterAutoscalerStatus)) == ()

    def test_500_groups_with_ordinary_messages_fit(self) -> None:
        status = build_status(full_size(words="Machine x-1: the zone has no instances of this type left"), NEW)
        assert status.node_groups_omitted == 0
        assert len(status.kept) == 200

    def test_document_round_trips(self) -> None:
        status = build_status(full_size(number=20), NEW)
        document = {
            "apiVersion": "autoscaling.openshift.io/v1",
            "kind": "ClusterAutoscaler",
            "metadata": {"name": "default"},
            "status": wire(status),
        }
        assert decode_cluster_autoscaler(document).status == status

    def test_status_does_not_depend_on_the_order_of_the_report(self) -> None:
        one = full_size(number=20)
        other = replace(
            one,
            groups=groups(*reversed(one.groups.all)),
            state=replace(
                one.state,
                groups=backwards(one.state.groups),
                unneeded=backwards(one.state.unneeded),
            ),
            readiness=backwards(one.readiness),
            removals=backwards(one.removals),
        )
        assert build_status(one, NEW) == build_status(other, NEW)


texts = st.text(min_size=0, max_size=3000)
names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


@st.composite
def reports(draw: st.DrawFn) -> IterationReport:
    """Reports with random messages."""
    of = [
        group(name, nodes=draw(st.integers(0, 3)), paused=draw(texts))
        for name in draw(st.lists(names, unique=True, max_size=4))
    ]
    times = draw(st.sampled_from([1, 2, 400]))
    message = draw(texts)
    kept = [
        *(kept_node(f"{draw(names)}-{number}", "BlockedByPod", message) for number in range(times)),
        *(kept_pod(f"{draw(names)}/web-{number}", "NoGroupFits", message) for number in range(times)),
    ]
    return report(
        *of,
        plan=plan(*(scale_up(each.name) for each in of), kept=tuple(kept)),
        state=AutoscalerState(
            groups={each.id: draw(st.builds(in_trouble, message=texts)) for each in of},
            unneeded={node: NOW - 1 for each in of for node in each.nodes},
        ),
        scale_up_outcomes=[
            grown(scale_up(each.name), failure=ScaleFailure.REFUSED, message=draw(texts)) for each in of
        ],
        health=ClusterHealth(draw(texts), {each.id: draw(texts) for each in of}),
        removals={each.nodes[0]: removal(each.nodes[0], message=draw(texts)) for each in of if each.nodes},
        error=draw(texts),
    )


@settings(max_examples=examples(50), deadline=None)
@given(reports())
def test_status_of_any_report_is_valid_and_bounded(made: IterationReport) -> None:
    status = build_status(made, NEW)
    assert size(status) < MOST
    assert check(wire(status), structural_schema(ClusterAutoscalerStatus)) == ()
    counts = {each.reason: each.count for each in status.kept_reasons}
    assert sum(counts.values()) == len(status.kept) + status.kept_omitted
    assert sum(each.count for each in status.pending) + status.pending_omitted == len(made.plan.kept) - sum(
        counts.values()
    )


class TestWriting:
    @pytest.mark.parametrize(
        ("more", "different"),
        [
            pytest.param({}, False, id="nothing"),
            pytest.param({"started": NOW + 10, "finished": NOW + 11}, False, id="iteration time"),
            pytest.param(
                {"plan": plan(kept=(kept_node("a-0", "NotUnneededLongEnough", "unneeded for 50s"),))},
                False,
                id="a number in a message",
            ),
            pytest.param(
                {"plan": plan(kept=(kept_node("a-0", "NotUnneededLongEnough", "unready for 40s"),))},
                True,
                id="text of a message",
            ),
            pytest.param({"plan": plan(kept=(kept_node("a-0", "BlockedByPod", "x"),))}, True, id="a reason"),
            pytest.param({"readiness": {"a-0": Readiness.UNREADY}}, True, id="a node"),
            pytest.param({"state": AutoscalerState(unneeded={"a-0": NOW})}, True, id="state"),
            pytest.param(
                {"state": AutoscalerState(groups={id_of("a"): GroupRecord(boots=(3.0,))})}, True, id="a boot time"
            ),
            pytest.param({"error": "boom"}, True, id="a condition"),
            pytest.param({"waiting_evictions": (held(count=2),)}, False, id="number of waiting evictions"),
            pytest.param({"waiting_evictions": (held(waits_for="descheduler b"),)}, True, id="what evictions wait for"),
            pytest.param({"waiting_evictions": ()}, True, id="no waiting evictions"),
            pytest.param({"generation": 4}, True, id="the generation"),
        ],
    )
    def test_materially_different_ignores_times_and_numbers(self, more: dict[str, Any], different: bool) -> None:
        first: dict[str, Any] = {
            "plan": plan(kept=(kept_node("a-0", "NotUnneededLongEnough", "unneeded for 40s"),)),
            "waiting_evictions": (held(),),
        }
        old = built(group(), **first)
        new = build_status(report(group(), **{**first, **more}), old)
        assert worth_writing(old, new, written=NOW, now=NOW + 1) is different

    @pytest.mark.parametrize(
        ("written", "later", "error", "worth"),
        [
            pytest.param(None, 10, "", True, id="not written by this process"),
            pytest.param(NOW, 10, "", False, id="ten seconds later"),
            pytest.param(NOW, 60, "", True, id="a minute later"),
            pytest.param(NOW, -3600, "", True, id="clock set back"),
            pytest.param(NOW, 10, "boom", True, id="material change after ten seconds"),
        ],
    )
    def test_status_is_written_for_changes_and_once_a_minute(
        self, written: float | None, later: float, error: str, worth: bool
    ) -> None:
        old = built(group())
        new = build_status(report(group(), started=NOW + later, finished=NOW + later, error=error), old)
        assert worth_writing(old, new, written=written, now=NOW + later) is worth

    def test_unchanged_status_is_never_written(self) -> None:
        old = built(group())
        assert not worth_writing(old, old, written=NOW, now=NOW + 3600)
