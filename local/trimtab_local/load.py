"""Creates the objects of a scenario in a cluster as fast as its API server allows.

For pods that the scheduler places, only their owners are created. Pods with ``via: direct`` are created on their nodes
and marked Running. Other clients must not see an intermediate state: the ReplicaSet controller would create its own
pods before these exist, and the garbage collector and kwok would add their own requests. So the API server's clients
are stopped during that time. After their restart, they find ReplicaSets with exactly the required pods, and do nothing.

The API server creates one pod of each owner. The others are copies of it that are written directly into its etcd, a
hundred per transaction. Creating a pod through the API server and marking it Running takes three milliseconds of CPU
time, mostly for admission, validation and field management, whose results are the same for all pods of a template. To
the API server, the copies look like writes of another API server with the same etcd: its watch caches follow etcd, not
its own writes. Tools that restore a cluster from a backup work in the same way.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
import uvloop
from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.api import Api, ApiError, Conflict, ServerError, TooManyRequests, Unreachable
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import BUDGETS, NAMESPACES, NODES, PODS, Resource
from trimtab_local import LocalError, nodes
from trimtab_local.cluster import LocalCluster
from trimtab_local.handover import LEASES_PATH
from trimtab_local.manifests import (
    Manifest,
    Owner,
    budget_manifest,
    namespace_manifests,
    node_manifests,
    owner_manifest,
    owners,
    placements,
    pod_manifest,
    pod_name,
)
from trimtab_local.nodes import as_ready
from trimtab_local.progress import Progress, Task
from trimtab_local.scenario import Scenario, Workload
from trimtab_local.versions import CONTROLLER_MANAGER, KWOK, SCHEDULER

CONNECTIONS: Final = 48
"""The number of concurrent connections. More only cause context switches in the API server; with fewer it is idle."""
_TRIES: Final = 6

Job = Callable[[Api], Awaitable[int]]
"""A function that sends requests one after another, and returns the number of created objects."""


async def send_until_accepted(api: Api, method: str, path: str, body: Any = None) -> Any:
    """Send a request until it succeeds. Return ``None`` if the object already exists."""
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    for attempt in range(_TRIES):
        try:
            return await api.request(method, path, body=body, content_type=content_type, timeout=60.0)
        except Conflict:
            return None
        except (TooManyRequests, ServerError, Unreachable):
            if attempt == _TRIES - 1:
                raise
        except ApiError as error:
            raise LocalError(f"{method} {path}: {error.message}") from error
        await asyncio.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")


class Sender:
    """Sends many requests concurrently, up to the number of connections.

    Args:
        cluster: the cluster.
        progress: receives the progress.
        kubeconfig: the credentials; ``None`` for those of the cluster's admin.

    Attributes:
        seconds: the total time in seconds spent sending.
    """

    def __init__(self, cluster: LocalCluster, progress: Progress, *, kubeconfig: Path | None = None) -> None:
        self.seconds = 0.0
        self._config = load_config(kubeconfig or cluster.kubeconfig)
        self._progress = progress

    def send(
        self,
        jobs: Iterable[Job],
        title: str,
        *,
        total: int | None = None,
        using: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        """Run all jobs.

        Args:
            jobs: the jobs.
            title: the title of the progress bar.
            total: the total number of objects, if ``jobs`` is not a list with one object per job.
            using: a context that is open while the jobs run.

        Raises:
            LocalError: the API server rejected a request. Objects that were created before are kept.
            Unreachable: the API server did not respond after several attempts.
        """
        amount = len(jobs) if isinstance(jobs, list) else total
        if not amount:
            return
        began = time.monotonic()
        with (
            self._progress.task(title, total=amount) as task,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            try:
                runner.run(self._all(iter(jobs), task, using or nullcontext()))
            except BaseExceptionGroup as failures:  # of many that failed alike, the first says enough
                raise failures.exceptions[0] from None
        self.seconds += time.monotonic() - began

    async def _all(self, jobs: Iterator[Job], task: Task, using: AbstractAsyncContextManager[object]) -> None:
        async def work() -> None:
            for job in jobs:
                task.advance(await job(api))

        async with using, Transport(self._config, connections=CONNECTIONS) as api, asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())


BATCH: Final = 100
"""The number of objects per transaction. etcd allows 128 by default."""
_PREFIX: Final = "/registry"
"""The default of kube-apiserver's ``--etcd-prefix``."""


def pod_copy(original: Manifest, *, name: str, node_name: str) -> Manifest:
    """Return a copy of a pod from an API response, with another name and node.

    The resource version is left out, because the API server uses etcd's revision for it.
    """
    meta = {key: value for key, value in original["metadata"].items() if key not in ("resourceVersion", "selfLink")}
    return original | {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | {"name": name, "uid": str(uuid.uuid4())},
        "spec": original["spec"] | {"nodeName": node_name},
    }


