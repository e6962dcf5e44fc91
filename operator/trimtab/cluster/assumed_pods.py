"""Assumed pods: the snapshot counts a pod on its node as soon as the scheduler binds it, before the watch reports this.

This is the equivalent of kube-scheduler's ``AssumePod``. Until the watch reports the pod on a node, updates of the
pending pod, such as a new condition, must not remove it from its node in the snapshot. If the binding fails, the
assumption is dropped: the pod is pending again, and its volumes are released.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, Pod


class ReservedObject(Struct, frozen=True, gc=False):
    """A volume or claim that was changed in the snapshot when a pod was placed.

    Attributes:
        old: the object before the change.
        new: the object as it was put into the snapshot.
    """

    old: KubeObject
    new: KubeObject


class Assumption(Struct, eq=False):
    """A pod that is counted on a node although the watch reports it as pending.

    Attributes:
        pending: the latest version of the pod that the watch delivered.
        assumed: the pod in the snapshot.
        reserved: the volumes and claims that are reserved for the pod.
    """

    pending: Pod
    assumed: Pod
    reserved: Sequence[ReservedObject] = ()


class AssumedPods:
    """The pods that are assumed on one snapshot.

    Args:
        snapshot: the snapshot that contains the assumed pods. All methods must be called while it may be changed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_key: dict[str, Assumption] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def assume(self, assumption: Assumption) -> None:
        """Keep a pod on the node to which a plan has assigned it in the snapshot."""
        self._by_key[assumption.pending.key] = assumption

    def forget(self, assumption: Assumption) -> None:
        """Make an assumed pod pending again, because it was not bound.

        No-op if the watch has since ended the assumption.
        """
        key = assumption.pending.key
        if self._by_key.get(key) is not assumption:
            return
        del self._by_key[key]
        if self._snapshot.pods.get(key) is assumption.assumed:
            self._snapshot.put(assumption.pending)
        self._release(assumption)

    def apply(self, old: Pod | None, new: Pod | None) -> Pod | None:
        """Process a pod change reported by the watch, and return the version of the pod to store in the snapshot.

        A pod that is still pending stays on its assumed node. The assumption ends when the watch reports the pod on a
        node or as deleted. The result is ``None`` for a deleted pod.
        """
        pod = new or old
        if pod is None or not self._by_key:
            return new
        key = pod.key
        known = self._by_key.get(key)
        if known is None or known.pending.uid != pod.uid:
            return new
        if new is not None and not new.node:
            known.pending = new
            known.assumed = msgspec.structs.replace(new, node=known.assumed.node)
            return known.assumed
        del self._by_key[key]
        if new is None or new.node != known.assumed.node:
            self._release(known)
        return new

    def _release(self, assumption: Assumption) -> None:
        """Release the reserved volumes and claims, except those that the watch has updated in the meantime."""
        for each in assumption.reserved:
            objects = self._snapshot.objects.of(type(each.new))
            if objects.get(each.new.key) is each.new:
                self._snapshot.put(each.old)
