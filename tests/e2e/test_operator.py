"""The operator on a real control plane with the chart's RBAC."""

from __future__ import annotations

import signal
import time
from datetime import datetime

import pytest

from examples.demo.workloads import budget
from tests.e2e.conftest import Stage, Start, approve, outcomes
from tests.fixtures.proxy import BehindProxy
from tests.fixtures.waiting import wait_for
from trimtab.kube.api import Forbidden
from trimtab_local.client import Client
from trimtab_local.install import OperatorProcess, apply

BODIES = {"PATCH": "application/merge-patch+json", "POST": "application/json"}
"""Content types of what has a body."""


@pytest.mark.core
def test_act_mode_spreads_duplicates_and_emits_events(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="a")
    start()
    stage.write_policy("act", mode="Act")
    wait_for(lambda: stage.spread("web", 3), "the pods to be spread")
    wait_for(lambda: stage.status("act").get("evicted") == 2, "the report")
    status = stage.status("act")
    assert {eviction["reason"] for eviction in status["lastEvictions"]} == {"DuplicateOnNode"}
    assert stage.condition("act", "Ready")["status"] == "True"
    assert stage.condition("act", "Degraded")["status"] == "False"
    assert status["observedGeneration"] == stage.policy("act")["metadata"]["generation"]
    wait_for(lambda: len([e for e in stage.events("Pod") if e["reason"] == "DuplicateOnNode"]) >= 2, "events on pods")
    wait_for(lambda: bool(stage.events("DeschedulerPolicy")), "events on the policy")
    assert {event["regarding"]["namespace"] for event in stage.events("Pod")} >= {stage.namespace}


@pytest.mark.core
def test_simulate_mode_evicts_nothing_and_reports_the_plan(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="b")
    before = stage.running("web")
    start()
    stage.write_policy("simulate")  # Simulate is the default
    wait_for(lambda: bool(stage.status("simulate").get("lastRun")), "the first cycle")
    counts = stage.status("simulate")["counts"]
    assert [(c["strategy"], c["outcome"], c["count"]) for c in counts] == [("RemoveDuplicates", "Planned", 2)]
    assert stage.status("simulate")["lastRun"]["planned"] == 2
    assert stage.running("web") == before


@pytest.mark.core
def test_pod_with_exhausted_budget_is_kept_and_reported(stage: Stage, start: Start) -> None:
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets"
    apply(stage.client, path, budget("web", namespace=stage.namespace, app="web", min_available=3))
    stage.deploy_on("web", 3, on="a")
    wait_for(
        lambda: stage.client.request("GET", f"{path}/web").get("status", {}).get("currentHealthy") == 3, "the budget"
    )
    before = stage.running("web")
    start()
    stage.write_policy("guarded", mode="Act")
    wait_for(lambda: bool(stage.status("guarded").get("lastRun")), "the first cycle")
    kept = stage.status("guarded")["kept"]
    assert {pod["reason"] for pod in kept} == {"DisruptionBudget"}
    assert "web" in kept[0]["message"]
    assert stage.running("web") == before


@pytest.mark.core
def test_nothing_is_evicted_before_approval(stage: Stage, start: Start, approver: Client) -> None:
    stage.deploy_on("web", 3, on="a")
    before = stage.running("web")
    start()
    stage.write_policy("asking", mode="Approve")
    name = stage.pending_run("asking")
    wait_for(lambda: stage.runs("asking")[0]["status"]["repeats"] >= 1, "a later cycle")
    assert len(stage.runs("asking")) == 1, "the same plan goes on to wait"
    assert stage.running("web") == before
    assert name in stage.condition("asking", "Ready")["message"]
    approve(approver, name)
    wait_for(lambda: stage.spread("web", 3), "the pods to be spread")
    wait_for(lambda: stage.phases("asking")[0] == "Completed", "the report")
    run = stage.runs("asking")[0]
    planned = {action["uid"] for action in run["spec"]["plan"]["actions"]}
    assert outcomes(run) == dict.fromkeys(planned, ("Evicted", "Evicted"))
    assert run["status"]["evicted"] == 2
    assert set(before) - planned <= set(stage.running("web")), "who was not approved to go stays"
    wait_for(lambda: stage.status("asking").get("evicted") == 2, "the policy's count")


