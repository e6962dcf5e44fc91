"""The API server of a small cluster in memory: behind the ``Api`` seam with watches, and over HTTP for commands.

It answers lists and watches in JSON only, so that callers fall back from protobuf, and filters lists by selectors.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.api import FakeApi, in_collection
from tests.fakes.watch import END, Json
from trimtab.api.crds import DEFINITIONS
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.kube.api import ApiError, NotFound
from trimtab.kube.resources import Resource

_JSON = Json()


@dataclass
class FakeCluster(FakeApi):
    """Serves what trimtab's chart installs, and no other custom resources.

    Collections of `unserved` paths are 404. `add` stores an object, and open watches send it.
    """

    unserved: tuple[str, ...] = ("machine.openshift.io", "cluster.x-k8s.io", "karpenter.sh", "operators.coreos.com")
    _watches: list[tuple[str, asyncio.Queue[bytes]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.put("/version", {"major": "1", "minor": "36"})
        served: dict[str, list[dict[str, str]]] = {}
        for each in (*SNAPSHOT_KINDS, *(each for each in DEFINITIONS if each.by_default)):
            served.setdefault(each.api_version, []).append({"name": each.plural})
        for version, kinds in served.items():
            self.put(f"/{'apis' if '/' in version else 'api'}/{version}", {"resources": kinds})

    def add(self, resource: Resource, manifest: Any) -> None:
        """Store an object, a builder's or a manifest, where the API server serves it."""
        given = manifest if isinstance(manifest, dict) else manifest.manifest()
        named = given["metadata"]
        namespace = named.setdefault("namespace", "default") if resource.namespaced else ""
        self.put(resource.path(named["name"], namespace=namespace), given)

    async def request(self, method: str, path: str, **options: Any) -> Any:
        if any(part in path for part in self.unserved):
            raise NotFound("the server could not find the requested resource", status=404, reason="NotFound")
        if path == "/apis":
            return {"groups": self._groups()}
        found = await super().request(method, path, **options)
        if isinstance(found, dict) and found.get("kind") == "List":
            found["items"] = [each for each in found["items"] if _selected(each, options.get("params") or {})]
        return found

    def _groups(self) -> list[dict[str, Any]]:
        paths = [each.split("/") for each in self.objects if each.startswith("/apis/") and each.count("/") == 3]
        return [
            {"name": group, "versions": [{"version": version}]}
            for _, _, group, version in paths
            if not any(part in group for part in self.unserved)
        ]

    @asynccontextmanager
    async def stream(self, path: str, *, accept: str = "", **options: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        params = options.get("params") or {}
        if "protobuf" in accept:
            raise ApiError("only application/json is served", status=406, reason="NotAcceptable")
        listed = await self.request("GET", path, params=params)
        version = listed["metadata"]["resourceVersion"]
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        watching = (path, changes)
        self._watches.append(watching)

        async def watched() -> AsyncIterator[bytes]:
            initial = "sendInitialEvents" in params
            since = 0 if initial else int(params.get("resourceVersion") or 0)
            for each in listed["items"]:
                if int(each["metadata"]["resourceVersion"]) > since:
                    yield _JSON.event("ADDED", each, each["metadata"]["resourceVersion"])
            if initial:
                yield _JSON.bookmark("", version, END)
            while True:
                yield await changes.get()

        async def whole() -> AsyncIterator[bytes]:
            yield _JSON.listed("", listed["items"], version)

        chunks = watched() if "watch" in params else whole()
        try:
            yield chunks
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]
            self._watches.remove(watching)

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        event = "MODIFIED" if path in self.objects else "ADDED"
        stored = super()._store(path, obj)
        for watched, changes in self._watches:
            if in_collection(watched, path):
                changes.put_nowait(_JSON.event(event, stored, stored["metadata"]["resourceVersion"]))
        return stored


def _selected(manifest: Mapping[str, Any], params: Mapping[str, str]) -> bool:
    """Whether an object matches the selectors of a request: equality, inequality and existence."""
    labels = manifest["metadata"].get("labels") or {}
    by_label = [each for each in params.get("labelSelector", "").split(",") if each]
    by_field = [each for each in params.get("fieldSelector", "").split(",") if each]
    return all(_holds(each, labels.get) for each in by_label) and all(
        _holds(each, lambda path: _field(manifest, path)) for each in by_field
    )


def _holds(term: str, value_of: Any) -> bool:
    key, operator, wanted = term.partition("=")
    if not operator:
        return value_of(key) is not None
    if key.endswith("!"):
        return value_of(key[:-1]) != wanted
    return value_of(key) == wanted


def _field(manifest: Any, path: str) -> Any:
    for name in path.split("."):
        manifest = (manifest or {}).get(name)
    return manifest


@contextmanager
def serving(api: FakeApi) -> Iterator[str]:
    """Serve an API over HTTP from a thread, and give its URL."""

    class Handler(BaseHTTPRequestHandler):
        wbufsize = -1  # head and body in one segment: the client would delay its acknowledgment of the head by 40 ms

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, body: Any) -> None:
            try:
                status, content = 200, self._requested(body)
            except ApiError as error:
                status = error.status
                content = {"kind": "Status", "code": status, "reason": error.reason, "message": str(error)}
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def _requested(self, body: Any) -> Any:
            address, accept = urlsplit(self.path), self.headers.get("Accept", "")
            if accept == "application/vnd.kubernetes.protobuf":
                raise ApiError("only application/json is served", status=406, reason="NotAcceptable")
            params = dict(parse_qsl(address.query))
            return asyncio.run(api.request(self.command, address.path, params=params, body=body, accept=accept))

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # with five, a connection that finds the queue full is repeated after a second

    server = Server(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
