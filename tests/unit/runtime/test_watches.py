"""Whether the picture can be trusted, as the informers' states tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builders import machine_set, node
from tests.fakes.watch import ScriptedApi
from trimtab.cluster.kinds import EVERYTHING, KINDS
from trimtab.cluster.live import LiveCluster
from trimtab.kube.api import Forbidden, Gone, Unreachable
from trimtab.kube.resources import LEASES, MACHINE_SETS, MACHINES, NODES, PODS
from trimtab.kube.watching.state import InformerState
from trimtab.runtime.controllers import apart_of, kinds_of
from trimtab.runtime.watches import Watches

pytestmark = pytest.mark.looptime(start=0)


def filled() -> Watches:
    watches = Watches(ScriptedApi(), LiveCluster())
    for informer in watches._informers:
        informer.store.synced = True
        informer.state = InformerState(phase="Watching", error="", since=0.0)
    return watches


async def test_a_picture_that_is_watched_can_be_planned_on() -> None:
    assert filled().check() is None
    assert filled().stale() is None


@pytest.mark.parametrize(
    ("phase", "error", "told"),
    [
        ("Retrying", "refused", "no word from the API server on pods (refused)"),
        ("Refused", "forbidden", "no word from the API server on pods (forbidden)"),
        ("Listing", "", "listing pods again"),
    ],
)
async def test_one_that_is_cut_or_filled_again_cannot(phase: str, error: str, told: str) -> None:
    watches = filled()
    watches._informers[-1].state = InformerState(phase=phase, error=error, since=0.0)
    assert watches.stale() == told
    assert watches.check() is None, "it was complete once: no reason to take the process for not ready"


class Versioned(ScriptedApi):
    """A server that tells its version; ``None`` for one that gives no answer."""

    version: Any = None

    async def request(self, method: str, path: str, **_options: Any) -> Any:
        assert (method, path) == ("GET", "/version")
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
async def test_watches_begin_with_lists_where_the_server_writes_them_as_it_goes(version, begins_with) -> None:
    api = Versioned()
    api.version = version
    watches = Watches(api, LiveCluster())
    watches.start()
    await asyncio.sleep(1)
    assert {"a watch" if "watch" in opened.params else "a list" for opened in api.opened} == {begins_with}
    await watches.stop()


async def test_a_watch_that_is_refused_from_the_start_says_why() -> None:
    class NoBudgets(Versioned):
        @asynccontextmanager
        async def stream(self, path: str, **options: Any) -> AsyncIterator[Any]:
            if "poddisruptionbudgets" in path:
                raise Forbidden("cannot watch poddisruptionbudgets", status=403)
            async with super().stream(path, **options) as chunks:
                yield chunks

    watches = Watches(NoBudgets(), LiveCluster())
    watches.start()
    await asyncio.sleep(1)
    assert "poddisruptionbudgets (cannot watch poddisruptionbudgets)" in (watches.check() or "")
    assert watches.stale() == watches.check()
    await watches.stop()


async def test_what_is_too_old_is_not_planned_on_while_it_is_listed_again() -> None:
    api = ScriptedApi(answers=[Gone("too old", status=410)])
    watches = Watches(api, LiveCluster())
    informer = watches._informers[0]
    informer._intake.version, informer.store.synced = "1", True
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


def with_machines() -> Watches:
    """All is watched, and there is a MachineSet."""
    watches = Watches(ScriptedApi(), LiveCluster(EVERYTHING), EVERYTHING)
    for informer in watches._informers:
        informer.store.synced, informer.state = True, state("Watching")
    for optional in watches._optional.values():
        optional.store.synced, optional._state = True, state("Watching")
    watches._optional[MACHINE_SETS].store.apply(machine_set("a").build())
    return watches


async def test_kinds_that_a_cluster_lacks_keep_nobody_waiting() -> None:
    watches = with_machines()
    for resource, optional in watches._optional.items():
        if resource not in (MACHINE_SETS, MACHINES):
            optional._state = state("Absent", "not served")
    assert watches.check() is None
    assert watches.stale() is None
    assert watches.stale_groups() is None


@pytest.mark.parametrize("phase", ["Absent", "Hidden"])
async def test_sets_whose_machines_cannot_be_seen_are_not_planned_on(phase: str) -> None:
    watches = with_machines()
    watches._optional[MACHINES]._state = state(phase, "forbidden")
    assert watches.stale() is None
    assert watches.stale_groups() == (
        "there are machinesets.machine.openshift.io, but no machines.machine.openshift.io can be read (forbidden)"
    )


async def test_a_machine_api_in_trouble_is_the_autoscalers_trouble_alone() -> None:
    watches = with_machines()
    watches._optional[MACHINES]._state = state("Retrying", "conversion webhook failed")
    assert watches.stale() is None
    assert watches.stale_groups() == "no word from the API server on machines (conversion webhook failed)"
    watches._optional[MACHINES].store.synced = False
    assert watches.check() is None, "the process is ready for all else"
    watches._optional[MACHINES]._state = state("Starting")
    assert watches.check() == "waiting for machines"


async def test_what_listens_to_a_kind_hears_of_it_after_the_picture_has_it() -> None:
    live, heard = LiveCluster(EVERYTHING), []
    watches = Watches(ScriptedApi(), live, EVERYTHING)
    watches.listen(
        MACHINE_SETS, lambda _, new: heard.append((new.name, live.sizes["machinesets.machine.openshift.io"]))
    )
    watches._stores[MACHINE_SETS].apply(machine_set("a").build())
    assert heard == [("a", 1)]
    assert PODS in watches._stores


# ── what the taint manager watches beside the picture ───────────────────────────────────────────────────────────────


async def test_leases_are_watched_in_their_namespace_alone_and_planners_do_not_wait_for_them() -> None:
    watches = Watches(ScriptedApi(), LiveCluster(), apart=(LEASES,))
    assert watches.informer(LEASES).path == "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    for informer in watches._informers:
        informer.store.synced = informer.resource != LEASES
        informer.state = InformerState(phase="Watching", error="", since=0.0)
    assert watches.stale() is None
    assert watches.stale_of((NODES, PODS)) is None
    assert watches.stale_of((LEASES,)) == "waiting for leases"
    assert watches.check() == "waiting for leases"


async def test_what_is_apart_is_told_to_listeners_and_counted_but_not_in_the_picture() -> None:
    live = LiveCluster(())
    watches = Watches(ScriptedApi(), live, (), apart=(NODES, LEASES, PODS))
    heard = []
    watches.listen(NODES, lambda _, new: heard.append(new.name))
    watches.informer(NODES).store.apply(node("n1").build())
    assert heard == ["n1"]
    assert watches.apart == {"nodes": 1, "leases": 0, "pods": 0}
    assert len(live.present.nodes) == 0


@pytest.mark.parametrize(
    ("controllers", "planned", "apart"),
    [
        (("descheduler",), KINDS, ()),
        (("descheduler", "autoscaler"), EVERYTHING, ()),
        (("tainting",), (), (NODES, LEASES, PODS)),
        (("descheduler", "tainting"), KINDS, (LEASES,)),
        (("descheduler", "autoscaler", "tainting"), EVERYTHING, (LEASES,)),
    ],
    ids=lambda value: "+".join(value) if value and isinstance(value[0], str) else "",
)
async def test_each_controller_has_watched_what_it_reads(controllers, planned, apart) -> None:
    assert (kinds_of(controllers), apart_of(controllers)) == (planned, apart)
