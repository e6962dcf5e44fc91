"""The capacity that a plan reserves for nominated pods, from other pods of the same or a lower priority.

    reservations = Reservations(snapshot)
    with snapshot.fork():
        reservations.add(nominated, placer, slot)     # other pods cannot use its capacity from now on
        reservations.lift(nominated)                  # before a decision on the pod itself
    feasible = reservations.feasible(pod, placer)

A nominated pod may still be bound to another node. So a pod must also fit without the nominated pods, for example if it
has affinity to one of them. Source: kube-scheduler v1.36 ``RunFilterPluginsWithNominatedPods``, which adds only the
nominated pods of the node that it filters. Here, the nominated pods of all nodes are added.

kube-scheduler reserves no volumes for nominated pods. Here, other pods cannot use the volumes that are reserved for the
claims of nominated pods. A pod that shares such a claim reserves the claim itself when it is bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from trimtab.cluster.own_writes import ReservedObject
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.volumes import claim_key
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import TYPES, PersistentVolume, Pod
from trimtab.placement.feasibility import Diagnosis
from trimtab.placement.placer import Placer
from trimtab.placement.volume_binding import has_claims


class _Reservation(Struct, frozen=True):
    """A pod as it is pending, the slot of its node, and the volumes and claims that are reserved for it."""

    pod: Pod
    slot: int
    volumes: tuple[ReservedObject, ...]


_Group = tuple[str, Labels, bool]
"""Namespace, labels and whether they have volumes, of pods that may help the same other pods."""


def _group_of(pod: Pod) -> _Group:
    return pod.namespace, pod.labels, bool(pod.spec.volumes)


class Reservations:
    """The nominated pods that a plan has placed on their nodes.

    Args:
        snapshot: the cluster. The caller must have forked it.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_key: dict[str, _Reservation] = {}
        self._groups: dict[_Group, dict[str, _Reservation]] = {}

    def clear(self) -> None:
        """Forget all reservations. The caller undoes them by ending its fork of the snapshot."""
        self._by_key.clear()
        self._groups.clear()

    def add(self, pod: Pod, placer: Placer, slot: int) -> None:
        """Reserve the capacity that a pending pod needs on a node."""
        made = _Reservation(pod, slot, place(self._snapshot, pod, placer, slot))
        self._by_key[pod.key] = made
        self._groups.setdefault(_group_of(pod), {})[pod.key] = made

    def mask(self) -> BoolArray:
        """Return the slots of nodes with reservations: bool, shape (capacity,)."""
        found: BoolArray = np.zeros(self._snapshot.nodes.capacity, dtype=np.bool_)
        found[[each.slot for each in self._by_key.values()]] = True
        return found

    def lift(self, pod: Pod) -> None:
        """Release the capacity that is reserved for a pod. No-op if there is none."""
        found = self._by_key.pop(pod.key, None)
        if found is None:
            return
        group = self._groups[_group_of(found.pod)]
        del group[pod.key]
        if not group:
            del self._groups[_group_of(found.pod)]
        self._undo(found)

    def release_claims(self, pod: Pod) -> None:
        """Release the claims of a pod that are reserved for nominated pods, before the pod itself reserves them."""
        keys = {claim_key(pod, volume) for volume in pod.spec.volumes} - {None}
        for each in self._by_key.values() if keys else ():
            self._release(
                found
                for found in each.volumes
                if (found.new.claim if isinstance(found.new, PersistentVolume) else found.new.key) in keys
            )

    def feasible(self, pod: Pod, placer: Placer) -> BoolArray:
        """Return the slots that are feasible with and without the reservations: bool, shape (capacity,), fresh."""
        found = placer.feasible(pod)
        if self._by_key and found.any():
            with self.suspended(pod, placer) as suspended:
                if suspended:
                    found &= placer.feasible(pod)
        return found

    def diagnose(self, pod: Pod, placer: Placer) -> tuple[Diagnosis, frozenset[str]]:
        """Return why nodes are not feasible, and the names of the filters that some node fails."""
        found, rejected_by = _diagnose(pod, placer)
        if found.refusal is not None or not self._by_key:
            return found, rejected_by
        left: BoolArray = self._snapshot.nodes.used.copy()
        for _, slots in found.failures:
            left[slots] = False
        if not left.any():
            return found, rejected_by
        with self.suspended(pod, placer) as suspended:
            if not suspended:
                return found, rejected_by
            second, further = _diagnose(pod, placer)
        if second.refusal is not None:
            return second, further
        failures = (*found.failures, *((texts, slots[left[slots]]) for texts, slots in second.failures))
        return Diagnosis(found.nodes, None, failures), rejected_by | further

    @contextmanager
    def suspended(self, pod: Pod, placer: Placer) -> Iterator[bool]:
        """Suspend the reservations that may be the reason why a node is feasible for a pod, if there are any.

        Without the other reservations, the pod fits on the same nodes: they only use up capacity. Yields whether any
        reservation is suspended. If not, a node that is feasible is also feasible without the reservations.
        """
        helping: list[_Reservation] = []
        if self._by_key and not placer.ignores_other_pods(pod):
            for group in self._groups.values():
                if placer.is_helped_by(pod, next(iter(group.values())).pod):
                    helping.extend(group.values())
        if not helping:
            yield False
            return
        with self._snapshot.fork():
            for each in helping:
                self._undo(each)
            yield True

    def _undo(self, reservation: _Reservation) -> None:
        self._snapshot.put(reservation.pod)
        self._release(reservation.volumes)

    def _release(self, volumes: Iterable[ReservedObject]) -> None:
        """Restore volumes and claims, except those that another pod has reserved since."""
        for each in volumes:
            if self._snapshot.objects.of(type(each.new)).get(each.new.key) is each.new:
                self._snapshot.put(each.old)


def _diagnose(pod: Pod, placer: Placer) -> tuple[Diagnosis, frozenset[str]]:
    found = placer.diagnose(pod)
    if found.refusal is not None:
        return found, frozenset((found.refused_by,))
    return found, frozenset(each.name for each, _ in placer.failing_filters(pod))


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
