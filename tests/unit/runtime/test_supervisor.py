"""The supervisor: the lease, probes and the end do not depend on the controllers' thread."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import aiohttp
import pytest
from aiohttp import web

from tests.fakes.server import FakeServer, fake_server
from tests.fixtures.golden import Golden
from trimtab.controller.progress import Progress
from trimtab.kube.connection.transport import Transport
from trimtab.runtime import app, supervisor
from trimtab.runtime.health.probes import ProbeServer
from trimtab.runtime.health.watchdog import MAX_HANG, Watchdog
from trimtab.runtime.leader_election.elector import NEVER, ElectionTimings, LeaderElector
from trimtab.runtime.settings import Settings
from trimtab.runtime.supervisor import Supervisor

TIMINGS = ElectionTimings(lease_duration=2, renew_deadline=1.0, retry_period=0.1, read_period=0.1)


class Died(BaseException):
    """The process would have exited."""


class NoWatchdog(Watchdog):
    """Never ends the tests' process; notes what was set."""

    def __init__(self) -> None:
        super().__init__()
        self.set: list[float] = []

    def _set(self, seconds: float) -> None:
        self.set.append(seconds)


class Probes(ProbeServer):
    """Records itself, so that a test knows the free port that the system has chosen."""

    latest: Probes

    async def start(self) -> None:
        await super().start()
        Probes.latest = self


class Controllers:
    """An App whose loop does what a test wants."""

    ends = True
    fails: Exception | None = None

    def __init__(self, *_: Any, leading: Callable[[], bool], **__: Any) -> None:
        self.leading = leading
        self.health: dict[str, Any] = {}
        self.ready: dict[str, Any] = {}
        self.led = asyncio.Event()
        self.stopping = asyncio.Event()
        self.thread = 0
        self.wrong: str | None = None
        self.progress = Progress()
        made.append(self)

    def work(self) -> None:
        """What its loop does once it leads."""

    def problem(self) -> str | None:
        return self.wrong

    def lead(self) -> None:
        self.led.set()

    def stop(self) -> None:
        if self.ends:
            self.stopping.set()

    async def run(self) -> None:
        self.thread = threading.get_ident()
        await self.led.wait()
        if self.fails is not None:
            raise self.fails
        self.work()
        await self.stopping.wait()


made: list[Controllers] = []


