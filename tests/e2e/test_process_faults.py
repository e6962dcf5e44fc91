"""The whole process against a fake API server: it ends, with the lease released, when a part of it does not work.

No control plane is needed: the server has our kinds, no objects, and a Lease.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from tests.fakes.server import fake_server
from tests.fixtures.waiting import eventually_async, patiently
from trimtab.api import reasons
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    MACHINE_AUTOSCALERS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.runtime.leader_election.elector import ElectionTimings
from trimtab.runtime.served_resources import CHECK_PERIOD, REMOVAL_DELAY

OURS = (DESCHEDULER_POLICIES, DESCHEDULING_RUNS, CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, TAINT_MANAGERS)
MAX_INACTIVITY = 6.0
BUSY = 29.0
"""Seconds. After 30 of them /healthz fails, so that the kubelet restarts a process whose loop hangs."""

CRDS = "apiextensions.k8s.io/v1"
CORE = {
    "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
    "/api": {"versions": ["v1"]},
}


class ApiServer:
    """A fake API server with our kinds, no objects, and a Lease."""

    def __init__(self) -> None:
        self.missing: set[Resource] = set()
        self.lease: dict[str, Any] | None = None
        self._writes = 0
        self.renewals: list[float] = []

    @property
    def holder(self) -> str:
        """The holder of the Lease."""
        return "" if self.lease is None else str(self.lease["spec"]["holderIdentity"])

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Respond to a request."""
        path = request.path
        if path.startswith("/apis/coordination.k8s.io/") and "/namespaces/x/" in path:
            return await self._answer_lease(request)
        found = CORE | self._discovery()
        if path in found:
            return web.json_response(found[path])
        if path in {each.path() for each in self.missing}:
            return _not_found()
        if request.method != "GET":
            return web.json_response({}, status=201)
        if "sendInitialEvents" in request.query:
            return web.json_response({"kind": "Status", "code": 400}, status=400)
        if "watch" in request.query:
            return await self._watch(request)
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})

    async def _answer_lease(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return _not_found() if self.lease is None else web.json_response(self.lease)
        self._writes += 1
        self.renewals.append(time.monotonic())
        self.lease = await request.json()
        self.lease["metadata"]["resourceVersion"] = str(self._writes)
        return web.json_response(self.lease)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(500):
            await asyncio.sleep(0.1)
            if request.path in {each.path() for each in self.missing}:
                break
        return response

    def _discovery(self) -> dict[str, Any]:
        served = [each for each in OURS if each not in self.missing]
        versions = {CRDS, *(each.api_version for each in OURS)}
        lists: dict[str, Any] = {f"/apis/{each}": {"resources": []} for each in versions}
        for each in served:
            lists[f"/apis/{each.api_version}"]["resources"].append(_kind(each.plural, each.kind, each.namespaced))
        lists[f"/apis/{CRDS}"]["resources"] = [_kind("customresourcedefinitions", "CustomResourceDefinition", False)]
        lists["/api/v1"] = {"resources": [_kind("namespaces", "Namespace", False), _kind("events", "Event", True)]}
        groups: dict[str, list[dict[str, str]]] = {}
        for group_version in sorted(versions):
            group, version = group_version.split("/")
            groups.setdefault(group, []).append({"groupVersion": group_version, "version": version})
        listed = [{"name": name, "versions": found, "preferredVersion": found[0]} for name, found in groups.items()]
        return {**lists, "/apis": {"groups": listed}}


def _kind(plural: str, kind: str, namespaced: bool) -> dict[str, Any]:
    verbs = ["list", "watch", "patch"]
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": namespaced, "verbs": verbs}


def _not_found() -> web.Response:
    return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)


class Running:
    """An operator process."""

    def __init__(self, server: ApiServer, directory: Path) -> None:
        self.server = server
        self.url = ""
        self.log = directory / "log"
        self._faults = directory / "faults"
        self._port = 0
        self.process: Process | None = None

    async def start(self, url: str, directory: Path, max_inactivity: float) -> None:
        """Start the process; wait until a leader is elected and this process is ready."""
        self.url = url
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            "clusters": [{"name": "x", "cluster": {"server": url}}],
            "users": [{"name": "x", "user": {}}],
        }
        kubeconfig = directory / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        listening = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        self._port = listening.sockets[0].getsockname()[1]
        listening.close()
        await listening.wait_closed()
        command = [sys.executable, "-m", "tests.fixtures.faulty_operator", "run", f"--kubeconfig={kubeconfig}"]
        command += [
            f"--listen=127.0.0.1:{self._port}",
            f"--max-inactivity={max_inactivity:.0f}s",
            "--lease-namespace=x",
        ]
        with self.log.open("w") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, env={**os.environ, "FAULTS": str(self._faults)}
            )
        await eventually_async(lambda: bool(self.server.holder), "a leader is elected", pause=0.1)
        await eventually_async(self.ready, "the process is ready", pause=0.2)
        await asyncio.sleep(2)  # Kopf watches

    async def kill(self) -> None:
        """Kill the process if it runs."""
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    async def ready(self) -> bool:
        """Whether /readyz responds with success."""
        return (await self.get("/readyz"))[0] == 200

    async def until_missing(self, count: int) -> None:
        """Wait until /readyz names a number of missing definitions."""

        async def named() -> bool:
            return (await self.get("/readyz"))[1].count(" waits for ") == count

        await eventually_async(
            named, f"{count} definitions are missing", seconds=REMOVAL_DELAY + 6 * CHECK_PERIOD, pause=0.2
        )

    async def get(self, path: str) -> tuple[int, str]:
        """Status and body of a probe; 0 without a response."""
        try:
            address = f"http://127.0.0.1:{self._port}{path}"
            async with aiohttp.ClientSession() as session, session.get(address) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    def order(self, order: str) -> None:
        """Order a fault."""
        with self._faults.open("a") as orders:
            orders.write(f"{order}\n")

    async def ends(self, *, within: float) -> int:
        """Wait for the end of the process; returns the exit status and asserts that the lease is released."""
        async with asyncio.timeout(patiently(within)):
            status = await self.process.wait()
        assert self.server.holder == ""
        return status


