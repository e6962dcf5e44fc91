"""Defines the types of node removals: settings, phases, states, outcomes and observers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.providers import MARK_DELAY
from trimtab.disruption.outcome import Refusal
from trimtab.kube.api import ApiError, Forbidden, Unreachable
from trimtab.kube.objects import Pod
from trimtab.kube.retry import Backoff


class RemovalSettings(Struct, frozen=True, kw_only=True):
    """Limits, timeouts and backoffs of node removals. All durations are in seconds.

    Attributes:
        max_empty: the maximum number of concurrent removals of empty nodes.
        max_drains: the maximum number of concurrent removals of nodes with pods. PodDisruptionBudgets apply in
            addition.
        taint_delay: the time between adding the taint and reviewing the node. During this time, pods that a scheduler
            had already assigned to the node are bound to it.
        eviction_timeout: how long an eviction is retried while a PodDisruptionBudget refuses it.
        max_review_age: the age of a pod's review after which the pod is reviewed again before its eviction is retried.
        termination_slack: how long after the end of its grace period a pod may still exist before the removal fails.
        max_eviction_wait: the timeout of evictions that another controller carries out, such as live migrations. It is
            also the maximum time by which waiting for operator-wide eviction limits extends ``eviction_timeout``.
        delay_deletion_timeout: the maximum time for which a node's
            ``delay-deletion.cluster-autoscaler.kubernetes.io/…`` annotations delay its deletion.
        evict_daemon_sets_of_drained: whether to evict DaemonSet pods from nodes that were drained.
        evict_daemon_sets_of_empty: whether to evict DaemonSet pods from nodes that were empty.
        batch_delay: how long a drained node waits for other nodes of its group to be drained, so that their machines
            are removed together.
        mark_delay: the minimum age of the deletion annotations on machines before the group's size is lowered. The
            controller that deletes machines must have seen them; its caches lag by milliseconds in a quiet cluster and
            by seconds in a busy one.
        max_mark_delay: the maximum of ``mark_delay``, which doubles each time that controller deletes a machine without
            the annotation.
        wrong_machine_backoff: the backoff of a group after its controller deleted a machine without the deletion
            annotation.
        catch_up_timeout: how long the operator waits for a group's controller to bring the number of machines to the
            target size.
        rollback_timeout: how long a rollback is retried. After that, the next reconcile retries it.
        stale_timeout: how long a removal waits while the cluster state is stale. After that, it is rolled back.
        max_taint_age: the maximum age of an earlier process's taint for which the removal is resumed. If the taint is
            older, the removal is rolled back.
        poll_interval: how often conditions are checked in the cache. This sends no requests.
        timeout: the timeout of each request.
        max_in_flight: the maximum number of concurrent eviction requests across all drains.
        max_record_writes: the maximum number of nodes per iteration on which the operator writes or removes the
            unneeded-since annotation and the soft taint.
        record_after: how long a node must be unneeded before the operator writes the annotation to it. Until then only
            the status of the ClusterAutoscaler contains the time.
        soft_taints: whether to add the taint DeletionCandidateOfClusterAutoscaler to unneeded nodes.
        error_backoff: the backoff between attempts to roll back a removal.
    """

    max_empty: int = 10
    max_drains: int = 5
    taint_delay: float = 5.0
    eviction_timeout: float = 120.0
    max_review_age: float = 5.0
    termination_slack: float = 30.0
    max_eviction_wait: float = 600.0
    delay_deletion_timeout: float = 120.0
    evict_daemon_sets_of_drained: bool = True
    evict_daemon_sets_of_empty: bool = False
    batch_delay: float = 0.5
    mark_delay: float = MARK_DELAY
    max_mark_delay: float = 300.0
    wrong_machine_backoff: Backoff = Backoff(initial=60.0, maximum=1800.0, jitter=0.0)
    catch_up_timeout: float = 120.0
    rollback_timeout: float = 60.0
    stale_timeout: float = 60.0
    max_taint_age: float = 3600.0
    poll_interval: float = 0.5
    timeout: float = 10.0
    max_in_flight: int = 16
    max_record_writes: int = 10
    record_after: float = 30.0
    soft_taints: bool = True
    error_backoff: Backoff = Backoff(initial=0.5, maximum=5.0)


DEFAULT_SETTINGS: Final = RemovalSettings()


class Phase(StrEnum):
    """The phases of a removal, in order."""

    TAINTING = "Tainting"
    """The operator adds the taint to the node, and cordons it if configured."""
    WAITING = "Waiting"
    """The operator waits a few seconds, so that schedulers observe the taint."""
    EVICTING = "Evicting"
    """The operator reviews the node and evicts its pods."""
    EVICTING_DAEMON_SETS = "EvictingDaemonSets"
    """The node has only DaemonSet pods left, and the operator evicts them."""
    DELAYED = "Delayed"
    """The removal waits, because annotations of the node delay its deletion."""
    DRAINED = "Drained"
    """The node is drained, and the removal waits for other nodes of its group to be drained."""
    MARKED = "Marked"
    """The machine has the deletion annotation, which must be old enough before the group's size is lowered."""
    REMOVING = "Removing"
    """The operator reads the deletion annotations from the API server and lowers the group's size."""
    VERIFYING = "Verifying"
    """The size has been lowered, and the operator verifies which machine is deleted."""
    RETURNING = "Returning"
    """The node is kept, and the operator removes its taint, its cordon and the deletion annotation of its machine."""


