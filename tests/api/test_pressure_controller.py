"""The node-pressure controller on a real API server, with the permissions and admission policies of the chart.

The readings are scripted. kwok posts heartbeats and terminates pods, as kubelets do.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.conftest import MakeCluster
from tests.fakes.daemon import Stopped
from tests.fakes.evictions import FinishedEvictions
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.crds import CRDS
from tests.fixtures.metrics_api import measure_nodes, measure_pods, serve_metrics_api
from tests.fixtures.waiting import eventually_async, wait_for
from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.controller.metrics import WorkQueueMetrics
from trimtab.disruption.evictor import Evictor
from trimtab.kube import verbs
from trimtab.kube.api import Conflict, Invalid, LeaderOnlyApi, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.events.recorder import EventRecorder
from trimtab.kube.objects import Node
from trimtab.kube.resources import BUDGETS, EVENTS, NODE_PRESSURE_POLICIES, NODES, PODS
from trimtab.pressure.controller import NodePressurePolicyController
from trimtab.pressure.coordinator import PressureCoordinator
from trimtab.pressure.dependencies import PressureDependencies
from trimtab.pressure.measurement import NodeMeasurement, PodUsage, ReadFailure, Reading, SignalValue
from trimtab.pressure.report import PressureMetrics, PressureReporter
from trimtab.pressure.state import ANNOTATION, NodeState, decode_state, encode_state
from trimtab.runtime.informers import Informers
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, RELEASE, OperatorProcess, install
from trimtab_local.nodes import node

pytestmark = pytest.mark.live

POOL = "example.com/pool"
CAPACITY = 10 << 30
CONDITION, TAINT = "pressure.trimtab.dev/MemoryPressure", "pressure.trimtab.dev/memory"
JSON_PATCH, STRATEGIC = "application/json-patch+json", "application/strategic-merge-patch+json"
ONLY_PRESSURE = (
    "controllers.pressure.enabled=true",
    "controllers.descheduler.enabled=false",
    "controllers.clusterAutoscaler.enabled=false",
    "controllers.taintManager.enabled=false",
)
HARD = {"evictionHard": {"memory.available": "1Gi"}, "evictionPressureTransitionPeriod": "3s"}
QUICK = {"mode": "Act", "monitoringInterval": "5s"}


@pytest.fixture(scope="module")
def pressure_cluster(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster with the chart, which grants the operator only what the node-pressure controller needs."""
    require_local_cluster(request)
    cluster = make_cluster(nodes=0)
    install(cluster, *ONLY_PRESSURE)
    return cluster


@pytest.fixture
def account(pressure_cluster: LocalCluster, tmp_path: Path) -> Path:
    """The kubeconfig of the chart's service account."""
    return pressure_cluster.service_account_kubeconfig(NAMESPACE, RELEASE, path=tmp_path / "account.kubeconfig")


@pytest.fixture
def shop(pressure_cluster: LocalCluster) -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    client = pressure_cluster.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    client.request("DELETE", f"/api/v1/namespaces/{name}")


class Readings:
    """Scripted readings: each pod uses what its name says in GiB, such as ``big-6``."""

    def __init__(self, stage: Stage, informers: Informers) -> None:
        self._stage, self._informers = stage, informers
        self._latest: dict[str, Reading] = {}

    def latest(self, name: str) -> Reading | None:
        return self._latest.get(name)

    def history(self, name: str) -> Sequence[NodeMeasurement]:
        return ()

    async def refresh(
        self,
        nodes: Sequence[Node],
        *,
        only_memory: bool,
        interval: float = 0.0,
        pods_needed: Callable[[NodeMeasurement], bool],
    ) -> None:
        now = SYSTEM_CLOCK.now()
        for each in nodes:
            if not self._stage.readable:
                self._latest[each.name] = ReadFailure(each.name, reasons.STATS_UNREACHABLE, "scripted", now)
                continue
            usage = {
                pod.key: PodUsage(uid=pod.uid, memory=int(pod.name.rpartition("-")[2]) << 30)
                for pod in self._informers.lister.pods_on(each.name)
                if not pod.terminal
            }
            available = max(0, CAPACITY - sum(used.memory or 0 for used in usage.values()))
            signals = {"memory.available": SignalValue(available, CAPACITY, now)}
            self._latest[each.name] = NodeMeasurement(each.name, "Summary", now, signals, lambda usage=usage: usage)

    async def close(self) -> None:
        return None