def pod_key(manifest: Manifest) -> str:
    """Return the etcd key in which kube-apiserver stores the pod."""
    return f"{_PREFIX}/pods/{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"


class Etcd:
    """A client of etcd's JSON gateway, as an async context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def create(self, manifests: Sequence[Manifest]) -> None:
        """Write pods that do not exist yet. Existing pods are unchanged.

        The pods are stored as JSON. The API server can read JSON as well as protobuf, and writes protobuf at the next
        update.

        Raises:
            LocalError: etcd rejected the request.
            Unreachable: etcd did not respond.
        """
        entries = [(_text(pod_key(manifest)), _text(msgspec.json.encode(manifest))) for manifest in manifests]
        for start in range(0, len(entries), BATCH):
            batch = entries[start : start + BATCH]
            if not await self._put_absent(batch):
                for entry in batch:
                    await self._put_absent([entry])

    async def delete(self, prefix: str) -> int:
        """Delete all objects whose key starts with a prefix, and return how many they were.

        Raises:
            LocalError: etcd refused.
            Unreachable: it did not answer.
        """
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = await self._post("/v3/kv/deleterange", {"key": _text(prefix), "range_end": _text(end)})
        return int(answer.get("deleted", 0))

    async def _put_absent(self, entries: Sequence[tuple[str, str]]) -> bool:
        """Write all entries in one transaction, or none if one of them exists. Return whether they were written."""
        absent = [{"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"} for key, _ in entries]
        puts = [{"request_put": {"key": key, "value": value}} for key, value in entries]
        answer = await self._post("/v3/kv/txn", {"compare": absent, "success": puts})
        return bool(answer.get("succeeded"))

    async def _post(self, path: str, body: Any) -> dict[str, Any]:
        if self._session is None:
            raise RuntimeError("use it in an async with statement")
        try:
            async with self._session.post(self._url + path, data=msgspec.json.encode(body)) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"etcd: POST {self._url}{path}: {str(error) or type(error).__name__}") from error
        if response.status != 200:
            raise LocalError(f"etcd: POST {path}: {content[:300].decode(errors='replace')}")
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer


def _text(content: str | bytes) -> str:
    return base64.b64encode(content.encode() if isinstance(content, str) else content).decode("ascii")


STALLED: Final = 120.0
"""Seconds without progress after which the load fails. There is no limit on the total time, because a small machine may
be slow.
"""


def await_played_nodes(cluster: LocalCluster, names: Set[str], progress: Progress) -> None:
    """Wait until these nodes are Ready and managed by kwok, if the components that do this run."""
    settings = cluster.record().settings
    if not names or KWOK not in settings.components or not settings.untaints_nodes:
        return

    def count() -> tuple[int, int]:
        able = {live["metadata"]["name"] for live in _list_objects(cluster, NODES.path()) if nodes.ready(live)}
        played = {lease["metadata"]["name"] for lease in _list_objects(cluster, LEASES_PATH)}
        return len(names & able & played), len(names)

    _await_count(count, "nodes are Ready", progress)


def await_owners(cluster: LocalCluster, owners: Sequence[Owner], progress: Progress) -> None:
    """Wait until all pods of the owners run, if the components that create and run pods are running."""
    needed = {CONTROLLER_MANAGER, KWOK} | ({SCHEDULER} if any(o.workload.via == "scheduler" for o in owners) else set())
    if not owners or not needed <= set(cluster.record().settings.components):
        return
    wanted = {(owner.resource, owner.namespace, owner.name) for owner in owners}
    kinds = {owner.resource.kind: owner.resource for owner in owners}

    def count() -> tuple[int, int]:
        sums: Counter[str] = Counter()
        for resource in kinds.values():
            for live in _list_objects(cluster, resource.path()):
                if (resource, live["metadata"]["namespace"], live["metadata"]["name"]) in wanted:
                    done, all_ = running_pods(resource.kind, live)
                    sums.update(done=done, all=all_)
        return sums["done"], sums["all"]

    _await_count(count, "pods run", progress)


def running_pods(kind: str, live: Mapping[str, Any]) -> tuple[int, int]:
    """Return the number of an owner's running pods (for a Job: completed pods), and the required number."""
    spec, status = live.get("spec", {}), live.get("status", {})
    match kind:
        case "Pod":
            return int(status.get("phase") in ("Running", "Succeeded")), 1
        case "DaemonSet":
            # Before the controller has looked, it wants none: that is not the same as having none to want.
            known = status.get("observedGeneration", 0) > 0
            return status.get("numberReady", 0), status.get("desiredNumberScheduled", 0) if known else 1
        case "Job":
            return status.get("succeeded", 0), spec.get("completions", 1)
        case _:
            return status.get("readyReplicas", 0), spec.get("replicas", 1)


