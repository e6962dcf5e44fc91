"""Pods that the real scheduler puts back to where they were evicted from: a few tries, then the condition."""

from __future__ import annotations

import signal
import time

from examples.demo.install import wait_for
from tests.e2e.conftest import POLICIES, Stage, Start

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


def test_pods_that_come_back_are_evicted_three_times_and_then_left_alone(stage: Stage, start: Start) -> None:
    stage.crowd("sticky", 3, on="a", **HOME)
    start()
    stage.write_policy("loop", mode="Act", cooldown=COOLDOWN)
    wait_for(lambda: gave_up(stage, "loop"), "the condition", timeout=120)
    condition = stage.condition("loop", "Effective")
    assert condition["status"] == "False"
    assert f"RemoveDuplicates: 3 evictions in a row of Deployment {stage.namespace}/sticky" in condition["message"]
    assert "came back to a" in condition["message"]
    assert evicted(stage, "loop") == 3
    before = stage.running("sticky")
    time.sleep(12)
    assert stage.running("sticky") == before, "two cycles later nobody else was evicted"
    assert {pod["reason"] for pod in stage.status("loop")["kept"]} == {"GaveUp"}
    assert any(
        event["reason"] == "GaveUp" and event["type"] == "Warning" for event in stage.events("DeschedulerPolicy")
    )
    asked = {"metadata": {"annotations": {"trimtab.dev/try-again": "now"}}}
    stage.client.request("PATCH", f"{POLICIES}/loop", asked, content_type="application/merge-patch+json")
    wait_for(lambda: evicted(stage, "loop") >= 4, "another try, as somebody asked for it", timeout=60)


def test_a_killed_process_has_not_forgotten_what_did_not_help(stage: Stage, start: Start) -> None:
    stage.crowd("sticky", 2, on="a", **HOME)
    first = start()
    stage.write_policy("loop-2", mode="Act", cooldown=COOLDOWN)
    wait_for(lambda: evicted(stage, "loop-2") >= 1, "the first eviction", timeout=60)
    first.stop(signal.SIGKILL)
    start()
    wait_for(lambda: gave_up(stage, "loop-2"), "the condition", timeout=180)
    assert evicted(stage, "loop-2") == 3
