"""Why a pod finds no place on the nodes that stay, in kube-scheduler's words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from trimtab.autoscaling.scale_down.kinds import Likes
from trimtab.autoscaling.scale_down.room import Room
from trimtab.cluster.resources import PODS, BoolArray
from trimtab.kube.objects import Pod
from trimtab.placement.framework import Failure
from trimtab.placement.judgement import Judgement
from trimtab.placement.placer import Placer

UNREADY: Final = "node(s) were not ready"


def no_room(placer: Placer, room: Room, likes: Likes, gone: Collection[int]) -> str:
    """The sentence for a pod that only nodes and amounts decide about, with the amounts that are left by now.

    Apart from :meth:`trimtab.placement.judge.Judge.why_not`, because the snapshot does not know yet what is planned.

    Args:
        placer: of the snapshot.
        room: the nodes that may take pods.
        likes: of the pod.
        gone: slots of nodes that are still in the snapshot and count no longer: they go.
    """
    nodes = placer.snapshot.nodes
    left: BoolArray = nodes.used.copy()
    left[list(gone)] = False
    number = int(np.count_nonzero(left))
    failures: list[Failure] = []
    for rule in placer.filters:
        passing = rule.passing(likes.sample) if rule.reads == "node" else None
        if passing is not None:
            failing = np.flatnonzero(left & ~passing)
            failures.extend(rule.failures(likes.sample, failing))
            left &= passing
    is_open: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    is_open[room.order[room.is_open()]] = True
    failures.append(((UNREADY,), np.flatnonzero(left & ~is_open)))
    slots = np.flatnonzero(left & is_open)
    wanted = sorted(likes.wanted, key=lambda each: (each[0] != PODS, each[0]))
    short = np.zeros(len(slots), dtype=np.int64)  # a bit for each resource that is short
    for place, (column, amount) in enumerate(wanted):
        short |= (room.free_of(column)[slots] < amount).astype(np.int64) << place
    for bits in np.flatnonzero(np.bincount(short)).tolist():
        texts = tuple(_text(placer, column) for place, (column, _) in enumerate(wanted) if bits >> place & 1)
        failures.append((texts, slots[short == bits]))
    return Judgement(number, None, tuple(failures)).sentence()


def no_place(placer: Placer, room: Room, pod: Pod) -> str:
    """The sentence for a pod that other pods or volumes have a say about; the snapshot knows all that is planned."""
    is_open: BoolArray = np.zeros(placer.snapshot.nodes.capacity, dtype=np.bool_)
    is_open[room.order[room.is_open()]] = True
    return placer.why_not(pod, ((is_open, UNREADY),))


def _text(placer: Placer, column: int) -> str:
    return "Too many pods" if column == PODS else f"Insufficient {placer.snapshot.nodes.axis.names[column]}"