class Operator:
    """A process of the operator, logged in as the chart's service account."""

    def __init__(self, stage: Stage, api: Transport) -> None:
        self.informers = Informers(api, SharedSnapshot(()), (), outside_snapshot=(NODES, PODS))
        self.recorder = EventRecorder(api, instance="test")
        self.leads = True
        self.evictions = FinishedEvictions()
        self.evictor = Evictor(clock=SYSTEM_CLOCK, view=self.informers.lister, metrics=self.evictions)
        self.dependencies = PressureDependencies(
            api=LeaderOnlyApi(api, lambda: self.leads),
            evictor=self.evictor,
            lister=self.informers.lister,
            clock=SYSTEM_CLOCK,
            stale=lambda: self.informers.stale_reason_of((NODES, PODS)),
            reporter=PressureReporter(self.recorder, PressureMetrics(CollectorRegistry()), SYSTEM_CLOCK),
            readings=lambda: Readings(stage, self.informers),
            queue_metrics=WorkQueueMetrics(),
            close=self._close,
        )
        self.shared = PressureCoordinator(self.dependencies)
        self.stopped = Stopped()
        self.controller: NodePressurePolicyController | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.informers.start()
        self._sending = asyncio.create_task(self.recorder.run())
        self.shared.start()

    def observe(self, body: dict[str, Any]) -> None:
        if self.controller is None:
            self.controller = NodePressurePolicyController(body["metadata"]["name"], self.dependencies, self.shared)
            self.controller.observe(body)
            self._task = asyncio.create_task(self.controller.run(self.stopped))
        else:
            self.controller.observe(body)

    async def end_loop(self) -> None:
        self.stopped.set()
        if self._task is not None:
            await self._task

    async def stop(self) -> None:
        await self.end_loop()
        await self.shared.stop()
        await self.recorder.stop()
        self._sending.cancel()
        await self.informers.stop()

    async def kill(self) -> None:
        """End as kill -9 does: nothing is finished or written any more."""
        self.leads = False
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.shared.stop()
        await self.informers.stop()

    async def _close(self) -> None:
        return None


