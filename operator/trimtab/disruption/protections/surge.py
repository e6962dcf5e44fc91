"""Determines whether a pod is the only ready one of its owner, and whether a rollout can replace it.

With ``singleReplica: Surge``, the Deployment of such a pod is restarted instead of evicting the pod. The Deployment
controller then creates the new pod, waits until it is available, and only then deletes the old one, so that there is
always a ready pod. A PodDisruptionBudget that forbids the eviction is respected, because the number of ready pods never
decreases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.api.reasons import CANNOT_SURGE, OWNER_NOT_SETTLED, ROLLOUT_IN_PROGRESS
from trimtab.cluster.workloads.deployments import Workloads, workload
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.cluster.workloads.rollouts import Rollout, Rollouts
from trimtab.disruption.background_evictions import REQUEST_EVICT_ONLY
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import PersistentVolumeClaim, Pod
from trimtab.kube.rules.selectors import matches_labels

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

_NO_REPLICAS: Final = frozenset({"Job", "DaemonSet"})
"""Controller kinds whose pods are not replicas of a service, because they run a task or are bound to their node."""

_SHARED: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class SurgeChecker:
    """Checks in one plan which pods are single replicas, and which of these a rollout can replace.

    Args:
        snapshot: the cluster state. Planned moves do not change the results.
        rollouts: the Deployments. If ``None``, they are not checked during planning, but just before the restart.
    """

    def __init__(self, snapshot: Snapshot, rollouts: Rollouts | None) -> None:
        self._snapshot = snapshot
        self._rollouts = rollouts
        self._workloads = Workloads(snapshot)
        self._several: set[OwnerKey] = set()

    def is_single_replica(self, pod: Pod) -> bool:
        """Return whether the pod is ready and its owner (ReplicaSet, StatefulSet, …) has no other running pod."""
        owner = owner_key(pod)
        if owner is None or owner.plain_kind in _NO_REPLICAS or owner in self._several:
            return False
        if REQUEST_EVICT_ONLY in pod.annotations or not _ready(pod):
            return False
        if any(_running(other) for other in self._snapshot.owned_by(owner) if other.name != pod.name):
            self._several.add(owner)
            return False
        return True

    def can_surge(self, pod: Pod) -> bool:
        """Return whether the pod is a single replica that a rollout of its Deployment can replace."""
        return self.is_single_replica(pod) and self.rollout_in_progress(pod) is None and self.surge_blocker(pod) is None

    def rollout_in_progress(self, pod: Pod) -> Refusal | None:
        """Return a refusal if the Deployment of a single replica is already being rolled out; otherwise ``None``."""
        owner = workload(pod)
        if owner is None or owner.kind != "Deployment":
            return None
        others = [other for other in self._workloads.pods(owner) if other.name != pod.name and _running(other)]
        if others:
            return Refusal(
                ROLLOUT_IN_PROGRESS, f"Deployment {owner.name} has a pod of another template, {others[0].name}"
            )
        rollout = self._rollout(owner)
        return None if rollout is None else rollout_progress(rollout)

    def surge_blocker(self, pod: Pod) -> Refusal | None:
        """Return the reason why no rollout can replace a single replica before deleting it; ``None`` if one can."""
        owner = workload(pod)
        if owner is None or owner.kind != "Deployment":
            kind = "no owner" if owner is None else f"{owner.kind} {owner.name}"
            return _surge_refusal(
                f"the only ready pod of {kind}, and only a Deployment creates the new pod before it deletes the old one"
            )
        exclusive = self._exclusive(pod)
        if exclusive is not None:
            return exclusive
        if self._rollouts is None:
            return None
        if self._rollouts.problem:
            return _surge_refusal(self._rollouts.problem)
        rollout = self._rollout(owner)
        if rollout is None:
            return _surge_refusal(f"Deployment {owner.name} was not found")
        return restart_blocker(rollout, pod)

    def _rollout(self, owner: OwnerKey) -> Rollout | None:
        return None if self._rollouts is None else self._rollouts.found.get(f"{owner.namespace}/{owner.name}")

    def _exclusive(self, pod: Pod) -> Refusal | None:
        """Return a refusal if the pod has a volume that only one node can use at a time; otherwise ``None``."""
        claims = self._snapshot.objects.of(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.disk and volume.kind != "image" and not volume.read_only:
                return _surge_refusal(f"a volume of kind {volume.kind}, which one node can use at a time")
            claim = claims.get(f"{pod.namespace}/{volume.claim}") if volume.claim else None
            if claim is not None and not _SHARED.intersection(claim.access_modes):
                modes = ", ".join(claim.access_modes) or "no access mode"
                return _surge_refusal(f"claim {claim.name} has {modes}: one node can use it at a time")
        return None


def restart_blocker(rollout: Rollout, pod: Pod) -> Refusal | None:
    """Return the reason why a restart of the Deployment would delete the pod before its replacement runs.

    The result is ``None`` if it would not. Whether a rollout is in progress is checked by :func:`rollout_progress`.

    Args:
        rollout: the Deployment.
        pod: its only ready pod.
    """
    name = f"Deployment {rollout.name}"
    if rollout.selector is not None and not matches_labels(rollout.selector, pod.labels):
        return _surge_refusal(f"{name} does not select the pod")
    if rollout.deleted:
        return _surge_refusal(f"{name} is being deleted")
    if rollout.paused:
        return _surge_refusal(f"{name} is paused")
    if rollout.replicas != 1:
        return Refusal(OWNER_NOT_SETTLED, f"{name} wants {rollout.replicas} pods and has 1 that is ready")
    if rollout.strategy != "RollingUpdate":
        return _surge_refusal(
            f"{name} has spec.strategy.type {rollout.strategy}, which deletes the old pod before the new pod is created"
        )
    if rollout.surge < 1 or rollout.unavailable > 0:
        numbers = f"maxSurge {rollout.surge} and maxUnavailable {rollout.unavailable} of 1 pod"
        return _surge_refusal(f"{name} has {numbers}; with 1 and 0 the new pod is ready before the old one is deleted")
    return None


def rollout_progress(rollout: Rollout) -> Refusal | None:
    """Return a refusal with the rollout's progress if the Deployment is being rolled out; otherwise ``None``."""
    if not rollout.known:
        return None
    name = f"Deployment {rollout.name}"
    if rollout.observed_generation < rollout.generation:
        generations = (
            f"its generation is {rollout.generation}, and status.observedGeneration is {rollout.observed_generation}"
        )
        return Refusal(ROLLOUT_IN_PROGRESS, f"the Deployment controller has not processed {name} yet: {generations}")
    wanted = rollout.replicas
    if rollout.updated < wanted or rollout.pods > rollout.updated or rollout.available < rollout.updated:
        numbers = f"{rollout.updated} of {wanted} pods are new, {rollout.available} available, {rollout.pods} in all"
        return Refusal(ROLLOUT_IN_PROGRESS, f"{name} is being rolled out: {numbers}")
    return None


def _surge_refusal(message: str) -> Refusal:
    return Refusal(CANNOT_SURGE, message)


def _running(pod: Pod) -> bool:
    return not pod.terminal and pod.deleted is None


def _ready(pod: Pod) -> bool:
    """Return whether the pod is ready. A pod without conditions, as in cluster files, is treated as ready."""
    return pod.phase != "Pending" and not pod.terminal and not any(each.type == "Ready" for each in pod.conditions)
