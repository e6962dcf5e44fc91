"""Evaluates on which nodes a pod's claims can be used, bound or provisioned, and reserves volumes."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.object_store import ObjectStore
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.volumes import CLAIMING, claim_key
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from trimtab.kube.rules.in_tree_volumes import MIGRATED
from trimtab.placement.volume_matching import VolumeMatcher
from trimtab.placement.volume_topology import BoundVolumes, Provisioning, VolumeAffinityMasks

Codes = npt.NDArray[np.uint8]

AFFINITY: Final = 1
"""The node does not match the node affinity of a bound volume."""
BINDING: Final = 2
"""There is no available volume for a claim, and none can be provisioned."""
SPACE: Final = 4
"""There is not enough storage capacity to provision a volume."""
MISSING: Final = 8
"""A claim is bound to a volume that does not exist."""
ERROR: Final = 16
"""kube-scheduler aborts with an error (:meth:`VolumeBinder.errors`)."""


class PodClaims(Struct, frozen=True, gc=False):
    """A pod's claims by state, in the order of its volumes (``PodVolumeClaims``). Claims that do not exist are omitted.

    Attributes:
        bound: the claims whose binding the volume controller has completed.
        delayed: the unbound claims whose class has the binding mode WaitForFirstConsumer.
        immediate: the other unbound claims, which must be bound before the pod can be placed.
    """

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()


def has_claims(pod: Pod) -> bool:
    """Return whether a volume of the pod refers to a claim."""
    return any(volume.kind in CLAIMING for volume in pod.spec.volumes)


def claims_of(objects: ObjectStore, pod: Pod) -> PodClaims:
    """Return the pod's claims, grouped by whether and when they are bound (``GetPodVolumeClaims``)."""
    bound, delayed, immediate = [], [], []
    for volume in pod.spec.volumes:
        key = claim_key(pod, volume)
        claim = objects.of(PersistentVolumeClaim).get(key) if key is not None else None
        if claim is None:
            continue
        if claim.volume and claim.bind_completed:
            bound.append(claim)
        elif not claim.volume and waits_for_first_consumer(objects, claim):
            delayed.append(claim)
        else:
            immediate.append(claim)
    return PodClaims(tuple(bound), tuple(delayed), tuple(immediate))


