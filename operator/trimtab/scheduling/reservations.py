"""The capacity that a plan reserves for nominated pods, from other pods of the same or a lower priority.

    reservations = Reservations(snapshot)
    with snapshot.fork():
        reservations.add(nominated, placer, slot)     # other pods cannot use its capacity from now on
        reservations.lift(nominated)                  # before a decision on the pod itself

Source: kube-scheduler v1.36 ``addGENominatedPods``.
"""

from __future__ import annotations

from msgspec import Struct

from trimtab.cluster.own_writes import ReservedObject
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import TYPES, Pod
from trimtab.placement.placer import Placer
from trimtab.placement.volume_binding import has_claims


class _Reservation(Struct, frozen=True):
    """A pod as it is pending, and the volumes and claims that are reserved for it."""

    pod: Pod
    volumes: tuple[ReservedObject, ...]


class Reservations:
    """The nominated pods that a plan has placed on their nodes.

    Args:
        snapshot: the cluster. The caller must have forked it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_uid: dict[str, _Reservation] = {}

    def clear(self) -> None:
        """Forget all reservations. The caller undoes them by ending its fork of the snapshot."""
        self._by_uid.clear()

    def add(self, pod: Pod, placer: Placer, slot: int) -> None:
        """Reserve the capacity that a pending pod needs on a node."""
        self._by_uid[pod.uid] = _Reservation(pod, place(self._snapshot, pod, placer, slot))

    def lift(self, pod: Pod) -> None:
        """Release the capacity that is reserved for a pod. No-op if there is none."""
        found = self._by_uid.pop(pod.uid, None)
        if found is None:
            return
        self._snapshot.put(found.pod)
        for each in found.volumes:
            if self._snapshot.objects.of(type(each.new)).get(each.new.key) is each.new:
                self._snapshot.put(each.old)


def place(snapshot: Snapshot, pod: Pod, placer: Placer, slot: int) -> tuple[ReservedObject, ...]:
    """Place the pod, and return the volumes and claims that this has changed."""
    if not pod.spec.volumes or not has_claims(pod):
        placer.reserve(pod, slot)
        return ()
    mark = snapshot.mark()
    try:
        placer.reserve(pod, slot)
        changes = snapshot.changes_since(mark)
    finally:
        snapshot.commit(mark)
    return tuple(
        ReservedObject(old, snapshot.objects.of(TYPES[kind])[key])
        for kind, key, old in changes
        if kind != "Pod" and old is not None
    )
