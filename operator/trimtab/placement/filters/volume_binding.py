"""VolumeBinding: bound claims must have their volume in reach, unbound ones find or get a volume."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np

from trimtab.cluster.attachables import claim_key, not_owned
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import PersistentVolumeClaim, Pod, PodSpec, Volume
from trimtab.placement.framework import Failure, Reads
from trimtab.placement.volumes import AFFINITY, BINDING, ERROR, MISSING, SPACE, binder_of, claims_of, has_claims

REASONS: Final = (
    (AFFINITY, "node(s) didn't match PersistentVolume's node affinity"),
    (BINDING, "node(s) didn't find available persistent volumes to bind"),
    (SPACE, "node(s) did not have enough free storage"),
    (MISSING, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
)
"""In the order in which ``FindPodVolumes`` appends them; a node may have several."""

UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"


class VolumeBinding:
    """See :class:`~trimtab.placement.volumes.VolumeBinder` for the verdicts on nodes (v1.36)."""

    name: ClassVar = "VolumeBinding"
    reads: ClassVar[Reads] = "pods"  # not "node": pods placed before take volumes, and specs don't tell claims apart

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it has volumes."""
        return bool(spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        """Where the pod has claims."""
        return has_claims(pod)

    def refusal(self, pod: Pod) -> str | None:
        """The first claim that cannot be used, else that one is still to be bound (``podHasPVCs``, ``PreFilter``)."""
        if not has_claims(pod):
            return None
        for volume in pod.spec.volumes:
            key = claim_key(pod, volume)
            problem = self._problem(pod, volume, key) if key is not None else None
            if problem is not None:
                return problem
        return UNBOUND if claims_of(self._snapshot.shelves, pod).immediate else None

    def passing(self, pod: Pod) -> BoolArray | None:
        """The nodes where nothing stands against the pod's volumes."""
        if not has_claims(pod):
            return None
        passing: BoolArray = binder_of(self._snapshot).conflicts(pod) == 0
        return passing

    def failures(self, pod: Pod, slots: IntArray) -> Iterator[Failure]:
        """Nodes with the same conflicts together."""
        codes = binder_of(self._snapshot).conflicts(pod)[slots]
        for code in np.unique(codes).tolist():
            if code != ERROR:
                yield tuple(text for bit, text in REASONS if code & bit), slots[codes == code]
        errors = self.errors(pod)
        for text in sorted(set(errors.values())):
            there = [slot for slot in slots[codes == ERROR].tolist() if errors[slot] == text]
            yield (text,), np.array(there, dtype=np.int64)

    def errors(self, pod: Pod) -> dict[int, str]:
        """See :class:`~trimtab.placement.framework.Erring`: in-tree volumes that have no counterpart."""
        return binder_of(self._snapshot).errors(pod) if has_claims(pod) else {}

    def _problem(self, pod: Pod, volume: Volume, key: str) -> str | None:
        claim = self._snapshot.shelves.of(PersistentVolumeClaim).get(key)
        name = key.partition("/")[2]
        ephemeral = volume.kind == "ephemeral"
        if claim is None:
            if ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return f'persistentvolumeclaim "{name}" not found'
        if claim.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
        if claim.deleted is not None:
            return f'persistentvolumeclaim "{name}" is being deleted'
        return not_owned(claim, pod) if ephemeral else None
