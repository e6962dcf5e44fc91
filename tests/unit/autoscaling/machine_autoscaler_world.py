"""A fake API server with MachineAutoscalers and targets, and the controller that reconciles them."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import LoopClock
from tests.fakes.json_patch import patch
from trimtab.autoscaling.machine_autoscalers import MachineAutoscalerController
from trimtab.autoscaling.machine_autoscalers.registry import OPENSHIFT_FINALIZER
from trimtab.kube.objects import KubeObject
from trimtab.kube.resources import MACHINE_AUTOSCALERS, MACHINE_SETS, ObjectReference, Resource
from trimtab.kube.wire.decode import decode_object

NS = "openshift-machine-api"
MIN = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
MAX = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
OWNER = "autoscaling.openshift.io/machineautoscaler"
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
JSON_PATCH = "application/json-patch+json"


class Server(FakeApi):
    """The fake API with atomic JSON patches, finalizers and watches."""

    def __init__(self) -> None:
        super().__init__()
        self.managed_by_openshift = False
        self.shown: asyncio.Queue[tuple[str, dict[str, Any] | None, dict[str, Any] | None]] = asyncio.Queue()

    def _patch(self, call: Call) -> Any:
        path = call.path.removesuffix("/status")
        if call.content_type != JSON_PATCH:
            body = copy.deepcopy(call.body)
            stored = self.objects[self._existing(path)]
            uid = body.get("metadata", {}).pop("uid", None)
            assert uid in (None, stored["metadata"]["uid"])
            if self.managed_by_openshift:  # its CRD has no other field, and a write without a change has no effect
                body["status"] = {key: body["status"][key] for key in ("lastTargetRef",) if key in body["status"]}
                if (stored.get("status") or {}).items() >= {k: v for k, v in body["status"].items() if v}.items():
                    return stored
            return super()._patch(Call(call.method, call.path, call.params, body, call.content_type))
        found = copy.deepcopy(self.objects[self._existing(path)])
        return self._store(path, patch(found, call.body))

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        old = self.objects.get(path)
        stored = super()._store(path, obj)
        metadata = stored["metadata"]
        metadata["generation"] = metadata.get("generation", 1)
        if old is not None and old.get("spec") != stored.get("spec"):
            metadata["generation"] += 1
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[path]
            self.shown.put_nowait((path, copy.deepcopy(stored), None))
        else:
            self.shown.put_nowait((path, copy.deepcopy(old), copy.deepcopy(stored)))
        return stored

    def vanish(self, path: str) -> None:
        """Delete an object like `kubectl delete`: immediately, or once it has no finalizers."""
        obj = copy.deepcopy(self.objects[path])
        if obj["metadata"].get("finalizers"):
            obj["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
            self._store(path, obj)
        else:
            del self.objects[path]
            self.shown.put_nowait((path, obj, None))


class Recorder:
    """Records events: reason and note."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: ObjectReference, *, reason: str, note: str, type: str = "Normal", **_: Any) -> None:  # noqa: A002
        self.events.append((regarding.name, reason, note))
        self.types = {**getattr(self, "types", {}), reason: type}

    def reasons(self, name: str = "") -> list[str]:
        return [reason for regarding, reason, _ in self.events if name in ("", regarding)]


