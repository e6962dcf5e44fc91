"""The ClusterAutoscaler's loop on a virtual clock: when iterations run, what they do, and how it stops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.builders import daemon_set, pod
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.running_autoscaler import NODES, PATH, PODS, Desk
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.handlers import refuse
from trimtab.disruption.evictor.requests import AUTOSCALER, DESCHEDULER, EvictionRequest, Requester
from trimtab.kube.api import ServerError

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
TAINT = "ToBeDeletedByClusterAutoscaler"


def marks(desk: Desk) -> int:
    """Nodes with a record of being unneeded."""
    return sum(
        "trimtab.dev/unneeded-since" in (each["metadata"].get("annotations") or {})
        for path, each in desk.fleet.objects.items()
        if path.startswith(f"{NODES}/")
    )


def versions(desk: Desk) -> dict[str, str]:
    """Requests to all objects except the ClusterAutoscaler."""
    return {path: each["metadata"]["resourceVersion"] for path, each in desk.fleet.objects.items() if path != PATH}


async def test_unschedulable_pods_get_nodes_and_run() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("True", "IterationCompleted"))
        await asyncio.sleep(3)
        requested = desk.clock.monotonic()
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3)
        assert desk.clock.monotonic() - requested < 1, "the iteration does not wait for the next period"
        await desk.until(lambda: all(desk.pod(f"wait-{i}").node for i in range(12)), seconds=10)
        await desk.until(lambda: desk.status["nodeGroups"][0]["ready"] == 3, seconds=30)
    assert desk.scales() == 1
    assert {"ScaledUpGroup", "TriggeredScaleUp", "ScaleUpCompleted"} <= desk.recorder.reasons()
    assert "cluster-autoscaler-status" in str(desk.fleet.objects.keys())


async def test_upcoming_nodes_are_not_requested_again() -> None:
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


async def test_unneeded_nodes_are_removed_down_to_the_minimum() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", "a3", least=1, unneeded=False)
    desk.write()
    async with desk.running():
        await desk.until(lambda: len(desk.status.get("unneeded", ())) == 2, seconds=20)
        assert desk.fleet.replicas("a") == 3, "it has not been long enough"
        assert marks(desk) == 0, "for moments it stands in the status alone"
        await desk.until(lambda: len(desk.fleet.nodes()) == 1, seconds=120)
        await desk.until(lambda: "ScaleDownEmpty" in desk.recorder.reasons(), seconds=10)
        await desk.until(lambda: desk.fleet.traces() == {}, seconds=10)
    assert desk.fleet.replicas("a") == 1


async def test_drained_pods_run_elsewhere_and_pdbs_hold() -> None:
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


async def test_simulate_reports_and_changes_nothing() -> None:
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
    assert "would scale up" in str(desk.status["conditions"])


async def test_invalid_spec_is_reported_and_removals_are_rolled_back() -> None:
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


async def test_stale_caches_prevent_actions_and_are_reported() -> None:
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


async def test_follower_does_not_act() -> None:
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


async def test_descheduler_cycle_delays_removals_but_not_scale_ups() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.fleet.group("b", "b1", "b2", unneeded=True, most=2)
    desk.write()
    await desk.disruption_lock.acquire()
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
        desk.disruption_lock.release()
        await desk.until(lambda: len(desk.fleet.nodes()) < 3, seconds=30)
        assert not desk.disruption_lock.locked() or desk.condition("Progressing")[0] == "True"


async def test_failed_iteration_is_reported_and_the_next_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from trimtab.autoscaling import reconciler

    real, failures = reconciler.plan_iteration, [RuntimeError("a defect")]

    def look(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr(reconciler, "plan_iteration", look)
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("False", "IterationFailed"), seconds=5)
        await desk.until(lambda: desk.condition("Ready") == ("True", "IterationCompleted"), seconds=15)
    assert desk.registry.get_sample_value(
        "trimtab_autoscaler_passes_total", {"mode": "Act", "result": "IterationFailed"}
    ) == pytest.approx(1)


async def test_failed_status_write_stops_no_iteration() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    desk.fleet.fail(ServerError("out of order", status=500), times=10_000, path="clusterautoscalers")
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=10)


async def test_unchanged_status_is_not_written() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", least=1, unneeded=False)
    desk.write()
    async with desk.running():
        await asyncio.sleep(60)
        before = len(desk.fleet.sent("PATCH", "clusterautoscalers"))
        await asyncio.sleep(600)
        assert len(desk.fleet.sent("PATCH", "clusterautoscalers")) - before <= 11


async def test_shutdown_rolls_back_nodes_and_writes_the_status() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=True)
    desk.write()
    async with desk.running() as loop:
        await desk.until(lambda: bool(desk.fleet.traces()))
        desk.stopped.event.set()
        await asyncio.wait({loop}, timeout=40)
        assert loop.done()
        assert desk.fleet.traces() == {}


async def test_next_process_continues_after_a_kill() -> None:
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


async def test_deletion_removes_all_markers_from_nodes() -> None:
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


async def test_deletion_without_the_finalizer_is_cleaned_up() -> None:
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


async def test_other_name_is_refused_once(golden: Golden) -> None:
    desk = Desk()
    path = PATH.replace("default", "other")
    body = {"metadata": {"name": "other", "uid": "u", "generation": 1}, "spec": {}}
    desk.fleet.put(path, body)
    await refuse(desk.dependencies, body)
    [ready, _] = desk.fleet.objects[path]["status"]["conditions"]
    assert ready["status"] == "False"
    golden(ready["message"])
    written = len(desk.fleet.sent("PATCH"))
    await refuse(desk.dependencies, desk.fleet.objects[path])
    assert len(desk.fleet.sent("PATCH")) == written, "it is said once"


async def test_pods_of_bypassed_schedulers_trigger_an_iteration() -> None:
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


async def test_manually_changed_size_is_planned_again() -> None:
    desk = Desk(boot=30.0)
    desk.fleet.group("a", "a1", unneeded=False)
    desk.write()
    async with desk.running():
        desk.wants(12)
        await desk.until(lambda: desk.fleet.replicas("a") == 3, seconds=5)
        desk.fleet.scale("a", 1)
        await desk.until(lambda: desk.fleet.replicas("a") > 1, seconds=900)
        await desk.until(lambda: all(desk.pod(f"wait-{i}").node for i in range(12)), seconds=200)


async def test_status_reports_what_evictions_wait_for() -> None:
    desk = Desk()
    desk.fleet.group("a", "a1", "a2", unneeded=False)
    desk.fleet.web("web-0", "a1", cpu="300m")
    desk.write()
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("True", "IterationCompleted"))
        pod = desk.fleet.caches.lister.pod("shop/web-0")
        assert pod is not None

        def ask(requester: Requester) -> bool:
            request = EvictionRequest(namespace=pod.namespace, pod=pod.name, uid=pod.uid, requester=requester)
            return desk.dependencies.evictor.admit(request, pod) is not None

        ask(Requester(DESCHEDULER, "spread"))
        drain = Requester(AUTOSCALER, "removal of node a1")
        await desk.until(lambda: ask(drain) and bool(desk.status.get("waitingEvictions")), seconds=15)
        [entry] = desk.status["waitingEvictions"]
        assert (entry["reason"], entry["waitsFor"]) == ("WaitingForEviction", "descheduler spread")
        await desk.until(lambda: not desk.status.get("waitingEvictions"), seconds=30)


@pytest.mark.live
async def test_tenant_cannot_prevent_scale_ups_for_others() -> None:
    """A DaemonSet whose pods a quota refuses and 200 pending pods do not delay scale-ups for other namespaces."""
    desk = Desk()
    desk.fleet.group("a", "a1", unneeded=False, most=40)
    hog = daemon_set("hog", "tenant").of_pods(pod().cpu("1000"))
    hog.merge(status={"desiredNumberScheduled": 1, "currentNumberScheduled": 0})
    desk.fleet.caches.apply(None, hog.build())
    desk.write(resourceLimits={"maxNodesPerNamespace": 4})
    async with desk.running():
        await desk.until(lambda: desk.condition("Ready") == ("True", "IterationCompleted"))
        for index in range(200):
            waiting = pod(f"p-{index}", "tenant").cpu("3").memory("1Gi").owned_by("ReplicaSet", "p")
            desk.fleet.add(waiting.unschedulable(since=rfc3339(desk.clock.now())))
        desk.trigger.pod_changed(None, desk.pod("p-0"))
        await desk.until(lambda: desk.fleet.replicas("a") >= 4)
        await asyncio.sleep(10)
        before, requested = desk.fleet.replicas("a"), desk.clock.monotonic()
        desk.wants(4, cpu="3", prefix="bank")
        await desk.until(lambda: desk.fleet.replicas("a") >= before + 4)
        assert desk.clock.monotonic() - requested < 10
        events = [each for each in desk.recorder.events if each["on"].startswith("Pod/bank-")]
        assert {each["reason"] for each in events} <= {"TriggeredScaleUp"}
        limited = {(each["namespace"], each["reason"]) for each in desk.status["pending"]}
    assert limited == {("tenant", "MaxNodesPerNamespaceReached")}
