"""The loop of the ClusterAutoscaler on a virtual clock: when it passes, what it does, how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import pod
from tests.unit.autoscaling.running_autoscaler import NODES, PATH, PODS, Desk
from trimtab.autoscaling.controller import refuse
from trimtab.kube.api import ServerError

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
TAINT = "ToBeDeletedByClusterAutoscaler"


def marks(desk: Desk) -> int:
    """Nodes on which it stands that nobody needs them."""
    return sum(
        "trimtab.dev/unneeded-since" in (each["metadata"].get("annotations") or {})
        for path, each in desk.fleet.objects.items()
        if path.startswith(f"{NODES}/")
    )


def versions(desk: Desk) -> dict[str, str]:
    """Of all objects but the ClusterAutoscaler."""
    return {path: each["metadata"]["resourceVersion"] for path, each in desk.fleet.objects.items() if path != PATH}


async def test_pods_that_find_no_node_get_some_at_once_and_then_run() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("True", "PassCompleted"))
        await asyncio.sleep(3)
        asked = desk.clock.monotonic()
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3)
        assert desk.clock.monotonic() - asked < 1, "nobody waits for the next period"
        await desk.until(lambda: all(desk.pod(f"wait-{i}").node for i in range(12)), seconds=10)
        await desk.until(lambda: desk.status["nodeGroups"][0]["ready"] == 3, seconds=30)
    assert desk.scales() == 1
    assert {"ScaledUpGroup", "TriggeredScaleUp", "ScaleUpCompleted"} <= desk.recorder.reasons()
    assert "cluster-autoscaler-status" in str(desk.fleet.objects.keys())


async def test_what_was_asked_for_is_not_asked_for_again_while_it_comes() -> None:
    desk = Desk(boot=120.0)
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.group("b", "b1", unneeded=False)
    desk.write()
    async with desk.running():
        desk.wants(20)
        await asyncio.sleep(100)
        sizes = desk.fleet.replicas("a") + desk.fleet.replicas("b")
        assert sizes == 2 + 3, "eight run on what is there, and twelve take three nodes of 4 cores"
    assert desk.condition("Progressing") == ("True", "Scaling")


async def test_nodes_that_nobody_needs_go_after_their_time_down_to_the_minimum() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", "a3", least=1, unneeded=False)
    desk.write()
    async with desk.running():
        await desk.until(lambda: len(desk.status.get("unneeded", ())) == 2, seconds=20)
        assert desk.fleet.replicas("a") == 3, "it has not been long enough"
        assert marks(desk) == 0, "for moments it stands in the status alone"
        await desk.until(lambda: len(desk.fleet.nodes()) == 1, seconds=120)
        await desk.until(lambda: "ScaleDownEmpty" in desk.recorder.reasons(), seconds=10)
    assert desk.fleet.replicas("a") == 1
    assert desk.fleet.traces() == {}


async def test_drained_pods_run_elsewhere_and_budgets_hold() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=True)
    for index, on in enumerate(("a1", "a1", "a2")):
        desk.fleet.web(f"web-{index}", on, cpu="300m")
    desk.fleet.guard("web", 2)
    desk.write()
    async with desk.running():
        await desk.until(lambda: len(desk.fleet.nodes()) == 1, seconds=200)
        await asyncio.sleep(5)
        assert all(each["spec"].get("nodeName") for each in desk.fleet.app("web"))
    assert desk.fleet.lowest["web"] >= 2


async def test_simulating_changes_nothing_and_tells_all() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write(mode="Simulate")
    before = versions(desk)
    async with desk.running():
        await asyncio.sleep(60)
        desk.wants(12)
        await asyncio.sleep(60)
    changed = {
        path for path, version in before.items() if desk.fleet.objects[path]["metadata"]["resourceVersion"] != version
    }
    assert changed == set()
    assert "would ask" in str(desk.status["conditions"])


async def test_a_spec_that_cannot_be_used_is_told_and_removals_are_taken_back() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=True)
    desk.write()
    async with desk.running():
        await desk.until(lambda: TAINT in str(desk.fleet.spec("a1")) or TAINT in str(desk.fleet.spec("a2")))
        desk.write(generation=2, maxNodeProvisionTime="soon")
        await desk.until(lambda: desk.condition("Degraded") == ("True", "InvalidAutoscaler"), seconds=5)
        await desk.until(lambda: desk.fleet.traces() == {}, seconds=10)
        desk.wants(9)
        await asyncio.sleep(60)
        assert desk.fleet.replicas("a") == 2
        assert "spec.maxNodeProvisionTime" in str(desk.status["conditions"])
        desk.write(generation=3)
        await desk.until(lambda: desk.fleet.replicas("a") > 2, seconds=10)
        await desk.until(lambda: desk.condition("Degraded")[0] == "False", seconds=10)


async def test_nothing_is_done_without_a_picture_and_the_status_says_why() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.wrong = "no word from the API server on machines (refused)"
    desk.write()
    async with desk.running():
        desk.wants(12)
        await asyncio.sleep(20)
        assert desk.fleet.replicas("a") == 1
        assert desk.condition("Degraded") == ("True", "ClusterUnreachable")
        assert desk.condition("Ready")[0] == "Unknown"
        desk.wrong = None
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=5)
        await desk.until(lambda: desk.condition("Degraded")[0] == "False", seconds=10)


async def test_nobody_acts_who_does_not_lead() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=True)
    desk.leads = False
    desk.write()
    async with desk.running():
        desk.wants(20)
        await asyncio.sleep(60)
    assert desk.fleet.replicas("a") == 2
    assert desk.fleet.traces() == {}
    assert not desk.fleet.sent("PATCH", "clusterautoscalers"), "nor overwrites the status of who leads by now"


async def test_while_the_descheduler_acts_nodes_are_added_and_none_is_removed() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.group("b", "b1", "b2", unneeded=True, most=2)
    desk.write()
    await desk.turn.acquire()
    async with desk.running():
        await asyncio.sleep(30)
        assert len(desk.fleet.nodes()) == 3
        assert desk.fleet.traces() == {}
        desk.wants(16)
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=5)
        for index in range(16):
            desk.fleet.drop(f"{PODS}/wait-{index}")
        await asyncio.sleep(60)
        assert desk.fleet.traces() == {}
        desk.turn.release()
        await desk.until(lambda: len(desk.fleet.nodes()) < 3, seconds=30)
        assert not desk.turn.locked() or desk.condition("Progressing")[0] == "True"


async def test_a_pass_that_fails_is_told_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimtab.autoscaling import one_pass

    real, failures = one_pass.look, [RuntimeError("a defect")]

    def look(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr(one_pass, "look", look)
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("False", "PassFailed"), seconds=5)
        await desk.until(lambda: desk.condition("Ready") == ("True", "PassCompleted"), seconds=15)
    assert desk.registry.get_sample_value(
        "trimtab_autoscaler_passes_total", {"mode": "Act", "result": "PassFailed"}
    ) == pytest.approx(1)


async def test_a_status_that_cannot_be_written_stops_no_pass() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    desk.fleet.fail(ServerError("out of order", status=500), times=10_000, path="clusterautoscalers")
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=10)


async def test_the_status_is_not_written_while_nothing_new_is_in_it() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", least=1, unneeded=False)
    desk.write()
    async with desk.running():
        await asyncio.sleep(60)
        before = len(desk.fleet.sent("PATCH", "clusterautoscalers"))
        await asyncio.sleep(600)
        assert len(desk.fleet.sent("PATCH", "clusterautoscalers")) - before <= 11


async def test_when_it_ends_nodes_are_returned_and_the_status_written() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=True)
    desk.write()
    async with desk.running() as loop:
        await desk.until(lambda: bool(desk.fleet.traces()))
        desk.stopped.event.set()
        await asyncio.wait({loop}, timeout=40)
        assert loop.done()
        assert desk.fleet.traces() == {}


async def test_a_successor_goes_on_where_a_killed_one_was() -> None:
    desk = Desk(boot=40.0)
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=5)
        await desk.until(lambda: "scaleUp" in str(desk.status), seconds=5)
        since = desk.status["nodeGroups"][0]["scaleUp"]["since"]
    successor = Desk(desk.fleet, boot=1.0)
    successor.write()
    async with successor.running():
        await asyncio.sleep(3)
        assert successor.status["nodeGroups"][0]["scaleUp"]["since"] == since
        assert successor.fleet.replicas("a") == 3


async def test_deleting_the_autoscaler_takes_everything_from_nodes() -> None:
    desk = Desk()
    desk.fleet.group("a", *(f"a{i}" for i in range(30)), unneeded=False)
    desk.write()
    async with desk.running() as loop:
        await desk.until(lambda: bool(desk.fleet.traces()))
        desk.stopped.event.set()
        await asyncio.wait({loop}, timeout=60)
    successor = Desk(desk.fleet)
    await successor.controller.clean_up()
    await successor.controller.stop()
    assert desk.fleet.traces() == {}
    assert marks(desk) == 0


async def test_one_that_went_without_its_finalizer_is_cleaned_up_after_as_well() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=True)
    desk.write()
    async with desk.running() as loop:
        await desk.until(lambda: bool(desk.fleet.traces()))
        desk.fleet.objects.pop(PATH)
        desk.controller.end()
        await asyncio.wait({loop}, timeout=60)
        assert loop.done()
    assert desk.fleet.traces() == {}
    assert marks(desk) == 0


async def test_one_of_another_name_is_told_that_there_is_only_one() -> None:
    desk = Desk()
    path = PATH.replace("default", "other")
    body = {"metadata": {"name": "other", "uid": "u", "generation": 1}, "spec": {}}
    desk.fleet.put(path, body)
    await refuse(desk.services, body)
    [ready, _] = desk.fleet.objects[path]["status"]["conditions"]
    assert ready["status"] == "False"
    assert "metadata.name must be default" in ready["message"]
    written = len(desk.fleet.sent("PATCH"))
    await refuse(desk.services, desk.fleet.objects[path])
    assert len(desk.fleet.sent("PATCH")) == written, "it is said once"


async def test_pods_of_bypassed_schedulers_are_a_reason_for_a_pass_without_their_schedulers_word() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.binds = False
    desk.write(scaleUp={"bypassedSchedulers": ["quick"]})
    async with desk.running():
        await asyncio.sleep(3)
        for index in range(8):
            made = pod(f"wait-{index}").cpu("1").memory("1Gi").labels(app="web").owned_by("ReplicaSet", "web")
            manifest = made.phase("Pending").manifest()
            manifest["spec"]["schedulerName"] = "quick"
            desk.fleet.put(f"{PODS}/wait-{index}", manifest)
            desk.trigger.pod_changed(None, desk.pod(f"wait-{index}"))
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=1)


async def test_a_set_that_is_edited_by_hand_in_the_middle_is_planned_anew() -> None:
    desk = Desk(boot=30.0)
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=5)
        desk.fleet.scale("a", 1)
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=900)
        await desk.until(lambda: all(desk.pod(f"wait-{i}").node for i in range(12)), seconds=200)