class RemovalResult(StrEnum):
    """The results of a removal."""

    REMOVED = "Removed"
    """The machine has been deleted or is being deleted."""
    FAILED = "Failed"
    """The removal failed. No node is removed for ``delayAfterFailure``."""
    ABORTED = "Aborted"
    """The node is kept because it is needed or because the operator must not act. This does not count as a failure."""


class RemovalState(Struct, frozen=True):
    """The state of a removal in progress.

    Attributes:
        node: name of the node.
        group: id of the node's group.
        machine: the node's machine as ``namespace/name``; empty if the group reports no machine for the node.
        phase: the current phase.
        since: the time at which the removal started, in seconds since the epoch. It is also the value of the taint.
        message: a description of the current step, or of what the removal waits for.
        uid: UID of the node.
        why: the reason for the removal: Underutilized, Empty, Unready or Replacement.
        empty: whether no pod had to move when the removal started.
        resumed: whether an earlier process started the removal.
        cordoned: whether this removal cordoned the node.
    """

    node: str
    group: str
    machine: str
    phase: Phase
    since: float
    message: str = ""
    uid: str = ""
    why: str = ""
    empty: bool = False
    resumed: bool = False
    cordoned: bool = False


class RemovalOutcome(Struct, frozen=True):
    """The outcome of a removal.

    Attributes:
        node: name of the node.
        group: id of the node's group.
        result: whether the node was removed, or the removal failed or was aborted.
        reason: the reason why the node was removed (Underutilized, Empty, Unready) or kept, as a code of
            :mod:`trimtab.api.reasons`.
        message: a description of the reason.
        evicted: UIDs of the evicted pods by ``namespace/name``, including DaemonSet pods.
        calls: the number of requests sent for the removal. A request for several nodes of a group is divided equally
            among them.
        started: the time at which the removal started, in seconds since the epoch.
        finished: the time at which the removal ended, in seconds since the epoch.
        uid: UID of the node.
        machine: the node's machine as ``namespace/name``; empty if the group reports no machine for the node.
        why: the reason why the removal was started. It is also set if the node was kept.
        refused: the pod that blocked the removal, as ``namespace/name``; empty if no pod did.
        refused_uid: UID of the pod that blocked the removal.
        left: what could not be rolled back, and why; empty if the rollback was complete. :meth:`Removals.reconcile`
            retries the rollback.
    """

    node: str
    group: str
    result: RemovalResult
    reason: str
    message: str
    evicted: Mapping[str, str] = {}
    calls: float = 0.0
    started: float = 0.0
    finished: float = 0.0
    uid: str = ""
    machine: str = ""
    why: str = ""
    refused: str = ""
    refused_uid: str = ""
    left: str = ""

    @property
    def done(self) -> bool:
        """Return whether the node was removed."""
        return self.result is RemovalResult.REMOVED

    @property
    def forbidden(self) -> bool:
        """Return whether the removal ended because the service account lacks a permission."""
        return self.reason in (reasons.REMOVAL_FORBIDDEN, reasons.SCALE_FORBIDDEN)

    @property
    def failed(self) -> bool:
        """Return whether the removal failed, which starts ``delayAfterFailure``."""
        return self.result is RemovalResult.FAILED


