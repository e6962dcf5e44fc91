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
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
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
    from benchmarks.api_server import ApiServer
    from trimtab.kube.resources import (
        CLUSTER_AUTOSCALERS,
        DESCHEDULER_POLICIES,
        DESCHEDULING_RUNS,
        MACHINE_AUTOSCALERS,
        SCHEDULER_POLICIES,
        TAINT_MANAGERS,
        Resource,
    )

    specs: dict[Resource, dict[str, Any] | None] = {
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
    ApiServer(specs, nodes=nodes, pods=pods, rate=rate).serve(port_file)


# --- the benchmark ----------------------------------------------------------------------------------------------------


def _take(process: subprocess.Popen[bytes], path: Path) -> dict[str, list[Any]]:
    """Return the lags or long callbacks since the last call, by the name of the event loop's thread."""
    from benchmarks.api_server import until

    path.unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR1)
    until(path.exists, "the lags", 60.0)
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
    import socket
    import urllib.request

    from benchmarks.api_server import kubeconfig, process, until

    results = _slices if slices else _lags

    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        directory = Path(name)
        port_file, lags = directory / "port", directory / "lags"
        server = [str(Path(__file__)), "--serve", str(port_file)]
        sizes = [f"--nodes={nodes}", f"--pods={pods}", f"--rate={rate}"]
        with process(*server, *sizes, log=directory / "server.log"):
            until(port_file.exists, "the server")
            config = directory / "kubeconfig"
            config.write_text(json.dumps(kubeconfig(f"http://127.0.0.1:{port_file.read_text()}")))
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            measuring = "--measure-slices" if slices else "--measure-lag"
            operator = [str(Path(__file__)), measuring, str(lags), "run", f"--kubeconfig={config}"]
            options = [f"--listen=127.0.0.1:{port}", "--lease-namespace=x", f"--controllers={controllers}"]
            log = Path(os.environ.get("TRIMTAB_BENCH_LOG", directory / "operator.log"))
            with process(*operator, *options, log=log, source=source) as running:
                began = time.monotonic()

                def ready() -> bool:
                    assert running.poll() is None, log.read_text()
                    with suppress(OSError):
                        return urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz").status == 200
                    return False

                until(ready, "the caches to be filled")
                yield from results("fill", time.monotonic() - began, _take(running, lags))
                time.sleep(seconds)
                assert running.poll() is None, log.read_text()
                yield from results("churn", seconds, _take(running, lags))


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
