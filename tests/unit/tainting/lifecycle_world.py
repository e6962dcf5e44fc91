"""A cluster whose nodes live and fail in virtual time, and the node lifecycle's loop at work on it, kills included.

Kubelets renew their Leases every ten seconds, each at its own moment; times are seconds since the beginning.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.fakes.api import Call, FakeApi
from tests.fakes.caches import Caches
from tests.fakes.clock import START, LoopClock
from tests.fakes.json_patch import patch
from tests.fakes.taint_reporter import FakeTaintReporter
from trimtab.api.taint_manager import NodeLifecycle
from trimtab.disruption.evictor import Evictor
from trimtab.kube.api import Conflict
from trimtab.kube.objects import Lease, Node
from trimtab.kube.wire.decode import decode_object
from trimtab.tainting.dependencies import ActionCounts, TaintingDependencies
from trimtab.tainting.lifecycle import NodeLifecycleController

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/shop/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RECORD = "/api/v1/namespaces/trimtab/configmaps/trimtab-taint-manager"
KINDS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
WATCHED = (NODES, PODS, LEASES)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(int(START + seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class LivingCluster(FakeApi):
    """The API server and its kubelets.

    Attributes:
        dead: nodes whose kubelets say nothing.
        blind: whether the watches tell nothing.
        lag: seconds by which they tell late.
        tainted: which node got a NoExecute taint when.
        freed: which node lost its last one when.
        unknown: which node's Ready condition became Unknown when.
    """

    def __init__(self, *, lag: float = 0.02) -> None:
        super().__init__()
        self.dead: set[str] = set()
        self.blind = False
        self.lag = lag
        self.showing: Callable[[str, dict[str, Any] | None, dict[str, Any] | None], None] | None = None
        self.heard: float | None = None
        self.tainted: list[tuple[str, float]] = []
        self.freed: list[tuple[str, float]] = []
        self.unknown: list[tuple[str, float]] = []

    @property
    def time(self) -> float:
        return asyncio.get_running_loop().time()

    # ── what happens in the cluster ─────────────────────────────────────────────────────────────────────────────

    def join(self, name: str, *, zone: str = "", pods: int = 1, ready: str | None = "True", taints: Any = ()) -> None:
        labels = {"topology.kubernetes.io/zone": zone} if zone else {}
        metadata = {
            "name": name,
            "uid": f"uid-{name}-{self._version}",
            "creationTimestamp": stamp(self.time - 3600 * (ready is not None)),
        }
        status = {"conditions": self._conditions(ready)} if ready is not None else {}
        spec = {"taints": [dict(each) for each in taints]} if taints else {}
        metadata["labels"] = labels
        self.put(
            f"{NODES}/{name}",
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status},
        )
        if ready is not None:
            self.renew(name)
        for place in range(pods):
            pod = f"{name}-{place}"
            conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": stamp(-1800)}]
            self.put(
                f"{PODS}/{pod}",
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": pod, "namespace": "shop", "uid": f"uid-{pod}"},
                    "spec": {"nodeName": name, "containers": []},
                    "status": {"phase": "Running", "conditions": conditions},
                },
            )

    def _conditions(self, ready: str) -> list[dict[str, str]]:
        return [
            {
                "type": kind,
                "status": ready if kind == "Ready" else "False",
                "lastHeartbeatTime": stamp(self.time),
                "lastTransitionTime": stamp(self.time),
            }
            for kind in KINDS
        ]

    def renew(self, name: str) -> None:
        path = f"{LEASES}/{name}"
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": micro(self.time)}
        metadata = {"name": name, "namespace": "kube-node-lease"}
        self.put(path, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})

    def post(self, name: str, ready: str = "True") -> None:
        """Its kubelet posts how it is."""
        node = copy.deepcopy(self.objects[f"{NODES}/{name}"])
        node["status"] = {"conditions": self._conditions(ready)}
        self.put(f"{NODES}/{name}", node)

    def recover(self, *names: str) -> None:
        self.dead.difference_update(names)
        for name in names:
            self.renew(name)
            self.post(name)

    def drop(self, path: str) -> None:
        old = self.objects.pop(path)
        self._show(path, old, None)

    async def kubelets(self) -> None:
        """They renew for ever."""
        second = 0
        while True:
            await asyncio.sleep(1.0)
            second += 1
            for place, path in enumerate(sorted(each for each in self.objects if each.startswith(f"{NODES}/"))):
                name = path.rpartition("/")[2]
                if name not in self.dead and (second + place) % 10 == 0 and f"{LEASES}/{name}" in self.objects:
                    self.renew(name)

    # ── the API server ──────────────────────────────────────────────────────────────────────────────────────────

    def _patch(self, call: Call) -> Any:
        path = call.path.removesuffix("/status")
        if call.content_type == "application/json-patch+json":
            return self._store(path, patch(copy.deepcopy(self.objects[self._existing(path)]), call.body))
        if call.content_type == "application/strategic-merge-patch+json":
            found = copy.deepcopy(self.objects[self._existing(path)])
            for key in ("uid", "resourceVersion"):
                if found["metadata"][key] != call.body["metadata"][key]:
                    raise Conflict("the object has been modified", status=409, reason="Conflict")
            for condition in call.body["status"]["conditions"]:
                [mine] = [each for each in found["status"]["conditions"] if each["type"] == condition["type"]]
                mine |= condition
            return self._store(path, found)
        return super()._patch(call)

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        old = self.objects.get(path)
        stored = super()._store(path, obj)
        if path.startswith(f"{NODES}/"):
            self._note(old or {}, stored)
        self._show(path, old, stored)
        return stored

    def _note(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        name = new["metadata"]["name"]
        before, after = _executing(old), _executing(new)
        if after and not before:
            self.tainted.append((name, round(self.time, 1)))
        if before and not after:
            self.freed.append((name, round(self.time, 1)))
        if _ready(new) == "Unknown" != _ready(old):
            self.unknown.append((name, round(self.time, 1)))

    def _show(self, path: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if self.showing is not None and not self.blind and path.startswith(WATCHED):
            showing, old, new = self.showing, copy.deepcopy(old), copy.deepcopy(new)
            asyncio.get_running_loop().call_later(self.lag, lambda: self.showing is showing and showing(path, old, new))

    # ── what tests look at ──────────────────────────────────────────────────────────────────────────────────────

    def taints(self, name: str) -> list[str]:
        found = self.objects[f"{NODES}/{name}"]["spec"].get("taints", ())
        return sorted(f"{each['key'].rpartition('/')[2]}:{each['effect']}" for each in found)

    def not_ready_pods(self) -> list[str]:
        pods = [each for path, each in self.objects.items() if path.startswith(f"{PODS}/")]
        return sorted(each["metadata"]["name"] for each in pods if _ready(each) != "True")


def _executing(node: dict[str, Any]) -> list[str]:
    ours = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    taints = (node.get("spec") or {}).get("taints") or ()
    return [each["key"] for each in taints if each["effect"] == "NoExecute" and each["key"] in ours]


def _ready(obj: dict[str, Any]) -> str:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


class Manager:
    """Processes of the operator, one after the other, with a node lifecycle each.

    Args:
        cluster: where they work.
        kills: numbers of requests, from 1, at which the process is killed.
        answered: whether these are carried out before.
        away: seconds until the next process starts.
    """

    def __init__(
        self,
        cluster: LivingCluster,
        *,
        settings: NodeLifecycle | None = None,
        kills: tuple[int, ...] = (),
        answered: bool = False,
        away: float = 0.5,
    ) -> None:
        self.cluster = cluster
        self.settings = settings or NodeLifecycle()
        self.clock = LoopClock()
        self.reporter = FakeTaintReporter()
        self.killed = 0
        self._kills, self._answered, self._away = kills, answered, away
        self._requests = 0
        self._dying = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._kubelets: asyncio.Task[None] | None = None
        cluster.before, cluster.after = self._before, self._after

    async def __aenter__(self) -> Manager:
        self._kubelets = asyncio.create_task(self.cluster.kubelets())
        self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        assert self._kubelets is not None
        self._kubelets.cancel()
        await asyncio.gather(self._kubelets, return_exceptions=True)

    def begin(self) -> None:
        """A process starts: it lists what there is, and follows."""
        caches, cluster = Caches(), self.cluster
        self._dying.clear()
        self.counts = ActionCounts()
        self.lifecycle = NodeLifecycleController(
            TaintingDependencies(
                counts=self.counts,
                api=cluster,
                lister=caches.lister,
                clock=self.clock,
                evictor=Evictor(clock=self.clock, view=caches.lister),
                reporter=self.reporter,
                stale=lambda: None,
                watches_verified_at=lambda: cluster.heard if cluster.blind else self.clock.now(),
                namespace="trimtab",
            ),
            self.settings,
        )
        lifecycle = self.lifecycle

        def show(path: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
            before = decode_object(old) if old is not None else None
            after = decode_object(new) if new is not None else None
            kind = type(after or before)
            caches.apply(before, after)
            if kind is Node:
                lifecycle.node_changed(before, after)
            elif kind is Lease:
                lifecycle.lease_changed(before, after)

        for path, obj in cluster.objects.items():
            if path.startswith(WATCHED):
                show(path, None, copy.deepcopy(obj))
        cluster.showing = show
        self._task = asyncio.create_task(lifecycle.run())

    @property
    def ended(self) -> bool:
        """Whether the loop has ended by itself."""
        return self._task is not None and self._task.done() and self._task.exception() is None

    async def kill(self) -> None:
        self.cluster.showing = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def until(self, second: float) -> None:
        """Let it run, with the kills that are due."""
        while (left := second - self.cluster.time) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._dying.wait()
            except TimeoutError:
                return
            self.killed += 1
            await self.kill()
            await asyncio.sleep(self._away)
            self.begin()

    def go_blind(self) -> None:
        self.cluster.heard, self.cluster.blind = self.clock.now(), True

    def see_again(self) -> None:
        """The watches are opened anew: what was missed comes at once."""
        self.cluster.blind = False
        showing = self.cluster.showing
        assert showing is not None
        for path, obj in self.cluster.objects.items():
            if path.startswith(WATCHED):
                showing(path, None, copy.deepcopy(obj))

    async def _before(self, _call: Call) -> None:
        self._requests += 1
        if self._requests in self._kills and not self._answered:
            await self._die()

    async def _after(self, _call: Call) -> None:
        if self._requests in self._kills and self._answered:
            await self._die()
        await asyncio.sleep(0.01)

    async def _die(self) -> None:
        self._dying.set()
        await asyncio.Event().wait()