class RemovalObserver(Protocol):
    """A listener for the start and end of removals, for reports that cannot wait for the next iteration.

    Its methods must not raise.
    """

    def began(self, state: RemovalState) -> None:
        """Handle the start of a removal. Called after the node was tainted."""
        ...

    def ended(self, outcome: RemovalOutcome) -> None:
        """Handle the end of a removal. :meth:`Removals.take_outcomes` also returns the outcome."""
        ...

    def uncordoned(self, node: str, uid: str, why: Refusal, *, at: float) -> None:
        """Handle that trimtab uncordoned a node that is kept. Called after the request succeeded.

        Args:
            node: name of the node.
            uid: UID of the node.
            why: why the node is kept.
            at: the time in seconds since the epoch.
        """
        ...


class NoObserver:
    """A :class:`RemovalObserver` that does nothing."""

    def began(self, state: RemovalState) -> None:
        """See :class:`RemovalObserver`."""

    def ended(self, outcome: RemovalOutcome) -> None:
        """See :class:`RemovalObserver`."""

    def uncordoned(self, node: str, uid: str, why: Refusal, *, at: float) -> None:
        """See :class:`RemovalObserver`."""


class RemovalEnded(Exception):
    """Raised to end a removal and keep the node.

    Attributes:
        result: ``FAILED`` or ``ABORTED``.
        refusal: the reason why the node is kept.
        pod: the pod that blocks the removal, or ``None``.
        silent: whether to skip the rollback. This is true if another process may be the leader, because that process
            takes over the removal.
    """

    def __init__(
        self, result: RemovalResult, refusal: Refusal, *, pod: Pod | None = None, silent: bool = False
    ) -> None:
        super().__init__(refusal.message)
        self.result = result
        self.refusal = refusal
        self.pod = pod
        self.silent = silent


def failed(reason: str, message: str, *, pod: Pod | None = None) -> RemovalEnded:
    """Return an exception that ends a removal as failed."""
    return RemovalEnded(RemovalResult.FAILED, Refusal(reason, message), pod=pod)


def aborted(refusal: Refusal) -> RemovalEnded:
    """Return an exception that ends a removal because the node must be kept."""
    return RemovalEnded(RemovalResult.ABORTED, refusal)


def request_failed(error: ApiError | Unreachable, reason: str, message: str) -> RemovalEnded:
    """Return an exception that ends a removal because of an error of the API server.

    A missing permission is no failure of the removal: the operator must not act until it has the permission.
    """
    if isinstance(error, Forbidden) and error.lacks_permission:
        return aborted(Refusal(reasons.REMOVAL_FORBIDDEN, message))
    return failed(reason, message)


def superseded() -> RemovalEnded:
    """Return an exception that ends a removal because another process may be the leader."""
    message = "this process is no longer the leader; the new leader takes over the removal"
    return RemovalEnded(RemovalResult.ABORTED, Refusal(reasons.LEASE_LOST, message), silent=True)


class RemovalControl(Protocol):
    """Controls whether a removal may continue. The removal calls it before each request."""

    async def checkpoint(self) -> None:
        """Wait until the cluster state is up to date.

        Raises:
            RemovalEnded: the removal must stop.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Sleep for the given time, or until the removal must stop."""
        ...

    def report_progress(self, message: str) -> None:
        """Record what the removal is waiting for."""
        ...
