"""Filling a cluster with a scenario, as fast as its API server takes it.

Pods that the scheduler is to place need nothing but their owners. Pods that are created directly (``via: direct``) are
created on their nodes and marked Running, which needs care with those who watch: the controller of a ReplicaSet would
make its own pods before ours are there, the garbage collector and kwok would add their requests to ours. So the
API server's clients are stopped for that time. When they start again, they find ReplicaSets with exactly the pods that
they should have, and nothing to do. Of each owner's pods the API server makes one, the others are copies of it in etcd
(:mod:`trimtab.local.copies`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.api import Api
from trimtab.kube.resources import BUDGETS, NAMESPACES, NODES, PODS, Resource
from trimtab.local.cluster import LocalCluster
from trimtab.local.copies import Etcd, pod_copy
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
    pod_name,
)
from trimtab.local.nodes import as_ready
from trimtab.local.progress import Progress
from trimtab.local.scenario import Scenario, Workload
from trimtab.local.sending import Job, Sender, insist
from trimtab.local.settle import await_nodes, await_owners
from trimtab.local.versions import CONTROLLER_MANAGER, KWOK, SCHEDULER

MANY_PODS: Final = 10_000
MANY_NODES: Final = 500
"""From here on the cluster is set up for load (:attr:`trimtab.local.components.Settings.for_load`)."""
_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")


class LoadReport(Struct, frozen=True, rename="camel"):
    """What a load made.

    Attributes:
        nodes: of the scenario.
        pods: of the scenario, without those of DaemonSets.
        seconds: of the whole, until everything is settled.
        sending_seconds: of these, sending objects.
    """

    nodes: int
    pods: int
    seconds: float
    sending_seconds: float


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
    await_nodes(cluster, {name for group in scenario.nodes for name in group.names()}, progress)
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
    """Nodes, and namespaces with the account that pods run as: what controllers would make, they find made."""
    nodes = [_create_node(manifest, version=version) for manifest in node_manifests(scenario)]
    sender.send(nodes, "nodes")
    namespaces = list(namespace_manifests(scenario))
    sender.send([_create(NAMESPACES, manifest) for manifest in namespaces], "namespaces")
    names = [manifest["metadata"]["name"] for manifest in namespaces]
    accounts = [_create(_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}}) for name in names]
    sender.send(accounts, "service accounts")


def _send_direct(sender: Sender, scenario: Scenario, workload: Workload, nodes: list[str], *, etcd: Etcd) -> None:
    """Owners first, for pods need their uids; then the pods."""
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
    """Create a Ready node, and remove the taint that the API server puts on every new one, as the controller would."""

    async def job(api: Api) -> int:
        await insist(api, "POST", NODES.path(), as_ready(manifest, version=version, now=_now()))
        taints = {"spec": {"taints": manifest["spec"].get("taints")}}
        await insist(api, "PATCH", NODES.path(manifest["metadata"]["name"]), taints)
        return 1

    return job


def _create(resource: Resource, manifest: Manifest) -> Job:
    async def job(api: Api) -> int:
        path = resource.path(namespace=manifest["metadata"].get("namespace", ""))
        await insist(api, "POST", path, manifest)
        return 1

    return job


def _create_owner(owner: Owner, uids: dict[tuple[str, str], str]) -> Job:
    """Create a ReplicaSet and note its uid; one that exists with all its pods is left out."""

    async def job(api: Api) -> int:
        manifest = owner_manifest(owner)
        answer = await insist(api, "POST", owner.resource.path(namespace=owner.namespace), manifest)
        if answer is None:
            answer = await insist(api, "GET", owner.resource.path(owner.name, namespace=owner.namespace))
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
    """An owner's first pod by the API server, the others as copies of it."""

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
    """Create a pod on its node and mark it Running, as its kubelet would; return it as the API server has it."""
    meta = manifest["metadata"]
    path = PODS.path(meta["name"], namespace=meta["namespace"])
    await insist(api, "POST", PODS.path(namespace=meta["namespace"]), manifest)
    # A PUT costs the API server half of what a PATCH does. It replaces labels too, so it brings them along.
    live: Manifest | None = await insist(
        api, "PUT", f"{path}/status", manifest | {"status": running_status(manifest, now=_now())}
    )
    if live is None:
        live = await insist(api, "GET", path)
        assert live is not None  # only a Conflict is answered by nothing, and reading conflicts with nobody
    return live


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
