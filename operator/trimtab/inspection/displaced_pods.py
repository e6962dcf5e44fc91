"""Decides what becomes of a pod that is deleted: its controller recreates it, or it is lost."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.autoscaling.scale_down.drainability import controller_is_missing, of_daemon_set
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections import MIRROR_ANNOTATION
from trimtab.kube.objects import PersistentVolumeClaim, Pod

REPLACED_BEFORE_THE_END: Final = frozenset({"ReplicaSet", "ReplicationController", "Job"})
"""Kinds of controllers that create the replacement as soon as a pod is being deleted."""


class Outcome(StrEnum):
    """What becomes of a deleted pod."""

    RECREATED = "Recreated"
    """Its controller creates a replacement, which the scheduler places."""
    ENDS = "Ends"
    """The pod ends with its node, and no replacement is needed: a DaemonSet pod, or a pod that has terminated."""
    LOST = "Lost"
    """Nothing recreates the pod."""


class Fate(Struct, frozen=True):
    """What becomes of a deleted pod. ``reason`` is a code of :mod:`trimtab.api.reasons` if the pod is lost."""

    outcome: Outcome
    reason: str = ""


_RECREATED: Final = Fate(Outcome.RECREATED)
_ENDS: Final = Fate(Outcome.ENDS)


def fate_of(pod: Pod, snapshot: Snapshot) -> Fate:
    """Return what becomes of a pod that is deleted together with its node."""
    if pod.terminal:
        return _ENDS
    if MIRROR_ANNOTATION in pod.annotations:
        return Fate(Outcome.LOST, reasons.STATIC_POD)
    owner = pod.controller
    if owner is None:
        return _ENDS if pod.deleted is not None else Fate(Outcome.LOST, reasons.NO_CONTROLLER)
    if of_daemon_set(pod):
        return _ENDS
    if owner.kind == "Node":
        return Fate(Outcome.LOST, reasons.STATIC_POD)
    if pod.deleted is not None and owner.kind in REPLACED_BEFORE_THE_END:
        return _ENDS  # its replacement exists already
    if controller_is_missing(pod, snapshot):
        return Fate(Outcome.LOST, reasons.CONTROLLER_NOT_FOUND)
    return _RECREATED


def recreate(pod: Pod, snapshot: Snapshot, *, now: float) -> Pod:
    """Replace a pod in the snapshot by its pending replacement, and return it.

    The replacement keeps the name, although most controllers would choose another one. Claims of ephemeral volumes are
    deleted with their pod, so their replacements are unbound.

    Args:
        pod: the pod as its controller creates it (:meth:`~trimtab.placement.placer.Placer.replacement`).
        snapshot: the cluster.
        now: the time at which it is created, in seconds since the epoch.
    """
    replacement = replace(
        pod, node="", nominated_node="", created=now, started=now, deleted=None, restarts=0, init_restarts=0
    )
    snapshot.put(replacement)
    for volume in pod.spec.volumes:
        if volume.kind == "ephemeral":
            claim = snapshot.objects.of(PersistentVolumeClaim).get(f"{pod.namespace}/{pod.name}-{volume.name}")
            if claim is not None:
                snapshot.put(replace(claim, volume="", bind_completed=False, selected_node=None, phase="Pending"))
    return replacement
