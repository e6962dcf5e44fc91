"""Feeds the scheduling queue from the informers.

Each change of a pending pod updates the queue. Each change of another object that can make a pod schedulable is
recorded as an event, whose effect the queue evaluates later and for many events at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from trimtab.api.scheduler_policy import DEFAULT_SCHEDULER, QueueCounts
from trimtab.kube.objects import KubeObject, Node, Pod
from trimtab.kube.resources import (
    CSI_DRIVERS,
    CSI_NODES,
    CSI_STORAGE_CAPACITIES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SERVICES,
    STORAGE_CLASSES,
    Resource,
)
from trimtab.scheduling.dependencies import SchedulerDependencies
from trimtab.scheduling.planner import scheduler_of
from trimtab.scheduling.queue import SchedulingQueue
from trimtab.scheduling.queueing_hints import (
    Action,
    ChangedResource,
    ClusterEvent,
    node_changes,
    pod_changes,
)

EVENT_DELAY: Final = 0.02
"""Seconds between a change of the cluster and the cycle that retries unschedulable pods.

One cycle then covers many changes.
"""

OTHER_KINDS: Final[dict[Resource, ChangedResource]] = {
    PERSISTENT_VOLUME_CLAIMS: "PersistentVolumeClaim",
    PERSISTENT_VOLUMES: "PersistentVolume",
    STORAGE_CLASSES: "StorageClass",
    CSI_NODES: "CSINode",
    CSI_DRIVERS: "CSIDriver",
    CSI_STORAGE_CAPACITIES: "CSIStorageCapacity",
    NAMESPACES: "Namespace",
    SERVICES: "Service",
}
"""Kinds other than pods and nodes whose changes can make a pod schedulable."""


class NominatedPods:
    """The pending pods that are nominated to a node, in the order of their nomination."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}

    def all(self) -> list[Pod]:
        """Return all nominated pods."""
        return list(self._pods.values())

    def on(self, node: str) -> list[Pod]:
        """Return the pods that are nominated to a node."""
        return list(self._by_node.get(node, {}).values())

    def put(self, pod: Pod) -> None:
        """Add a pod, or replace its earlier version, which may be nominated to another node."""
        self._leave_node(self._pods.get(pod.uid))
        self._pods[pod.uid] = pod
        self._by_node.setdefault(pod.nominated_node, {})[pod.uid] = pod

    def remove(self, uid: str) -> Pod | None:
        """Remove a pod, and return it if it was nominated."""
        known = self._pods.pop(uid, None)
        self._leave_node(known)
        return known

    def _leave_node(self, known: Pod | None) -> None:
        if known is not None:
            on_node = self._by_node[known.nominated_node]
            del on_node[known.uid]
            if not on_node:
                del self._by_node[known.nominated_node]