class Stage:
    """A node and a policy that selects only that node."""

    def __init__(self, admin: Transport, account: Path, namespace: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self.name = f"p-{secrets.token_hex(4)}"
        self.readable = True
        self._account = account

    @asynccontextmanager
    async def operating(self) -> AsyncIterator[Operator]:
        async with Transport(load_config(self._account)) as api:
            operator = Operator(self, api)
            await operator.start()
            try:
                yield operator
            finally:
                if operator.leads:
                    await operator.stop()

    async def put(self, operator: Operator, **spec: Any) -> dict[str, Any]:
        """Create or change the policy."""
        body = {
            "apiVersion": NODE_PRESSURE_POLICIES.api_version,
            "kind": NODE_PRESSURE_POLICIES.kind,
            "metadata": {"name": self.name},
            "spec": {**QUICK, "nodeSelector": {"matchLabels": {POOL: self.name}}, **spec},
        }
        try:
            stored = await verbs.create(self.admin, NODE_PRESSURE_POLICIES, body)
        except Conflict:
            stored = await verbs.merge_patch(self.admin, NODE_PRESSURE_POLICIES, self.name, {"spec": body["spec"]})
        operator.observe(stored)
        return stored

    async def create_node(self) -> None:
        taint = {"key": POOL, "value": self.name, "effect": "NoSchedule"}
        capacity = {"cpu": "8", "memory": "10Gi", "pods": "110"}
        manifest = node(self.name, zone="z", capacity=capacity, labels={POOL: self.name}, taints=[taint])
        await verbs.create(self.admin, NODES, manifest)
        await self.until(self._is_ready, what="the node is ready")

    async def _is_ready(self) -> bool:
        return (await self.conditions()).get("Ready") == "True"

    async def create_pod(
        self, name: str, *, labels: dict[str, str] | None = None, grace: int = 2, stops_in: int = 0
    ) -> None:
        container: dict[str, Any] = {"name": "app", "image": "app"}
        if stops_in:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": stops_in}}}
        body = {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {
                "nodeName": self.name,
                "tolerations": [{"operator": "Exists"}],
                "containers": [container],
                "terminationGracePeriodSeconds": grace,
            },
        }
        await verbs.create(self.admin, PODS, body, namespace=self.namespace)

        async def runs() -> bool:
            found = await verbs.get(self.admin, PODS, name, namespace=self.namespace)
            by_type = {each["type"]: each["status"] for each in found["status"].get("conditions") or ()}
            return by_type.get("Ready") == "True"

        await self.until(runs, what=f"{name} is ready")

    async def create_budget(self, minimum: int = 1) -> None:
        body = {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "web"}}},
        }
        await verbs.create(self.admin, BUDGETS, body, namespace=self.namespace)

        async def counted() -> bool:
            found = await verbs.get(self.admin, BUDGETS, "web", namespace=self.namespace)
            return found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]

        await self.until(counted, what="the budget is observed")

    async def manifest(self) -> dict[str, Any]:
        return await verbs.get(self.admin, NODES, self.name)

    async def conditions(self) -> dict[str, str]:
        return {each["type"]: each["status"] for each in (await self.manifest())["status"].get("conditions") or ()}

    async def marks(self) -> tuple[bool, bool, bool]:
        """Whether the node has the condition, the taint and the annotation."""
        found = await self.manifest()
        taints = {each["key"] for each in found["spec"].get("taints") or ()}
        annotations = found["metadata"].get("annotations") or {}
        return CONDITION in await self.conditions(), TAINT in taints, ANNOTATION in annotations

    async def marked(self) -> bool:
        return await self.marks() == (True, True, True)

    async def unmarked(self) -> bool:
        return await self.marks() == (False, False, False)

    async def state(self) -> NodeState:
        return decode_state(((await self.manifest())["metadata"].get("annotations") or {}).get(ANNOTATION))

    async def pod_names(self) -> set[str]:
        found = await verbs.list_objects(self.admin, PODS, namespace=self.namespace)
        return {each["metadata"]["name"] for each in found.items}

    async def reasons(self) -> set[tuple[str, str]]:
        """The kind of the object and the reason of each event about the stage's objects."""
        found = await verbs.list_objects(self.admin, EVENTS)
        mine = {self.name, *(await self.pod_names())}
        return {
            (each["regarding"]["kind"], each["reason"])
            for each in found.items
            if each["regarding"]["name"] in mine or each["metadata"]["namespace"] == self.namespace
        }

    async def status(self) -> dict[str, Any]:
        found = await verbs.get(self.admin, NODE_PRESSURE_POLICIES, self.name)
        status: dict[str, Any] = found.get("status") or {}
        return status

    async def until(self, holds: Callable[[], Any], *, what: str, seconds: float = 40.0) -> None:
        await eventually_async(holds, what, seconds=seconds, pause=0.1)


@pytest.fixture
async def stage(pressure_cluster: LocalCluster, account: Path, shop: str) -> AsyncIterator[Stage]:
    async with Transport(load_config(pressure_cluster.kubeconfig)) as admin:
        made = Stage(admin, account, shop)
        await made.create_node()
        yield made
        for resource in (NODE_PRESSURE_POLICIES, NODES):
            try:
                await verbs.delete(admin, resource, made.name)
            except NotFound:
                continue


async def test_pod_is_evicted_and_the_node_recovers(stage: Stage) -> None:
    await stage.create_pod("big-6", grace=3)
    await stage.create_pod("small-3")
    await stage.create_pod("tiny-1")
    async with stage.operating() as operator:
        await stage.put(operator, **HARD)
        await stage.until(stage.marked, what="the node has condition, taint and state")
        await stage.until(lambda: _lacks(stage, "big-6"), what="big-6 is gone")
        await stage.until(stage.unmarked, what="the node has recovered")
        assert await stage.pod_names() == {"small-3", "tiny-1"}
        [(sent, result)] = operator.evictions.finished
        assert (sent.how, sent.grace_period, result) == ("Evict", 1, "Evicted")
        await operator.recorder.stop()
        found = await stage.reasons()
        assert {
            ("Node", reasons.NODE_PRESSURE_BEGAN),
            ("Node", reasons.NODE_PRESSURE_ENDED),
            ("Pod", reasons.NODE_PRESSURE_EVICTION),
        } <= found


