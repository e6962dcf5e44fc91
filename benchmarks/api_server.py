"""A server with just enough of the Kubernetes API for a process of the operator, and nodes and pods that change.

It sends the nodes and the pods of ``wire.py`` as a WatchList and then changes, of which one in ten is of a node. It is
a process of its own, so that its CPU time does not count, and needs no etcd.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from benchmarks.wire import frame, pod
from tests.protobuf import encode_object
from trimtab.kube.resources import Resource
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.codec import INITIAL_EVENTS_END
from trimtab.runtime.kopf_operator import KOPF_PREFIX

ROOT: Final = Path(__file__).resolve().parent.parent

BATCHES: Final = 20
"""Number of batches of changes in a second."""

PODS_PER_NODE: Final = 30


class ApiServer:
    """The server.

    Args:
        specs: the custom resources that are served, each with the spec of its object ``default``, if there is one.
        nodes: number of nodes.
        pods: number of pods.
        rate: number of changes in a second.
    """

    def __init__(
        self, specs: Mapping[Resource, Mapping[str, Any] | None], *, nodes: int, pods: int, rate: float
    ) -> None:
        self._nodes, self._pods, self._rate = nodes, pods, rate
        self._served = list(specs)
        self._objects: dict[str, dict[str, Any]] = {}
        for number, (each, spec) in enumerate(specs.items()):
            if spec is not None:
                metadata = {
                    "name": "default",
                    "uid": f"uid-{number}",
                    "generation": 1,
                    "resourceVersion": "5",
                    "finalizers": [f"{KOPF_PREFIX}/finalizer"],  # without it, Kopf waits for its own patch
                }
                made = {"apiVersion": each.api_version, "kind": each.kind, "metadata": metadata, "spec": spec}
                self._objects[each.path("default")] = made
        self._lease: dict[str, Any] | None = None
        self._changed: dict[str, list[bytes]] = {"Node": [], "Pod": []}

    def serve(self, port_file: Path) -> None:
        """Serve until the process is killed. The port is written to a file."""
        import uvloop

        uvloop.run(self._serve(port_file))

    async def _serve(self, port_file: Path) -> None:
        runner = web.ServerRunner(web.Server(self._handle))
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        await asyncio.to_thread(port_file.write_text, str(runner.addresses[0][1]))
        await asyncio.Event().wait()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if "/leases" in path and request.method != "GET":
            self._lease = json.loads(await request.read())
            self._lease["metadata"]["resourceVersion"] = str(time.time_ns())
            return web.json_response(self._lease)
        if "/leases/" in path:
            return _not_found() if self._lease is None else web.json_response(self._lease)
        found = self._discovery().get(path)
        if found is not None:
            return web.json_response(found)
        if request.method == "POST" and "/authorization.k8s.io/" in path:
            rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
            return web.json_response({"status": {"allowed": True, "resourceRules": rules}}, status=201)
        if request.method in ("POST", "PATCH"):
            body = json.loads(await request.read())
            if request.method == "POST":
                return web.json_response(self._created(path, body), status=201)
            return web.json_response(self._patched(path.removesuffix("/status"), body))
        if "watch" in request.query:
            return await self._watch(request)
        if path in self._objects:
            return web.json_response(self._objects[path])
        items = [each for at, each in self._objects.items() if at.startswith(f"{path}/")]
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items})

    def _created(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Store an object and return it."""
        body["metadata"] |= {"uid": f"uid-{time.time_ns()}", "resourceVersion": "5", "generation": 1}
        self._objects[f"{path}/{body['metadata'].get('name')}"] = body
        return body

    def _patched(self, path: str, patch: Any) -> dict[str, Any]:
        """Apply a merge patch to the metadata and the status of an object, and return the object."""
        found = self._objects.setdefault(path, {"metadata": {"name": "x", "resourceVersion": "1"}})
        if isinstance(patch, dict):
            _merge(found, {key: value for key, value in patch.items() if key != "spec"})
            found["metadata"]["resourceVersion"] = "5"
        return found

    def _node(self, number: int) -> dict[str, Any]:
        """Return the manifest of a node, except for its resource version."""
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
        hostname, zone = f"node-{number}", f"zone-{number % 3}"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T12:00:00Z"}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": hostname,
                "uid": f"node-uid-{number}",
                "labels": {"kubernetes.io/hostname": hostname, "topology.kubernetes.io/zone": zone},
                "creationTimestamp": "2026-11-20T12:00:00Z",
            },
            "spec": {},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }

    def _pod(self, number: int) -> slim_pb2.Pod:
        """Return a pod next to its siblings, of which RemoveDuplicates moves all but one."""
        message = pod(number, own_spec=number % 50 == 0)
        message.spec.node_name = f"node-{number // PODS_PER_NODE % self._nodes}"
        return message

    def _exists(self, number: int) -> bool:  # noqa: ARG002
        """Return whether a pod exists."""
        return True

    def _send_node(self, number: int, version: int) -> None:
        """Send a node to the watches."""
        self._changed["Node"].append(frame("MODIFIED", "Node", self._encoded_node(number, version)))

    def _send_pod(self, event: str, message: slim_pb2.Pod, version: int) -> None:
        """Send a pod to the watches."""
        message.metadata.resource_version = str(version)
        self._changed["Pod"].append(frame(event, "Pod", message.SerializeToString()))

    def _encoded_node(self, number: int, version: int = 1) -> bytes:
        manifest = self._node(number)
        return encode_object({**manifest, "metadata": {**manifest["metadata"], "resourceVersion": str(version)}})

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        encoded = "protobuf" in request.headers.get("Accept", "")
        if "sendInitialEvents" in request.query and not encoded:
            return web.json_response({"kind": "Status", "code": 400, "reason": "BadRequest"}, status=400)
        response = web.StreamResponse()
        await response.prepare(request)
        kind = {"/api/v1/nodes": "Node", "/api/v1/pods": "Pod"}.get(request.path, "")
        if not encoded:
            await asyncio.sleep(50)
            return response
        with suppress(ConnectionError):
            if "sendInitialEvents" in request.query:
                for chunk in self._chunks(kind):
                    await response.write(chunk)
                    await asyncio.sleep(0)  # otherwise, the Lease is not renewed
                end = slim_pb2.PartialObject()
                end.metadata.resource_version = "2000000"
                end.metadata.annotations[INITIAL_EVENTS_END] = "true"
                await response.write(frame("BOOKMARK", kind or "Pod", end.SerializeToString()))
            if kind:
                async for chunk in self._changes(kind):
                    await response.write(chunk)
            await asyncio.sleep(300)
        return response

    def _chunks(self, kind: str) -> Iterator[bytes]:
        made: Iterator[bytes] = iter(())
        if kind == "Pod":
            existing = (number for number in range(self._pods) if self._exists(number))
            made = (frame("ADDED", kind, self._pod(each).SerializeToString()) for each in existing)
        elif kind == "Node":
            made = (frame("ADDED", kind, self._encoded_node(each)) for each in range(self._nodes))
        while chunk := b"".join(itertools.islice(made, 300)):
            yield chunk

    async def _changes(self, kind: str) -> AsyncIterator[bytes]:
        """Yield changes at the rate: pods are updated, replaced by others, and nodes report their state."""
        each_second = self._rate * (0.9 if kind == "Pod" else 0.1)
        numbers, added, owed, version = itertools.count(17, 7919), itertools.count(self._pods), 0.0, 2_000_001
        due = time.monotonic()
        while True:
            due += 1.0 / BATCHES
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            owed += each_second / BATCHES
            while owed >= 1.0:
                owed -= 1.0
                version += 1
                number = next(numbers)
                if kind == "Node":
                    self._send_node(number % self._nodes, version)
                elif self._exists(number % self._pods):
                    message = self._pod(number % self._pods)
                    if number % 5 == 0:
                        self._send_pod("DELETED", message, version)
                        self._send_pod("ADDED", self._pod(next(added)), version)
                    else:
                        message.status.container_statuses[0].restart_count += 1
                        self._send_pod("MODIFIED", message, version)
            if self._changed[kind]:
                changed, self._changed[kind] = self._changed[kind], []
                yield b"".join(changed)

    def _discovery(self) -> dict[str, Any]:
        crds = "apiextensions.k8s.io/v1"
        groups = {crds: [_kind("customresourcedefinitions", "CustomResourceDefinition", namespaced=False)]}
        for each in self._served:
            kind = _kind(each.plural, each.kind, namespaced=each.namespaced)
            groups.setdefault(each.api_version, []).append(kind)
        core = [_kind("namespaces", "Namespace", namespaced=False), _kind("events", "Event", namespaced=True)]
        found: dict[str, Any] = {
            "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": core},
            **{f"/apis/{name}": {"resources": listed} for name, listed in groups.items()},
        }
        versions = [{"groupVersion": name, "version": name.partition("/")[2]} for name in groups]
        found["/apis"] = {
            "groups": [
                {"name": each["groupVersion"].partition("/")[0], "versions": [each], "preferredVersion": each}
                for each in versions
            ]
        }
        return found


def _kind(plural: str, kind: str, *, namespaced: bool) -> dict[str, Any]:
    verbs = ["get", "list", "watch", "patch"]
    return {"name": plural, "singularName": kind.lower(), "kind": kind, "verbs": verbs, "namespaced": namespaced}


def _merge(found: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch."""
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            _merge(found.setdefault(key, {}), value)
        else:
            found[key] = value


def _not_found() -> web.Response:
    return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)


# --- processes --------------------------------------------------------------------------------------------------------


@contextmanager
def process(*command: str, log: Path, source: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python program with the modules of a checkout, and kill it in the end."""
    paths = [source / "operator", source / "local", source, ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with log.open("wb") as output:
        running = subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=output, env=environment, cwd=log.parent
        )
        try:
            yield running
        finally:
            running.kill()
            running.wait()


def until(condition: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    """Wait until the condition is true.

    Raises:
        TimeoutError: it was not true in time; with a description of what was expected.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


def kubeconfig(server: str) -> dict[str, Any]:
    """Return a kubeconfig for the URL of a server."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": {}}],
    }
