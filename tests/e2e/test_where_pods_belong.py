"""Node affinity, anti-affinity and utilization on a real control plane: the violation ends, and no other pod moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from examples.demo.workloads import pod_spec, required
from tests.e2e.conftest import Stage, Start
from tests.fixtures.waiting import wait_for

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
DISK = "example.com/disk"
PREFERS_SSD = {
    "affinity": {
        "nodeAffinity": {
            PREFERRED: [
                {
                    "weight": 100,
                    "preference": {"matchExpressions": [{"key": DISK, "operator": "In", "values": ["ssd"]}]},
                }
            ]
        }
    }
}


def node_affinity(*types: str) -> dict[str, Any]:
    return {"RemovePodsViolatingNodeAffinity": {"params": {"nodeAffinityType": list(types)}}}


def reasons(stage: Stage, policy: str) -> list[str]:
    return [eviction["reason"] for eviction in stage.status(policy).get("lastEvictions", ())]


def alone(stage: Stage) -> bool:
    """Whether no pods of earlier tests are left, so that only this test sets the utilization."""
    pods = stage.client.request("GET", "/api/v1/pods")["items"]
    return {pod["metadata"]["namespace"] for pod in pods} <= {stage.namespace}


@pytest.fixture
def patched(stage: Stage) -> Iterator[Callable[..., None]]:
    """Patch an object while the block runs; the original is restored for other tests."""
    with ExitStack() as undo:

        def patch(path: str, body: dict[str, Any], *, back: dict[str, Any] | None = None) -> None:
            def send(what: dict[str, Any]) -> None:
                stage.client.request("PATCH", path, what, content_type="application/merge-patch+json")

            send(body)
            if back is not None:
                undo.callback(send, back)

        yield patch


@pytest.mark.parametrize(
    ("pod", "type_"),
    [
        pytest.param(required(DISK, ["ssd"]), REQUIRED, id="required node affinity"),
        pytest.param({"nodeSelector": {DISK: "ssd"}}, REQUIRED, id="plain node selector"),
        pytest.param(PREFERS_SSD, PREFERRED, id="preferred node affinity"),
    ],
)
def test_pod_is_evicted_after_its_nodes_label_changed(
    stage: Stage, start: Start, patched: Callable[..., None], pod: dict[str, Any], type_: str
) -> None:
    for name in ("a", "b"):
        back = {"metadata": {"labels": {DISK: None}}}
        patched(f"/api/v1/nodes/{name}", {"metadata": {"labels": {DISK: "ssd"}}}, back=back)
    stage.deploy_on("web", 1, on="a", **pod)
    stage.deploy_on("other", 2, on="a")
    stage.deploy_on("well", 1, on="b", **pod)
    staying = {**stage.running("other"), **stage.running("well")}
    patched("/api/v1/nodes/a", {"metadata": {"labels": {DISK: "hdd"}}})
    start()
    stage.write_policy("disks", mode="Act", strategies=node_affinity(type_))

    wait_for(lambda: list(stage.running("web").values()) == ["b"], "the pod to be on the other node with such a disk")
    wait_for(lambda: stage.status("disks").get("evicted") == 1, "the report")
    wait_for(lambda: stage.status("disks")["lastRun"]["planned"] == 0, "a cycle with nothing left to do")
    assert {**stage.running("other"), **stage.running("well")} == staying
    assert reasons(stage, "disks") == ["NodeAffinityViolated"]


def test_anti_affinity_evicts_the_fewest_pods(stage: Stage, start: Start, patched: Callable[..., None]) -> None:
    """Who is the primary is said by a label that somebody gives to a pod that runs, and its replacement has not."""
    term = {"labelSelector": {"matchLabels": {"role": "primary"}}, "topologyKey": "kubernetes.io/hostname"}
    stage.deploy_on("web", 2, on="c", affinity={"podAntiAffinity": {REQUIRED: [term]}})
    stage.deploy_on("db", 1, on="c")
    web = stage.running("web")
    [(primary, _)] = stage.running("db").items()
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    [name] = [
        each["metadata"]["name"]
        for each in stage.client.request("GET", path)["items"]
        if each["metadata"]["uid"] == primary
    ]
    patched(f"{path}/{name}", {"metadata": {"labels": {"role": "primary"}}})
    start()
    stage.write_policy("apart", mode="Act", strategies={"RemovePodsViolatingInterPodAntiAffinity": {}})

    wait_for(lambda: stage.status("apart").get("evicted") == 1, "the eviction")
    wait_for(lambda: len(stage.running("db")) == 1, "the next one")
    wait_for(lambda: stage.status("apart")["lastRun"]["planned"] == 0, "a cycle with nothing left to do")
    assert primary not in stage.running("db")
    assert stage.running("web") == web
    assert reasons(stage, "apart") == ["InterPodAntiAffinityViolated"]


def test_overutilized_node_loses_the_fewest_pods(stage: Stage, start: Start) -> None:
    wait_for(lambda: alone(stage), "earlier tests' pods to be gone")
    stage.deploy_on("web", 6, on="a", **pod_spec(cpu="1"))
    stage.deploy_on("other", 1, on="b", **pod_spec(cpu="1"))
    before, other = stage.running("web"), stage.running("other")
    start()
    marks = {"thresholds": {"cpu": 25}, "targetThresholds": {"cpu": 50}}
    strategies = {"LowNodeUtilization": {"params": {"nodeResourceUtilizationThresholds": marks}}}
    stage.write_policy("level", mode="Act", strategies=strategies)

    wait_for(lambda: stage.status("level").get("evicted") == 2, "two of six: then four of eight cpus are left")
    wait_for(lambda: len(stage.running("web")) == 6, "the pods to run again")
    wait_for(lambda: stage.status("level")["lastRun"]["planned"] == 0, "a cycle with nothing left to do")
    assert Counter(stage.running("web").values())["a"] == 4
    assert len(set(before) & set(stage.running("web"))) == 4
    assert stage.running("other") == other
    assert reasons(stage, "level") == ["NodeOverutilized"] * 2


def test_pods_are_evicted_from_a_node_with_a_prefer_no_schedule_taint(
    stage: Stage, start: Start, patched: Callable[..., None]
) -> None:
    stage.deploy_on("web", 2, on="b")
    stage.deploy_on("content", 1, on="b", tolerations=[{"key": "example.com/rather-not", "operator": "Exists"}])
    content = stage.running("content")
    taint = {"key": "example.com/rather-not", "effect": "PreferNoSchedule"}
    patched("/api/v1/nodes/b", {"spec": {"taints": [taint]}}, back={"spec": {"taints": None}})
    start()
    strategies = {"RemovePodsViolatingNodeTaints": {"params": {"includePreferNoSchedule": True}}}
    stage.write_policy("rather-not", mode="Act", strategies=strategies)

    wait_for(lambda: stage.status("rather-not").get("evicted") == 2, "the evictions")
    wait_for(lambda: len(stage.running("web")) == 2, "the pods to run again")
    assert set(stage.running("web").values()) <= {"a", "c"}
    assert stage.running("content") == content
