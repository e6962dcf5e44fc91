"""NodeVolumeLimits: no more volumes of a CSI driver than the node can attach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np

from trimtab.cluster.attached_volumes import AttachedVolumes
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.volume_users import CLAIMING
from trimtab.kube.objects import CSINode, Pod, PodSpec
from trimtab.kube.rules.in_tree_volumes import MIGRATED
from trimtab.placement.framework import Failure, Reads

_KINDS: Final = CLAIMING | frozenset(MIGRATED)
_ATTACHED: Final[WeakKeyDictionary[Snapshot, AttachedVolumes]] = WeakKeyDictionary()


class NodeVolumeLimits:
    """See :class:`~trimtab.cluster.attached_volumes.AttachedVolumes` for how volumes are counted.

    That a driver must be on the node at all is behind a gate that is off in v1.36 (VolumeLimitScaling). A claim that
    does not exist is refused by VolumeRestrictions and VolumeBinding before this filter would.
    """

    name: ClassVar = "NodeVolumeLimits"
    reads: ClassVar[Reads] = "pods"
    reason: ClassVar = "node(s) exceed max volume count"

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it has volumes that can be attached."""
        return any(volume.kind in _KINDS for volume in spec.volumes)

    def concerns(self, pod: Pod) -> bool:
        """Where the pod has volumes that are attached and nodes have CSINodes."""
        return any(volume.kind in _KINDS for volume in pod.spec.volumes) and bool(self._snapshot.shelves.of(CSINode))

    def refusal(self, pod: Pod) -> str | None:
        """None: it is about nodes only."""
        del pod
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """The nodes that can attach the pod's volumes besides those that are attached already."""
        if not self.concerns(pod):
            return None
        passing = self._attached().within_limits(pod)
        errors = self.errors(pod)
        if errors:
            passing = self._snapshot.nodes.used.copy() if passing is None else passing
            passing[list(errors)] = False
        return passing

    def errors(self, pod: Pod) -> dict[int, str]:
        """See :class:`~trimtab.placement.framework.Erring`: nodes with limits whose pods' volumes cannot be counted."""
        if not self.concerns(pod):
            return {}
        attached = self._attached()
        if not attached.problems or not attached.attachables(pod):
            return {}
        return {slot: text for slot, text in attached.problems.items() if attached.limited(slot)}

    def failures(self, pod: Pod, slots: IntArray) -> Iterator[Failure]:
        """One text for all but those that are in error."""
        errors = self.errors(pod)
        for slot in slots.tolist():
            if slot in errors:
                yield (errors[slot],), np.array([slot])
        yield (self.reason,), slots[[slot not in errors for slot in slots.tolist()]] if errors else slots

    def _attached(self) -> AttachedVolumes:
        attached = _ATTACHED.get(self._snapshot)
        if attached is None:
            snapshot = self._snapshot
            attached = _ATTACHED[snapshot] = AttachedVolumes(snapshot.nodes, snapshot.shelves, snapshot.volume_users)
        attached.refresh()
        return attached
