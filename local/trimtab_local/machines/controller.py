"""The machine controller: watches MachineSets, Machines and Nodes, and executes the planned steps.

Before a machine is deleted, its node is drained as in the Machine API: it is cordoned, its pods are evicted within
their PodDisruptionBudgets, and the controller waits for them. The Machine API evicts all pods except DaemonSet and
static pods, without a timeout, regardless of any earlier drain. If an autoscaler has drained the node already, there is
nothing left to wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from trimtab.controller.work_queue import WorkQueue
from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, NotFound, ServerError, TooManyRequests
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.objects import Node
from trimtab.kube.resources import MACHINE_SETS, MACHINES, NODES, PODS
from trimtab.kube.verbs import MERGE_PATCH
from trimtab.kube.watching.informer import Informer, ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab_local.machines.caches import LaggingField, ObjectCache, marks_of, size_of, with_marks, with_size
from trimtab_local.machines.machine import (
    FINALIZER,
    NODES_MACHINE,
    CreateNode,
    LiveObject,
    RemoveNode,
    Step,
    Wait,
    Write,
    decode,
    lacks,
    link,
    next_step,
    node_of,
    running,
)
from trimtab_local.machines.orders import read_orders
from trimtab_local.machines.sets import of_set, plan_set, status_of

DRAIN_INTERVAL: Final = 1.0
"""Seconds between two checks of the pods that are still on the node."""

_MIRROR: Final = "kubernetes.io/config.mirror"


async def drained(api: Api, node: str) -> bool:
    """Evict the remaining pods of a node, and return whether none is left.

    Raises:
        ApiError: the API server rejected an eviction for another reason than a PodDisruptionBudget.
        Unreachable: there was no response.
    """
    try:
        await verbs.merge_patch(api, NODES, node, {"spec": {"unschedulable": True}})
    except NotFound:
        return True
    found = await verbs.list_objects(api, PODS, field_selector=f"spec.nodeName={node}")
    left = [pod for pod in found.items if _is_drained_pod(pod)]
    for pod in left:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            continue
        try:
            await _evict(api, metadata)
        except (Conflict, NotFound, ServerError, TooManyRequests):
            continue  # another pod, a budget, or an overloaded server; the next check asks again
    return not left


async def _evict(api: Api, metadata: dict[str, Any]) -> None:
    name, namespace = metadata["name"], metadata["namespace"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
    }
    await api.request("POST", PODS.path(name, namespace=namespace, subresource="eviction"), body=body)


def _is_drained_pod(pod: dict[str, Any]) -> bool:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    daemon = any(owner.get("controller") and owner.get("kind") == "DaemonSet" for owner in owners)
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not (daemon or over or _MIRROR in (metadata.get("annotations") or {}))


logger = logging.getLogger(__name__)

WORKERS: Final = 16
_SET: Final = "MachineSet "
_MACHINE: Final = "Machine "


class Controller:
    """The machine controller of a cluster. Run it as a task.

    It may stop at any point, and another instance continues.
    """

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Initialize the controller. No request is sent before :meth:`run`.

        Args:
            api: the API server.
            clock: the clock.
        """
        self._api = api
        self._clock = clock
        self._sets, self._machines = ObjectCache(clock), ObjectCache(clock)
        self._nodes: Store[Node] = Store(clock=clock)
        self._queue = WorkQueue(self._reconcile, workers=WORKERS, clock=clock)
        abilities = ServerAbilities()
        self._informers: tuple[Informer[Any], ...] = (
            Informer(api, MACHINE_SETS, self._sets.store, decode=decode, abilities=abilities, clock=clock),
            Informer(api, MACHINES, self._machines.store, decode=decode, abilities=abilities, clock=clock),
            Informer(api, NODES, self._nodes, abilities=abilities, clock=clock),
        )
        self._marks, self._sizes = LaggingField(clock, marks_of), LaggingField(clock, size_of)
        self._machines.store.subscribe(self._marks.observe)
        self._sets.store.subscribe(self._sizes.observe)
        self._sets.store.subscribe(self._set_changed)
        self._machines.store.subscribe(self._machine_changed)
        self._nodes.subscribe(self._node_changed)

    @property
    def synced(self) -> bool:
        """Return whether all caches have synced."""
        return all(informer.store.synced for informer in self._informers)

    async def run(self) -> None:
        """Run until cancelled. No decision is made before all caches have synced."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"watch {informer.resource.plural}")
            for informer in self._informers:
                await informer.synced()
            group.create_task(self._queue.run(), name="work")

    def _set_changed(self, old: LiveObject | None, new: LiveObject | None) -> None:
        if new is not None:
            self._queue.add(_SET + new.key)
        elif old is not None:
            logger.info("MachineSet %s is gone", old.key)

    def _machine_changed(self, old: LiveObject | None, new: LiveObject | None) -> None:
        live = new or old
        assert live is not None
        if new is not None:
            self._queue.add(_MACHINE + live.key)
        owner = live.controller.get("name")
        if owner:
            self._queue.add(f"{_SET}{live.namespace}/{owner}")

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _relevant_fields(old) == _relevant_fields(new):
            return
        node = new or old
        assert node is not None
        machine = self._machines.get(node.annotations.get(NODES_MACHINE, ""))
        if machine is not None:
            self._machine_changed(machine, machine)

    async def _reconcile(self, key: str) -> float | None:
        kind, _, name = key.partition(" ")
        return await (self._reconcile_set(name) if f"{kind} " == _SET else self._reconcile_machine(name))

    async def _reconcile_set(self, key: str) -> float | None:
        """Create and delete machines according to the lagging caches."""
        live = self._sets.get(key)
        if live is None:
            return None
        now = self._clock.now()
        orders = read_orders(live.annotations)
        size, next_size = self._sizes.visible(live, orders.size_lag)
        owner = with_size(live, size)
        machines, next_mark = self._visible_machines(owner, orders.mark_lag)
        plan = plan_set(owner, machines, now=now)
        for problem in plan.problems:
            logger.warning("MachineSet %s: %s", key, problem)
        if plan.annotation_changes:
            metadata = {"annotations": plan.annotation_changes, "resourceVersion": owner.resource_version}
            owner = with_size(await self._wrote(self._sets, owner, Write({"metadata": metadata})), size)
        for manifest in plan.to_create:
            answer = await verbs.create(self._api, MACHINES, manifest, namespace=owner.namespace)
            self._machines.wrote(LiveObject(answer))
            self._queue.add(f"{_MACHINE}{LiveObject(answer).key}")
        for machine in plan.to_delete:
            await self._delete(machine)
        if plan.to_create or plan.to_delete:
            logger.info("MachineSet %s: %d made, %d deleted", key, len(plan.to_create), len(plan.to_delete))
        again = await self._update_status(owner, now)
        return min((each for each in (again, next_size, next_mark) if each is not None), default=None)

    def _visible_machines(self, owner: LiveObject, lag: float) -> tuple[list[LiveObject], float | None]:
        """Return the MachineSet's machines with the visible deletion annotations.

        The second value is the seconds until others become visible, or ``None``.
        """
        machines, soonest = [], None
        for machine in of_set(self._machines.controlled_by(owner.uid), owner):
            marks, left = self._marks.visible(machine, lag)
            machines.append(with_marks(machine, marks))
            if left is not None:
                soonest = left if soonest is None else min(left, soonest)
        return machines, soonest

    async def _delete(self, machine: LiveObject) -> None:
        try:
            await verbs.delete(self._api, MACHINES, machine.name, namespace=machine.namespace, uid=machine.uid)
        except (NotFound, Conflict):
            return
        self._machines.deleted(machine)

    async def _update_status(self, owner: LiveObject, now: float) -> float | None:
        """Write the status of a MachineSet if it changed, and return the seconds until the next check, if any."""
        machines = of_set(self._machines.controlled_by(owner.uid), owner)
        status, again = status_of(owner, machines, self._ready_since, now=now)
        if any(owner.status.get(field) != value for field, value in status.items()):
            await self._wrote(self._sets, owner, Write({"status": status}, "status"))
        return again

    def _ready_since(self, name: str) -> float | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        ready = (each for each in node.conditions if (each.type, each.status) == ("Ready", "True"))
        return next((each.since or 0.0 for each in ready), None)

    async def _reconcile_machine(self, key: str) -> float | None:
        """Execute the steps of a machine that are possible now."""
        machine = self._machines.get(key)
        while machine is not None:
            step = next_step(machine, now=self._clock.now())
            if isinstance(step, Wait):
                return step.seconds
            if isinstance(step, RemoveNode):
                return await self._remove_node(machine, step)
            if step is None:
                await self._link(machine)
                return None
            machine = await self._advance(machine, step)
        return None

    async def _advance(self, machine: LiveObject, step: Step) -> LiveObject | None:
        """Execute one step, and return the updated machine; ``None`` if it was deleted or another client changed it."""
        try:
            if isinstance(step, CreateNode):
                step = await self._create_node(machine)
            assert isinstance(step, Write)
            return await self._wrote(self._machines, machine, step)
        except NotFound:
            return None

    async def _create_node(self, machine: LiveObject) -> Write:
        owner = self._sets.get(f"{machine.namespace}/{machine.controller.get('name', '')}")
        try:
            node = await verbs.create(self._api, NODES, node_of(machine, owner))
        except Conflict:  # made before a restart, or by another client
            node = await verbs.get(self._api, NODES, machine.name)
        return running(machine.name, node["metadata"]["uid"])

    async def _link(self, machine: LiveObject) -> None:
        """Add the machine's missing labels and taints to its node. Nothing is removed."""
        seen = self._nodes.get(machine.node) if machine.node and not machine.deleting else None
        if seen is None or seen.annotations.get(NODES_MACHINE) != machine.key or not lacks(machine, seen):
            return
        with contextlib.suppress(NotFound):
            node = await verbs.get(self._api, NODES, seen.name)
            patch = link(machine, node) if node["metadata"]["uid"] == seen.uid else None
            if patch is not None:
                await verbs.merge_patch(self._api, NODES, seen.name, patch)
                logger.info("Machine %s: node %s has its labels and taints", machine.key, seen.name)

    async def _remove_node(self, machine: LiveObject, step: RemoveNode) -> float | None:
        if step.drain and machine.node and not await drained(self._api, step.node):
            return DRAIN_INTERVAL
        with contextlib.suppress(NotFound, Conflict):
            node = await verbs.get(self._api, NODES, step.node)
            if (node["metadata"].get("annotations") or {}).get(NODES_MACHINE) == machine.key:
                await verbs.delete(self._api, NODES, step.node, uid=node["metadata"]["uid"])
        finalizers = [each for each in machine.metadata["finalizers"] if each != FINALIZER]
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": machine.resource_version}}
        with contextlib.suppress(NotFound):
            await self._patch(self._machines, machine, Write(patch))
        return None

    async def _wrote(self, cache: ObjectCache, live: LiveObject, write: Write) -> LiveObject:
        """Write an object, and store the response in the cache."""
        after = await self._patch(cache, live, write)
        cache.wrote(after)
        return after

    async def _patch(self, cache: ObjectCache, live: LiveObject, write: Write) -> LiveObject:
        resource = MACHINE_SETS if cache is self._sets else MACHINES
        path = resource.path(live.name, namespace=live.namespace, subresource=write.subresource)
        return LiveObject(await self._api.request("PATCH", path, body=write.patch, content_type=MERGE_PATCH))


def _relevant_fields(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that affect its machine or MachineSet. Heartbeats change none of them."""
    return node.ready, node.taints, node.labels
