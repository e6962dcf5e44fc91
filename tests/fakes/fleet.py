"""A small cluster in memory that lives: pods are bound and end, machines come and go, budgets hold.

Its objects are behind the `Api` seam of :class:`tests.fakes.api.FakeApi` and, as watches would bring them, in
`Caches`. A scheduler binds pending pods, a kubelet lets evicted ones end, a ReplicaSet creates each again, and a
machine controller deletes or makes machines until there are as many as their set wants. `lowest` has the fewest ready
pods of each budget at any moment.
"""

from __future__ import annotations

import asyncio
import copy
from datetime import UTC, datetime
from typing import Any

from tests.builders import cluster_machine_set, machine_set, node, pod
from tests.building import Builder
from tests.fakes.api import Call, FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.fakes.json_patch import patch
from trimtab.api.plan import rfc3339
from trimtab.kube.api import Conflict, Invalid, TooManyRequests
from trimtab.kube.objects.machine import MACHINE_API
from trimtab.kube.wire.decode import decode_object

M = "openshift-machine-api"
MACHINE_ROOT = f"/apis/{MACHINE_API}/v1beta1/namespaces/{M}"
SETS, MACHINES = f"{MACHINE_ROOT}/machinesets", f"{MACHINE_ROOT}/machines"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/shop/pods"
BUDGETS = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"
MARK = "machine.openshift.io/delete-machine"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"
REMOVAL_IN_PROGRESS = "trimtab.dev/removal-in-progress"
SINCE = "trimtab.dev/unneeded-since"
PLURALS = {
    "Node": NODES,
    "Pod": PODS,
    "MachineSet": SETS,
    "Machine": MACHINES,
    "PodDisruptionBudget": BUDGETS,
}