@asynccontextmanager
async def running(directory: Path, max_inactivity: float = MAX_INACTIVITY) -> AsyncIterator[Running]:
    api = ApiServer()
    async with fake_server() as server:
        server.answer(api.handle)
        made = Running(api, directory)
        try:
            await made.start(server.url, directory, max_inactivity)
            yield made
        finally:
            await made.kill()


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("hang-thread", "event loop of the controllers"),
        ("kill-task process: heartbeat", "event loop of the controllers"),
        ("kill machine autoscalers", "machine autoscalers"),
    ],
)
async def test_stalled_component_ends_the_process(tmp_path: Path, fault: str, part: str) -> None:
    async with running(tmp_path) as operator:
        operator.order(fault)
        assert await operator.ends(within=MAX_INACTIVITY + 10) == 1
        assert f"{reasons.INACTIVE}: {part}" in operator.log.read_text()


@pytest.mark.parametrize("task", ["watch pods", "progress of watches", "definitions"])
async def test_unexpected_end_of_a_task_ends_the_process(tmp_path: Path, task: str) -> None:
    async with running(tmp_path) as operator:
        operator.order(f"kill-task {task}")
        assert await operator.ends(within=15) == 1
        assert f"Task {task} failed" in operator.log.read_text()


async def test_crds_are_deleted_and_recreated_while_running(tmp_path: Path) -> None:
    async with running(tmp_path) as operator:
        for order in (OURS, OURS[::-1]):
            for number, each in enumerate(order, 1):
                operator.server.missing.add(each)
                await operator.until_missing(number)
                status, text = await operator.get("/readyz")
                assert (status, reasons.RESOURCE_NOT_SERVED in text) == (503, True)
                assert (await operator.get("/healthz"))[0] == 200
            await asyncio.sleep(REMOVAL_DELAY)
            operator.server.missing.clear()
            await eventually_async(operator.ready, "the kinds are served", seconds=6 * CHECK_PERIOD, pause=0.2)
        await asyncio.sleep(MAX_INACTIVITY)
        assert (await operator.get("/healthz"))[0] == 200
        operator.process.send_signal(signal.SIGTERM)
        assert await operator.ends(within=15) == 0


async def test_busy_event_loop_delays_neither_lease_nor_probes(tmp_path: Path) -> None:
    async with running(tmp_path, max_inactivity=600) as operator:
        operator.order(f"busy-thread {BUSY:.0f}")
        began, probes = time.monotonic(), []
        while time.monotonic() - began < BUSY:
            asked = time.monotonic()
            assert (await operator.get("/healthz"))[0] == 200
            probes.append(time.monotonic() - asked)
            await asyncio.sleep(0.3)
        gaps = [b - a for a, b in pairwise([each for each in operator.server.renewals if each >= began])]
        sys.stdout.write(f"renewals at most {max(gaps):.2f} s apart, slowest probe {max(probes):.3f} s\n")
        assert max(gaps) < ElectionTimings().retry_period + patiently(1.5)
        assert max(probes) < patiently(1.0)
        operator.process.send_signal(signal.SIGTERM)
        assert await operator.ends(within=30) == 0


async def test_follower_takes_over_after_a_stalled_leader_exits(tmp_path: Path) -> None:
    async with running(tmp_path) as leader:
        first = leader.server.holder
        directory = tmp_path / "standby"
        directory.mkdir()
        standby = Running(leader.server, directory)
        try:
            await standby.start(leader.url, directory, MAX_INACTIVITY)
            leader.order("hang-thread")
            async with asyncio.timeout(patiently(MAX_INACTIVITY + 10)):
                assert await leader.process.wait() == 1
            ended = time.monotonic()
            await eventually_async(lambda: leader.server.holder not in ("", first), "the standby leads", pause=0.1)
            took = time.monotonic() - ended
            sys.stdout.write(f"the standby led {took:.1f} s after the leader had ended\n")
            assert took < ElectionTimings().lease_duration + patiently(15)
            await asyncio.sleep(1)
            assert "trimtab_leader 1.0" in (await standby.get("/metrics"))[1]
            standby.process.send_signal(signal.SIGTERM)
            assert await standby.ends(within=30) == 0
        finally:
            await standby.kill()
