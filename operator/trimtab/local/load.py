"""Filling a cluster with a scenario, as fast as its API server takes it.

Pods that the scheduler is to place need nothing but their owners. Pods that are created directly (``via: direct``) are
created on their nodes and marked Running, which needs care with those who watch: the controller of a ReplicaSet would
make its own pods before ours are there, the garbage collector and kwok would add their requests to ours. So the
API server's clients are stopped for that time. When they start again, they find ReplicaSets with exactly the pods that
they should have, and nothing to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import uvloop
from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.api import Api, ApiError, Conflict, ServerError, TooManyRequests, Unreachable
from trimtab.kube.config import load_config
from trimtab.kube.resources import BUDGETS, NAMESPACES, NODES, PODS, Resource
from trimtab.kube.transport import Transport
from trimtab.local.cluster import LocalCluster
from trimtab.local.errors import LocalError
from trimtab.local.manifests import (
    Manifest,
    Owner,
    budget_manifest,
    namespace_manifests,
    node_manifests,
    owner_manifest,
    owners,
    placements,
    pod_manifest,
)
from trimtab.local.progress import Progress
from trimtab.local.scenario import Scenario, Workload
from trimtab.local.settle import await_nodes, await_owners

CONNECTIONS: Final = 48
"""At once. More only make the API server switch more; with fewer it waits for us."""
MANY_PODS: Final = 10_000
MANY_NODES: Final = 500
"""From here on the cluster is set up for load (:attr:`trimtab.local.components.Settings.for_load`)."""
_TRIES: Final = 6

Job = Callable[[Api], Awaitable[None]]


class LoadReport(Struct, frozen=True, rename="camel"):
    """What a load made.

    Attributes:
        nodes: of the scenario.
        pods: of the scenario, without those of DaemonSets.
        seconds: of the whole, until everything is settled.
        create_seconds: of these, sending objects.
    """

    nodes: int
    pods: int
    seconds: float
    create_seconds: float


def load(cluster: LocalCluster, scenario: Scenario, *, progress: Progress | None = None) -> LoadReport:
    """Bring everything of the scenario into the cluster, and wait until it is settled.

    What is there already is left as it is, so that a load that broke off can be taken up again.

    Args:
        cluster: one that is up.
        scenario: what to bring.
        progress: where to tell how far it is.

    Raises:
        InputError: the directly placed pods do not fit their nodes; nothing was sent.
        ApiError: the API server refused an object; the message names it.
        LocalError: there is no such cluster, or something did not settle.
    """
    progress = progress or Progress()
    slots = placements(scenario)
    _set_up(cluster, scenario, progress)
    began = time.monotonic()
    direct = [(w, s) for w, s in zip(scenario.workloads, slots, strict=True) if w.via == "direct"]
    scheduled = [w for w in scenario.workloads if w.via == "scheduler"]
    sending = _send(cluster, [_create(NODES, m) for m in node_manifests(scenario)], "nodes", progress)
    sending += _send(cluster, _namespaces(scenario), "namespaces", progress)
    everything = [owner for workload in scenario.workloads for owner in owners(scenario, workload)]
    budgets = [manifest for owner in everything if (manifest := budget_manifest(owner)) is not None]
    sending += _send(cluster, [_create(BUDGETS, m) for m in budgets], "disruption budgets", progress)
    await_nodes(cluster, progress)
    if direct:
        with cluster.paused():
            for workload, nodes in direct:
                sending += _send_direct(cluster, scenario, workload, nodes, progress)
        await_nodes(cluster, progress)
    jobs = [_create(owner.resource, owner_manifest(owner)) for w in scheduled for owner in owners(scenario, w)]
    sending += _send(cluster, jobs, "workloads", progress)
    await_owners(cluster, everything, progress)
    return LoadReport(
        nodes=scenario.node_count,
        pods=scenario.pod_count,
        seconds=round(time.monotonic() - began, 1),
        create_seconds=round(sending, 1),
    )


def _set_up(cluster: LocalCluster, scenario: Scenario, progress: Progress) -> None:
    settings = cluster.record().settings
    many = scenario.pod_count >= MANY_PODS or scenario.node_count >= MANY_NODES
    if many and not settings.for_load:
        progress.say("setting the cluster up for load (--for-load)")
        settings = replace(settings, for_load=True)
    cluster.up(settings)


def _send_direct(
    cluster: LocalCluster, scenario: Scenario, workload: Workload, nodes: list[str], progress: Progress
) -> float:
    """Owners first, for pods need their uids; then pods, each owner's one after the other."""
    chosen = owners(scenario, workload)
    uids: dict[tuple[str, str], str] = {}
    seconds = 0.0
    if workload.kind != "Pod":
        title = f"{workload.kind}s {workload.name}"
        seconds += _send(cluster, [_create_owner(owner, uids) for owner in chosen], title, progress)
    each = 1 if workload.kind == "Pod" else workload.replicas

    def jobs() -> Iterator[Job]:
        for index, owner in enumerate(chosen):
            uid = uids.get((owner.namespace, owner.name), "")
            if workload.kind != "Pod" and not uid:  # it was there, with all its pods
                continue
            for number in range(each):
                yield _run(pod_manifest(owner, number, uid=uid, node_name=nodes[index * each + number]))

    return seconds + _send(cluster, jobs(), f"pods of {workload.name}", progress, total=workload.pod_count)


