"""The operator on a real control plane, under the chart's RBAC."""

from __future__ import annotations

import signal
import time

import pytest

from examples.demo.install import apply, wait_for
from examples.demo.workloads import budget
from tests.e2e.conftest import Stage, Start
from tests.fixtures.proxy import BehindProxy
from trimtab.kube.api import Forbidden

BODIES = {"PATCH": "application/merge-patch+json", "POST": "application/json"}
"""Content types of what has a body."""


def test_acting_moves_duplicates_apart_and_tells_of_each(stage: Stage, start: Start) -> None:
    stage.crowd("web", 3, on="a")
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


def test_simulating_moves_nothing_and_reports_what_it_would_do(stage: Stage, start: Start) -> None:
    stage.crowd("web", 3, on="b")
    before = stage.running("web")
    start()
    stage.write_policy("simulate")  # Simulate is the default
    wait_for(lambda: bool(stage.status("simulate").get("lastRun")), "the first cycle")
    counts = stage.status("simulate")["counts"]
    assert [(c["strategy"], c["outcome"], c["count"]) for c in counts] == [("RemoveDuplicates", "Planned", 2)]
    assert stage.status("simulate")["lastRun"]["planned"] == 2
    assert stage.running("web") == before


def test_a_pod_whose_budget_allows_nothing_is_kept_and_said_to_be(stage: Stage, start: Start) -> None:
    path = f"/apis/policy/v1/namespaces/{stage.namespace}/poddisruptionbudgets"
    apply(stage.client, path, budget("web", namespace=stage.namespace, app="web", min_available=3))
    stage.crowd("web", 3, on="a")
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


def test_a_changed_spec_takes_effect_at_once(stage: Stage, start: Start) -> None:
    stage.crowd("web", 2, on="c")
    start()
    stage.write_policy("late", interval="1h")
    wait_for(lambda: bool(stage.status("late").get("lastRun")), "the first cycle")
    assert stage.status("late")["lastRun"]["planned"] == 1
    stage.write_policy("late", interval="1h", mode="Act")
    wait_for(lambda: stage.spread("web", 2), "the pods to be spread long before the hour is over", timeout=30)


def test_deleting_a_policy_ends_its_loop_cleanly(stage: Stage, start: Start) -> None:
    process = start()
    stage.write_policy("gone")
    wait_for(lambda: bool(stage.status("gone").get("lastRun")), "the first cycle")
    assert stage.policy("gone")["metadata"]["finalizers"] == ["trimtab.dev/finalizer"]
    stage.remove_policy("gone")
    assert process.running()
    assert 'policy="gone"' not in "".join(
        line for line in (process.get("/metrics") or "").splitlines() if line.startswith("trimtab_descheduler_planned")
    )


def test_a_suspended_policy_rests_and_says_so(stage: Stage, start: Start) -> None:
    start()
    stage.write_policy("resting", suspend=True)
    wait_for(lambda: stage.condition("resting", "Progressing").get("reason") == "Suspended", "the condition")
    assert "lastRun" not in stage.status("resting")


def test_killed_and_started_again_it_goes_on_where_it_was(stage: Stage, start: Start) -> None:
    stage.crowd("web", 3, on="a")
    first = start()
    stage.write_policy("survivor", mode="Act", interval="1h", limits={"perCycle": 1})
    wait_for(lambda: stage.status("survivor").get("evicted") == 1, "the first eviction")
    last = stage.status("survivor")["lastRun"]["time"]
    first.stop(signal.SIGKILL)
    start()
    time.sleep(20)  # the killed one's lease runs out after 15 s
    assert stage.status("survivor")["lastRun"]["time"] == last, "the hour is not over: no further cycle"
    stage.write_policy("survivor", mode="Act", interval="5s")
    wait_for(lambda: stage.spread("web", 3), "the rest to be done")
    wait_for(lambda: stage.status("survivor").get("evicted") == 2, "the count to go on")


def test_asked_to_stop_it_releases_the_lease_for_the_next(stage: Stage, start: Start) -> None:
    first = start()
    stage.write_policy("baton")
    wait_for(lambda: bool(stage.status("baton").get("lastRun")), "the first cycle")
    assert first.stop(signal.SIGTERM) == 0
    lease = stage.client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/trimtab-system/leases/trimtab")
    assert not lease["spec"].get("holderIdentity")
    began = time.monotonic()
    second = start()
    wait_for(lambda: "trimtab_leader 1.0" in (second.get("/metrics") or ""), "the lease")
    assert time.monotonic() - began < 15, "nobody waits for a released lease to run out"


def test_only_one_of_two_acts(stage: Stage, start: Start) -> None:
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


def test_twenty_seconds_without_the_network_lose_nothing(stage: Stage, start: Start, behind_proxy: BehindProxy) -> None:
    """No leader election here: with it, a leader cut off for longer than its lease must end, which is another test."""
    for number in range(4):
        stage.crowd(f"web-{number}", 3, on="abc"[number % 3])
    start("--no-leader-elect", target=behind_proxy)
    stage.write_policy("cut", mode="Act", limits={"perMinute": 30})
    wait_for(lambda: sum(not stage.spread(f"web-{n}", 3) for n in range(4)) < 4, "the acting to be under way")
    behind_proxy.proxy.cut()
    time.sleep(20)
    behind_proxy.proxy.mend()
    wait_for(lambda: all(stage.spread(f"web-{n}", 3) for n in range(4)), "all pods to be spread", timeout=120)
    wait_for(lambda: stage.condition("cut", "Ready").get("status") == "True", "the policy to be well again")
    wait_for(lambda: stage.status("cut")["lastRun"]["planned"] == 0, "a cycle with nothing left to do")


def test_a_leader_cut_off_from_its_lease_ends(stage: Stage, start: Start, behind_proxy: BehindProxy) -> None:
    process = start(target=behind_proxy)
    wait_for(lambda: "trimtab_leader 1.0" in (process.get("/metrics") or ""), "the lease")
    behind_proxy.proxy.cut()
    wait_for(lambda: not process.running(), "the process to end", timeout=30)
    assert process.stop() == 1


def test_the_service_account_may_end_pods_but_not_change_them_and_no_nodes_or_machines(stage: Stage) -> None:
    """With all controllers and the rights that mode Own needs; test_chart_rights has what each needs alone."""
    from trimtab.local.client import Client

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


def test_definitions_that_come_after_the_operator_are_waited_for(stage: Stage, start: Start) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    name = "deschedulerpolicies.trimtab.dev"
    definition = stage.client.request("GET", f"{definitions}/{name}")
    stage.client.request("DELETE", f"{definitions}/{name}")
    wait_for(lambda: not stage._exists(f"{definitions}/{name}"), "the definition to be gone")
    process = start(ready=False)
    wait_for(lambda: process.get("/healthz") is not None, "the operator to live")
    time.sleep(3)
    assert process.get("/readyz") is None
    fresh = {key: definition["metadata"][key] for key in ("name", "annotations") if key in definition["metadata"]}
    stage.client.request("POST", definitions, {**definition, "metadata": fresh, "status": None})
    wait_for(process.ready, "the operator to be ready")
    stage.write_policy("late-comer")
    wait_for(lambda: bool(stage.status("late-comer").get("lastRun")), "the first cycle")