class Fleet(FakeApi):
    """The cluster; `caches` have what a watch of it delivers."""

    def __init__(self, clock: LoopClock | None = None, *, api_group: str = MACHINE_API) -> None:
        super().__init__()
        self._make_set = machine_set if api_group == MACHINE_API else cluster_machine_set
        version = "v1beta1" if api_group == MACHINE_API else "v1beta2"
        root = f"/apis/{api_group}/{version}/namespaces/{M}"
        self.sets, self.machines, self.mark = f"{root}/machinesets", f"{root}/machines", f"{api_group}/delete-machine"
        self.plurals = PLURALS | {"MachineSet": self.sets, "Machine": self.machines}
        self.clock = clock or LoopClock()
        self.caches = Caches()
        self.ends_after = 0.2
        """Seconds until an evicted pod is gone."""
        self.deletes = True
        """Whether the machine controller works."""
        self.binds = True
        """Whether the scheduler does."""
        self.frozen = False
        """Whether budgets stay as they are counted; then their evictions are refused where `refuses` says so."""
        self.refuses = True
        """Whether a frozen budget refuses, whatever its status says: the disruption controller's is newer."""
        self.lowest: dict[str, int] = {}
        self.evictions: list[str] = []
        self.mark_lag = self.size_lag = 0.0
        """Seconds after which the machine controller sees marks of machines and sizes of sets."""
        self.lost: list[str] = []
        """Pods that ended with their machine, without an eviction."""
        self._made = 0
        self._fields: dict[tuple[str, str], list[tuple[float, Any]]] = {}

    # --- building ------------------------------------------------------------------------------------------------

    def add(self, *builders: Builder) -> None:
        for builder in builders:
            manifest = builder.manifest()
            self._store(f"{self.plurals[manifest['kind']]}/{manifest['metadata']['name']}", manifest)

    def group(self, name: str, *nodes: str, least: int = 0, most: int = 10, unneeded: bool = True) -> None:
        """A MachineSet with a machine and a node for each name."""
        made = self._make_set(name, M).limits(least, most).replicas(len(nodes))
        self.add(made)
        since = rfc3339(START - 3600)
        for each in nodes:
            built = node(each).annotations({"kept": "yes"})
            self.add(built.annotations({SINCE: since}) if unneeded else built, made.machine(f"m-{each}").on(each))

    def web(self, name: str, on: str = "", *, app: str = "web", cpu: str = "500m") -> None:
        """A pod of a ReplicaSet; pending without a node."""
        made = pod(name).cpu(cpu).memory("1Gi").labels(app=app).owned_by("ReplicaSet", app).grace_period(1)
        self.add(made.on(on).ready() if on else made.unschedulable())

    def guard(self, app: str, least: int) -> None:
        """A PodDisruptionBudget."""
        manifest = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": app, "namespace": "shop", "generation": 1},
            "spec": {"selector": {"matchLabels": {"app": app}}, "minAvailable": least},
            "status": {"observedGeneration": 1},
        }
        self._store(f"{BUDGETS}/{app}", manifest)
        self._count()

    # --- looking -------------------------------------------------------------------------------------------------

    def spec(self, name: str) -> dict[str, Any]:
        return self.objects[f"{NODES}/{name}"].get("spec") or {}

    def nodes(self) -> list[str]:
        return sorted(path.rpartition("/")[2] for path in self.objects if path.startswith(f"{NODES}/"))

    def replicas(self, name: str) -> int:
        return int(self.objects[f"{self.sets}/{name}"]["spec"].get("replicas", 0))

    def scale(self, name: str, replicas: int) -> None:
        found = copy.deepcopy(self.objects[f"{self.sets}/{name}"])
        found["spec"]["replicas"] = replicas
        self._store(f"{self.sets}/{name}", found)

    def edit(self, path: str, **fields: Any) -> None:
        """Merge into an object behind everybody's back."""
        self._store(path, _merge(copy.deepcopy(self.objects[path]), fields))

    def traces(self) -> dict[str, list[str]]:
        """What removals have left on nodes and machines, by name."""
        found: dict[str, list[str]] = {}
        for path, each in self.objects.items():
            spec, annotations = each.get("spec") or {}, each["metadata"].get("annotations") or {}
            traces = [taint["key"] for taint in spec.get("taints") or () if taint["key"] == TO_BE_DELETED]
            traces += [
                key for key in annotations if key in ("trimtab.dev/removing", "trimtab.dev/cordoned-by", self.mark)
            ]
            traces += [key for key in annotations if key == REMOVAL_IN_PROGRESS]
            traces += ["cordoned"] if spec.get("unschedulable") else []
            if traces:
                found[path.rpartition("/")[2]] = traces
        return found

    def app(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self._pods() if each["metadata"]["labels"].get("app") == name]

    # --- living --------------------------------------------------------------------------------------------------

    async def live_on(self) -> None:
        """Run what runs in a cluster; until it is cancelled."""
        while True:
            await asyncio.sleep(0.1)
            if self.binds:
                self._schedule()
            if self.deletes:
                self._machines()

    def _schedule(self) -> None:
        for each in self._pods():
            if each["spec"].get("nodeName"):
                continue
            for name in self.nodes():
                spec = self.spec(name)
                hard = [taint for taint in spec.get("taints") or () if taint["effect"] == "NoSchedule"]
                if spec.get("unschedulable") or hard or self._free(name) < _cpu(each):
                    continue
                bound = pod(each["metadata"]["name"]).on(name).ready().manifest()["status"]
                self.edit(f"{PODS}/{each['metadata']['name']}", spec={"nodeName": name}, status=bound)
                break

    def _free(self, name: str) -> int:
        taken = [_cpu(each) for each in self._pods() if each["spec"].get("nodeName") == name]
        return 4000 - sum(taken)

    def _machines(self) -> None:
        for path in [each for each in self.objects if each.startswith(f"{self.sets}/")]:
            name = path.rpartition("/")[2]
            there = self._of(name)
            going = [each for each in there if each["metadata"].get("deletionTimestamp")]
            for each in going:
                self._gone(each)
            alive = [each for each in there if each not in going]
            marked = sorted(alive, key=lambda each: (not self._goes_first(each), each["metadata"]["name"]))
            size = self._seen(path, "size", self.replicas(name), self.size_lag)
            for each in marked[: max(0, len(alive) - size)]:
                self.edit(f"{self.machines}/{each['metadata']['name']}", metadata={"deletionTimestamp": self._now()})

    def _goes_first(self, machine: dict[str, Any]) -> bool:
        """The Machine API's controller ranks a failed machine and a marked one the same."""
        tie = self.mark == MARK and (machine.get("status") or {}).get("phase") == "Failed"
        return tie or self._seen_marked(machine)

    def _seen_marked(self, machine: dict[str, Any]) -> bool:
        path = f"{self.machines}/{machine['metadata']['name']}"
        return bool(self._seen(path, "mark", self._marked(machine), self.mark_lag))

    def _seen(self, path: str, field: str, value: Any, lag: float) -> Any:
        """A field as a cache shows it that lags: every value becomes visible so many seconds after it was written."""
        history = self._fields.get((path, field), [])
        visible = [each for at, each in history if at <= self.clock.monotonic() - lag]
        return visible[-1] if visible else history[0][1] if history else value

    def _marked(self, machine: dict[str, Any]) -> bool:
        return self.mark in machine["metadata"].get("annotations", {})

    def _note(self, path: str, obj: dict[str, Any]) -> None:
        """Remember when the fields were written that the machine controller reads."""
        values = {"size": obj.get("spec", {}).get("replicas", 0)} if path.startswith(f"{self.sets}/") else {}
        values |= {"mark": self._marked(obj)} if path.startswith(f"{self.machines}/") else {}
        for field, value in values.items():
            history = self._fields.setdefault((path, field), [])
            if not history or history[-1][1] != value:
                history.append((self.clock.monotonic() if history else float("-inf"), value))

    def _of(self, name: str) -> list[dict[str, Any]]:
        return [
            each
            for path, each in sorted(self.objects.items())
            if path.startswith(f"{self.machines}/") and each["metadata"]["ownerReferences"][0]["name"] == name
        ]

    def _gone(self, machine: dict[str, Any]) -> None:
        on = machine["status"].get("nodeRef", {}).get("name")
        if on and f"{NODES}/{on}" in self.objects:
            for each in self._pods():
                if each["spec"].get("nodeName") == on:
                    self.lost.append(each["metadata"]["name"])
                    self._renew(each)
                    self._end(f"{PODS}/{each['metadata']['name']}")
            self.drop(f"{NODES}/{on}")
        self.drop(f"{self.machines}/{machine['metadata']['name']}")

    def _pods(self) -> list[dict[str, Any]]:
        return [each for path, each in sorted(self.objects.items()) if path.startswith(f"{PODS}/")]

    def _end(self, path: str) -> None:
        if path in self.objects:
            self.drop(path)

    def _renew(self, old: dict[str, Any]) -> None:
        owners = old["metadata"].get("ownerReferences") or ()
        if any(owner["kind"] == "ReplicaSet" for owner in owners):
            self._made += 1
            manifest = pod(f"new-{self._made}").unschedulable().manifest()
            manifest["spec"] = {key: value for key, value in old["spec"].items() if key != "nodeName"}
            manifest["metadata"] |= {key: old["metadata"][key] for key in ("labels", "ownerReferences")}
            self._store(f"{PODS}/{manifest['metadata']['name']}", manifest)

    # --- the API server ------------------------------------------------------------------------------------------

    def _evict(self, call: Call) -> Any:
        path = self._existing(call.path.removesuffix("/eviction"))
        found = self.objects[path]
        uid = call.body["deleteOptions"]["preconditions"]["uid"]
        if uid != found["metadata"]["uid"]:
            raise Conflict(f"Precondition failed: UID in precondition: {uid}", status=409, reason="Conflict")
        if found["metadata"].get("deletionTimestamp"):
            return {}
        budget = self.objects.get(f"{BUDGETS}/{found['metadata']['labels'].get('app')}")
        allowed = budget is None or budget["status"]["disruptionsAllowed"] > 0
        if budget is not None and (self.refuses if self.frozen else not allowed):
            causes = ({"reason": "DisruptionBudget", "message": "no disruption is allowed"},)
            raise TooManyRequests("Cannot evict pod", status=429, causes=causes)
        self.evictions.append(path.rpartition("/")[2])
        self.edit(path, metadata={"deletionTimestamp": self._now()})
        self._renew(found)
        asyncio.get_running_loop().call_later(self.ends_after, self._end, path)
        return {}

    def _get(self, path: str) -> Any:
        if path.endswith("/scale"):
            found = self.objects[self._existing(path.removesuffix("/scale"))]
            return {"metadata": dict(found["metadata"]), "spec": {"replicas": found["spec"].get("replicas", 0)}}
        return super()._get(path)

    def _patch(self, call: Call) -> Any:
        if call.content_type != "application/json-patch+json":
            return super()._patch(call)
        if call.path.endswith("/scale"):
            scale = self._get(call.path)
            if not scale["spec"]["replicas"]:
                del scale["spec"]["replicas"]
            patched = patch(scale, call.body)
            self.scale(call.path.split("/")[-2], int(patched["spec"].get("replicas", 0)))
            return patched
        found = patch(copy.deepcopy(self.objects[self._existing(call.path)]), call.body)
        _check_taints(found)
        return self._store(call.path, found)

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        old = self.objects.get(path)
        stored = super()._store(path, _tidy(obj))
        self._note(path, stored)
        if "kind" in stored and stored["kind"] in self.plurals:
            before = None if old is None else decode_object(copy.deepcopy(old))
            self.caches.apply(before, decode_object(copy.deepcopy(stored)))
            self._count(besides=path)
        return stored

    def drop(self, path: str) -> None:
        """Take an object away behind everybody's back."""
        old = self.objects.pop(path)
        self.caches.apply(decode_object(copy.deepcopy(old)), None)
        self._count()

    def _count(self, besides: str = "") -> None:
        """The disruption controller, at once."""
        for path in [each for each in self.objects if each.startswith(f"{BUDGETS}/") and each != besides]:
            if self.frozen:
                continue
            found = copy.deepcopy(self.objects[path])
            app, least = found["metadata"]["name"], found["spec"]["minAvailable"]
            ready = sum(_ready(each) for each in self.app(app))
            self.lowest[app] = min(self.lowest.get(app, ready), ready)
            status = {
                "observedGeneration": 1,
                "disruptionsAllowed": max(0, ready - least),
                "currentHealthy": ready,
                "desiredHealthy": least,
                "expectedPods": len(self.app(app)),
            }
            if found["status"] != status:
                found["status"] = status
                self._store(path, found)

    def _now(self) -> str:
        return datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_taints(found: dict[str, Any]) -> None:
    taints = [(each["key"], each["effect"]) for each in (found.get("spec") or {}).get("taints") or ()]
    if len(set(taints)) < len(taints):
        raise Invalid("spec.taints: Duplicate value", status=422, reason="Invalid")


def _tidy(obj: dict[str, Any]) -> dict[str, Any]:
    """Empty fields are left out."""
    spec, metadata = obj.get("spec") or {}, obj.get("metadata") or {}
    for part, key in ((spec, "taints"), (spec, "unschedulable"), (metadata, "annotations")):
        if key in part and not part[key]:
            del part[key]
    return obj


def _merge(into: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    for key, value in fields.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value
    return into


def _ready(each: dict[str, Any]) -> bool:
    return bool(each["spec"].get("nodeName")) and "deletionTimestamp" not in each["metadata"]


def _cpu(each: dict[str, Any]) -> int:
    text = each["spec"]["containers"][0].get("resources", {}).get("requests", {}).get("cpu", "0m")
    return int(text.removesuffix("m")) if text.endswith("m") else 1000 * int(text)
