"""The TaintManager carried out on a virtual clock: when pods go, who may act, what a restart changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import node
from tests.unit.tainting.running import NODES, PATH, PODS, Process, a_cell, a_pod, running
from trimtab.kube.api import ServerError
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.controller import refuse

pytestmark = pytest.mark.looptime(start=0)
ACTING = ["EarlierOnly", "Own"]


@pytest.mark.parametrize("mode", ACTING)
async def test_pods_go_when_their_toleration_ends_and_not_before(mode: str) -> None:
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


async def test_to_observe_is_to_write_nothing_to_nodes_and_pods_and_to_say_who_would_go() -> None:
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
    async with running(cell, mode="EarlierOnly") as process:
        await asyncio.sleep(30)
        if end == "stopped":
            await process.stop()
    assert (cell.note("n1") is not None) is (added is None)
    await asyncio.sleep(10)
    async with running(cell, mode="EarlierOnly"):
        await asyncio.sleep(60)
    assert cell.gone == [("uid-web", 60)]


async def test_what_fell_due_while_nobody_ran_goes_at_once() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1")
    async with running(cell, mode="EarlierOnly"):
        await asyncio.sleep(30)
    await asyncio.sleep(100)
    async with running(cell, mode="EarlierOnly"):
        await asyncio.sleep(5)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
    assert 130 <= cell.gone[0][1] < 131


async def test_notes_are_taken_off_when_they_are_of_no_account() -> None:
    cell = a_cell()
    async with running(cell, mode="EarlierOnly"):
        cell.taint("n1")
        await asyncio.sleep(1)
        assert cell.note("n1") is not None
        cell.untaint("n1")
        await asyncio.sleep(1)
        assert cell.note("n1") is None
        written = len(cell.sent("PATCH", "/nodes/n1"))
        await asyncio.sleep(60)
        assert len(cell.sent("PATCH", "/nodes/n1")) == written == 2


async def test_a_note_that_was_not_written_is_written_again() -> None:
    cell = a_cell()
    cell.fail(ServerError("overloaded", status=500), times=3, method="PATCH", path="/nodes/n1")
    async with running(cell, mode="EarlierOnly"):
        cell.taint("n1")
        await asyncio.sleep(10)
    assert cell.note("n1") is not None


async def test_a_taint_that_is_taken_off_and_put_on_again_counts_anew() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EarlierOnly"):
        cell.taint("n1")
        await asyncio.sleep(50)
        cell.untaint("n1")
        await asyncio.sleep(5)
        cell.taint("n1")
        await asyncio.sleep(40)
        assert cell.gone == [], "its first time ended at 60"
    async with running(cell, mode="EarlierOnly"):
        await asyncio.sleep(60)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
    assert cell.gone[0][1] == pytest.approx(115, abs=1)


async def test_a_toleration_that_is_lengthened_a_second_before_the_end_counts() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EarlierOnly"):
        await asyncio.sleep(59 - cell.clock.monotonic())
        cell.add(a_pod(seconds=90))
        await asyncio.sleep(60)
    assert cell.gone == [("uid-web", 90)]


async def test_a_node_that_is_made_anew_with_its_name_starts_anew() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EarlierOnly"):
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


async def test_a_pod_that_is_made_anew_with_its_name_has_its_own_time() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EarlierOnly"):
        await asyncio.sleep(50)
        cell.drop(f"{PODS}/web")
        cell.add(a_pod(seconds=60).uid("second").started("2027-01-15T08:00:50Z"))
        await asyncio.sleep(100)
    assert cell.gone == [("second", 110)]


async def test_a_relist_takes_in_all_that_was_missed() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod(seconds=60), a_pod("other", "n2", seconds=60))
    async with running(cell, mode="EarlierOnly") as process:
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


async def test_nothing_is_done_while_the_picture_is_stale() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EarlierOnly") as process:
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
async def test_nothing_is_done_while_a_watch_hangs(mode: str) -> None:
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
        assert process.condition("Ready") == ("True", "Observing"), "nobody asks after watches, and nobody acts"


async def test_who_may_not_see_leases_ends_pods_and_says_why_nodes_are_left_alone() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod(seconds=30))
    cell.taint("n1", added=0)
    process = Process(cell)
    process.blind = "waiting for leases (forbidden)"
    try:
        await process.start(mode="Own")
        cell.add(node("n2").uid("uid-n2").not_ready())
        await asyncio.sleep(60)
        assert [uid for uid, _ in cell.gone] == ["uid-web"]
        assert process.condition("Degraded") == ("True", "NodeLifecycleFailed")
        assert "waiting for leases (forbidden)" in str(process.status["conditions"])
        assert "taints" not in cell.objects[f"{NODES}/n2"]["spec"]
        process.blind = None
        await process.until(lambda: "taints" in cell.objects[f"{NODES}/n2"]["spec"])
    finally:
        await process.kill()


async def test_nothing_is_judged_before_all_has_been_seen_once() -> None:
    cell = a_cell()
    cell.add(a_pod())
    cell.taint("n1", added=0)
    process = Process(cell)
    process.wrong = "waiting for pods"
    try:
        await process.start(mode="Own")
        await asyncio.sleep(20)
        assert cell.writes() == []
        assert process.condition("Ready") == ("Unknown", "WaitingForFirstLook")
        process.wrong = None
        await asyncio.sleep(1)
        assert [uid for uid, _ in cell.gone] == ["uid-web"]
    finally:
        await process.kill()


async def test_nobody_acts_who_does_not_lead() -> None:
    cell = a_cell()
    cell.add(a_pod())
    process = Process(cell)
    process.leads = False
    try:
        await process.start(mode="Own")
        cell.taint("n1")
        await asyncio.sleep(60)
    finally:
        await process.kill()
    assert cell.calls == []


async def test_who_loses_the_lease_sends_nothing_more() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="Own") as process:
        cell.taint("n1")
        await asyncio.sleep(30)
        process.leads = False
        sent = len(cell.calls)
        await asyncio.sleep(60)
        assert len(cell.calls) == sent
        assert cell.gone == []


# ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_who_only_goes_earlier_does_nothing_about_the_life_of_nodes() -> None:
    cell = a_cell("n1", "n2")
    cell.add(a_pod())
    async with running(cell, mode="EarlierOnly") as process:
        cell.objects[f"{NODES}/n1"]["status"]["conditions"][0]["status"] = "False"
        cell.add(node("n3").uid("uid-n3").not_ready())
        await asyncio.sleep(200)
        assert process.status.get("zones", []) == []
    assert cell.writes() == []


async def test_the_owner_taints_nodes_that_fail_and_frees_them() -> None:
    cell = a_cell("n1", "n2", "n3")
    cell.add(a_pod(key="node.kubernetes.io/not-ready", seconds=30))
    async with running(cell, mode="Own") as process:
        await asyncio.sleep(5)
        cell.add(node("n1").uid("uid-n1").not_ready(since="2027-01-15T08:00:05Z"))
        await process.until(lambda: len(cell.objects[f"{NODES}/n1"]["spec"].get("taints", ())) == 2)
        cell.add(node("n1").uid("uid-n1").merge(spec=cell.objects[f"{NODES}/n1"]["spec"]))
        await process.until(lambda: not cell.objects[f"{NODES}/n1"]["spec"].get("taints"))
        await asyncio.sleep(60)
    assert cell.gone == []


async def test_each_mode_can_be_left_for_each_other_and_times_stay() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=100), a_pod("soon", seconds=20))
    async with running(cell) as process:
        cell.taint("n1")
        await asyncio.sleep(30)
        assert cell.writes() == []
        process.write(mode="EarlierOnly")
        await asyncio.sleep(1)
        assert [uid for uid, _ in cell.gone] == ["uid-soon"], "what is overdue goes at once"
        assert cell.note("n1") is not None
        process.write(mode="Own")
        await asyncio.sleep(5)
        assert process.status["zones"]
        process.write(mode="EarlierOnly")
        await asyncio.sleep(5)
        process.write(mode="Observe")
        await asyncio.sleep(5)
        assert cell.note("n1") is None, "nobody keeps it true any more"
        written = len(cell.writes())
        await asyncio.sleep(100)
        assert len(cell.writes()) == written
        assert process.status["counts"]["deleted"] == 1
        process.write(mode="Own")
        await asyncio.sleep(5)
    assert [uid for uid, _ in cell.gone] == ["uid-soon", "uid-web"]


async def test_notes_that_nobody_kept_are_not_believed() -> None:
    """Left by a process that was killed on its way to Observe; the taint was put on again since."""
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EarlierOnly"):
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
        process.write(mode="EarlierOnly")
        await asyncio.sleep(40)
        assert cell.gone == []
        await asyncio.sleep(30)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_another_reading_of_tolerations_counts_at_once() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=300).tolerates("a", effect="NoExecute", seconds=60))
    cell.taint("n1", added=0)
    async with running(cell, mode="EarlierOnly", tolerationMatching="First") as process:
        await asyncio.sleep(100)
        assert cell.gone == []
        process.write(mode="EarlierOnly")
        await asyncio.sleep(1)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_counts_go_on_from_those_of_earlier_processes() -> None:
    cell = a_cell()
    cell.add(a_pod())
    async with running(cell, mode="EarlierOnly") as process:
        cell.taint("n1")
        await asyncio.sleep(15)
        await process.stop()
    cell.add(a_pod("second"))
    async with running(cell, mode="EarlierOnly") as process:
        await asyncio.sleep(15)
        assert process.status["counts"]["deleted"] == 2


# ── what cannot be used, and what is gone ───────────────────────────────────────────────────────────────────────────


async def test_a_spec_that_cannot_be_used_is_told_and_nothing_is_done() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=30))
    async with running(cell, mode="EarlierOnly") as process:
        cell.taint("n1")
        await asyncio.sleep(10)
        process.write(mode="EarlierOnly", nodeLifecycle={"nodeMonitorPeriod": "soon"})
        await asyncio.sleep(60)
        assert process.condition("Ready") == ("False", "InvalidTaintManager")
        assert process.condition("Degraded") == ("True", "InvalidTaintManager")
        assert "spec.nodeLifecycle.nodeMonitorPeriod" in str(process.status["conditions"])
        assert cell.gone == []
        process.write(mode="EarlierOnly")
        await asyncio.sleep(5)
        assert process.condition("Ready") == ("True", "ManagingTaints")
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_one_of_another_name_is_refused_once() -> None:
    cell = a_cell()
    process = Process(cell)
    body = process.write(name="mine", mode="Own")
    await refuse(process.services, body)
    path = TAINT_MANAGERS.path("mine")
    conditions = cell.objects[path]["status"]["conditions"]
    assert {(each["type"], each["status"], each["reason"]) for each in conditions} == {
        ("Ready", "False", "InvalidTaintManager"),
        ("Degraded", "True", "InvalidTaintManager"),
    }
    assert "must be default" in conditions[0]["message"]
    sent = len(cell.calls)
    await refuse(process.services, {**body, "status": cell.objects[path]["status"]})
    assert len(cell.calls) == sent


async def test_without_a_taint_manager_nothing_is_done_and_our_annotations_go() -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="Own") as process:
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


async def test_one_that_went_without_our_finalizer_leaves_no_annotation_either() -> None:
    cell = a_cell()
    async with running(cell, mode="EarlierOnly") as process:
        cell.taint("n1")
        await asyncio.sleep(10)
        del cell.objects[PATH]
        process.controller.end()
        assert process.loop is not None
        await process.loop
        assert cell.note("n1") is None


async def test_cleaning_up_goes_on_over_failures_and_tells_of_what_is_left() -> None:
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


async def test_a_loop_that_fails_begins_anew_and_the_status_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = a_cell()
    cell.add(a_pod(seconds=60))
    failures = iter([True] * 4)

    async def fails_at_first(self: Any) -> None:
        if next(failures, False):
            raise ValueError("no such thing")
        await asyncio.sleep(1000)

    monkeypatch.setattr("trimtab.tainting.notes.Notes.run", fails_at_first)
    cell.taint("n1", added=0)
    async with running(cell, mode="EarlierOnly") as process:
        await process.until(lambda: process.condition("Degraded")[0] == "True", seconds=5)
        await process.until(lambda: process.condition("Degraded")[0] == "False", seconds=20)
        await asyncio.sleep(60)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_an_object_that_cannot_be_taken_in_costs_a_look_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimtab.tainting.deadlines import DeadlineBook

    cell = a_cell()
    cell.add(a_pod(seconds=60))
    async with running(cell, mode="EarlierOnly"):
        with monkeypatch.context() as patched:
            patched.setattr(DeadlineBook, "node_changed", lambda *_, **__: 1 / 0)
            cell.taint("n1", added=0)
        await asyncio.sleep(70)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