def waits_for_first_consumer(objects: ObjectStore, claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim's class exists and has the binding mode WaitForFirstConsumer."""
    found = objects.of(StorageClass).get(claim.storage_class) if claim.storage_class else None
    return found is not None and found.binding_mode == "WaitForFirstConsumer"


class VolumeBinder:
    """Evaluates claims on all nodes, as kube-scheduler v1.36's ``volumeBinder.FindPodVolumes`` does on one node.

    Use :func:`binder_of` to get the snapshot's instance.
    """

    def __init__(self, nodes: NodeTable, objects: ObjectStore) -> None:
        self._nodes = nodes
        self._objects = objects
        self._masks_by_affinity = VolumeAffinityMasks(nodes)
        self._bound = BoundVolumes(nodes, objects, self._masks_by_affinity)
        self._provisioning = Provisioning(nodes, objects, self._masks_by_affinity)
        self._search = VolumeMatcher(nodes, objects, self._masks_by_affinity)
        nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - the keys are requirements of claims
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._search.forget_claims()
        self._provisioning.forget_claims()

    def conflicts(self, pod: Pod) -> Codes:
        """Return the volume conflicts of a pod on each slot: uint8, shape (capacity,), a fresh array.

        Each entry is the sum of the codes that apply (:data:`AFFINITY` and so on), or 0 for no conflict. Missing claims
        and unbound immediate claims are ignored, because a filter has already rejected the pod for them.
        """
        claims = claims_of(self._objects, pod)
        codes: Codes = np.zeros(self._nodes.capacity, dtype=np.uint8)
        self._check_bound(claims.bound, codes)
        if claims.delayed:
            self._check_delayed(claims.delayed, codes)
        codes[list(self.errors(pod))] = ERROR
        return codes

    def errors(self, pod: Pod) -> dict[int, str]:
        """Return the slots where a bound in-tree volume must be translated to CSI but cannot be, and the error."""
        errors: dict[int, str] = {}
        left: BoolArray = self._nodes.used
        for claim in claims_of(self._objects, pod).bound:
            volume = self._objects.of(PersistentVolume).get(claim.volume)
            if volume is None:
                break
            if volume.source in MIGRATED:
                broken = self._bound.untranslatable(volume)
                if broken is not None:
                    errors.update(dict.fromkeys(np.flatnonzero(left & broken[0]).tolist(), broken[1]))
                    left = left & ~broken[0]
            left = left & self._bound.mask(volume)
        return errors

    def assumed(self, pod: Pod, node: str) -> Iterator[PersistentVolume | PersistentVolumeClaim]:
        """Yield the new versions of the volumes and claims that change if the pod is placed (``AssumePodVolumes``).

        A matching volume is reserved for its claim. A claim whose volume will be provisioned is annotated with the
        selected node, and other pods with this claim must use the same node. Nothing is yielded if the pod's volumes
        cannot be used on the node.

        Raises:
            KeyError: there is no such node.
        """
        delayed = claims_of(self._objects, pod).delayed
        slot = self._nodes.slot_of[node]
        if not delayed or self.conflicts(pod)[slot]:
            return
        searching = _in_order(delayed)
        chosen = self._search.chosen(searching, slot)
        for claim, volume in zip(searching, chosen, strict=True):
            if volume is None:
                yield msgspec.structs.replace(claim, selected_node=node)
            elif (volume.claim, volume.claim_uid) != (claim.key, claim.uid):
                yield msgspec.structs.replace(volume, claim=claim.key, claim_uid=claim.uid)

    # --- bound claims ------------------------------------------------------------------------------------------

    def _check_bound(self, claims: tuple[PersistentVolumeClaim, ...], codes: Codes) -> None:
        """Set the codes for bound claims.

        Only the first conflicting claim on each node is considered (``checkBoundClaims``).
        """
        left: BoolArray = np.ones(len(codes), dtype=np.bool_)
        for claim in claims:
            volume = self._objects.of(PersistentVolume).get(claim.volume)
            if volume is None:
                codes[left] |= MISSING
                return
            mask = self._bound.mask(volume)
            codes[left & ~mask] |= AFFINITY
            left &= mask

    # --- claims that wait for their first consumer -------------------------------------------------------------

    def _check_delayed(self, claims: tuple[PersistentVolumeClaim, ...], codes: Codes) -> None:
        left = self._nodes_without_other_selection(claims)
        codes[~left] |= BINDING
        searching = _in_order(claims)
        wanted: list[tuple[PersistentVolumeClaim, BoolArray]] = [
            (claim, left) for claim in claims if claim.selected_node is not None
        ]
        wanted += zip(searching, self._search.unmatched(searching), strict=True)
        for claim, where in wanted:
            unplaced = left & where
            if not unplaced.any():
                continue
            allowed = self._provisioning.allowed(claim)
            if allowed is None:
                codes[unplaced] |= BINDING
                left = left & ~unplaced
                continue
            codes[unplaced & ~allowed] |= BINDING
            left = left & ~(unplaced & ~allowed)
            with_capacity = self._provisioning.with_capacity(claim)
            if with_capacity is not None:
                short = left & where & ~with_capacity
                codes[short] |= SPACE
                left = left & ~short

    def _nodes_without_other_selection(self, claims: tuple[PersistentVolumeClaim, ...]) -> BoolArray:
        """Return the nodes for which no claim has a different selected node: bool, shape (capacity,)."""
        left: BoolArray = np.ones(self._nodes.capacity, dtype=np.bool_)
        for claim in claims:
            if claim.selected_node is not None:
                here: BoolArray = np.zeros(self._nodes.capacity, dtype=np.bool_)
                slot = self._nodes.slot_of.get(claim.selected_node)
                if slot is not None:
                    here[slot] = True
                left &= here
        return left


def _in_order(claims: tuple[PersistentVolumeClaim, ...]) -> list[PersistentVolumeClaim]:
    """Return the claims without a selected node, in ascending order of requested storage."""
    return sorted((claim for claim in claims if claim.selected_node is None), key=lambda claim: claim.request or 0)


_BINDERS: Final[WeakKeyDictionary[Snapshot, VolumeBinder]] = WeakKeyDictionary()
"""One binder per snapshot, shared by placers and reservations. A binder references parts of its snapshot but not the
snapshot itself, so that a snapshot that is no longer used can be freed."""


def binder_of(snapshot: Snapshot) -> VolumeBinder:
    """Return the snapshot's binder, which is created on first use."""
    found = _BINDERS.get(snapshot)
    if found is None:
        found = _BINDERS[snapshot] = VolumeBinder(snapshot.nodes, snapshot.objects)
    return found


def reserve_volumes(snapshot: Snapshot, pod: Pod, node: str) -> None:
    """Reserve the volumes that a pod needs on a node, so that subsequent pods cannot use them.

    ``pod`` is the pod as it was evaluated. It may be bound to the node in the snapshot before or after this call.
    Ending a fork undoes the changes.

    Raises:
        KeyError: there is no such node.
    """
    if has_claims(pod):
        for changed in list(binder_of(snapshot).assumed(pod, node)):
            snapshot.put(changed)
