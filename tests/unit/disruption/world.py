"""A small cluster for the executor: a fake API server, a view that follows it, controllers that replace what goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from tests.fakes.evictions import FinishedEvictions
from trimtab.api.plan import Evict
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.controller.history import History
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.executor import Executor, ExecutorSettings
from trimtab.disruption.limits import EvictionLimits
from trimtab.disruption.outcome import Outcome
from trimtab.kube.api import TooManyRequests, Unreachable
from trimtab.kube.objects import OwnerReference, Pod
from trimtab.kube.resources import PODS, ObjectReference

POLICY = ObjectReference(
    api_version="trimtab.dev/v1alpha1", kind="DeschedulerPolicy", name="spread", uid="policy-spread"
)


def budget_refusal(retry_after: float | None = None) -> TooManyRequests:
    return TooManyRequests(
        "Cannot evict pod as it would violate the pod's disruption budget.",
        status=429,
        reason="TooManyRequests",
        causes=({"reason": "DisruptionBudget", "message": "The disruption budget web needs 3 healthy pods"},),
        retry_after=retry_after,
    )


class Server(FakeApi):
    """The fake API server with answers that can get lost, and a memory of when it was asked to evict."""

    lose: int = 0
    lost_as: Exception = Unreachable("the connection was reset")
    taken: int = 0
    most: int = 0

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
        self.taken += 1
        self.most = max(self.most, self.taken)
        try:
            response = await super().request(method, path, params=params, body=body, timeout=timeout)
        finally:
            self.taken -= 1
        if self.lose and path.endswith("/eviction"):
            self.lose -= 1
            raise self.lost_as
        return response


@dataclass
class RecordedEvent:
    regarding: ObjectReference
    reason: str
    action: str
    note: str
    type: str
    related: ObjectReference | None


@dataclass
class Recorded:
    """A recorder that stores events instead of posting them."""

    events: list[RecordedEvent] = field(default_factory=list)

    def event(
        self,
        regarding: ObjectReference,
        *,
        reason: str,
        action: str,
        note: str,
        type: str = "Normal",  # noqa: A002
        related: ObjectReference | None = None,
    ) -> None:
        self.events.append(RecordedEvent(regarding, reason, action, note, type, related))


class World:
    """Pods of ReplicaSets on nodes. An evicted pod's replacement runs on node ``new`` after `restart` seconds.

    `restart` None: it never comes. `latency`: seconds that each request takes. `cut_after_eviction`: seconds for which
    the network is cut once an eviction was granted. `times`: when evictions were granted, by pod.
    """

    def __init__(
        self,
        *,
        restart: float | None = 2.0,
        latency: float = 0.0,
        limits: EvictionLimits | None = None,
        history: History | None = None,
        **settings: Any,
    ) -> None:
        self.snapshot = Snapshot()
        self.api = Server(before=self._before, after=self._after)
        self.recorder = Recorded()
        self.clock = LoopClock()
        self.restart = restart
        self.latency = latency
        self.cut_after_eviction = 0.0
        self.times: dict[str, float] = {}
        self.asked: list[tuple[str, float]] = []
        self.desired: dict[str, int] = {}
        self.seen: list[Outcome] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.metrics = FinishedEvictions()
        self.evictor = Evictor(clock=self.clock, view=self, limits=limits, metrics=self.metrics, history=history)
        self.executor = Executor(
            api=self.api,
            recorder=self.recorder,
            clock=self.clock,
            view=self,
            evictor=self.evictor,
            observe=self.seen.append,
            settings=ExecutorSettings(**settings),
        )

    def pod(self, key: str) -> Pod | None:
        return self.snapshot.pods.get(key)

    def desired_replicas(self, owner: OwnerKey) -> int | None:
        return self.desired.get(owner.name)

    def owned_by(self, owner: OwnerKey) -> Sequence[Pod]:
        return self.snapshot.owned_by(owner)

    def add(self, name: str, owner: str = "web", node: str = "n1", **fields: Any) -> Pod:
        pod = Pod(
            namespace="shop",
            name=name,
            uid=f"uid-{name}",
            owners=(OwnerReference(kind="ReplicaSet", name=owner, uid=owner, controller=True),),
            node=node,
            phase="Running",
            ready=True,
        )
        pod = msgspec.structs.replace(pod, **fields)
        self.put(pod)
        return pod

    def put(self, pod: Pod) -> None:
        self.snapshot.put(pod)
        metadata: dict[str, Any] = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}
        if pod.deleted is not None:
            metadata["deletionTimestamp"] = "2026-11-20T12:00:00Z"
        self.api.put(PODS.path(pod.name, namespace=pod.namespace), {"metadata": metadata, "status": {}})

    def drop(self, pod: Pod) -> None:
        self.snapshot.remove(pod)
        self.api.objects.pop(PODS.path(pod.name, namespace=pod.namespace), None)

    def plan(self, *pods: Pod) -> list[Evict]:
        return [
            Evict(
                policy="spread",
                strategy="RemoveDuplicates",
                namespace=pod.namespace,
                pod=pod.name,
                node=pod.node,
                target="new",
                reason="DuplicateOnNode",
                message="2 pods of ReplicaSet shop/web on n1",
                uid=pod.uid,
                owner=f"ReplicaSet/{pod.owners[0].name}",
            )
            for pod in pods
        ]

    async def execute(
        self, actions: Sequence[Evict], *, seconds: float = 300.0, per_minute: int = 600, **more: Any
    ) -> list[Outcome]:
        return await self.executor.execute(
            actions, policy=POLICY, per_minute=per_minute, deadline=self.clock.monotonic() + seconds, **more
        )

    async def _before(self, call: Call) -> None:
        if call.path.endswith("/eviction"):
            self.asked.append((call.body["metadata"]["name"], self.clock.monotonic()))
        if self.latency:
            await asyncio.sleep(self.latency)

    async def _after(self, call: Call) -> None:
        if call.path.endswith("/eviction"):
            name = call.body["metadata"]["name"]
            self.times[name] = self.clock.monotonic()
            deleted = self.snapshot.pods[f"{call.body['metadata']['namespace']}/{name}"]
            self.snapshot.remove(deleted)
            task = asyncio.create_task(self._replace(deleted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if self.cut_after_eviction:
                self.api.down = True
                asyncio.get_running_loop().call_later(self.cut_after_eviction, setattr, self.api, "down", False)

    async def _replace(self, gone: Pod) -> None:
        if self.restart is None:
            return
        name = f"{gone.name}-again"
        pending = msgspec.structs.replace(gone, name=name, uid=f"uid-{name}", node="", phase="Pending", ready=False)
        self.put(pending)
        await asyncio.sleep(self.restart)
        self.put(msgspec.structs.replace(pending, node="new", phase="Running", ready=True))
