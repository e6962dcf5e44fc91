"""Find a node for a pod, and reserve it: the question everything that trimtab plans rests on."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.cluster.resources import CPU, MEMORY, BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.framework import Filter
from trimtab.placement.registry import DEFAULT_FILTERS

FloatArray = npt.NDArray[np.float64]


class NodeVerdict(Struct, frozen=True, gc=False):
    """Whether a pod fits a node and, where not, kube-scheduler's reasons (those of the first filter that failed)."""

    node: str
    fits: bool
    reasons: tuple[str, ...] = ()


class Placer:
    """Judges and reserves places on one snapshot; keep it as long as the snapshot, for its caches.

    Args:
        snapshot: the picture; changes to it are seen at once.
        filters: the rules in order.
    """

    def __init__(self, snapshot: Snapshot, filters: tuple[type[Filter], ...] = DEFAULT_FILTERS) -> None:
        self.snapshot = snapshot
        self._filters: tuple[Filter, ...] = tuple(kind(snapshot) for kind in filters)

    def feasible(self, pod: Pod) -> BoolArray:
        """The slots on which a pending pod can run: bool, shape (capacity,), a fresh array."""
        mask: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def choose(self, pod: Pod, among: BoolArray) -> int | None:
        """The slot where the scheduler would likely put the pod: most room left, ties by node name.

        NodeResourcesFit's LeastAllocated on cpu and memory, the default profile's dominant score on plain pods.

        Args:
            pod: the pod to place.
            among: bool, shape (capacity,): the slots to choose from.
        """
        slots = np.flatnonzero(among)
        if not len(slots):
            return None
        nodes = self.snapshot.nodes
        row = self.snapshot.row(pod.spec)
        have = nodes.allocatable[slots][:, (CPU, MEMORY)].astype(np.float64)
        want = (nodes.requested[slots] + row)[:, (CPU, MEMORY)]
        room: FloatArray = np.where(have > 0, (have - want) / np.maximum(have, 1.0), 0.0).sum(axis=1)
        best = slots[room >= room.max() - 1e-12]
        return int(best[np.argmin(nodes.rank()[best])])

    def lift(self, pod: Pod) -> Pod:
        """Take a pod off its node, for judging it as if it were pending; only between a mark and its undo or commit."""
        self.snapshot.remove(pod)
        return msgspec.structs.replace(pod, node="")

    def reserve(self, pod: Pod, slot: int) -> Pod:
        """Put the pod on a node, so that whoever is judged next finds the place taken."""
        return self.snapshot.move(pod, self.snapshot.nodes.node(slot).name)

    def verdicts(self, pod: Pod) -> list[NodeVerdict]:
        """Every node in the order of names, with the reasons of the first filter it fails."""
        nodes = self.snapshot.nodes
        reasons: dict[int, tuple[str, ...]] = {}
        open_slots: BoolArray = nodes.used.copy()
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is None:
                continue
            for slot in np.flatnonzero(open_slots & ~passing):
                reasons[int(slot)] = rule.reasons(pod, int(slot))
            open_slots &= passing
        return [
            NodeVerdict(nodes.node(slot).name, slot not in reasons, reasons.get(slot, ()))
            for slot in map(int, nodes.order())
        ]

    def why_not(self, pod: Pod) -> str:
        """kube-scheduler's sentence for a pending pod that fits nowhere; see :func:`unavailable`."""
        return unavailable(self.verdicts(pod))


def unavailable(verdicts: list[NodeVerdict]) -> str:
    """The aggregated sentence as kube-scheduler v1.36 writes it (``FitError.Error``), without its preemption clause.

    A node counts once per reason; the counted texts are sorted as strings, so "10 x" comes before "2 x".
    """
    counts = Counter(reason for verdict in verdicts for reason in verdict.reasons)
    texts = sorted(f"{number} {reason}" for reason, number in counts.items())
    sentence = f"0/{len(verdicts)} nodes are available:"
    return f"{sentence} {', '.join(texts)}." if texts else sentence
