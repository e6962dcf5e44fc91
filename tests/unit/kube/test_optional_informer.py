"""Kinds that a cluster may lack: absent, hidden, older, coming and going."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.builders import machine_deployment, machine_set
from tests.fakes.clock import LoopClock
from tests.fakes.watch import END, HOLD, Json, ScriptedApi
from trimtab.cluster.kinds import versions
from trimtab.kube.api import Forbidden, NotFound, ServerError
from trimtab.kube.discovery import Discovery
from trimtab.kube.resources import LIMIT_RANGES, MACHINE_DEPLOYMENTS, MACHINE_SETS, Resource
from trimtab.kube.watching.optional_informer import OptionalInformer
from trimtab.kube.watching.store import Store

pytestmark = pytest.mark.looptime(start=0)
WIRE = Json()


class Server(ScriptedApi):
    """Tells what it serves, `group/version/plural`, and sends what a script says."""

    def __init__(self, *served: str, answers: list[Any] | None = None) -> None:
        super().__init__(answers or [])
        self.served = set(served)
        self.failures: list[Exception] = []
        self.asked: list[str] = []

    async def request(self, method: str, path: str, **_options: Any) -> Any:
        assert method == "GET"
        self.asked.append(path)
        if self.failures:
            raise self.failures.pop()
        found = [each.split("/") for each in sorted(self.served)]
        if path == "/apis":
            return {"groups": [{"name": group, "versions": [{"version": version}]} for group, version, _ in found]}
        plurals = [plural for group, version, plural in found if path == f"/apis/{group}/{version}"]
        if not plurals:
            raise NotFound("no such version", status=404)
        return {"resources": [{"name": plural} for plural in plurals]}


def listed(manifest: dict[str, Any]) -> list[Any]:
    return [WIRE.event("ADDED", manifest, 9), WIRE.bookmark(manifest["kind"], 10, END), HOLD]


@asynccontextmanager
async def watching(server: Server, resource: Resource) -> AsyncIterator[OptionalInformer[Any]]:
    clock = LoopClock()
    discovery = Discovery(server, clock=clock)
    informer: OptionalInformer[Any] = OptionalInformer(
        server, versions(resource), Store(clock=clock), discovery=discovery, clock=clock
    )
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


SETS = "machine.openshift.io/v1beta1/machinesets"
OLD = "cluster.x-k8s.io/v1beta1/machinedeployments"
NEW = "cluster.x-k8s.io/v1beta2/machinedeployments"


async def test_absent_resource_is_empty_and_rechecked_with_one_request() -> None:
    server = Server()
    async with watching(server, MACHINE_SETS) as informer:
        await asyncio.sleep(1)
        assert informer.store.synced
        assert (informer.state.phase, informer.state.error) == ("Absent", "not served")
        await asyncio.sleep(60)
    assert set(server.asked) == {"/apis"}
    assert len(server.asked) <= 14
    assert not server.opened


async def test_resource_that_appears_is_watched_within_seconds() -> None:
    server = Server(answers=[listed(machine_set("a").manifest())])
    async with watching(server, MACHINE_SETS) as informer:
        await asyncio.sleep(20)
        server.served = {SETS}
        await asyncio.sleep(6)
        assert [each.name for each in informer.store] == ["a"]
        assert informer.state.phase == "Watching"


async def test_removed_crd_empties_the_store_and_a_new_one_fills_it() -> None:
    responses = [[*listed(machine_set("a").manifest())[:-1], 5], NotFound("gone", status=404)]
    server = Server(SETS, answers=[*responses, listed(machine_set("b").manifest())])
    deleted = []
    async with watching(server, MACHINE_SETS) as informer:
        informer.store.subscribe(lambda old, new: deleted.append(old.name) if new is None and old else None)
        await asyncio.sleep(1)
        assert [each.name for each in informer.store] == ["a"]
        server.served = set()
        await asyncio.sleep(8)
        assert (informer.state.phase, deleted) == ("Absent", ["a"])
        server.served = {SETS}
        await asyncio.sleep(10)
        assert [each.name for each in informer.store] == ["b"]


@pytest.mark.parametrize(
    ("served", "version"),
    [
        pytest.param({OLD}, "v1beta1", id="only the older"),
        pytest.param({OLD, NEW}, "v1beta2", id="both"),
    ],
)
async def test_the_newest_version_that_is_served_is_watched(served: set[str], version: str) -> None:
    manifest = machine_deployment("md", version=version).manifest()
    async with watching(Server(*served, answers=[listed(manifest)]), MACHINE_DEPLOYMENTS) as informer:
        await asyncio.sleep(1)
        assert informer.resource.version == version
        [found] = informer.store
        assert found.api_version.endswith(version)


async def test_forbidden_resource_is_hidden_and_retried_periodically() -> None:
    server = Server(SETS, answers=[Forbidden("no", status=403), listed(machine_set("a").manifest())])
    async with watching(server, MACHINE_SETS) as informer:
        await asyncio.sleep(1)
        assert informer.store.synced
        assert (informer.state.phase, informer.state.error) == ("Hidden", "no")
        await asyncio.sleep(31)
        assert [each.name for each in informer.store] == ["a"]


async def test_forbidden_discovery_uses_the_preferred_version() -> None:
    server = Server(SETS, answers=[listed(machine_set("a").manifest())])
    server.failures = [Forbidden("no discovery", status=403)]
    async with watching(server, MACHINE_SETS) as informer:
        await asyncio.sleep(1)
        assert [each.name for each in informer.store] == ["a"]


async def test_server_error_does_not_count_as_absent() -> None:
    server = Server(SETS, answers=[listed(machine_set("a").manifest())])
    server.failures = [ServerError("out of order", status=500)]
    async with watching(server, MACHINE_SETS) as informer:
        await asyncio.sleep(0.1)
        assert not informer.store.synced
        assert (informer.state.phase, informer.state.error) == ("Retrying", "out of order")
        await asyncio.sleep(2)
        assert informer.store.synced


async def test_core_group_is_found_where_it_is_served() -> None:
    class Core(Server):
        async def request(self, method: str, path: str, **options: Any) -> Any:
            if path == "/api/v1":
                return {"resources": [{"name": "limitranges"}]}
            return await super().request(method, path, **options)

    discovery = Discovery(Core(), clock=LoopClock())
    assert await discovery.first_served(versions(LIMIT_RANGES)) == LIMIT_RANGES


async def test_concurrent_discovery_requests_share_one_response() -> None:
    server, clock = Server(SETS, NEW), LoopClock()
    discovery = Discovery(server, clock=clock)
    found = await asyncio.gather(*(discovery.first_served(versions(each)) for each in (MACHINE_SETS,) * 3))
    assert found == [MACHINE_SETS] * 3
    assert server.asked == ["/apis", "/apis/machine.openshift.io/v1beta1"]