async def test_conditions_and_taints_survive_concurrent_writers(stage: Stage) -> None:
    """A kubelet posts its status, and other clients change taints and annotations, while pressure begins and ends."""
    await stage.create_pod("big-6", labels={"app": "web"})
    await stage.create_pod("other-3", labels={"app": "web"})
    await stage.create_budget(2)
    writing = True
    changes = 0

    async def post_status() -> None:
        number = 0
        while writing:
            number += 1
            now = rfc3339(SYSTEM_CLOCK.now())
            ready = {"type": "Ready", "status": "True", "reason": f"R{number}", "lastHeartbeatTime": now}
            await stage.admin.request(
                "PATCH",
                NODES.path(stage.name, subresource="status"),
                body={"status": {"conditions": [ready]}},
                content_type=STRATEGIC,
            )
            await asyncio.sleep(0.01)

    async def change_taints() -> None:
        nonlocal changes
        while writing:
            found = await stage.manifest()
            taints = found["spec"].get("taints") or []
            wanted = [each for each in taints if each["key"] != "example.com/flapping"]
            if len(wanted) == len(taints):
                wanted = [{"key": "example.com/flapping", "effect": "PreferNoSchedule"}, *wanted]
            version = found["metadata"]["resourceVersion"]
            body = {
                "metadata": {"resourceVersion": version, "annotations": {"a/b": str(changes)}},
                "spec": {"taints": wanted},
            }
            try:
                await verbs.merge_patch(stage.admin, NODES, stage.name, body)
                changes += 1
            except (Conflict, Invalid):
                continue
            await asyncio.sleep(0.02)

    async with stage.operating() as operator:
        writers = [asyncio.create_task(post_status()), asyncio.create_task(change_taints())]
        await stage.put(operator, **{**HARD, "evictionHard": {"memory.available": "2Gi"}})
        for _ in range(2):
            await stage.until(stage.marked, what="the marks are there")
            await stage.put(operator, evictionHard={"memory.available": "1Mi"}, evictionPressureTransitionPeriod="0s")
            await stage.until(stage.unmarked, what="the marks are gone")
            await stage.put(operator, **{**HARD, "evictionHard": {"memory.available": "2Gi"}})
        await stage.until(stage.marked, what="the marks are there")
        changes_before = changes

        async def changed_since() -> bool:
            return changes > changes_before + 20

        await stage.until(changed_since, what="others change the taints of the marked node")
        assert await stage.marked()
        writing = False
        await asyncio.gather(*writers)
        found = await stage.manifest()
        assert {each["key"] for each in found["spec"]["taints"]} >= {POOL, TAINT}
        keys = [each["key"] for each in found["spec"]["taints"]]
        assert len(keys) == len(set(keys))
        assert operator.shared.writer.problems == {}


async def test_refused_eviction_is_granted_when_the_budget_allows_it(stage: Stage) -> None:
    await stage.create_pod("big-9", labels={"app": "web"})
    await stage.create_budget(1)
    async with stage.operating() as operator:
        await stage.put(operator, evictionHard={"memory.available": "2Gi"})

        async def refused() -> bool:
            return bool((await stage.state()).refused_since)

        await stage.until(refused, what="the refusal is stored")
        await stage.until(lambda: _degraded(stage, reasons.EVICTIONS_REFUSED), what="the refusal is reported")
        assert await stage.pod_names() == {"big-9"}
        await verbs.delete(stage.admin, BUDGETS, "web", namespace=stage.namespace)
        await stage.until(lambda: _lacks(stage, "big-9"), what="big-9 is gone")
        assert operator.evictions.results[-1] == "Evicted"
        await operator.recorder.stop()
        assert ("NodePressurePolicy", reasons.DISRUPTION_BUDGET) in await stage.reasons()


