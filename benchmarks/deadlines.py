"""Measures computing the deadlines of 150,000 pods on tainted nodes, and the timers that wait for them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterable
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.clusters import CREATED, Shape, cluster
from trimtab.cluster.lister import Lister
from trimtab.cluster.snapshot import Snapshot
from trimtab.controller.timers import Timers
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.objects import KubeObject, Node, Pod, Taint, Toleration
from trimtab.kube.rules.taints import NO_EXECUTE, NOT_READY, UNREACHABLE
from trimtab.kube.watching.store import Store
from trimtab.tainting.deadlines import TaintDeadlineTracker, TolerationRule

NOW: Final = CREATED + 1_000_000.0
ROUNDS: Final = 3

Result = dict[str, Any]


def recompute(shape: Shape | None = None, *, due: int = 10_000, lead: float = 2.0) -> Result:
    """Compute the deadlines of all pods from scratch, then after changes. Then set a timer for each.

    ``seconds`` is the median of the rounds, each of which reads all taints and computes and compares all deadlines. The
    nodes have one to three taints with 5,000 different times. One owner in five tolerates them for some time, one
    forever.
    """
    shape = shape or Shape()
    snapshot = Snapshot(_tainted(cluster(shape)))
    nodes = [node for node in snapshot.nodes.at if node is not None]
    store: Store[Pod] = Store()
    lister = Lister(Store(), store, Store())
    store.replace(snapshot.pods.values())
    rounds, worked, book = [], [], TaintDeadlineTracker(lister.items_on, TolerationRule())
    for _ in range(ROUNDS):
        book = TaintDeadlineTracker(lister.items_on, TolerationRule())
        started, busy = time.perf_counter(), time.process_time()
        book.resync(nodes, lister.items(), now=NOW)
        rounds.append(time.perf_counter() - started)
        worked.append(time.process_time() - busy)
    deadlines = len(book.deadlines)
    again = _timed(lambda: book.resync(nodes, lister.items(), now=NOW))
    pods = list(snapshot.pods.values())[:: max(1, shape.pods // 10_000)]
    one_pod = _timed(lambda: [book.pod_changed(pod, _patient(pod), now=NOW) for pod in pods]) / len(pods)
    one_node = _timed(lambda: [book.node_changed(node, _freed(node), now=NOW) for node in nodes]) / len(nodes)
    late = asyncio.run(lateness(shape.pods, due=due, lead=lead))
    params = {
        "nodes": len(nodes),
        "pods": len(snapshot.pods),
        "deadlines": deadlines,
        "cpu_s": round(statistics.median(worked), 2),
        "again_ms": round(1e3 * again, 1),
        "pod_us": round(1e6 * one_pod, 1),
        "node_us": round(1e6 * one_node, 1),
        **late,
    }
    return {"seconds": statistics.median(rounds), "params": params}


async def lateness(timers: int, *, due: int, lead: float) -> Result:
    """Set many timers, ``due`` of them for the second that begins in ``lead``, and measure how late they fire."""
    late: list[float] = []
    done = asyncio.Event()

    def fire(when: float) -> None:
        late.append(SYSTEM_CLOCK.now() - when)
        if len(late) == due:
            done.set()

    waiting = Timers(fire, SYSTEM_CLOCK)
    running = asyncio.create_task(waiting.run())
    started = time.perf_counter()
    first = SYSTEM_CLOCK.now() + lead
    for number in range(timers):
        when = first + (number / due if number < due else 3600.0 + number)
        waiting.set(f"team/pod-{number:06}", when, when)
    setting = time.perf_counter() - started
    for number in range(due, timers):  # moved while the first are waited for, as when a taint goes
        waiting.set(f"team/pod-{number:06}", first + 7200.0 + number, first)
        if number % 1000 == 0:
            await asyncio.sleep(0)
    await done.wait()
    running.cancel()
    late.sort()
    return {
        "set_us": round(1e6 * setting / timers, 2),
        "due_in_a_second": due,
        "late_p50_ms": round(1e3 * late[due // 2], 2),
        "late_p99_ms": round(1e3 * late[due * 99 // 100], 2),
        "late_max_ms": round(1e3 * late[-1], 2),
    }


def _timed(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _tainted(objects: Iterable[KubeObject]) -> Iterable[KubeObject]:
    """Yield the objects with taints.

    Every node is not-ready or unreachable, and every third has up to two user taints.
    """
    specs: dict[int, Any] = {}
    nodes = 0
    for each in objects:
        if isinstance(each, Node):
            nodes += 1
            keys = [(NOT_READY, UNREACHABLE)[nodes % 2], *("example.com/a", "example.com/b")[: nodes % 3]]
            yield replace(each, taints=tuple(Taint(key, NO_EXECUTE, "", NOW - 600 + nodes / 10) for key in keys))
        elif isinstance(each, Pod):
            owner = int(each.labels["app"].rpartition("-")[2])
            if owner not in specs:
                specs[owner] = replace(each.spec, tolerations=(*each.spec.tolerations, *_of_users(owner)))
            yield replace(each, spec=specs[owner])


def _of_users(owner: int) -> tuple[Toleration, ...]:
    if owner % 5 == 0:
        return (Toleration("example.com/a", "Exists", "", NO_EXECUTE, 60 * (owner % 50)),)
    if owner % 5 == 1:
        return (Toleration("", "Exists", "", NO_EXECUTE),)
    return ()


def _patient(pod: Pod) -> Pod:
    """Return the pod with one more toleration."""
    more = Toleration("example.com/b", "Exists", "", NO_EXECUTE, 3600)
    return replace(pod, spec=replace(pod.spec, tolerations=(*pod.spec.tolerations, more)))


def _freed(node: Node) -> Node:
    """Return the node with one taint less."""
    return replace(node, taints=node.taints[1:])
