"""The volumes of a pod: which of its claims are bound, where the others could be, and what placing it takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.cluster.attachables import claim_key
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.shelves import Shelves
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.volume_users import CLAIMING
from trimtab.kube.objects import PersistentVolume, PersistentVolumeClaim, Pod, StorageClass
from trimtab.kube.rules.in_tree_volumes import MIGRATED
from trimtab.placement.volume_places import BoundVolumes, Places, Provisioning
from trimtab.placement.volume_search import VolumeSearch

Codes = npt.NDArray[np.uint8]

AFFINITY: Final = 1
"""The node does not match the affinity of a volume that a claim is bound to."""
BINDING: Final = 2
"""No volume for a claim, and none can be provisioned."""
SPACE: Final = 4
"""A volume could be provisioned if there were room."""
MISSING: Final = 8
"""A claim is bound to a volume that is not there."""
ERROR: Final = 16
"""The scheduler gives up: see :meth:`VolumeBinder.errors`."""


class PodClaims(Struct, frozen=True, gc=False):
    """A pod's claims in the order of its volumes (``PodVolumeClaims``), those that do not exist left out.

    Attributes:
        bound: fully bound, as the controller has confirmed.
        delayed: unbound, of a class that waits for the first consumer.
        immediate: unbound, to be bound by others before the pod can be placed.
    """

    bound: tuple[PersistentVolumeClaim, ...] = ()
    delayed: tuple[PersistentVolumeClaim, ...] = ()
    immediate: tuple[PersistentVolumeClaim, ...] = ()


def has_claims(pod: Pod) -> bool:
    """Whether a volume of the pod stands for a claim."""
    return any(volume.kind in CLAIMING for volume in pod.spec.volumes)


def claims_of(shelves: Shelves, pod: Pod) -> PodClaims:
    """The pod's claims, sorted out by how they are bound (``GetPodVolumeClaims``)."""
    bound, delayed, immediate = [], [], []
    for volume in pod.spec.volumes:
        key = claim_key(pod, volume)
        claim = shelves.of(PersistentVolumeClaim).get(key) if key is not None else None
        if claim is None:
            continue
        if claim.volume and claim.bind_completed:
            bound.append(claim)
        elif not claim.volume and waits(shelves, claim):
            delayed.append(claim)
        else:
            immediate.append(claim)
    return PodClaims(tuple(bound), tuple(delayed), tuple(immediate))


def waits(shelves: Shelves, claim: PersistentVolumeClaim) -> bool:
    """Whether the claim's class binds when the first consumer is placed; without class or object, at once."""
    found = shelves.of(StorageClass).get(claim.storage_class) if claim.storage_class else None
    return found is not None and found.binding_mode == "WaitForFirstConsumer"


class VolumeBinder:
    """Judges claims on all nodes, as kube-scheduler v1.36's ``volumeBinder.FindPodVolumes`` does on one.

    Taken from a snapshot with :func:`binder_of`.
    """

    def __init__(self, nodes: NodeTable, shelves: Shelves) -> None:
        self._nodes = nodes
        self._shelves = shelves
        self._places = Places(nodes)
        self._bound = BoundVolumes(nodes, shelves, self._places)
        self._provisioning = Provisioning(nodes, shelves, self._places)
        self._search = VolumeSearch(nodes, shelves, self._places)

    def conflicts(self, pod: Pod) -> Codes:
        """What stands against each node: uint8, shape (capacity,), a fresh array of sums of the codes, 0 for nothing.

        Claims that do not exist or wait for others are not looked at: the pod is refused before.
        """
        claims = claims_of(self._shelves, pod)
        codes: Codes = np.zeros(self._nodes.capacity, dtype=np.uint8)
        self._check_bound(claims.bound, codes)
        if claims.delayed:
            self._check_delayed(claims.delayed, codes)
        codes[list(self.errors(pod))] = ERROR
        return codes

    def errors(self, pod: Pod) -> dict[int, str]:
        """The slots on which a bound in-tree volume would have to be translated and cannot, with what is wrong."""
        errors: dict[int, str] = {}
        left: BoolArray = self._nodes.used
        for claim in claims_of(self._shelves, pod).bound:
            volume = self._shelves.of(PersistentVolume).get(claim.volume)
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
        """Volumes and claims as they are once the pod is placed (``AssumePodVolumes``); only those that change.

        A volume is reserved for the claim that chose it, and a claim whose volume is to be provisioned is marked with
        the node; pods that share the claim then follow. Nothing, where the node does not suit the pod's volumes.

        Raises:
            KeyError: there is no such node.
        """
        delayed = claims_of(self._shelves, pod).delayed
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
        """A node is told of the first claim that it fails (``checkBoundClaims``)."""
        left: BoolArray = np.ones(len(codes), dtype=np.bool_)
        for claim in claims:
            volume = self._shelves.of(PersistentVolume).get(claim.volume)
            if volume is None:
                codes[left] |= MISSING
                return
            mask = self._bound.mask(volume)
            codes[left & ~mask] |= AFFINITY
            left &= mask

    # --- claims that wait for their first consumer -------------------------------------------------------------

    def _check_delayed(self, claims: tuple[PersistentVolumeClaim, ...], codes: Codes) -> None:
        left = self._where_selected(claims)
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
            roomy = self._provisioning.roomy(claim)
            if roomy is not None:
                short = left & where & ~roomy
                codes[short] |= SPACE
                left = left & ~short

    def _where_selected(self, claims: tuple[PersistentVolumeClaim, ...]) -> BoolArray:
        """The nodes for which nothing is being provisioned elsewhere."""
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
    """The claims that look for a volume, the smallest first."""
    return sorted((claim for claim in claims if claim.selected_node is None), key=lambda claim: claim.request or 0)


_BINDERS: Final[WeakKeyDictionary[Snapshot, VolumeBinder]] = WeakKeyDictionary()
"""One per snapshot, for placers and reservations alike. A binder holds parts of its snapshot, but not the snapshot."""


def binder_of(snapshot: Snapshot) -> VolumeBinder:
    """The snapshot's binder, made when first asked for."""
    found = _BINDERS.get(snapshot)
    if found is None:
        found = _BINDERS[snapshot] = VolumeBinder(snapshot.nodes, snapshot.shelves)
    return found


def reserve_volumes(snapshot: Snapshot, pod: Pod, node: str) -> None:
    """Take the volumes that placing a pod on a node takes, so that whoever is judged next finds them taken.

    To be called with the pod as it was judged, before or after it is put on the node. The changes are puts into the
    snapshot: a fork undoes them.

    Raises:
        KeyError: there is no such node.
    """
    if has_claims(pod):
        for changed in list(binder_of(snapshot).assumed(pod, node)):
            snapshot.put(changed)
