"""A cluster in memory whose nodes run low on memory, and processes with the node-pressure controller.

The API server understands the patches of nodes, refuses evictions for which a budget has no disruption left, and lets
pods terminate for their grace period. The memory that a pod uses is free once the pod no longer exists.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from tests.builders import PodBuilder, node, pod
from tests.building import Builder
from tests.fakes.api import Call, FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.fakes.daemon import Stopped
from tests.fakes.evictions import FinishedEvictions
from tests.fakes.history import FakeHistory
from tests.fakes.json_patch import patch
from tests.fakes.recorder import FakeRecorder
from trimtab.api.plan import rfc3339
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.disruption.evictor import Evictor
from trimtab.disruption.limits import EvictionLimits
from trimtab.kube.api import Conflict, LeaderOnlyApi, TooManyRequests
from trimtab.kube.objects import Node, Pod
from trimtab.kube.resources import NODE_PRESSURE_POLICIES, NODES, PODS
from trimtab.kube.wire.decode import decode_object
from trimtab.pressure.controller import NodePressurePolicyController
from trimtab.pressure.coordinator import PressureCoordinator
from trimtab.pressure.dependencies import PressureDependencies
from trimtab.pressure.measurement import NodeMeasurement, PodUsage, ReadFailure, Reading, SignalValue
from trimtab.pressure.report import PressureMetrics, PressureReporter
from trimtab.pressure.state import ANNOTATION, NodeState, decode_state

GI = 1 << 30
CAPACITY = 10 * GI
SOFT: Mapping[str, Any] = {
    "mode": "Act",
    "evictionSoft": {"memory.available": "2Gi"},
    "evictionSoftGracePeriod": {"memory.available": "30s"},
    "evictionPressureTransitionPeriod": "1m",
}
HARD: Mapping[str, Any] = {
    "mode": "Act",
    "evictionHard": {"memory.available": "1Gi"},
    "evictionPressureTransitionPeriod": "1m",
}
PRESSURE = "pressure.trimtab.dev/MemoryPressure"
TAINT = "pressure.trimtab.dev/memory"
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


class Cluster(FakeApi):
    """Nodes and pods, their watches, and the usage of the pods."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = LoopClock()
        self.usage: dict[str, int] = {}
        self.budgets: dict[str, int] = {}
        """Allowed disruptions by the name of a pod; pods that are absent have no budget."""
        self.unreadable: set[str] = set()
        self.hanging: set[str] = set()
        self.problems: dict[str, str] = {}
        """Why the memory of a node is unknown, by the name of the node."""
        self.frozen: set[str] = set()
        """Nodes whose kubelets measure nothing any more."""
        self.skew: dict[str, float] = {}
        """Seconds by which the clock of a node is fast."""
        self.evictions: list[tuple[float, str, int | None]] = []
        """The granted evictions: seconds since the start, the pod's name, and its grace period."""
        self.deletions: list[tuple[float, str, int | None]] = []
        self._watches: list[Caches] = []
        self._delivered: dict[str, Node | Pod] = {}
        self._measured: dict[str, float] = {}

    # --- what users do ----------------------------------------------------------------------------------------------

    def add(self, *builders: Builder) -> None:
        for builder in builders:
            manifest = builder.manifest()
            metadata = manifest["metadata"]
            resource = NODES if manifest["kind"] == "Node" else PODS
            self._store(resource.path(metadata["name"], namespace=metadata.get("namespace", "")), manifest)

    def node(self, name: str = "n1", **labels: str) -> None:
        self.add(node(name).labels(labels).condition("Ready", "True").condition("MemoryPressure", "False"))

    def pod(self, name: str, uses: float, *, on: str = "n1", grace: int = 30, made: PodBuilder | None = None) -> None:
        """Add a pod that uses so many GiB."""
        self.usage[f"shop/{name}"] = int(uses * GI)
        self.add((made or pod(name)).on(on).grace_period(grace).ready())

    def change(self, path: str, change: Callable[[dict[str, Any]], None]) -> None:
        manifest = copy.deepcopy(self.objects[path])
        change(manifest)
        self._store(path, manifest)

    def change_node(self, name: str, change: Callable[[dict[str, Any]], None]) -> None:
        self.change(NODES.path(name), change)

    def terminate(self, name: str, *, seconds: float) -> None:
        """Delete a pod as a user does. It does not leave the node."""
        at = rfc3339(self.clock.now() + seconds)
        self.change(PODS.path(name, namespace="shop"), lambda it: it["metadata"].update(deletionTimestamp=at))

    def end(self, name: str) -> None:
        """Remove a pod at once."""
        self.remove(PODS.path(name, namespace="shop"))

    def remove(self, path: str) -> None:
        if self.objects.pop(path, None) is not None:
            self._deliver(path)

    # --- what tests assert -------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        return round(self.clock.now() - START, 3)

    def uid(self, name: str) -> str:
        found: str = self.objects[PODS.path(name, namespace="shop")]["metadata"]["uid"]
        return found

    def conditions(self, name: str = "n1") -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.objects[NODES.path(name)]["status"]["conditions"]}

    def taints(self, name: str = "n1") -> set[str]:
        return {each["key"] for each in self.objects[NODES.path(name)].get("spec", {}).get("taints") or ()}

    def state(self, name: str = "n1") -> NodeState:
        annotations = self.objects[NODES.path(name)]["metadata"].get("annotations") or {}
        return decode_state(annotations.get(ANNOTATION))

    def marks(self, name: str = "n1") -> tuple[bool, bool, bool]:
        """Whether the node has the condition, the taint and the annotation."""
        annotations = self.objects[NODES.path(name)]["metadata"].get("annotations") or {}
        return PRESSURE in self.conditions(name), TAINT in self.taints(name), ANNOTATION in annotations

    def status(self, name: str = "p") -> dict[str, Any]:
        found: dict[str, Any] = self.objects[NODE_PRESSURE_POLICIES.path(name)].get("status") or {}
        return found

    def condition(self, type_: str, name: str = "p") -> tuple[str, str]:
        [found] = [each for each in self.status(name)["conditions"] if each["type"] == type_]
        return found["status"], found["reason"]

    def writes(self, resource: str = "/nodes/") -> list[Call]:
        return [call for call in self.calls if call.method not in ("GET", "WATCH") and resource in call.path]

    # --- kubelets ---------------------------------------------------------------------------------------------------

    def measure(self, name: str) -> NodeMeasurement:
        pods = [self.objects[path] for path in self.objects if path.startswith("/api/v1/namespaces/shop/pods/")]
        mine = [each for each in pods if each["spec"].get("nodeName") == name and each["status"]["phase"] == "Running"]
        usage = {
            f"shop/{each['metadata']['name']}": PodUsage(
                uid=each["metadata"]["uid"], memory=self.usage[f"shop/{each['metadata']['name']}"]
            )
            for each in mine
        }
        if name not in self.frozen:
            self._measured[name] = self.clock.now()
        available = max(0, CAPACITY - sum(each.memory or 0 for each in usage.values()))
        value = SignalValue(available, CAPACITY, self._measured[name] + self.skew.get(name, 0.0))
        signals = {} if name in self.problems else {"memory.available": value}
        problems = {"memory.available": self.problems[name]} if name in self.problems else {}
        return NodeMeasurement(name, "Summary", self.clock.now(), signals, lambda: usage, problems=problems)

    # --- watches ----------------------------------------------------------------------------------------------------

    def watch(self, caches: Caches) -> None:
        for path, each in self._delivered.items():
            assert path in self.objects
            caches.apply(None, each)
        self._watches.append(caches)

    def _deliver(self, path: str) -> None:
        if not path.startswith(("/api/v1/nodes/", "/api/v1/namespaces/")):
            return
        old = self._delivered.pop(path, None)
        new = None
        if path in self.objects:
            new = decode_object(copy.deepcopy(self.objects[path]))
            assert isinstance(new, Node | Pod)
            self._delivered[path] = new
        for caches in self._watches:
            caches.apply(old, new)

    # --- the API server ---------------------------------------------------------------------------------------------

    def _answer(self, call: Call) -> Any:
        if call.method != "DELETE":
            return super()._answer(call)
        path = self._existing(call.path)
        self._check_uid(path, call.body["preconditions"]["uid"])
        self.deletions.append((self.time, path.rpartition("/")[2], call.body.get("gracePeriodSeconds")))
        return self._terminate(path, call.body.get("gracePeriodSeconds"))

    def _evict(self, call: Call) -> Any:
        path = self._existing(call.path.removesuffix("/eviction"))
        options, name = call.body["deleteOptions"], path.rpartition("/")[2]
        self._check_uid(path, options["preconditions"]["uid"])
        terminating = "deletionTimestamp" in self.objects[path]["metadata"]  # then the API server checks no budget
        if name in self.budgets and not terminating:
            if self.budgets[name] <= 0:
                cause = {"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods"}
                raise TooManyRequests(REFUSAL, status=429, causes=(cause,), retry_after=10)
            self.budgets[name] -= 1
        self.evictions.append((self.time, name, options.get("gracePeriodSeconds")))
        return self._terminate(path, options.get("gracePeriodSeconds"))

    def _terminate(self, path: str, grace: int | None) -> Any:
        manifest = copy.deepcopy(self.objects[path])
        if manifest["status"]["phase"] == "Failed":
            self.end(path.rpartition("/")[2])
            return manifest
        seconds = manifest["spec"]["terminationGracePeriodSeconds"] if grace is None else grace
        manifest["metadata"]["deletionTimestamp"] = rfc3339(self.clock.now() + seconds)
        before = self.objects[path]["metadata"].get("deletionTimestamp")
        if before is not None:  # a further request can only shorten the grace period
            manifest["metadata"]["deletionTimestamp"] = min(before, manifest["metadata"]["deletionTimestamp"])
        asyncio.get_running_loop().call_later(seconds, self._end_terminated, path)
        return self._store(path, manifest)

    def _end_terminated(self, path: str) -> None:
        if path in self.objects:
            self.remove(path)

    def _check_uid(self, path: str, uid: str) -> None:
        if self.objects[path]["metadata"]["uid"] != uid:
            raise Conflict("Precondition failed: UID", status=409, reason="Conflict")

    def _patch(self, call: Call) -> Any:
        path = self._existing(call.path.removesuffix("/status"))
        found = copy.deepcopy(self.objects[path])
        if call.content_type == "application/json-patch+json":
            changed = patch(found, call.body)
            for part, key in ((changed["metadata"], "annotations"), (changed.get("spec", {}), "taints")):
                if not part.get(key):
                    part.pop(key, None)  # as the API server, which omits empty fields
            return self._store(path, changed)
        if call.content_type == "application/strategic-merge-patch+json":
            assert call.body["metadata"]["uid"] == found["metadata"]["uid"]
            by_type = {each["type"]: each for each in found["status"].get("conditions", ())}
            for each in call.body["status"]["conditions"]:
                if each.get("$patch") == "delete":
                    by_type.pop(each["type"], None)
                else:
                    by_type[each["type"]] = {**by_type.get(each["type"], {}), **each}
            found["status"]["conditions"] = list(by_type.values())
            return self._store(path, found)
        return super()._patch(call)

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        stored = super()._store(path, obj)
        self._deliver(path)
        return stored


