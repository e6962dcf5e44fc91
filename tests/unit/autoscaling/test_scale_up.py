"""Scale-up plans: which groups get how many nodes for which pods, and why other pods stay pending."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, daemon_set, machine_set, node, pod
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import NAMESPACE, group, pending_pod, pending_pods, planned, reasons, sizes


class TestNodeCount:
    @pytest.mark.parametrize(
        ("builders", "expected"),
        [
            (pending_pods(10), {"a": (0, 3)}),
            ([*pending_pods(8), pending_pod("big", cpu="4")], {"a": (0, 3)}),
            (pending_pods(2, cpu="1", memory="12Gi"), {"a": (0, 2)}),
            ([each.host_port(80) for each in pending_pods(3)], {"a": (0, 3)}),
            ([each.anti_affinity(HOSTNAME) for each in pending_pods(4)], {"a": (0, 4)}),
            (
                [
                    node("n1").allocatable(cpu="0"),
                    *(each.spread(HOSTNAME, max_skew=2) for each in pending_pods(8, cpu="1m")),
                ],
                {"a": (0, 4)},
            ),
            ([each.spread(HOSTNAME) for each in pending_pods(8)], {"a": (0, 2)}),
            ([each.anti_affinity(ZONE) for each in pending_pods(3)], {"a": (0, 1)}),
            ([each.spread(ZONE) for each in pending_pods(6)], {"a": (0, 2)}),
            ([each.affinity(ZONE) for each in pending_pods(6)], {"a": (0, 2)}),
        ],
        ids=[
            "by cpu",
            "large pods first",
            "by memory",
            "a host port is taken once a node",
            "anti-affinity by host",
            "spread by host next to a full node",
            "spread by host where there is no node",
            "anti-affinity by zone leaves room for one",
            "spread over one zone",
            "affinity within a zone",
        ],
    )
    def test_plan_adds_as_many_nodes_as_the_pods_need(self, builders: list[Any], expected: dict[str, Any]) -> None:
        assert sizes(planned(group().node_labels({ZONE: "x"}), *builders)) == expected

    def test_daemon_set_pods_reduce_the_free_capacity_of_new_nodes(self) -> None:
        agent = daemon_set().of_pods(pod("agent").cpu("1"))
        assert sizes(planned(group(), agent, *pending_pods(6))) == {"a": (0, 2)}

    def test_pods_with_anti_affinity_do_not_share_a_new_node(self) -> None:
        one = (
            pending_pod("one").labels(app="one").anti_affinity(HOSTNAME, labelSelector={"matchLabels": {"app": "two"}})
        )
        made = planned(group(), one, pending_pod("two").labels(app="two"))
        assert sizes(made) == {"a": (0, 2)}

    def test_upcoming_nodes_take_pods_first(self) -> None:
        made = planned(group(size=1), *pending_pods(6))
        assert sizes(made) == {"a": (1, 2)}
        assert sorted(reasons(made).values()) == ["FitsOnUpcomingNode"] * 4

    def test_existing_nodes_take_pods_first(self) -> None:
        made = planned(group(), node("n1"), *pending_pods(5))
        assert sizes(made) == {"a": (0, 1)}
        assert sorted(reasons(made).values()) == ["FitsOnNode"] * 4
        assert {each.node for each in made.reserved} == {"n1"}

    def test_starting_node_counts_as_ready(self) -> None:
        owner = group(size=1)
        starting = node("n1").not_ready().created("2026-11-20T11:58:00Z").taint("node.kubernetes.io/not-ready")
        made = planned(owner, owner.machine("m").on("n1"), starting, *pending_pods(4))
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
    def test_ready_node_with_initial_taints_counts_as_usable(self, key: str) -> None:
        owner = group(size=1)
        fresh = node("n1").created("2026-11-20T11:59:58Z").taint(key)
        made = planned(owner, owner.machine("m").on("n1"), fresh, *pending_pods(4))
        assert sizes(made) == {}
        assert set(reasons(made).values()) == {"FitsOnUpcomingNode"}

    def test_node_that_starts_for_too_long_does_not_count(self) -> None:
        owner = group(size=1)
        stuck = node("n1").not_ready().created("2026-11-20T11:00:00Z").taint("node.kubernetes.io/not-ready")
        assert sizes(planned(owner, owner.machine("m").on("n1"), stuck, *pending_pods(4))) == {"a": (1, 2)}

    def test_nominated_pod_needs_no_new_node(self) -> None:
        full = pod("old").on("n1").cpu("4")
        preemptor = pending_pod("new").merge(status={"nominatedNodeName": "n1"})
        made = planned(group(), node("n1"), full, preemptor)
        assert (sizes(made), reasons(made)) == ({}, {"new": "Nominated"})

    def test_one_plan_scales_up_several_groups(self) -> None:
        small = group("small", most=1)
        made = planned(small, group("large", cpu="8", memory="32Gi"), *pending_pods(3), pending_pod("big", cpu="7"))
        assert sizes(made) == {"small": (0, 1), "large": (0, 1)}
        assert made.kept == ()

    def test_action_names_pods_and_template(self, golden: Golden) -> None:
        (action,) = planned(group(), pending_pod("b"), pending_pod("a")).actions
        assert (action.from_, action.to, action.reason) == (0, 1, "PendingPods")
        assert action.pods == ("shop/a", "shop/b")
        assert action.machine_set == f"{NAMESPACE}/a"
        golden(action.message)


class TestPendingPods:
    @pytest.mark.parametrize(
        ("asking", "spec", "reason"),
        [
            (pending_pod("p").priority(-11), {}, "PriorityBelowThreshold"),
            (pending_pod("p").priority(-10), {}, None),
            (pending_pod("p").priority(0), {"podPriorityThreshold": 1}, "PriorityBelowThreshold"),
            (pending_pod("p").owned_by("DaemonSet", "agent"), {}, "DaemonSetPod"),
            (pending_pod("p").deleted(), {}, "Terminating"),
            (pod("p"), {}, "NotUnschedulable"),
            (pod("p"), {"scaleUp": {"bypassedSchedulers": ["default-scheduler"]}}, None),
            (pod("p").merge(spec={"schedulerName": "own"}), {"scaleUp": {"bypassedSchedulers": ["own"]}}, None),
            (pending_pod("p").merge(spec={"schedulingGates": [{"name": "x"}]}), {}, "SchedulingGated"),
            (
                pending_pod("p").created("2026-11-20T11:59:50Z"),
                {"scaleUp": {"newPodScaleUpDelay": "11s"}},
                "ScaleUpDelayed",
            ),
            (pending_pod("p").created("2026-11-20T11:59:50Z"), {"scaleUp": {"newPodScaleUpDelay": "10s"}}, None),
            (
                pending_pod("p")
                .created("2026-11-20T11:59:50Z")
                .annotations({"cluster-autoscaler.kubernetes.io/pod-scale-up-delay": "1m"}),
                {},
                "ScaleUpDelayed",
            ),
        ],
        ids=[
            "below the threshold",
            "at the threshold",
            "own threshold",
            "a DaemonSet's pod",
            "terminating",
            "not evaluated by the scheduler",
            "the default scheduler is bypassed",
            "its scheduler is bypassed",
            "gated",
            "too young",
            "just old enough",
            "too young by its own annotation",
        ],
    )
    def test_only_unschedulable_pods_trigger_scale_up(
        self, asking: Any, spec: dict[str, Any], reason: str | None
    ) -> None:
        made = planned(group(), asking, **spec)
        assert sizes(made) == ({} if reason else {"a": (0, 1)})
        assert reasons(made) == ({"p": reason} if reason else {})


class TestBlockedScaleUp:
    @pytest.mark.parametrize(
        ("owner", "spec", "grown", "reason", "expected"),
        [
            (group(most=1), {}, 1, "MaxSizeReached", "its size is 1 (1 planned now), and its maximum is 1"),
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
    def test_limits_are_respected_and_reported(
        self, owner: Any, spec: dict[str, Any], grown: int, reason: str, expected: str
    ) -> None:
        made = planned(owner, node("n1").allocatable(cpu="4"), pod("full").on("n1").cpu("4"), *pending_pods(8), **spec)
        assert sizes(made) == ({"a": (0, grown)} if grown else {})
        pods = [each for each in made.kept if each.kind == "Pod"]
        assert len(pods) == 8 - 4 * grown
        assert all(each.reason == reason and expected in each.message for each in pods)

    def test_group_in_backoff_is_not_scaled_up(self, golden: Golden) -> None:
        until = {f"MachineSet/{NAMESPACE}/a": "it failed until 12:05"}
        made = planned(group(), pending_pod("p"), backoff=until)
        assert reasons(made) == {"p": "GroupBacksOff"}
        golden(made.kept[0].message)

    def test_another_group_is_scaled_up_if_one_is_blocked(self) -> None:
        until = {f"MachineSet/{NAMESPACE}/a": "it failed"}
        assert sizes(planned(group(), group("b"), pending_pod("p"), backoff=until)) == {"b": (0, 1)}

    def test_reasons_are_reported_per_group(self, golden: Golden) -> None:
        tainted = group("b").node_taint("gpu")
        made = planned(group(), tainted, pending_pod("p", cpu="5"))
        assert reasons(made) == {"p": "NoGroupFits"}
        golden(made.kept[0].message)

    def test_no_groups_is_its_own_reason(self) -> None:
        assert reasons(planned(pending_pod("p"))) == {"p": "NoNodeGroups"}

    def test_group_without_template_is_reported(self) -> None:
        made = planned(machine_set("a").limits(0, 3), pending_pod("p"))
        assert [(each.kind, each.reason) for each in made.kept] == [("MachineSet", "NoTemplate"), ("Pod", "NoTemplate")]

    def test_pods_of_higher_priority_get_scarce_nodes(self) -> None:
        pods = [pending_pod(f"low-{each}", cpu="2").priority(1) for each in range(4)]
        important = pending_pod("high", cpu="1").priority(5)
        made = planned(group(most=1), *pods, important)
        assert "shop/high" in made.actions[0].pods


def test_plan_does_not_depend_on_the_order_of_objects() -> None:
    builders = [
        group("a", most=2),
        group("b", cpu="8", memory="32Gi"),
        *pending_pods(9),
        *(pending_pod(f"apart-{each}").labels(app="apart").anti_affinity(HOSTNAME) for each in range(3)),
        *(pending_pod(f"zoned-{each}").labels(app="zoned").spread(ZONE) for each in range(3)),
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
