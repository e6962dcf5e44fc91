"""The scale-down planner: which nodes are removed, where their pods move, and why other nodes are kept."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, budget, expression, node, pod, replica_set, selector
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_down_plans import (
    LONG_AGO,
    NOW,
    flat,
    group,
    kept_messages,
    kept_reasons,
    planned,
    removed,
    unneeded,
    web,
    worker,
    workers,
)
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import PodMove, RemoveNode
from trimtab.autoscaling.scale_down import next_unneeded_records, recorded_unneeded
from trimtab.autoscaling.scale_down.equivalence import PlacementClass
from trimtab.autoscaling.scale_down.rehearsal import Rehearsal, RehearsalResult
from trimtab.autoscaling.scale_down.simulation import FreeCapacity
from trimtab.cluster.resources import CPU, BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.feasibility import FeasibilityChecker
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
JUST_NOW = "2026-11-20T11:55:00Z"

EMPTY = RemoveNode("n9", "", "", (), "")
HELD = {"enabled": True, "maxHold": "1h"}


class TestRemovedNodes:
    def test_empty_node_is_removed(self, golden: Golden) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("w", "n1", cpu="3"))
        assert removed(made) == {"n2": {}}
        (action,) = made.actions
        assert (action.reason, action.machine_set, action.machine) == (
            "Empty",
            "openshift-machine-api/a",
            "openshift-machine-api/m-n2",
        )
        golden(action.message)

    def test_all_empty_nodes_are_removed_at_once(self) -> None:
        of = group(size=4)
        assert set(removed(planned(of, workers(4, of)))) == {"n1", "n2", "n3", "n4"}

    def test_underutilized_node_is_removed_with_targets_for_its_pods(self, golden: Golden) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1"), web("b", "n1"), web("c", "n2", cpu="3"))
        assert removed(made) == {"n1": {"shop/a": "n2", "shop/b": "n2"}}
        assert made.actions[0].reason == "Underutilized"
        golden(kept_messages(made)["n2"])

    def test_daemon_set_static_and_completed_pods_need_no_target(self) -> None:
        of = group(size=1)
        made = planned(
            of,
            workers(1, of),
            pod("agent").on("n1").owned_by("DaemonSet", "agent"),
            pod("static").on("n1").mirror(),
            pod("once").on("n1").phase("Succeeded"),
        )
        assert removed(made) == {"n1": {}}
        assert made.actions[0].reason == "Empty"

    def test_node_that_received_pods_is_kept(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1"), web("b", "n2"), web("c", "n2"))
        assert removed(made) == {"n1": {"shop/a": "n2"}}
        assert kept_reasons(made) == {"n2": "NeededForOtherPods"}

    def test_expendable_pods_are_deleted_with_their_node(self) -> None:
        of = group(size=1)
        lesser = pod("batch").on("n1").cpu("4").priority(-11)
        assert removed(planned(of, workers(1, of), lesser)) == {"n1": {}}
        assert kept_reasons(planned(of, workers(1, of), lesser, podPriorityThreshold=-11)) == {"n1": "NotUnderutilized"}

    def test_pending_pod_is_placed_before_nodes_are_removed(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), pod("wants").cpu("3").unschedulable())
        assert removed(made) == {"n1": {}}
        assert kept_reasons(made) == {"n2": "NeededForOtherPods"}

    def test_pending_pods_reserve_capacity_as_far_as_they_fit(self) -> None:
        of = group(size=4)
        pending = [pod(f"wants-{number}").cpu("4").unschedulable() for number in range(2)]
        made = planned(of, workers(4, of), pending, pod("huge").cpu("64").unschedulable())
        assert len(removed(made)) == 2
        assert list(kept_reasons(made).values()) == ["NeededForOtherPods"] * 2

    @pytest.mark.parametrize(
        "waits",
        [
            pod("wants").cpu("3").priority(-11).unschedulable(),
            pod("wants").cpu("3").merge(spec={"schedulingGates": [{"name": "later"}]}),
            pod("wants").cpu("64").unschedulable(),
        ],
        ids=["low priority", "gated", "fits nowhere"],
    )
    def test_pending_pod_that_does_not_fit_keeps_no_node(self, waits: Any) -> None:
        of = group(size=1)
        assert removed(planned(of, workers(1, of), waits)) == {"n1": {}}

    @pytest.mark.parametrize(
        "other",
        [
            node("x").not_ready(),
            node("x").cordoned(),
            node("x").taint(TO_BE_DELETED, "1"),
            node("x").deleted(),
            node("x").taint("dedicated"),
        ],
        ids=["not ready", "cordoned", "deletion taint", "being deleted", "tainted"],
    )
    def test_pods_move_only_to_usable_nodes(self, other: Any) -> None:
        of = group(size=1)
        assert kept_reasons(planned(of, workers(1, of), other, web("a", "n1")))["n1"] == "NoPlaceToMovePods"

    def test_nominated_node_is_kept(self) -> None:
        of = group(size=2)
        waits = pod("wants").cpu("3").unschedulable().merge(status={"nominatedNodeName": "n1"})
        assert kept_reasons(planned(of, workers(2, of), waits)) == {"n1": "NeededForOtherPods"}


class TestUtilization:
    @pytest.mark.parametrize(
        ("cpu", "memory", "spec", "reason"),
        [
            ("2", "1Gi", {}, None),
            ("2001m", "1Gi", {}, "NotUnderutilized"),
            ("1", "9Gi", {}, "NotUnderutilized"),
            ("2", "1Gi", {"scaleDown": {"enabled": True, "utilizationThreshold": "0.4"}}, "NotUnderutilized"),
        ],
        ids=["at the threshold", "above", "larger resource", "threshold of the spec"],
    )
    def test_only_nodes_up_to_the_threshold_are_removed(
        self, cpu: str, memory: str, spec: dict[str, Any], reason: str | None
    ) -> None:
        of = group(size=1)
        made = planned(of, worker("n1", of), node("other"), web("w", "n1", cpu, memory), **spec)
        assert kept_reasons(made).get("n1") == reason

    def test_threshold_of_the_group_overrides_the_default(self) -> None:
        of = group(size=1).option("scaledownutilizationthreshold", "0.8")
        assert removed(planned(of, worker("n1", of), node("other"), web("w", "n1", cpu="3"))) == {
            "n1": {"shop/w": "other"}
        }

    def test_daemon_set_pods_count_unless_ignored(self) -> None:
        of = group(size=1)
        agent = pod("agent").on("n1").cpu("3").owned_by("DaemonSet", "agent")
        assert kept_reasons(planned(of, worker("n1", of), agent)) == {"n1": "NotUnderutilized"}
        assert removed(planned(of, worker("n1", of), agent, ignoreDaemonsetsUtilization=True)) == {"n1": {}}

    def test_mirror_pods_count_unless_ignored(self) -> None:
        of = group(size=1)
        static = pod("static").on("n1").cpu("3").mirror()
        assert kept_reasons(planned(of, worker("n1", of), static)) == {"n1": "NotUnderutilized"}
        without_daemons = planned(of, worker("n1", of), static, ignoreDaemonsetsUtilization=True)
        assert kept_reasons(without_daemons) == {"n1": "NotUnderutilized"}
        assert removed(planned(of, worker("n1", of), static, ignoreMirrorPodsUtilization=True)) == {"n1": {}}

    def test_ignored_daemon_sets_are_subtracted_from_allocatable(self, golden: Golden) -> None:
        of = group(size=1)
        agent = pod("agent").on("n1").cpu("2").owned_by("DaemonSet", "agent")
        made = planned(
            of, worker("n1", of), node("x"), agent, web("w", "n1", cpu="1500m"), ignoreDaemonsetsUtilization=True
        )
        golden(kept_messages(made)["n1"])

    @pytest.mark.parametrize(
        ("gpus", "reason"), [(1, None), (3, "NotUnderutilized")], ids=["few GPUs used", "many GPUs used"]
    )
    def test_only_gpus_count_on_gpu_nodes(self, gpus: int, reason: str | None) -> None:
        of = group(size=2)
        pairs = [worker("n1", of), worker("n2", of, since=None)]
        for made, _ in pairs:
            made.allocatable({"nvidia.com/gpu": 4})
        busy = web("w", "n1", cpu="3").requests({"nvidia.com/gpu": str(gpus)})
        assert kept_reasons(planned(of, pairs, busy)).get("n1") == reason

    def test_gpu_utilization_is_zero_while_gpus_are_not_ready(self) -> None:
        of = group(size=1)
        made, owner = worker("n1", of)
        made.labels({"cluster-api/accelerator": "nvidia"})
        assert removed(planned(of, made, owner, node("x"), web("w", "n1", cpu="3"))) == {"n1": {"shop/w": "x"}}


STAYING: dict[str, tuple[Any, str, str]] = {
    "the annotation": (
        lambda n: n.annotations({"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}),
        "ScaleDownDisabledAnnotation",
        "scale-down-disabled",
    ),
    "its taint": (lambda n: n.taint(TO_BE_DELETED, "1"), "CurrentlyBeingDeleted", TO_BE_DELETED),
    "it is being deleted": (lambda n: n.deleted(), "CurrentlyBeingDeleted", "being deleted"),
}


class TestKeptNodes:
    @pytest.mark.parametrize(("change", "reason", "words"), STAYING.values(), ids=STAYING)
    def test_node_annotation_or_state_keeps_the_node(self, change: Any, reason: str, words: str) -> None:
        of = group(size=1)
        made, owner = worker("n1", of)
        change(made)
        plan = planned(of, made, owner)
        assert kept_reasons(plan) == {"n1": reason}
        assert words in kept_messages(plan)["n1"]

    def test_nodes_outside_of_groups_are_kept(self) -> None:
        assert kept_reasons(planned(unneeded(node("n1")))) == {"n1": "NotAutoscaled"}

    def test_nodes_whose_machine_is_being_deleted_are_not_removed_again(self) -> None:
        of = group(size=1)
        made = planned(of, unneeded(node("n1")), of.machine("m").on("n1").marked())
        assert kept_reasons(made) == {"n1": "CurrentlyBeingDeleted"}

    def test_nodes_of_a_paused_group_are_kept(self) -> None:
        of = group(size=1).annotations({"cluster.x-k8s.io/paused": ""})
        assert kept_reasons(planned(of, worker("n1", of))) == {"n1": "GroupPaused"}

    def test_all_nodes_are_kept_if_scale_down_is_disabled(self) -> None:
        of = group(size=1)
        assert kept_reasons(planned(of, worker("n1", of), scaleDown={"enabled": False})) == {"n1": "ScaleDownDisabled"}

    @pytest.mark.parametrize(
        ("size", "gone"), [(4, {"n1", "n2"}), (3, {"n1"})], ids=["at the target size", "target size below"]
    )
    def test_minimum_size_holds_over_several_removals(self, size: int, gone: set[str]) -> None:
        of = group(size=size, least=2)
        made = planned(of, workers(4, of))
        assert set(removed(made)) == gone
        assert set(kept_reasons(made).values()) == {"NodeGroupMinSizeReached"}

    def test_upcoming_nodes_do_not_count_for_the_minimum_size(self) -> None:
        of = group(size=5, least=2)
        assert set(removed(planned(of, workers(3, of)))) == {"n1"}

    def test_message_has_the_sizes(self, golden: Golden) -> None:
        of = group(size=1, least=1)
        golden("\n".join(f"{key}: {text}" for key, text in kept_messages(planned(of, workers(1, of))).items()))

    @pytest.mark.parametrize(
        ("limits", "gone", "words"),
        [
            ({"cores": {"min": 8, "max": 99}}, 2, "the cluster has 8 of cores, 4 of them on the node"),
            ({"memory": {"min": 47, "max": 99}}, 1, "memory (GiB)"),
            ({"gpus": [{"type": "nvidia.com/gpu", "min": 5, "max": 99}]}, 1, "gpus[nvidia.com/gpu]"),
            ({"gpus": [{"type": "nvidia", "min": 5, "max": 99}]}, 1, "gpus[nvidia]"),
        ],
        ids=["cores", "memory in GiB", "gpus by resource", "gpus by label"],
    )
    def test_cluster_minimum_of_resources_holds(self, limits: dict[str, Any], gone: int, words: str) -> None:
        of = group(size=4)
        pairs = workers(4, of)
        for made, _ in pairs:
            made.allocatable({"nvidia.com/gpu": 2}).labels({"cluster-api/accelerator": "nvidia"})
        made = planned(of, pairs, resourceLimits=limits)
        assert len(made.actions) == gone
        assert set(kept_reasons(made).values()) == {"MinimalResourceLimitExceeded"}
        assert all(words in message for message in kept_messages(made).values())

    def test_blocking_pod_is_named_with_its_rule(self, golden: Golden) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), pod("bare").on("n1").cpu("1"), web("w", "n2", cpu="3"))
        assert kept_reasons(made)["n1"] == "BlockedByPod"
        golden(kept_messages(made)["n1"])
        assert {kept.name: kept.pod for kept in made.kept} == {"n1": "shop/bare", "n2": ""}

    def test_on_completion_pod_blocks_until_it_completes(self) -> None:
        of = group(size=1)
        job = web("job", "n1").annotations({"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"})
        assert kept_reasons(planned(of, workers(1, of), job)) == {"n1": "BlockedByOnCompletionPod"}

    def test_pod_that_does_not_fit_is_named_with_the_scheduler_message(self, golden: Golden) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1", cpu="2"), web("b", "n2", cpu="3"), node("x").cordoned())
        assert kept_reasons(made)["n1"] == "NoPlaceToMovePods"
        golden(kept_messages(made)["n1"])

    def test_pod_repelled_by_anti_affinity_is_named_with_the_scheduler_message(self, golden: Golden) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1").anti_affinity(), web("b", "n2").anti_affinity())
        assert kept_reasons(made) == {"n1": "NoPlaceToMovePods", "n2": "NoPlaceToMovePods"}
        golden(kept_messages(made)["n1"])

    @pytest.mark.parametrize(
        ("status", "reason", "words"),
        [
            ({"lastScaleUp": JUST_NOW}, "DelayAfterAdd", "300s ago, and delayAfterAdd is 600s"),
            ({"lastScaleDown": "2026-11-20T11:59:55Z"}, "DelayAfterDelete", "5s ago"),
            ({"lastScaleDownFailure": "2026-11-20T11:58:00Z"}, "DelayAfterFailure", "120s ago"),
            ({"lastScaleUp": LONG_AGO, "lastScaleDown": LONG_AGO, "lastScaleDownFailure": LONG_AGO}, None, ""),
        ],
        ids=["after add", "after delete", "after failure", "long ago"],
    )
    def test_delays_after_actions_keep_nodes(self, status: dict[str, Any], reason: str | None, words: str) -> None:
        of = group(size=1)
        made = planned(of, workers(1, of), status=status)
        assert kept_reasons(made).get("n1") == reason
        assert words in kept_messages(made).get("n1", "")


class TestRecords:
    def test_node_without_a_record_is_kept(self, golden: Golden) -> None:
        of = group(size=1)
        made = planned(of, worker("n1", of, since=None))
        assert kept_reasons(made) == {"n1": "NotUnneededLongEnough"}
        golden("\n".join(f"{key}: {text}" for key, text in kept_messages(made).items()))
        assert made.unneeded == {"n1": NOW}

    @pytest.mark.parametrize(
        ("since", "reason"),
        [("2026-11-20T11:50:00Z", None), ("2026-11-20T11:50:01Z", "NotUnneededLongEnough")],
        ids=["long enough", "a second less"],
    )
    def test_record_must_be_old_enough(self, since: str, reason: str | None) -> None:
        of = group(size=1)
        assert kept_reasons(planned(of, worker("n1", of, since=since))).get("n1") == reason

    def test_record_in_the_status_counts(self) -> None:
        of = group(size=1)
        status = {"unneeded": [{"name": "n1", "since": LONG_AGO}]}
        assert removed(planned(of, worker("n1", of, since=None), status=status)) == {"n1": {}}

    def test_record_in_the_status_of_an_earlier_node_of_the_name_does_not_count(self) -> None:
        of = group(size=1)
        status = {"unneeded": [{"name": "n1", "since": LONG_AGO}], "held": [{"name": "n1", "since": LONG_AGO}]}
        recreated = unneeded(node("n1"), None).created("2026-11-20T11:58:00Z")
        made = planned(of, recreated, of.machine("m-n1").on("n1"), status=status, scaleDown=HELD)
        assert kept_reasons(made) == {"n1": "NotUnneededLongEnough"}
        assert (made.unneeded, made.held) == ({"n1": NOW}, {})

    @pytest.mark.parametrize(
        ("since", "words"),
        [
            pytest.param("2026-11-20T11:50:00.0625Z", "unneeded for 599s (required: 600s)", id="almost over"),
            pytest.param(
                "2026-11-20T11:49:59.9375Z",
                "unneeded for 600s (required: 600s); no pod",
                id="just over",
            ),
        ],
    )
    def test_messages_have_whole_seconds(self, since: str, words: str) -> None:
        of = group(size=1)
        made = planned(of, worker("n1", of, since=since))
        assert words in [*kept_messages(made).values(), *(action.message for action in made.actions)][0]

    @pytest.mark.parametrize(("seconds", "gone"), [(7200, True), (60, False)], ids=["long ago", "a minute ago"])
    def test_value_of_the_soft_taint_counts(self, seconds: int, gone: bool) -> None:
        of = group(size=1)
        made, owner = worker("n1", of, since=None)
        made.taint(CANDIDATE, str(int(NOW) - seconds), "PreferNoSchedule")
        assert bool(removed(planned(of, made, owner))) is gone

    def test_soft_taint_without_a_time_counts_since_it_was_added(self) -> None:
        made = node("n1").taint(CANDIDATE, "soon", "PreferNoSchedule", added=LONG_AGO)
        assert recorded_unneeded([made.build()], ClusterAutoscalerStatus()) == {"n1": NOW - 7200}
        bare = node("n1").taint(CANDIDATE, "soon", "PreferNoSchedule")
        assert recorded_unneeded([bare.build()], ClusterAutoscalerStatus()) == {}

    def test_latest_of_several_records_counts(self) -> None:
        made = unneeded(node("n1")).taint(CANDIDATE, str(int(NOW) - 60), "PreferNoSchedule").build()
        assert recorded_unneeded([made], ClusterAutoscalerStatus()) == {"n1": NOW - 60}

    @pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20", "2026-11-20T10:00:00"])
    def test_invalid_time_is_no_record(self, text: str) -> None:
        assert recorded_unneeded([unneeded(node("n1"), text).build()], ClusterAutoscalerStatus()) == {}

    def test_unneeded_time_of_the_group_overrides_the_default(self, golden: Golden) -> None:
        of = group(size=1).option("scaledownunneededtime", "3h")
        golden(kept_messages(planned(of, worker("n1", of)))["n1"])

    def test_unready_node_must_be_unready_and_unneeded_for_unready_time(self) -> None:
        of = group(size=3)
        pairs = [worker(f"n{number}", of, since=since) for number, since in enumerate((LONG_AGO, LONG_AGO, JUST_NOW))]
        pairs[0][0].not_ready(since=LONG_AGO)
        pairs[1][0].not_ready(since="2026-11-20T11:45:00Z")
        pairs[2][0].not_ready(since=LONG_AGO)
        made = planned(of, pairs)
        assert [action.reason for action in made.actions] == ["Unready"]
        assert removed(made) == {"n0": {}}
        assert kept_reasons(made) == {"n1": "NotUnreadyLongEnough", "n2": "NotUnreadyLongEnough"}

    def test_next_records_keep_start_and_drop_times(self) -> None:
        assert next_unneeded_records(["b", "a", "c"], {"a": NOW - 60, "c": NOW + 60, "d": NOW - 90}, now=NOW) == {
            "a": NOW - 60,
            "b": NOW,
            "c": NOW,
        }

    def test_recorded_nodes_are_tried_first(self) -> None:
        of = group(size=2)
        made = planned(
            of, worker("n1", of, since=None), worker("n2", of, since=JUST_NOW), web("a", "n1"), web("b", "n2")
        )
        assert list(made.unneeded) == ["n2"]
        assert kept_reasons(made) == {"n1": "NeededForOtherPods", "n2": "NotUnneededLongEnough"}


class TestOrder:
    def test_largest_saving_per_moved_pod_comes_first(self) -> None:
        of, more = group(size=2, least=1), group("b", size=1)
        pods = [web("a", "n1"), web("b", "n1"), web("c", "n2"), web("d", "x", cpu="3")]
        assert removed(planned(of, more, workers(2, of), worker("x", more), pods)) == {"n2": {"shop/c": "x"}}

    def test_ties_are_broken_by_name(self) -> None:
        of = group(size=3, least=2)
        assert set(removed(planned(of, workers(3, of)))) == {"n1"}

    def test_zones_stay_balanced(self) -> None:
        groups = [group(name, size=4) for name in "abc"]
        pairs = [worker(f"{of.name}{number}", of) for of in groups for number in range(4)]
        for made, _ in pairs:
            made.zone(f"zone-{made.manifest()['metadata']['name'][0]}")
        made = planned(groups, pairs, resourceLimits={"cores": {"min": 24, "max": 99}})
        zones = [name[0] for name in removed(made)]
        assert sorted(zones) == ["a", "a", "b", "b", "c", "c"]

    def test_pods_move_to_nodes_that_are_kept_anyway(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), node("other"), web("a", "n1"), web("b", "n2"))
        assert removed(made) == {"n1": {"shop/a": "other"}, "n2": {"shop/b": "other"}}

    def test_blocked_node_receives_pods_like_a_kept_node(self) -> None:
        of = group(size=3)
        bare = pod("bare").on("n1").cpu("1")
        made = planned(of, workers(3, of), bare, web("a", "n2"), web("b", "n3"))
        assert removed(made) == {"n2": {"shop/a": "n1"}, "n3": {"shop/b": "n1"}}

    @pytest.mark.parametrize("seed", range(5))
    def test_plan_does_not_depend_on_the_order_of_objects(self, seed: int) -> None:
        of, more = group(size=6, least=1), group("b", size=4)
        parts = [of, more, workers(6, of), [worker(f"x{number}", more) for number in range(4)]]
        places = [f"n{1 + number % 6}" for number in range(9)] + ["x1", "x1", "x2"]
        parts += [web(f"w{number}", place) for number, place in enumerate(places)]
        shuffled = flat(parts)
        random.Random(seed).shuffle(shuffled)
        assert planned(shuffled) == planned(parts)


class TestDisruption:
    def test_drains_share_a_pdb(self, golden: Golden) -> None:
        of = group(size=3)
        pods = [web(f"w{number}", f"n{number}") for number in (1, 2, 3)]
        made = planned(of, workers(3, of), node("other"), pods, budget("web").selecting(app="web").allowing(2))
        assert len(made.actions) == 2
        assert kept_reasons(made)["n3"] == "BlockedByPod"
        golden(kept_messages(made)["n3"])

    def test_failed_drain_refunds_the_pdb(self) -> None:
        of = group(size=2)
        pods = [
            web("a", "n1").node_selector(disk="none"),
            web("b", "n1"),
            web("c", "n2"),
            web("d", "n2"),
        ]
        made = planned(of, workers(2, of), node("other"), pods, budget("web").selecting(app="web").allowing(2))
        assert removed(made) == {"n2": {"shop/c": "other", "shop/d": "other"}}
        assert kept_reasons(made)["n1"] == "NoPlaceToMovePods"

    def test_pdb_applies_to_safe_to_evict_pods(self) -> None:
        of = group(size=1)
        safe = web("a", "n1").annotations({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"})
        made = planned(of, workers(1, of), node("x"), safe, budget("web").selecting(app="web").allowing(0))
        assert kept_reasons(made)["n1"] == "BlockedByPod"

    def test_pods_of_nodes_being_removed_are_placed_first(self) -> None:
        of = group(size=2)
        going = unneeded(node("old")).taint(TO_BE_DELETED, "1")
        made = planned(of, workers(2, of), going, web("a", "old", cpu="3"))
        assert removed(made) == {"n1": {}}
        assert kept_reasons(made) == {"n2": "NeededForOtherPods", "old": "CurrentlyBeingDeleted"}


class TestPodsThatDependOnOthers:
    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (None, {}),
            ("Ignore", {}),
            ("Honor", {"n1": {"shop/w0": "n3"}, "n2": {"shop/w2": "n3"}}),
        ],
    )
    def test_draining_node_is_a_topology_domain_unless_its_taints_are_honored(
        self, policy: str | None, expected: dict[str, dict[str, str]], golden: Golden
    ) -> None:
        """Its zone, then empty, limits all other zones to the maximum skew (kubernetes/autoscaler#9288)."""
        of = group(size=3)
        pairs = workers(3, of)
        for made, _ in pairs:
            made.zone(f"zone-{made.manifest()['metadata']['name']}")
        pods = [
            web(f"w{number}", "n1" if number < 1 else f"n{number % 2 + 2}").spread(
                ZONE, **({"nodeTaintsPolicy": policy} if policy else {})
            )
            for number in range(3)
        ]
        made = planned(of, pairs, pods)
        assert removed(made) == expected
        if not expected:
            golden(next(each.message for each in made.kept if each.name == "n1"))

    @pytest.mark.parametrize(("caches", "expected"), [(("n1",), {}), (("n1", "x"), {"n1": {"shop/a": "x"}})])
    def test_places_hold_once_pods_that_stay_on_the_node_are_gone(
        self, caches: tuple[str, ...], expected: dict[str, dict[str, str]]
    ) -> None:
        """The pod must be in a zone of a cache; the DaemonSet's cache ends with its node."""
        of = group(size=1)
        made, owner = worker("n1", of)
        near = web("a", "n1").affinity(ZONE, labelSelector={"matchLabels": {"app": "cache"}})
        own = [pod(f"cache-{on}").on(on).cpu("100m").labels(app="cache").owned_by("DaemonSet", "c") for on in caches]
        found = planned(of, made.zone("a"), owner, node("x").zone("a"), near, [each.ready() for each in own])
        assert removed(found) == expected
        assert kept_reasons(found).get("n1") == (None if expected else "NoPlaceToMovePods")

    def test_spread_constraints_hold_among_kept_nodes(self) -> None:
        of = group(size=1)
        others = [node("x").zone("x"), node("y").zone("y")]
        pods = [web("a", "x").spread(ZONE), web("b", "n1").spread(ZONE)]
        made, owner = worker("n1", of)
        assert removed(planned(of, made.zone("z"), owner, others, pods)) == {"n1": {"shop/b": "y"}}

    def test_anti_affinity_holds_between_moved_pods(self) -> None:
        of = group(size=2)
        pods = [web("a", "n1").anti_affinity(HOSTNAME), web("b", "n2").anti_affinity(HOSTNAME)]
        made = planned(of, workers(2, of), node("x"), node("y"), pods)
        assert removed(made) == {"n1": {"shop/a": "x"}, "n2": {"shop/b": "y"}}

    def test_pods_that_are_only_repelled_run_no_filters(self, monkeypatch: pytest.MonkeyPatch) -> None:
        checked: list[str] = []
        feasible = FeasibilityChecker.feasible

        def counted(checker: FeasibilityChecker, candidate: Pod) -> BoolArray:
            checked.append(candidate.name)
            return feasible(checker, candidate)

        monkeypatch.setattr(FeasibilityChecker, "feasible", counted)
        monkeypatch.setattr(Rehearsal, "run", lambda *_: RehearsalResult())
        of = group(size=4)
        selector = {"matchLabels": {"app": "web"}}
        lone = pod("lone").on("full").cpu("1").labels(app="lone").anti_affinity(HOSTNAME, labelSelector=selector)
        pods = [web(f"w{number}", f"n{1 + number % 4}", "100m") for number in range(6)]
        soft = [web(f"w{number}", f"n{1 + number % 4}", "100m") for number in range(6, 12)]
        pods += [each.anti_affinity(HOSTNAME, preferred=1).spread(ZONE, when="ScheduleAnyway") for each in soft]
        made = planned(of, workers(4, of), node("full").allocatable(cpu="8"), lone, pods)
        targets = [target for moves in removed(made).values() for target in moves.values()]
        assert len(removed(made)) == 3
        assert len(targets) == 9
        assert "full" not in targets
        assert checked == []

    def test_anti_affinity_of_pending_pods_is_respected(self, golden: Golden) -> None:
        of = group(size=1)
        selector = {"matchLabels": {"app": "web"}}
        wants = pod("wants").cpu("1").labels(app="lone").anti_affinity(HOSTNAME, labelSelector=selector).unschedulable()
        made = planned(of, workers(1, of), node("x"), web("a", "n1"), wants)
        assert kept_reasons(made)["n1"] == "NoPlaceToMovePods"
        golden(kept_messages(made)["n1"])

    def test_placements_by_amounts_are_visible_to_dependent_pods(self) -> None:
        of = group(size=2)
        plain = web("a", "n1", cpu="2")
        picky = pod("p").on("n2").cpu("2").labels(app="p").owned_by("ReplicaSet", "p").host_port(80).ready()
        full = web("z", "x", cpu="2")
        made = planned(of, workers(2, of), node("x"), node("y"), plain, picky, full)
        assert set(removed(made)) == {"n1", "n2"}
        targets = [target for moves in removed(made).values() for target in moves.values()]
        assert sorted(targets) in (["x", "y"], ["y", "y"])


@given(st.data())
def test_first_fit_equals_a_search_of_all_nodes(data: st.DataObject) -> None:
    snapshot = Snapshot([node(f"n{number}").allocatable(cpu="4").build() for number in range(5)])
    table = snapshot.nodes
    order, slots = table.order(), st.integers(0, 4)
    room = FreeCapacity(table, order)
    masks = st.lists(slots).map(lambda chosen: np.isin(np.arange(table.capacity), chosen))
    classes = [
        PlacementClass(number, ((CPU, 1000 + 1000 * number),), data.draw(masks), pod("p").build())
        for number in range(2)
    ]
    left, is_open = dict.fromkeys(order.tolist(), 4000), dict.fromkeys(order.tolist(), True)
    for _ in range(data.draw(st.integers(1, 20))):
        slot = data.draw(slots)
        if data.draw(st.booleans()):
            count = data.draw(st.sampled_from((1, -1)))
            room.take(slot, ((CPU, 1000),), count)
            left[slot] -= 1000 * count
        else:
            is_open[slot] = not is_open[slot]
            (room.reopen if is_open[slot] else room.close)(slot)
        wanted = data.draw(st.sampled_from(classes))
        rejected = data.draw(masks)
        fitting = [
            each
            for each in order.tolist()
            if is_open[each] and wanted.eligible[each] and left[each] >= wanted.wanted[0][1] and not rejected[each]
        ]
        assert room.first_of(wanted, rejected) == next(iter(fitting), None)


class TestReplacements:
    """A pod that was resized in place leaves a replacement of the template's size (kubernetes-sigs/karpenter#829)."""

    TEMPLATE = replica_set("web").of_pods(pod().cpu("3").memory("1Gi"))

    def test_node_is_kept_if_only_the_replacement_does_not_fit(self) -> None:
        of = group(size=2)
        resized = web("small", "n1").merge(metadata={"generation": 2})
        made = planned(of, workers(2, of), resized, web("b", "n2", cpu="2200m"), self.TEMPLATE)
        assert kept_reasons(made) == {"n1": "ReplacementLarger", "n2": "NotUnderutilized"}
        assert removed(planned(of, workers(2, of), resized, web("b", "n2", cpu="2200m"))) == {
            "n1": {"shop/small": "n2"}
        }

    def test_node_is_removed_if_the_replacement_is_smaller(self) -> None:
        of = group(size=2)
        template = replica_set("web").of_pods(pod().cpu("500m"))
        resized = web("large", "n1", cpu="1900m").merge(metadata={"generation": 3})
        other = pod("b").on("n2").cpu("2500m").owned_by("ReplicaSet", "other").ready()
        assert removed(planned(of, workers(2, of), resized, other, template)) == {"n1": {"shop/large": "n2"}}
        assert removed(planned(of, workers(2, of), resized, other)) == {}

    def test_replacements_of_several_pods_take_the_room_of_the_template(self) -> None:
        of = group(size=3)
        pods = [web(f"small-{each}", f"n{each}", cpu="100m").merge(metadata={"generation": 2}) for each in (1, 2)]
        made = planned(of, workers(3, of), pods, web("b", "n3", cpu="900m"), self.TEMPLATE)
        assert len(removed(made)) == 1

    def test_node_is_kept_if_the_template_of_a_pod_names_it(self) -> None:
        """Each replacement is on the same node, so that the drain would never end."""
        of = group(size=2)
        template = replica_set("web").of_pods(pod().cpu("1"))
        template.merge(spec={"template": {"spec": {"nodeName": "n1"}}})
        made = planned(of, workers(2, of), web("a", "n1"), web("b", "n2", cpu="2200m"), template)
        assert kept_reasons(made) == {"n1": "ReplacementLarger", "n2": "NotUnderutilized"}

    def test_unready_node_is_removed_although_the_template_of_a_pod_names_it(self) -> None:
        """The pod runs nowhere until its template changes, whether the node is kept or not."""
        of = group(size=2)
        dead = worker("n1", of)
        dead[0].not_ready(since=LONG_AGO)
        template = replica_set("web").of_pods(pod().cpu("1"))
        template.merge(spec={"template": {"spec": {"nodeName": "n1"}}})
        made = planned(of, dead, worker("n2", of), web("a", "n1"), web("b", "n2", cpu="2200m"), template)
        assert removed(made) == {"n1": {}}
        assert kept_reasons(made) == {"n2": "NotUnderutilized"}

    def test_pods_that_depend_on_others_are_replaced_too(self) -> None:
        of = group(size=2)
        apart = web("small", "n1").anti_affinity().merge(metadata={"generation": 2})
        template = replica_set("web").of_pods(pod().labels(app="web").cpu("3").memory("1Gi").anti_affinity())
        other = pod("b").on("n2").cpu("2200m").owned_by("ReplicaSet", "other").ready()
        assert removed(planned(of, workers(2, of), apart, other)) == {"n1": {"shop/small": "n2"}}
        made = planned(of, workers(2, of), apart, other, template)
        assert kept_reasons(made)["n1"] == "ReplacementLarger"


@pytest.mark.parametrize("announced", ["MaintenancePlanned", "DrainInProgress", "GracefulNodeShutdownInProgress"])
def test_nodes_whose_maintenance_is_announced_go_first(announced: str) -> None:
    of = group(size=3, least=2)
    nodes = [worker(f"n{number}", of) for number in (1, 2, 3)]
    pods = [web(f"w{number}", f"n{number}", cpu="500m") for number in (1, 2, 3)]
    assert set(removed(planned(of, nodes, pods))) == {"n1"}
    nodes[2][0] = nodes[2][0].condition(announced, "True")
    assert set(removed(planned(of, nodes, pods))) == {"n3"}


def test_room_of_nominated_pods_is_not_given_away() -> None:
    of = group(size=2)
    waiting = pod("urgent").cpu("3").owned_by("ReplicaSet", "urgent").unschedulable()
    cluster = of, workers(2, of), web("a", "n1", cpu="1100m"), web("b", "n2", cpu="1500m")
    assert removed(planned(*cluster)) == {"n1": {"shop/a": "n2"}}
    made = planned(*cluster, waiting.merge(status={"nominatedNodeName": "n2"}))
    assert removed(made) == {}
    assert kept_reasons(made)["n1"] == "NoPlaceToMovePods"


class TestRehearsals:
    """A pod with a single place must not lose it to a pod that fits elsewhere, whatever kube-scheduler chooses."""

    def cluster(self, *, free: str) -> list[Any]:
        """Two pods of the node n1, one of which fits on ``only`` alone. The other prefers it to ``hdd``."""
        of = group(size=1)
        return [
            worker("n1", of),
            node("hdd"),
            web("there", "hdd", cpu="2"),
            node("only").allocatable(cpu=free, memory="16Gi").labels(disk="ssd"),
            web("a", "n1", cpu="1").prefers_nodes(100, expression("disk", "In", "ssd")),
            web("b", "n1", cpu="1").node_selector(disk="ssd"),
            of,
        ]

    def test_node_is_kept_if_the_other_pod_may_take_the_place(self) -> None:
        made = planned(*self.cluster(free="1"))
        assert not made.actions
        assert kept_reasons(made)["n1"] == "NoPlaceToMovePods"
        assert {each.name: each.pod for each in made.kept}["n1"] == "shop/b"
        assert set(made.unneeded) == set()
        assert made.disruptions == {}

    def test_node_is_removed_if_there_is_room_for_both(self) -> None:
        assert set(removed(planned(*self.cluster(free="2")))) == {"n1"}

    def test_disruptions_of_a_kept_node_are_not_planned(self) -> None:
        allowed = budget("web").selecting(app="web").allowing(5)
        assert planned(*self.cluster(free="1"), allowed).disruptions == {}
        assert planned(*self.cluster(free="2"), allowed).disruptions == {"shop/web": 2}

    def test_other_nodes_are_still_removed(self) -> None:
        made = planned(*self.cluster(free="1"), worker("n0", group("b", size=1)), group("b", size=1))
        assert set(removed(made)) == {"n0"}

    def test_node_that_is_kept_because_of_other_removals_stays_unneeded(self) -> None:
        first, second = group("a", size=1), group("b", size=1)
        made = planned(
            *(first, second, worker("n1", first), worker("n2", second)),
            *(node("hdd"), web("there", "hdd", cpu="2")),
            node("only").allocatable(cpu="1", memory="16Gi").labels(disk="ssd"),
            web("a", "n1", cpu="1").prefers_nodes(100, expression("disk", "In", "ssd")),
            web("b", "n2", cpu="1").node_selector(disk="ssd"),
        )
        assert len(removed(made)) == 1
        assert set(made.unneeded) == {"n1", "n2"}

    def test_pods_with_many_places_need_no_rehearsal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Rehearsal, "run", lambda *_: pytest.fail("it is rehearsed"))
        of = group(size=1)
        others = [node(f"m{number}") for number in range(3)]
        made = planned(worker("n1", of), of, *others, web("a", "n1"), web("b", "n1"))
        assert set(removed(made)) == {"n1"}

    def test_pods_that_need_each_other_are_placed_in_any_order(self) -> None:
        follower = web("z", "n1").affinity(labelSelector=selector(app="b"))
        objects = node("n1"), node("n2"), node("n3"), follower, web("b", "n1").labels(app="b")
        placer = Placer(Snapshot([builder.build() for builder in objects]))
        rehearsal = Rehearsal(placer, leaving=(), pending=(), draining=(), budget=UNLIMITED)
        moves = tuple(PodMove(f"shop/{name}", "n2") for name in "bz")
        assert not rehearsal.run([RemoveNode("n1", "", "", moves, "")]).stranded
        assert not [pod.key for pod in placer.snapshot.pods.values() if pod.node != "n1"]

    def test_places_are_not_tried_if_there_are_enough_for_the_largest_pods(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Four pods on two other nodes, which is too few to know that without a rehearsal."""
        monkeypatch.setattr(Rehearsal, "_first_stranded", lambda *_: pytest.fail("it is rehearsed"))
        of = group(size=1)
        others = [node(f"m{number}").allocatable(cpu="1", memory="16Gi") for number in range(2)]
        pods = [web(name, "n1", cpu="500m" if name == "d" else "200m") for name in "abcd"]
        assert set(removed(planned(worker("n1", of), of, *others, *pods))) == {"n1"}
        with pytest.raises(pytest.fail.Exception, match="it is rehearsed"):
            planned(worker("n1", of), of, *others, *pods, web("e", "m1", cpu="500m"))

    @given(
        free=st.lists(st.integers(0, 4), min_size=1, max_size=4),
        sizes=st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=8),
        ssd=st.integers(0, 3),
    )
    def test_pods_that_fit_in_any_order_are_never_stranded(
        self, free: list[int], sizes: list[tuple[int, bool]], ssd: int
    ) -> None:
        nodes = [node("n1").allocatable(cpu="64", memory="64Gi")]
        for number, cpu in enumerate(free):
            other = node(f"m{number}").allocatable(cpu=str(cpu), memory="64Gi")
            nodes.append(other.labels(disk="ssd") if number <= ssd else other)
        pods = [web(f"p{number}", "n1", cpu=str(cpu)) for number, (cpu, _) in enumerate(sizes)]
        pods = [each.node_selector(disk="ssd") if picky else each for each, (_, picky) in zip(pods, sizes, strict=True)]
        placer = Placer(Snapshot([builder.build() for builder in (*nodes, *pods)]))
        removals = [RemoveNode("n1", "", "", tuple(PodMove(f"shop/p{each}", "m0") for each in range(len(pods))), "")]
        rehearsal = Rehearsal(placer, leaving=(), pending=(), draining=(), budget=UNLIMITED)
        if rehearsal._fits_in_any_order(removals):
            assert [rehearsal._first_stranded(removals, variant) for variant in range(10)] == [None] * 10

    @pytest.fixture
    def two(self) -> list[Any]:
        """Two nodes, each with pods of which only one fits elsewhere."""
        return [
            node("only").allocatable(cpu="1", memory="16Gi").labels(disk="ssd"),
            *(node(name) for name in ("n1", "n2")),
            *(web(f"{name}-{each}", name, cpu="1").node_selector(disk="ssd") for name in ("n1", "n2") for each in "ab"),
        ]

    def rehearsal(self, builders: list[Any], budget: PlanBudget = UNLIMITED) -> RehearsalResult:
        removals = [
            RemoveNode(name, "", "", tuple(PodMove(f"shop/{name}-{each}", "only") for each in "ab"), "")
            for name in ("n1", "n2")
        ]
        placer = Placer(Snapshot([builder.build() for builder in builders]))
        return Rehearsal(placer, leaving=(), pending=(), draining=(), budget=budget).run([*removals, EMPTY])

    def test_removal_that_takes_the_place_of_another_is_rehearsed_too(
        self, two: list[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("trimtab.autoscaling.scale_down.rehearsal.MAX_REMOVALS", 1)
        result = self.rehearsal(two)
        assert [each.node for each in result.stranded] == ["n1", "n2"]
        assert result.skipped == ()

    def test_removals_are_skipped_after_the_deadline_unless_the_node_is_empty(self, two: list[Any]) -> None:
        times = iter([0.0, 1.0])  # the beginning, and the question before the first rehearsal
        result = self.rehearsal(two, PlanBudget(10.0, lambda: next(times, 11.0)))
        assert [each.node for each in result.stranded] == ["n1"]
        assert [each.node for each in result.skipped] == ["n2"]

    def test_skipped_removals_are_not_in_the_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Rehearsal, "run", lambda _, removals: RehearsalResult(skipped=removals))
        made = planned(*self.cluster(free="1"))
        assert not made.actions
        assert kept_reasons(made)["n1"] == "PlanDeadlineExceeded"
        assert set(made.unneeded) == {"n1"}