async def test_pod_is_deleted_after_refusals_for_delete_after(stage: Stage) -> None:
    await stage.create_pod("big-9", labels={"app": "web"}, grace=30)
    await stage.create_budget(1)
    async with stage.operating() as operator:
        await stage.put(operator, evictionHard={"memory.available": "2Gi"}, deleteAfter="8s")
        began = SYSTEM_CLOCK.monotonic()
        await stage.until(lambda: _lacks(stage, "big-9"), what="big-9 is gone")
        assert SYSTEM_CLOCK.monotonic() - began >= 8
        sent, result = operator.evictions.finished[-1]
        assert (sent.how, sent.grace_period, result) == ("Delete", 1, "Deleted")
        await stage.until(lambda: _count(stage, "deleted", 1), what="the deletion is counted")


async def test_hard_threshold_shortens_a_long_termination(stage: Stage) -> None:
    await stage.create_pod("big-8", labels={"app": "web"}, grace=600, stops_in=600)
    async with stage.operating() as operator:
        await stage.put(
            operator,
            evictionSoft={"memory.available": "3Gi"},
            evictionSoftGracePeriod={"memory.available": "0s"},
            evictionHard={"memory.available": "1Gi"},
        )
        await stage.until(lambda: _terminates_within(stage, "big-8", 600), what="big-8 is terminating")
        await stage.create_budget(1)
        await stage.create_pod("more-2")
        await stage.until(lambda: _lacks(stage, "big-8"), what="big-8 is gone")
        requests = [(each.pod, each.how, each.grace_period) for each, _ in operator.evictions.finished]
        assert requests == [("big-8", "Evict", 600), ("big-8", "Evict", 1)]
        await stage.until(lambda: _count(stage, "evicted", 1), what="the eviction is counted once")


@pytest.mark.live
async def test_killed_process_is_continued_by_the_next_one(stage: Stage) -> None:
    await stage.create_pod("big-9")
    soft = {
        "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "15s"},
        "evictionPressureTransitionPeriod": "3s",
    }
    async with stage.operating() as first:
        body = await stage.put(first, **soft)
        await stage.until(stage.marked, what="the node has condition, taint and state")
        before = await stage.state()
        await asyncio.sleep(5)
        await first.kill()
    assert await stage.marked()
    async with stage.operating() as second:
        second.observe(body)
        await stage.until(lambda: _lacks(stage, "big-9"), what="big-9 is gone")
        late = SYSTEM_CLOCK.now() - before.first_met["soft/memory.available"]
        assert 15 <= late <= 27, "the grace period has not begun again"
        await stage.until(stage.unmarked, what="the node has recovered")


@pytest.mark.parametrize("how", ["Simulate", "delete", "label"])
async def test_marks_are_removed_when_the_policy_does_not_act_on_the_node(stage: Stage, how: str) -> None:
    await stage.create_pod("big-9", labels={"app": "web"})
    await stage.create_budget(1)
    async with stage.operating() as operator:
        body = await stage.put(operator, **HARD, evictionSoft={"memory.available": "2Gi"},
                               evictionSoftGracePeriod={"memory.available": "1h"})  # fmt: skip
        await stage.until(stage.marked, what="the node has condition, taint and state")
        if how == "Simulate":
            await stage.put(operator, **HARD, mode="Simulate")
        elif how == "label":
            await verbs.merge_patch(stage.admin, NODES, stage.name, {"metadata": {"labels": {POOL: None}}})
        else:
            await operator.end_loop()
            await verbs.delete(stage.admin, NODE_PRESSURE_POLICIES, stage.name)
            await operator.shared.remove_marks(body["metadata"]["uid"])
        await stage.until(stage.unmarked, what="the marks are gone")
        assert {each["key"] for each in (await stage.manifest())["spec"]["taints"]} == {POOL}


@pytest.mark.live
async def test_unread_node_keeps_its_marks(stage: Stage) -> None:
    await stage.create_pod("big-9", labels={"app": "web"})
    await stage.create_budget(1)
    async with stage.operating() as operator:
        await stage.put(operator, evictionHard={"memory.available": "2Gi"}, evictionPressureTransitionPeriod="1s")
        await stage.until(stage.marked, what="the node has condition, taint and state")
        stage.readable = False

        async def unread() -> bool:
            return [each["reason"] for each in (await stage.status()).get("unread", ())] == [reasons.STATS_UNREACHABLE]

        await stage.until(unread, what="the node is reported")
        assert await stage.marked()


