"""A policy's loop and its runs, on a virtual clock: what is written when, and what an approval sets going."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from tests.builders import pod
from tests.unit.descheduling.test_controller import PATH, Desk
from tests.unit.descheduling.test_controller import plan_on_the_loop as plan_on_the_loop
from trimtab.descheduling.status_patch import ATTEMPTS
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


async def test_a_simulation_is_written_once_and_counts_its_repetitions() -> None:
    desk = Desk()
    desk.write(interval="5m")
    async with desk.running():
        await asyncio.sleep(901)
    [run] = runs(desk)
    assert (run["status"]["phase"], run["status"]["repeats"]) == ("Simulated", 3)
    assert run["metadata"]["name"] == "default-20270115-080000"
    assert desk.status["lastRun"]["run"] == "default-20270115-080000"


async def test_cycles_with_nothing_to_do_write_one_run_and_no_more() -> None:
    desk = Desk()
    old = desk.live.pod("shop/web-2")
    desk.live.apply(old, web("web-2", "n2"))
    desk.write(interval="5m", mode="Act")
    async with desk.running():
        await asyncio.sleep(3600)
        assert desk.runs == 12
    assert phases(desk) == ["Completed"]
    writes = [call for call in desk.api.calls if call.path.startswith(RUNS) and call.method != "GET"]
    assert len(writes) == 2, "the run and its status"


async def test_acting_writes_its_plan_before_and_its_outcomes_after() -> None:
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
async def test_a_run_that_cannot_be_written_does_not_stop_these_modes(mode: str) -> None:
    desk = Desk()
    desk.api.fail(Forbidden("no", status=403), times=99, method="POST", path=RUNS)
    desk.write(mode=mode)
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 1
    assert len(desk.executor.calls) == (mode == "Act")


async def test_without_a_run_there_is_nothing_to_approve_and_the_policy_says_so() -> None:
    desk = Desk()
    desk.api.fail(Forbidden("not allowed", status=403), times=1, method="POST", path=RUNS)
    desk.write(mode="Approve")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.condition("Degraded") == ("True", "CycleFailed")
        await asyncio.sleep(31)
        assert desk.condition("Degraded") == ("False", "AllWell")
    assert phases(desk) == ["Pending"]


async def test_no_history_writes_no_run() -> None:
    desk = Desk()
    desk.write(mode="Act", runsHistoryLimit=0)
    async with desk.running():
        await asyncio.sleep(1)
    assert runs(desk) == []
    assert len(desk.executor.calls) == 1


async def test_nothing_is_evicted_before_the_approval_and_at_once_after_it() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="10m")
    async with desk.running():
        await asyncio.sleep(1900)
        assert desk.executor.calls == []
        assert phases(desk) == ["Pending"]
        assert desk.registry.get_sample_value("trimtab_descheduler_waiting_runs", {"policy": "default"}) == 1
        assert "waits for spec.approved" in desk.recorder.events[0]["note"]
        approve(desk)
        await asyncio.sleep(1)
        assert phases(desk) == ["Completed"]
        assert desk.registry.get_sample_value("trimtab_descheduler_waiting_runs", {"policy": "default"}) == 0
    assert len(outcomes(desk)) == 1
    assert desk.status["evicted"] == 1
    assert desk.status["lastRun"]["mode"] == "Approve"


async def test_what_no_longer_holds_is_told_and_not_done() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        [action] = runs(desk)[0]["spec"]["plan"]["actions"]
        other = {"web-1": "web-2", "web-2": "web-1"}[action["pod"]]
        desk.live.apply(desk.live.pod(f"shop/{other}"), None)
        approve(desk)
        await asyncio.sleep(1)
    assert desk.executor.calls == []
    assert phases(desk) == ["Completed"]
    assert outcomes(desk) == [(action["pod"], "Skipped", "NoLongerPlanned")]
    assert desk.status["evicted"] == 0


async def test_a_newer_plan_supersedes_the_one_that_waits() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        desk.live.apply(None, web("web-3"))
        desk.live.apply(None, web("web-4"))
        await asyncio.sleep(600)
        assert phases(desk) == ["Expired", "Pending"]
        approve(desk, 0)  # too late: the definition's rules refuse it, and nobody acts on it in any case
        await asyncio.sleep(1)
    assert desk.executor.calls == []


async def test_a_plan_that_has_become_less_goes_on_to_wait() -> None:
    desk = Desk()
    desk.live.apply(None, web("web-3"))
    desk.live.apply(None, web("web-4"))
    desk.write(mode="Approve", interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        [gone, stays] = [action["pod"] for action in runs(desk)[0]["spec"]["plan"]["actions"]]
        desk.live.apply(desk.live.pod(f"shop/{gone}"), None)
        await asyncio.sleep(600)
        assert phases(desk) == ["Pending"]
        assert runs(desk)[0]["status"]["repeats"] == 1
        approve(desk)
        await asyncio.sleep(1)
    assert sorted(outcomes(desk)) == sorted([(gone, "Gone", "AlreadyGone"), (stays, "Evicted", "Evicted")])


@pytest.mark.parametrize("approved", [False, True], ids=["unapproved", "approved when nobody saw it"])
async def test_a_run_expires_at_its_deadline_and_not_only_with_the_next_cycle(approved: bool) -> None:
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


async def test_a_changed_spec_expires_what_waits() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        desk.write(mode="Approve", interval="1h", suspend=True, generation=2)
        await asyncio.sleep(1)
        assert phases(desk) == ["Expired"]


async def test_an_approved_run_waits_for_its_policys_turn() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="2h", approvalDeadline="10m")
    async with desk.running():
        await asyncio.sleep(590)
        await desk.services.turn.acquire()  # another policy acts, past the deadline
        approve(desk)
        await asyncio.sleep(300)
        assert phases(desk) == ["Acting"], "approved in time"
        assert desk.executor.calls == []
        desk.services.turn.release()
        await asyncio.sleep(1)
    assert phases(desk) == ["Completed"]
    assert len(desk.executor.calls) == 1


async def test_an_approved_run_that_a_process_left_is_taken_up_and_only_what_is_left_of_it() -> None:
    desk = Desk()
    desk.live.apply(None, web("web-3"))
    desk.live.apply(None, web("web-4"))
    desk.executor.reason = "ShuttingDown"
    desk.write(mode="Approve", interval="2h")
    async with desk.running():
        await asyncio.sleep(1)
        approve(desk)
        desk.executor.takes = 5.0
        await asyncio.sleep(1)
    assert phases(desk) == ["Acting"]
    assert outcomes(desk) == [], "that an action's turn has not come is no outcome"
    [gone, stays] = [action["pod"] for action in runs(desk)[0]["spec"]["plan"]["actions"]]
    desk.live.apply(desk.live.pod(f"shop/{gone}"), None)  # evicted, and nobody could write it down any more
    desk.executor.reason, desk.executor.takes = "Evicted", 0.0
    await restarted(desk, 90)
    assert phases(desk) == ["Completed"]
    assert sorted(outcomes(desk)) == sorted([(gone, "Gone", "AlreadyGone"), (stays, "Evicted", "Evicted")])
    assert [action.pod for action in desk.executor.calls[-1]["actions"]] == [stays]


async def test_a_run_of_mode_act_that_a_killed_process_left_is_said_to_be_interrupted() -> None:
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


async def test_runs_that_cannot_be_listed_are_asked_for_again() -> None:
    desk = Desk()
    desk.api.fail(Forbidden("no", status=403), times=1, method="GET", path=RUNS)
    desk.write(interval="10m")
    async with desk.running():
        await asyncio.sleep(1)
        assert desk.runs == 0
        assert desk.condition("Degraded") == ("True", "ClusterUnreachable")
        await asyncio.sleep(40)
        assert desk.runs == 1


async def test_a_beginning_that_cannot_be_noted_evicts_nothing_and_is_tried_again() -> None:
    desk = Desk()
    desk.write(mode="Approve", interval="1h")
    async with desk.running():
        await asyncio.sleep(1)
        desk.api.fail(ServerError("down", status=500), times=2 * ATTEMPTS, method="PATCH", path=f"{RUNS}/")
        approve(desk)
        await asyncio.sleep(20)
        assert desk.executor.calls == []
        await asyncio.sleep(60)
    assert phases(desk) == ["Completed"]


async def test_a_name_that_is_taken_is_no_obstacle() -> None:
    desk = Desk()
    desk.api.put(f"{RUNS}/default-20270115-080000", {"metadata": {"name": "default-20270115-080000"}, "spec": {}})
    desk.write()
    async with desk.running():
        await asyncio.sleep(1)
    assert f"{RUNS}/default-20270115-080000-2" in desk.api.objects


async def test_an_old_word_of_the_watch_does_not_undo_what_was_written_since() -> None:
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


async def test_an_approved_run_waits_for_its_policys_window() -> None:
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
