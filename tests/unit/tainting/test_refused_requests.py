"""What an API server refuses for good: how often it is asked again, and that nothing is taken for done."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.clock import START
from tests.unit.tainting.running_taint_manager import LEASES, NODES, PODS, Cell, Process, a_cell, a_pod, running
from trimtab.api.plan import rfc3339
from trimtab.kube.api import ApiError, Conflict, Forbidden, Invalid, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import micro_time
from trimtab.tainting.lifecycle import pod_readiness
from trimtab.tainting.lifecycle.pod_readiness import SCAN, PodReadinessMarker

pytestmark = pytest.mark.looptime(start=0)

REFUSALS: list[Exception] = [
    Forbidden('nodes "n1" is forbidden', status=403, reason="Forbidden"),
    NotFound('nodes "n1" not found', status=404, reason="NotFound"),
    Conflict("ValidatingAdmissionPolicy 'p' denied request", status=409, reason="Conflict"),
    Invalid("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: hands off", status=422, reason="Invalid"),
    TooManyRequests("too many requests", status=429, reason="TooManyRequests"),
    ServerError("etcdserver: request timed out", status=500, reason="InternalError"),
    Unreachable("no answer within 10 s"),
]
MINUTES = 5


def _name(error: Exception) -> str:
    return f"{type(error).__name__} {error.status if isinstance(error, ApiError) else ''}".strip()


each_refusal = pytest.mark.parametrize(
    "error",
    [
        pytest.param(each, id=_name(each), marks=() if isinstance(each, Conflict | Unreachable) else pytest.mark.live)
        for each in REFUSALS
    ],
)
"""All of them take ten minutes of virtual time each; `make check` tries a response and a lost one."""


def _lease(node: str, second: int) -> dict[str, Any]:
    spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": micro_time(START + second)}
    metadata = {"name": node, "namespace": "kube-node-lease", "uid": f"lease-{node}"}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


@each_refusal
async def test_refused_annotation_backs_off(error: Exception) -> None:
    names = [f"n{number}" for number in range(20)]
    cell = a_cell(*names)
    for name in names:
        cell.taint(name)
    cell.fail(error, times=10**9, method="PATCH", path=NODES)
    async with running(cell, mode="EvictPods"):
        await asyncio.sleep(MINUTES * 60)
    tries = len(cell.sent("PATCH", NODES))
    assert len(names) * MINUTES <= tries <= len(names) * MINUTES * 20


@each_refusal
async def test_refused_node_updates_back_off(error: Exception) -> None:
    names = [f"n{number}" for number in range(20)]
    cell = a_cell(*names, "well")
    for name in names:
        cell.objects[f"{NODES}/{name}"]["status"]["conditions"][0]["status"] = "False"
    cell.fail(error, times=10**9, method="PATCH", path=NODES)
    async with running(cell, mode="TaintAndEvict"):
        await asyncio.sleep(MINUTES * 60)
    tries = len(cell.sent("PATCH", NODES))
    assert len(names) * MINUTES <= tries <= len(names) * MINUTES * 20


@each_refusal
async def test_refused_pod_readiness_patches_back_off(error: Exception) -> None:
    """Passes come every fifth of a second in an outage, and each of them finds them undone."""
    cell, pods = _cell_of_a_failed_node()
    cell.fail(error, times=10**9, method="PATCH", path="/pods/web-")
    async with _marking(cell):
        await asyncio.sleep(60)
        assert len(cell.sent("PATCH", "/pods/web-")) <= pods * 10
        await asyncio.sleep(MINUTES * 60 - 60)
        assert pods * MINUTES <= len(cell.sent("PATCH", "/pods/web-")) <= pods * MINUTES * 5
        assert cell.objects[f"{PODS}/other"]["status"]["conditions"][0]["status"] == "False"
        cell.faults.clear()
        await asyncio.sleep(50)
    assert {each["status"]["conditions"][0]["status"] for path, each in cell.objects.items() if PODS in path} == {
        "False"
    }


@pytest.mark.live
async def test_thousands_of_refused_pods_are_rate_limited() -> None:
    cell, _ = _cell_of_a_failed_node(pods=4000)
    cell.fail(REFUSALS[0], times=10**9, method="PATCH", path="/pods/web-")
    async with _marking(cell):
        await asyncio.sleep(MINUTES * 60)
    assert len(cell.sent("PATCH", "/pods/web-")) <= 4000 + 250 * MINUTES * 60


async def test_pod_has_no_backoff_after_its_node_recovered() -> None:
    cell, _ = _cell_of_a_failed_node(pods=1)
    async with _marking(cell):
        await _backing_off(cell)
        _set_ready(cell, f"{NODES}/n1", "True")
        await asyncio.sleep(2)
        _set_ready(cell, f"{NODES}/n1", "False")
        await asyncio.sleep(2)
        assert _ready(cell, f"{PODS}/web-0") == "False"


async def test_replaced_pod_has_no_backoff() -> None:
    cell, _ = _cell_of_a_failed_node(pods=1)
    async with _marking(cell):
        await _backing_off(cell)
        manifest = copy.deepcopy(cell.objects[f"{PODS}/web-0"])
        manifest["metadata"]["uid"] = "uid-new"
        cell._store(f"{PODS}/web-0", manifest)
        await asyncio.sleep(2)
        assert _ready(cell, f"{PODS}/web-0") == "False"


async def test_marked_pods_are_forgotten_while_their_node_stays_failed() -> None:
    cell, _ = _cell_of_a_failed_node()
    async with _marking(cell) as marks:
        await asyncio.sleep(0.5)
        assert list(marks._written)
        await asyncio.sleep(1)
        assert not list(marks._written)


async def test_failed_scan_is_logged_once_a_second(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(pod_readiness, "pods_not_ready", fail)
    cell, _ = _cell_of_a_failed_node()
    async with _marking(cell):
        await asyncio.sleep(9.5)
    failed = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert 5 <= len(failed) <= 10
    assert all(SCAN in each.getMessage() for each in failed)


async def _backing_off(cell: Cell) -> None:
    """Refuse the patches of pod web-0 for two minutes, and return after a refusal that no retry follows for 30 s."""
    cell.fail(REFUSALS[0], times=10**9, method="PATCH", path="/pods/web-")
    await asyncio.sleep(120)
    refused = len(cell.sent("PATCH", "/pods/web-"))
    while len(cell.sent("PATCH", "/pods/web-")) == refused:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    cell.faults.clear()


def _ready(cell: Cell, path: str) -> str:
    found: str = cell.objects[path]["status"]["conditions"][0]["status"]
    return found


def _set_ready(cell: Cell, path: str, status: str) -> None:
    manifest = copy.deepcopy(cell.objects[path])
    manifest["status"]["conditions"][0]["status"] = status
    cell._store(path, manifest)


def _cell_of_a_failed_node(pods: int = 50) -> tuple[Cell, int]:
    cell = a_cell()
    names = ["other", *(f"web-{number}" for number in range(pods))]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(START - 1000)}
    cell.add(*(a_pod(name).merge(status={"conditions": [ready]}) for name in names))
    cell.objects[f"{NODES}/n1"]["status"]["conditions"][0]["status"] = "False"
    return cell, pods


@asynccontextmanager
async def _marking(cell: Cell) -> AsyncIterator[PodReadinessMarker]:
    process = Process(cell)
    marks = PodReadinessMarker(process.dependencies)

    async def passes() -> None:
        while True:
            marks.put({"n1": START})
            await asyncio.sleep(0.2)

    tasks = [asyncio.create_task(run()) for run in (marks.run, passes)]
    try:
        yield marks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await process.kill()


@each_refusal
@pytest.mark.parametrize("policy", ["Delete", "Evict"])
async def test_refused_deletions_back_off(policy: str, error: Exception) -> None:
    cell = a_cell()
    pods = 12
    cell.add(*(a_pod(f"web-{number}") for number in range(pods)))
    cell.fail(error, times=10**9, path="/pods/")
    taints = [{"key": "a", "policy": policy} | ({"maximumWait": "2m"} if policy == "Evict" else {})]
    async with running(cell, mode="EvictPods", taints=taints):
        cell.taint("n1", added=0)
        await asyncio.sleep(MINUTES * 60)
    tries = [call for call in cell.calls if "/pods/" in call.path]
    assert pods * MINUTES <= len(tries) <= pods * MINUTES * 40


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_pod_with_wrong_not_found_is_deleted_later(method: str) -> None:
    """A proxy before an API server that starts answers 404, and so may a webhook."""
    cell = a_cell()
    cell.add(a_pod())
    cell.fail(NotFound("404 page not found", status=404), times=1, method=method, path="/pods/")
    async with running(cell, mode="EvictPods"):
        cell.taint("n1", added=0)
        await asyncio.sleep(60)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]


async def test_node_with_wrong_not_found_is_tainted_later() -> None:
    cell = a_cell("n1", "well")
    cell.add(a_pod())
    cell.objects[f"{NODES}/n1"]["status"]["conditions"][0]["status"] = "False"
    cell.fail(NotFound("404 page not found", status=404), times=1, method="PATCH", path=NODES)
    async with running(cell, mode="TaintAndEvict"):
        for second in range(0, 60, 10):
            cell.put(f"{LEASES}/well", _lease("well", second))
            cell._tell(f"{LEASES}/well")
            await asyncio.sleep(10)
    assert [uid for uid, _ in cell.gone] == ["uid-web"]
