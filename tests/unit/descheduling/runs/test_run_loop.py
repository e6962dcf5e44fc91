"""A policy's loop and its runs, on a virtual clock: what is written when, and what an approval sets going."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from tests.builders import pod
from tests.fixtures.golden import Golden
from tests.unit.descheduling.test_controller import PATH, Desk
from tests.unit.descheduling.test_controller import plan_on_the_loop as plan_on_the_loop
from trimtab.controller.status_writer import RETRY
from trimtab.kube.api import Forbidden, ServerError

RUNS = "/apis/trimtab.dev/v1alpha1/deschedulingruns"
pytestmark = pytest.mark.looptime(start=0)


def runs(desk: Desk) -> list[dict[str, Any]]:
    """The policy's runs as the API server has them, the oldest first."""
    found = [body for path, body in desk.api.objects.items() if path.startswith(f"{RUNS}/")]
    return sorted(found, key=lambda body: (body["spec"]["plan"]["time"], body["metadata"]["name"]))


def phases(desk: Desk) -> list[str]:
    return [body.get("status", {}).get("phase", "") for body in runs(desk)]


def approve(desk: Desk, index: int = -1) -> None:
    """As somebody does with kubectl; the watch tells of it at once."""
    body = copy.deepcopy(runs(desk)[index])
    body["spec"]["approved"] = True
    stored = desk.api.put(f"{RUNS}/{body['metadata']['name']}", body)
    desk.controller.observe_run(copy.deepcopy(stored))


def outcomes(desk: Desk, index: int = -1) -> list[tuple[str, str, str]]:
    found = runs(desk)[index]["status"].get("outcomes", ())
    return [(each["pod"], each["result"], each["reason"]) for each in found]


def web(name: str, node_name: str = "n1") -> Any:
    return pod(name, namespace="shop").on(node_name).owned_by("ReplicaSet", "web").phase("Running").build()


async def test_repeated_simulation_increments_counter() -> None:
    desk = Desk()
    desk.write(interval="5m")
    async with desk.running():
        await asyncio.sleep(901)
    [run] = runs(desk)
    assert (run["status"]["phase"], run["status"]["repeats"]) == ("Simulated", 3)
    assert run["metadata"]["name"] == "default-20270115-080000"
    assert desk.status["lastRun"]["run"] == "default-20270115-080000"


async def test_empty_plans_write_one_run() -> None:
    desk = Desk()
    old = desk.caches.lister.pod("shop/web-2")
    desk.caches.apply(old, web("web-2", "n2"))
    desk.write(interval="5m", mode="Act")
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 12
    assert phases(desk) == ["Completed"]
    writes = [call for call in desk.api.calls if call.path.startswith(RUNS) and call.method != "GET"]
    assert len(writes) == 2, "the run and its status"


async def test_plan_is_written_before_acting_and_outcomes_after() -> None:
    desk = Desk()
    desk.executor.takes = 20.0
    desk.write(mode="Act", interval="1h")
    async with desk.running():
        await asyncio.sleep(10)
        assert phases(desk) == ["Acting"]
        await asyncio.sleep(20)
    assert phases(desk) == ["Completed"]
    assert [result for _, result, _ in outcomes(desk)] == ["Evicted"]
    assert runs(desk)[0]["status"]["evicted"] == 1


@pytest.mark.parametrize("mode", ["Simulate", "Act"])
async def test_failed_run_creation_does_not_stop_other_modes(mode: str) -> None:
    desk = Desk()
    desk.api.fail(Forbidden("no", status=403), times=99, method="POST", path=RUNS)
    desk.write(mode=mode)
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
    assert len(desk.executor.calls) == (mode == "Act")


async def test_failed_run_creation_degrades_mode_approve() -> None:
    desk = Desk()
    desk.api.fail(Forbidden("not allowed", status=403), times=1, method="POST", path=RUNS)
    desk.write(mode="Approve")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Degraded") == ("True", "CycleFailed")
        await asyncio.sleep(31)
        assert desk.condition("Degraded") == ("False", "AllWell")
    assert phases(desk) == ["Pending"]


async def test_history_limit_zero_writes_no_run() -> None:
    desk = Desk()
    desk.write(mode="Act", runsHistoryLimit=0)
    async with desk.running():
        await asyncio.sleep(1)
    assert runs(desk) == []
    assert len(desk.executor.calls) == 1


