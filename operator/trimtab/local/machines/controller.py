"""The controller: watches MachineSets, Machines and Nodes, and carries out what is decided of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.objects import Node
from trimtab.kube.resources import MACHINE_SETS, MACHINES, NODES
from trimtab.kube.verbs import MERGE_PATCH
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.state import ServerAbilities
from trimtab.kube.watching.store import Store
from trimtab.kube.work_queue import WorkQueue
from trimtab.local.machines import drain
from trimtab.local.machines.joining import NODES_MACHINE, node_of
from trimtab.local.machines.linking import lacks, link
from trimtab.local.machines.live import FINALIZER, Live, decode
from trimtab.local.machines.picture import Picture
from trimtab.local.machines.sets import of_set, plan_set, status_of
from trimtab.local.machines.steps import Depart, Join, Step, Wait, Write, next_step, running

logger = logging.getLogger(__name__)

WORKERS: Final = 16
_SET: Final = "MachineSet "
_MACHINE: Final = "Machine "


class Controller:
    """One for a cluster. Run it as a task; it may end at any point, and another one goes on."""

    def __init__(self, api: Api, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            api: the API server.
            clock: tells and waits.
        """
        self._api = api
        self._clock = clock
        self._sets, self._machines = Picture(clock), Picture(clock)
        self._nodes: Store[Node] = Store(clock=clock)
        self._queue = WorkQueue(self._reconcile, workers=WORKERS, clock=clock)
        abilities = ServerAbilities()
        self._informers: tuple[Informer[Any], ...] = (
            Informer(api, MACHINE_SETS, self._sets.store, decode=decode, abilities=abilities, clock=clock),
            Informer(api, MACHINES, self._machines.store, decode=decode, abilities=abilities, clock=clock),
            Informer(api, NODES, self._nodes, abilities=abilities, clock=clock),
        )
        self._sets.store.subscribe(self._set_changed)
        self._machines.store.subscribe(self._machine_changed)
        self._nodes.subscribe(self._node_changed)

    @property
    def synced(self) -> bool:
        """Whether the picture is complete."""
        return all(informer.store.synced for informer in self._informers)

    async def run(self) -> None:
        """Work until cancelled. Nothing is decided before everything has been read."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run(), name=f"watch {informer.resource.plural}")
            for informer in self._informers:
                await informer.synced()
            group.create_task(self._queue.run(), name="work")

    def _set_changed(self, old: Live | None, new: Live | None) -> None:
        if new is not None:
            self._queue.add(_SET + new.key)
        elif old is not None:
            logger.info("MachineSet %s is gone", old.key)

    def _machine_changed(self, old: Live | None, new: Live | None) -> None:
        live = new or old
        assert live is not None
        if new is not None:
            self._queue.add(_MACHINE + live.key)
        owner = live.controller.get("name")
        if owner:
            self._queue.add(f"{_SET}{live.namespace}/{owner}")

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None and _telling(old) == _telling(new):
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
        owner = self._sets.get(key)
        if owner is None:
            return None
        now = self._clock.now()
        plan = plan_set(owner, of_set(self._machines.controlled_by(owner.uid), owner), now=now)
        for problem in plan.problems:
            logger.warning("MachineSet %s: %s", key, problem)
        if plan.used_up:
            metadata = {"annotations": plan.used_up, "resourceVersion": owner.resource_version}
            owner = await self._wrote(self._sets, owner, Write({"metadata": metadata}))
        for manifest in plan.births:
            answer = await verbs.create(self._api, MACHINES, manifest, namespace=owner.namespace)
            self._machines.wrote(Live(answer))
            self._queue.add(f"{_MACHINE}{Live(answer).key}")
        for machine in plan.deaths:
            await self._delete(machine)
        if plan.births or plan.deaths:
            logger.info("MachineSet %s: %d made, %d deleted", key, len(plan.births), len(plan.deaths))
        return await self._tell(owner, now)

    async def _delete(self, machine: Live) -> None:
        try:
            await verbs.delete(self._api, MACHINES, machine.name, namespace=machine.namespace, uid=machine.uid)
        except (NotFound, Conflict):
            return
        self._machines.deleted(machine)

    async def _tell(self, owner: Live, now: float) -> float | None:
        """Write the set's status where it has changed; when to look again, if at all."""
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
        """Go through a machine's life as far as that is possible now."""
        machine = self._machines.get(key)
        while machine is not None:
            step = next_step(machine, now=self._clock.now())
            if isinstance(step, Wait):
                return step.seconds
            if isinstance(step, Depart):
                return await self._depart(machine, step)
            if step is None:
                await self._link(machine)
                return None
            machine = await self._advance(machine, step)
        return None

    async def _advance(self, machine: Live, step: Step) -> Live | None:
        """Take a step; the machine after it, ``None`` where it is gone or somebody else wrote in between."""
        try:
            if isinstance(step, Join):
                step = await self._join(machine)
            assert isinstance(step, Write)
            return await self._wrote(self._machines, machine, step)
        except NotFound:
            return None

    async def _join(self, machine: Live) -> Write:
        owner = self._sets.get(f"{machine.namespace}/{machine.controller.get('name', '')}")
        try:
            node = await verbs.create(self._api, NODES, node_of(machine, owner))
        except Conflict:  # made before a restart, or by somebody
            node = await verbs.get(self._api, NODES, machine.name)
        return running(machine.name, node["metadata"]["uid"])

    async def _link(self, machine: Live) -> None:
        """Give a machine's node what it lacks of the machine's labels and taints, and take nothing from it."""
        seen = self._nodes.get(machine.node) if machine.node and not machine.deleting else None
        if seen is None or seen.annotations.get(NODES_MACHINE) != machine.key or not lacks(machine, seen):
            return
        with contextlib.suppress(NotFound):
            node = await verbs.get(self._api, NODES, seen.name)
            patch = link(machine, node) if node["metadata"]["uid"] == seen.uid else None
            if patch is not None:
                await verbs.merge_patch(self._api, NODES, seen.name, patch)
                logger.info("Machine %s: node %s has its labels and taints", machine.key, seen.name)

    async def _depart(self, machine: Live, step: Depart) -> float | None:
        if step.drain and machine.node and not await drain.drained(self._api, step.node):
            return drain.AGAIN
        with contextlib.suppress(NotFound, Conflict):
            node = await verbs.get(self._api, NODES, step.node)
            if (node["metadata"].get("annotations") or {}).get(NODES_MACHINE) == machine.key:
                await verbs.delete(self._api, NODES, step.node, uid=node["metadata"]["uid"])
        finalizers = [each for each in machine.metadata["finalizers"] if each != FINALIZER]
        patch = {"metadata": {"finalizers": finalizers, "resourceVersion": machine.resource_version}}
        with contextlib.suppress(NotFound):
            await self._patch(self._machines, machine, Write(patch))
        return None

    async def _wrote(self, picture: Picture, live: Live, write: Write) -> Live:
        """Write, and remember what the API server answered."""
        after = await self._patch(picture, live, write)
        picture.wrote(after)
        return after

    async def _patch(self, picture: Picture, live: Live, write: Write) -> Live:
        resource = MACHINE_SETS if picture is self._sets else MACHINES
        path = resource.path(live.name, namespace=live.namespace, subresource=write.subresource)
        return Live(await self._api.request("PATCH", path, body=write.patch, content_type=MERGE_PATCH))


def _telling(node: Node) -> tuple[object, ...]:
    """What of a node its machine and its set have to know of; heartbeats change nothing of it."""
    return node.ready, node.taints, node.labels
