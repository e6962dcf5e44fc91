"""Single replicas: which pods are the only ready one of their owner, and whether a rollout can renew them first.

``singleReplica: Surge`` restarts the Deployment of such a pod instead of evicting it. The Deployment controller then
makes the new pod, waits until it is available, and only then takes the old one. So no moment is without a ready pod,
and a PodDisruptionBudget that forbids the eviction holds all the same: at no time does it count one less.
"""

from __future__ import annotations

from typing import Final

from trimtab.api.reasons import CANNOT_SURGE, OWNER_NOT_SETTLED, ROLLOUT_IN_PROGRESS
from trimtab.cluster.owners import OwnerKey, owner_key
from trimtab.cluster.rollouts import Rollout, Rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads import Workloads, workload
from trimtab.disruption.background import REQUEST_EVICT_ONLY
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import PersistentVolumeClaim, Pod
from trimtab.kube.rules.selectors import matches_labels

_NO_REPLICAS: Final = frozenset({"Job", "DaemonSet"})
"""Kinds whose pods are work or belong to their node: one of them is no single replica of a service."""

_SHARED: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class Surges:
    """What a policy with ``singleReplica: Surge`` asks of pods; made for one plan.

    Args:
        snapshot: the picture; moves change nothing of the answers.
        rollouts: the Deployments; ``None`` where nobody has asked for them, and they are looked at before acting.
    """

    def __init__(self, snapshot: Snapshot, rollouts: Rollouts | None) -> None:
        self._snapshot = snapshot
        self._rollouts = rollouts
        self._workloads = Workloads(snapshot)
        self._several: set[OwnerKey] = set()

    def alone(self, pod: Pod) -> bool:
        """Whether the pod is ready and its ReplicaSet, StatefulSet, … has no other that lives."""
        owner = owner_key(pod)
        if owner is None or owner[1] in _NO_REPLICAS or owner in self._several:
            return False
        if REQUEST_EVICT_ONLY in pod.annotations or not _serves(pod):
            return False
        if any(_lives(other) for other in self._snapshot.owned_by(owner) if other.name != pod.name):
            self._several.add(owner)
            return False
        return True

    def surges(self, pod: Pod) -> bool:
        """Whether the pod goes by a rollout of its Deployment."""
        return self.alone(pod) and self.underway(pod) is None and self.obstacle(pod) is None

    def underway(self, pod: Pod) -> Refusal | None:
        """Whether the Deployment of a pod that is alone is being rolled out already, by us or by anybody."""
        owner = workload(pod)
        if owner is None or owner[1] != "Deployment":
            return None
        others = [other for other in self._workloads.pods(owner) if other.name != pod.name and _lives(other)]
        if others:
            return Refusal(
                ROLLOUT_IN_PROGRESS, f"Deployment {owner[2]} has a pod of another template, {others[0].name}"
            )
        rollout = self._rollout(owner)
        return None if rollout is None else progress(rollout)

    def obstacle(self, pod: Pod) -> Refusal | None:
        """Why no rollout can renew a pod that is alone before it goes, or ``None``."""
        owner = workload(pod)
        if owner is None or owner[1] != "Deployment":
            kind = "no owner" if owner is None else f"{owner[1]} {owner[2]}"
            return _cannot(
                f"the only ready pod of {kind}, and only a Deployment makes the new pod before the old one goes"
            )
        exclusive = self._exclusive(pod)
        if exclusive is not None:
            return exclusive
        if self._rollouts is None:
            return None
        if self._rollouts.problem:
            return _cannot(self._rollouts.problem)
        rollout = self._rollout(owner)
        if rollout is None:
            return _cannot(f"Deployment {owner[2]} is not known")
        return against(rollout, pod)

    def _rollout(self, owner: OwnerKey) -> Rollout | None:
        return None if self._rollouts is None else self._rollouts.found.get(f"{owner[0]}/{owner[2]}")

    def _exclusive(self, pod: Pod) -> Refusal | None:
        """A volume that the new pod could not use on another node while the old one has it."""
        claims = self._snapshot.shelves.of(PersistentVolumeClaim)
        for volume in pod.spec.volumes:
            if volume.disk and volume.kind != "image" and not volume.read_only:
                return _cannot(f"a volume of kind {volume.kind}, which one node can use at a time")
            claim = claims.get(f"{pod.namespace}/{volume.claim}") if volume.claim else None
            if claim is not None and not _SHARED.intersection(claim.access_modes):
                modes = ", ".join(claim.access_modes) or "no access mode"
                return _cannot(f"claim {claim.name} has {modes}: one node can use it at a time")
        return None


def against(rollout: Rollout, pod: Pod) -> Refusal | None:
    """Why a restart of the Deployment would not renew the pod before it goes, whether or not one is under way.

    Args:
        rollout: the Deployment.
        pod: its only ready one.
    """
    name = f"Deployment {rollout.name}"
    if rollout.selector is not None and not matches_labels(rollout.selector, pod.labels):
        return _cannot(f"{name} does not select the pod")
    if rollout.deleted:
        return _cannot(f"{name} is being deleted")
    if rollout.paused:
        return _cannot(f"{name} is paused")
    if rollout.replicas != 1:
        return Refusal(OWNER_NOT_SETTLED, f"{name} wants {rollout.replicas} pods and has 1 that is ready")
    if rollout.strategy != "RollingUpdate":
        return _cannot(f"{name} has the strategy {rollout.strategy}, which ends the old pod first")
    if rollout.surge < 1 or rollout.unavailable > 0:
        numbers = f"maxSurge {rollout.surge} and maxUnavailable {rollout.unavailable} of 1 pod"
        return _cannot(f"{name} has {numbers}; it takes 1 and 0 for the new pod to be ready before the old one goes")
    return None


def progress(rollout: Rollout) -> Refusal | None:
    """Whether a Deployment is being rolled out, and how far it is; ``None`` where it is at rest."""
    if not rollout.known:
        return None
    name = f"Deployment {rollout.name}"
    if rollout.observed_generation < rollout.generation:
        seen = f"generation {rollout.generation}, seen is {rollout.observed_generation}"
        return Refusal(ROLLOUT_IN_PROGRESS, f"{name} has changed: {seen}")
    wanted = rollout.replicas
    if rollout.updated < wanted or rollout.pods > rollout.updated or rollout.available < rollout.updated:
        numbers = f"{rollout.updated} of {wanted} pods are new, {rollout.available} available, {rollout.pods} in all"
        return Refusal(ROLLOUT_IN_PROGRESS, f"{name} is being rolled out: {numbers}")
    return None


def _cannot(message: str) -> Refusal:
    return Refusal(CANNOT_SURGE, message)


def _lives(pod: Pod) -> bool:
    return not pod.terminal and pod.deleted is None


def _serves(pod: Pod) -> bool:
    """Whether its going would be missed. A cluster file's pod may tell no condition, and is taken for ready."""
    return pod.phase != "Pending" and not pod.terminal and not any(each.type == "Ready" for each in pod.conditions)