async def test_approval_starts_evictions_immediately(golden: Golden) -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="10m")
    async with desk.running():
        await asyncio.sleep(1900)
        assert desk.executor.calls == []
        assert phases(desk) == ["Pending"]
        assert desk.registry.get_sample_value("trimtab_descheduler_waiting_runs", {"policy": "default"}) == 1
        golden(desk.recorder.events[0]["note"])
        approve(desk)
        await asyncio.sleep(1)
        assert phases(desk) == ["Completed"]
        assert desk.registry.get_sample_value("trimtab_descheduler_waiting_runs", {"policy": "default"}) == 0
    assert len(outcomes(desk)) == 1
    assert desk.status["evicted"] == 1
    assert desk.status["lastRun"]["mode"] == "Approve"


async def test_invalid_approved_moves_are_skipped_and_reported() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        [action] = runs(desk)[0]["spec"]["plan"]["actions"]
        other = {"web-1": "web-2", "web-2": "web-1"}[action["pod"]]
        desk.caches.apply(desk.caches.lister.pod(f"shop/{other}"), None)
        approve(desk)
        await asyncio.sleep(1)
    assert desk.executor.calls == []
    assert phases(desk) == ["Completed"]
    assert outcomes(desk) == [(action["pod"], "Skipped", "NoLongerPlanned")]
    assert desk.status["evicted"] == 0


async def test_newer_plan_supersedes_pending_run() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        desk.caches.apply(None, web("web-3"))
        desk.caches.apply(None, web("web-4"))
        await asyncio.sleep(600)
        assert phases(desk) == ["Expired", "Pending"]
        approve(desk, 0)  # too late: the CRD's rules refuse it, and the operator ignores it in any case
        await asyncio.sleep(1)
    assert desk.executor.calls == []


async def test_smaller_plan_keeps_pending_run() -> None:
    desk = Desk()
    desk.caches.apply(None, web("web-3"))
    desk.caches.apply(None, web("web-4"))
    desk.write(mode="Approve", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        [deleted, stays] = [action["pod"] for action in runs(desk)[0]["spec"]["plan"]["actions"]]
        desk.caches.apply(desk.caches.lister.pod(f"shop/{deleted}"), None)
        await asyncio.sleep(600)
        assert phases(desk) == ["Pending"]
        assert runs(desk)[0]["status"]["repeats"] == 1
        approve(desk)
        await asyncio.sleep(1)
    assert sorted(outcomes(desk)) == sorted([(deleted, "Gone", "AlreadyGone"), (stays, "Evicted", "Evicted")])


@pytest.mark.parametrize("approved", [False, True], ids=["unapproved", "approved while no operator ran"])
async def test_run_expires_at_deadline_between_cycles(approved: bool) -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="2h", approvalDeadline="10m")
    async with desk.running():
        await asyncio.sleep(599)
        assert phases(desk) == ["Pending"]
        if not approved:
            await asyncio.sleep(3)
    if approved:  # the operator is away from the 599th second on
        await asyncio.sleep(60)
        body = copy.deepcopy(runs(desk)[0])
        body["spec"]["approved"] = True
        desk.api.put(f"{RUNS}/{body['metadata']['name']}", body)
        await restarted(desk)
    assert phases(desk) == ["Expired"]
    assert desk.executor.calls == []


async def restarted(desk: Desk, seconds: float = 1.0) -> None:
    """Another process takes the policy up, for so long."""
    from tests.fakes.daemon import Stopped
    from trimtab.descheduling.controller import PolicyController

    desk.controller, desk.stopped = PolicyController("default", desk.services), Stopped()
    desk.controller.observe(copy.deepcopy(desk.api.objects[PATH]))
    async with desk.running():
        await asyncio.sleep(seconds)


async def test_changed_spec_expires_pending_run() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        desk.write(mode="Approve", interval="1h", suspend=True, generation=2)
        await asyncio.sleep(1)
        assert phases(desk) == ["Expired"]


async def test_approved_run_waits_for_lock() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="2h", approvalDeadline="10m")
    async with desk.running():
        await asyncio.sleep(590)
        await desk.services.cycle_lock.acquire()  # another policy acts, past the deadline
        approve(desk)
        await asyncio.sleep(300)
        assert phases(desk) == ["Acting"], "approved in time"
        assert desk.executor.calls == []
        desk.services.cycle_lock.release()
        await asyncio.sleep(1)
    assert phases(desk) == ["Completed"]
    assert len(desk.executor.calls) == 1


