"""The sample Policies of OpenShift 3.11's documentation, converted and running: topologies hold, also over a rollout.

Labels of nodes stand for regions, zones, racks, cities, buildings and rooms; :mod:`tests.scheduler_samples` has both.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import wait_for
from tests.scheduler_samples import SAMPLES, converted, even, topology
from trimtab.kube.resources import PODS, SCHEDULER_POLICIES
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import apply, install, operator
from trimtab_local.nodes import node

REPLICAS = 8


class Site:
    """A cluster with the operator and one SchedulerPolicy for each sample."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.client = cluster.client
        self.labels = topology()

    def deploy(self, sample: str, namespace: str, selector: Mapping[str, str]) -> None:
        """Create a Service and its Deployment, whose pods the sample's policy places on nodes with these labels."""
        labels = {"app": sample}
        service = {"metadata": {"name": sample}, "spec": {"selector": labels, "ports": [{"port": 80}]}}
        self.client.request("POST", f"/api/v1/namespaces/{namespace}/services", service)
        resources = {"requests": {"cpu": "100m", "memory": "64Mi"}}
        spec: dict[str, Any] = {
            "schedulerName": sample,
            "containers": [{"name": "app", "image": "app:1", "resources": resources}],
            "nodeSelector": selector,
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
        deployment = {"metadata": {"name": sample}, "spec": body}
        self.client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)

    def nodes_of(self, sample: str, namespace: str, image: str = "app:1") -> list[str]:
        """The nodes of the running pods with that image."""
        path = f"{PODS.path(namespace=namespace)}?labelSelector=app%3D{sample}"
        return [
            each["spec"]["nodeName"]
            for each in self.client.request("GET", path)["items"]
            if each["spec"].get("nodeName")
            and each["spec"]["containers"][0]["image"] == image
            and not each["metadata"].get("deletionTimestamp")
        ]

    def values(self, nodes: list[str], label: str) -> Counter[str]:
        """How many pods run on nodes with each value of the label; `-` for nodes without it."""
        return Counter(self.labels[name].get(label, "-") for name in nodes)


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    require_local_cluster(request)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(nodes=0)
    site = Site(cluster)
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    manifests = []
    for name, labels in site.labels.items():
        pool = "city" if "city" in labels else "region"
        racks = {"racks": "yes"} if "rack" in labels else {}
        manifest = node(name, zone="z", capacity=capacity, labels={**labels, **racks, "pool": pool})
        for key in ("region", "zone"):  # the well-known labels would let SelectorSpreadPriority see one zone
            del manifest["metadata"]["labels"][f"topology.kubernetes.io/{key}"]
        manifests.append(manifest)
    create_nodes(cluster.client, manifests)
    install(cluster, "controllers.scheduler.enabled=true")
    for sample in SAMPLES:
        apply(cluster.client, SCHEDULER_POLICIES.path(), converted(sample))
    with operator(cluster, tmp_path_factory.mktemp("operator"), "--controllers=scheduler", "--no-leader-elect"):
        yield site


@pytest.fixture
def namespace(site: Site) -> str:
    name = f"test-{secrets.token_hex(4)}"
    make_namespace(site.client, name)
    return name


def placed(site: Site, sample: str, namespace: str, pool: str = "", *, key: str = "pool") -> list[str]:
    """The nodes of a new Deployment, once all its pods have one."""
    site.deploy(sample, namespace, {key: pool} if pool else {})
    wait_for(lambda: len(site.nodes_of(sample, namespace)) == REPLICAS, f"the pods of {sample}", timeout=60)
    return site.nodes_of(sample, namespace)


@pytest.mark.parametrize("sample", ["default", "modified"])
def test_service_stays_in_its_region_and_spreads_over_its_zones(site: Site, sample: str, namespace: str) -> None:
    nodes = placed(site, sample, namespace, "region")
    [region] = site.values(nodes, "region")
    zones = site.values(nodes, "zone")
    assert even(Counter({zone: number for zone, number in zones.items() if zone != "-"}), 2), zones
    assert all(zone.startswith(region) for zone in zones if zone != "-")


def test_region_and_zone_affinity_with_racks_spread(site: Site, namespace: str) -> None:
    nodes = placed(site, "region-zone-rack", namespace, "yes", key="racks")
    assert len(site.values(nodes, "region")) == 1
    assert len(site.values(nodes, "zone")) == 1
    assert even(site.values(nodes, "rack"), 2)


def test_city_affinity_with_buildings_and_rooms_spread(site: Site, namespace: str) -> None:
    nodes = placed(site, "city-building-room", namespace, "city")
    assert len(site.values(nodes, "city")) == 1
    assert even(site.values(nodes, "building"), 2)
    assert even(site.values(nodes, "room"), 4)


def test_nodes_with_a_region_are_required_and_those_with_a_zone_preferred(site: Site, namespace: str) -> None:
    nodes = placed(site, "require-region", namespace)
    assert "-" not in site.values(nodes, "region")
    assert "-" not in site.values(nodes, "zone")


def test_static_and_configurable_rules_combined(site: Site, namespace: str) -> None:
    nodes = placed(site, "combined", namespace)
    [region] = site.values(nodes, "region")
    assert region != "-"
    assert set(site.values(nodes, "building")) == {"-"}
    zones = site.values(nodes, "zone")
    zones.pop("-", None)
    assert even(zones, 2), zones


@pytest.mark.parametrize("sample", ["default", "modified", "combined"])
def test_service_keeps_its_region_across_a_rollout(site: Site, sample: str, namespace: str) -> None:
    before = site.values(placed(site, sample, namespace, "region"), "region")
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{sample}"
    for release in ("app:2", "app:3"):
        container = {"name": "app", "image": release}
        patch = {"spec": {"template": {"spec": {"containers": [container]}}}}
        site.client.request("PATCH", path, patch, content_type="application/strategic-merge-patch+json")
        wait_for(
            lambda release=release: len(site.nodes_of(sample, namespace, release)) == REPLICAS,  # type: ignore[misc]
            f"the rollout of {release}",
            timeout=90,
        )
        assert site.values(site.nodes_of(sample, namespace, release), "region") == before


def test_policies_report_that_they_are_ready(site: Site) -> None:
    def conditions(sample: str) -> dict[str, str]:
        live = site.client.request("GET", SCHEDULER_POLICIES.path(sample))
        return {each["type"]: each["status"] for each in (live.get("status") or {}).get("conditions") or ()}

    for sample in SAMPLES:
        wait_for(lambda sample=sample: conditions(sample).get("Ready") == "True", f"{sample} to be ready")  # type: ignore[misc]
