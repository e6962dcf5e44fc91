"""Why a pod finds no place on the nodes that stay, in kube-scheduler's words."""

from __future__ import annotations

from typing import Final

import numpy as np

from trimtab.autoscaling.scale_down.kinds import Likes
from trimtab.autoscaling.scale_down.room import Room
from trimtab.cluster.resources import PODS, BoolArray
from trimtab.kube.objects import Pod
from trimtab.placement.framework import Failure
from trimtab.placement.judgement import Judgement
from trimtab.placement.placer import Placer

GOING: Final = "node(s) are to be removed, or not ready"


def no_room(placer: Placer, room: Room, likes: Likes) -> str:
    """The sentence for a pod that only nodes and amounts decide about, with the amounts that are left by now.

    Apart from :meth:`trimtab.placement.judge.Judge.why_not`, because the snapshot does not know yet what is planned.
    """
    nodes = placer.snapshot.nodes
    left: BoolArray = nodes.used.copy()
    failures: list[Failure] = []
    for rule in placer.filters:
        passing = rule.passing(likes.sample) if rule.reads == "node" else None
        if passing is not None:
            failing = np.flatnonzero(left & ~passing)
            failures.extend(rule.failures(likes.sample, failing))
            left &= passing
    is_open: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
    is_open[room.order[room.is_open()]] = True
    failures.append(((GOING,), np.flatnonzero(left & ~is_open)))
    for slot in np.flatnonzero(left & is_open).tolist():
        free = room.free(slot)
        short = [column for column, amount in likes.wanted if free[column] < amount]
        short.sort(key=lambda column: (column != PODS, column))
        failures.append((tuple(_text(placer, column) for column in short), np.array([slot])))
    return Judgement(len(nodes), None, tuple(failures)).sentence()


def no_place(placer: Placer, room: Room, pod: Pod) -> str:
    """The sentence for a pod that other pods or volumes have a say about; the snapshot knows all that is planned."""
    is_open: BoolArray = np.zeros(placer.snapshot.nodes.capacity, dtype=np.bool_)
    is_open[room.order[room.is_open()]] = True
    return placer.why_not(pod, ((is_open, GOING),))


def _text(placer: Placer, column: int) -> str:
    return "Too many pods" if column == PODS else f"Insufficient {placer.snapshot.nodes.axis.names[column]}"
