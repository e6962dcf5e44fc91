"""Filters and scores of a SchedulerPolicy."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from tests.builders import node, pod, service
from trimtab.api import scheduler_policy
from trimtab.api.scheduler_policy import SchedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement import filters
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT
from trimtab.scheduling.profiles import FILTER_PLUGINS, PREDICATES, PRIORITIES, SCORE_PLUGINS, profile_of

OPENSHIFT_DEFAULT: dict[str, Any] = {
    "predicates": [
        {"name": "NoVolumeZoneConflict"},
        {"name": "MaxEBSVolumeCount"},
        {"name": "MaxGCEPDVolumeCount"},
        {"name": "MaxAzureDiskVolumeCount"},
        {"name": "MatchInterPodAffinity"},
        {"name": "NoDiskConflict"},
        {"name": "GeneralPredicates"},
        {"name": "PodToleratesNodeTaints"},
        {"argument": {"serviceAffinity": {"labels": ["region"]}}, "name": "Region"},
    ],
    "priorities": [
        {"name": "SelectorSpreadPriority", "weight": 1},
        {"name": "InterPodAffinityPriority", "weight": 1},
        {"name": "LeastRequestedPriority", "weight": 1},
        {"name": "BalancedResourceAllocation", "weight": 1},
        {"name": "NodePreferAvoidPodsPriority", "weight": 10000},
        {"name": "NodeAffinityPriority", "weight": 1},
        {"name": "TaintTolerationPriority", "weight": 1},
        {"argument": {"serviceAntiAffinity": {"label": "zone"}}, "name": "Zone", "weight": 2},
    ],
}
"""/etc/origin/master/scheduler.json as OpenShift 3.11 documents it."""


def spec(**fields: Any) -> SchedulerPolicySpec:
    return msgspec.convert({"schedulerName": "trimtab", **fields}, SchedulerPolicySpec)


def placer(policy: SchedulerPolicySpec, *things: Any) -> Placer:
    return Placer(Snapshot([each.build() for each in things]), profile_of(policy))


def chosen(placed: Placer, candidate: Any) -> str:
    """The node that the pod is placed on, or the sentence why none takes it."""
    [found] = placed.place([candidate.build()])
    return found.pod.node or found.message


@pytest.mark.parametrize(
    ("variable", "fits"), [("2", 2), ("50", 50), ("", 39), ("0", 39), ("-1", 39), ("many", 39), ("10" * 2000, 39)]
)
def test_kube_max_pd_vols_is_the_limit_of_attached_disks(
    monkeypatch: pytest.MonkeyPatch, variable: str, fits: int
) -> None:
    monkeypatch.setenv("KUBE_MAX_PD_VOLS", variable)
    placed = placer(spec(policy={"predicates": [{"name": "MaxEBSVolumeCount"}]}), sized("n"))

    def with_disks(number: int) -> Any:
        volumes = [{"name": f"v{each}", "awsElasticBlockStore": {"volumeID": f"vol-{each}"}} for each in range(number)]
        return pod("p").merge(spec={"volumes": volumes}).build()

    assert placed.feasible(with_disks(fits)).any()
    assert not placed.feasible(with_disks(fits + 1)).any()


def test_default_provider_evaluates_the_limits_of_all_csi_drivers() -> None:
    kinds = [type(each) for each in placer(spec(provider="DefaultProvider"), sized("n")).filters]
    assert filters.NodeVolumeLimits in kinds
    listed = placer(spec(policy=OPENSHIFT_DEFAULT), sized("n")).filters
    assert filters.NodeVolumeLimits not in [type(each) for each in listed]
    assert sum(each.name == "NodeVolumeLimits" for each in listed) == 3


def sized(name: str, **labels: str) -> Any:
    return node(name).labels(labels).merge(status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}})


def test_without_any_form_the_profile_is_that_of_kube_scheduler() -> None:
    assert profile_of(spec()) == DEFAULT
    assert profile_of(spec(profile={})) == DEFAULT


def test_weight_of_0_disables_a_score_and_others_are_changed() -> None:
    weights = [{"name": "ImageLocality", "weight": 0}, {"name": "TaintToleration", "weight": 7}]
    made = placer(spec(profile={"scores": weights}), sized("n"))
    candidate = pod("p").build()
    breakdown = made.scorer.breakdown(candidate, made.feasible(candidate))
    assert "ImageLocality" not in breakdown
    assert int(breakdown["TaintToleration"].max()) == 700


def test_disabled_filter_is_not_evaluated() -> None:
    policy = spec(profile={"disabledFilters": ["TaintToleration"]})
    assert filters.TaintToleration not in profile_of(policy).filters
    assert chosen(placer(policy, sized("n").taint("a")), pod("p")) == "n"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ({"type": "LeastAllocated"}, "empty"),
        ({"type": "MostAllocated"}, "busy"),
        (
            {
                "type": "RequestedToCapacityRatio",
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            },
            "busy",
        ),
    ],
)
def test_scoring_strategy(strategy: dict[str, Any], expected: str) -> None:
    weights = [{"name": "NodeResourcesBalancedAllocation", "weight": 0}]
    policy = spec(profile={"scoringStrategy": strategy, "scores": weights})
    there = pod("there").on("busy").cpu("1").memory("2Gi")
    assert chosen(placer(policy, sized("busy"), sized("empty"), there), pod("p").cpu("1").memory("2Gi")) == expected


def test_scoring_strategy_of_an_extended_resource() -> None:
    def gpus(name: str) -> Any:
        return sized(name).merge(status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110", "x.com/gpu": "8"}})

    resources = [{"name": "x.com/gpu", "weight": 3}]
    policy = spec(profile={"scoringStrategy": {"type": "MostAllocated", "resources": resources}})
    there = pod("there").on("b").cpu("1").requests({"x.com/gpu": "2"})
    made = placer(policy, gpus("a"), gpus("b"), there)
    assert chosen(made, pod("p").requests({"x.com/gpu": "1"})) == "b"


def test_scoring_strategy_counts_ephemeral_storage_of_pods_that_request_none() -> None:
    def disk(name: str) -> Any:
        return sized(name).merge(status={"allocatable": {"cpu": "4", "pods": "110", "ephemeral-storage": "10Gi"}})

    resources = [{"name": "ephemeral-storage", "weight": 1}]
    policy = spec(profile={"scoringStrategy": {"type": "MostAllocated", "resources": resources}})
    there = pod("there").on("b").cpu("1").requests({"ephemeral-storage": "5Gi"})
    assert chosen(placer(policy, disk("a"), disk("b"), there), pod("p")) == "b"


def test_documented_default_policy_of_openshift_is_evaluated_with_its_custom_names() -> None:
    policy = spec(policy=OPENSHIFT_DEFAULT)
    nodes = [sized(f"{region}{zone}", region=region, zone=zone) for region in ("r1", "r2") for zone in ("a", "b")]
    first = pod("web-0").labels(app="web").on("r2a")
    made = placer(policy, *nodes, service("web").selecting(app="web"), first)
    candidate = pod("web-1").labels(app="web")
    assert chosen(made, candidate) == "r2b", "in the region of the service, in the other zone"
    breakdown = made.scorer.breakdown(candidate.build(), made.feasible(candidate.build()))
    assert list(breakdown)[-1] == "Zone"
    assert int(breakdown["NodePreferAvoidPodsPriority"].max()) == 100_000


def test_provider_for_cluster_autoscaling_packs_pods() -> None:
    there = pod("there").on("busy").cpu("1").memory("2Gi")
    candidate = pod("p").cpu("1").memory("2Gi")
    assert chosen(placer(spec(provider="DefaultProvider"), sized("busy"), sized("empty"), there), candidate) == "empty"
    packing = spec(provider="ClusterAutoscalerProvider")
    assert chosen(placer(packing, sized("busy"), sized("empty"), there), candidate) == "busy"


def test_absent_lists_mean_the_defaults_and_empty_ones_mean_none() -> None:
    full = pod("there").on("n").cpu("4")
    absent = placer(spec(policy={}), sized("n"), full)
    empty = placer(spec(policy={"predicates": [], "priorities": []}), sized("n"), full)
    assert chosen(absent, pod("p").cpu("1")).startswith("0/1 nodes are available: 1 Insufficient cpu")
    assert chosen(empty, pod("p").cpu("1")) == "n"


def test_mandatory_predicates_are_always_evaluated() -> None:
    made = placer(
        spec(policy={"predicates": []}), sized("a").taint("x"), sized("b").merge(spec={"unschedulable": True})
    )
    assert "untolerated taint" in chosen(made, pod("p"))


def test_labels_presence_and_label_preference_of_the_documented_example() -> None:
    policy = {
        "predicates": [
            {"name": "RequireRegion", "argument": {"labelsPresence": {"labels": ["region"], "presence": True}}},
            {"name": "BuildingNodesAvoid", "argument": {"labelsPresence": {"labels": ["building"], "presence": False}}},
            {"name": "PodFitsPorts"},
            {"name": "MatchNodeSelector"},
        ],
        "priorities": [
            {"name": "ZonePreferred", "weight": 1, "argument": {"labelPreference": {"label": "zone", "presence": True}}}
        ],
    }
    nodes = [sized("none"), sized("region", region="r"), sized("both", region="r", building="b", zone="z")]
    made = placer(spec(policy=policy), *nodes, sized("zone", region="r", zone="z"))
    assert chosen(made, pod("p")) == "zone"


def test_profiles_and_the_api_know_the_same_names() -> None:
    assert tuple(sorted(PREDICATES)) == scheduler_policy.PREDICATES
    assert tuple(sorted(PRIORITIES)) == scheduler_policy.PRIORITIES
    assert tuple(sorted(FILTER_PLUGINS)) == get_args(scheduler_policy.FilterPlugin)
    assert tuple(sorted(SCORE_PLUGINS)) == get_args(scheduler_policy.ScorePlugin)


def test_every_filter_of_the_package_is_in_the_default_profile() -> None:
    """Only AddedNodeAffinity needs arguments, so it is added for the profiles that have them."""
    names = {factory.__name__ for factory in DEFAULT.filters}  # type: ignore[attr-defined]
    assert names == set(filters.__all__) - {"AddedNodeAffinity"}
    assert {name: factory.__name__ for name, factory in FILTER_PLUGINS.items()} == {  # type: ignore[attr-defined]
        name: name for name in get_args(scheduler_policy.FilterPlugin)
    }


def test_case_of_names_is_ignored() -> None:
    profile_of(spec(policy={"predicates": [{"name": "checkServiceAffinity"}, {"name": "podfitsresources"}]}))


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": {"priorities": [{"name": "EqualPriority", "weight": 0}]}},
        {"policy": {"predicates": [{"name": "x y"}]}},
        {"policy": {"fallback": True}},
        {"provider": "Other"},
        {"profile": {"scores": [{"name": "ImageLocality", "weight": 100_001}]}},
    ],
)
def test_values_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        spec(**fields)


def test_every_name_makes_a_profile() -> None:
    every = {
        "predicates": [{"name": name} for name in PREDICATES],
        "priorities": [{"name": name, "weight": 2} for name in PRIORITIES],
        "hardPodAffinitySymmetricWeight": 5,
    }
    ready = sized("a").merge(status={"conditions": [{"type": "Ready", "status": "True"}]})
    made = placer(spec(policy=every), ready)
    candidate = pod("p").cpu("1")
    assert chosen(made, candidate) == "a"
    assert list(made.scorer.breakdown(candidate.build(), made.feasible(candidate.build()))) == list(PRIORITIES)
