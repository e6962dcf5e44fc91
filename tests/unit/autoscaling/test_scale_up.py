"""Which groups grow for which pending pods, by how many nodes, and why other pods stay pending."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, daemon_set, machine_set, node, pod
from tests.unit.autoscaling.scaling import NAMESPACE, group, planned, reasons, several, sizes, waiting


class TestHowManyNodes:
    @pytest.mark.parametrize(
        ("builders", "expected"),
        [
            (several(10), {"a": (0, 3)}),
            ([*several(8), waiting("big", cpu="4")], {"a": (0, 3)}),
            (several(2, cpu="1", memory="12Gi"), {"a": (0, 2)}),
            ([each.host_port(80) for each in several(3)], {"a": (0, 3)}),
            ([each.anti_affinity(HOSTNAME) for each in several(4)], {"a": (0, 4)}),
            (
                [
                    node("n1").allocatable(cpu="0"),
                    *(each.spread(HOSTNAME, max_skew=2) for each in several(8, cpu="1m")),
                ],
                {"a": (0, 4)},
            ),
            ([each.spread(HOSTNAME) for each in several(8)], {"a": (0, 2)}),
            ([each.anti_affinity(ZONE) for each in several(3)], {"a": (0, 1)}),
            ([each.spread(ZONE) for each in several(6)], {"a": (0, 2)}),
            ([each.affinity(ZONE) for each in several(6)], {"a": (0, 2)}),
        ],
        ids=[
            "by cpu",
            "large pods first",
            "by memory",
            "a host port is taken once a node",
            "anti-affinity by host",
            "spread by host beside a full node",
            "spread by host where there is no node",
            "anti-affinity by zone leaves room for one",
            "spread over one zone",
            "affinity within a zone",
        ],
    )
    def test_as_many_as_the_pods_need(self, builders: list[Any], expected: dict[str, Any]) -> None:
        assert sizes(planned(group().node_labels({ZONE: "x"}), *builders)) == expected

    def test_daemon_sets_pods_take_their_part_of_every_node(self) -> None:
        agent = daemon_set().of_pods(pod("agent").cpu("1"))
        assert sizes(planned(group(), agent, *several(6))) == {"a": (0, 2)}

    def test_two_classes_that_must_not_meet_do_not_share_a_node(self) -> None:
        one = waiting("one").labels(app="one").anti_affinity(HOSTNAME, labelSelector={"matchLabels": {"app": "two"}})
        made = planned(group(), one, waiting("two").labels(app="two"))
        assert sizes(made) == {"a": (0, 2)}

    def test_nodes_on_their_way_take_pods_first(self) -> None:
        made = planned(group(size=1), *several(6))
        assert sizes(made) == {"a": (1, 2)}
        assert sorted(reasons(made).values()) == ["FitsOnUpcomingNode"] * 4

    def test_room_on_nodes_that_are_there_is_used_first(self) -> None:
        made = planned(group(), node("n1"), *several(5))
        assert sizes(made) == {"a": (0, 1)}
        assert sorted(reasons(made).values()) == ["FitsOnNode"] * 4
        assert {each.node for each in made.reserved} == {"n1"}

    def test_a_starting_node_counts_as_it_will_be(self) -> None:
        owner = group(size=1)
        starting = node("n1").not_ready().created("2026-11-20T11:58:00Z").taint("node.kubernetes.io/not-ready")
        made = planned(owner, owner.machine("m").on("n1"), starting, *several(4))
        assert sizes(made) == {}
        assert set(reasons(made).values()) == {"FitsOnUpcomingNode"}
        assert made.reserved == ()

    @pytest.mark.parametrize(
        "key",
        [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/network-unavailable",
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node.cluster.x-k8s.io/uninitialized",
        ],
    )
    def test_a_ready_node_that_no_controller_has_looked_at_yet_counts_as_it_will_be(self, key: str) -> None:
        owner = group(size=1)
        fresh = node("n1").created("2026-11-20T11:59:58Z").taint(key)
        made = planned(owner, owner.machine("m").on("n1"), fresh, *several(4))
        assert sizes(made) == {}
        assert set(reasons(made).values()) == {"FitsOnUpcomingNode"}

    def test_a_node_that_has_been_starting_for_too_long_does_not(self) -> None:
        owner = group(size=1)
        stuck = node("n1").not_ready().created("2026-11-20T11:00:00Z").taint("node.kubernetes.io/not-ready")
        assert sizes(planned(owner, owner.machine("m").on("n1"), stuck, *several(4))) == {"a": (1, 2)}

    def test_a_nominated_pod_has_its_place(self) -> None:
        full = pod("old").on("n1").cpu("4")
        preemptor = waiting("new").merge(status={"nominatedNodeName": "n1"})
        made = planned(group(), node("n1"), full, preemptor)
        assert (sizes(made), reasons(made)) == ({}, {"new": "Nominated"})

    def test_several_groups_grow_in_one_plan(self) -> None:
        small = group("small", most=1)
        made = planned(small, group("large", cpu="8", memory="32Gi"), *several(3), waiting("big", cpu="7"))
        assert sizes(made) == {"small": (0, 1), "large": (0, 1)}
        assert made.kept == ()

    def test_the_action_says_what_it_is_for(self) -> None:
        (action,) = planned(group(), waiting("b"), waiting("a")).actions
        assert (action.from_, action.to, action.reason) == (0, 1, "PendingPods")
        assert action.pods == ("shop/a", "shop/b")
        assert action.machine_set == f"{NAMESPACE}/a"
        assert action.message == "1 node as its annotations say for 2 pods"


class TestWhoAsks:
    @pytest.mark.parametrize(
        ("asking", "spec", "reason"),
        [
            (waiting("p").priority(-11), {}, "PriorityBelowThreshold"),
            (waiting("p").priority(-10), {}, None),
            (waiting("p").priority(0), {"podPriorityThreshold": 1}, "PriorityBelowThreshold"),
            (waiting("p").owned_by("DaemonSet", "agent"), {}, "DaemonSetPod"),
            (waiting("p").deleted(), {}, "Terminating"),
            (pod("p"), {}, "NotUnschedulable"),
            (pod("p"), {"scaleUp": {"bypassedSchedulers": ["default-scheduler"]}}, None),
            (pod("p").merge(spec={"schedulerName": "own"}), {"scaleUp": {"bypassedSchedulers": ["own"]}}, None),
            (waiting("p").merge(spec={"schedulingGates": [{"name": "x"}]}), {}, "SchedulingGated"),
            (
                waiting("p").created("2026-11-20T11:59:50Z"),
                {"scaleUp": {"newPodScaleUpDelay": "11s"}},
                "ScaleUpDelayed",
            ),
            (waiting("p").created("2026-11-20T11:59:50Z"), {"scaleUp": {"newPodScaleUpDelay": "10s"}}, None),
            (
                waiting("p")
                .created("2026-11-20T11:59:50Z")
                .annotations({"cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "1m"}),
                {},
                "ScaleUpDelayed",
            ),
        ],
        ids=[
            "below the threshold",
            "at the threshold",
            "a threshold of one's own",
            "a DaemonSet's pod",
            "on its way out",
            "the scheduler has not looked",
            "the default scheduler is bypassed",
            "its scheduler is bypassed",
            "gated",
            "too young",
            "just old enough",
            "too young by its own annotation",
        ],
    )
    def test_only_pods_that_wait_for_a_node(self, asking: Any, spec: dict[str, Any], reason: str | None) -> None:
        made = planned(group(), asking, **spec)
        assert sizes(made) == ({} if reason else {"a": (0, 1)})
        assert reasons(made) == ({"p": reason} if reason else {})


class TestWhatHoldsBack:
    @pytest.mark.parametrize(
        ("owner", "spec", "grown", "reason", "told"),
        [
            (group(most=1), {}, 1, "MaxSizeReached", "its size is 1 (1 planned now), and 1 is its largest"),
            (
                group(),
                {"resourceLimits": {"maxNodesTotal": 2}},
                1,
                "MaxNodesTotalReached",
                "maxNodesTotal allows 2 nodes",
            ),
            (group(), {"resourceLimits": {"maxNodesTotal": 0}}, 2, "", ""),
            (group(), {"resourceLimits": {"cores": {"min": 0, "max": 11}}}, 1, "MaxCoresReached", "allows 11 cores"),
            (group(), {"resourceLimits": {"cores": {"min": 0, "max": 12}}}, 2, "", ""),
            (group(), {"resourceLimits": {"memory": {"min": 0, "max": 47}}}, 1, "MaxMemoryReached", "allows 47 GiB"),
            (group(), {"resourceLimits": {"memory": {"min": 0, "max": 48}}}, 2, "", ""),
            (
                group(gpu_type="nvidia.com/gpu", gpu_count="4"),
                {"resourceLimits": {"gpus": [{"type": "nvidia.com/gpu", "min": 0, "max": 7}]}},
                1,
                "MaxGpusReached",
                "allows 7 nvidia.com/gpu",
            ),
            (
                group().merge(spec={"template": {}}).annotations({"cluster.x-k8s.io/paused": ""}),
                {},
                0,
                "GroupPaused",
                "paused",
            ),
        ],
        ids=[
            "size",
            "nodes",
            "no limit of nodes",
            "cores",
            "cores at the limit",
            "memory",
            "memory at the limit",
            "gpus",
            "paused",
        ],
    )
    def test_limits_hold_and_are_told(
        self, owner: Any, spec: dict[str, Any], grown: int, reason: str, told: str
    ) -> None:
        made = planned(owner, node("n1").allocatable(cpu="4"), pod("full").on("n1").cpu("4"), *several(8), **spec)
        assert sizes(made) == ({"a": (0, grown)} if grown else {})
        pods = [each for each in made.kept if each.kind == "Pod"]
        assert len(pods) == 8 - 4 * grown
        assert all(each.reason == reason and told in each.message for each in pods)

    def test_a_group_that_failed_is_left_alone_for_a_while(self) -> None:
        until = {f"MachineSet/{NAMESPACE}/a": "it failed until 12:05"}
        made = planned(group(), waiting("p"), backoff=until)
        assert reasons(made) == {"p": "GroupBacksOff"}
        assert "openshift-machine-api/a: it failed until 12:05" in made.kept[0].message

    def test_another_group_helps_where_one_is_held_back(self) -> None:
        until = {f"MachineSet/{NAMESPACE}/a": "it failed"}
        assert sizes(planned(group(), group("b"), waiting("p"), backoff=until)) == {"b": (0, 1)}

    def test_what_no_group_takes_is_told_group_by_group(self) -> None:
        tainted = group("b").node_taint("gpu")
        made = planned(group(), tainted, waiting("p", cpu="5"))
        assert reasons(made) == {"p": "NoGroupFits"}
        assert made.kept[0].message == (
            "0/2 node groups would take the pod: 1 Insufficient cpu (openshift-machine-api/a), "
            "1 node(s) had untolerated taint(s) (openshift-machine-api/b)."
        )

    def test_without_groups_that_is_the_reason(self) -> None:
        assert reasons(planned(waiting("p"))) == {"p": "NoNodeGroups"}

    def test_a_group_that_nobody_knows_nodes_of_is_named(self) -> None:
        made = planned(machine_set("a").limits(0, 3), waiting("p"))
        assert [(each.kind, each.reason) for each in made.kept] == [("MachineSet", "NoTemplate"), ("Pod", "NoTemplate")]

    def test_where_there_are_too_few_nodes_the_most_important_pods_get_them(self) -> None:
        pods = [waiting(f"low-{each}", cpu="2").priority(1) for each in range(4)]
        important = waiting("high", cpu="1").priority(5)
        made = planned(group(most=1), *pods, important)
        assert "shop/high" in made.actions[0].pods


def test_plans_are_the_same_whatever_the_order_of_objects() -> None:
    builders = [
        group("a", most=2),
        group("b", cpu="8", memory="32Gi"),
        *several(9),
        *(waiting(f"apart-{each}").labels(app="apart").anti_affinity(HOSTNAME) for each in range(3)),
        *(waiting(f"zoned-{each}").labels(app="zoned").spread(ZONE) for each in range(3)),
        node("n1").zone("x"),
    ]
    first = planned(*builders)
    for seed in range(4):
        random.Random(seed).shuffle(builders)
        made = planned(*builders)
        assert (made.actions, made.kept) == (first.actions, first.kept)
        assert [(each.group, [pod.key for pod in each.pods]) for each in made.nodes] == [
            (each.group, [pod.key for pod in each.pods]) for each in first.nodes
        ]
