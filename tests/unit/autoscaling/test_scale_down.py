"""Which nodes are removed, where their pods go, and why the others stay."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, budget, node, pod
from tests.unit.autoscaling.removing import (
    LONG_AGO,
    NOW,
    flat,
    group,
    planned,
    removed,
    said,
    unneeded,
    web,
    why,
    worker,
    workers,
)
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.scale_down import next_records, recorded

TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
JUST_NOW = "2026-11-20T11:55:00Z"


class TestWhichNodesGo:
    def test_an_empty_node_goes(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("w", "n1", cpu="3"))
        assert removed(made) == {"n2": {}}
        (action,) = made.actions
        assert (action.reason, action.machine_set, action.machine) == (
            "Empty",
            "openshift-machine-api/a",
            "openshift-machine-api/m-n2",
        )
        assert action.message == (
            "requested of what is allocatable: cpu 0%, memory 0%, the threshold is 50%; "
            "unneeded for 7200s of 600s; no pod needs a place"
        )

    def test_all_empty_nodes_go_at_once(self) -> None:
        of = group(size=4)
        assert set(removed(planned(of, workers(4, of)))) == {"n1", "n2", "n3", "n4"}

    def test_an_underutilized_node_goes_and_its_pods_have_places(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1"), web("b", "n1"), web("c", "n2", cpu="3"))
        assert removed(made) == {"n1": {"shop/a": "n2", "shop/b": "n2"}}
        assert made.actions[0].reason == "Underutilized"
        assert said(made)["n2"] == ("requested of what is allocatable: cpu 75%, memory 6.25%; the threshold is 50%")

    def test_pods_of_daemon_sets_mirrors_and_ended_ones_need_no_place(self) -> None:
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

    def test_a_node_that_has_taken_pods_stays(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1"), web("b", "n2"), web("c", "n2"))
        assert removed(made) == {"n1": {"shop/a": "n2"}}
        assert why(made) == {"n2": "NeededForOtherPods"}

    def test_pods_that_nodes_are_not_kept_for_go_with_their_node(self) -> None:
        of = group(size=1)
        lesser = pod("batch").on("n1").cpu("4").priority(-11)
        assert removed(planned(of, workers(1, of), lesser)) == {"n1": {}}
        assert why(planned(of, workers(1, of), lesser, podPriorityThreshold=-11)) == {"n1": "NotUnderutilized"}

    def test_a_pending_pod_has_its_place_before_nodes_go(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), pod("wants").cpu("3").unschedulable())
        assert removed(made) == {"n1": {}}
        assert why(made) == {"n2": "NeededForOtherPods"}

    def test_as_many_pending_pods_as_find_places_have_them(self) -> None:
        of = group(size=4)
        pending = [pod(f"wants-{number}").cpu("4").unschedulable() for number in range(2)]
        made = planned(of, workers(4, of), pending, pod("huge").cpu("64").unschedulable())
        assert len(removed(made)) == 2
        assert list(why(made).values()) == ["NeededForOtherPods"] * 2

    @pytest.mark.parametrize(
        "waits",
        [
            pod("wants").cpu("3").priority(-11).unschedulable(),
            pod("wants").cpu("3").merge(spec={"schedulingGates": [{"name": "later"}]}),
            pod("wants").cpu("64").unschedulable(),
        ],
        ids=["of too little priority", "gated", "that no node takes"],
    )
    def test_pending_pods_keep_no_node_that_could_not_have_it(self, waits: Any) -> None:
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
        ids=["not ready", "cordoned", "tainted to go", "being deleted", "tainted"],
    )
    def test_pods_go_to_no_node_that_is_no_place(self, other: Any) -> None:
        of = group(size=1)
        assert why(planned(of, workers(1, of), other, web("a", "n1")))["n1"] == "NoPlaceToMovePods"

    def test_a_node_that_a_pending_pod_is_nominated_for_stays(self) -> None:
        of = group(size=2)
        waits = pod("wants").cpu("3").unschedulable().merge(status={"nominatedNodeName": "n1"})
        assert why(planned(of, workers(2, of), waits)) == {"n1": "NeededForOtherPods"}


class TestUtilization:
    @pytest.mark.parametrize(
        ("cpu", "memory", "spec", "reason"),
        [
            ("2", "1Gi", {}, None),
            ("2001m", "1Gi", {}, "NotUnderutilized"),
            ("1", "9Gi", {}, "NotUnderutilized"),
            ("2", "1Gi", {"scaleDown": {"enabled": True, "utilizationThreshold": "0.4"}}, "NotUnderutilized"),
        ],
        ids=["exactly at the threshold", "above it", "the larger counts", "the spec's threshold"],
    )
    def test_only_nodes_up_to_the_threshold_go(
        self, cpu: str, memory: str, spec: dict[str, Any], reason: str | None
    ) -> None:
        of = group(size=1)
        made = planned(of, worker("n1", of), node("other"), web("w", "n1", cpu, memory), **spec)
        assert why(made).get("n1") == reason

    def test_the_groups_own_threshold_counts(self) -> None:
        of = group(size=1).option("scaledownutilizationthreshold", "0.8")
        assert removed(planned(of, worker("n1", of), node("other"), web("w", "n1", cpu="3"))) == {
            "n1": {"shop/w": "other"}
        }

    def test_pods_of_daemon_sets_count_unless_they_are_ignored(self) -> None:
        of = group(size=1)
        agent = pod("agent").on("n1").cpu("3").owned_by("DaemonSet", "agent")
        assert why(planned(of, worker("n1", of), agent)) == {"n1": "NotUnderutilized"}
        assert removed(planned(of, worker("n1", of), agent, ignoreDaemonsetsUtilization=True)) == {"n1": {}}

    def test_mirror_pods_count_unless_they_are_ignored(self) -> None:
        of = group(size=1)
        static = pod("static").on("n1").cpu("3").mirror()
        assert why(planned(of, worker("n1", of), static)) == {"n1": "NotUnderutilized"}
        without_daemons = planned(of, worker("n1", of), static, ignoreDaemonsetsUtilization=True)
        assert why(without_daemons) == {"n1": "NotUnderutilized"}
        assert removed(planned(of, worker("n1", of), static, ignoreMirrorPodsUtilization=True)) == {"n1": {}}

    def test_ignored_daemon_sets_take_their_part_of_the_node(self) -> None:
        of = group(size=1)
        agent = pod("agent").on("n1").cpu("2").owned_by("DaemonSet", "agent")
        made = planned(
            of, worker("n1", of), node("x"), agent, web("w", "n1", cpu="1500m"), ignoreDaemonsetsUtilization=True
        )
        assert "cpu 75%" in said(made)["n1"]

    @pytest.mark.parametrize(
        ("gpus", "reason"), [(1, None), (3, "NotUnderutilized")], ids=["few gpus in use", "many in use"]
    )
    def test_of_a_node_with_gpus_only_these_count(self, gpus: int, reason: str | None) -> None:
        of = group(size=2)
        pairs = [worker("n1", of), worker("n2", of, since=None)]
        for made, _ in pairs:
            made.allocatable({"nvidia.com/gpu": 4})
        busy = web("w", "n1", cpu="3").requests({"nvidia.com/gpu": str(gpus)})
        assert why(planned(of, pairs, busy)).get("n1") == reason

    def test_a_node_whose_gpus_are_not_ready_uses_none(self) -> None:
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


class TestWhyANodeStays:
    @pytest.mark.parametrize(("change", "reason", "words"), STAYING.values(), ids=STAYING)
    def test_for_what_the_node_says(self, change: Any, reason: str, words: str) -> None:
        of = group(size=1)
        made, owner = worker("n1", of)
        change(made)
        plan = planned(of, made, owner)
        assert why(plan) == {"n1": reason}
        assert words in said(plan)["n1"]

    def test_nodes_of_no_group_stay(self) -> None:
        assert why(planned(unneeded(node("n1")))) == {"n1": "NotAutoscaled"}

    def test_nodes_whose_machine_goes_already_stay_as_they_are(self) -> None:
        of = group(size=1)
        made = planned(of, unneeded(node("n1")), of.machine("m").on("n1").marked())
        assert why(made) == {"n1": "CurrentlyBeingDeleted"}

    def test_nodes_of_a_group_that_is_paused_stay(self) -> None:
        of = group(size=1).annotations({"cluster.x-k8s.io/paused": ""})
        assert why(planned(of, worker("n1", of))) == {"n1": "GroupPaused"}

    def test_all_stay_where_scaling_down_is_off(self) -> None:
        of = group(size=1)
        assert why(planned(of, worker("n1", of), scaleDown={"enabled": False})) == {"n1": "ScaleDownDisabled"}

    @pytest.mark.parametrize(("size", "gone"), [(4, {"n1", "n2"}), (3, {"n1"})], ids=["as asked", "fewer asked for"])
    def test_a_group_keeps_its_smallest_size_over_several_removals(self, size: int, gone: set[str]) -> None:
        of = group(size=size, least=2)
        made = planned(of, workers(4, of))
        assert set(removed(made)) == gone
        assert set(why(made).values()) == {"NodeGroupMinSizeReached"}

    def test_nodes_that_are_asked_for_and_not_there_do_not_count(self) -> None:
        of = group(size=5, least=2)
        assert set(removed(planned(of, workers(3, of)))) == {"n1"}

    def test_the_message_has_the_sizes(self) -> None:
        of = group(size=1, least=1)
        assert said(planned(of, workers(1, of))) == {
            "n1": "MachineSet openshift-machine-api/a has 1 nodes, and must have 1 at least"
        }

    @pytest.mark.parametrize(
        ("limits", "gone", "words"),
        [
            ({"cores": {"min": 8, "max": 99}}, 2, "the cluster has 8 of cores, the node is 4 of it"),
            ({"memory": {"min": 47, "max": 99}}, 1, "memory (GiB)"),
            ({"gpus": [{"type": "nvidia.com/gpu", "min": 5, "max": 99}]}, 1, "gpus[nvidia.com/gpu]"),
            ({"gpus": [{"type": "nvidia", "min": 5, "max": 99}]}, 1, "gpus[nvidia]"),
        ],
        ids=["cores", "memory in GiB", "gpus by resource", "gpus by label"],
    )
    def test_the_cluster_keeps_what_its_limits_ask_for(self, limits: dict[str, Any], gone: int, words: str) -> None:
        of = group(size=4)
        pairs = workers(4, of)
        for made, _ in pairs:
            made.allocatable({"nvidia.com/gpu": 2}).labels({"cluster-api/accelerator": "nvidia"})
        made = planned(of, pairs, resourceLimits=limits)
        assert len(made.actions) == gone
        assert set(why(made).values()) == {"MinimalResourceLimitExceeded"}
        assert all(words in message for message in said(made).values())

    def test_a_pod_that_blocks_is_named_with_its_rule(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), pod("bare").on("n1").cpu("1"), web("w", "n2", cpu="3"))
        assert why(made)["n1"] == "BlockedByPod"
        assert said(made)["n1"] == (
            "pod shop/bare keeps it (NotReplicated): no controller owns it: nothing would bring it back"
        )
        assert {kept.name: kept.pod for kept in made.kept} == {"n1": "shop/bare", "n2": ""}

    def test_a_pod_that_is_to_run_to_its_end_is_waited_for(self) -> None:
        of = group(size=1)
        job = web("job", "n1").annotations({"cluster-autoscaler.kubernetes.io/safe-to-evict": "on-completion"})
        assert why(planned(of, workers(1, of), job)) == {"n1": "BlockedByOnCompletionPod"}

    def test_a_pod_without_a_place_is_named_in_the_schedulers_words(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1", cpu="2"), web("b", "n2", cpu="3"), node("x").cordoned())
        assert why(made)["n1"] == "NoPlaceToMovePods"
        assert said(made)["n1"] == (
            "pod shop/a finds no place elsewhere: 0/2 nodes are available: "
            "1 Insufficient cpu, 1 node(s) were unschedulable."
        )

    def test_so_is_one_that_other_pods_keep_away(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), web("a", "n1").anti_affinity(), web("b", "n2").anti_affinity())
        assert why(made) == {"n1": "NoPlaceToMovePods", "n2": "NoPlaceToMovePods"}
        assert "didn't match pod anti-affinity rules" in said(made)["n1"]

    @pytest.mark.parametrize(
        ("status", "reason", "words"),
        [
            ({"lastScaleUp": JUST_NOW}, "DelayAfterAdd", "300s ago, and delayAfterAdd is 600s"),
            ({"lastScaleDown": "2026-11-20T11:59:55Z"}, "DelayAfterDelete", "5s ago"),
            ({"lastScaleDownFailure": "2026-11-20T11:58:00Z"}, "DelayAfterFailure", "120s ago"),
            ({"lastScaleUp": LONG_AGO, "lastScaleDown": LONG_AGO, "lastScaleDownFailure": LONG_AGO}, None, ""),
        ],
        ids=["nodes were added", "one was removed", "removing failed", "all of it is long ago"],
    )
    def test_for_a_while_after_what_was_done(self, status: dict[str, Any], reason: str | None, words: str) -> None:
        of = group(size=1)
        made = planned(of, workers(1, of), status=status)
        assert why(made).get("n1") == reason
        assert words in said(made).get("n1", "")


class TestRecords:
    def test_nothing_goes_without_a_record(self) -> None:
        of = group(size=1)
        made = planned(of, worker("n1", of, since=None))
        assert why(made) == {"n1": "NotUnneededLongEnough"}
        assert said(made) == {"n1": "unneeded now, and not recorded as that before; it must be for 600s"}
        assert made.unneeded == {"n1": NOW}

    @pytest.mark.parametrize(
        ("since", "reason"),
        [("2026-11-20T11:50:00Z", None), ("2026-11-20T11:50:01Z", "NotUnneededLongEnough")],
        ids=["long enough to the second", "a second less"],
    )
    def test_a_record_must_be_old_enough(self, since: str, reason: str | None) -> None:
        of = group(size=1)
        assert why(planned(of, worker("n1", of, since=since))).get("n1") == reason

    def test_a_record_may_be_in_the_status(self) -> None:
        of = group(size=1)
        status = {"unneeded": [{"name": "n1", "since": LONG_AGO}]}
        assert removed(planned(of, worker("n1", of, since=None), status=status)) == {"n1": {}}

    @pytest.mark.parametrize(
        ("since", "words"),
        [
            pytest.param("2026-11-20T11:50:00.0625Z", "unneeded for 599s; it must be for 600s", id="almost due"),
            pytest.param("2026-11-20T11:49:59.9375Z", "unneeded for 600s of 600s; no pod needs a place", id="just due"),
        ],
    )
    def test_times_are_told_in_whole_seconds(self, since: str, words: str) -> None:
        of = group(size=1)
        made = planned(of, worker("n1", of, since=since))
        assert words in [*said(made).values(), *(action.message for action in made.actions)][0]

    @pytest.mark.parametrize(("seconds", "gone"), [(7200, True), (60, False)], ids=["long ago", "a minute ago"])
    def test_or_the_value_of_the_soft_taint(self, seconds: int, gone: bool) -> None:
        of = group(size=1)
        made, owner = worker("n1", of, since=None)
        made.taint(CANDIDATE, str(int(NOW) - seconds), "PreferNoSchedule")
        assert bool(removed(planned(of, made, owner))) is gone

    def test_a_soft_taint_whose_value_is_no_time_counts_since_it_was_added(self) -> None:
        made = node("n1").taint(CANDIDATE, "soon", "PreferNoSchedule", added=LONG_AGO)
        assert recorded([made.build()], ClusterAutoscalerStatus()) == {"n1": NOW - 7200}
        bare = node("n1").taint(CANDIDATE, "soon", "PreferNoSchedule")
        assert recorded([bare.build()], ClusterAutoscalerStatus()) == {}

    def test_of_several_records_the_latest_counts(self) -> None:
        made = unneeded(node("n1")).taint(CANDIDATE, str(int(NOW) - 60), "PreferNoSchedule").build()
        assert recorded([made], ClusterAutoscalerStatus()) == {"n1": NOW - 60}

    @pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20", "2026-11-20T10:00:00"])
    def test_what_is_no_time_is_no_record(self, text: str) -> None:
        assert recorded([unneeded(node("n1"), text).build()], ClusterAutoscalerStatus()) == {}

    def test_the_groups_own_time_counts(self) -> None:
        of = group(size=1).option("scaledownunneededtime", "3h")
        assert "it must be for 10800s" in said(planned(of, worker("n1", of)))["n1"]

    def test_an_unready_node_must_have_been_unready_and_unneeded(self) -> None:
        of = group(size=3)
        pairs = [worker(f"n{number}", of, since=since) for number, since in enumerate((LONG_AGO, LONG_AGO, JUST_NOW))]
        pairs[0][0].not_ready(since=LONG_AGO)
        pairs[1][0].not_ready(since="2026-11-20T11:45:00Z")
        pairs[2][0].not_ready(since=LONG_AGO)
        made = planned(of, pairs)
        assert [action.reason for action in made.actions] == ["Unready"]
        assert removed(made) == {"n0": {}}
        assert why(made) == {"n1": "NotUnreadyLongEnough", "n2": "NotUnreadyLongEnough"}

    def test_what_is_recorded_next_goes_on_begins_and_ends(self) -> None:
        assert next_records(["b", "a", "c"], {"a": NOW - 60, "c": NOW + 60, "d": NOW - 90}, now=NOW) == {
            "a": NOW - 60,
            "b": NOW,
            "c": NOW,
        }

    def test_nodes_that_are_recorded_are_tried_before_those_that_are_not(self) -> None:
        of = group(size=2)
        made = planned(
            of, worker("n1", of, since=None), worker("n2", of, since=JUST_NOW), web("a", "n1"), web("b", "n2")
        )
        assert list(made.unneeded) == ["n2"]
        assert why(made) == {"n1": "NeededForOtherPods", "n2": "NotUnneededLongEnough"}


class TestOrder:
    def test_what_saves_most_per_pod_that_moves_goes_first(self) -> None:
        of, more = group(size=2, least=1), group("b", size=1)
        pods = [web("a", "n1"), web("b", "n1"), web("c", "n2"), web("d", "x", cpu="3")]
        assert removed(planned(of, more, workers(2, of), worker("x", more), pods)) == {"n2": {"shop/c": "x"}}

    def test_ties_are_decided_by_name(self) -> None:
        of = group(size=3, least=2)
        assert set(removed(planned(of, workers(3, of)))) == {"n1"}

    def test_zones_stay_even(self) -> None:
        groups = [group(name, size=4) for name in "abc"]
        pairs = [worker(f"{of.name}{number}", of) for of in groups for number in range(4)]
        for made, _ in pairs:
            made.zone(f"zone-{made.manifest()['metadata']['name'][0]}")
        made = planned(groups, pairs, resourceLimits={"cores": {"min": 24, "max": 99}})
        zones = [name[0] for name in removed(made)]
        assert sorted(zones) == ["a", "a", "b", "b", "c", "c"]

    def test_pods_go_to_nodes_that_stay_anyway(self) -> None:
        of = group(size=2)
        made = planned(of, workers(2, of), node("other"), web("a", "n1"), web("b", "n2"))
        assert removed(made) == {"n1": {"shop/a": "other"}, "n2": {"shop/b": "other"}}

    def test_a_node_that_a_pod_keeps_is_one_that_stays_anyway(self) -> None:
        of = group(size=3)
        bare = pod("bare").on("n1").cpu("1")
        made = planned(of, workers(3, of), bare, web("a", "n2"), web("b", "n3"))
        assert removed(made) == {"n2": {"shop/a": "n1"}, "n3": {"shop/b": "n1"}}

    @pytest.mark.parametrize("seed", range(5))
    def test_plans_are_the_same_whatever_the_order_of_objects(self, seed: int) -> None:
        of, more = group(size=6, least=1), group("b", size=4)
        parts = [of, more, workers(6, of), [worker(f"x{number}", more) for number in range(4)]]
        places = [f"n{1 + number % 6}" for number in range(9)] + ["x1", "x1", "x2"]
        parts += [web(f"w{number}", place) for number, place in enumerate(places)]
        shuffled = flat(parts)
        random.Random(seed).shuffle(shuffled)
        assert planned(shuffled) == planned(parts)


class TestDisruption:
    def test_several_drains_share_a_budget(self) -> None:
        of = group(size=3)
        pods = [web(f"w{number}", f"n{number}") for number in (1, 2, 3)]
        made = planned(of, workers(3, of), node("other"), pods, budget("web").selecting(app="web").allowing(2))
        assert len(made.actions) == 2
        assert why(made)["n3"] == "BlockedByPod"
        assert "(NotEnoughPdb): PodDisruptionBudget web allows 2 disruptions" in said(made)["n3"]

    def test_a_drain_that_fails_gives_back_what_it_took(self) -> None:
        of = group(size=2)
        pods = [
            web("a", "n1").node_selector(disk="none"),
            web("b", "n1"),
            web("c", "n2"),
            web("d", "n2"),
        ]
        made = planned(of, workers(2, of), node("other"), pods, budget("web").selecting(app="web").allowing(2))
        assert removed(made) == {"n2": {"shop/c": "other", "shop/d": "other"}}
        assert why(made)["n1"] == "NoPlaceToMovePods"

    def test_a_budget_holds_also_for_pods_that_say_they_may_be_evicted(self) -> None:
        of = group(size=1)
        safe = web("a", "n1").annotations({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"})
        made = planned(of, workers(1, of), node("x"), safe, budget("web").selecting(app="web").allowing(0))
        assert why(made)["n1"] == "BlockedByPod"

    def test_pods_of_nodes_that_go_already_have_their_places_first(self) -> None:
        of = group(size=2)
        going = unneeded(node("old")).taint(TO_BE_DELETED, "1")
        made = planned(of, workers(2, of), going, web("a", "old", cpu="3"))
        assert removed(made) == {"n1": {}}
        assert why(made) == {"n2": "NeededForOtherPods", "old": "CurrentlyBeingDeleted"}


class TestPodsThatOthersHaveASayAbout:
    def test_a_node_that_goes_is_no_domain(self) -> None:
        """Or its zone, empty then, would forbid more than one pod above it everywhere else."""
        of = group(size=3)
        pairs = workers(3, of)
        for made, _ in pairs:
            made.zone(f"zone-{made.manifest()['metadata']['name']}")
        pods = [web(f"w{number}", "n1" if number < 1 else f"n{number % 2 + 2}").spread(ZONE) for number in range(3)]
        made = planned(of, pairs, pods)
        assert removed(made) == {"n1": {"shop/w0": "n3"}, "n2": {"shop/w2": "n3"}}

    def test_spread_holds_among_nodes_that_stay(self) -> None:
        of = group(size=1)
        others = [node("x").zone("x"), node("y").zone("y")]
        pods = [web("a", "x").spread(ZONE), web("b", "n1").spread(ZONE)]
        made, owner = worker("n1", of)
        assert removed(planned(of, made.zone("z"), owner, others, pods)) == {"n1": {"shop/b": "y"}}

    def test_anti_affinity_holds_between_pods_that_move(self) -> None:
        of = group(size=2)
        pods = [web("a", "n1").anti_affinity(HOSTNAME), web("b", "n2").anti_affinity(HOSTNAME)]
        made = planned(of, workers(2, of), node("x"), node("y"), pods)
        assert removed(made) == {"n1": {"shop/a": "x"}, "n2": {"shop/b": "y"}}

    def test_pods_do_not_go_where_a_pending_one_will_keep_them_away(self) -> None:
        of = group(size=1)
        selector = {"matchLabels": {"app": "web"}}
        wants = pod("wants").cpu("1").labels(app="lone").anti_affinity(HOSTNAME, labelSelector=selector).unschedulable()
        made = planned(of, workers(1, of), node("x"), web("a", "n1"), wants)
        assert why(made)["n1"] == "NoPlaceToMovePods"
        assert "didn't satisfy existing pods anti-affinity rules" in said(made)["n1"]

    def test_places_found_by_amounts_are_known_to_pods_that_look_at_others(self) -> None:
        of = group(size=2)
        plain = web("a", "n1", cpu="2")
        picky = pod("p").on("n2").cpu("2").labels(app="p").owned_by("ReplicaSet", "p").host_port(80).ready()
        full = web("z", "x", cpu="2")
        made = planned(of, workers(2, of), node("x"), node("y"), plain, picky, full)
        assert set(removed(made)) == {"n1", "n2"}
        targets = [target for moves in removed(made).values() for target in moves.values()]
        assert sorted(targets) in (["x", "y"], ["y", "y"])
