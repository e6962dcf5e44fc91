"""Pod affinity, anti-affinity and node emptying on a real control plane: the violation ends, and no other pod moves."""

from __future__ import annotations

from typing import Any

from examples.demo.workloads import pod_spec
from tests.e2e.conftest import Stage, Start
from tests.fixtures.waiting import wait_for

HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def term(app: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": HOST}


def test_pods_move_to_their_required_affinity(stage: Stage, start: Start) -> None:
    stage.deploy_on("cache", 1, on="a")
    stage.deploy_on("web", 2, on="a", affinity={"podAffinity": {REQUIRED: [term("cache")]}})
    stage.client.request("DELETE", f"/apis/apps/v1/namespaces/{stage.namespace}/deployments/cache")
    wait_for(lambda: not stage.running("cache"), "the cache to go")
    stage.deploy_on("cache", 1, on="b")
    cache, before = stage.running("cache"), stage.running("web")
    assert set(before.values()) == {"a"}
    start()
    stage.write_policy("follow", mode="Act", strategies={"RemovePodsViolatingInterPodAffinity": {}})

    wait_for(lambda: list(stage.running("web").values()) == ["b", "b"], "both to be with the cache")
    assert stage.running("cache") == cache
    reasons = [each["reason"] for each in stage.status("follow")["lastEvictions"]]
    assert reasons == ["InterPodAffinityViolated"] * 2


def test_preferred_anti_affinity_separates_pods(stage: Stage, start: Start) -> None:
    wish = {PREFERRED: [{"weight": 100, "podAffinityTerm": term("web")}]}
    stage.deploy_on("web", 3, on="c", affinity={"podAntiAffinity": wish})
    stage.deploy_on("other", 1, on="c")
    other, before = stage.running("other"), stage.running("web")
    start()
    strategies = {"RemovePodsViolatingInterPodAntiAffinity": {"params": {"interPodAntiAffinityType": [PREFERRED]}}}
    stage.write_policy("apart", mode="Act", strategies=strategies)

    wait_for(lambda: stage.spread("web", 3), "one on each node")
    assert stage.running("other") == other
    assert len(set(before) & set(stage.running("web"))) == 1, "one stays where it was"
    assert stage.status("apart")["evicted"] == 2


def test_underutilized_node_is_emptied(stage: Stage, start: Start) -> None:
    stage.deploy_on("large", 3, on="b", **pod_spec(cpu="1"))
    stage.deploy_on("small", 2, on="a")
    large = stage.running("large")
    stage.open_only("b")
    start()
    thresholds = {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 10}}}
    stage.write_policy("fill", mode="Act", strategies={"HighNodeUtilization": {"params": thresholds}})

    wait_for(lambda: list(stage.running("small").values()) == ["b", "b"], "the node to be empty")
    assert stage.running("large") == large
    wait_for(lambda: stage.status("fill").get("evicted") == 2, "the report")
    stage.open_only("a", "b", "c")