class Readings:
    """Reads the cluster's kubelets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._latest: dict[str, Reading] = {}
        self.past: dict[str, list[NodeMeasurement]] = {}
        """Earlier measurements by the name of the node."""
        self.refreshed: list[list[str]] = []

    def latest(self, name: str) -> Reading | None:
        return self._latest.get(name)

    def history(self, name: str) -> Sequence[NodeMeasurement]:
        found = self._latest.get(name)
        return (*self.past.get(name, ()), found) if isinstance(found, NodeMeasurement) else ()

    async def refresh(
        self,
        nodes: Sequence[Node],
        *,
        only_memory: bool,
        interval: float = 0.0,
        pods_needed: Callable[[NodeMeasurement], bool],
    ) -> None:
        assert only_memory
        self.refreshed.append([each.name for each in nodes])
        for each in nodes:
            if each.name in self._cluster.hanging:
                continue
            if each.name in self._cluster.unreadable:
                self._latest[each.name] = ReadFailure(each.name, "StatsUnreachable", "no", self._cluster.clock.now())
            else:
                measured = self._latest[each.name] = self._cluster.measure(each.name)
                assert pods_needed(measured) or True
        if any(each.name in self._cluster.hanging for each in nodes):
            await asyncio.Event().wait()

    async def close(self) -> None:
        return None


class Process:
    """One process of the operator. :meth:`kill` ends it as kill -9 does."""

    def __init__(self, cluster: Cluster, *, limits: EvictionLimits | None = None) -> None:
        self.cluster = cluster
        self.caches = Caches()
        self.stale: str | None = None
        self.leads = True
        self.recorder = FakeRecorder()
        self.registry = CollectorRegistry()
        self.readings: list[Readings] = []
        self.history = FakeHistory()
        self.evictions = FinishedEvictions()
        self.evictor = Evictor(
            clock=cluster.clock,
            view=self.caches.lister,
            limits=limits,
            metrics=self.evictions,
            history=self.history,
        )
        self.dependencies = PressureDependencies(
            api=LeaderOnlyApi(cluster, lambda: self.leads),
            evictor=self.evictor,
            lister=self.caches.lister,
            clock=cluster.clock,
            stale=lambda: self.stale,
            reporter=PressureReporter(
                self.recorder, PressureMetrics(self.registry), cluster.clock, history=self.history
            ),
            readings=self._make_readings,
            queue_metrics=WorkQueueMetrics(),
            close=self._close,
        )
        self._before = asyncio.all_tasks()
        cluster.watch(self.caches)
        self.shared = PressureCoordinator(self.dependencies)
        self.shared.start()
        self.running: dict[str, tuple[NodePressurePolicyController, Stopped, asyncio.Task[None]]] = {}

    async def put(self, name: str = "p", *, wait: float = 0.5, **spec: Any) -> None:
        """Create or change a policy, and start its controller."""
        path = NODE_PRESSURE_POLICIES.path(name)
        before = self.cluster.objects.get(path, {})
        metadata = before.get("metadata") or {"name": name, "uid": f"uid-{name}"}
        body = {
            "apiVersion": NODE_PRESSURE_POLICIES.api_version,
            "kind": NODE_PRESSURE_POLICIES.kind,
            "metadata": {**metadata, "generation": int(metadata.get("generation", 0)) + 1},
            "spec": spec,
            "status": before.get("status") or {},
        }
        self.cluster.put(path, body)
        self.run(name)
        await asyncio.sleep(wait)

    def run(self, name: str = "p") -> None:
        """Start the controller of a policy, or let it observe the policy."""
        body = self.cluster.objects[NODE_PRESSURE_POLICIES.path(name)]
        if name in self.running:
            self.running[name][0].observe(body)
            return
        controller, stopped = NodePressurePolicyController(name, self.dependencies, self.shared), Stopped()
        controller.observe(body)
        self.running[name] = (controller, stopped, asyncio.create_task(controller.run(stopped)))

    async def delete(self, name: str = "p") -> None:
        """Delete a policy as Kopf does: the daemon ends, then the deletion handler runs."""
        path = NODE_PRESSURE_POLICIES.path(name)
        uid = self.cluster.objects[path]["metadata"]["uid"]
        self.cluster.objects[path]["metadata"]["deletionTimestamp"] = rfc3339(self.cluster.clock.now())
        _, stopped, task = self.running.pop(name)
        stopped.set()
        await task
        await self.shared.remove_marks(uid)
        del self.cluster.objects[path]

    async def stop(self) -> None:
        """End the process as SIGTERM does."""
        for _, stopped, _ in self.running.values():
            stopped.set()
        await asyncio.gather(*(task for _, _, task in self.running.values()))
        self.running.clear()
        await self.shared.stop()

    async def kill(self) -> None:
        self.leads = False
        mine = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
        self.running.clear()

    def events(self) -> list[tuple[str, str]]:
        """The kind of the object and the reason of each event since the last call."""
        found = [(each["regarding"].kind, each["reason"]) for each in self.recorder.events]
        self.recorder.events.clear()
        return found

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def _make_readings(self) -> Readings:
        self.readings.append(Readings(self.cluster))
        return self.readings[-1]

    async def _close(self) -> None:
        return None


@asynccontextmanager
async def operating(cluster: Cluster, **more: Any) -> AsyncIterator[Process]:
    """Run a process until the end of the block."""
    process = Process(cluster, **more)
    try:
        yield process
    finally:
        if process.leads:
            await process.stop()