class LeaseServer:
    """Stores one Lease and counts its writes."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes: list[float] = []

    @property
    def holder(self) -> str:
        return "" if self.lease is None else self.lease["spec"]["holderIdentity"]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            if self.lease is None:
                return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
            return web.json_response(self.lease)
        self.writes.append(time.monotonic())
        self.lease = await request.json()
        self.lease["metadata"]["resourceVersion"] = str(len(self.writes))
        return web.json_response(self.lease)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    made.clear()
    monkeypatch.setattr(app, "App", Controllers)
    monkeypatch.setattr(supervisor, "ProbeServer", Probes)

    def elector(self: Supervisor, api: Transport) -> LeaderElector:
        return LeaderElector(api, name="trimtab", namespace="x", identity="me", timings=TIMINGS)

    monkeypatch.setattr(Supervisor, "_elector", elector)


def dies(code: int) -> NoReturn:
    raise Died(code)


@asynccontextmanager
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[LeaseServer, str]]:
    leases = LeaseServer()
    async with fake_server() as server:
        server.answer(lambda request: leases.handle(request))
        yield leases, str(kubeconfig(server, tmp_path))


def kubeconfig(server: FakeServer, directory: Path) -> Path:
    path = directory / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server.url}}],
        "users": [{"name": "x", "user": {}}],
    }
    path.write_text(json.dumps(config))
    return path


def settings(path: str, **changes: Any) -> Settings:
    return Settings(kubeconfig=path, listen_host="127.0.0.1", listen_port=0, identity="me", **changes)


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (of another thread)
            await asyncio.sleep(0.01)


async def healthz() -> int:
    address = f"http://127.0.0.1:{Probes.latest.server.port}/healthz"
    async with aiohttp.ClientSession() as session, session.get(address) as response:
        return response.status


async def test_a_busy_controllers_loop_delays_neither_renewals_nor_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = threading.Event()

    def work(_self: Controllers) -> None:
        busy.set()
        until_then = time.monotonic() + 3 * TIMINGS.renew_deadline
        while time.monotonic() < until_then:  # pure Python, as a planner is: it holds the GIL but for switches
            sum(range(1000))

    monkeypatch.setattr(Controllers, "work", work)
    async with cluster(tmp_path) as (leases, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies).run())
        await until(busy.is_set)
        before = len(leases.writes)
        requested = time.monotonic()
        assert await healthz() == 200
        assert time.monotonic() - requested < 0.5
        await asyncio.sleep(2.5 * TIMINGS.renew_deadline)
        assert made[0].leading()
        assert made[0].thread != threading.get_ident()
        renewals = leases.writes[before:]
        assert max(b - a for a, b in pairwise(renewals)) < TIMINGS.renew_deadline
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
        assert leases.holder == ""


async def test_lease_is_released_if_controllers_hang_after_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controllers, "ends", False)
    watchdog = NoWatchdog()
    async with cluster(tmp_path) as (leases, path):
        operator = Supervisor(
            settings(path, shutdown_timeout=supervisor.LEASE_RELEASE_TIME + 0.3), watchdog=watchdog, exit_process=dies
        )
        running = asyncio.create_task(operator.run())
        await until(lambda: bool(made) and made[0].led.is_set())
        assert leases.holder == "me"
        began = time.monotonic()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Died):
            await asyncio.wait_for(running, 10)
        assert time.monotonic() - began < supervisor.LEASE_RELEASE_TIME
        assert leases.holder == ""
        assert not made[0].leading()
        assert watchdog.set[-1] == supervisor.LEASE_RELEASE_TIME + 0.3


async def test_a_failure_of_the_controllers_ends_the_process_with_the_lease_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controllers, "fails", RuntimeError("a watch failed"))
    async with cluster(tmp_path) as (leases, path):
        operator = Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies)
        with pytest.raises(RuntimeError, match="a watch failed"):
            await asyncio.wait_for(operator.run(), 10)
        assert leases.writes
        assert leases.holder == ""


async def test_a_lost_lease_ends_the_process_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (leases, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies).run())
        await until(lambda: bool(made) and made[0].led.is_set())

        async def refuse(request: web.Request) -> web.StreamResponse:
            if request.method == "GET":
                return web.json_response({**leases.lease, "spec": {"holderIdentity": "other"}})  # type: ignore[dict-item]
            return web.json_response({"kind": "Status", "code": 409, "reason": "Conflict"}, status=409)

        leases.handle = refuse  # type: ignore[method-assign]
        with pytest.raises(Died):
            await asyncio.wait_for(running, 10)
        assert not made[0].leading()


async def test_a_part_without_progress_ends_the_process_with_the_lease_released(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (leases, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies).run())
        await until(lambda: bool(made) and made[0].led.is_set())
        assert leases.holder == "me"
        made[0].wrong = "Inactive: policy a for 601 s"
        with pytest.raises(Died):
            await asyncio.wait_for(running, 10)
        assert leases.holder == ""
        assert not made[0].leading()


@pytest.mark.parametrize("task", ["watch progress", "lead", "wait for a signal"])
async def test_supervisor_task_that_ends_ends_the_process_with_the_lease_released(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    async with cluster(tmp_path) as (leases, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies).run())
        await until(lambda: bool(made) and made[0].led.is_set())
        [killed] = [each for each in asyncio.all_tasks() if each.get_name() == task]
        killed.cancel()
        with pytest.raises(Died):
            await asyncio.wait_for(running, 10)
        assert f"task {task} was cancelled" in caplog.text
        assert leases.holder == ""


async def test_watchdog_is_reset_only_while_progress_is_checked(tmp_path: Path) -> None:
    watchdog = NoWatchdog()
    async with cluster(tmp_path) as (_, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=watchdog, exit_process=dies).run())
        await until(lambda: len(watchdog.set) > 1)
        assert set(watchdog.set) == {MAX_HANG}
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
        assert watchdog.set[-1] != MAX_HANG


async def test_a_lease_that_is_lost_while_the_process_stops_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controllers, "ends", False)
    electors: list[LeaderElector] = []

    def elector(self: Supervisor, api: Transport) -> LeaderElector:
        del self
        electors.append(LeaderElector(api, name="trimtab", namespace="x", identity="me", timings=TIMINGS))
        return electors[0]

    monkeypatch.setattr(Supervisor, "_elector", elector)
    async with cluster(tmp_path) as (leases, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies).run())
        await until(lambda: bool(made) and made[0].led.is_set())
        electors[0]._renewed_at = NEVER  # the deadline has passed, and the task that renews has not noticed yet
        writes = len(leases.writes)
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(Died):
            await asyncio.wait_for(running, 5)
        assert len(leases.writes) == writes, "it is not ours to release"


async def test_failed_supervisor_task_is_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, golden: Golden
) -> None:
    began: list[float] = []

    class Failing:
        def __init__(self, *_: Any) -> None:
            pass

        async def check(self) -> None:
            began.append(time.monotonic())
            if len(began) == 1:
                raise KeyError("x")

    monkeypatch.setattr(supervisor, "StalenessReporter", Failing)
    async with cluster(tmp_path) as (_, path):
        running = asyncio.create_task(Supervisor(settings(path), watchdog=NoWatchdog(), exit_process=dies).run())
        await until(lambda: len(began) == 2)
        golden("\n".join(each.getMessage() for each in caplog.records if each.exc_info))
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
