"""Measures the lag of the operator's event loops while every controller plans and pods and nodes change.

``python benchmarks/loop_lag.py [--json] [--nodes N] [--pods N] [--rate N] [--seconds S] [--source DIR] [--slices]``

The operator runs as a process, against a server that is a process of its own: it sends the nodes and the pods of
``wire.py`` as a WatchList and then ``--rate`` changes a second, of which one in ten is of a node. A policy, a
ClusterAutoscaler, a TaintManager and a SchedulerPolicy make the controllers plan. They change nothing, so that all
runs are alike.

A task on each event loop is due 50 times a second. Its lags are the result: from the start until all caches are filled
(``fill``), and afterwards for ``--seconds`` (``churn``). ``--source`` is the directory of another checkout to measure.

The lag depends on what else the machine does. ``--slices`` measures instead the CPU time of each callback that the
event loops run, with asyncio in place of uvloop, and lists the longest ones with their tasks.

Both list the garbage collections, which block the event loops in whatever thread they run.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
if __package__ in (None, "") and not any(each.startswith("--measure") for each in sys.argv):
    sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

PERIOD: Final = 0.02
"""Seconds between two times at which the task on each event loop is due."""

CONTROLLERS: Final = "descheduler,autoscaler,tainting,scheduler"
BATCHES: Final = 20
"""Number of batches of changes in a second."""

LONG: Final = 0.01
"""Minimum seconds of CPU time of a callback, and of a garbage collection, that is recorded."""

COLLECTIONS: Final = "garbage collections"
"""The name under which garbage collections are recorded, in place of an event loop's thread."""


# --- the task on each event loop --------------------------------------------------------------------------------------


def measure_loops(path: Path) -> None:
    """Add the task to each event loop that this process starts, and write its lags to a file as JSON on SIGUSR1."""
    lags: dict[str, list[Any]] = {}

    async def tick(name: str) -> None:
        found = lags.setdefault(name, [])
        due = time.monotonic() + PERIOD
        while True:
            await asyncio.sleep(due - time.monotonic())
            now = time.monotonic()
            while due <= now:
                found.append(now - due)
                due += PERIOD

    async def ticking(main: Any) -> Any:
        ticker = asyncio.create_task(tick(threading.current_thread().name), name="lag")
        try:
            return await main
        finally:
            ticker.cancel()

    run = asyncio.Runner.run

    def run_ticking(self: asyncio.Runner, main: Any, **options: Any) -> Any:
        return run(self, ticking(main), **options)

    asyncio.Runner.run = run_ticking  # type: ignore[method-assign]
    _write_on_signal(path, lags)


def measure_slices(path: Path) -> None:
    """Record the long callbacks of each event loop that this process starts; see :func:`measure_loops`."""
    import uvloop

    found: dict[str, list[tuple[float, str]]] = {}
    run = asyncio.Handle._run  # noqa: SLF001

    def measured(self: asyncio.Handle) -> None:
        began = time.thread_time()
        run(self)
        if (seconds := time.thread_time() - began) >= LONG:
            callback = self._callback  # type: ignore[attr-defined]
            task = getattr(callback, "__self__", None)
            name = task.get_name() if isinstance(task, asyncio.Task) else repr(callback)
            found.setdefault(threading.current_thread().name, []).append((seconds, name))

    uvloop.new_event_loop = asyncio.new_event_loop  # type: ignore[assignment]
    asyncio.Task = asyncio.tasks.Task = asyncio.tasks._PyTask  # type: ignore[attr-defined,misc]  # noqa: SLF001
    asyncio.Handle._run = measured  # type: ignore[method-assign]  # noqa: SLF001
    _write_on_signal(path, found)


def _record_collections(found: dict[str, list[Any]]) -> None:
    """Record the long garbage collections of this process, with the generation and the thread."""
    began = 0.0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        elif (seconds := time.thread_time() - began) >= LONG:
            name = f"generation {info['generation']} in {threading.current_thread().name}"
            found.setdefault(COLLECTIONS, []).append((seconds, name))

    gc.callbacks.append(collected)


def _write_on_signal(path: Path, found: dict[str, list[Any]]) -> None:
    """Write what was found since the last time to a file, on SIGUSR1, in a thread. Also record garbage collections."""
    _record_collections(found)

    def write() -> None:
        while signal.sigwait([signal.SIGUSR1]):
            taken = {name: list(each) for name, each in found.items()}
            for each in found.values():
                each.clear()
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(taken))
            partial.rename(path)

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    threading.Thread(target=write, name="writer", daemon=True).start()


# --- the server -------------------------------------------------------------------------------------------------------


def serve(port_file: Path, nodes: int, pods: int, rate: float) -> None:
    """Serve until the process is killed. The port is written to a file."""
    import uvloop

    uvloop.run(_serve(port_file, nodes, pods, rate))


async def _serve(port_file: Path, nodes: int, pods: int, rate: float) -> None:
    from aiohttp import web

    server = _Server(nodes, pods, rate)
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    await asyncio.to_thread(port_file.write_text, str(runner.addresses[0][1]))
    await asyncio.Event().wait()


