"""Policies that act at certain times, and beside each other, on a real control plane."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from examples.demo.install import wait_for
from examples.demo.workloads import pod_spec
from tests.e2e.conftest import Stage, Start

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


def test_nothing_is_evicted_before_the_window_opens_in_its_time_zone(stage: Stage, start: Start) -> None:
    """The same hour of the clock: in Tokyo the window is open since ten minutes ago, by UTC it opens in nine hours."""
    opened = datetime.now(TOKYO) - timedelta(minutes=10)
    window: dict[str, Any] = {"schedule": f"{opened.minute} {opened.hour} * * *", "duration": "2h"}
    stage.crowd("web", 3, on="a")
    before = stage.running("web")
    start()
    stage.write_policy("nightly", mode="Act", windows=[{**window, "timeZone": "UTC"}])
    wait_for(lambda: stage.condition("nightly", "Progressing").get("reason") == "OutsideWindows", "the condition")
    opens = stage.condition("nightly", "Progressing")["message"].rpartition(" ")[2]
    assert opens.endswith(f"T{opened.hour:02}:{opened.minute:02}:00Z")
    time.sleep(12)
    assert stage.running("web") == before, "two intervals later everyone is there"
    assert not stage.status("nightly").get("evicted")

    stage.write_policy("nightly", mode="Act", windows=[{**window, "timeZone": "Asia/Tokyo"}])
    wait_for(lambda: stage.spread("web", 3), "the pods to be spread within the window")
    wait_for(lambda: stage.status("nightly").get("evicted") == 2, "the report")
    assert stage.condition("nightly", "Progressing")["reason"] != "OutsideWindows"


def test_one_policy_does_not_undo_what_another_has_done(stage: Stage, start: Start) -> None:
    """One parts an owner's pods, the other would pack them again: neither knows of the other's cycles."""
    stage.crowd("large", 1, on="b", **pod_spec(cpu="5"))
    stage.crowd("web", 2, on="a", **TO_B)
    large = stage.running("large")
    start()
    marks = {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}}}
    stage.write_policy("apart", mode="Act", strategies={"RemoveDuplicates": {}})
    wait_for(lambda: sorted(stage.running("web").values()) == ["a", "b"], "the pods to be apart")
    stage.write_policy("fill", mode="Act", strategies={"HighNodeUtilization": {"params": marks}})

    def told() -> bool:
        kept = stage.status("fill").get("kept") or ()
        return any("(RemoveDuplicates of policy apart)" in each["message"] for each in kept)

    wait_for(told, "the other policy to say who objects")
    before = stage.running("web")
    time.sleep(12)
    assert sorted(before.values()) == ["a", "b"]
    assert stage.running("web") == before, "two cycles of both later nobody has moved"
    assert stage.running("large") == large
    assert (stage.status("apart").get("evicted"), stage.status("fill").get("evicted", 0)) == (1, 0)
