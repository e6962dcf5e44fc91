"""The scheduler with caches that follow a fake API server, which binds pods as the real one does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
from msgspec.structs import replace

from tests.fakes.caches import Caches
from tests.fakes.clock import LoopClock
from trimtab.api.scheduler_policy import QueueCounts, SchedulingCounts, UnschedulableReason
from trimtab.kube.api import Api, Conflict, LeaderOnlyApi, NotFound
from trimtab.kube.objects import KubeObject, Pod
from trimtab.kube.resources import NODES, PODS, Resource
from trimtab.kube.watching.store import Listener, Store
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.scheduling import cycle
from trimtab.scheduling.cycle import Scheduler
from trimtab.scheduling.dependencies import (
    AssumedVolume,
    CancelBinding,
    Preemptor,
    SchedulerDependencies,
    VolumeBindingError,
)
from trimtab.scheduling.planner import Reject
from trimtab.scheduling.preemption import Preemption

SCHEDULER = "trimtab"


@pytest.fixture(autouse=True)
def plan_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Virtual time does not wait for threads."""

    async def at_once(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    monkeypatch.setattr(cycle, "in_thread", at_once)


@dataclass
class Reports:
    """What the scheduler reported, by pod key."""

    bound: dict[str, str] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    failures: list[tuple[str, str, str]] = field(default_factory=list)
    gates: list[str] = field(default_factory=list)
    pending: QueueCounts | None = None

    def scheduled(self, pod: Pod, node: str, *, attempts: int, seconds: float, attempt_seconds: float) -> None:
        assert attempt_seconds > 0.0
        assert pod.key not in self.bound or seconds < 0, f"{pod.key} was bound twice"
        self.bound[pod.key] = node
        self.attempts[pod.key] = attempts

    def rejected(self, reject: Reject, *, seconds: float) -> None:
        assert seconds >= 0
        self.rejects.append(reject)

    def failed(self, pod: Pod, node: str, message: str) -> None:
        self.failures.append((pod.key, node, message))

    def gated(self, pod: Pod) -> None:
        self.gates.append(pod.key)

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        raise AssertionError("the fake preemptor removes nothing")

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        assert old is not None or new is not None

    def counts(self, scheduler: str) -> SchedulingCounts:
        return SchedulingCounts(scheduled=len(self.bound), rejected=len(self.rejects))

    def unschedulable(self, scheduler: str) -> tuple[UnschedulableReason, ...]:
        return ()

    def show_pending(self, counts: QueueCounts) -> None:
        self.pending = counts

    def start(self, tasks: object) -> None:
        del tasks


@dataclass
class Preemptions:
    """Preemptions that the test ends itself, with the callbacks that end them."""

    started: list[tuple[Preemption, Sequence[Pod], Callable[[bool], None]]] = field(default_factory=list)
    cleared: list[str] = field(default_factory=list)

    def clear_nomination(self, pod: Pod) -> None:
        self.cleared.append(pod.key)

    def start(
        self, preemption: Preemption, message: str, displaced: Sequence[Pod], ended: Callable[[bool], None]
    ) -> None:
        assert message
        self.started.append((preemption, displaced, ended))

    async def stop(self, seconds: float) -> None:
        assert seconds > 0

    def made(self, cancel: CancelBinding) -> Preemptions:
        self.cancel = cancel
        return self


@dataclass
class Volumes:
    """Binds volumes at once, or fails."""

    error: str = ""
    bound: list[tuple[str, str, Sequence[AssumedVolume]]] = field(default_factory=list)

    async def bind(self, pod: Pod, node: str, assumed: Sequence[AssumedVolume]) -> None:
        if self.error:
            raise VolumeBindingError(self.error)
        self.bound.append((pod.key, node, assumed))


class SchedulerWorld:
    """A scheduler, its caches, and an API server for bindings. A binding reaches the caches `lag` seconds later.

    `before` runs ahead of each binding; what it raises is the answer. `lose` answers are lost after the binding.
    """

    def __init__(self, *profiles: tuple[str, Profile], lag: float = 0.01, latency: float = 0.0) -> None:
        self.caches = Caches()
        self.others: dict[Resource, Store[Any]] = {}
        self.reports, self.preemptions, self.volumes = Reports(), Preemptions(), Volumes()
        self.sent: list[tuple[str, str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.stale: str | None = None
        self.leading = True
        self.lag, self.latency = lag, latency
        self.before: Callable[[str, str], Awaitable[None]] | None = None
        self.after: Callable[[str, str], Awaitable[None]] | None = None
        self._versions = 0
        self.scheduler = Scheduler(self.dependencies(self))
        self._profiles = profiles or ((SCHEDULER, DEFAULT),)

    def dependencies(self, api: Api) -> SchedulerDependencies:
        return SchedulerDependencies(
            api=LeaderOnlyApi(api, lambda: self.leading),
            shared=self.caches.shared,
            lister=self.caches.lister,
            subscribe=self._subscribe,
            clock=LoopClock(),
            stale=lambda: self.stale,
            volumes=self.volumes,
            preemptor=self._preemptor,
            reporter=self.reports,
        )

    async def __aenter__(self) -> Self:
        self.scheduler.start()
        for name, profile in self._profiles:
            self.scheduler.set_profile(name, profile)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.scheduler.stop()

    def _preemptor(self, cancel: CancelBinding) -> Preemptor:
        return self.preemptions.made(cancel)

    def put(self, *builders: Any) -> None:
        """Objects as the watch delivers them."""
        for each in builders:
            obj = each.build() if hasattr(each, "build") else each
            self._versions += 1
            self.apply(replace(obj, resource_version=str(self._versions)))

    def apply(self, obj: KubeObject) -> None:
        self.caches.apply(None, obj)

    def delete(self, key: str) -> None:
        pod = self.caches.pods.get(key)
        assert pod is not None
        self.caches.apply(pod, None)

    def pod(self, key: str) -> Pod:
        found = self.caches.pods.get(key)
        assert found is not None
        return found

    def node_of(self, key: str) -> str:
        return self.pod(key).node

    def assumed_node(self, key: str) -> str:
        return str(self.caches.ask(lambda snapshot: snapshot.pods[key].node))

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        namespace, name = path.split("/")[4], path.split("/")[6]
        key = f"{namespace}/{name}"
        if method == "GET":
            return self._get(key)
        assert (method, path.rsplit("/", 1)[1]) == ("POST", "binding")
        assert "resourceVersion" not in body["metadata"]
        node, uid = body["target"]["name"], body["metadata"]["uid"]
        self.sent.append((key, uid, node))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.latency:
                await asyncio.sleep(self.latency)
            if self.before is not None:
                await self.before(key, node)
            self._bind(key, uid, node)
            if self.after is not None:
                await self.after(key, node)
        finally:
            self.in_flight -= 1
        return {"kind": "Status", "status": "Success"}

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the scheduler opens no streams")

    def bind_elsewhere(self, key: str, node: str) -> None:
        """Another scheduler binds the pod; the watch reports it at once."""
        self._bound[key] = node
        self.put(replace(self.pod(key), node=node))

    def _get(self, key: str) -> Any:
        found = self.caches.pods.get(key)
        if found is None:
            raise NotFound(f"{key} not found", status=404)
        return {"metadata": {"uid": found.uid}, "spec": {"nodeName": self._bound.get(key, found.node)}}

    @property
    def _bound(self) -> dict[str, str]:
        if not hasattr(self, "_bindings"):
            self._bindings: dict[str, str] = {}
        return self._bindings

    def _bind(self, key: str, uid: str, node: str) -> None:
        found = self.caches.pods.get(key)
        if found is None:
            raise NotFound(f"{key} not found", status=404)
        if found.uid != uid:
            raise Conflict(f"Precondition failed: UID {uid}, actual {found.uid}", status=409)
        if key in self._bound:
            raise Conflict(f"pod {key} is already assigned to node {self._bound[key]}", status=409)
        self._bound[key] = node
        asyncio.get_running_loop().call_later(self.lag, self._confirm, key, uid, node)

    def _confirm(self, key: str, uid: str, node: str) -> None:
        found = self.caches.pods.get(key)
        if found is not None and found.uid == uid:
            self.put(replace(found, node=node))

    def _subscribe(self, resource: Resource, listener: Listener[Any]) -> Callable[[], None]:
        known: dict[Resource, Store[Any]] = {PODS: self.caches.pods, NODES: self.caches.nodes}
        store = known[resource] if resource in known else self.others.setdefault(resource, Store())
        return store.subscribe(listener, replay=False)