async def test_pods_that_the_kubelet_evicted_are_cleaned_up(stage: Stage) -> None:
    for number in range(3):
        await stage.create_pod(f"failed-{number}")
        at = rfc3339(SYSTEM_CLOCK.now() - 7200 + number)
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "TerminationByKubelet",
            "lastTransitionTime": at,
        }
        await stage.admin.request(
            "PATCH",
            PODS.path(f"failed-{number}", namespace=stage.namespace, subresource="status"),
            body={"status": {"phase": "Failed", "reason": "Evicted", "conditions": [target]}},
            content_type=STRATEGIC,
        )
    async with stage.operating() as operator:
        await stage.put(operator, **HARD, failedPods={"after": "1h", "keepPerOwner": 0})
        await stage.until(lambda: _lacks(stage, "failed-0", "failed-1", "failed-2"), what="the failed pods are gone")
        await stage.until(lambda: _count(stage, "cleanedUp", 3), what="the deletions are counted")


async def _terminates_within(stage: Stage, name: str, seconds: int) -> bool:
    found = await verbs.get(stage.admin, PODS, name, namespace=stage.namespace)
    return found["metadata"].get("deletionGracePeriodSeconds") == seconds


async def _lacks(stage: Stage, *names: str) -> bool:
    return not set(names) & await stage.pod_names()


async def _degraded(stage: Stage, *codes: str) -> bool:
    conditions = (await stage.status()).get("conditions") or ()
    return any(each["type"] == "Degraded" and each["reason"] in codes for each in conditions)


async def _count(stage: Stage, name: str, number: int) -> bool:
    return bool((await stage.status())["counts"].get(name) == number)


# --- the operator's process -----------------------------------------------------------------------------------------


