"""How the operator ends, and what it leaves behind: asked to stop, killed, or its policy taken away."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

from examples.demo.install import OperatorProcess, wait_for
from tests.e2e.conftest import POLICIES, Stage, Start
from trimtab.kube.api import NotFound


def crowd_many(stage: Stage) -> None:
    for number in range(4):
        stage.crowd(f"web-{number}", 3, on="a")


def evictions(process: OperatorProcess) -> int:
    return process.log.read_text().count('"result":"Evicted"')


def test_asked_to_stop_while_it_acts_it_writes_down_what_it_did_and_what_it_left(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    process = start()
    stage.write_policy("stopping", mode="Act", interval="1h", limits={"perMinute": 6})
    wait_for(lambda: evictions(process) > 0, "the acting")
    began = time.monotonic()
    assert process.stop(signal.SIGTERM) == 0
    assert time.monotonic() - began < 25
    status = stage.status("stopping")
    done = status["lastRun"]["evicted"]
    assert status["evicted"] == done == evictions(process)
    assert {pod["reason"] for pod in status["kept"]} == {"ShuttingDown"}
    assert stage.condition("stopping", "Progressing")["reason"] == "Idle"
    lease = stage.client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/trimtab-system/leases/trimtab")
    assert not lease["spec"].get("holderIdentity")


def test_killed_while_it_acts_it_does_not_begin_the_same_cycle_anew(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    first = start("--no-leader-elect")
    stage.write_policy("killed", mode="Act", interval="1h", limits={"perMinute": 6, "perCycle": 3})
    wait_for(lambda: evictions(first) > 0, "the acting")
    assert stage.condition("killed", "Progressing")["reason"] == "CycleRunning"
    first.stop(signal.SIGKILL)
    second = start("--no-leader-elect")
    wait_for(lambda: stage.condition("killed", "Progressing").get("reason") == "Idle", "the report to be mended")
    time.sleep(10)
    assert evictions(second) == 0, "perCycle would not hold: the hour is not over"


def test_a_policy_that_waits_for_another_to_act_is_deleted_at_once(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    process = start("--no-leader-elect")
    stage.write_policy("acting", mode="Act", interval="1h", limits={"perMinute": 2})
    wait_for(lambda: evictions(process) > 0, "the acting")
    stage.write_policy("waiting")
    wait_for(lambda: "finalizers" in stage.policy("waiting")["metadata"], "the operator to see it")
    began = time.monotonic()
    stage.remove_policy("waiting")
    stage.remove_policy("acting")
    assert time.monotonic() - began < 15


def test_a_policy_whose_finalizer_was_taken_away_acts_no_more(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    process = start("--no-leader-elect")
    stage.write_policy("stripped", mode="Act", interval="5s", limits={"perMinute": 10})
    wait_for(lambda: evictions(process) > 0, "the acting")
    path, none = f"{POLICIES}/stripped", {"metadata": {"finalizers": None}}
    stage.client.request("PATCH", path, none, content_type="application/merge-patch+json")
    with suppress(NotFound):  # the operator may have put it on again meanwhile
        stage.client.request("DELETE", path)
        stage.client.request("PATCH", path, none, content_type="application/merge-patch+json")
    wait_for(lambda: not stage._exists(f"{POLICIES}/stripped"), "the policy to be gone")
    time.sleep(1)
    before = evictions(process)
    time.sleep(15)
    assert evictions(process) == before
    assert process.running()
