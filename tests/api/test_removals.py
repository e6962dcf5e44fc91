"""Node removal on a real control plane, with its scheduler, its disruption controller and machines."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.waiting import eventually, eventually_async, patiently
from tests.unit.autoscaling.removal_operator import Operator, spec_of
from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation import Removals, RemovalSettings
from trimtab.autoscaling.actuation.node_markers import markers_of, taint_and_cordon, untaint_and_uncordon
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.machine_autoscalers import RULES as MACHINE_AUTOSCALER_RULES
from trimtab.autoscaling.providers import DIALECTS, MARK_DELAY, providers
from trimtab.cluster.kinds import SNAPSHOT_KINDS
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.disruption.evictor import Evictor
from trimtab.kube import verbs
from trimtab.kube.api import Conflict, Invalid, LeaderOnlyApi
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.node_patches import NodeFields, patch_node
from trimtab.kube.resources import NODES, PODS
from trimtab.runtime.informers import Informers
from trimtab_local.cluster import LocalCluster

pytestmark = pytest.mark.live

ROLES = "/apis/rbac.authorization.k8s.io/v1"
LIMITS = {
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "1",
    "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "20",
}
QUICK: dict[str, Any] = {"taint_delay": 1.0, "mark_delay": 2.0, "poll_interval": 0.1, "record_after": 0.0}
WRITES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
    *(rule for dialect in DIALECTS for rule in dialect.rules()),
    *MACHINE_AUTOSCALER_RULES,
]
"""What removing takes, beside reading."""
READS = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
TAKEN = ("ToBeDeletedByClusterAutoscaler", "trimtab.dev/removing", "trimtab.dev/cordoned-by", "delete-machine")


@pytest.fixture
def kubeconfig(machine_cluster: LocalCluster, sets: MachineSets, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an account with the permissions that removing nodes takes."""
    client, name = machine_cluster.client, sets.namespace
    client.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "remover"}})
    client.request("POST", f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": [*WRITES, READS]})
    subject = {"kind": "ServiceAccount", "name": "remover", "namespace": name}
    role = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    client.request("POST", f"{ROLES}/clusterrolebindings", binding)
    yield machine_cluster.service_account_kubeconfig(name, "remover", path=tmp_path / "kubeconfig")
    client.request("DELETE", f"{ROLES}/clusterrolebindings/{name}")
    client.request("DELETE", f"{ROLES}/clusterroles/{name}")


class Real:
    """Informers and clock of a real cluster, with the interface of the fake ones."""

    def __init__(self, api: Transport, shared: SharedSnapshot, lister: Lister) -> None:
        self.api = api
        self.caches = SimpleNamespace(shared=shared, lister=lister)
        self.clock = SYSTEM_CLOCK

    def traces(self) -> str:
        return ""


class Remover(Operator):
    """The iterations of an operator, restricted to node removal."""

    def __init__(self, real: Real, **settings: Any) -> None:
        self.fleet: Any = real
        self.spec = spec_of({"scaleDown": {"enabled": True, "unneededTime": "1s", "delayAfterDelete": "0s"}})
        self.outcomes, self.cleaned = [], {}
        self.leading, self.stale, self.records, self.plans = True, None, True, True
        self.kept: dict[str, str] = {}
        self.removals = Removals(
            api=real.api,
            shared=real.caches.shared,
            lister=real.caches.lister,
            grouping=build_groups,
            providers=providers(LeaderOnlyApi(real.api, lambda: self.leading)),
            clock=real.clock,
            leading=lambda: self.leading,
            stale=lambda: self.stale,
            evictor=Evictor(clock=real.clock, view=real.caches.lister),
            settings=RemovalSettings(**{**QUICK, **settings}),
        )

    async def sees(self, look: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Wait until a condition of the cluster holds, which sends requests."""
        try:
            await eventually_async(lambda: asyncio.to_thread(look), "the condition", seconds=seconds, pause=0.02)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.outcomes}, {dict(self.removals.active)}, {self.kept}") from None


@asynccontextmanager
async def removing(kubeconfig: Path, *, end: bool = True, **settings: Any) -> AsyncIterator[Remover]:
    """Run informers and iterations until the block ends, then stop as at the end of a process."""
    async with Transport(load_config(str(kubeconfig))) as api:
        shared = SharedSnapshot()
        watches = Informers(api, shared, SNAPSHOT_KINDS)
        watches.start()
        await asyncio.to_thread(eventually, lambda: watches.check() is None, what="all is listed")
        remover = Remover(Real(api, shared, watches.lister), **settings)
        passing = asyncio.create_task(remover.passes(every=0.3))
        try:
            yield remover
        finally:
            passing.cancel()
            [ended] = await asyncio.gather(passing, return_exceptions=True)
            assert isinstance(ended, asyncio.CancelledError), ended
            if end:
                await remover.removals.finish(patiently(10))
            await watches.stop()


class Scene:
    """The nodes of a MachineSet, and a Deployment on them."""

    def __init__(self, cluster: LocalCluster, sets: MachineSets) -> None:
        self.client, self.sets = cluster.client, sets
        self.namespace = sets.namespace

    def nodes(self, count: int, *, unneeded: bool = True, annotations: dict[str, str] | None = None) -> list[str]:
        self.sets.make("a", count, LIMITS | (annotations or {}))
        self.sets.running("a", count)
        names = eventually(lambda: self._ready(count), what=f"{count} nodes are ready")
        for name in names if unneeded else ():
            since = {"trimtab.dev/unneeded-since": rfc3339(SYSTEM_CLOCK.now() - 3600)}
            self.patch(name, {"metadata": {"annotations": since}})
        return names

    def _ready(self, count: int) -> list[str] | None:
        found = self.sets.nodes("a")
        ready = [
            name
            for name, each in found.items()
            if any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"].get("conditions", ()))
            and not any("node.kubernetes.io" in taint["key"] for taint in each["spec"].get("taints", ()))
        ]
        return sorted(ready) if len(ready) == count else None

    def patch(self, node: str, body: dict[str, Any]) -> None:
        self.client.request("PATCH", NODES.path(node), body, content_type="application/merge-patch+json")

    def deploy(self, count: int, *, least: int | None) -> None:
        labels = {"app": "web"}
        spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
        pod = {
            "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
            ],
            "nodeSelector": {"pool": "a"},
            "tolerations": [{"key": "only", "operator": "Exists"}],
            "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}],
        }
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        self.client.request("POST", path, {"metadata": {"name": "web"}, "spec": spec})
        eventually(lambda: len(self.ready()) == count, what=f"{count} pods are ready")
        if least is not None:
            self.guard(least)

    def occupy(self, nodes: list[str]) -> None:
        """Create a pod that fills each of these nodes."""
        for name in nodes:
            container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3", "memory": "64Mi"}}}
            spec = {"containers": [container], "nodeName": name, "tolerations": [{"operator": "Exists"}]}
            metadata = {"name": f"busy-{name}", "labels": {"app": "web"}}
            self.client.request("POST", PODS.path(namespace=self.namespace), {"metadata": metadata, "spec": spec})
        eventually(lambda: len(self.ready()) == len(nodes), what=f"{len(nodes)} pods are ready")

    def guard(self, least: int) -> None:
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        spec = {"minAvailable": least, "selector": {"matchLabels": {"app": "web"}}}
        self.client.request("POST", path, {"metadata": {"name": "web"}, "spec": spec})
        eventually(lambda: "expectedPods" in self.client.request("GET", f"{path}/web")["status"], what="it is counted")

    def ready(self) -> list[dict[str, Any]]:
        listed = self.client.request("GET", PODS.path(namespace=self.namespace))["items"]
        return [
            each
            for each in listed
            if "deletionTimestamp" not in each["metadata"]
            and any(c["type"] == "Ready" and c["status"] == "True" for c in each["status"].get("conditions", ()))
        ]

    def node(self, name: str) -> dict[str, Any]:
        return self.client.request("GET", NODES.path(name))

    def left(self) -> list[str]:
        """Taints, cordons and annotations that removals left on nodes and machines."""
        objects = [*self.sets.nodes("a").values(), *self.sets.machines("a").values()]
        alive = [each for each in objects if "deletionTimestamp" not in each["metadata"]]
        reported = str([[each["metadata"].get("annotations"), each["spec"]] for each in alive])
        return [word for word in TAKEN if word in reported]

    def alone(self) -> bool:
        """Whether one machine is left, without annotations of a removal."""
        return len(self.sets.machines("a")) == 1 and not self.left()


@pytest.fixture
def scene(machine_cluster: LocalCluster, sets: MachineSets) -> Iterator[Scene]:
    made = Scene(machine_cluster, sets)
    yield made
    for group, plural in (("policy", "poddisruptionbudgets"), ("apps", "deployments")):
        made.client.request("DELETE", f"/apis/{group}/v1/namespaces/{made.namespace}/{plural}")


def test_drain_respects_budgets_and_the_minimum_size(scene: Scene, kubeconfig: Path) -> None:
    scene.nodes(3)
    scene.deploy(3, least=2)
    lowest = 3

    async def run() -> list[Any]:
        nonlocal lowest
        async with removing(kubeconfig) as remover:

            def over() -> bool:
                nonlocal lowest
                lowest = min(lowest, len(scene.ready()))
                return scene.alone()

            await remover.sees(over)
            await remover.until(lambda: sum(each.done for each in remover.outcomes) == 2, seconds=patiently(30))
            return remover.outcomes

    outcomes = asyncio.run(run())

    removed = [each for each in outcomes if each.done]
    assert len(removed) == 2
    assert scene.sets.get("a")["spec"]["replicas"] == 1
    assert sum(len(each.evicted) for each in removed) >= 2
    assert lowest >= 2
    assert eventually(lambda: len(scene.ready()) == 3, what="all pods run")
    assert {each["spec"]["nodeName"] for each in scene.ready()} == set(scene.sets.nodes("a"))
    assert scene.left() == []


def test_empty_nodes_are_removed_together(scene: Scene, kubeconfig: Path) -> None:
    scene.nodes(5)

    async def run() -> list[Any]:
        async with removing(kubeconfig) as remover:
            await remover.until(lambda: len(remover.outcomes) >= 4, seconds=patiently(60))
            return remover.outcomes

    outcomes = asyncio.run(run())

    assert [each.reason for each in outcomes] == ["Empty"] * 4
    taints, marks, rereads, sizes = 4, 4, 4 + 3 + 1, 3
    recorded = sizes  # what a size is lowered to is recorded first
    expected = taints + marks + rereads + recorded + sizes
    calls = sum(each.calls for each in outcomes)
    assert taints + marks < calls <= 2 * expected, "conflicts with other controllers cost calls, of each node and size"
    scene.sets.running("a", 1)
    assert scene.left() == []


@pytest.mark.parametrize("run", range(int(os.environ.get("TRIMTAB_RUNS", "1"))))
def test_machine_with_pods_is_kept_if_the_controller_sees_marks_late(scene: Scene, kubeconfig: Path, run: int) -> None:
    """Ten of twenty machines, as in the incident: the machine controller saw the new size before nine of ten marks."""
    names = scene.nodes(20, annotations={"local.trimtab.dev/mark-lag": "10s"})
    # The machines whose names come first run pods: the controller chooses them while it sees no marks.
    busy = sorted(names)[:10]
    scene.occupy(busy)
    before = {each["metadata"]["uid"] for each in scene.ready()}

    async def remove() -> None:
        async with removing(kubeconfig, mark_delay=MARK_DELAY) as remover:
            await remover.sees(lambda: len(scene.sets.machines("a")) == 10 and not scene.left(), seconds=120)

    asyncio.run(remove())

    assert scene.sets.get("a")["spec"]["replicas"] == 10
    assert sorted(scene.sets.nodes("a")) == busy
    assert {each["metadata"]["uid"] for each in scene.ready()} == before


def test_new_budget_during_drain_restores_the_node(scene: Scene, kubeconfig: Path) -> None:
    names = scene.nodes(2)
    scene.deploy(2, least=None)
    before = {name: _without_cordon(scene.node(name)["spec"]) for name in names}

    async def run() -> list[Any]:
        async with removing(kubeconfig, taint_delay=patiently(5.0)) as remover:
            remover.records = False
            await remover.sees(lambda: bool(scene.left()))
            await asyncio.to_thread(scene.guard, 2)
            await remover.until(lambda: bool(remover.outcomes), seconds=patiently(30))
            return remover.outcomes

    [outcome, *_] = asyncio.run(run())

    assert outcome.reason in ("BlockedByPod", "NotEnoughPdb")
    eventually(lambda: not scene.left(), what="nothing is left")
    eventually(lambda: {name: _without_cordon(scene.node(name)["spec"]) for name in names} == before, what="as before")
    assert len(scene.ready()) == 2


def test_next_process_resumes_the_removal_of_a_killed_one(scene: Scene, kubeconfig: Path) -> None:
    scene.nodes(3)
    scene.deploy(3, least=2)

    async def killed() -> None:
        async with removing(kubeconfig, end=False) as remover:
            await remover.sees(lambda: bool(scene.left()))
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

    async def successor() -> None:
        async with removing(kubeconfig) as remover:
            await remover.sees(scene.alone)

    asyncio.run(killed())
    assert scene.left()
    asyncio.run(successor())

    assert scene.sets.get("a")["spec"]["replicas"] == 1
    assert eventually(lambda: len(scene.ready()) == 3, what="all pods run")


@pytest.mark.parametrize("taints", [[], [{"key": "mine", "effect": "NoSchedule"}]], ids=["no taints", "a taint"])
@pytest.mark.parametrize("annotations", [None, {"mine": "x"}], ids=["no annotations", "an annotation"])
@pytest.mark.parametrize("cordoned", [False, True], ids=["open", "cordoned"])
def test_aborted_removal_restores_the_node(
    machine_cluster: LocalCluster, annotations: dict[str, str] | None, taints: list[dict[str, str]], cordoned: bool
) -> None:
    client = machine_cluster.client
    body = {"metadata": {"name": "bare", "annotations": annotations}, "spec": {"taints": taints}}
    # Neither kwok nor the node's controllers are to write to it in between.
    client.request("POST", NODES.path(), {**body, "spec": {**body["spec"], "unschedulable": cordoned}})
    try:
        asyncio.run(_there_and_back(machine_cluster, cordoned=cordoned))
    finally:
        client.request("DELETE", NODES.path("bare"))


async def _there_and_back(cluster: LocalCluster, *, cordoned: bool) -> None:
    async with Transport(load_config(str(cluster.kubeconfig))) as api:
        found = await _settled(api)
        uid = found["metadata"]["uid"]
        at = int(SYSTEM_CLOCK.now())
        assert await patch_node(api, "bare", uid, taint_and_cordon(at, cordon=True), timeout=patiently(10))
        marked = markers_of(NodeFields.from_manifest(await verbs.get(api, NODES, "bare")))
        assert (marked.ours, marked.cordoned) == (True, not cordoned)
        with pytest.raises((Invalid, Conflict)):  # the taint of another moment does not come beside it
            await patch_node(api, "bare", uid, taint_and_cordon(at + 1, cordon=True), timeout=patiently(10))
        assert await patch_node(api, "bare", uid, untaint_and_uncordon, timeout=patiently(10))
        after = await verbs.get(api, NODES, "bare")
        assert markers_of(NodeFields.from_manifest(after)).any is False
        assert _without_cordon(after["spec"]) == _without_cordon(found["spec"])
        assert _annotations(after) == _annotations(found)
        assert await patch_node(api, "bare", "another", untaint_and_uncordon, timeout=patiently(10)) is False


async def _settled(api: Transport) -> dict[str, Any]:
    """The node once its controllers have not changed it for a moment."""
    found, version = await verbs.get(api, NODES, "bare"), ""
    while found["metadata"]["resourceVersion"] != version:
        version = found["metadata"]["resourceVersion"]
        await asyncio.sleep(1.5)
        found = await verbs.get(api, NODES, "bare")
    return found


def _annotations(node: dict[str, Any]) -> dict[str, str]:
    """The annotations of a node without those of kube-controller-manager."""
    found = node["metadata"].get("annotations") or {}
    return {key: value for key, value in found.items() if not key.startswith("node.alpha.kubernetes.io/")}


def _without_cordon(spec: dict[str, Any]) -> dict[str, Any]:
    """The node without what kube-controller-manager writes at any time: taints of conditions and cordons, and CIDRs."""
    taints = [each for each in spec.get("taints", ()) if not each["key"].startswith("node.kubernetes.io/")]
    other = {key: value for key, value in spec.items() if key not in ("taints", "podCIDR", "podCIDRs")}
    return {**other, **({"taints": taints} if taints else {})}