def mark(client: Client, name: str) -> None:
    """Leave on a node what an earlier process wrote."""
    state = encode_state(NodeState(last_met={"MemoryPressure": SYSTEM_CLOCK.now() // 1}))
    taints = [{"key": TAINT, "effect": "NoSchedule"}, {"key": "example.com/other", "effect": "NoSchedule"}]
    body = {"metadata": {"annotations": {ANNOTATION: state}}, "spec": {"taints": taints}}
    client.request("PATCH", NODES.path(name), body, content_type="application/merge-patch+json")
    condition = {"type": CONDITION, "status": "True", "reason": reasons.THRESHOLD_MET}
    path = NODES.path(name, subresource="status")
    client.request("PATCH", path, {"status": {"conditions": [condition]}}, content_type=STRATEGIC)


def marks_on(client: Client, name: str) -> int:
    """Count the condition, the taint and the annotation."""
    found = client.request("GET", NODES.path(name))
    conditions = [each["type"] for each in found["status"].get("conditions") or ()]
    taints = [each["key"] for each in found["spec"].get("taints") or ()]
    return (CONDITION in conditions) + (TAINT in taints) + (ANNOTATION in (found["metadata"].get("annotations") or {}))


def absent(client: Client, path: str) -> bool:
    try:
        client.request("GET", path)
    except NotFound:
        return True
    return False


@pytest.fixture
def leftover(pressure_cluster: LocalCluster) -> Iterator[str]:
    """The name of a node and of a policy that selects only that node; no kubelet listens at the node's address."""
    client, name = pressure_cluster.client, f"p-{secrets.token_hex(4)}"
    create_nodes(client, [node(name, zone="z", labels={POOL: name})])
    policy = {
        "apiVersion": NODE_PRESSURE_POLICIES.api_version,
        "kind": NODE_PRESSURE_POLICIES.kind,
        "metadata": {"name": name},
        "spec": {**QUICK, **HARD, "nodeSelector": {"matchLabels": {POOL: name}}},
    }
    client.request("POST", NODE_PRESSURE_POLICIES.path(), policy)
    yield name
    client.request("DELETE", NODES.path(name))


@pytest.mark.live
def test_policy_that_is_deleted_while_no_process_runs_is_cleaned_up_by_the_next(
    pressure_cluster: LocalCluster, leftover: str, tmp_path: Path
) -> None:
    client, path = pressure_cluster.client, NODE_PRESSURE_POLICIES.path(leftover)
    process = OperatorProcess(pressure_cluster, tmp_path, "--controllers=pressure", "--no-leader-elect")
    process.start()
    try:
        wait_for(lambda: client.request("GET", path)["metadata"].get("finalizers"), "Kopf's finalizer")
        process.stop()
        mark(client, leftover)
        client.request("DELETE", path)
        assert not absent(client, path)
        process.start()
        wait_for(lambda: absent(client, path), "the policy to be deleted")
        assert marks_on(client, leftover) == 0
    finally:
        process.stop()


@pytest.mark.live
def test_metrics_api_supplies_the_memory_of_a_node_whose_kubelet_does_not_respond(
    pressure_cluster: LocalCluster, leftover: str, shop: str, tmp_path: Path
) -> None:
    client = pressure_cluster.client
    pods = PODS.path(namespace=shop)
    for name in ("big", "small"):
        container = {"name": "main", "image": "registry.k8s.io/pause:3.10"}
        spec = {"nodeName": leftover, "containers": [container], "terminationGracePeriodSeconds": 2}
        client.request("POST", pods, {"metadata": {"name": name}, "spec": spec})

    def running() -> set[str]:
        found = client.request("GET", pods)["items"]
        return {each["metadata"]["name"] for each in found if each["status"]["phase"] == "Running"}

    def counts() -> dict[str, int]:
        status = client.request("GET", NODE_PRESSURE_POLICIES.path(leftover)).get("status") or {}
        found: dict[str, int] = status.get("counts") or {}
        return found

    wait_for(lambda: running() == {"big", "small"}, "the pods to run")
    serve_metrics_api(client)
    measure_pods(client, shop, {"big": {"cpu": "1", "memory": "20Gi"}, "small": {"cpu": "1", "memory": "11Gi"}})
    measure_nodes(client, {leftover: {"cpu": "2", "memory": "32000Mi"}})  # of 32Gi
    process = OperatorProcess(pressure_cluster, tmp_path, "--controllers=pressure", "--no-leader-elect")
    process.start()
    try:
        wait_for(lambda: running() == {"small"}, "the larger pod to be evicted")
        time.sleep(3 * 5)
        assert running() == {"small"}, "metrics-server has not measured again"
        measure_nodes(client, {leftover: {"cpu": "1", "memory": "11500Mi"}})
        wait_for(lambda: marks_on(client, leftover) == 0, "the node to recover")
        wait_for(lambda: counts().get("evicted") == 1, "the eviction to be counted")
        assert (counts()["nodes"], counts()["read"], counts()["fromMetrics"]) == (1, 1, 1)
        assert running() == {"small"}
    finally:
        process.stop()


@pytest.mark.live
def test_deleted_definition_leaves_nothing_on_nodes(
    pressure_cluster: LocalCluster, leftover: str, tmp_path: Path
) -> None:
    client = pressure_cluster.client
    definition = f"{CRDS}/{NODE_PRESSURE_POLICIES.plural}.{NODE_PRESSURE_POLICIES.group}"
    mark(client, leftover)
    process = OperatorProcess(pressure_cluster, tmp_path, "--controllers=pressure", "--no-leader-elect")
    process.start()
    try:
        path = NODE_PRESSURE_POLICIES.path(leftover)
        wait_for(lambda: client.request("GET", path)["metadata"].get("finalizers"), "Kopf's finalizer")
        time.sleep(15)
        assert marks_on(client, leftover) == 3, "a policy in mode Act selects the node"
        client.request("DELETE", definition)
        wait_for(lambda: absent(client, definition), "the definition to be deleted")
        assert marks_on(client, leftover) == 0
        assert {each["key"] for each in client.request("GET", NODES.path(leftover))["spec"]["taints"]} == {
            "example.com/other"
        }
        assert process.running()
    finally:
        process.stop()
        install(pressure_cluster, *ONLY_PRESSURE)
