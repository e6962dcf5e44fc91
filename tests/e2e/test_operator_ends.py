"""The end of the operator by SIGTERM or SIGKILL, or of a policy by deletion, and what is left."""

from __future__ import annotations

import signal
import time
from contextlib import suppress

from tests.e2e.conftest import POLICIES, Stage, Start, wait_for_cycles
from tests.fixtures.waiting import patiently, wait_for
from trimtab.kube.api import NotFound
from trimtab_local.install import OperatorProcess


def crowd_many(stage: Stage) -> None:
    for number in range(4):
        stage.deploy_on(f"web-{number}", 3, on="a")


def evictions(process: OperatorProcess) -> int:
    return process.log.read_text().count('"result":"Evicted"')


def test_sigterm_during_a_plan_records_evicted_and_remaining_pods(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    process = start()
    stage.write_policy("stopping", mode="Act", interval="1h", limits={"perMinute": 6})
    wait_for(lambda: evictions(process) > 0, "the acting")
    began = time.monotonic()
    assert process.stop(signal.SIGTERM) == 0
    assert time.monotonic() - began < patiently(25)
    status = stage.status("stopping")
    done = status["lastRun"]["evicted"]
    assert status["evicted"] == done == evictions(process)
    assert {pod["reason"] for pod in status["kept"]} == {"ShuttingDown"}
    assert stage.condition("stopping", "Progressing")["reason"] == "Idle"
    lease = stage.client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/trimtab-system/leases/trimtab")
    assert not lease["spec"].get("holderIdentity")


def test_kill_during_a_plan_does_not_repeat_the_cycle(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    first = start("--no-leader-elect")
    stage.write_policy("killed", mode="Act", interval="1h", limits={"perMinute": 6, "perCycle": 3})
    wait_for(lambda: evictions(first) > 0, "the acting")
    assert stage.condition("killed", "Progressing")["reason"] == "CycleRunning"
    first.stop(signal.SIGKILL)
    second = start("--no-leader-elect")
    wait_for(lambda: stage.condition("killed", "Progressing").get("reason") == "Idle", "the report to be mended")
    stage.write_policy("later", mode="Simulate")
    wait_for_cycles(second, "later")
    assert evictions(second) == 0, "perCycle would not hold: the hour is not over"


def test_policy_waiting_for_another_is_deleted_at_once(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    process = start("--no-leader-elect")
    stage.write_policy("acting", mode="Act", interval="1h", limits={"perMinute": 2})
    wait_for(lambda: evictions(process) > 0, "the acting")
    stage.write_policy("waiting")
    wait_for(lambda: "finalizers" in stage.policy("waiting")["metadata"], "the operator to see it")
    began = time.monotonic()
    stage.remove_policy("waiting")
    stage.remove_policy("acting")
    assert time.monotonic() - began < patiently(30), "the plan of the other takes minutes"


def test_policy_without_finalizer_stops_acting_after_deletion(stage: Stage, start: Start) -> None:
    crowd_many(stage)
    process = start("--no-leader-elect")
    stage.write_policy("stripped", mode="Act", interval="5s", limits={"perMinute": 6})
    wait_for(lambda: evictions(process) > 0, "the acting")
    path, none = f"{POLICIES}/stripped", {"metadata": {"finalizers": None}}
    stage.client.request("PATCH", path, none, content_type="application/merge-patch+json")
    with suppress(NotFound):  # the operator may have put it on again meanwhile
        stage.client.request("DELETE", path)
        stage.client.request("PATCH", path, none, content_type="application/merge-patch+json")
    wait_for(lambda: not stage._exists(f"{POLICIES}/stripped"), "the policy to be gone")
    count, since = evictions(process), time.monotonic()

    def quiet() -> bool:
        nonlocal count, since
        if (now := evictions(process)) != count:
            count, since = now, time.monotonic()
        return time.monotonic() - since > 15

    wait_for(quiet, "the policy to evict nothing for longer than the pace of its plan")
    assert evictions(process) < 8, "the plan was not carried out to its end"
    assert process.running()
