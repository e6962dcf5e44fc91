"""Coordinates the controllers of all NodePressurePolicies: assigns nodes to policies, and writes and cleans up nodes.

One policy handles a node: the first one by name that selects it. :class:`PressureCoordinator` runs the tasks that write
nodes and evict pods for all policies. The *marks* of a node are the annotation, the conditions and the taints that
trimtab adds to it. The coordinator removes them once no policy in Act mode handles the node: the policy was deleted,
was changed to mode Simulate, or no longer selects the node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from trimtab.api.decode import decode_node_pressure_policy
from trimtab.api.node_pressure_policy import ACT, NodePressurePolicy
from trimtab.controller.loop import Loop, TaskSupervisor
from trimtab.kube import verbs
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODE_PRESSURE_POLICIES
from trimtab.pressure.assignment import Assignment, assign_nodes
from trimtab.pressure.dependencies import PressureDependencies
from trimtab.pressure.evictions import NodeEvictions
from trimtab.pressure.node_writer import NO_MARKS, NodeWriter, has_marks
from trimtab.pressure.state import ANNOTATION, NodeState, decode_state

log = logging.getLogger(__name__)

ASSIGNMENT_AGE: Final = 5.0
"""Seconds for which the assignment of nodes to policies is cached. Labels of nodes and policies change rarely."""

CLEANING_PERIOD: Final = 10.0
"""Seconds between two checks for marks on nodes that no policy handles."""

CLEANING_RETRY: Final = 2.0
"""Seconds between two such checks while marks are being removed."""

LIST_TIMEOUT: Final = 10.0
"""Timeout in seconds for reading the NodePressurePolicies."""

STOP_TIMEOUT: Final = 10.0
"""Seconds that requests in flight have to finish when the process stops."""

CLEAN_UP_TIMEOUT: Final = 60.0
"""Timeout in seconds for removing the marks when a policy is deleted. Kopf retries a failed removal."""


class PressureCoordinator(Loop):
    """Writes nodes and evicts pods for all policies, and removes marks that no policy needs.

    Args:
        dependencies: the dependencies of the controllers.

    Attributes:
        writer: writes the marks of nodes.
        evictions: evicts pods.
    """

    def __init__(self, dependencies: PressureDependencies) -> None:
        super().__init__("removal of node-pressure marks", dependencies.clock)
        self._dependencies = dependencies
        self.writer = NodeWriter(
            dependencies.api,
            dependencies.lister,
            dependencies.clock,
            stale=dependencies.stale,
            metrics=dependencies.queue_metrics.queue("node-pressure"),
        )
        self.evictions = NodeEvictions(
            api=dependencies.api,
            evictor=dependencies.evictor,
            lister=dependencies.lister,
            clock=dependencies.clock,
            stale=dependencies.stale,
            reporter=dependencies.reporter,
        )
        self._tasks = TaskSupervisor("node pressure", dependencies.clock)
        self._policies: dict[str, NodePressurePolicy] = {}
        self._listeners: dict[str, Callable[[], None]] = {}
        self._assignment: Assignment | None = None
        self._assigned_at = 0.0
        self._states: dict[str, tuple[str, NodeState]] = {}
        self._cleaning: set[str] = set()

    # --- which policy handles a node --------------------------------------------------------------------------------

    def set_policy(self, policy: NodePressurePolicy, changed: Callable[[], None]) -> None:
        """Add or replace a policy.

        Args:
            policy: the policy.
            changed: called when another policy is added, changed or removed, which may change the nodes of this one.
        """
        uid = policy.metadata.uid
        self._listeners[uid] = changed
        if self._policies.get(uid) is not policy:
            self._policies[uid] = policy
            self._policies_changed(but=uid)

    def remove_policy(self, uid: str) -> None:
        """Remove a policy that was deleted or became invalid."""
        self._listeners.pop(uid, None)
        if self._policies.pop(uid, None) is not None:
            self._policies_changed(but=uid)

    def assignment(self) -> Assignment:
        """Return which policy handles each node, and which policies select the same nodes."""
        now = self._dependencies.clock.monotonic()
        if self._assignment is None or now - self._assigned_at >= ASSIGNMENT_AGE:
            nodes = [node for node in self._dependencies.lister.nodes.values() if node.deleted is None]
            self._assignment, self._assigned_at = assign_nodes(nodes, list(self._policies.values())), now
        return self._assignment

    def nodes_of(self, name: str) -> list[Node]:
        """Return the nodes that a policy handles, sorted by name."""
        lister = self._dependencies.lister
        handled = (node for node, policy in self.assignment().policies.items() if policy.name == name)
        return [node for each in handled if (node := lister.node(each)) is not None]

    def _policies_changed(self, *, but: str) -> None:
        self._assignment = None
        for uid, changed in list(self._listeners.items()):
            if uid != but:
                changed()
        self.wake()

    # --- the state of a node ----------------------------------------------------------------------------------------

    def state_of(self, node: Node) -> NodeState:
        """Return the state of a node from memory, or else from the annotation that an earlier process wrote."""
        uid, state = self._states.get(node.name, ("", None))
        if state is not None and uid == node.uid:
            return state
        return decode_state(node.annotations.get(ANNOTATION))

    def set_state(self, node: Node, state: NodeState) -> None:
        """Set the state of a node in memory. The caller stores it with the node's marks."""
        if state or ANNOTATION in node.annotations:
            self._states[node.name] = (node.uid, state)
        else:
            self._states.pop(node.name, None)

    def forget_deleted_nodes(self) -> None:
        """Drop the states, writes and evictions of nodes that do not exist any more."""
        nodes = self._dependencies.lister.nodes
        self._states = {name: each for name, each in self._states.items() if name in nodes}
        self.writer.forget_deleted_nodes()
        self.evictions.forget_departed_pods()

    # --- tasks ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start to write nodes and to remove marks."""
        self._tasks.start("node writer", self.writer.run)
        self._tasks.start("removal of marks", self._iterate_until_closed)

    async def stop(self) -> None:
        """Finish the requests in flight. Conditions, taints and states stay on the nodes for the next process."""
        await self._tasks.end("removal of marks", self._end, seconds=STOP_TIMEOUT)
        await asyncio.gather(self.evictions.stop(STOP_TIMEOUT), self.writer.stop(STOP_TIMEOUT))
        await self._tasks.cancel()
        await self._dependencies.close()

    async def _end(self) -> None:
        self.close()

    # --- removal of marks -------------------------------------------------------------------------------------------

    async def remove_marks(self, deleted: str) -> None:
        """Remove the marks of all nodes that no policy in Act mode handles, because a policy is being deleted.

        Args:
            deleted: UID of the policy that is being deleted.

        Raises:
            TimeoutError: the marks could not be removed from some nodes.
        """
        self.remove_policy(deleted)
        async with asyncio.timeout(CLEAN_UP_TIMEOUT):
            while await self._remove_unneeded():
                await self._dependencies.clock.sleep(CLEANING_RETRY / 4)

    async def _iterate(self) -> float:
        return CLEANING_RETRY if await self._remove_unneeded() else CLEANING_PERIOD

    async def _failed(self, error: Exception) -> float:
        del error  # the loop has logged it
        return CLEANING_PERIOD

    async def _remove_unneeded(self) -> bool:
        """Start to remove the marks of nodes that no policy in Act mode handles.

        The policies that this process knows may be incomplete, for example while Kopf lists them. Therefore the API
        server is asked before marks are removed.

        Returns:
            Whether some nodes still have such marks, or whether that is unknown.
        """
        if self._dependencies.stale() is not None:
            return True
        self.forget_deleted_nodes()
        lister, handled = self._dependencies.lister, self.assignment().policies
        existing = (node for node in lister.nodes.values() if node.deleted is None)
        marked = [node for node in existing if has_marks(node) or self.writer.is_marking(node.name)]
        marked = [node for node in marked if not _acts_on(handled, node)]
        if not marked:
            self._cleaning = set()
            return False
        try:
            policies = await self._read_policies()
        except (ApiError, Unreachable) as error:
            message = (
                "Failed to list NodePressurePolicies; temporarily keeping the pressure conditions and taints of "
                "nodes: %s"
            )
            log.warning(message, error)
            return True
        stored = assign_nodes(marked, policies).policies
        unneeded = [node for node in marked if not _acts_on(stored, node)]
        for node in unneeded:
            if not _acts_on(self.assignment().policies, node):  # a policy may have been added during the request
                self.evictions.withdraw(node.name)
                self.writer.put(lister.node(node.name) or node, NO_MARKS)
                self._states.pop(node.name, None)
        names = {node.name for node in unneeded}
        for name in sorted(names - self._cleaning):
            log.info(
                "Removing the pressure conditions and taints of node %s because no NodePressurePolicy in Act mode "
                "selects the node",
                name,
            )
        self._cleaning = names
        return bool(unneeded)

    async def _read_policies(self) -> list[NodePressurePolicy]:
        """Return the valid policies that are not being deleted."""
        found = await verbs.list_objects(self._dependencies.api, NODE_PRESSURE_POLICIES, timeout=LIST_TIMEOUT)
        policies = []
        for item in found.items:
            if item["metadata"].get("deletionTimestamp"):
                continue
            try:
                policies.append(decode_node_pressure_policy({**_TYPE, **item}))
            except InputError:
                continue  # its controller reports the error
        return policies


_TYPE: Final = {"apiVersion": NODE_PRESSURE_POLICIES.api_version, "kind": NODE_PRESSURE_POLICIES.kind}


def _acts_on(handled: Mapping[str, NodePressurePolicy], node: Node) -> bool:
    """Return whether the policy that handles a node is in Act mode."""
    policy = handled.get(node.name)
    return policy is not None and policy.spec.mode == ACT