async def test_restart_continues_approved_run() -> None:
    desk = Desk()
    desk.caches.apply(None, web("web-3"))
    desk.caches.apply(None, web("web-4"))
    desk.executor.reason = "ShuttingDown"
    desk.write(mode="Approve", interval="2h")
    async with desk.running():
        await asyncio.sleep(1)
        approve(desk)
        desk.executor.takes = 5.0
        await asyncio.sleep(1)
    assert phases(desk) == ["Acting"]
    assert outcomes(desk) == [], "that an action's turn has not come is no outcome"
    [deleted, stays] = [action["pod"] for action in runs(desk)[0]["spec"]["plan"]["actions"]]
    # It was evicted, but the process ended before it recorded the outcome.
    desk.caches.apply(desk.caches.lister.pod(f"shop/{deleted}"), None)
    desk.executor.reason, desk.executor.takes = "Evicted", 0.0
    await restarted(desk, 90)
    assert phases(desk) == ["Completed"]
    assert sorted(outcomes(desk)) == sorted([(deleted, "Gone", "AlreadyGone"), (stays, "Evicted", "Evicted")])
    assert [action.pod for action in desk.executor.calls[-1]["actions"]] == [stays]


async def test_killed_process_leaves_interrupted_run() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
    body = copy.deepcopy(runs(desk)[0])
    body["status"] = {"phase": "Acting"}
    desk.api.put(f"{RUNS}/{body['metadata']['name']}", body)
    await restarted(desk)
    assert phases(desk) == ["Interrupted"]


async def test_old_runs_are_deleted() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="1m", runsHistoryLimit=3)
    async with desk.running():
        await asyncio.sleep(601)
    assert len(runs(desk)) == 3
    assert runs(desk)[-1]["metadata"]["name"] == "default-20270115-081000"


async def test_failed_list_of_runs_is_retried() -> None:
    desk = Desk()
    desk.api.fail(Forbidden("no", status=403), times=1, method="GET", path=RUNS)
    desk.write(interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 0
        assert desk.condition("Degraded") == ("True", "ClusterUnreachable")
        await asyncio.sleep(40)
        assert desk.runs == 1


async def test_unrecorded_start_evicts_nothing_and_is_retried() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        desk.api.fail(ServerError("down", status=500), times=2 * RETRY.attempts, method="PATCH", path=f"{RUNS}/")
        approve(desk)
        await asyncio.sleep(20)
        assert desk.executor.calls == []
        await asyncio.sleep(60)
    assert phases(desk) == ["Completed"]


async def test_failed_status_write_is_repeated_without_another_change() -> None:
    desk = Desk()
    desk.write(mode="Act", interval="1h")
    desk.executor.takes = 20.0
    async with desk.running():
        await asyncio.sleep(10)
        before = copy.deepcopy(runs(desk)[0])
        desk.api.fail(ServerError("down", status=500), times=3 * RETRY.attempts, method="PATCH", path=f"{RUNS}/")
        await asyncio.sleep(25)
        assert phases(desk) == ["Acting"]
        desk.controller.observe_run(before)  # a relist delivers the status that the API server has
        await asyncio.sleep(60)
        assert phases(desk) == ["Completed"]


async def test_taken_run_name_gets_suffix() -> None:
    desk = Desk()
    desk.api.put(f"{RUNS}/default-20270115-080000", {"metadata": {"name": "default-20270115-080000"}, "spec": {}})
    desk.write()
    async with desk.running():
        await asyncio.sleep(1)
    assert f"{RUNS}/default-20270115-080000-2" in desk.api.objects


async def test_stale_watch_event_is_ignored() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        old = copy.deepcopy(runs(desk)[0])
        approve(desk)
        await asyncio.sleep(1)
        desk.controller.observe_run(old)
        await asyncio.sleep(1)
    assert len(desk.executor.calls) == 1


async def test_approved_run_waits_for_window() -> None:
    desk = Desk()
    window = {"schedule": "0 9 * * *", "duration": "1h"}  # now it is 08:00
    desk.write(mode="Approve", interval="2h", approvalDeadline="3h", windows=[window])
    async with desk.running():
        await asyncio.sleep(5)
        assert phases(desk) == ["Pending"]
        assert desk.condition("Progressing") == ("False", "OutsideWindows")
        approve(desk)
        await asyncio.sleep(3500)
        assert not desk.executor.calls
        assert desk.status["nextRun"] == "2027-01-15T09:00:00Z"
        await asyncio.sleep(120)
        assert len(desk.executor.calls) == 1