@pytest.mark.core
def test_spec_change_takes_effect_at_once(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 2, on="c")
    start()
    stage.write_policy("late", interval="1h")
    wait_for(lambda: bool(stage.status("late").get("lastRun")), "the first cycle")
    assert stage.status("late")["lastRun"]["planned"] == 1
    stage.write_policy("late", interval="1h", mode="Act")
    wait_for(lambda: stage.spread("web", 2), "the pods to be spread long before the hour is over")


@pytest.mark.core
def test_deleted_policy_stops_its_loop(stage: Stage, start: Start) -> None:
    process = start()
    stage.write_policy("gone")
    wait_for(lambda: bool(stage.status("gone").get("lastRun")), "the first cycle")
    assert stage.policy("gone")["metadata"]["finalizers"] == ["trimtab.dev/finalizer"]
    stage.remove_policy("gone")
    assert process.running()
    wait_for(lambda: 'policy="gone"' not in planned(process), "the metrics of the policy to be gone")


def planned(process: OperatorProcess) -> str:
    """The metrics of planned evictions."""
    lines = (process.get("/metrics") or "").splitlines()
    return "".join(line for line in lines if line.startswith("trimtab_descheduler_planned"))


@pytest.mark.core
def test_suspended_policy_evicts_nothing_and_reports_suspended(stage: Stage, start: Start) -> None:
    start()
    stage.write_policy("resting", suspend=True)
    wait_for(lambda: stage.condition("resting", "Progressing").get("reason") == "Suspended", "the condition")
    assert "lastRun" not in stage.status("resting")


@pytest.mark.core
def test_policy_resumes_after_a_kill(stage: Stage, start: Start) -> None:
    stage.deploy_on("web", 3, on="a")
    first = start()
    stage.write_policy("survivor", mode="Act", interval="1h", limits={"perCycle": 1})
    wait_for(lambda: stage.status("survivor").get("evicted") == 1, "the first eviction")
    last = stage.status("survivor")["lastRun"]["time"]
    first.stop(signal.SIGKILL)
    second = start()
    wait_for(lambda: "trimtab_leader 1.0" in (second.get("/metrics") or ""), "the lease of the killed one to expire")
    stage.write_policy("witness")
    wait_for(lambda: bool(stage.status("witness").get("lastRun")), "a cycle of another policy")
    assert stage.status("survivor")["lastRun"]["time"] == last, "the hour is not over: no further cycle"
    stage.write_policy("survivor", mode="Act", interval="5s")
    wait_for(lambda: stage.spread("web", 3), "the rest to be done")
    wait_for(lambda: stage.status("survivor").get("evicted") == 2, "the count to go on")


@pytest.mark.core
def test_sigterm_releases_the_lease(stage: Stage, start: Start) -> None:
    first = start()
    stage.write_policy("baton")
    wait_for(lambda: bool(stage.status("baton").get("lastRun")), "the first cycle")
    assert first.stop(signal.SIGTERM) == 0
    lease = stage.client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/trimtab-system/leases/trimtab")
    assert not lease["spec"].get("holderIdentity")
    released = time.time()
    second = start()
    ready = time.time()
    wait_for(lambda: "trimtab_leader 1.0" in (second.get("/metrics") or ""), "the lease")
    lease = stage.client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/trimtab-system/leases/trimtab")
    acquired = datetime.fromisoformat(lease["spec"]["acquireTime"]).timestamp()
    # A machine on which the start takes ten seconds does not show whether the operator waited.
    assert acquired < released + 15 or ready > released + 10, "a released lease is acquired before it expires"