class World:
    """A namespace, and one leading process; an async context manager."""

    def __init__(self, *, lag: float = 0.0, server: Server | None = None) -> None:
        self.server = server or Server()
        self.lag = lag
        self.lead = True
        self.stale: str | None = None
        self.changes = 0
        self.recorder = Recorder()
        self.clock = LoopClock()
        self.controller = MachineAutoscalerController(
            api=self.server,
            recorder=self.recorder,
            leading=lambda: self.lead,
            stale=lambda: self.stale,
            changed=self._changed,
            clock=self.clock,
        )
        self._showing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> World:
        while not self.server.shown.empty():
            self.server.shown.get_nowait()
        for path, obj in list(self.server.objects.items()):
            self._show(path, None, obj)
        self._showing = asyncio.create_task(self._show_changes())
        self.controller.start()
        await self.settled()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.controller.stop()
        await self.killed()

    async def killed(self) -> None:
        """Kill the process."""
        assert self._showing is not None
        self._showing.cancel()
        await self.controller._tasks.cancel()
        await asyncio.gather(self._showing, return_exceptions=True)

    async def settled(self, seconds: float = 5.0) -> None:
        await asyncio.sleep(seconds)

    def _changed(self) -> None:
        self.changes += 1

    async def _show_changes(self) -> None:
        while True:
            change = await self.server.shown.get()
            await asyncio.sleep(self.lag)
            self._show(*change)

    def _show(self, path: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if f"/{MACHINE_AUTOSCALERS.plural}/" in path:
            body = new or old
            assert body is not None
            self.controller.observe(body, deleted=new is None)
        else:
            self.controller.target_changed(_value(old), _value(new))

    # Actions of users.

    def make_set(self, name: str = "a", *, replicas: int | None = 1, **annotations: str) -> str:
        return self.put(MACHINE_SETS, name, {"replicas": replicas}, annotations=_keys(annotations))

    def put(
        self,
        resource: Resource,
        name: str,
        spec: dict[str, Any],
        *,
        annotations: Mapping[str, str] | None = None,
        namespace: str = NS,
        **more: Any,
    ) -> str:
        path = resource.path(name, namespace=namespace)
        metadata: dict[str, Any] = {"name": name, "namespace": namespace}
        if annotations:
            metadata["annotations"] = dict(annotations)
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec, **more}
        self.server.put(path, obj)
        return path

    def make(
        self,
        name: str = "ma",
        *,
        low: int = 1,
        high: int = 5,
        target: str = "a",
        kind: str = "MachineSet",
        version: str = "machine.openshift.io/v1beta1",
        created: str = "2026-11-20T12:00:00Z",
        finalizers: tuple[str, ...] = (),
        status: dict[str, Any] | None = None,
    ) -> str:
        path = MACHINE_AUTOSCALERS.path(name, namespace=NS)
        metadata: dict[str, Any] = {"name": name, "namespace": NS, "creationTimestamp": created}
        if finalizers:
            metadata["finalizers"] = list(finalizers)
        body = {
            "apiVersion": MACHINE_AUTOSCALERS.api_version,
            "kind": MACHINE_AUTOSCALERS.kind,
            "metadata": metadata,
            "spec": {
                "minReplicas": low,
                "maxReplicas": high,
                "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": target},
            },
        }
        if status is not None:
            body["status"] = status
        self.server.put(path, body)
        return path

    def edit(self, path: str, **spec: Any) -> None:
        obj = copy.deepcopy(self.server.objects[path])
        obj["spec"].update(spec)
        self.server.put(path, obj)

    def annotate(self, path: str, annotations: Mapping[str, str | None]) -> None:
        obj = copy.deepcopy(self.server.objects[path])
        there = obj["metadata"].setdefault("annotations", {})
        for key, text in annotations.items():
            there.pop(key, None)
            if text is not None:
                there[key] = text
        self.server.put(path, obj)

    # Observations.

    def annotations(self, path: str) -> dict[str, str]:
        found: dict[str, str] = self.server.objects[path]["metadata"].get("annotations", {})
        return found

    def limits(self, path: str) -> tuple[str | None, str | None, str | None]:
        found = self.annotations(path)
        return found.get(MIN), found.get(MAX), found.get(OWNER)

    def status(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.objects[path].get("status", {})
        return found

    def ready(self, path: str) -> tuple[str, str]:
        [condition] = [each for each in self.status(path).get("conditions", []) if each["type"] == "Ready"]
        return condition["status"], condition["reason"]

    def message(self, path: str) -> str:
        [condition] = [each for each in self.status(path).get("conditions", []) if each["type"] == "Ready"]
        return str(condition["message"])

    def writes(self, part: str = "") -> list[Call]:
        return [call for call in self.server.calls if call.method != "GET" and part in call.path]

    def has_finalizer(self, path: str) -> bool:
        return OPENSHIFT_FINALIZER in self.server.objects[path]["metadata"].get("finalizers", [])


def _value(obj: dict[str, Any] | None) -> KubeObject | None:
    return None if obj is None else decode_object(obj)


def _keys(annotations: Mapping[str, str]) -> dict[str, str]:
    """``vCPU="4"`` as the machine controllers write it."""
    return {f"machine.openshift.io/{key}": text for key, text in annotations.items()}
