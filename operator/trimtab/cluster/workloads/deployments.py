"""Finds the workload of a pod: the Deployment of its ReplicaSet, or else its controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.kube.objects import Pod

_HASH_LABEL: Final = "pod-template-hash"


def workload(pod: Pod) -> OwnerKey | None:
    """Return the namespace, kind and name of the workload that owns a pod, or ``None`` for a bare pod.

    A ReplicaSet belongs to a Deployment if its name ends with the template hash label of its pods. So the workload does
    not change when a rollout replaces the ReplicaSet.
    """
    controller = pod.controller
    if controller is None:
        return None
    suffix = f"-{pod.labels.get(_HASH_LABEL, '')}"
    if controller.kind == "ReplicaSet" and suffix != "-" and controller.name.endswith(suffix):
        return pod.namespace, "Deployment", controller.name.removesuffix(suffix)
    return pod.namespace, controller.kind, controller.name


class Workloads:
    """Finds the pods of workloads in a snapshot, cached per workload."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._replica_sets: dict[tuple[str, str], list[OwnerKey]] | None = None
        self._pods: dict[OwnerKey, list[Pod]] = {}

    def pods(self, owner: OwnerKey) -> Sequence[Pod]:
        """Return the pods of a workload, ordered by ``namespace/name``.

        For a Deployment, these are the pods of all its ReplicaSets.
        """
        found = self._pods.get(owner)
        if found is None:
            found = self._pods[owner] = [
                pod for controller in self._controllers(owner) for pod in self._snapshot.owned_by(controller)
            ]
        return found

    def newest(self, owner: OwnerKey) -> float | None:
        """Return the creation time of a workload's newest pod, or ``None`` if the time is unknown."""
        return max((pod.created for pod in self.pods(owner) if pod.created is not None), default=None)

    def _controllers(self, owner: OwnerKey) -> list[OwnerKey]:
        namespace, kind, name = owner
        if kind != "Deployment":
            return [owner]
        if self._replica_sets is None:
            self._replica_sets = {}
            for each in self._snapshot.owners():
                if each[1] == "ReplicaSet":  # its name is the Deployment's, a hyphen and a hash without hyphens
                    self._replica_sets.setdefault((each[0], each[2].rpartition("-")[0]), []).append(each)
        named = self._replica_sets.get((namespace, name), ())
        return [each for each in named if any(workload(pod) == owner for pod in self._snapshot.owned_by(each)[:1])]
