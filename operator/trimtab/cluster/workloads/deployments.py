"""Finds the workload of a pod: the Deployment of its ReplicaSet, or else its controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.kube.objects import Pod

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

HASH_LABEL: Final = "pod-template-hash"


def workload(pod: Pod) -> OwnerKey | None:
    """Return the workload that owns a pod, without a UID, or ``None`` for a bare pod.

    A ReplicaSet belongs to a Deployment if its name ends with the template hash label of its pods. So the workload does
    not change when a rollout replaces the ReplicaSet, or when it is created again under the same name.
    """
    controller = pod.controller
    if controller is None:
        return None
    suffix = f"-{pod.labels.get(HASH_LABEL, '')}"
    kind = controller.qualified_kind
    if kind == "ReplicaSet" and suffix != "-" and controller.name.endswith(suffix):
        return OwnerKey(pod.namespace, "Deployment", controller.name.removesuffix(suffix))
    return OwnerKey(pod.namespace, kind, controller.name)


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
        if owner.kind != "Deployment":
            return [owner]
        if self._replica_sets is None:
            self._replica_sets = {}
            for each in self._snapshot.owners():
                if each.kind == "ReplicaSet":  # its name is the Deployment's, a hyphen and a hash without hyphens
                    deployment = each.name.rpartition("-")[0]
                    self._replica_sets.setdefault((each.namespace, deployment), []).append(each)
        named = self._replica_sets.get((owner.namespace, owner.name), ())
        distinct = dict.fromkeys(each.without_uid for each in named)
        return [each for each in distinct if any(workload(pod) == owner for pod in self._snapshot.owned_by(each)[:1])]