@pytest.mark.core
def test_only_the_leader_evicts(stage: Stage, start: Start) -> None:
    first, second = start(), start()
    leaders = [process for process in (first, second) if "trimtab_leader 1.0" in (process.get("/metrics") or "")]
    assert len(leaders) <= 1
    stage.write_policy("two")
    wait_for(lambda: bool(stage.status("two").get("lastRun")), "the first cycle")
    assert second.get("/readyz") is not None, "a standby is ready, with a warm picture"


@pytest.fixture
def behind_proxy(stage: Stage) -> object:
    cut = BehindProxy(stage.cluster)
    yield cut
    cut.proxy.close()


def test_network_outage_of_twenty_seconds_loses_nothing(stage: Stage, start: Start, behind_proxy: BehindProxy) -> None:
    """Without leader election: a leader without lease renewal exits, which another test covers."""
    for number in range(4):
        stage.deploy_on(f"web-{number}", 3, on="abc"[number % 3])
    start("--no-leader-elect", target=behind_proxy)
    stage.write_policy("cut", mode="Act", limits={"perMinute": 30})
    wait_for(lambda: sum(not stage.spread(f"web-{n}", 3) for n in range(4)) < 4, "the acting to be under way")
    behind_proxy.proxy.cut()
    time.sleep(20)
    behind_proxy.proxy.mend()
    wait_for(lambda: all(stage.spread(f"web-{n}", 3) for n in range(4)), "all pods to be spread", timeout=120)
    wait_for(lambda: stage.condition("cut", "Ready").get("status") == "True", "the policy to be well again")
    wait_for(lambda: stage.status("cut")["lastRun"]["planned"] == 0, "a cycle with nothing left to do")


def test_leader_without_lease_renewal_exits(stage: Stage, start: Start, behind_proxy: BehindProxy) -> None:
    process = start(target=behind_proxy)
    wait_for(lambda: "trimtab_leader 1.0" in (process.get("/metrics") or ""), "the lease")
    behind_proxy.proxy.cut()
    wait_for(lambda: not process.running(), "the process to end", timeout=60)
    assert process.stop() == 1


@pytest.mark.core
def test_service_account_may_evict_pods_but_write_no_pods_nodes_or_machines(stage: Stage) -> None:
    """With all controllers and mode TaintAndEvict; test_chart_rights covers each alone."""
    from trimtab_local.client import Client

    token = stage.cluster.service_account_token("trimtab-system", "trimtab")
    client = Client(server=stage.cluster.server, token=token, ca=stage.cluster.ca)
    for method, path in (
        ("PATCH", f"/api/v1/namespaces/{stage.namespace}/pods/any"),
        ("POST", f"/api/v1/namespaces/{stage.namespace}/pods"),
        ("GET", "/api/v1/secrets"),
        ("DELETE", "/api/v1/nodes/a"),
        ("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a"),
        ("DELETE", "/apis/machine.openshift.io/v1beta1/namespaces/any/machines/any"),
    ):
        with pytest.raises(Forbidden):
            client.request(
                method, path, {} if method in BODIES else None, content_type=BODIES.get(method, BODIES["POST"])
            )


def test_operator_waits_for_missing_crds(stage: Stage, start: Start) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = "deschedulerpolicies.trimtab.dev"
    definition = stage.client.request("GET", f"{definitions}/{name}")
    stage.client.request("DELETE", f"{definitions}/{name}")
    wait_for(lambda: not stage._exists(f"{definitions}/{name}"), "the definition to be gone")
    try:
        process = start(ready=False)
        wait_for(lambda: process.get("/healthz") is not None, "the operator to live")
        time.sleep(3)
        assert process.get("/readyz") is None
    finally:  # other tests need the definition
        fresh = {key: definition["metadata"][key] for key in ("name", "annotations") if key in definition["metadata"]}
        stage.client.request("POST", definitions, {**definition, "metadata": fresh, "status": None})
    wait_for(process.ready, "the operator to be ready")
    stage.write_policy("late-comer")
    wait_for(lambda: bool(stage.status("late-comer").get("lastRun")), "the first cycle")
