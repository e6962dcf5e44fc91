"""Kopf outlives a definition that is removed, and ends without the event loop's other tasks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import kopf
import pytest
from aiohttp import web

from tests.fakes.server import FakeServer, fake_server
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.runtime import kopf_operator
from trimtab.runtime.kopf_operator import KopfOperator, _WatchContent

GROUP = f"/apis/{TAINT_MANAGERS.group}"
VERBS = ["get", "list", "watch", "patch"]


class ApiServer:
    """Serves one of our kinds, until it is removed."""

    def __init__(self) -> None:
        self.served = True
        self.lists = 0
        self.watches = 0
        self.failing: tuple[int, bytes] | None = None  # status and body of the next watch
        self.broken = False
        self.initializing = 0  # number of requests that get 429, as after a CRD was created
        self.ending: dict[str, Any] | None = None  # an object that waits for our finalizer, with its definition
        self.released = False
        self.patches = 0
        self.refusing: list[int] = []  # the statuses of the next patches of finalizers
        self.removed = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if path == TAINT_MANAGERS.path():
            return await self._collection(request)
        if request.method == "PATCH" and path.startswith(TAINT_MANAGERS.path()):
            self.patches += 1
            patch = await request.json()  # a merge patch of annotations, then a JSON patch of finalizers
            if isinstance(patch, list) and self.refusing:
                status = self.refusing.pop(0)
                return web.json_response({"kind": "Status", "code": status, "message": "refused"}, status=status)
            self.released |= isinstance(patch, list) and any("finalizers" in each["path"] for each in patch)
            return web.json_response(self.ending)
        found: dict[str, Any] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": [_resource("namespaces", "Namespace"), _resource("events", "Event")]},
            "/apis": {
                "groups": [
                    _group("apiextensions.k8s.io", "v1"),
                    *([_group(TAINT_MANAGERS.group, TAINT_MANAGERS.version)] if self.served else []),
                ]
            },
            "/apis/apiextensions.k8s.io/v1": {
                "resources": [_resource("customresourcedefinitions", "CustomResourceDefinition")]
            },
            f"{GROUP}/{TAINT_MANAGERS.version}": {
                "resources": [_resource("taintmanagers", "TaintManager", VERBS[:3] if self.ending else VERBS)]
            },
        }
        return web.json_response(found[path]) if path in found else _not_found()

    async def _collection(self, request: web.Request) -> web.StreamResponse:
        if self.broken:
            return web.json_response({"kind": "Status", "code": 400, "message": "broken"}, status=400)
        if not self.served:
            return _not_found()
        if self.initializing:
            self.initializing -= 1
            status = {
                "kind": "Status",
                "code": 429,
                "message": "storage is (re)initializing",
                "reason": "TooManyRequests",
            }
            return web.json_response(status, status=429, headers={"Retry-After": "1"})
        if "watch" not in request.query:
            self.lists += 1
            items = [] if self.ending is None else [self.ending]
            return web.json_response({"metadata": {"resourceVersion": "1"}, "items": items})
        self.watches += 1
        if self.failing is not None:
            (status, body), self.failing = self.failing, None
            return web.Response(status=status, body=body)
        response = web.StreamResponse()
        await response.prepare(request)
        bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "2"}}}
        await response.write(json.dumps(bookmark).encode() + b"\n")
        await self.removed.wait()
        return response

    def remove(self) -> None:
        self.served = False
        self.removed.set()


def _resource(plural: str, kind: str, verbs: list[str] = VERBS) -> dict[str, Any]:
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": False, "verbs": verbs}


def _group(name: str, version: str) -> dict[str, Any]:
    versions = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "preferredVersion": versions, "versions": [versions]}


def _not_found() -> web.Response:
    return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[ApiServer, Transport]]:
    api = ApiServer()
    server: FakeServer
    async with fake_server() as server:
        server.answer(api.handle)
        async with Transport(ServerConfig(server=server.url)) as transport:
            yield api, transport
        api.removed.set()


def registered(operator: KopfOperator) -> KopfOperator:
    resource = (TAINT_MANAGERS.group, TAINT_MANAGERS.version, TAINT_MANAGERS.plural)

    @kopf.on.event(*resource, registry=operator.registry)
    async def changed(**_: Any) -> None:
        pass

    return operator


def removing(api: Any, transport: Transport, **options: Any) -> KopfOperator:
    """Return an operator that has a finalizer to remove from an object that is being deleted."""
    api.ending = {
        "apiVersion": TAINT_MANAGERS.api_version,
        "kind": TAINT_MANAGERS.kind,
        "metadata": {
            "name": "default",
            "uid": "u",
            "resourceVersion": "1",
            "deletionTimestamp": "2026-11-22T12:00:00Z",
            "finalizers": ["trimtab.dev/finalizer"],
        },
    }
    operator = registered(KopfOperator(transport, (TAINT_MANAGERS,), **options))

    @kopf.on.delete(TAINT_MANAGERS.group, TAINT_MANAGERS.version, TAINT_MANAGERS.plural, registry=operator.registry)
    async def deleted(**_: Any) -> None:
        pass

    return operator


async def until(condition: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_removed_crd_does_not_end_kopf_before_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_operator, "COLLECTION_RETRIES", (0.05, 0.05))
    missing, failed = [], []
    async with serving() as (api, transport):
        operator = registered(
            KopfOperator(
                transport,
                (TAINT_MANAGERS,),
                missing=lambda: missing.append(1),
                failed=lambda: failed.append(1),
            )
        )
        other = asyncio.create_task(asyncio.sleep(3600), name="another controller's")
        running = operator.start()
        younger = asyncio.create_task(asyncio.sleep(3600), name="another controller's, younger")
        await until(lambda: api.watches)
        api.remove()
        await until(lambda: len(missing) == 3)
        await asyncio.sleep(0.2)
        assert not running.done()
        operator.stop()
        await asyncio.wait_for(running, 10)
        assert not failed
        assert not other.done()
        assert not younger.done()
        for task in (other, younger):
            task.cancel()
        await asyncio.gather(other, younger, return_exceptions=True)


async def test_an_absence_of_a_moment_is_bridged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_operator, "COLLECTION_RETRIES", (0.05, 30.0))
    missing: list[int] = []
    async with serving() as (api, transport):
        operator = registered(KopfOperator(transport, (TAINT_MANAGERS,), missing=lambda: missing.append(1)))
        running = operator.start()
        await until(lambda: api.watches == 1)
        api.remove()
        await until(lambda: missing)
        api.served = True
        api.removed = asyncio.Event()
        await until(lambda: api.watches == 2)
        operator.stop()
        api.removed.set()
        await asyncio.wait_for(running, 10)


async def test_storage_that_initializes_is_not_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kopf_operator, "COLLECTION_RETRIES", (0.05, 0.05))
    missing: list[int] = []
    async with serving() as (api, transport):
        api.initializing = 2
        operator = registered(KopfOperator(transport, (TAINT_MANAGERS,), missing=lambda: missing.append(1)))
        running = operator.start()
        await until(lambda: api.watches == 1)
        operator.stop()
        api.removed.set()
        await asyncio.wait_for(running, 10)
    assert not missing
    assert not [each for each in caplog.records if "429" in each.getMessage() and each.levelname == "ERROR"]
    assert not [each for each in caplog.records if "initializing" in each.getMessage()]


async def test_a_root_task_that_fails_is_reported_at_once_and_raised() -> None:
    failed: list[int] = []
    async with serving() as (api, transport):
        operator = registered(KopfOperator(transport, (TAINT_MANAGERS,), failed=lambda: failed.append(1)))
        running = operator.start()
        await until(lambda: api.watches)
        api.broken = True
        api.removed.set()
        await until(lambda: failed)
        with pytest.raises(Exception, match="broken"):
            await asyncio.wait_for(running, 10)


async def test_watcher_that_ends_is_reported_at_once() -> None:
    failed: list[int] = []
    async with serving() as (api, transport):
        operator = registered(KopfOperator(transport, (TAINT_MANAGERS,), failed=lambda: failed.append(1)))
        running = operator.start()
        await until(lambda: api.watches)
        await asyncio.sleep(2 * kopf_operator.WATCHER_POLL)
        [watcher] = [task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")]
        watcher.cancel()
        await until(lambda: failed)
        api.removed.set()
        with pytest.raises(RuntimeError, match="watcher for taintmanagers"):
            await asyncio.wait_for(running, 10)


@pytest.mark.parametrize(
    ("failing", "lists"),
    [
        pytest.param((410, b'{"kind":"Status","code":410,"reason":"Expired"}'), 2, id="410"),
        pytest.param((200, b'{"type":"ERROR","object":{"kind":"Status","code":410}}\n'), 2, id="410 event"),
        pytest.param((200, b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n'), 2, id="500 event"),
        pytest.param((200, b'{"type":"ERROR","object":{"kind":"Status"}}\n'), 2, id="event without a code"),
        pytest.param((200, b'{"type":"MODIFIED","object":{"meta\n'), 2, id="garbled line"),
        pytest.param((200, b'{"type":"MODIFIED"}\n'), 2, id="event without an object"),
        pytest.param((200, b'{"type":"MODIFIED","object":{"meta'), 1, id="truncated line"),
        pytest.param((200, b""), 1, id="no event"),
    ],
)
async def test_failed_watch_does_not_end_kopf(
    monkeypatch: pytest.MonkeyPatch, failing: tuple[int, bytes], lists: int
) -> None:
    monkeypatch.setattr(kopf_operator, "RELIST_DELAY", 0.01)
    async with serving() as (api, transport):
        api.failing = failing
        operator = registered(KopfOperator(transport, (TAINT_MANAGERS,)))
        running = operator.start()
        await until(lambda: api.watches == 2)
        assert (api.lists, running.done()) == (lists, False)
        operator.stop()
        api.removed.set()
        await asyncio.wait_for(running, 10)


@pytest.mark.parametrize(
    ("refusing", "lists"),
    [
        pytest.param([], 1, id="no refusal"),
        pytest.param([409, 409, 409], 1, id="409"),
        pytest.param([409] * 4, 2, id="409 for long"),
        pytest.param([400], 2, id="400"),
    ],
)
async def test_a_definition_that_is_being_deleted_when_it_starts_gets_its_finalizers_removed(
    monkeypatch: pytest.MonkeyPatch, refusing: list[int], lists: int
) -> None:
    monkeypatch.setattr(kopf_operator, "PATCH_RETRIES", (0.01, 0.01, 0.01))
    monkeypatch.setattr(kopf_operator, "RELIST_DELAY", 0.01)
    async with serving() as (api, transport):
        api.refusing = refusing
        operator = removing(api, transport)
        running = operator.start()
        await until(lambda: not api.refusing)
        await until(lambda: api.watches)
        if lists > 1:
            await asyncio.sleep(0.1)
            assert not api.released
            api.removed.set()  # the watch ends
        await until(lambda: api.released)
        assert api.lists >= lists
        operator.stop()
        api.removed.set()
        await asyncio.wait_for(running, 10)


async def test_former_leader_patches_nothing() -> None:
    leads, asked = False, 0

    def leading() -> bool:
        nonlocal asked
        asked += 1
        return leads

    async with serving() as (api, transport):
        operator = removing(api, transport, leading=leading)
        running = operator.start()
        await until(lambda: asked)
        assert not api.patches
        leads = True
        await until(lambda: api.released)
        operator.stop()
        api.removed.set()
        await asyncio.wait_for(running, 10)


async def test_watch_that_the_server_does_not_end_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kopf_operator, "CLIENT_WATCH_TIMEOUT", 0.3, raising=False)
    async with serving() as (api, transport):
        operator = registered(KopfOperator(transport, (TAINT_MANAGERS,)))
        task = operator.start()
        await until(lambda: api.watches > 2)
        operator.stop()
        await asyncio.wait_for(task, 10)


async def test_watch_keeps_no_event_until_the_next_one() -> None:
    event = b'{"type":"MODIFIED","object":{"large":"' + b"x" * 50_000 + b'"}}\n'
    silent = asyncio.Event()

    class Content:
        async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
            yield event + event + event[:9]
            await silent.wait()

    lines = _WatchContent(cast("Any", Content()), expired=False, must_relist=lambda: False).iter_chunked(1)
    assert [await anext(lines), await anext(lines)] == [event, event]
    waiting = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    kept = cast("Any", lines).ag_frame.f_locals.values()
    waiting.cancel()
    assert max(len(each) for each in kept if isinstance(each, (bytes, list))) == 9
