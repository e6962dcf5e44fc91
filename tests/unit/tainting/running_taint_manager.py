"""A taint manager's whole process on a cluster in memory; tests of the controller import it.

Times are seconds since the start of the loop's clock.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tests.builders import PodBuilder, node, pod
from tests.building import Builder
from tests.fakes.api import Call, FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.fakes.daemon import Stopped
from tests.fakes.json_patch import patch
from trimtab.api.plan import rfc3339
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import Conflict, LeaderOnlyApi
from trimtab.kube.objects import Lease, Node, Pod
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.kube.wire.decode import decode_object
from trimtab.tainting.controller import TaintManagerController
from trimtab.tainting.deadlines import SINCE_ANNOTATION
from trimtab.tainting.dependencies import TaintingDependencies

PATH = TAINT_MANAGERS.path("default")
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/shop/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
PLACES = {"Node": NODES, "Pod": PODS, "Lease": LEASES}
JSON_PATCH, STRATEGIC_PATCH = "application/json-patch+json", "application/strategic-merge-patch+json"


class Cell(FakeApi):
    """Objects, and a watch of them; pods end at once when they are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = LoopClock()
        self.caches: Caches | None = None
        self.cut = False
        """Whether the watch is cut: what happens then is told by a list later on."""
        self.gone: list[tuple[str, float]] = []
        """Uids of the pods that were deleted or evicted, each with when."""
        self._told: dict[str, Node | Pod | Lease] = {}

    # --- what people do ------------------------------------------------------------------------------------------

    def add(self, *builders: Builder) -> None:
        for builder in builders:
            manifest = builder.manifest()
            path = f"{PLACES[manifest['kind']]}/{manifest['metadata']['name']}"
            self._store(path, manifest)

    def taint(self, name: str, key: str = "a", *, added: float | None = None, value: str = "") -> None:
        """Put a NoExecute taint on a node: as kubectl does, unless it is said when it was put on."""
        manifest = copy.deepcopy(self.objects[f"{NODES}/{name}"])
        taint = {"key": key, "effect": "NoExecute"} | ({"value": value} if value else {})
        if added is not None:
            taint["timeAdded"] = rfc3339(START + added)
        manifest["spec"].setdefault("taints", []).append(taint)
        self._store(f"{NODES}/{name}", manifest)

    def untaint(self, name: str, key: str = "a") -> None:
        manifest = copy.deepcopy(self.objects[f"{NODES}/{name}"])
        manifest["spec"]["taints"] = [each for each in manifest["spec"]["taints"] if each["key"] != key]
        self._store(f"{NODES}/{name}", manifest)

    def drop(self, path: str) -> None:
        """Take an object away behind everybody's back."""
        del self.objects[path]
        self._tell(path)

    # --- what is seen --------------------------------------------------------------------------------------------

    def note(self, name: str) -> str | None:
        found: str | None = self.objects[f"{NODES}/{name}"]["metadata"].get("annotations", {}).get(SINCE_ANNOTATION)
        return found

    def writes(self) -> list[str]:
        """What was asked for of nodes and pods that would change them."""
        return [
            f"{call.method} {call.path}"
            for call in self.calls
            if call.method not in ("GET", "WATCH") and ("/nodes" in call.path or "/pods" in call.path)
        ]

    # --- the watch -----------------------------------------------------------------------------------------------

    def watch(self, caches: Caches | None) -> None:
        """Deliver all there is and every change from now on to these caches."""
        self.caches, self._told = caches, {}
        self.relist()

    def relist(self) -> None:
        """Tell what has changed since the watch was cut: only how things are now."""
        self.cut = False
        for path in sorted({*self.objects, *self._told}):
            self._tell(path)

    def _tell(self, path: str) -> None:
        if self.cut or self.caches is None or path.rpartition("/")[0] not in PLACES.values():
            return
        old, new = self._told.get(path), None
        if path in self.objects:
            new = decode_object(copy.deepcopy(self.objects[path]))
            assert isinstance(new, Node | Pod | Lease)
        if old is not None and new is not None:
            if old.uid != new.uid:
                self._hand_on(old, None)
                old = None
            elif old.resource_version == new.resource_version:
                return
        if new is None:
            self._told.pop(path, None)
        else:
            self._told[path] = new
        if old is not None or new is not None:
            self._hand_on(old, new)

    def _hand_on(self, old: Any, new: Any) -> None:
        assert self.caches is not None
        self.caches.apply(old, new)

    # --- the API server ------------------------------------------------------------------------------------------

    def _answer(self, call: Call) -> Any:
        if call.method != "DELETE":
            return super()._answer(call)
        path = self._existing(call.path)
        wanted, uid = call.body.get("preconditions", {}).get("uid"), self.objects[path]["metadata"]["uid"]
        if wanted not in (None, uid):
            raise Conflict(f"UID in precondition: {wanted}, UID in object meta: {uid}", status=409, reason="Conflict")
        return self._end(path)

    def _evict(self, call: Call) -> Any:
        path = call.path.removesuffix("/eviction")
        uid = self.objects[self._existing(path)]["metadata"]["uid"]
        response = super()._evict(call)
        self.gone.append((uid, self._seconds()))
        self._tell(path)
        return response

    def _end(self, path: str) -> Any:
        ended = self.objects.pop(path)
        self.gone.append((ended["metadata"]["uid"], self._seconds()))
        self._tell(path)
        return ended

    def _patch(self, call: Call) -> Any:
        path = self._existing(call.path.removesuffix("/status"))
        found = self.objects[path]
        if call.content_type == JSON_PATCH:
            return self._store(path, patch(copy.deepcopy(found), call.body))
        wanted = (call.body.get("metadata") or {}).get("uid")
        if wanted not in (None, found["metadata"]["uid"]):
            raise Conflict("the UID in the request is not that of the object", status=409, reason="Conflict")
        if call.content_type == STRATEGIC_PATCH:
            found = copy.deepcopy(found)
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
            conditions |= {each["type"]: each for each in call.body.get("status", {}).get("conditions", ())}
            found.setdefault("status", {})["conditions"] = list(conditions.values())
            return self._store(path, found)
        return super()._patch(call)

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        obj.setdefault("spec", {})
        if not obj["spec"].get("taints", True):
            del obj["spec"]["taints"]
        stored = super()._store(path, obj)
        self._tell(path)
        return stored

    def _seconds(self) -> float:
        return round(self.clock.now() - START, 1)