class _Server:
    def __init__(self, nodes: int, pods: int, rate: float) -> None:
        from trimtab.kube.resources import (
            CLUSTER_AUTOSCALERS,
            DESCHEDULER_POLICIES,
            DESCHEDULING_RUNS,
            MACHINE_AUTOSCALERS,
            SCHEDULER_POLICIES,
            TAINT_MANAGERS,
        )
        from trimtab.runtime.kopf_operator import KOPF_PREFIX

        self._nodes, self._pods, self._rate = nodes, pods, rate
        specs: dict[Any, dict[str, Any] | None] = {
            DESCHEDULER_POLICIES: {
                "mode": "Simulate",
                "interval": "30s",
                "strategies": {
                    "RemoveDuplicates": {"enabled": True},
                    "LowNodeUtilization": {
                        "enabled": True,
                        "params": {
                            "nodeResourceUtilizationThresholds": {
                                "thresholds": {"cpu": 20},
                                "targetThresholds": {"cpu": 60},
                            }
                        },
                    },
                },
            },
            DESCHEDULING_RUNS: None,
            CLUSTER_AUTOSCALERS: {"scaleDown": {"enabled": True}},
            MACHINE_AUTOSCALERS: None,
            TAINT_MANAGERS: {"mode": "Observe"},
            SCHEDULER_POLICIES: {"schedulerName": "ours"},
        }
        self._ours = list(specs)
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

    async def handle(self, request: Any) -> Any:
        from aiohttp import web

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
        if request.method == "POST":
            made = json.loads(await request.read())
            made["metadata"] |= {"uid": f"uid-{time.time_ns()}", "resourceVersion": "5", "generation": 1}
            self._objects[f"{path}/{made['metadata'].get('name')}"] = made
            return web.json_response(made, status=201)
        if request.method == "PATCH":
            return web.json_response(self._patched(path.removesuffix("/status"), json.loads(await request.read())))
        if "watch" in request.query:
            return await self._watch(request)
        items = [each for at, each in self._objects.items() if at.startswith(f"{path}/")]
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items})

    def _patched(self, path: str, patch: Any) -> dict[str, Any]:
        found = self._objects.setdefault(path, {"metadata": {"name": "x", "resourceVersion": "1"}})
        if isinstance(patch, dict):
            _merge(found, {key: value for key, value in patch.items() if key != "spec"})
            found["metadata"]["resourceVersion"] = "5"
        return found

    async def _watch(self, request: Any) -> Any:
        from aiohttp import web

        from benchmarks.wire import frame
        from trimtab.kube.wire import slim_pb2
        from trimtab.kube.wire.codec import INITIAL_EVENTS_END

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
        from benchmarks.wire import frame

        made: Iterator[bytes] = iter(())
        if kind == "Pod":
            made = (frame("ADDED", kind, self._pod(each).SerializeToString()) for each in range(self._pods))
        elif kind == "Node":
            made = (frame("ADDED", kind, _node(each)) for each in range(self._nodes))
        while chunk := b"".join(itertools.islice(made, 300)):
            yield chunk

    async def _changes(self, kind: str) -> AsyncIterator[bytes]:
        """Yield changes at the rate: pods are updated, replaced by others, and nodes report their state."""
        from benchmarks.wire import frame

        each_second = self._rate * (0.9 if kind == "Pod" else 0.1)
        numbers, added, owed, version = itertools.count(17, 7919), itertools.count(self._pods), 0.0, 2_000_001
        due = time.monotonic()
        while True:
            due += 1.0 / BATCHES
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            owed += each_second / BATCHES
            frames = []
            while owed >= 1.0:
                owed -= 1.0
                version += 1
                number = next(numbers)
                if kind == "Node":
                    frames.append(frame("MODIFIED", kind, _node(number % self._nodes, version)))
                    continue
                message = self._pod(number % self._pods)
                message.metadata.resource_version = str(version)
                if number % 5 == 0:
                    frames.append(frame("DELETED", kind, message.SerializeToString()))
                    message = self._pod(next(added))
                    message.metadata.resource_version = str(version)
                    frames.append(frame("ADDED", kind, message.SerializeToString()))
                else:
                    message.status.container_statuses[0].restart_count += 1
                    frames.append(frame("MODIFIED", kind, message.SerializeToString()))
            if frames:
                yield b"".join(frames)

    def _pod(self, number: int) -> Any:
        """Return a pod next to its siblings, of which RemoveDuplicates moves all but one."""
        from benchmarks.wire import pod

        message = pod(number, own_spec=number % 50 == 0)
        message.spec.node_name = f"node-{number // 30 % self._nodes}"
        return message

    def _discovery(self) -> dict[str, Any]:
        crds = "apiextensions.k8s.io/v1"
        groups = {crds: [_kind("customresourcedefinitions", "CustomResourceDefinition", namespaced=False)]}
        for each in self._ours:
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


