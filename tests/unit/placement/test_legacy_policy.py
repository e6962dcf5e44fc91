"""Legacy predicates and priorities against tables worked by hand from kubernetes v1.11's formulas."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.builders import ZONE, expression, node, pod, replica_set, selector, service
from tests.unit.placement.scoring import built, points
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.filters import TaintToleration
from trimtab.placement.filters import legacy as filters
from trimtab.placement.interface import Filter
from trimtab.placement.placer import Placer
from trimtab.placement.registry import Profile
from trimtab.placement.scores import legacy as scores

GIB = 2**30


def passing(rule: Filter, snapshot: Snapshot, candidate: Any) -> list[str]:
    """The names of the nodes that pass."""
    found = rule.passing(candidate.build())
    slots = snapshot.nodes.slot_of
    return sorted(slots) if found is None else sorted(name for name, slot in slots.items() if found[slot])


def sized(name: str, cpu: str = "10", memory: str = "10Gi") -> Any:
    return node(name).merge(status={"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}})


def requesting(name: str, cpu: str, memory: str) -> Any:
    return pod(name).cpu(cpu).memory(memory)


def conditions(name: str, **statuses: str) -> Any:
    listed = [{"type": type_, "status": status} for type_, status in statuses.items()]
    return node(name).merge(status={"conditions": listed})


class TestPredicates:
    def test_label_presence_reads_keys_and_no_values(self) -> None:
        snapshot = built([node("both").labels(a="1", b="2"), node("one").labels(a="1"), node("none")])
        every = filters.NodeLabelPresence(snapshot, labels=["a", "b"], presence=True)
        none = filters.NodeLabelPresence(snapshot, labels=["a", "b"], presence=False)
        assert passing(every, snapshot, pod("p")) == ["both"]
        assert passing(none, snapshot, pod("p")) == ["none"]

    def test_node_condition_needs_a_ready_node_with_network(self) -> None:
        snapshot = built(
            [
                conditions("ready", Ready="True"),
                conditions("unknown", Ready="Unknown"),
                conditions("silent"),
                conditions("offline", Ready="True", NetworkUnavailable="True"),
                conditions("cordoned", Ready="True").merge(spec={"unschedulable": True}),
            ]
        )
        assert passing(filters.CheckNodeCondition(snapshot), snapshot, pod("p")) == ["ready"]

    def test_removed_node_does_not_pass_for_the_next_node_of_its_slot(self) -> None:
        snapshot = built([conditions("ready", Ready="True"), conditions("also", Ready="True")])
        rule = filters.CheckNodeCondition(snapshot)
        assert passing(rule, snapshot, pod("p")) == ["also", "ready"]
        slot = snapshot.nodes.slot_of["ready"]
        snapshot.remove(snapshot.nodes.get("ready"))
        assert passing(rule, snapshot, pod("p")) == ["also"]
        snapshot.put(conditions("next", Ready="False").build())
        assert snapshot.nodes.slot_of["next"] == slot
        assert passing(rule, snapshot, pod("p")) == ["also"]

    def test_filters_that_read_the_pod_or_its_peers_concern_it(self) -> None:
        snapshot = built([node("n")])
        pressure = filters.CheckNodeMemoryPressure(snapshot)
        assert pressure.concerns(pod("p").build())
        assert not pressure.concerns(requesting("p", "1", "1Gi").build())
        assert filters.ServiceAffinity(snapshot, labels=["region"]).concerns(pod("p").build())

    def test_condition_that_changes_is_read_again(self) -> None:
        snapshot = built([conditions("n", Ready="True")])
        rule = filters.CheckNodeCondition(snapshot)
        assert passing(rule, snapshot, pod("p")) == ["n"]
        snapshot.put(conditions("n", Ready="False").build())
        assert passing(rule, snapshot, pod("p")) == []

    def test_reasons_of_a_node_are_those_of_its_failed_conditions(self) -> None:
        snapshot = built(
            [
                conditions("fine", Ready="True", DiskPressure="Unknown", MemoryPressure="Unknown"),
                conditions("down", Ready="Unknown", OutOfDisk="Unknown", NetworkUnavailable="True"),
                conditions("cordoned", Ready="False").merge(spec={"unschedulable": True}),
                conditions("pids", Ready="True", PIDPressure="True", DiskPressure="True"),
            ]
        )
        kinds = (filters.CheckNodeCondition, filters.CheckNodePIDPressure, filters.CheckNodeDiskPressure)
        verdicts = Placer(snapshot, Profile(kinds, (), checks_all=True)).node_verdicts(pod("p").cpu("1").build())
        assert {each.node: each.reasons for each in verdicts} == {
            "fine": (),
            "down": ("node(s) were not ready", "node(s) were out of disk space", "node(s) had unavailable network"),
            "cordoned": ("node(s) were not ready", "node(s) were unschedulable"),
            "pids": ("node(s) had pid pressure", "node(s) had disk pressure"),
        }
        counts = {
            reasons: len(slots)
            for reasons, slots in Placer(snapshot, Profile(kinds, ())).diagnose(pod("p").build()).failures
        }
        assert counts == {
            ("node(s) were not ready", "node(s) were out of disk space", "node(s) had unavailable network"): 1,
            ("node(s) were not ready", "node(s) were unschedulable"): 1,
            ("node(s) had pid pressure",): 1,
        }

    def test_placer_reads_a_condition_that_changes(self) -> None:
        snapshot = built([conditions("n", Ready="True", DiskPressure="False")])
        placer = Placer(snapshot, Profile((filters.CheckNodeCondition, filters.CheckNodeDiskPressure), ()))
        for ready, pressure, fits in (("True", "False", 1), ("False", "True", 0), ("True", "True", 0)):
            snapshot.put(conditions("n", Ready=ready, DiskPressure=pressure).build())
            assert np.count_nonzero(placer.feasible(pod("p").build())) == fits
        with snapshot.fork():
            snapshot.put(conditions("n", Ready="True", DiskPressure="False").build())
            assert np.count_nonzero(placer.feasible(pod("p").build())) == 1
        assert np.count_nonzero(placer.feasible(pod("p").build())) == 0

    def test_condition_that_changes_costs_only_profiles_that_read_conditions(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        snapshot = built([conditions(f"n{each}", Ready="True", MemoryPressure="False") for each in range(50)])
        evaluated: list[object] = []
        failed_of = filters.CheckNodeCondition.failed_of

        def counted(statuses: Any, cordoned: bool) -> tuple[str, ...]:
            evaluated.append(statuses)
            return failed_of(statuses, cordoned)

        monkeypatch.setattr(filters.CheckNodeCondition, "failed_of", staticmethod(counted))
        legacy, other = Placer(snapshot, Profile((filters.CheckNodeCondition,), ())), Placer(snapshot)
        candidate = pod("p").build()
        eligible, version = other.eligible(candidate), snapshot.nodes.version
        for each in range(50):
            snapshot.put(conditions(f"n{each}", Ready="False", MemoryPressure="True").build())
            assert np.count_nonzero(legacy.eligible(candidate)) == 49 - each
        assert other.eligible(candidate) is eligible
        assert snapshot.nodes.version == version
        assert len(evaluated) <= 50 * 2 * 3, "each set of conditions is evaluated once, not each node"

    def test_memory_pressure_concerns_best_effort_pods_only(self) -> None:
        snapshot = built([conditions("full", MemoryPressure="True"), conditions("free", MemoryPressure="False")])
        rule = filters.CheckNodeMemoryPressure(snapshot)
        assert passing(rule, snapshot, pod("best-effort")) == ["free"]
        assert passing(rule, snapshot, pod("burstable").cpu("1")) == ["free", "full"]

    def test_disk_and_pid_pressure_concern_all_pods(self) -> None:
        snapshot = built([conditions("disk", DiskPressure="True"), conditions("pids", PIDPressure="True")])
        assert passing(filters.CheckNodeDiskPressure(snapshot), snapshot, pod("p").cpu("1")) == ["pids"]
        assert passing(filters.CheckNodePIDPressure(snapshot), snapshot, pod("p").cpu("1")) == ["disk"]

    def test_no_execute_taints_alone(self) -> None:
        snapshot = built([node("soft").taint("a"), node("hard").taint("a", effect="NoExecute"), node("plain")])
        rule = filters.NoExecuteTaints(snapshot)
        assert passing(rule, snapshot, pod("p")) == ["plain", "soft"]
        assert passing(rule, snapshot, pod("p").tolerates("a")) == ["hard", "plain", "soft"]
        both = Placer(snapshot, Profile((TaintToleration, filters.NoExecuteTaints), (), checks_all=True))
        reasons = {each.node: each.reasons for each in both.node_verdicts(pod("p").build())}
        assert reasons["hard"] == reasons["soft"] == (TaintToleration.reason,), "the words of kube-scheduler, once"


def regions(*others: Any) -> Snapshot:
    nodes = [node(f"{region}{number}").labels(region=region) for region in ("east", "west") for number in (1, 2)]
    return built([*nodes, service("web").selecting(app="web"), *others])


def web(name: str, at: str = "", **labels: str) -> Any:
    made = pod(name).labels(app="web", **labels)
    return made.on(at) if at else made


class TestServiceAffinity:
    def test_first_pod_of_a_service_may_go_anywhere(self) -> None:
        snapshot = regions()
        rule = filters.ServiceAffinity(snapshot, labels=["region"])
        assert len(passing(rule, snapshot, web("p"))) == 4

    def test_pods_follow_those_of_their_service(self) -> None:
        snapshot = regions(web("first", "west1"))
        rule = filters.ServiceAffinity(snapshot, labels=["region"])
        assert passing(rule, snapshot, web("p")) == ["west1", "west2"]
        assert len(passing(rule, snapshot, pod("other"))) == 4

    def test_pods_of_a_new_replica_set_stay_in_the_region_of_the_service(self) -> None:
        snapshot = regions(web("old", "west1", **{"pod-template-hash": "1"}))
        rule = filters.ServiceAffinity(snapshot, labels=["region"])
        assert passing(rule, snapshot, web("new", **{"pod-template-hash": "2"})) == ["west1", "west2"]

    def test_node_selector_of_the_pod_wins(self) -> None:
        snapshot = regions(web("first", "west1"))
        rule = filters.ServiceAffinity(snapshot, labels=["region"])
        assert passing(rule, snapshot, web("p").merge(spec={"nodeSelector": {"region": "east"}})) == ["east1", "east2"]

    def test_region_with_most_pods_counts(self) -> None:
        snapshot = regions(web("a", "west1"), web("b", "east1"), web("c", "east2"))
        rule = filters.ServiceAffinity(snapshot, labels=["region"])
        assert passing(rule, snapshot, web("p")) == ["east1", "east2"]

    def test_terminating_pods_count_if_no_other_pod_of_the_service_runs(self) -> None:
        snapshot = regions(web("a", "west1").deleted(), web("b", "east1").deleted(), web("c", "east2").deleted())
        rule = filters.ServiceAffinity(snapshot, labels=["region"])
        assert passing(rule, snapshot, web("p")) == ["east1", "east2"]
        snapshot.put(web("d", "west2").build())
        assert passing(rule, snapshot, web("p")) == ["west1", "west2"]
        for name, at in (("a", "west1"), ("b", "east1"), ("c", "east2"), ("d", "west2")):
            snapshot.remove(web(name, at).build())
        assert len(passing(rule, snapshot, web("p"))) == 4


ALLOCATED: list[Any] = [
    # (10-3)*10/10 = 7 and (10-5)*10/10 = 5: 12/2
    pytest.param(scores.LeastRequestedPriority, "3", "5Gi", 6, id="least requested"),
    pytest.param(scores.LeastRequestedPriority, "10", "5Gi", 2, id="least requested of a full node"),
    pytest.param(scores.LeastRequestedPriority, "11", "5Gi", 2, id="least requested beyond capacity"),
    pytest.param(scores.MostRequestedPriority, "3", "5Gi", 4, id="most requested"),
    pytest.param(scores.MostRequestedPriority, "11", "5Gi", 2, id="most requested beyond capacity"),
    # |0.3 - 0.5| = 0.2: (1 - 0.2) * 10
    pytest.param(scores.BalancedResourceAllocation, "3", "5Gi", 8, id="balanced"),
    pytest.param(scores.BalancedResourceAllocation, "10", "5Gi", 0, id="balanced with cpu full"),
]


class TestPriorities:
    @pytest.mark.parametrize(("kind", "cpu", "memory", "expected"), ALLOCATED)
    def test_shares_of_cpu_and_memory(self, kind: Any, cpu: str, memory: str, expected: int) -> None:
        snapshot = built([sized("n")])
        assert points(kind(snapshot), snapshot, requesting("p", cpu, memory)) == {"n": expected}

    def test_containers_without_requests_count_100m_and_200_mib(self) -> None:
        snapshot = built([sized("n", "1", "1000Mi")])
        # (1000-100)*10/1000 = 9 and (1000-200)*10/1000 = 8: 17/2
        assert points(scores.LeastRequestedPriority(snapshot), snapshot, pod("p")) == {"n": 8}

    @pytest.mark.parametrize(
        ("shape", "cpu", "expected"),
        [
            ([(0, 0), (100, 10)], "3", 3),
            ([(0, 10), (100, 0)], "3", 7),
            ([(0, 0), (50, 10), (100, 5)], "8", 7),
            ([(20, 2), (80, 8)], "1", 2),
            ([(20, 2), (80, 8)], "9", 8),
        ],
    )
    def test_requested_to_capacity_ratio(self, shape: list[tuple[int, int]], cpu: str, expected: int) -> None:
        snapshot = built([sized("n", "10", "10Gi")])
        candidate = requesting("p", cpu, f"{cpu}Gi")
        score = scores.RequestedToCapacityRatioPriority(snapshot, shape=shape)
        assert points(score, snapshot, candidate) == {"n": expected}

    def test_node_affinity_in_tenths_of_the_largest_sum(self) -> None:
        preferred = [
            {"weight": weight, "preference": {"matchExpressions": [expression(key, "Exists")]}}
            for key, weight in (("a", 3), ("b", 4))
        ]
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        snapshot = built([node("a").labels(a="1"), node("ab").labels(a="1", b="1"), node("none")])
        found = points(scores.NodeAffinityPriority(snapshot), snapshot, pod("p").merge(spec={"affinity": affinity}))
        assert found == {"a": 4, "ab": 10, "none": 0}

    def test_taint_toleration(self) -> None:
        soft = "PreferNoSchedule"
        two = node("two").taint("a", effect=soft).taint("b", effect=soft)
        snapshot = built([two, node("one").taint("a", effect=soft), node("none")])
        score = scores.TaintTolerationPriority(snapshot)
        assert points(score, snapshot, pod("p")) == {"none": 10, "one": 5, "two": 0}
        assert points(score, snapshot, pod("p"), "none") == {"none": 10}

    @pytest.mark.parametrize(("mib", "expected"), [(22, 0), (23, 1), (500, 5), (999, 10), (1000, 10), (5000, 10)])
    def test_image_locality(self, mib: int, expected: int) -> None:
        images = [{"names": ["web:1"], "sizeBytes": mib * 2**20}]
        snapshot = built([node("n").merge(status={"images": images}), node("without")])
        candidate = pod("p").merge(spec={"containers": [{"name": "c", "image": "web:1"}]})
        score = scores.ImageLocalityPriority(snapshot)
        assert points(score, snapshot, candidate) == {"n": expected, "without": 0}
        snapshot.put(node("without").merge(status={"images": images}).build())
        assert points(score, snapshot, candidate) == {"n": expected, "without": expected}, "a pulled image counts"

    def test_image_locality_adds_the_images_of_all_containers(self) -> None:
        images = [{"names": ["web:1"], "sizeBytes": 400 * 2**20}, {"names": ["log:1"], "sizeBytes": 100 * 2**20}]
        snapshot = built([node("n").merge(status={"images": images}), node("without")])
        named = [{"name": image, "image": f"{image}:1"} for image in ("web", "log", "unknown")]
        score = scores.ImageLocalityPriority(snapshot)
        assert points(score, snapshot, pod("p").merge(spec={"containers": named})) == {"n": 5, "without": 0}
        assert points(score, snapshot, pod("p").merge(spec={"containers": named[1:]})) == {"n": 1, "without": 0}
        assert points(score, snapshot, pod("p").merge(spec={"containers": named[2:]})) == {"n": 0, "without": 0}

    def test_image_locality_ignores_init_containers_and_image_volumes(self) -> None:
        images = [{"names": [f"{name}:1"], "sizeBytes": 500 * 2**20} for name in ("init", "volume", "web")]
        snapshot = built([node("n").merge(status={"images": images}), node("without")])
        candidate = pod("p").merge(
            spec={
                "initContainers": [{"name": "init", "image": "init:1"}],
                "containers": [{"name": "web", "image": "web:1"}],
                "volumes": [{"name": "data", "image": {"reference": "volume:1"}}],
            }
        )
        assert points(scores.ImageLocalityPriority(snapshot), snapshot, candidate) == {"n": 5, "without": 0}

    @pytest.mark.parametrize("number", [3, 64])
    @pytest.mark.parametrize(
        ("weights", "expected"),
        [
            ({"a": 40, "b": 100}, {"a": 4, "b": 10, "c": 0}),
            ({"a": -40, "b": -100}, {"a": 6, "b": 0, "c": 10}),
            ({"a": 50, "b": -50}, {"a": 10, "b": 0, "c": 5}),
            ({"a": 20, "b": 40, "c": 100}, {"a": 2, "b": 4, "c": 10}),
            ({"a": 30, "b": 30, "c": 30}, {"a": 10, "b": 10, "c": 10}),
            ({"a": -30, "b": -30, "c": -30}, {"a": 0, "b": 0, "c": 0}),
        ],
    )
    def test_pod_affinity_scales_the_sums_between_the_lowest_and_the_highest_including_0(
        self, weights: dict[str, int], expected: dict[str, int], number: int
    ) -> None:
        """64 nodes use every slot of the node table, so that no free slot counts as 0."""
        nodes = [node(f"n{place:02}").zone("abc"[place % 3]) for place in range(number)]
        snapshot = built([*nodes, *(pod(zone).labels(app=zone).on(f"n{'abc'.index(zone):02}") for zone in weights)])
        assert (snapshot.nodes.capacity == number) is (number == 64)
        candidate = pod("p")
        for zone, weight in weights.items():
            wanted = candidate.affinity if weight > 0 else candidate.anti_affinity
            wanted(ZONE, preferred=abs(weight), labelSelector=selector(app=zone))
        found = points(scores.InterPodAffinityPriority(snapshot), snapshot, candidate)
        assert found == {f"n{place:02}": expected["abc"[place % 3]] for place in range(number)}

    def test_pod_affinity_without_matching_pods_scores_0(self) -> None:
        snapshot = built([node("a").zone("a"), node("b").zone("b")])
        score = scores.InterPodAffinityPriority(snapshot)
        assert points(score, snapshot, pod("p")) == {"a": 0, "b": 0}
        candidate = pod("p").affinity(ZONE, preferred=5, labelSelector=selector(app="web"))
        assert points(score, snapshot, candidate) == {"a": 0, "b": 0}

    def test_pod_affinity_counts_required_terms_of_running_pods_with_the_hard_weight(self) -> None:
        zones = [node("a").zone("a"), node("b").zone("b"), node("c").zone("c")]
        near = pod("near").on("a").affinity(ZONE, labelSelector=selector(app="p"))
        likes = pod("likes").on("b").affinity(ZONE, preferred=10, labelSelector=selector(app="p"))
        snapshot = built([*zones, near, likes])
        candidate = pod("p").labels(app="p")
        for weight, expected in (
            (1, {"a": 1, "b": 10, "c": 0}),
            (20, {"a": 10, "b": 5, "c": 0}),
            (0, {"a": 0, "b": 10, "c": 0}),
        ):
            score = scores.InterPodAffinityPriority(snapshot, hard_weight=weight)
            assert points(score, snapshot, candidate) == expected

    def test_service_anti_affinity_counts_pods_on_candidates_only(self) -> None:
        nodes = [node("r1").labels(rack="1"), node("r2").labels(rack="2"), node("none")]
        snapshot = built([*nodes, service("web").selecting(app="web"), web("a", "r1")])
        score = scores.ServiceAntiAffinityPriority(snapshot, label="rack")
        assert points(score, snapshot, web("p"), "r1 r2 none") == {"r1": 0, "r2": 10, "none": 0}
        assert points(score, snapshot, web("p"), "r2 none") == {"r2": 10, "none": 0}

    @pytest.mark.parametrize("kind", [scores.SelectorSpreadPriority, scores.ServiceAntiAffinityPriority])
    def test_services_on_more_nodes_than_are_listed_one_by_one_score_the_same(
        self, kind: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nodes = [node(f"n{number}").labels(rack=str(number % 3)) for number in range(6)]
        pods = [web(f"p{number}", f"n{number % 4}") for number in range(9)]
        snapshot = built([*nodes, service("web").selecting(app="web"), *pods])
        options = {"label": "rack"} if kind is scores.ServiceAntiAffinityPriority else {}
        expected = points(kind(snapshot, **options), snapshot, web("p"))
        monkeypatch.setattr("trimtab.placement.topology_spread._SPARSE", 0)
        assert points(kind(snapshot, **options), snapshot, web("p")) == expected
        assert len(set(expected.values())) > 1

    def test_label_preference(self) -> None:
        snapshot = built([node("a").labels(disk="ssd"), node("b")])
        wanted = scores.LabelPreference(snapshot, label="disk", presence=True)
        avoided = scores.LabelPreference(snapshot, label="disk", presence=False)
        assert points(wanted, snapshot, pod("p")) == {"a": 10, "b": 0}
        assert points(avoided, snapshot, pod("p")) == {"a": 0, "b": 10}

    def test_equal_priority(self) -> None:
        snapshot = built([node("a"), node("b")])
        assert points(scores.EqualPriority(snapshot), snapshot, pod("p")) == {"a": 1, "b": 1}

    def test_selector_spread_by_node(self) -> None:
        spread = [web("a", "n1"), web("b", "n1"), web("c", "n2"), web("gone", "n3").deleted()]
        snapshot = built([node("n1"), node("n2"), node("n3"), service("web").selecting(app="web"), *spread])
        score = scores.SelectorSpreadPriority(snapshot)
        assert points(score, snapshot, web("p")) == {"n1": 0, "n2": 5, "n3": 10}
        assert points(score, snapshot, pod("other")) == {"n1": 10, "n2": 10, "n3": 10}

    def test_selector_spread_weighs_zones_twice(self) -> None:
        nodes = [node(f"{zone}{number}").zone(zone) for zone in "ab" for number in (1, 2)]
        snapshot = built([*nodes, service("web").selecting(app="web"), web("x", "a1"), web("y", "a1"), web("z", "b1")])
        # node: (2 - n) / 2 * 10; zone: (2 - z) / 2 * 10; a third of the first and two thirds of the second
        expected = {"a1": 0, "a2": 3, "b1": 5, "b2": 6}
        assert points(scores.SelectorSpreadPriority(snapshot), snapshot, web("p")) == expected

    def test_selector_spread_counts_pods_of_the_controller_and_service_spreading_does_not(self) -> None:
        snapshot = built([node("n1"), node("n2"), replica_set("web").selecting(app="web"), web("a", "n1")])
        assert points(scores.SelectorSpreadPriority(snapshot), snapshot, web("p")) == {"n1": 0, "n2": 10}
        services = scores.SelectorSpreadPriority(snapshot, services_only=True)
        assert points(services, snapshot, web("p")) == {"n1": 10, "n2": 10}

    def test_service_anti_affinity_spreads_over_values_of_a_label(self) -> None:
        nodes = [node("r1").labels(rack="1"), node("r2").labels(rack="2"), node("none")]
        pods = [web("a", "r1"), web("b", "r1"), web("c", "r2")]
        snapshot = built([*nodes, service("web").selecting(app="web"), *pods])
        score = scores.ServiceAntiAffinityPriority(snapshot, label="rack")
        assert points(score, snapshot, web("p")) == {"r1": 3, "r2": 6, "none": 0}
        assert points(score, snapshot, pod("other")) == {"r1": 10, "r2": 10, "none": 0}

    def test_node_that_asks_to_avoid_a_controller_gets_nothing(self) -> None:
        controller = {"kind": "ReplicaSet", "uid": "replicaset-shop-web"}
        entry = json.dumps({"preferAvoidPods": [{"podSignature": {"podController": controller}}]})
        avoiding = node("avoiding").annotations({scores.PREFER_AVOID_PODS: entry})
        broken = node("broken").annotations({scores.PREFER_AVOID_PODS: "{"})
        snapshot = built([avoiding, broken])
        owned = pod("p").owned_by("ReplicaSet", "web")
        score = scores.NodePreferAvoidPodsPriority(snapshot)
        assert points(score, snapshot, owned) == {"avoiding": 0, "broken": 10}
        assert points(score, snapshot, pod("bare")) == {"avoiding": 10, "broken": 10}


def test_zone_label_of_either_generation() -> None:
    beta = "failure-domain.beta.kubernetes.io/zone"
    nodes = [node("new").labels({ZONE: "a"}), node("old").labels({beta: "a"}), node("other").labels({beta: "b"})]
    snapshot = built([*nodes, service("web").selecting(app="web"), web("x", "new")])
    assert points(scores.SelectorSpreadPriority(snapshot), snapshot, web("p")) == {"new": 0, "old": 3, "other": 10}
