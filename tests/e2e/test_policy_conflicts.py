"""Policies that would undo each other on a real control plane."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Stage, Start
from tests.fixtures.waiting import wait_for


def thresholds(**values: Any) -> dict[str, Any]:
    return {"params": {"nodeResourceUtilizationThresholds": values}}


EVEN = {"LowNodeUtilization": thresholds(thresholds={"pods": 2}, targetThresholds={"pods": 2})}
FILL = {"HighNodeUtilization": thresholds(thresholds={"pods": 2})}


def conflict(stage: Stage, name: str) -> bool:
    found = stage.condition(name, "Degraded")
    return (found.get("status"), found.get("reason")) == ("True", "PolicyConflict")


def test_conflicting_policies_are_held_until_one_is_suspended(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="a")
    before = stage.running("web")
    stage.write_policy("even", strategies=EVEN, mode="Act")
    stage.write_policy("fill", strategies=FILL, mode="Act")
    operator = start()  # neither may act before it knows of the other
    wait_for(lambda: conflict(stage, "even") and conflict(stage, "fill"), "both policies to be held")
    for name in ("even", "fill"):
        message = stage.condition(name, "Degraded")["message"]
        assert all(word in message for word in ("LowNodeUtilization", "even", "HighNodeUtilization", "fill"))
        assert "lastRun" not in stage.status(name)
    assert stage.running("web") == before
    operator.stop()
    start()
    stage.write_policy("fill", strategies=FILL, mode="Act", suspend=True)
    wait_for(lambda: stage.condition("even", "Ready").get("reason") == "CycleCompleted", "a cycle of the other")
    assert stage.condition("even", "Degraded")["status"] == "False"
    assert "lastRun" not in stage.status("fill")
