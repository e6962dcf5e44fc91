"""Arguments of kube-scheduler's plugins in a profile. The expected scores are worked by hand from v1.36's formulas."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import HOSTNAME, ZONE, expression, node, pod, replica_set, selector, service, stateful_set
from trimtab.api.scheduler_policy import SchedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.placer import Placer
from trimtab.scheduling.planner import CyclePlanner, Reject
from trimtab.scheduling.profiles import profile_of

GPU = "example.com/gpu"


def placer(profile: dict[str, Any], *things: Any) -> Placer:
    spec = msgspec.convert({"schedulerName": "trimtab", "profile": profile}, SchedulerPolicySpec)
    return Placer(Snapshot([each.build() for each in things]), profile_of(spec))


def sized(name: str, **resources: str) -> Any:
    allocatable = {"cpu": "10", "memory": "10Gi", "pods": "110", **resources}
    return node(name).labels({HOSTNAME: name}).merge(status={"allocatable": allocatable})


def zoned(name: str, zone: str) -> Any:
    return sized(name).labels({ZONE: zone})


def feasible(made: Placer, candidate: Any) -> set[str]:
    mask = made.feasible(candidate.build())
    return {name for name, slot in made.snapshot.nodes.slot_of.items() if mask[slot]}


def scores(made: Placer, candidate: Any, plugin: str) -> dict[str, int]:
    """The scores of a plugin without its weight."""
    found = candidate.build()
    [score] = [each for each in made.scorer.scores if each.name == plugin]
    mask = made.feasible(found)
    points = score.scores(found, mask)
    slots = {name: slot for name, slot in made.snapshot.nodes.slot_of.items() if mask[slot]}
    return {name: points if isinstance(points, int) else int(points[slot]) for name, slot in slots.items()}


def web(name: str) -> Any:
    return pod(name).labels(app="web")


WEB = service("web").selecting(app="web")


def by_zone(when: str, skew: int = 1, **more: Any) -> dict[str, Any]:
    constraint = {"maxSkew": skew, "topologyKey": ZONE, "whenUnsatisfiable": when, **more}
    return {"podTopologySpread": {"defaultingType": "List", "defaultConstraints": [constraint]}}


class TestDefaultConstraints:
    NODES = (zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"))
    THERE = web("web-0").on("a1")

    def test_hard_ones_reject_nodes_for_pods_of_a_service(self) -> None:
        made = placer(by_zone("DoNotSchedule"), *self.NODES, WEB, self.THERE)
        assert feasible(made, web("web-1")) == {"b1"}
        assert "didn't match pod topology spread constraints" in made.diagnose(web("x").build()).message()

    @pytest.mark.parametrize(
        ("owner", "of"),
        [
            (replica_set("rs").selecting(app="web"), web("p").owned_by("ReplicaSet", "rs")),
            (stateful_set("sts").selecting(app="web"), web("p").owned_by("StatefulSet", "sts")),
        ],
    )
    def test_they_count_the_pods_of_the_controller(self, owner: Any, of: Any) -> None:
        made = placer(by_zone("DoNotSchedule"), *self.NODES, owner, self.THERE)
        assert feasible(made, of) == {"b1"}

    def test_they_do_not_concern_pods_that_nothing_selects(self) -> None:
        made = placer(by_zone("DoNotSchedule"), *self.NODES, self.THERE)
        assert feasible(made, web("web-1")) == {"a1", "a2", "b1"}

    def test_they_do_not_concern_pods_with_own_constraints(self) -> None:
        made = placer(by_zone("DoNotSchedule"), *self.NODES, WEB, self.THERE)
        own = web("web-1").spread(HOSTNAME, when="ScheduleAnyway", labelSelector=selector(app="web"))
        assert feasible(made, own) == {"a1", "a2", "b1"}

    def test_nodes_without_the_label_are_not_feasible(self) -> None:
        made = placer(by_zone("DoNotSchedule"), *self.NODES, sized("bare"), WEB)
        assert feasible(made, web("web-0")) == {"a1", "a2", "b1"}

    def test_min_domains(self) -> None:
        made = placer(by_zone("DoNotSchedule", minDomains=3), *self.NODES, WEB, self.THERE, web("w").on("b1"))
        assert feasible(made, web("web-1")) == set()

    def test_soft_ones_score(self) -> None:
        # raw: 1 pod * log(2 + 2) rounded is 1 in zone a, 0 in zone b; 100 * (1 + 0 - raw) / 1
        made = placer(by_zone("ScheduleAnyway"), *self.NODES, WEB, self.THERE)
        assert scores(made, web("web-1"), "PodTopologySpread") == {"a1": 0, "a2": 0, "b1": 100}

    def test_nodes_without_the_label_of_a_listed_constraint_score_0(self) -> None:
        made = placer(by_zone("ScheduleAnyway"), *self.NODES, sized("bare"), WEB, self.THERE)
        assert scores(made, web("web-1"), "PodTopologySpread") == {"a1": 0, "a2": 0, "b1": 100, "bare": 0}

    def test_nodes_without_a_zone_are_spread_by_host_with_system_defaults(self) -> None:
        made = placer({}, sized("one"), sized("two"), WEB, web("web-0").on("one"))
        found = scores(made, web("web-1"), "PodTopologySpread")
        assert found["two"] > found["one"] > 0

    def test_empty_list_means_none(self) -> None:
        made = placer({"podTopologySpread": {"defaultingType": "List"}}, *self.NODES, WEB, self.THERE)
        assert scores(made, web("web-1"), "PodTopologySpread") == {"a1": 0, "a2": 0, "b1": 0}


class TestAddedAffinity:
    NODES = (sized("batch").labels(pool="batch"), sized("web").labels(pool="web", disk="ssd"), sized("bare"))

    @staticmethod
    def required(*terms: dict[str, Any]) -> dict[str, Any]:
        return {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}

    @pytest.mark.parametrize(
        ("term", "expected"),
        [
            ({"matchExpressions": [expression("pool", "In", "batch")]}, {"batch"}),
            ({"matchExpressions": [expression("pool", "Exists")]}, {"batch", "web"}),
            ({"matchExpressions": [expression("pool", "NotIn", "web")]}, {"batch", "bare"}),
            ({"matchFields": [expression("metadata.name", "In", "bare")]}, {"bare"}),
        ],
    )
    def test_required_terms_apply_to_every_pod(self, term: dict[str, Any], expected: set[str]) -> None:
        made = placer(self.required(term), *self.NODES)
        assert feasible(made, pod("p")) == expected

    def test_terms_are_alternatives_and_the_own_affinity_applies_as_well(self) -> None:
        terms = [{"matchExpressions": [expression("pool", "In", value)]} for value in ("batch", "web")]
        made = placer(self.required(*terms), *self.NODES)
        assert feasible(made, pod("p")) == {"batch", "web"}
        assert feasible(made, pod("p").node_selector(disk="ssd")) == {"web"}

    def test_reasons_are_those_of_kube_scheduler(self) -> None:
        made = placer(self.required({"matchExpressions": [expression("pool", "In", "batch")]}), *self.NODES)
        assert made.diagnose(pod("p").node_selector(x="y").build()).message() == (
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
            "2 node(s) didn't match scheduler-enforced node affinity."
        )

    def test_preferred_terms_are_added_to_the_own_ones(self) -> None:
        def prefers(weight: int, key: str, value: str) -> dict[str, Any]:
            return {"weight": weight, "preference": {"matchExpressions": [expression(key, "In", value)]}}

        preferred = [prefers(10, "pool", "batch"), prefers(5, "disk", "ssd")]
        made = placer({"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}, *self.NODES)
        assert scores(made, pod("p"), "NodeAffinity") == {"batch": 100, "web": 50, "bare": 0}
        own = pod("p").prefers_nodes(35, expression("pool", "In", "web"))
        assert scores(made, own, "NodeAffinity") == {"batch": 25, "web": 100, "bare": 0}

    def test_disabled_plugin_adds_no_filter(self) -> None:
        profile = self.required({"matchExpressions": [expression("pool", "In", "x")]})
        made = placer(profile | {"disabledFilters": ["NodeAffinity"]}, *self.NODES)
        assert feasible(made, pod("p")) == {"batch", "web", "bare"}


class TestInterPodAffinity:
    NODES = (zoned("a", "a"), zoned("b", "b"))

    @pytest.mark.parametrize(("weight", "expected"), [(1, 100), (0, 0)])
    def test_weight_of_required_affinity_of_bound_pods(self, weight: int, expected: int) -> None:
        there = pod("there").on("b").affinity(ZONE, labelSelector=selector(app="web"))
        made = placer({"hardPodAffinityWeight": weight}, *self.NODES, there)
        assert scores(made, web("p"), "InterPodAffinity")["b"] == expected

    def test_preferred_terms_of_bound_pods_are_ignored_unless_the_pod_prefers_something(self) -> None:
        there = pod("there").labels(app="db").on("b").affinity(ZONE, preferred=10, labelSelector=selector(app="web"))
        made = placer({"ignorePreferredTermsOfExistingPods": True}, *self.NODES, there)
        assert scores(made, web("p"), "InterPodAffinity") == {"a": 0, "b": 0}
        prefers = web("p").anti_affinity(ZONE, preferred=4, labelSelector=selector(app="db"))
        assert scores(made, prefers, "InterPodAffinity") == {"a": 0, "b": 100}, "the sum in b is 10 - 4"


class TestBalancedAllocation:
    @pytest.mark.parametrize(
        ("resources", "requests", "expected"),
        [
            # two shares of 0.4 and 0: the deviation is half of the difference: 50 + (50 + 80 - 100) / 2
            (["cpu", "memory"], {"cpu": "4"}, 65),
            # one resource has no deviation
            (["cpu"], {"cpu": "4"}, 75),
            # a pod that requests none of them is not scored
            (["memory"], {"cpu": "4"}, 0),
            # an extended resource that the pod does not request is ignored
            (["cpu", GPU], {"cpu": "4"}, 75),
            # 0.4 and 0.5: 50 + (50 + 95 - 100) / 2, truncated
            (["cpu", GPU], {"cpu": "4", GPU: "2"}, 72),
            # 0.4, 0 and 0.5: the deviation is 0.2160: 78 of 100; 50 + (50 + 78 - 100) / 2
            (["cpu", "memory", GPU], {"cpu": "4", GPU: "2"}, 64),
            # a resource that the node lacks is ignored
            (["cpu", "memory", "example.com/none"], {"cpu": "4"}, 65),
        ],
    )
    def test_resources(self, resources: list[str], requests: dict[str, str], expected: int) -> None:
        made = placer({"balancedResources": resources}, sized("n", **{GPU: "4"}))
        assert scores(made, pod("p").requests(requests), "NodeResourcesBalancedAllocation") == {"n": expected}

    def test_default_resources_score_alike_in_both_implementations(self) -> None:
        nodes = [sized("n1", cpu="7"), sized("n2", memory="3Gi"), sized("n3", cpu="1", memory="1Gi")]
        there = pod("there").on("n2").cpu("3").memory("1Gi")
        candidate = pod("p").cpu("700m").memory("300Mi")
        plugin = "NodeResourcesBalancedAllocation"
        swapped = placer({"balancedResources": ["memory", "cpu"]}, *nodes, there)
        assert scores(swapped, candidate, plugin) == scores(placer({}, *nodes, there), candidate, plugin)


class TestIgnoredResources:
    @pytest.mark.parametrize(
        ("profile", "expected"),
        [
            ({}, set()),
            ({"ignoredResources": [GPU]}, {"n"}),
            ({"ignoredResources": ["example.com/other"]}, set()),
            ({"ignoredResourceGroups": ["example.com"]}, {"n"}),
            ({"ignoredResourceGroups": ["com"]}, set()),
        ],
    )
    @pytest.mark.parametrize("has", [{}, {GPU: "1"}])
    def test_ignored_resources_are_not_compared(
        self, profile: dict[str, Any], expected: set[str], has: dict[str, str]
    ) -> None:
        made = placer(profile, sized("n", **has))
        assert feasible(made, pod("p").cpu("1").requests({GPU: "2"})) == expected

    def test_other_resources_still_are(self) -> None:
        made = placer({"ignoredResources": [GPU]}, sized("n"))
        candidate = pod("p").cpu("11").requests({GPU: "2"})
        assert made.diagnose(candidate.build()).message() == "0/1 nodes are available: 1 Insufficient cpu."


def test_every_failing_filter_is_reported_with_always_check_all_predicates() -> None:
    def messages(always: bool) -> str:
        policy = {"alwaysCheckAllPredicates": always}
        spec = msgspec.convert({"schedulerName": "trimtab", "policy": policy}, SchedulerPolicySpec)
        tainted = sized("tainted", cpu="1").taint("a")
        made = Placer(Snapshot([tainted.build(), sized("small", cpu="1").build()]), profile_of(spec))
        diagnosis = made.diagnose(pod("p").cpu("2").node_selector(x="y").build())
        assert diagnosis.fits == 0
        return diagnosis.message()

    assert messages(False) == (
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s)."
    )
    assert messages(True) == (
        "0/2 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu, "
        "2 node(s) didn't match Pod's node affinity/selector."
    )


@pytest.mark.parametrize("disabled", [False, True])
def test_preemption_can_be_disabled(disabled: bool) -> None:
    spec = msgspec.convert({"schedulerName": "trimtab", "disablePreemption": disabled}, SchedulerPolicySpec)
    there = pod("low").on("n").cpu("9")
    snapshot = Snapshot([sized("n").build(), there.build()])
    urgent = pod("urgent").cpu("5").priority(10).merge(spec={"schedulerName": "trimtab"}).build()
    with snapshot.fork():
        placers = {"trimtab": Placer(snapshot, profile_of(spec))}
        [decision] = CyclePlanner(snapshot, placers).plan([urgent])
    assert isinstance(decision, Reject)
    assert (decision.preemption is None) is disabled
    assert ("preemption:" in decision.message) is False
