"""The dependencies of the scheduler, which the composition root creates once, and the interfaces of its executors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from trimtab.api.scheduler_policy import QueueCounts, SchedulingCounts, UnschedulableReason
from trimtab.cluster.lister import Lister
from trimtab.cluster.shared_snapshot import SharedSnapshot
from trimtab.controller.loop import TaskSupervisor
from trimtab.kube.api import Api
from trimtab.kube.clock import Clock
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod
from trimtab.kube.resources import Resource
from trimtab.kube.watching.store import Listener
from trimtab.scheduling.planner import Reject
from trimtab.scheduling.preemption import Preemption

AssumedVolume = PersistentVolume | PersistentVolumeClaim
"""A volume with the claim it is reserved for, or a claim with the node selected for provisioning: what
``placement.volume_binding`` changes when a pod is placed."""


class VolumeBindingError(Exception):
    """A pod's volumes could not be bound. The pod is retried; its reserved capacity and volumes are released."""


class VolumeBinder(Protocol):
    """Binds the volumes of a pod before the pod is bound, like ``PreBind`` of kube-scheduler's plugin VolumeBinding.

    The cycle has already reserved the volumes in the snapshot. If binding fails, the cycle releases them in the
    snapshot. The binder rolls back a write to the API server if kube-scheduler does so too.
    """

    async def bind(self, pod: Pod, node: str, assumed: Sequence[AssumedVolume]) -> None:
        """Write the assumed volumes and claims, and wait until all claims of the pod are bound.

        Args:
            pod: the pending pod.
            node: the name of the node that was chosen.
            assumed: the changed volumes and claims; empty if none of the pod's claims is unbound, or if another pod
                with the same claims is being bound.

        Raises:
            VolumeBindingError: a claim could not be bound in time, or the volumes no longer suit the node.
            ApiError: the API server refused a request.
            Unreachable: the API server did not respond.
        """
        ...


class Preemptor(Protocol):
    """Carries out preemptions: nominates the preemptor, marks the victims, and evicts them (``prepareCandidate``)."""

    def start(
        self, preemption: Preemption, message: str, displaced: Sequence[Pod], ended: Callable[[bool], None]
    ) -> None:
        """Start a preemption in the background. Its preemptor is not scheduled until ``ended`` is called.

        Args:
            preemption: the preemptor, its node and its victims.
            message: the message for the preemptor's condition PodScheduled, which is written with the nomination.
            displaced: pods of lower priority that are nominated to the same node. Their nomination must be cleared.
            ended: called once, on the event loop, when all requests have completed: with ``True`` if the victims are
                being removed, with ``False`` if the preemptor has to be scheduled again.
        """
        ...

    def clear_nomination(self, pod: Pod) -> None:
        """Clear the nomination of a pod in the background, because preemption can no longer make room on its node."""
        ...

    async def stop(self, seconds: float) -> None:
        """Start no further requests, and wait up to ``seconds`` for those in flight."""
        ...


class SchedulingReporter(Protocol):
    """Reports what happens to pods in events, conditions, metrics and logs.

    Its methods are called on the event loop, thousands of times per second. They must return immediately and must not
    raise; requests are sent later, after bindings.
    """

    def scheduled(self, pod: Pod, node: str, *, attempts: int, seconds: float, attempt_seconds: float) -> None:
        """Report a pod that was bound.

        Args:
            pod: the pod as it was before its binding.
            node: the name of its node.
            attempts: number of scheduling attempts of the pod.
            seconds: time since the pod was first queued.
            attempt_seconds: duration of the last attempt, without the binding.
        """
        ...

    def rejected(self, reject: Reject, *, seconds: float) -> None:
        """Report a pod that fits on no node, with its preemption if there is one.

        If there is a preemption, its nomination writes the pod's condition PodScheduled. The reporter writes the
        condition if the nomination has not.

        Args:
            reject: the decision.
            seconds: duration of this attempt.
        """
        ...

    def failed(self, pod: Pod, node: str, message: str) -> None:
        """Report an attempt that ended with an error (reason ``SchedulerError``). The pod is retried.

        Args:
            pod: the pod.
            node: the node that it could not be bound to; ``""`` if none was chosen.
            message: the error.
        """
        ...

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        """Report a victim of a preemption: its removal was granted by the API server, or its binding was cancelled.

        Args:
            victim: the pod that leaves the node.
            preemptor: the pod of higher priority that needs the node.
            node: the name of the node.
        """
        ...

    def gated(self, pod: Pod) -> None:
        """Report a pod that waits for its scheduling gates."""
        ...

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """Process a change of a pod that the watch reports."""
        ...

    def counts(self, scheduler: str) -> SchedulingCounts:
        """Return the totals of this process for a scheduler name, such as the number of bound pods."""
        ...

    def unschedulable(self, scheduler: str) -> tuple[UnschedulableReason, ...]:
        """Return the most frequent reasons why pods of a scheduler name are unschedulable."""
        ...

    def show_pending(self, counts: QueueCounts) -> None:
        """Export the numbers of pending pods of all schedulers together."""
        ...

    def start(self, tasks: TaskSupervisor) -> None:
        """Start the tasks that send the queued reports."""
        ...


CancelBinding = Callable[[Pod], bool]
"""Cancels the binding of a pod that has a node only in the scheduler's memory.

It returns whether the binding was cancelled; ``False`` if it has already been sent.
"""


class SchedulerDependencies(Struct, frozen=True, kw_only=True):
    """Dependencies that the scheduler and the controllers of SchedulerPolicies share.

    Attributes:
        api: the API client. It sends no request once another process may be the leader
            (:class:`~trimtab.kube.api.LeaderOnlyApi`).
        shared: the snapshot that all planners share. It contains the pods that are being bound.
        lister: the caches of nodes and pods.
        subscribe: calls a listener on each change of a resource, and returns a function that ends the subscription.
        clock: the wall clock and the monotonic clock.
        stale: returns the reason why the caches are too old to act on; ``None`` if they are up to date.
        volumes: binds volumes.
        preemptor: creates the preemptor, which carries out preemptions.
        reporter: reports decisions and bindings.
    """

    api: Api
    shared: SharedSnapshot
    lister: Lister
    subscribe: Callable[[Resource, Listener[Any]], Callable[[], None]]
    clock: Clock
    stale: Callable[[], str | None]
    volumes: VolumeBinder
    preemptor: Callable[[CancelBinding], Preemptor]
    reporter: SchedulingReporter