def _list_objects(cluster: LocalCluster, path: str) -> list[dict[str, Any]]:
    listed = cluster.client.request("GET", path, params={"resourceVersion": "0"}, timeout=120)
    items: list[dict[str, Any]] = listed["items"]
    return items


def _await_count(count: Callable[[], tuple[int, int]], what: str, progress: Progress) -> None:
    done, all_ = _try(count, before=(0, 1))
    if done == all_:
        return
    with progress.task(what, total=all_) as task:
        task.advance(done)
        moved = time.monotonic()
        while done < all_:
            if time.monotonic() - moved > STALLED:
                raise LocalError(f"{done:,} of {all_:,} {what}, and for {STALLED:.0f} s no more")
            before, began = done, time.monotonic()
            done, all_ = _try(count, before=(done, all_))
            # A list of thousands costs the API server more than the answer is worth: poll at a pace that it bears.
            time.sleep(max(0.2, 3 * (time.monotonic() - began)))
            if done != before:
                moved = time.monotonic()
                task.advance(done - before)
                task.expect(all_)


def _try(count: Callable[[], tuple[int, int]], *, before: tuple[int, int]) -> tuple[int, int]:
    try:
        return count()
    except Unreachable:  # an API server under load may take longer to answer than we wait
        return before


MANY_PODS: Final = 10_000
MANY_NODES: Final = 500
"""Number of nodes from which the cluster is configured for load (:attr:`trimtab_local.components.Settings.for_load`).
"""
_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")


class LoadReport(Struct, frozen=True, rename="camel"):
    """The result of a load.

    Attributes:
        nodes: the number of nodes in the scenario.
        pods: the number of pods in the scenario, without DaemonSet pods.
        seconds: the total time until all objects are ready.
        sending_seconds: the part of that time that was spent sending objects.
    """

    nodes: int
    pods: int
    seconds: float
    sending_seconds: float


def load(cluster: LocalCluster, scenario: Scenario, *, progress: Progress | None = None) -> LoadReport:
    """Create all objects of a scenario in a cluster, and wait until they are ready.

    Existing objects are unchanged, so an interrupted load can be continued.

    Args:
        cluster: a running cluster.
        scenario: the scenario.
        progress: receives the steps.

    Raises:
        InputError: pods with ``via: direct`` do not fit on their nodes. No request was sent.
        ApiError: the API server rejected an object. The message names it.
        LocalError: the cluster does not exist, or some objects did not become ready.
    """
    progress = progress or Progress()
    slots = placements(scenario)
    _set_up(cluster, scenario, progress)
    began = time.monotonic()
    sender = Sender(cluster, progress)
    direct = [(w, s) for w, s in zip(scenario.workloads, slots, strict=True) if w.via == "direct"]
    with contextlib.ExitStack() as paused:
        if direct:
            paused.enter_context(cluster.paused(SCHEDULER, KWOK))
        with cluster.paused(CONTROLLER_MANAGER) if direct else contextlib.nullcontext():
            _send_ground(sender, scenario, version=cluster.record().settings.version)
            for workload, nodes in direct:
                _send_direct(sender, scenario, workload, nodes, etcd=Etcd(cluster.layout.etcd))
        # The controllers first: they have much to read, and would have to share the machine with the others.
        placed = [owner for workload, _ in direct for owner in owners(scenario, workload)]
        await_owners(cluster, placed, progress)
    await_played_nodes(cluster, {name for group in scenario.nodes for name in group.names()}, progress)
    everything = [owner for workload in scenario.workloads for owner in owners(scenario, workload)]
    budgets = [manifest for owner in everything if (manifest := budget_manifest(owner)) is not None]
    sender.send([_create(BUDGETS, manifest) for manifest in budgets], "disruption budgets")
    scheduled = [owner for owner in everything if owner.workload.via == "scheduler"]
    sender.send([_create(owner.resource, owner_manifest(owner)) for owner in scheduled], "workloads")
    await_owners(cluster, everything, progress)
    return LoadReport(
        nodes=scenario.node_count,
        pods=scenario.pod_count,
        seconds=round(time.monotonic() - began, 1),
        sending_seconds=round(sender.seconds, 1),
    )


def _set_up(cluster: LocalCluster, scenario: Scenario, progress: Progress) -> None:
    settings = cluster.record().settings
    many = scenario.pod_count >= MANY_PODS or scenario.node_count >= MANY_NODES
    if many and not settings.for_load:
        progress.say("setting the cluster up for load (--for-load)")
        settings = replace(settings, for_load=True)
    cluster.up(settings)