class PendingPods:
    """Feeds the queue from the informers: which pods are pending, and which changes can make a pod schedulable.

    Its listeners are called on each change in the cluster, thousands of times per second.

    Args:
        queue: the scheduling queue.
        dependencies: the dependencies of the scheduler.
        wake: called when the queue may have a pod to schedule.
        left: called with the UID of each pod that has left the queue.
    """

    def __init__(
        self,
        queue: SchedulingQueue,
        dependencies: SchedulerDependencies,
        *,
        wake: Callable[[], None],
        left: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._dependencies = dependencies
        self._clock = dependencies.clock
        self._wake = wake
        self._left = left
        self._served: set[str] = set()
        self._gated: dict[str, str] = {}  # scheduler names by UID
        self._gated_counts: Counter[str] = Counter()
        self._nominated = NominatedPods()
        self._own_nominations: dict[str, str] = {}  # nodes by UID, or "" for none, until the watch reports them
        self._subscriptions: list[Callable[[], None]] = []
        self._wake_timer: asyncio.TimerHandle | None = None

    def subscribe(self) -> None:
        """Follow the informers from now on."""
        subscribe = self._dependencies.subscribe
        self._subscriptions = [subscribe(PODS, self._pod_changed), subscribe(NODES, self._node_changed)]
        self._subscriptions.append(subscribe(PODS, self._dependencies.reporter.pod_changed))
        self._subscriptions += [
            subscribe(resource, partial(self._object_changed, kind)) for resource, kind in OTHER_KINDS.items()
        ]

    def unsubscribe(self) -> None:
        """Stop following the informers."""
        for end in self._subscriptions:
            end()
        self._subscriptions = []
        if self._wake_timer is not None:
            self._wake_timer.cancel()

    def serve(self, scheduler: str) -> None:
        """Queue the pending pods of a scheduler name. Pods that are already queued are retried."""
        self._served.add(scheduler)
        now = self._clock.monotonic()
        for pod in self._dependencies.lister.pending(scheduler):
            self._add(pod)
            self._queue.activate(pod.uid, now)

    def abandon(self, scheduler: str) -> None:
        """Remove the pods of a scheduler name from the queue."""
        self._served.discard(scheduler)
        for pod in self._dependencies.lister.pending(scheduler):
            self._forget(pod.uid)

    def nominated(self) -> list[Pod]:
        """Return the pending pods that are nominated to a node."""
        return self._nominated.all()

    def nominate(self, pod: Pod, node: str) -> list[Pod]:
        """Record that a pod is nominated to a node, before the watch reports the nomination.

        Returns:
            The pods of lower priority that are nominated to the same node.
        """
        displaced = [each for each in self._nominated.on(node) if each.priority < pod.priority and each.uid != pod.uid]
        for each in displaced:
            self.withdraw_nomination(each.uid)
        known = self._queue.get(pod.uid)
        if known is not None:
            self._own_nominations[pod.uid] = node
            known.pod = msgspec.structs.replace(known.pod, nominated_node=node)
            self._nominated.put(known.pod)
        return displaced

    def withdraw_nomination(self, uid: str) -> None:
        """Remove the nomination of a pod, and retry the pods that could not use the capacity reserved for it."""
        withdrawn = self._nominated.remove(uid)
        self._own_nominations.pop(uid, None)
        known = self._queue.get(uid)
        if known is not None:
            # Versions of the pod that still have the nomination may arrive until the patch that clears it.
            self._own_nominations[uid] = ""
            known.pod = msgspec.structs.replace(known.pod, nominated_node="")
        if withdrawn is not None:
            self._place_released(withdrawn)

    def counts(self) -> dict[str, QueueCounts]:
        """Return the numbers of pending pods by scheduler name and state."""
        return {scheduler: self._count(scheduler) for scheduler in self._served}

    def _count(self, scheduler: str) -> QueueCounts:
        found = self._queue.count(scheduler)
        if scheduler == DEFAULT_SCHEDULER:
            unnamed = self._queue.count("")
            found = {place: number + unnamed[place] for place, number in found.items()}
        return QueueCounts(
            active=found["active"] + found["in flight"],
            backoff=found["backoff"],
            unschedulable=found["unschedulable"],
            gated=self._gated_counts[scheduler],
        )

    # --- listeners ------------------------------------------------------------------------------------------------

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        if not pod.node:
            if new is None or new.deleted is not None or new.terminal:
                self._forget(pod.uid)
            elif scheduler_of(pod) in self._served:
                self._add(pod)
                self._wake()
            return
        if old is not None and not old.node:
            self._forget(pod.uid, node=pod.node)
        if self._queue.awaits_events:
            self._assigned_pod_changed(old, new)

    def _assigned_pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        if new is None or new.terminal:
            if old is not None and not old.terminal:
                self._observe(ClusterEvent("AssignedPod", "Delete", old=old))
        elif old is None or not old.node:
            self._observe(ClusterEvent("AssignedPod", "Add", new=new))
        elif changes := pod_changes(old, new):
            self._observe(ClusterEvent("AssignedPod", "Update", changes, old, new))

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if not self._queue.awaits_events:
            return
        if old is None or new is None:
            self._observe(ClusterEvent("Node", "Add" if old is None else "Delete", old=old, new=new))
        elif changes := node_changes(old, new):
            self._observe(ClusterEvent("Node", "Update", changes, old, new))

    def _object_changed(self, kind: ChangedResource, old: KubeObject | None, new: KubeObject | None) -> None:
        if self._queue.awaits_events:
            action: Action = "Add" if old is None else "Delete" if new is None else "Update"
            self._observe(ClusterEvent(kind, action, old=old, new=new))

    def _place_released(self, nominated: Pod) -> None:
        """Retry pods that may fit without a nominated pod's reservation, as if a pod on its node had been deleted."""
        if self._queue.awaits_events:
            assigned = msgspec.structs.replace(nominated, node=nominated.nominated_node)
            self._observe(ClusterEvent("AssignedPod", "Delete", old=assigned))

    def _observe(self, event: ClusterEvent) -> None:
        self._queue.observe(event)
        if self._wake_timer is None:
            self._wake_timer = asyncio.get_running_loop().call_later(EVENT_DELAY, self._wake_now)

    def _wake_now(self) -> None:
        self._wake_timer = None
        self._wake()

    # --- pods -----------------------------------------------------------------------------------------------------

    def _add(self, pod: Pod) -> None:
        if pod.spec.scheduling_gates:
            if pod.uid not in self._gated:
                self._dependencies.reporter.gated(pod)
                self._gated[pod.uid] = scheduler_of(pod)
                self._gated_counts[scheduler_of(pod)] += 1
            return
        self._no_longer_gated(pod.uid)
        own = self._own_nominations.get(pod.uid)
        if own == pod.nominated_node:
            del self._own_nominations[pod.uid]
        elif own is not None:
            pod = msgspec.structs.replace(pod, nominated_node=own)
        released = None
        if pod.nominated_node:
            self._nominated.put(pod)
        else:
            released = self._nominated.remove(pod.uid)
        self._queue.add(pod, self._clock.monotonic())
        if released is not None:
            self._place_released(released)

    def _forget(self, uid: str, *, node: str = "") -> None:
        """Remove a pod from the queue because it was bound, deleted, or assigned to another scheduler."""
        self._no_longer_gated(uid)
        nominated = self._nominated.remove(uid)
        self._own_nominations.pop(uid, None)
        self._queue.remove(uid)
        self._left(uid)
        if nominated is not None and nominated.nominated_node != node:
            self._place_released(nominated)

    def _no_longer_gated(self, uid: str) -> None:
        scheduler = self._gated.pop(uid, None)
        if scheduler is not None:
            self._gated_counts[scheduler] -= 1
