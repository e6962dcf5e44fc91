"""Evictions that restart or remove pods on a real control plane: the violation ends, and no other pod moves."""

from __future__ import annotations

from typing import Any

from examples.demo.workloads import budget
from tests.e2e.conftest import Stage, Start
from tests.fixtures.waiting import wait_for


def pods(stage: Stage, app: str) -> list[dict[str, Any]]:
    """All pods of a Deployment, by name."""
    path = f"/api/v1/namespaces/{stage.namespace}/pods"
    found: list[dict[str, Any]] = stage.client.request("GET", path, params={"labelSelector": f"app={app}"})["items"]
    return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))


def report(stage: Stage, pod: dict[str, Any], **status: Any) -> None:
    """Write a pod's status, as its kubelet would."""
    path = f"/api/v1/namespaces/{stage.namespace}/pods/{pod['metadata']['name']}/status"
    stage.client.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


CRASHING = {"waiting": {"reason": "CrashLoopBackOff"}}


def containers(pod: dict[str, Any], **status: Any) -> list[dict[str, Any]]:
    """The container statuses of a pod with some fields changed."""
    return [{**each, **status} for each in pod["status"]["containerStatuses"]]


def uids(found: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in found}


def replaced(stage: Stage, app: str, replicas: int, old: list[dict[str, Any]]) -> bool:
    """Whether all replicas run, and none of the old pods is left, not even as a terminating one."""
    return len(stage.running(app)) == replicas and not uids(old) & uids(pods(stage, app))


def reasons(stage: Stage, policy: str) -> list[str]:
    return [eviction["reason"] for eviction in stage.status(policy).get("lastEvictions", ())]


def test_pod_with_too_many_restarts_is_evicted_alone(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="a")
    ill, *well = pods(stage, "web")
    report(stage, ill, containerStatuses=containers(ill, restartCount=120, state=CRASHING))
    start()
    params = {"podRestartThreshold": 100, "states": ["CrashLoopBackOff"]}
    stage.write_policy("ill", mode="Act", strategies={"RemovePodsHavingTooManyRestarts": {"params": params}})

    wait_for(lambda: stage.status("ill").get("evicted") == 1, "the eviction")
    wait_for(lambda: replaced(stage, "web", 3, [ill]), "the next pod")
    assert uids(pods(stage, "web")) > uids(well)
    assert reasons(stage, "ill") == ["TooManyRestarts"]


def test_old_pods_are_evicted_one_at_a_time(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 2, on="b")
    stage.deploy_on("other", 1, on="c")
    old, other = pods(stage, "web"), uids(pods(stage, "other"))
    start()
    stage.write_policy(
        "old",
        mode="Act",
        interval="1h",  # one cycle: the next ones would find the new pods older than nothing, too
        podSelector={"matchLabels": {"app": "web"}},
        strategies={"PodLifeTime": {"params": {"maxPodLifeTimeSeconds": 0}}},
    )

    wait_for(lambda: stage.status("old").get("evicted") == 2, "both evictions")
    wait_for(lambda: replaced(stage, "web", 2, old), "the next pods")
    assert uids(pods(stage, "other")) == other
    assert reasons(stage, "old") == ["PodLifeTimeExceeded"] * 2


def test_pod_in_a_listed_state_is_evicted_alone(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 2, on="c")
    stale, fresh = pods(stage, "web")
    condition = {"type": "example.com/Stale", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    report(stage, stale, conditions=[*stale["status"]["conditions"], condition])
    wanted = {"type": "example.com/Stale", "status": "True", "minTimeSinceLastTransitionSeconds": 60}
    start()
    stage.write_policy("stale", mode="Act", strategies={"PodLifeTime": {"params": {"conditions": [wanted]}}})

    wait_for(lambda: stage.status("stale").get("evicted") == 1, "the eviction")
    wait_for(lambda: replaced(stage, "web", 2, [stale]), "the next pod")
    assert fresh["metadata"]["uid"] in uids(pods(stage, "web"))
    assert reasons(stage, "stale") == ["PodStateMatched"]


def test_failed_pod_is_removed_despite_an_exhausted_budget(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 2, on="a")
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets"
    stage.client.request("POST", path, budget("web", namespace=stage.namespace, app="web", min_available=2))
    failed, _ = pods(stage, "web")
    killed = containers(failed, state={"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
    report(stage, failed, phase="Failed", containerStatuses=killed)
    wait_for(lambda: len(stage.running("web")) == 2, "the ReplicaSet to make another")
    running = stage.running("web")
    start()
    params = {"reasons": ["OOMKilled"], "exitCodes": [137], "minPodLifetimeSeconds": 0}
    stage.write_policy("failed", mode="Act", strategies={"RemoveFailedPods": {"params": params}})

    wait_for(lambda: stage.status("failed").get("evicted") == 1, "the removal")
    wait_for(lambda: uids(pods(stage, "web")) == set(running), "the removed pod to be gone")
    assert stage.running("web") == running
    (removed,) = stage.status("failed")["lastEvictions"]
    assert (removed["reason"], removed["node"], removed.get("target", "")) == ("PodFailed", "a", "")
