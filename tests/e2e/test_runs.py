"""DeschedulingRuns on a real control plane with the chart's RBAC: created, approved, validated again, expired."""

from __future__ import annotations

import signal
import time

import pytest

from tests.e2e.conftest import POLICIES, Stage, Start, approve, outcomes
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.waiting import patiently, wait_for
from trimtab.kube.api import Forbidden, Invalid
from trimtab_local.client import Client


def test_repeated_simulation_updates_one_run(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="a")
    start()
    stage.write_policy("shown")
    wait_for(lambda: stage.phases("shown") == ["Simulated"], "the run")
    wait_for(lambda: stage.runs("shown")[0]["status"]["repeats"] >= 2, "later cycles")
    [run] = stage.runs("shown")
    plan = run["spec"]["plan"]
    assert run["metadata"]["name"].startswith("shown-20")
    assert [owner["name"] for owner in run["metadata"]["ownerReferences"]] == ["shown"]
    assert (plan["planned"], {action["node"] for action in plan["actions"]}) == (2, {"a"})
    assert {action["target"] for action in plan["actions"]} == {"b", "c"}
    assert stage.status("shown")["lastRun"]["run"] == run["metadata"]["name"]
    with pytest.raises(Invalid, match="nothing to approve"):
        approve(stage.client, run["metadata"]["name"])
    stage.remove_policy("shown")
    wait_for(lambda: not stage.runs("shown"), "the policy's runs to go with it", timeout=60)


def test_outdated_action_of_an_approved_run_is_skipped_and_reported(
    stage: Stage, start: Start, approver: Client
) -> None:
    stage.deploy_on("web", 2, on="a")
    stage.deploy_on("api", 2, on="b")
    start()
    stage.write_policy("careful", mode="Approve", interval="1h")
    name = stage.pending_run("careful")
    actions = stage.runs("careful")[0]["spec"]["plan"]["actions"]
    [api] = [action for action in actions if action["pod"].startswith("api")]
    [web] = [action for action in actions if action["pod"].startswith("web")]
    path = f"/api/v1/namespaces/{stage.namespace}/pods/{api['pod']}"
    annotation = {"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/evict": "false"}}}
    stage.client.request("PATCH", path, annotation, content_type=MERGE)
    time.sleep(patiently(2))  # the operator watches pods and runs separately
    approve(approver, name)
    wait_for(lambda: stage.phases("careful") == ["Completed"], "the report")
    [run] = stage.runs("careful")
    found = outcomes(run)
    assert found[web["uid"]] == ("Evicted", "Evicted")
    assert found[api["uid"]][0] == "Skipped"
    assert found[api["uid"]][1] in {"EvictAnnotation", "NoLongerPlanned"}
    assert api["uid"] in stage.running("api")


def test_run_of_an_older_generation_expires(stage: Stage, start: Start, approver: Client) -> None:
    stage.deploy_on("web", 3, on="a")
    before = stage.running("web")
    start()
    stage.write_policy("changed", mode="Approve", interval="1h")
    old = stage.pending_run("changed")
    stage.write_policy("changed", mode="Approve", interval="1h", limits={"perCycle": 1})
    wait_for(lambda: stage.phases("changed") == ["Expired", "Pending"], "the newer run")
    with pytest.raises(Invalid, match="can be approved"):
        approve(approver, old)
    assert len(stage.runs("changed")[1]["spec"]["plan"]["actions"]) == 1
    assert stage.running("web") == before


def test_unapproved_run_expires(stage: Stage, start: Start, approver: Client) -> None:
    stage.deploy_on("web", 2, on="a")
    start()
    stage.write_policy("patient", mode="Approve", interval="1h", approvalDeadline="1m")
    name = stage.pending_run("patient")
    wait_for(lambda: stage.phases("patient") == ["Expired"], "the deadline", timeout=100)
    conditions = {each["type"]: each["reason"] for each in stage.runs("patient")[0]["status"]["conditions"]}
    assert conditions == {"Approved": "ApprovalExpired", "Complete": "ApprovalExpired"}
    with pytest.raises(Invalid, match="can be approved"):
        approve(approver, name)


def test_next_process_finishes_an_approved_run_without_duplicates(stage: Stage, start: Start, approver: Client) -> None:
    stage.deploy_on("web", 3, on="a")
    before = stage.running("web")
    first = start()
    stage.write_policy("handed-on", mode="Approve", interval="1h", limits={"perMinute": 1})
    name = stage.pending_run("handed-on")
    approve(approver, name)
    wait_for(lambda: len(set(before) & set(stage.running("web"))) == 2, "the first eviction")
    first.stop(signal.SIGKILL)
    assert stage.phases("handed-on") == ["Acting"]
    start()
    wait_for(lambda: stage.phases("handed-on") == ["Completed"], "the rest", timeout=150)
    [run] = stage.runs("handed-on")
    planned = {action["uid"] for action in run["spec"]["plan"]["actions"]}
    assert set(outcomes(run)) == planned
    assert {result for result, _ in outcomes(run).values()} <= {"Evicted", "Gone"}
    assert set(before) & set(stage.running("web")) == set(before) - planned
    wait_for(lambda: stage.spread("web", 3), "the pods to be spread")


def test_old_runs_are_deleted_but_pending_ones_kept(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="a")
    start()
    for most in (1, 2, 3):
        stage.write_policy("tidy", mode="Approve", interval="1h", limits={"perCycle": most}, runsHistoryLimit=2)
        generation = stage.policy("tidy")["metadata"]["generation"]
        wait_for(lambda g=generation: stage.status("tidy").get("observedGeneration") == g, "the cycle")
    wait_for(lambda: stage.phases("tidy") == ["Expired", "Pending"], "the oldest run to be deleted")


def test_operator_cannot_approve_or_change_a_plan(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 2, on="a")
    start()
    stage.write_policy("guarded-run", mode="Approve", interval="1h")
    name = stage.pending_run("guarded-run")
    token = stage.cluster.service_account_token("trimtab-system", "trimtab")
    operator = Client(server=stage.cluster.server, token=token, ca=stage.cluster.ca)
    with pytest.raises(Forbidden):
        approve(operator, name)
    time.sleep(1)
    assert stage.runs("guarded-run")[0]["spec"]["approved"] is False
    assert stage.client.request("GET", f"{POLICIES}/guarded-run")["status"]["lastRun"]["mode"] == "Approve"