def _send_ground(sender: Sender, scenario: Scenario, *, version: str) -> None:
    """Create nodes and namespaces, including the objects that controllers would otherwise create for them."""
    nodes = [_create_node(manifest, version=version) for manifest in node_manifests(scenario)]
    sender.send(nodes, "nodes")
    namespaces = list(namespace_manifests(scenario))
    sender.send([_create(NAMESPACES, manifest) for manifest in namespaces], "namespaces")
    names = [manifest["metadata"]["name"] for manifest in namespaces]
    accounts = [_create(_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}}) for name in names]
    sender.send(accounts, "service accounts")


def _send_direct(sender: Sender, scenario: Scenario, workload: Workload, nodes: list[str], *, etcd: Etcd) -> None:
    """Create the owners, then their pods, which refer to the owners by UID."""
    chosen = owners(scenario, workload)
    title = f"pods of {workload.name}"
    if workload.kind == "Pod":
        pairs = zip(chosen, nodes, strict=True)
        manifests = [pod_manifest(owner, 0, uid="", node_name=node_name) for owner, node_name in pairs]
        sender.send([_create_running(manifest) for manifest in manifests], title)
        return
    uids: dict[tuple[str, str], str] = {}
    sender.send([_create_owner(owner, uids) for owner in chosen], f"{workload.kind}s {workload.name}")
    each = workload.replicas

    def jobs() -> Iterator[Job]:
        for index, owner in enumerate(chosen):
            uid = uids.get((owner.namespace, owner.name))
            if uid is not None and each:  # else it was there, with all its pods
                yield _create_pods(owner, uid, nodes[index * each : (index + 1) * each], etcd)

    sender.send(jobs(), title, total=workload.pod_count, using=etcd)


def _create_node(manifest: Manifest, *, version: str) -> Job:
    """Return a job that creates a Ready node and removes its not-ready taint, as the node controller does."""

    async def job(api: Api) -> int:
        await send_until_accepted(api, "POST", NODES.path(), as_ready(manifest, version=version, now=_now()))
        taints = {"spec": {"taints": manifest["spec"].get("taints")}}
        await send_until_accepted(api, "PATCH", NODES.path(manifest["metadata"]["name"]), taints)
        return 1

    return job


def _create(resource: Resource, manifest: Manifest) -> Job:
    async def job(api: Api) -> int:
        path = resource.path(namespace=manifest["metadata"].get("namespace", ""))
        await send_until_accepted(api, "POST", path, manifest)
        return 1

    return job


def _create_owner(owner: Owner, uids: dict[tuple[str, str], str]) -> Job:
    """Return a job that creates a ReplicaSet and stores its UID. ReplicaSets that have all their pods are skipped."""

    async def job(api: Api) -> int:
        manifest = owner_manifest(owner)
        answer = await send_until_accepted(api, "POST", owner.resource.path(namespace=owner.namespace), manifest)
        if answer is None:
            answer = await send_until_accepted(api, "GET", owner.resource.path(owner.name, namespace=owner.namespace))
            if answer.get("status", {}).get("replicas", 0) >= owner.workload.replicas:
                return 1
        uids[owner.namespace, owner.name] = answer["metadata"]["uid"]
        return 1

    return job


def _create_running(manifest: Manifest) -> Job:
    async def job(api: Api) -> int:
        await _running(api, manifest)
        return 1

    return job


def _create_pods(owner: Owner, uid: str, nodes: list[str], etcd: Etcd) -> Job:
    """Return a job that creates an owner's first pod through the API server, and the others as copies of it."""

    async def job(api: Api) -> int:
        original = await _running(api, pod_manifest(owner, 0, uid=uid, node_name=nodes[0]))
        await etcd.create(
            [
                pod_copy(original, name=pod_name(owner, number), node_name=node_name)
                for number, node_name in enumerate(nodes[1:], start=1)
            ]
        )
        return len(nodes)

    return job


async def _running(api: Api, manifest: Manifest) -> Manifest:
    """Create a pod on its node, mark it Running as its kubelet would, and return it as stored by the API server."""
    meta = manifest["metadata"]
    path = PODS.path(meta["name"], namespace=meta["namespace"])
    await send_until_accepted(api, "POST", PODS.path(namespace=meta["namespace"]), manifest)
    # A PUT costs the API server half of what a PATCH does. It replaces labels too, so it brings them along.
    live: Manifest | None = await send_until_accepted(
        api, "PUT", f"{path}/status", manifest | {"status": running_status(manifest, now=_now())}
    )
    if live is None:
        live = await send_until_accepted(api, "GET", path)
        assert live is not None  # only a Conflict is answered by nothing, and reading never conflicts
    return live


def running_status(manifest: Manifest, *, now: str) -> dict[str, Any]:
    """Return the status of a pod whose containers all run since ``now`` (RFC 3339)."""
    types = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [{"type": name, "status": "True", "lastTransitionTime": now} for name in types],
        "containerStatuses": [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            }
            for container in manifest["spec"]["containers"]
        ],
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
