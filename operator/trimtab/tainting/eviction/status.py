"""Reports on due pods: their counts, refusals, and nodes whose pods are stuck terminating."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.api.scalars import to_time
from trimtab.api.taint_manager import RefusedPod, StuckNode
from trimtab.cluster.lister import Lister
from trimtab.kube.events.event import truncate
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import OUT_OF_SERVICE, UNREACHABLE
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.eviction.due_pod import DuePod, DuePodAttempt, DuePodOutcome, DuePodResult
from trimtab.tainting.lifecycle.node_conditions import READY

MAX_MESSAGE_BYTES: Final = 1024
"""Maximum length in bytes of a message in the status."""

UNANSWERED_TRIES: Final = 3
"""Number of attempts without a response after which a pod is reported as refused."""

CHECK_PERIOD: Final = 10.0
"""Seconds between two searches for stuck nodes."""

KUBELET_DELAY: Final = 30.0
"""Seconds for which a pod may still exist after its grace period. Kubelets report late when many pods terminate."""

PROPOSAL: Final = (
    "if its machine is certainly off, delete them and detach their volumes with: kubectl taint nodes {node} "
    + OUT_OF_SERVICE
    + "=nodeshutdown:NoExecute"
)


def refused_pods(entries: Iterable[DuePod]) -> tuple[RefusedPod, ...]:
    """Return the pods whose eviction or deletion was refused.

    The pod that has been overdue for the longest time comes first.
    """
    refused = [entry for entry in entries if _refused(entry)]
    return tuple(
        _refused_pod(entry) for entry in sorted(refused, key=lambda each: (each.deadline.due, each.deadline.key))
    )


def _refused(entry: DuePod) -> bool:
    if entry.last is None:
        return False
    return entry.last.result is DuePodResult.REFUSED or (
        entry.last.result is DuePodResult.FAILED and entry.attempts >= UNANSWERED_TRIES
    )


def _refused_pod(entry: DuePod) -> RefusedPod:
    namespace, _, name = entry.deadline.key.partition("/")
    message = entry.last.message if entry.last is not None else ""
    return RefusedPod(
        namespace=namespace,
        pod=name,
        node=entry.deadline.node,
        due=to_time(entry.deadline.due),
        attempts=entry.attempts,
        message=truncate(message, MAX_MESSAGE_BYTES),
    )


class EvictionCounter:
    """Counts and reports the outcomes of due pods.

    Attributes:
        deleted: number of deleted pods.
        evicted: number of evicted pods.
    """

    def __init__(self, services: TaintingDependencies) -> None:
        self.deleted = 0
        self.evicted = 0
        self._services = services

    def take(self, entry: DuePod, answer: DuePodAttempt) -> None:
        """Count and report the result of an attempt."""
        self.deleted += answer.result is DuePodResult.DELETED
        self.evicted += answer.result is DuePodResult.EVICTED
        self._services.reporter.due_pod_outcome(
            DuePodOutcome(
                deadline=entry.deadline,
                result=answer.result,
                reason=answer.reason,
                message=answer.message,
                attempts=entry.attempts,
                at=self._services.clock.now(),
                held=entry.held,
                refuser=answer.refuser,
            )
        )


class StuckNodeFinder:
    """Finds nodes whose pods are stuck terminating. It searches at most once in :data:`CHECK_PERIOD` seconds."""

    def __init__(self, services: TaintingDependencies) -> None:
        self._services = services
        self._nodes: tuple[StuckNode, ...] = ()
        self._again = 0.0

    def nodes(self) -> tuple[StuckNode, ...]:
        """Return the stuck nodes sorted by name. The result is at most :data:`CHECK_PERIOD` seconds old."""
        now = self._services.clock.monotonic()
        if now >= self._again:
            self._again = now + CHECK_PERIOD
            self._nodes = stuck_nodes(self._services.lister, now=self._services.clock.now())
        return self._nodes


def stuck_nodes(lister: Lister, *, now: float) -> tuple[StuckNode, ...]:
    """Return the unreachable nodes with pods that still exist after their grace period, sorted by name.

    Nodes with the taint out-of-service are not included, because kube-controller-manager force-deletes their pods.

    Args:
        lister: the caches of nodes and pods.
        now: the current time in seconds since the epoch.
    """
    found = ((name, _count_stuck_pods(lister, name, now)) for name in sorted(_unreachable(lister.nodes)))
    return tuple(
        StuckNode(
            name=name,
            terminating=number,
            message=f"{number} pods are past their grace period and the node is unreachable; "
            + PROPOSAL.format(node=name),
        )
        for name, number in found
        if number
    )


def _unreachable(nodes: Mapping[str, Node]) -> Iterable[str]:
    for name, node in nodes.items():
        keys = {taint.key for taint in node.taints}
        unknown = any(each.type == READY and each.status == "Unknown" for each in node.conditions)
        if (unknown or UNREACHABLE in keys) and OUT_OF_SERVICE not in keys:
            yield name


def _count_stuck_pods(lister: Lister, node: str, now: float) -> int:
    """Count the pods that still exist after their grace period, which ends at ``metadata.deletionTimestamp``."""
    return sum(pod.deleted is not None and pod.deleted + KUBELET_DELAY < now for _, pod in lister.items_on(node))