def _namespaces(scenario: Scenario) -> list[Job]:
    return [_create(NAMESPACES, manifest) for manifest in namespace_manifests(scenario)]


def _create(resource: Resource, manifest: Manifest) -> Job:
    async def job(api: Api) -> None:
        path = resource.path(namespace=manifest["metadata"].get("namespace", ""))
        await _insist(api, "POST", path, manifest)

    return job


def _create_owner(owner: Owner, uids: dict[tuple[str, str], str]) -> Job:
    """Create a ReplicaSet and note its uid; one that exists with all its pods is left out."""

    async def job(api: Api) -> None:
        manifest = owner_manifest(owner)
        answer = await _insist(api, "POST", owner.resource.path(namespace=owner.namespace), manifest)
        if answer is None:
            answer = await _insist(api, "GET", owner.resource.path(owner.name, namespace=owner.namespace))
            if answer.get("status", {}).get("replicas", 0) >= owner.workload.replicas:
                return
        uids[owner.namespace, owner.name] = answer["metadata"]["uid"]

    return job


def _run(manifest: Manifest) -> Job:
    """Create a pod on its node and mark it Running, as its kubelet would."""

    async def job(api: Api) -> None:
        meta = manifest["metadata"]
        await _insist(api, "POST", PODS.path(namespace=meta["namespace"]), manifest)
        status = {"status": running_status(manifest, now=_now())}
        path = PODS.path(meta["name"], namespace=meta["namespace"], subresource="status")
        await _insist(api, "PATCH", path, status)

    return job


def running_status(manifest: Manifest, *, now: str) -> dict[str, Any]:
    """The status of a pod whose containers all run since ``now`` (RFC 3339)."""
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


async def _insist(api: Api, method: str, path: str, body: Any = None) -> Any:
    """Send until it is done; ``None`` where the object is there already."""
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
            name = body["metadata"]["name"] if method == "POST" else ""
            raise LocalError(f"{method} {path} {name}: {error.message}") from error
        await asyncio.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")


def _send(
    cluster: LocalCluster, jobs: Iterable[Job], title: str, progress: Progress, *, total: int | None = None
) -> float:
    """Do all jobs, so many at once as there are connections; return the seconds."""
    amount = total if total is not None else len(list(jobs := list(jobs)))
    if not amount:
        return 0.0
    began = time.monotonic()
    config = load_config(cluster.kubeconfig)

    async def send() -> None:
        queue = iter(jobs)
        with progress.task(title, total=amount) as task:
            async with Transport(config, connections=CONNECTIONS) as api, asyncio.TaskGroup() as group:

                async def work() -> None:
                    for job in queue:
                        await job(api)
                        task.advance(1)

                for _ in range(CONNECTIONS):
                    group.create_task(work())

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(send())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
    return time.monotonic() - began
