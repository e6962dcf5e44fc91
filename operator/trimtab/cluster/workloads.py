"""Whom users know as the owner of pods: the Deployment above a ReplicaSet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.cluster.owners import OwnerKey
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod

_HASH_LABEL: Final = "pod-template-hash"


def workload(pod: Pod) -> OwnerKey | None:
    """Namespace, kind and name of what a user knows as the pod's owner; ``None`` for a bare pod.

    A Deployment's ReplicaSets are told by their names, which end in the hash that their pods have as a label. So a
    rollout that only restarts the pods changes nothing: the scheduler decides about them as it did before.
    """
    controller = pod.controller
    if controller is None:
        return None
    suffix = f"-{pod.labels.get(_HASH_LABEL, '')}"
    if controller.kind == "ReplicaSet" and suffix != "-" and controller.name.endswith(suffix):
        return pod.namespace, "Deployment", controller.name.removesuffix(suffix)
    return pod.namespace, controller.kind, controller.name


class Workloads:
    """The pods of workloads in a snapshot, looked up once each."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._replica_sets: dict[tuple[str, str], list[OwnerKey]] | None = None
        self._pods: dict[OwnerKey, list[Pod]] = {}

    def pods(self, owner: OwnerKey) -> Sequence[Pod]:
        """The workload's pods, those of all its ReplicaSets, by ``namespace/name``."""
        found = self._pods.get(owner)
        if found is None:
            found = self._pods[owner] = [
                pod for controller in self._controllers(owner) for pod in self._snapshot.owned_by(controller)
            ]
        return found

    def newest(self, owner: OwnerKey) -> float | None:
        """When the newest of the workload's pods was created, ``None`` where that is not known."""
        return max((pod.created for pod in self.pods(owner) if pod.created is not None), default=None)

    def _controllers(self, owner: OwnerKey) -> list[OwnerKey]:
        namespace, kind, name = owner
        if kind != "Deployment":
            return [owner]
        if self._replica_sets is None:
            self._replica_sets = {}
            for each in self._snapshot.owners():
                if each[1] == "ReplicaSet":  # named after its Deployment and a hash, which has no hyphen
                    self._replica_sets.setdefault((each[0], each[2].rpartition("-")[0]), []).append(each)
        named = self._replica_sets.get((namespace, name), ())
        return [each for each in named if any(workload(pod) == owner for pod in self._snapshot.owned_by(each)[:1])]
