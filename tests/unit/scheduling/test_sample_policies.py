"""The sample Policies of OpenShift 3.11's documentation as plans: topologies hold, also over a rollout."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod, service
from tests.scheduler_samples import SAMPLES, converted, even, topology
from trimtab.api.scheduler_policy import SchedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.placer import Placer
from trimtab.scheduling.profiles import profile_of

REPLICAS = 8
LABELS = topology()


def pending(number: int, release: str, pool: str) -> Any:
    made = pod(f"web-{release}-{number}").labels({"app": "web", "pod-template-hash": release})
    made.cpu("100m").memory("64Mi").owned_by("ReplicaSet", f"web-{release}")
    return made.node_selector(pool=pool) if pool else made


class Site:
    def __init__(self, sample: str, pool: str = "") -> None:
        spec = msgspec.convert(converted(sample)["spec"], SchedulerPolicySpec)
        self.pool = pool
        self.snapshot = Snapshot([service("web").selecting(app="web").build()])
        for name, labels in LABELS.items():
            made = node(name).labels({**labels, "pool": "city" if "city" in labels else "region"})
            self.snapshot.put(made.allocatable(cpu="8", memory="16Gi", pods="110").build())
        self.placer = Placer(self.snapshot, profile_of(spec))

    def place(self, number: int, release: str = "1") -> None:
        [found] = self.placer.place([pending(number, release, self.pool).build()])
        assert found.pod.node, found.message

    def replace(self, number: int, old: str, new: str) -> None:
        """A step of a rollout: a new pod comes before the old one goes."""
        self.place(number, new)
        self.snapshot.remove(self.snapshot.pods[f"shop/web-{old}-{number}"])

    def terminate(self, number: int, release: str) -> None:
        found = self.snapshot.pods[f"shop/web-{release}-{number}"]
        self.snapshot.put(msgspec.structs.replace(found, deleted=1.0))

    def values(self, label: str) -> Counter[str]:
        return Counter(LABELS[each.node].get(label, "-") for each in self.snapshot.pods.values())


def filled(sample: str, pool: str = "", replicas: int = REPLICAS) -> Site:
    site = Site(sample, pool)
    for number in range(replicas):
        site.place(number)
    return site


@pytest.mark.parametrize("sample", ["default", "modified", "combined"])
def test_service_stays_in_its_region_and_spreads_over_its_zones(sample: str) -> None:
    site = filled(sample, "region")
    [region] = site.values("region")
    zones = site.values("zone")
    zones.pop("-", None)
    assert even(zones, 2), zones
    assert all(zone.startswith(region) for zone in zones)


@pytest.mark.parametrize("sample", ["default", "modified", "combined", "region-zone-rack"])
def test_service_keeps_its_region_across_rollouts(sample: str) -> None:
    site = filled(sample, "region")
    before = site.values("region")
    for old, new in (("1", "2"), ("2", "3")):
        for number in range(REPLICAS):
            site.replace(number, old, new)
        assert site.values("region") == before


@pytest.mark.parametrize("replicas", [1, REPLICAS])
@pytest.mark.parametrize("sample", ["default", "modified", "combined", "region-zone-rack"])
def test_service_keeps_its_region_if_its_pods_terminate_before_the_new_ones_are_placed(
    sample: str, replicas: int
) -> None:
    """As in a rollout with ``maxSurge: 0`` and ``maxUnavailable: 100%``, or in a drain of the only replica."""
    site = filled(sample, "region", replicas)
    [before] = site.values("region")
    for name, labels in LABELS.items():  # the nodes of the other region have higher scores
        if labels.get("region") == before:
            site.snapshot.put(pod(f"load-{name}").cpu("4").memory("8Gi").on(name).build())
    for old, new in (("1", "2"), ("2", "3")):
        for number in range(replicas):
            site.terminate(number, old)
        for number in range(replicas):
            site.place(number, new)
        for number in range(replicas):
            site.snapshot.remove(site.snapshot.pods[f"shop/web-{old}-{number}"])
        assert set(site.values("region")) == {before}


def test_region_and_zone_affinity_with_racks_spread() -> None:
    site = filled("region-zone-rack", "region")
    assert (len(site.values("region")), len(site.values("zone"))) == (1, 1)
    racks = site.values("rack")
    racks.pop("-", None)
    assert even(racks, 2), racks


def test_city_affinity_with_buildings_and_rooms_spread() -> None:
    site = filled("city-building-room", "city")
    assert len(site.values("city")) == 1
    assert even(site.values("building"), 2)
    assert even(site.values("room"), 4)


def test_nodes_with_a_region_are_required_and_those_with_a_zone_preferred() -> None:
    site = filled("require-region")
    assert "-" not in site.values("region")
    assert "-" not in site.values("zone")


def test_nodes_with_a_building_are_avoided() -> None:
    site = filled("combined")
    assert set(site.values("building")) == {"-"}
    assert "-" not in site.values("region")


def test_all_samples_are_converted() -> None:
    assert all(converted(sample)["spec"]["policy"]["predicates"] for sample in SAMPLES)
