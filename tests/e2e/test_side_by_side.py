"""Policies with schedules, and several policies, on a real control plane."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from examples.demo.workloads import pod_spec
from tests.e2e.conftest import Stage, Start, wait_for_cycles
from tests.fixtures.waiting import wait_for

TOKYO = ZoneInfo("Asia/Tokyo")
TO_B = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]
                    },
                }
            ]
        }
    }
}


def test_evictions_wait_for_the_schedule_window_in_its_time_zone(stage: Stage, start: Start) -> None:
    """The same hour in two zones: the window opened ten minutes ago in Tokyo, and opens in nine hours in UTC."""
    opened = datetime.now(TOKYO) - timedelta(minutes=10)
    window: dict[str, Any] = {"schedule": f"{opened.minute} {opened.hour} * * *", "duration": "2h"}
    stage.deploy_on("web", 3, on="a")
    before = stage.running("web")
    process = start()
    stage.write_policy("nightly", mode="Act", windows=[{**window, "timeZone": "UTC"}])
    wait_for(lambda: stage.condition("nightly", "Progressing").get("reason") == "OutsideWindows", "the condition")
    opens = stage.condition("nightly", "Progressing")["message"].rpartition(" ")[2]
    assert opens.endswith(f"T{opened.hour:02}:{opened.minute:02}:00Z")
    stage.write_policy("always", mode="Simulate")
    wait_for_cycles(process, "always")
    assert stage.running("web") == before, "everyone is there after two cycles of another policy"
    assert not stage.status("nightly").get("evicted")

    stage.write_policy("nightly", mode="Act", windows=[{**window, "timeZone": "Asia/Tokyo"}])
    wait_for(lambda: stage.spread("web", 3), "the pods to be spread within the window")
    wait_for(lambda: stage.status("nightly").get("evicted") == 2, "the report")
    assert stage.condition("nightly", "Progressing")["reason"] != "OutsideWindows"


def test_policies_do_not_undo_each_other(stage: Stage, start: Start) -> None:
    """One spreads an owner's pods, the other would pack them; neither sees the other's cycles."""
    stage.deploy_on("large", 1, on="b", **pod_spec(cpu="5"))
    stage.deploy_on("web", 2, on="a", **TO_B)
    large = stage.running("large")
    process = start()
    marks = {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}}}
    stage.write_policy("apart", mode="Act", strategies={"RemoveDuplicates": {}})
    wait_for(lambda: sorted(stage.running("web").values()) == ["a", "b"], "the pods to be apart")
    stage.write_policy("fill", mode="Act", strategies={"HighNodeUtilization": {"params": marks}})

    def reported() -> bool:
        kept = stage.status("fill").get("kept") or ()
        return any("(RemoveDuplicates of policy apart)" in each["message"] for each in kept)

    wait_for(reported, "the other policy to say who objects")
    before = stage.running("web")
    wait_for_cycles(process, "apart", "fill")
    assert sorted(before.values()) == ["a", "b"]
    assert stage.running("web") == before, "two cycles of both later nobody has moved"
    assert stage.running("large") == large
    assert (stage.status("apart").get("evicted"), stage.status("fill").get("evicted", 0)) == (1, 0)
