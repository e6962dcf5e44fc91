"""A cluster with tainted nodes for tests of how pods end: an API server with pods, what watches tell of it, the book.

Its API server answers the requests of :class:`trimtab.tainting.eviction_queue.EvictionQueue`. To order, it refuses,
fails and loses answers, and lets pods end after a while. Its state survives a kill of the process that acts on it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from msgspec.structs import replace

from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.fakes.taint_reporter import FakeTaintReporter
from tests.unit.tainting.deadlines import pod as make_pod
from trimtab.api.taint_manager import RefusedPod, TaintManagerSpec
from trimtab.controller.loop import TaskSupervisor
from trimtab.controller.timers import Timers
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.api import Api, Conflict, Forbidden, NotFound, TooManyRequests, Unreachable
from trimtab.kube.objects import Node, Pod, PodCondition, Taint, Toleration
from trimtab.tainting.deadlines import DeadlineChange, TaintDeadlineTracker, TolerationRule
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.due_pods import DuePodResult
from trimtab.tainting.eviction_queue import EvictionQueue
from trimtab.tainting.report.status import refused_pods

Listener = Callable[[Pod | Node | None, Pod | Node | None], None]
TAINT_AND_EVICT = TaintManagerSpec(mode="TaintAndEvict")


@dataclass
class Sent:
    """A request: method and subresource, as ``DELETE`` or ``PATCH status``, and when, in seconds from the start."""

    what: str
    key: str
    at: float
    uid: str
    body: Any


class Cluster:
    """What stands in the cluster, and how its API server behaves.

    Attributes:
        sent: requests as they came in.
        gone: when pods went out of the cluster's sight, or began to, by uid.
        refuses: the words with which a request is refused, by method and subresource and the pod's key; or ``None``.
        budgets: evictions that are allowed, by namespace; without an entry all are.
        loses: how many answers are lost after the request was carried out.
        swallows: how many requests are lost before.
        down: whether no request is answered.
        latency: seconds until a request is carried out.
        late: seconds from then until the answer is there.
        slow: the same of a namespace, where a webhook hangs.
        grace: seconds until a pod that was deleted is gone.
        watch: seconds until the watch tells of a change; ``None`` while it tells nothing.
        renews: whether a pod that went comes again on its node, by its name, as a StatefulSet's does.
        busiest: most requests at once.
    """

    def __init__(self) -> None:
        self.clock = LoopClock()
        self.pods: dict[str, Pod] = {}
        self.nodes: dict[str, Node] = {}
        self.sent: list[Sent] = []
        self.gone: dict[str, float] = {}
        self.refuses: Callable[[str, str], str | None] = lambda _what, _key: None
        self.budgets: dict[str, int] = {}
        self.loses = 0
        self.swallows = 0
        self.down = False
        self.latency = 0.001
        self.late = 0.0
        self.slow: dict[str, float] = {}
        self.grace = 0.5
        self.watch: float | None = 0.01
        self.renews = False
        self.busiest = 0
        self.listeners: list[Listener] = []
        self._busy = 0
        self._untold: list[tuple[Pod | Node | None, Pod | Node | None]] = []
        self._pipe: deque[tuple[Listener, Pod | Node | None, Pod | Node | None]] = deque()

    @property
    def time(self) -> float:
        """Seconds from the start."""
        return round(self.clock.now() - START, 6)

    def requests(self, what: str, key: str = "") -> list[float]:
        return [each.at for each in self.sent if each.what == what and key in each.key]

    # --- what changes by others' hands -----------------------------------------------------------------------------

    def pod(self, name: str, *tolerations: Toleration, namespace: str = "shop", on: str = "n1", **more: Any) -> None:
        made = replace(make_pod(*tolerations, name=name, on=on), namespace=namespace, uid=f"{namespace}-{name}-0")
        self.put(replace(made, **more))

    def put(self, pod: Pod) -> None:
        old = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        self._tell(old, pod)

    def tolerate(self, key: str, *tolerations: Toleration) -> None:
        pod = self.pods[key]
        self.put(replace(pod, spec=replace(pod.spec, tolerations=tolerations)))

    def taint(self, name: str, *taints: Taint, zone: str = "") -> None:
        old = self.nodes.get(name)
        labels = type(Node(name).labels)({"topology.kubernetes.io/zone": zone} if zone else {})
        self.nodes[name] = Node(name=name, uid=f"uid-{name}", taints=taints, labels=labels)
        self._tell(old, self.nodes[name])

    def remove(self, key: str) -> None:
        """A pod goes at once."""
        pod = self.pods.pop(key, None)
        if pod is None:
            return
        self.gone.setdefault(pod.uid, self.time)
        self._tell(pod, None)
        if self.renews:
            number = int(pod.uid.rpartition("-")[2]) + 1
            uid = f"{pod.uid.rpartition('-')[0]}-{number}"
            self.put(replace(pod, uid=uid, deleted=None, conditions=(), created=self.clock.now(), started=None))

    def catch_up(self) -> None:
        """The watch tells again, first what it has not told."""
        self.watch = 0.01
        untold, self._untold = self._untold, []
        for old, new in untold:
            self._tell(old, new)

    def _tell(self, old: Pod | Node | None, new: Pod | Node | None) -> None:
        if not self.listeners:
            return
        if self.watch is None:
            self._untold.append((old, new))
            return
        self._pipe.append((self.listeners[-1], old, new))
        asyncio.get_running_loop().call_later(self.watch, self._deliver)

    def _deliver(self) -> None:
        listener, old, new = self._pipe.popleft()  # in their order, though several come at one time
        listener(old, new)

    # --- the API server --------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: float = 30.0,
        leading: Callable[[], bool] | None = None,
    ) -> Any:
        parts = path.split("/")
        key = f"{parts[4]}/{parts[6]}"
        what = f"{method} {parts[7]}" if len(parts) > 7 else method
        self.sent.append(Sent(what, key, self.time, _uid(what, body), body))
        self._busy += 1
        self.busiest = max(self.busiest, self._busy)
        try:
            await asyncio.sleep(self.slow.get(parts[4], self.latency))
            response = self._answer(what, key, body)
            if self.late:
                await asyncio.sleep(self.late)
            return response
        finally:
            self._busy -= 1

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is watched here")

    def _answer(self, what: str, key: str, body: Any) -> Any:
        if self.down or self.swallows > 0:
            self.swallows -= not self.down
            raise Unreachable(f"{what} {key}: the connection was reset")
        refusal = self.refuses(what, key)
        if refusal is not None:
            raise Forbidden(refusal, status=403, reason="Forbidden")
        pod = self.pods.get(key)
        if pod is None:
            raise NotFound(f'pods "{key}" not found', status=404, reason="NotFound")
        uid = _uid(what, body)
        if pod.uid != uid:
            message = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.uid}"
            raise Conflict(message, status=409, reason="Conflict")
        if what == "PATCH status":
            [condition] = body["status"]["conditions"]
            made = PodCondition(condition["type"], condition["status"], condition["reason"], condition["message"])
            self.put(replace(pod, conditions=(*pod.conditions, made)))
        elif what == "POST eviction":
            self._evict(pod)
        else:
            self._end(pod)
        if self.loses > 0 and what != "PATCH status":
            self.loses -= 1
            raise Unreachable(f"{what} {key}: the answer was lost")
        return None

    def _evict(self, pod: Pod) -> None:
        allowed = self.budgets.get(pod.namespace)
        if allowed == 0 and pod.deleted is None:
            causes = ({"reason": "DisruptionBudget", "message": "The disruption budget pdb needs 2 healthy pods"},)
            raise TooManyRequests("Cannot evict pod", status=429, causes=causes)
        if allowed is not None:
            self.budgets[pod.namespace] -= 1
        self._end(pod)

    def _end(self, pod: Pod) -> None:
        if pod.deleted is not None:
            return
        self.gone.setdefault(pod.uid, self.time)
        self.put(replace(pod, deleted=self.clock.now() + self.grace))
        asyncio.get_running_loop().call_later(self.grace, self.remove, pod.key)


class Manager:
    """One process: what it sees, its book, its timers, and who ends pods.

    Args:
        cluster: that it follows from now on, and no other.
        spec: of the TaintManager.
        workers: pods that are ended at once.
        api: if not the cluster's own.
        limits: over the evictions of all controllers.
    """

    def __init__(
        self,
        cluster: Cluster,
        spec: TaintManagerSpec = TAINT_AND_EVICT,
        *,
        workers: int = 8,
        api: Api | None = None,
        limits: EvictionLimits | None = None,
    ) -> None:
        self.cluster = cluster
        self.caches = Caches()
        self.reporter = FakeTaintReporter()
        self.blind: str | None = None
        self.book = TaintDeadlineTracker(self.caches.lister.items_on, TolerationRule())
        self.dependencies = TaintingDependencies(
            api=api or cluster,
            lister=self.caches.lister,
            clock=cluster.clock,
            evictor=Evictor(clock=cluster.clock, view=self.caches.lister, limits=limits),
            reporter=self.reporter,
            stale=lambda: self.blind,
            watches_verified_at=cluster.clock.now,
            namespace="trimtab",
        )
        self.ending = EvictionQueue(self.dependencies, spec, self.book, workers=workers)
        self.timers = Timers(self.ending.enqueue, cluster.clock)
        for node in cluster.nodes.values():
            self._see(None, node)
        for pod in cluster.pods.values():
            self._see(None, pod)
        cluster.listeners = [self._see]

    @property
    def refused(self) -> tuple[RefusedPod, ...]:
        """The refused pods in its status."""
        return refused_pods(self.ending.pods)

    def recorded(self, result: DuePodResult) -> list[str]:
        """Which pods it was told of, without the namespace."""
        return [each.deadline.key.partition("/")[2] for each in self.reporter.outcomes if each.result is result]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = TaskSupervisor("taint manager", self.cluster.clock)
        tasks.start("eviction queue", self.ending.run)
        tasks.start("deadline timers", self.timers.run)
        await asyncio.sleep(0)
        try:
            yield
        finally:
            await tasks.cancel()

    def _see(self, old: Pod | Node | None, new: Pod | Node | None) -> None:
        now = self.cluster.clock.now()
        if isinstance(new or old, Pod):
            pods = cast("tuple[Pod | None, Pod | None]", (old, new))
            self.caches.apply(*pods)
            self._follow(self.book.pod_changed(*pods, now=now))
        else:
            nodes = cast("tuple[Node | None, Node | None]", (old, new))
            node = cast("Node", new or old)
            self.caches.apply(*nodes)
            self._follow(self.book.node_changed(*nodes, now=now))
            self.ending.taints_changed(node.name)

    def _follow(self, changes: list[DeadlineChange]) -> None:
        for change in changes:
            if change.after is None:
                self.timers.cancel(change.key)
            else:
                self.timers.set(change.key, change.after.due, change.after)
            self.ending.deadline_changed(change.key)


def _uid(what: str, body: Any) -> str:
    if what == "PATCH status":
        return str(body["metadata"]["uid"])
    options = body["deleteOptions"] if what == "POST eviction" else body
    return str(options["preconditions"]["uid"])
