"""Whether the picture can be trusted, as the informers' states tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builders import machine_set, node
from tests.fakes.watch import ScriptedApi
from tests.fixtures.golden import Golden
from trimtab.cluster.kinds import KINDS, SNAPSHOT_KINDS
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.kube.api import Forbidden, Gone, NotFound, Unreachable
from trimtab.kube.resources import LEASES, MACHINE_SETS, MACHINES, NODES, PODS, VERTICAL_POD_AUTOSCALERS
from trimtab.kube.watching.informer import InformerState
from trimtab.runtime.controllers import lister_resources, snapshot_resources
from trimtab.runtime.informers import Informers

pytestmark = pytest.mark.looptime(start=0)


def filled() -> Informers:
    watches = Informers(ScriptedApi(), SharedSnapshot())
    for informer in watches._informers:
        informer.store.synced = True
        informer.state = InformerState(phase="Watching", error="", since=0.0)
    for optional in watches._optional.values():
        optional._state = InformerState(phase="Absent", error="not served", since=0.0)
    return watches


async def test_planning_works_on_the_watched_snapshot() -> None:
    assert filled().check() is None
    assert filled().stale_reason() is None


async def test_planners_wait_until_it_is_known_whether_there_are_vertical_pod_autoscalers() -> None:
    watches = filled()
    watches._optional[VERTICAL_POD_AUTOSCALERS]._state = InformerState(phase="Starting", error="", since=0.0)
    assert watches.stale_reason() == watches.check() == "waiting for verticalpodautoscalers"
    watches._optional[VERTICAL_POD_AUTOSCALERS]._state = InformerState(phase="Hidden", error="forbidden", since=0.0)
    assert watches.stale_reason() is watches.check() is None


@pytest.mark.parametrize(
    ("phase", "error", "expected"),
    [
        ("Retrying", "refused", "disconnected from the API server: pods (refused)"),
        ("Refused", "forbidden", "disconnected from the API server: pods (forbidden)"),
        ("Listing", "", "relisting pods"),
    ],
)
async def test_disconnected_or_relisting_informer_is_stale(phase: str, error: str, expected: str) -> None:
    watches = filled()
    watches._informers[-1].state = InformerState(phase=phase, error=error, since=0.0)
    assert watches.stale_reason() == expected
    assert watches.check() is None, "it was complete once: no reason to take the process for not ready"


class Versioned(ScriptedApi):
    """A server that tells its version; ``None`` for one that gives no answer."""

    version: Any = None

    async def request(self, method: str, path: str, **_options: Any) -> Any:
        assert method == "GET"
        if path != "/version":
            raise NotFound("not served", status=404)
        if self.version is None:
            raise Unreachable("no answer")
        return self.version


@pytest.mark.parametrize(
    ("version", "begins_with"),
    [
        pytest.param({"major": "1", "minor": "36"}, "a list", id="1.36"),
        pytest.param({"major": "1", "minor": "32"}, "a watch", id="1.32"),
        pytest.param(None, "a watch", id="no answer"),
    ],
)
async def test_informers_list_first_if_the_server_streams_lists(version, begins_with) -> None:
    api = Versioned()
    api.version = version
    watches = Informers(api, SharedSnapshot())
    watches.start()
    await asyncio.sleep(1)
    assert {"a watch" if "watch" in opened.params else "a list" for opened in api.opened} == {begins_with}
    await watches.stop()


async def test_watch_refused_at_start_reports_why(golden: Golden) -> None:
    class NoBudgets(Versioned):
        @asynccontextmanager
        async def stream(self, path: str, **options: Any) -> AsyncIterator[Any]:
            if "poddisruptionbudgets" in path:
                raise Forbidden("cannot watch poddisruptionbudgets", status=403)
            async with super().stream(path, **options) as chunks:
                yield chunks

    watches = Informers(NoBudgets(), SharedSnapshot())
    watches.start()
    await asyncio.sleep(1)
    golden(watches.check() or "")
    assert watches.stale_reason() == watches.check()
    await watches.stop()


async def test_snapshot_is_stale_during_a_relist_after_410() -> None:
    api = ScriptedApi(answers=[Gone("too old", status=410)])
    watches = Informers(api, SharedSnapshot())
    informer = watches._informers[0]
    informer._updater.version, informer.store.synced = "1", True
    task = asyncio.create_task(informer.run())
    informer.state = InformerState(phase="Watching", error="", since=0.0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert informer.state.phase == "Listing"
    task.cancel()
    with pytest.raises((asyncio.CancelledError, Unreachable)):
        await task


def state(phase: str, error: str = "") -> InformerState:
    return InformerState(phase=phase, error=error, since=0.0)


def with_machines() -> Informers:
    """All is watched, and there is a MachineSet."""
    watches = Informers(ScriptedApi(), SharedSnapshot(SNAPSHOT_KINDS), SNAPSHOT_KINDS)
    for informer in watches._informers:
        informer.store.synced, informer.state = True, state("Watching")
    for optional in watches._optional.values():
        optional.store.synced, optional._state = True, state("Watching")
    watches._optional[MACHINE_SETS].store.apply(machine_set("a").build())
    return watches


async def test_absent_resources_do_not_delay_readiness() -> None:
    watches = with_machines()
    for resource, optional in watches._optional.items():
        if resource not in (MACHINE_SETS, MACHINES):
            optional._state = state("Absent", "not served")
    assert watches.check() is None
    assert watches.stale_reason() is None
    assert watches.node_groups_stale_reason() is None


@pytest.mark.parametrize("phase", ["Absent", "Hidden"])
async def test_node_groups_are_stale_if_machines_cannot_be_read(phase: str, golden: Golden) -> None:
    watches = with_machines()
    watches._optional[MACHINES]._state = state(phase, "forbidden")
    assert watches.stale_reason() is None
    golden(watches.node_groups_stale_reason())


async def test_failing_machine_api_affects_only_the_autoscaler(golden: Golden) -> None:
    watches = with_machines()
    watches._optional[MACHINES]._state = state("Retrying", "conversion webhook failed")
    assert watches.stale_reason() is None
    golden(watches.node_groups_stale_reason())
    watches._optional[MACHINES].store.synced = False
    assert watches.check() is None, "the process is ready for all else"
    watches._optional[MACHINES]._state = state("Starting")
    assert watches.check() == "waiting for machines"


async def test_listeners_are_called_after_the_snapshot_has_the_change() -> None:
    shared, heard = SharedSnapshot(SNAPSHOT_KINDS), []
    watches = Informers(ScriptedApi(), shared, SNAPSHOT_KINDS)
    watches.subscribe(
        MACHINE_SETS, lambda _, new: heard.append((new.name, shared.sizes["machinesets.machine.openshift.io"]))
    )
    watches._stores[MACHINE_SETS].apply(machine_set("a").build())
    assert heard == [("a", 1)]
    assert PODS in watches._stores


# ── what the taint manager watches next to the snapshot ──────────────────────────────────────────────────────────────


async def test_leases_are_watched_in_one_namespace_without_delaying_planners() -> None:
    watches = Informers(ScriptedApi(), SharedSnapshot(), outside_snapshot=(LEASES,))
    for optional in watches._optional.values():
        optional._state = InformerState(phase="Absent", error="not served", since=0.0)
    assert watches.informer(LEASES).path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    for informer in watches._informers:
        informer.store.synced = informer.resource != LEASES
        informer.state = InformerState(phase="Watching", error="", since=0.0)
    assert watches.stale_reason() is None
    assert watches.stale_reason_of((NODES, PODS)) is None
    assert watches.stale_reason_of((LEASES,)) == "waiting for leases"
    assert watches.check() == "waiting for leases"


async def test_resources_outside_the_snapshot_reach_lister_and_listeners_only() -> None:
    shared = SharedSnapshot(())
    watches = Informers(ScriptedApi(), shared, (), outside_snapshot=(NODES, LEASES, PODS))
    heard = []
    watches.subscribe(NODES, lambda _, new: heard.append((new.name, watches.lister.node("n1"))))
    added = node("n1").build()
    watches.informer(NODES).store.apply(added)
    assert heard == [("n1", added)]
    assert watches.outside_snapshot == {"nodes": 1, "leases": 0, "pods": 0}
    async with shared.borrow() as snapshot:
        assert len(snapshot.nodes) == 0


@pytest.mark.parametrize(
    ("controllers", "planned", "outside_snapshot"),
    [
        (("descheduler",), KINDS, ()),
        (("descheduler", "autoscaler"), SNAPSHOT_KINDS, ()),
        (("tainting",), (), (NODES, LEASES, PODS)),
        (("descheduler", "tainting"), KINDS, (LEASES,)),
        (("descheduler", "autoscaler", "tainting"), SNAPSHOT_KINDS, (LEASES,)),
        (("pressure",), (), (NODES, PODS)),
        (("tainting", "pressure"), (), (NODES, LEASES, PODS)),
        (("descheduler", "pressure"), KINDS, ()),
    ],
    ids=lambda value: "+".join(value) if value and isinstance(value[0], str) else "",
)
async def test_each_controller_watches_the_resources_it_reads(controllers, planned, outside_snapshot) -> None:
    assert (snapshot_resources(controllers), lister_resources(controllers)) == (planned, outside_snapshot)
