"""Pods that the real scheduler returns to their node: a limited number of evictions, then the condition."""

from __future__ import annotations

import signal

from tests.e2e.conftest import POLICIES, Stage, Start, wait_for_cycles
from tests.fixtures.waiting import wait_for

HOME = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["a"]}]
                    },
                }
            ]
        }
    },
    # instead of the scheduler's own default, which would part the pods after all
    "topologySpreadConstraints": [
        {
            "maxSkew": 5,
            "topologyKey": "kubernetes.io/os",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "sticky"}},
        }
    ],
}
"""What RemoveDuplicates does not look at and the scheduler does: the pods would rather be together on node a."""

COOLDOWN = {"initial": "2s", "maximum": "1m"}


def evicted(stage: Stage, policy: str) -> int:
    return int(stage.status(policy).get("evicted", 0))


def gave_up(stage: Stage, policy: str) -> bool:
    return stage.condition(policy, "Effective").get("reason") == "GaveUp"


def test_returning_pods_are_evicted_at_most_three_times(stage: Stage, start: Start) -> None:
    stage.deploy_on("sticky", 3, on="a", **HOME)
    process = start()
    stage.write_policy("loop", mode="Act", cooldown=COOLDOWN)
    wait_for(lambda: gave_up(stage, "loop"), "the condition", timeout=120)
    condition = stage.condition("loop", "Effective")
    assert condition["status"] == "False"
    for word in ("RemoveDuplicates", "3 consecutive evictions", f"{stage.namespace}/sticky"):
        assert word in condition["message"]
    assert evicted(stage, "loop") == 3
    before = stage.running("sticky")
    wait_for_cycles(process, "loop")
    assert stage.running("sticky") == before, "two cycles later nobody else was evicted"
    assert {pod["reason"] for pod in stage.status("loop")["kept"]} == {"GaveUp"}
    assert any(
        event["reason"] == "GaveUp" and event["type"] == "Warning" for event in stage.events("DeschedulerPolicy")
    )
    asked = {"metadata": {"annotations": {"trimtab.dev/try-again": "now"}}}
    stage.client.request("PATCH", f"{POLICIES}/loop", asked, content_type="application/merge-patch+json")
    wait_for(lambda: evicted(stage, "loop") >= 4, "another try, as somebody asked for it", timeout=60)


def test_eviction_memory_survives_a_kill(stage: Stage, start: Start) -> None:
    stage.deploy_on("sticky", 2, on="a", **HOME)
    first = start()
    stage.write_policy("loop-2", mode="Act", cooldown=COOLDOWN)
    wait_for(lambda: evicted(stage, "loop-2") >= 1, "the first eviction", timeout=60)
    first.stop(signal.SIGKILL)
    start()
    wait_for(lambda: gave_up(stage, "loop-2"), "the condition", timeout=180)
    assert evicted(stage, "loop-2") == 3