class QuietReporter:
    """Stores events."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *values, **_named: self.recorded.append((name, values))


class Process:
    """One process of ours with its TaintManager; `kill` ends it as kill -9 does."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.caches = Caches()
        self.wrong: str | None = None
        self.blind: str | None = None
        self.hung: str | None = None
        self.leads = True
        self.followed = True
        self.reporter = QuietReporter()
        self.dependencies = TaintingDependencies(
            api=LeaderOnlyApi(cell, lambda: self.leads),
            lister=self.caches.lister,
            clock=cell.clock,
            evictor=Evictor(clock=cell.clock, view=self.caches.lister),
            reporter=self.reporter,
            stale=lambda: self.wrong,
            watches_verified_at=cell.clock.now,
            namespace="trimtab-system",
            nodes_in_sync=lambda: self.followed,
            stale_leases=lambda: self.blind,
            stalled_watch=lambda: self.hung,
        )
        self.controller = TaintManagerController(self.dependencies)
        self.stopped = Stopped()
        self._before = asyncio.all_tasks()
        cell.watch(self.caches)
        self.loop: asyncio.Task[None] | None = None
        self._generation = 0

    # --- what people do ------------------------------------------------------------------------------------------

    def write(self, *, name: str = "default", uid: str = "tm-1", **spec: Any) -> dict[str, Any]:
        """Apply the TaintManager, as a watch brings it."""
        self._generation += 1
        body: dict[str, Any] = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TaintManager",
            "metadata": {"name": name, "uid": uid, "generation": self._generation},
            "spec": spec,
        }
        path = TAINT_MANAGERS.path(name)
        if path in self.cell.objects:
            body["status"] = self.cell.objects[path].get("status", {})
        self.cell.put(path, body)
        if name == "default":
            self.controller.observe(body)
        return body

    async def start(self, **spec: Any) -> None:
        """Begin, with this spec."""
        self.write(**spec)
        self.loop = asyncio.create_task(self.controller.run(self.stopped), name="loop")
        await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """As a rollout does."""
        self.stopped.event.set()
        assert self.loop is not None
        await self.loop

    async def kill(self) -> None:
        self.cell.watch(None)
        tasks = asyncio.all_tasks() - self._before - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- what is seen --------------------------------------------------------------------------------------------

    @property
    def status(self) -> Mapping[str, Any]:
        found: dict[str, Any] = self.cell.objects[PATH].get("status", {})
        return found

    def condition(self, type_: str) -> tuple[str, str]:
        for each in self.status.get("conditions", ()):
            if each["type"] == type_:
                return each["status"], each["reason"]
        return "", ""

    async def until(self, holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
        end = self.cell.clock.monotonic() + seconds
        while not holds():
            assert self.cell.clock.monotonic() < end, f"not within {seconds} s: {self.status}"
            await asyncio.sleep(0.1)


@asynccontextmanager
async def running(cell: Cell, **spec: Any) -> AsyncIterator[Process]:
    """A process with a TaintManager; at the end it is killed."""
    process = Process(cell)
    try:
        await process.start(**spec)
        yield process
        assert process.loop is not None
        if process.loop.done():
            process.loop.result()
    finally:
        await process.kill()


def a_cell(*nodes: str) -> Cell:
    """A cluster with these nodes, ready."""
    cell = Cell()
    cell.add(*(node(each).uid(f"uid-{each}") for each in nodes or ("n1",)))
    return cell


def a_pod(name: str = "web", on: str = "n1", *, key: str = "a", seconds: int | None = None) -> PodBuilder:
    """A pod that has been on its node for long, and bears a taint for so many seconds; not at all without."""
    made = pod(name).uid(f"uid-{name}").on(on).started(rfc3339(START - 1000)).grace_period(1)
    return made if seconds is None else made.tolerates(key, effect="NoExecute", seconds=seconds)
