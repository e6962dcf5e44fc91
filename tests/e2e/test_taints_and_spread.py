"""Taints and topology spread on a real control plane: the violation ends, and no other pod moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.conftest import Stage, Start
from tests.fixtures.waiting import wait_for

TAINT = {"key": "example.com/reserved", "value": "yes", "effect": "NoSchedule"}
HOSTS = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "even"}},
    # or the nodes that the stage cordons would count, and the pods could not be crowded
    "nodeTaintsPolicy": "Honor",
}


def reasons(stage: Stage, policy: str) -> list[str]:
    return [eviction["reason"] for eviction in stage.status(policy).get("lastEvictions", ())]


@contextmanager
def tainted(stage: Stage, name: str) -> Iterator[None]:
    """A node with a taint of the test, which is removed afterwards."""

    def set_taints(*taints: dict[str, Any]) -> None:
        body = {"spec": {"taints": list(taints) or None}}
        stage.client.request("PATCH", f"/api/v1/nodes/{name}", body, content_type="application/merge-patch+json")

    set_taints(TAINT)
    try:
        yield
    finally:
        set_taints()


def test_pods_that_do_not_tolerate_a_taint_are_evicted(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 2, on="a")
    stage.deploy_on("reserved", 1, on="a", tolerations=[{"key": TAINT["key"], "operator": "Exists"}])
    stage.deploy_on("other", 1, on="b")
    staying = {**stage.running("reserved"), **stage.running("other")}
    start()
    with tainted(stage, "a"):
        stage.write_policy("taints", mode="Act", strategies={"RemovePodsViolatingNodeTaints": {}})
        wait_for(lambda: stage.status("taints").get("evicted") == 2, "the evictions", timeout=60)
        wait_for(lambda: len(stage.running("web")) == 2, "the pods to run again")
        assert set(stage.running("web").values()) <= {"b", "c"}
        assert {**stage.running("reserved"), **stage.running("other")} == staying
        assert reasons(stage, "taints") == ["NodeTaintsViolated"] * 2


def test_topology_spread_evicts_the_fewest_pods(stage: Stage, start: Start) -> None:
    stage.deploy_on("even", 5, on="a", topologySpreadConstraints=[HOSTS])
    stage.deploy_on("web", 2, on="b")
    before, web = stage.running("even"), stage.running("web")
    start()
    spread = {"RemovePodsViolatingTopologySpreadConstraint": {}}
    stage.write_policy("spread", mode="Act", strategies=spread)
    wait_for(lambda: stage.status("spread").get("evicted") == 3, "the evictions", timeout=60)
    wait_for(lambda: len(stage.running("even")) == 5, "the pods to run again")
    assert sorted(Counter(stage.running("even").values()).values()) == [1, 2, 2]
    assert len(set(stage.running("even")) & set(before)) == 2
    assert stage.running("web") == web
    assert reasons(stage, "spread") == ["TopologySpreadViolated"] * 3
