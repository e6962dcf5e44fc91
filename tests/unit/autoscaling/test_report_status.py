"""The ClusterAutoscaler's status: what a pass comes to, in words and numbers, and never too large to be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.autoscaling.reporting import (
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
from trimtab.api.check import check
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.conditions import find_condition
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.api.descheduler_status import status_patch
from trimtab.api.scalars import to_time
from trimtab.api.schema import structural_schema
from trimtab.autoscaling.actuation.removal import Result
from trimtab.autoscaling.groups import GroupMachine, MachineState, Problem
from trimtab.autoscaling.memory.health import Health
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import GroupRecord, State, recall
from trimtab.autoscaling.providers.outcome import Failure
from trimtab.autoscaling.report import (
    PassReport,
    build_status,
    materially_different,
    without_pass,
    worth_writing,
)

NEW = ClusterAutoscalerStatus()
MOST = 1_000_000
"""Bytes; a request to etcd may have 1,572,864."""


def built(*of: Any, **more: Any) -> ClusterAutoscalerStatus:
    return build_status(report(*of, **more), NEW)


def told(status: ClusterAutoscalerStatus, type_: str) -> tuple[str, str, str]:
    condition = find_condition(status.conditions, type_)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def wire(status: ClusterAutoscalerStatus) -> Any:
    """As the API server gets it."""
    return {key: value for key, value in status_patch(status).items() if value is not None}


def backwards(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(reversed(list(mapping.items())))


def size(status: ClusterAutoscalerStatus) -> int:
    """Bytes as Go writes them."""
    text = msgspec.json.encode(wire(status))
    return len(text) + 5 * sum(text.count(sign) for sign in (b"<", b">", b"&"))


class TestConditions:
    @pytest.mark.parametrize(
        ("more", "status", "reason", "words"),
        [
            pytest.param({}, "True", "PassCompleted", "2 nodes with 8 cores, 1 node group: nothing to do", id="idle"),
            pytest.param(
                {"grown": [grown(scale_up(pods=("shop/a", "shop/b")))]},
                "True",
                "PassCompleted",
                "asked for 2 nodes for 2 pods (openshift-machine-api/a 2→4)",
                id="nodes were asked for",
            ),
            pytest.param(
                {"grown": [grown(scale_up(pods=()))]},
                "True",
                "PassCompleted",
                "asked for 2 nodes (openshift-machine-api/a 2→4)",
                id="nodes were asked for, for no pod",
            ),
            pytest.param(
                {"grown": [grown(scale_up(), failure=Failure.CONFLICT, message="the size is 3 by now")]},
                "True",
                "PassCompleted",
                "1 node group could not be asked for nodes (openshift-machine-api/a: ScaleConflict, the size is 3",
                id="a group could not be asked",
            ),
            pytest.param(
                {"plan": plan(scale_up(), remove("a-1")), "mode": "Simulate"},
                "True",
                "PassCompleted",
                "would ask for 2 nodes for 1 pod (openshift-machine-api/a 2→4); would remove 1 node (a-1)",
                id="only simulated",
            ),
            pytest.param(
                {"ended": [removed("a-1")], "going": {"a-0": removal("a-0")}},
                "True",
                "PassCompleted",
                "removed 1 node (a-1); removing 1 node (a-0)",
                id="nodes go",
            ),
            pytest.param(
                {"plan": plan(kept=(kept_pod("shop/a"), kept_pod("shop/b", "NoGroupFits"), kept_pod("shop/c")))},
                "True",
                "PassCompleted",
                "3 pods wait in vain (2 MaxSizeReached, 1 NoGroupFits)",
                id="pods that nothing helps",
            ),
            pytest.param(
                {"plan": plan(kept=(kept_pod("shop/a", "FitsOnNode"), kept_pod("shop/b", "NotUnschedulable")))},
                "True",
                "PassCompleted",
                "nothing to do",
                id="pods that need no help",
            ),
            pytest.param({"error": "KeyError: 'x'"}, "False", "PassFailed", "KeyError: 'x'", id="it failed"),
            pytest.param(
                {"health": Health(cluster="6 of 10 nodes are unready")},
                "False",
                "ClusterUnhealthy",
                "nothing is scaled: 6 of 10 nodes are unready",
                id="the cluster is ill",
            ),
        ],
    )
    def test_ready_tells_what_came_of_the_pass(
        self, more: dict[str, Any], status: str, reason: str, words: str
    ) -> None:
        found = told(built(group(), **more), "Ready")
        assert found[:2] == (status, reason)
        assert words in found[2]

    @pytest.mark.parametrize(
        ("more", "reason", "words"),
        [
            pytest.param({}, "AllWell", "nothing keeps", id="all is well"),
            pytest.param({"error": "boom"}, "PassFailed", "boom", id="the pass failed"),
            pytest.param({"health": Health("x of y", {id_of("a"): "z"})}, "ClusterUnhealthy", "x of y", id="all ill"),
            pytest.param(
                {"health": Health(groups={id_of("a"): "2 of 2 nodes are unready"})},
                "NodeGroupsUnhealthy",
                "openshift-machine-api/a: 2 of 2 nodes are unready",
                id="a group is ill",
            ),
            pytest.param(
                {"memory": State(groups={id_of("a"): in_trouble()})},
                "NodeGroupsFailing",
                "openshift-machine-api/a is left alone until 2026-11-20T12:05:00Z: InsufficientResources, no capacity",
                id="a group backs off",
            ),
            pytest.param(
                {"memory": State(groups={id_of("a"): in_trouble(until=NOW - 1)})},
                "AllWell",
                "",
                id="a group backed off until a moment ago",
            ),
            pytest.param(
                {
                    "memory": State(last_scale_down_failure=NOW),
                    "ended": [removed("a-0", result=Result.FAILED, reason="NotEnoughPdb", message="web allows none")],
                },
                "RemovalsFailing",
                "node a-0 stays (NotEnoughPdb): web allows none",
                id="a removal failed",
            ),
            pytest.param(
                {"memory": State(last_scale_down_failure=NOW - 60, last_scale_down=NOW - 30)},
                "AllWell",
                "",
                id="another removal went well since",
            ),
            pytest.param(
                {"memory": State(last_scale_down_failure=NOW - 601)}, "AllWell", "", id="a removal failed long ago"
            ),
            pytest.param(
                {"problems": [Problem("MachineAutoscaler", "m", "x", "TargetNotFound", "there is no MachineSet y")]},
                "InvalidNodeGroups",
                "MachineAutoscaler m/x (TargetNotFound): there is no MachineSet y",
                id="an object is wrong",
            ),
            pytest.param(
                {"problems": [Problem("ConfigMap", "t", "p", "PriorityConfigMapInvalid", "data[priorities]: no list")]},
                "PriorityConfigMapInvalid",
                "ConfigMap t/p (PriorityConfigMapInvalid): data[priorities]: no list",
                id="the priorities are wrong",
            ),
        ],
    )
    def test_degraded_tells_the_worst(self, more: dict[str, Any], reason: str, words: str) -> None:
        status, found, message = told(built(group(), **more), "Degraded")
        assert (status, found) == ("False" if reason == "AllWell" else "True", reason)
        assert words in message

    def test_progressing_names_what_is_waited_for(self) -> None:
        more = {"memory": State(scale_ups={id_of("a"): opened()}), "going": {"a-0": removal("a-0")}}
        assert told(built(group(), **more), "Progressing") == (
            "True",
            "Scaling",
            (
                "waiting for nodes of 1 node group: openshift-machine-api/a 2→4 until 2026-11-20T12:14:00Z; "
                "removing 1 node: a-0 (Evicting)"
            ),
        )

    @pytest.mark.parametrize(("mode", "words"), [("Act", "no node is on its way"), ("Simulate", "nothing is changed")])
    def test_nothing_progresses_where_nothing_is_under_way(self, mode: str, words: str) -> None:
        status, reason, message = told(built(group(), mode=mode), "Progressing")
        assert (status, reason) == ("False", "Idle")
        assert words in message

    def test_a_condition_keeps_its_time_as_long_as_it_holds(self) -> None:
        first = built(group())
        later = {"started": NOW + 10, "finished": NOW + 10.5}
        second = build_status(report(group(), **later, error="boom"), first)
        third = build_status(report(group(), started=NOW + 20, finished=NOW + 20.5, error="bang"), second)

        def times(status: ClusterAutoscalerStatus) -> list[float]:
            return [each.last_transition_time.timestamp() - NOW for each in status.conditions]

        assert (times(first), times(second), times(third)) == ([0, 0, 0], [10, 0, 10], [10, 0, 10])
        assert {each.observed_generation for each in third.conditions} == {3}

    def test_how_a_removal_failed_is_told_until_another_goes_well(self) -> None:
        memory = State(last_scale_down_failure=NOW)
        ended = [removed("a-0", result=Result.FAILED, reason="NotEnoughPdb", message="web allows none")]
        first = built(group(), memory=memory, ended=ended)
        second = build_status(report(group(), memory=memory), first)
        assert told(second, "Degraded") == told(first, "Degraded")

    def test_what_keeps_a_pass_from_being_made_leaves_what_is_remembered(self) -> None:
        before = built(group(), memory=State(unneeded={"a-0": NOW - 5}))
        after = without_pass(
            before, [("Degraded", True, "ClusterUnreachable", "no watch of nodes")], generation=4, now=NOW + 60
        )
        assert told(after, "Degraded") == ("True", "ClusterUnreachable", "no watch of nodes")
        assert (after.unneeded, after.observed_generation) == (before.unneeded, 4)


class TestGroups:
    def test_a_group_is_told_in_numbers(self) -> None:
        machines = (
            GroupMachine("m", "1", MachineState.RUNNING, node="n1"),
            GroupMachine("m", "2", MachineState.RUNNING, node="n2"),
            GroupMachine("m", "3", MachineState.RUNNING, node="n3"),
            GroupMachine("m", "4", MachineState.DELETING, node="n4"),
            GroupMachine("m", "5", MachineState.FAILED, reason="InsufficientResources"),
            GroupMachine("m", "6", MachineState.PENDING),
        )
        states = (Readiness.READY, Readiness.UNREADY, Readiness.STARTING)
        (found,) = built(
            group("a", target=6, machines=machines, autoscaler="m/a", paused="it is paused"),
            readiness=dict(zip(("n1", "n2", "n3"), states, strict=True)),
            memory=State(
                groups={id_of("a"): in_trouble()}, scale_ups={id_of("a"): opened(2, 6)}, unneeded={"n1": NOW - 9}
            ),
            health=Health(groups={id_of("a"): "too many are unready"}),
        ).node_groups

        assert (found.id, found.min_size, found.max_size, found.target) == (id_of("a"), 0, 9, 6)
        assert (found.ready, found.unready, found.upcoming, found.failed) == (1, 1, 3, 1)
        assert (found.deleting, found.unneeded, found.failures) == (1, 1, 1)
        assert (found.autoscaler, found.paused, found.unhealthy) == ("m/a", "it is paused", "too many are unready")
        assert found.backoff_until == to_time(NOW + 300)
        assert found.last_error is not None
        assert found.last_error.reason == "InsufficientResources"
        assert found.scale_up is not None
        assert (found.scale_up.from_, found.scale_up.to, found.scale_up.deadline) == (2, 6, to_time(NOW + 840))

    def test_what_is_remembered_is_read_back_as_it_was(self) -> None:
        memory = State(
            groups={id_of("a"): in_trouble(boots=(61.5,), troubled=("a-7",)), id_of("gone"): in_trouble()},
            scale_ups={id_of("b"): opened()},
            targets={id_of("a"): 2, id_of("b"): 4},
            unneeded={"a-0": NOW - 60, "a-1": NOW - 70},
            last_scale_up=NOW - 60,
            last_scale_down=NOW - 600,
            last_scale_down_failure=NOW - 900,
        )
        assert recall(built(group("a"), group("b"), memory=memory)) == memory

    def test_of_too_many_groups_those_stay_of_which_there_is_something_to_say(self) -> None:
        of = [group(f"g-{number:03}", nodes=0) for number in range(502)]
        status = built(
            *of,
            memory=State(scale_ups={id_of("g-501"): opened()}),
            health=Health(groups={id_of("g-500"): "too many are unready"}),
        )
        names = [each.id.rpartition("/")[2] for each in status.node_groups]
        assert status.node_groups_omitted == 2
        assert names == [*(f"g-{number:03}" for number in range(498)), "g-500", "g-501"]


class TestNodesAndPods:
    def test_nodes_that_go_are_told_with_how_far_they_are(self) -> None:
        (found,) = built(group(), going={"a-0": removal(message="shop/web-1 is ending")}).removing
        assert (found.name, found.phase, found.group) == ("a-0", "Evicting", id_of("a"))
        assert (found.since, found.message) == (to_time(NOW - 30), "shop/web-1 is ending")

    def test_nodes_that_stay_are_told_with_the_pod_that_keeps_them(self) -> None:
        kept = (kept_node("a-0", "BlockedByPod", "pod shop/bare keeps it", "shop/bare"), kept_node("a-1"))
        status = built(group(), plan=plan(kept=kept))
        assert [(each.name, each.reason, each.blocking_pod, each.group) for each in status.kept] == [
            ("a-0", "BlockedByPod", "shop/bare", id_of("a")),
            ("a-1", "NotUnderutilized", "", id_of("a")),
        ]
        assert {each.reason: each.count for each in status.kept_reasons} == {"BlockedByPod": 1, "NotUnderutilized": 1}

    def test_no_reason_crowds_another_out(self) -> None:
        many = [kept_node(f"n-{number:04}") for number in range(1000)]
        few = [kept_node(f"x-{number}", "BlockedByPod") for number in range(3)]
        status = built(group(), plan=plan(kept=(*many, *few)))
        assert len(status.kept) == 200
        assert {"x-0", "x-1", "x-2"} <= {each.name for each in status.kept}
        assert status.kept_omitted == 803
        assert sum(each.count for each in status.kept_reasons) == 1003

    def test_those_unneeded_the_longest_are_told(self) -> None:
        status = built(group(), memory=State(unneeded={f"n-{each:04}": NOW - each for each in range(700)}))
        assert [each.name for each in status.unneeded[:2]] == ["n-0699", "n-0698"]
        assert (len(status.unneeded), status.unneeded_omitted) == (500, 200)

    def test_pods_of_which_the_same_is_said_are_one_entry(self) -> None:
        kept = (
            *(kept_pod(f"shop/web-{number}") for number in (2, 1, 3)),
            kept_pod("bank/web-1"),
            *(kept_pod(f"shop/soon-{number}", "FitsOnNode", f"n{number} takes the pod") for number in range(5)),
            kept_pod("shop/new", "NotUnschedulable"),
        )
        status = built(group(), plan=plan(scale_up(pods=("shop/x", "shop/y")), kept=kept))
        assert [(each.namespace, each.pod, each.count, each.reason) for each in status.pending] == [
            ("shop", "web-1", 3, "MaxSizeReached"),
            ("bank", "web-1", 1, "MaxSizeReached"),
            ("shop", "soon-0", 5, "FitsOnNode"),
            ("shop", "new", 1, "NotUnschedulable"),
        ]
        assert status.last_pass is not None
        assert status.last_pass.pending_pods == 11

    def test_pods_for_which_there_is_no_room_are_counted(self) -> None:
        kept = tuple(kept_pod(f"shop-{number}/web") for number in range(60))
        status = built(group(), plan=plan(kept=kept))
        assert (len(status.pending), status.pending_omitted) == (50, 10)


class TestSize:
    def test_a_status_of_full_size_fits_and_is_as_its_definition_says(self) -> None:
        status = build_status(full_size(), NEW)
        assert len(status.node_groups) + status.node_groups_omitted == 500
        assert len(status.node_groups) > 200
        assert size(status) < MOST
        assert check(wire(status), structural_schema(ClusterAutoscalerStatus)) == ()

    def test_groups_with_ordinary_stories_all_fit(self) -> None:
        status = build_status(full_size(words="Machine x-1: the zone has no instances of this type left"), NEW)
        assert status.node_groups_omitted == 0
        assert len(status.kept) == 200

    def test_it_is_read_back_as_it_was_written(self) -> None:
        status = build_status(full_size(number=20), NEW)
        document = {
            "apiVersion": "autoscaling.openshift.io/v1",
            "kind": "ClusterAutoscaler",
            "metadata": {"name": "default"},
            "status": wire(status),
        }
        assert decode_cluster_autoscaler(document).status == status

    def test_a_status_is_the_same_whatever_the_order_of_what_it_is_made_of(self) -> None:
        one = full_size(number=20)
        other = replace(
            one,
            groups=groups(*reversed(one.groups.all)),
            memory=replace(
                one.memory,
                groups=backwards(one.memory.groups),
                unneeded=backwards(one.memory.unneeded),
            ),
            readiness=backwards(one.readiness),
            going=backwards(one.going),
        )
        assert build_status(one, NEW) == build_status(other, NEW)


texts = st.text(min_size=0, max_size=3000)
names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


@st.composite
def reports(draw: st.DrawFn) -> PassReport:
    """Passes with whatever words, some of them many times."""
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
        memory=State(
            groups={each.id: draw(st.builds(in_trouble, message=texts)) for each in of},
            unneeded={node: NOW - 1 for each in of for node in each.nodes},
        ),
        grown=[grown(scale_up(each.name), failure=Failure.REFUSED, message=draw(texts)) for each in of],
        health=Health(draw(texts), {each.id: draw(texts) for each in of}),
        going={each.nodes[0]: removal(each.nodes[0], message=draw(texts)) for each in of if each.nodes},
        error=draw(texts),
    )


@given(reports())
def test_whatever_is_said_the_status_is_valid_and_small(made: PassReport) -> None:
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
            pytest.param({"started": NOW + 10, "finished": NOW + 11}, False, id="the time of the pass"),
            pytest.param(
                {"plan": plan(kept=(kept_node("a-0", "NotUnneededLongEnough", "unneeded for 50s"),))},
                False,
                id="a number in a message",
            ),
            pytest.param(
                {"plan": plan(kept=(kept_node("a-0", "NotUnneededLongEnough", "unready for 40s"),))},
                True,
                id="a word in a message",
            ),
            pytest.param({"plan": plan(kept=(kept_node("a-0", "BlockedByPod", "x"),))}, True, id="a reason"),
            pytest.param({"readiness": {"a-0": Readiness.UNREADY}}, True, id="a node"),
            pytest.param({"memory": State(unneeded={"a-0": NOW})}, True, id="what is remembered"),
            pytest.param({"memory": State(groups={id_of("a"): GroupRecord(boots=(3.0,))})}, True, id="a boot time"),
            pytest.param({"error": "boom"}, True, id="a condition"),
            pytest.param({"generation": 4}, True, id="the generation"),
        ],
    )
    def test_a_status_is_another_one_where_more_than_times_has_changed(
        self, more: dict[str, Any], different: bool
    ) -> None:
        first = {"plan": plan(kept=(kept_node("a-0", "NotUnneededLongEnough", "unneeded for 40s"),))}
        old = built(group(), **first)
        new = build_status(report(group(), **{**first, **more}), old)
        assert materially_different(old, new) is different

    @pytest.mark.parametrize(
        ("written", "later", "error", "worth"),
        [
            pytest.param(None, 10, "", True, id="this process has written none"),
            pytest.param(NOW, 10, "", False, id="ten seconds later"),
            pytest.param(NOW, 60, "", True, id="a minute later"),
            pytest.param(NOW, 10, "boom", True, id="ten seconds later, another story"),
        ],
    )
    def test_a_status_is_written_for_news_and_once_a_minute(
        self, written: float | None, later: float, error: str, worth: bool
    ) -> None:
        old = built(group())
        new = build_status(report(group(), started=NOW + later, finished=NOW + later, error=error), old)
        assert worth_writing(old, new, written=written, now=NOW + later) is worth

    def test_the_same_status_is_never_written_twice(self) -> None:
        old = built(group())
        assert not worth_writing(old, old, written=NOW, now=NOW + 3600)