def _node(number: int, version: int = 1) -> bytes:
    from tests.protobuf import encode_object

    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    hostname, zone = f"node-{number}", f"zone-{number % 3}"
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-20T12:00:00Z"}
    return encode_object(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": hostname,
                "uid": f"node-uid-{number}",
                "resourceVersion": str(version),
                "labels": {"kubernetes.io/hostname": hostname, "topology.kubernetes.io/zone": zone},
                "creationTimestamp": "2026-11-20T12:00:00Z",
            },
            "spec": {},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }
    )


def _merge(found: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch."""
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            _merge(found.setdefault(key, {}), value)
        else:
            found[key] = value


def _not_found() -> Any:
    from aiohttp import web

    return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)


# --- the benchmark ----------------------------------------------------------------------------------------------------


@contextmanager
def _process(*command: str, log: Path, source: Path = ROOT) -> Iterator[subprocess.Popen[bytes]]:
    paths = [source / "operator", source / "local", source, ROOT]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command], stdout=output, stderr=output, env=environment, cwd=log.parent
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def _until(condition: Callable[[], bool], what: str, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.2)


def _take(process: subprocess.Popen[bytes], path: Path) -> dict[str, list[Any]]:
    """Return the lags or long callbacks since the last call, by the name of the event loop's thread."""
    path.unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR1)
    _until(path.exists, "the lags", 60.0)
    taken: dict[str, list[Any]] = json.loads(path.read_text())
    return taken


def measure(
    *,
    nodes: int,
    pods: int,
    rate: float,
    seconds: float,
    source: Path = ROOT,
    slices: bool = False,
    controllers: str = CONTROLLERS,
) -> Iterator[dict[str, Any]]:
    """Yield a result for each phase and event loop."""
    results = _slices if slices else _lags
    import socket
    import urllib.request

    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        directory = Path(name)
        port_file, lags = directory / "port", directory / "lags"
        server = [str(Path(__file__)), "--serve", str(port_file)]
        sizes = [f"--nodes={nodes}", f"--pods={pods}", f"--rate={rate}"]
        with _process(*server, *sizes, log=directory / "server.log"):
            _until(port_file.exists, "the server")
            kubeconfig = directory / "kubeconfig"
            kubeconfig.write_text(json.dumps(_kubeconfig(f"http://127.0.0.1:{port_file.read_text()}")))
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            measuring = "--measure-slices" if slices else "--measure-lag"
            operator = [str(Path(__file__)), measuring, str(lags), "run", f"--kubeconfig={kubeconfig}"]
            options = [f"--listen=127.0.0.1:{port}", "--lease-namespace=x", f"--controllers={controllers}"]
            log = Path(os.environ.get("TRIMTAB_BENCH_LOG", directory / "operator.log"))
            with _process(*operator, *options, log=log, source=source) as process:
                began = time.monotonic()

                def ready() -> bool:
                    assert process.poll() is None, log.read_text()
                    with suppress(OSError):
                        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200
                    return False

                _until(ready, "the caches to be filled")
                yield from results("fill", time.monotonic() - began, _take(process, lags))
                time.sleep(seconds)
                assert process.poll() is None, log.read_text()
                yield from results("churn", seconds, _take(process, lags))


def _kubeconfig(server: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": {}}],
    }


def _slices(phase: str, seconds: float, taken: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for loop, callbacks in sorted(taken.items()):
        callbacks.sort(reverse=True)
        yield {
            "name": f"slices-{phase}",
            "loop": loop,
            "seconds": round(seconds, 1),
            f"above_{1000 * LONG:.0f}_ms": len(callbacks),
            "above_50_ms": sum(each > 0.05 for each, _ in callbacks),
            "longest": [f"{1000 * each:.1f} ms {name}" for each, name in callbacks[:8]],
        }


def _lags(phase: str, seconds: float, taken: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    yield from _slices(phase, seconds, {COLLECTIONS: taken.pop(COLLECTIONS, [])})
    for loop, lags in sorted(taken.items()):
        if not lags:
            continue
        lags.sort()
        yield {
            "name": f"lag-{phase}",
            "loop": loop,
            "seconds": round(seconds, 1),
            "ticks": len(lags),
            **{f"p{share:g}_ms": round(1000 * lags[int(len(lags) * share / 100)], 1) for share in (50, 99, 99.9)},
            "max_ms": round(1000 * lags[-1], 1),
            "above_50_ms": sum(each > 0.05 for each in lags),
        }


def main() -> None:
    """Print the results."""
    if sys.argv[1:2] in (["--measure-lag"], ["--measure-slices"]):
        (measure_slices if sys.argv[1] == "--measure-slices" else measure_loops)(Path(sys.argv[2]))
        from trimtab.cli.main import main as trimtab

        sys.argv[:] = ["trimtab", *sys.argv[3:]]
        sys.exit(trimtab())
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--source", type=Path, default=ROOT)
    parser.add_argument("--slices", action="store_true")
    parser.add_argument("--controllers", default=CONTROLLERS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve, given.nodes, given.pods, given.rate)
        return
    sizes = {"nodes": given.nodes, "pods": given.pods, "rate": given.rate, "seconds": given.seconds}
    for result in measure(**sizes, source=given.source.resolve(), slices=given.slices, controllers=given.controllers):
        print(json.dumps(result) if given.json else "  ".join(f"{key}={value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
