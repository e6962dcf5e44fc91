"""The TaintManager carried out on a virtual clock: when pods go, who may act, what a restart changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import node
from tests.fakes.clock import START
from tests.unit.tainting.running_taint_manager import NODES, PATH, PODS, Process, a_cell, a_pod, running
from trimtab.api.plan import rfc3339
from trimtab.disruption.evictor import Permit
from trimtab.disruption.evictor.requests import DESCHEDULER, EvictionRequest, Requester
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.api import Forbidden, ServerError
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.handlers import refuse

pytestmark = pytest.mark.looptime(start=0)
ACTING = ["EvictPods", "TaintAndEvict"]


@pytest.mark.parametrize("mode", ACTING)
async def test_pods_are_deleted_when_toleration_seconds_expire(mode: str) -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60), a_pod("other"), a_pod("stays", key="b"))
    async with running(cell, mode=mode):
        await asyncio.sleep(10)
        cell.taint("n1", added=10)
        await asyncio.sleep(20)
        assert [uid for uid, _ in cell.gone] == ["uid-other", "uid-stays"]
        await asyncio.sleep(60)
    assert cell.gone[2] == ("uid-web", 70)
    marked = cell.sent("PATCH", "/pods/web/status")[0].body["status"]["conditions"][0]
    assert (marked["type"], marked["reason"]) == ("DisruptionTarget", "DeletionByTaintManager")
    assert [call.body["preconditions"] for call in cell.sent("DELETE", "/pods/web")] == [{"uid": "uid-web"}]


async def test_observe_mode_reports_deadlines_and_writes_nothing_else() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod(seconds=60), a_pod("other"), a_pod("third", "n2"))
    cell.objects[f"{NODES}/n2"]["status"]["conditions"][0]["status"] = "Unknown"
    async with running(cell) as process:
        cell.taint("n1")
        cell.taint("n2", added=0)
        await asyncio.sleep(30)
        assert process.status["counts"]["podsWithDeadline"] == 3
        assert process.status["counts"]["overdue"] == 2
        assert process.status["nextDeadlines"][-1]["pod"] == "web"
        await asyncio.sleep(300)
        assert process.condition("Ready") == ("True", "Observing")
        assert process.condition("Degraded")[0] == "False"
    assert cell.writes() == []


@pytest.mark.parametrize("added", [0, None], ids=["a taint with a time", "a taint as kubectl puts it on"])
@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_restart_in_the_middle_of_a_toleration_changes_nothing(added: float | None, end: str) -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=added)
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(30)
        if end == "stopped":
            await process.stop()
    assert (cell.note("n1") is not None) is (added is None)
    await asyncio.sleep(10)
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(60)
    assert cell.gone == [("uid-web", 60)]


async def test_pods_due_during_downtime_are_deleted_at_start() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1")
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(30)
    await asyncio.sleep(100)
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(5)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
    assert 130 <= cell.gone[0][1] < 131


async def test_annotations_are_removed_when_not_needed() -> None:
    cell = a_cell()
    async with running(cell, mode="EvictPods"):
        cell.taint("n1")
        await asyncio.sleep(1)
        assert cell.note("n1") is not None
        cell.untaint("n1")
        await asyncio.sleep(1)
        assert cell.note("n1") is None
        written = len(cell.sent("PATCH", "/nodes/n1"))
        await asyncio.sleep(60)
        assert len(cell.sent("PATCH", "/nodes/n1")) == written == 2


async def test_failed_annotation_write_is_retried() -> None:
    cell = a_cell()
    cell.fail(ServerError("overloaded", status=500), times=3, method="PATCH", path="/nodes/n1")
    async with running(cell, mode="EvictPods"):
        cell.taint("n1")
        await asyncio.sleep(10)
    assert cell.note("n1") is not None


async def test_readded_taint_counts_from_now() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EvictPods"):
        cell.taint("n1")
        await asyncio.sleep(50)
        cell.untaint("n1")
        await asyncio.sleep(5)
        cell.taint("n1")
        await asyncio.sleep(40)
        assert cell.gone == [], "its first time ended at 60"
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(60)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
    assert cell.gone[0][1] == pytest.approx(115, abs=1)


async def test_toleration_extended_before_deadline_counts() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(59 - cell.clock.monotonic())
        cell.add(a_pod(seconds=90))
        await asyncio.sleep(60)
    assert cell.gone == [("uid-web", 90)]


async def test_new_node_with_same_name_starts_from_scratch() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EvictPods"):
        cell.taint("n1")
        await asyncio.sleep(40)
        cell.drop(f"{NODES}/n1")
        cell.add(node("n1").uid("another"))
        await asyncio.sleep(30)
        assert cell.gone == []
        assert cell.note("n1") is None
        cell.taint("n1")
        await asyncio.sleep(65)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
    assert cell.gone[0][1] == pytest.approx(130, abs=1)


async def test_new_pod_with_same_name_has_its_own_deadline() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(50)
        cell.drop(f"{PODS}/web")
        cell.add(a_pod(seconds=60).uid("second").started("2027-01-15T08:00:50Z"))
        await asyncio.sleep(100)
    assert cell.gone == [("second", 110)]


async def test_relist_processes_missed_changes() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod(seconds=60), a_pod("other", "n2", seconds=60))
    async with running(cell, mode="EvictPods") as process:
        cell.taint("n1")
        await asyncio.sleep(20)
        cell.cut, process.followed, process.wrong = True, False, "no word from the API server on nodes"
        cell.untaint("n1")
        cell.taint("n2", added=20)
        await asyncio.sleep(20)
        cell.relist()
        process.followed, process.wrong = True, None
        await asyncio.sleep(100)
    assert cell.gone == [("uid-other", 80)]
    assert cell.note("n1") is None


async def test_no_action_while_caches_are_stale() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(30)
        process.wrong = "no word from the API server on pods (refused)"
        await asyncio.sleep(60)
        assert cell.gone == []
        assert process.condition("Degraded") == ("True", "ClusterUnreachable")
        process.wrong = None
        await asyncio.sleep(5)
        assert process.condition("Degraded")[0] == "False"
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


@pytest.mark.parametrize("mode", ACTING)
async def test_no_action_while_a_watch_is_stalled(mode: str) -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=30))
    cell.taint("n1", added=0)
    async with running(cell, mode=mode) as process:
        process.hung = "the watch hangs of pods for 21 s"
        await asyncio.sleep(60)
        assert cell.gone == []
        assert process.condition("Degraded") == ("True", "ClusterUnreachable")
        process.hung = None
        await asyncio.sleep(5)
        assert [uid for uid, _ in cell.gone] == ["uid-web"]
        process.write(mode="Observe")
        process.hung = "the watch hangs of pods for 21 s"
        await asyncio.sleep(60)
        assert process.condition("Ready") == ("True", "Observing"), "watches are not checked, and nothing is written"


async def test_refused_pod_is_not_deleted_in_observe_mode() -> None:
    cell = a_cell()
    cell.add(a_pod())
    cell.taint("n1", added=0)
    cell.fail(Forbidden("no", status=403), times=10**9, method="DELETE", path="/pods/")
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(5)
        assert cell.sent("DELETE", "/pods/web")
        process.write(mode="Observe")
        await asyncio.sleep(5)
        cell.faults.clear()
        await asyncio.sleep(60)
        assert cell.gone == []
        process.write(mode="EvictPods")
        await asyncio.sleep(5)
        assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_missing_lease_permission_pauses_only_the_node_lifecycle() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod(seconds=30))
    cell.taint("n1", added=0)
    process = Process(cell)
    process.blind = problem = "waiting for leases (forbidden)"
    try:
        await process.start(mode="TaintAndEvict")
        cell.add(node("n2").uid("uid-n2").not_ready())
        await asyncio.sleep(60)
        assert [uid for uid, _ in cell.gone] == ["uid-web"]
        assert process.condition("Degraded") == ("True", "NodeLifecycleFailed")
        assert problem in str(process.status["conditions"])
        assert "taints" not in cell.objects[f"{NODES}/n2"]["spec"]
        process.blind = None
        await process.until(lambda: "taints" in cell.objects[f"{NODES}/n2"]["spec"])
    finally:
        await process.kill()


async def test_no_deadlines_before_initial_sync() -> None:
    cell = a_cell()
    cell.add(a_pod())
    cell.taint("n1", added=0)
    process = Process(cell)
    process.wrong = "waiting for pods"
    try:
        await process.start(mode="TaintAndEvict")
        await asyncio.sleep(20)
        assert cell.writes() == []
        assert process.condition("Ready") == ("Unknown", "WaitingForFirstSync")
        process.wrong = None
        await asyncio.sleep(1)
        assert [uid for uid, _ in cell.gone] == ["uid-web"]
    finally:
        await process.kill()


async def test_non_leader_does_not_act() -> None:
    cell = a_cell()
    cell.add(a_pod())
    process = Process(cell)
    process.leads = False
    try:
        await process.start(mode="TaintAndEvict")
        cell.taint("n1")
        await asyncio.sleep(60)
    finally:
        await process.kill()
    assert cell.calls == []


async def test_process_without_leadership_sends_nothing() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="TaintAndEvict") as process:
        cell.taint("n1")
        await asyncio.sleep(30)
        process.leads = False
        sent = len(cell.calls)
        await asyncio.sleep(60)
        assert len(cell.calls) == sent
        assert cell.gone == []


# ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_evict_pods_mode_does_not_taint_nodes() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod())
    async with running(cell, mode="EvictPods") as process:
        cell.objects[f"{NODES}/n1"]["status"]["conditions"][0]["status"] = "False"
        cell.add(node("n3").uid("uid-n3").not_ready())
        await asyncio.sleep(200)
        assert process.status.get("zones", []) == []
    assert cell.writes() == []


async def test_taint_and_evict_mode_taints_and_untaints_nodes() -> None:
    cell = a_cell("n1", "n2", "n3")
    cell.add(a_pod(key="node.kubernetes.io/not-ready", seconds=30))
    async with running(cell, mode="TaintAndEvict") as process:
        await asyncio.sleep(5)
        cell.add(node("n1").uid("uid-n1").not_ready(since="2027-01-15T08:00:05Z"))
        await process.until(lambda: len(cell.objects[f"{NODES}/n1"]["spec"].get("taints", ())) == 2)
        cell.add(node("n1").uid("uid-n1").merge(spec=cell.objects[f"{NODES}/n1"]["spec"]))
        await process.until(lambda: not cell.objects[f"{NODES}/n1"]["spec"].get("taints"))
        await asyncio.sleep(60)
    assert cell.gone == []


async def test_mode_changes_keep_deadlines() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=100), a_pod("soon", seconds=20))
    async with running(cell) as process:
        cell.taint("n1")
        await asyncio.sleep(30)
        assert cell.writes() == []
        process.write(mode="EvictPods")
        await asyncio.sleep(1)
        assert [uid for uid, _ in cell.gone] == ["uid-soon"], "what is overdue goes at once"
        assert cell.note("n1") is not None
        process.write(mode="TaintAndEvict")
        await asyncio.sleep(5)
        assert process.status["zones"]
        process.write(mode="EvictPods")
        await asyncio.sleep(5)
        process.write(mode="Observe")
        await asyncio.sleep(5)
        assert cell.note("n1") is None, "it is no longer kept up to date"
        written = len(cell.writes())
        await asyncio.sleep(100)
        assert len(cell.writes()) == written
        assert process.status["counts"]["deleted"] == 1
        process.write(mode="TaintAndEvict")
        await asyncio.sleep(5)
    assert [uid for uid, _ in cell.gone] == ["uid-soon", "uid-web"]


async def test_outdated_annotations_are_ignored() -> None:
    """Left by a process that was killed on its way to Observe; the taint was put on again since."""
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EvictPods"):
        cell.taint("n1")
        await asyncio.sleep(30)
    async with running(cell, mode="Observe") as process:
        cell.untaint("n1")
        await asyncio.sleep(5)
    await asyncio.sleep(500)
    cell.taint("n1")
    async with running(cell, mode="Observe") as process:
        await asyncio.sleep(5)
        assert process.status["counts"]["overdue"] == 0
        process.write(mode="EvictPods")
        await asyncio.sleep(40)
        assert cell.gone == []
        await asyncio.sleep(30)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_changed_toleration_matching_applies_at_once() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=300).tolerates("a", effect="NoExecute", seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EvictPods", tolerationMatching="First") as process:
        await asyncio.sleep(100)
        assert cell.gone == []
        process.write(mode="EvictPods")
        await asyncio.sleep(1)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_counts_continue_from_earlier_processes() -> None:
    cell = a_cell()
    cell.add(a_pod())
    async with running(cell, mode="EvictPods") as process:
        cell.taint("n1")
        await asyncio.sleep(15)
        await process.stop()
    cell.add(a_pod("second"))
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(15)
        assert process.status["counts"]["deleted"] == 2


# ── what cannot be used, and what is gone ───────────────────────────────────────────────────────────────────────────


async def test_invalid_spec_is_reported_and_stops_acting() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=30))
    async with running(cell, mode="EvictPods") as process:
        cell.taint("n1")
        await asyncio.sleep(10)
        process.write(mode="EvictPods", nodeLifecycle={"nodeMonitorPeriod": "soon"})
        await asyncio.sleep(60)
        assert process.condition("Ready") == ("False", "InvalidTaintManager")
        assert process.condition("Degraded") == ("True", "InvalidTaintManager")
        assert "spec.nodeLifecycle.nodeMonitorPeriod" in str(process.status["conditions"])
        assert cell.gone == []
        process.write(mode="EvictPods")
        await asyncio.sleep(5)
        assert process.condition("Ready") == ("True", "ManagingTaints")
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_first_status_after_an_invalid_spec_reports_stuck_nodes() -> None:
    cell = a_cell()
    cell.taint("n1", "node.kubernetes.io/unreachable")
    cell.add(a_pod().deleted(rfc3339(START - 600)))
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(10)
        process.write(mode="EvictPods", nodeLifecycle={"nodeMonitorPeriod": "soon"})
        await asyncio.sleep(10)
        process.write(mode="EvictPods")
        await asyncio.sleep(10)
        statuses = [values[0] for name, values in process.reporter.recorded if name == "observe"]
    assert len(statuses) > 5
    assert {tuple(each.name for each in status.stuck_nodes) for status in statuses} == {("n1",)}


async def test_other_name_is_rejected_once() -> None:
    cell = a_cell()
    process = Process(cell)
    body = process.write(name="mine", mode="TaintAndEvict")
    await refuse(process.dependencies, body)
    path = TAINT_MANAGERS.path("mine")
    conditions = cell.objects[path]["status"]["conditions"]
    assert {(each["type"], each["status"], each["reason"]) for each in conditions} == {
        ("Ready", "False", "InvalidTaintManager"),
        ("Degraded", "True", "InvalidTaintManager"),
    }
    assert "must be default" in conditions[0]["message"]
    sent = len(cell.calls)
    await refuse(process.dependencies, {**body, "status": cell.objects[path]["status"]})
    assert len(cell.calls) == sent


async def test_deleted_taint_manager_removes_annotations() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="TaintAndEvict") as process:
        cell.taint("n1")
        await asyncio.sleep(10)
        assert cell.note("n1") is not None
        await process.stop()
        await process.controller.clean_up()
        taints: list[Any] = cell.objects[f"{NODES}/n1"]["spec"]["taints"]
        assert cell.note("n1") is None
        assert [each["key"] for each in taints] == ["a"]
        await asyncio.sleep(100)
    assert cell.gone == []


async def test_forced_deletion_removes_annotations() -> None:
    cell = a_cell()
    async with running(cell, mode="EvictPods") as process:
        cell.taint("n1")
        await asyncio.sleep(10)
        del cell.objects[PATH]
        process.controller.end()
        assert process.loop is not None
        await process.loop
        assert cell.note("n1") is None


async def test_clean_up_retries_and_reports_remaining_nodes() -> None:
    cell = a_cell()
    cell.add(node("n1").uid("uid-n1").annotations({"trimtab.dev/taints-since": "[]"}))
    process = Process(cell)
    cell.fail(ServerError("overloaded", status=500), times=5, method="PATCH")
    await process.controller.clean_up()
    assert cell.note("n1") is None
    cell.add(node("n2").annotations({"trimtab.dev/taints-since": "[]"}))
    cell.fail(ServerError("overloaded", status=500), times=10_000, method="PATCH")
    with pytest.raises(TimeoutError, match="1 nodes"):
        await process.controller.clean_up()


async def test_failed_task_is_restarted_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    failures = iter([True] * 4)

    async def fails_at_first(self: Any) -> None:
        if next(failures, False):
            raise ValueError("no such thing")
        await asyncio.sleep(1000)

    monkeypatch.setattr("trimtab.tainting.since_annotations.SinceAnnotations.run", fails_at_first)
    cell.taint("n1", added=0)
    async with running(cell, mode="EvictPods") as process:
        await process.until(lambda: process.condition("Degraded")[0] == "True", seconds=5)
        await process.until(lambda: process.condition("Degraded")[0] == "False", seconds=20)
        await asyncio.sleep(60)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_failed_event_causes_resync(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimtab.tainting.deadlines import TaintDeadlineTracker

    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EvictPods"):
        with monkeypatch.context() as patched:
            patched.setattr(TaintDeadlineTracker, "node_changed", lambda *_, **__: 1 / 0)
            cell.taint("n1", added=0)
        await asyncio.sleep(70)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_status_reports_pending_evictions() -> None:
    cell = a_cell()
    cell.add(a_pod())
    async with running(cell, mode="EvictPods") as process:
        await asyncio.sleep(3)
        pod = process.dependencies.lister.pod("shop/web")
        assert pod is not None
        evictor = process.dependencies.evictor
        evictor._operator_limits.limits = EvictionLimits(max_concurrent=1)
        held = EvictionRequest(namespace="shop", pod="other", uid="other", requester=Requester(DESCHEDULER, "spread"))
        permit = evictor.admit(held, pod)
        assert isinstance(permit, Permit)
        evictor.begin(permit)
        cell.taint("n1")
        await asyncio.sleep(20)
        [entry] = process.status["waitingEvictions"]
        assert (entry["reason"], entry["waitsFor"]) == ("WaitingForEvictionLimit", "descheduler spread")
        assert cell.gone == []
        evictor.cancel(permit)
        await asyncio.sleep(20)
        assert "waitingEvictions" not in process.status
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
