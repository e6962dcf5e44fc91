"""Our own word on a pod, in a form that compares with the scheduler's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
import numpy as np

from tests.differential.server import Manifest
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.kube.wire import Interner
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, Profile


@dataclass(frozen=True)
class Word:
    """What we say of a pod.

    Attributes:
        fits: the nodes that pass all filters.
        message: why none does; empty where one does.
        scores: weighted points by node and plugin, of the nodes that fit.
    """

    fits: frozenset[str]
    message: str = ""
    scores: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def totals(self) -> dict[str, int]:
        """The sum of points by node."""
        return {node: sum(points.values()) for node, points in self.scores.items()}

    @property
    def best(self) -> frozenset[str]:
        """The nodes with the most points."""
        totals = self.totals
        most = max(totals.values(), default=0)
        return frozenset(node for node, total in totals.items() if total == most)


class Ours:
    """Judges pods on one picture, which follows what is placed.

    Args:
        snapshot: the cluster, as the scheduler knows it.
        profile: the rules.
    """

    def __init__(self, snapshot: Snapshot, profile: Profile = DEFAULT) -> None:
        self._snapshot = snapshot
        self._placer = Placer(snapshot, profile)
        self._interner = Interner()

    def judge(self, manifest: Manifest) -> Word:
        """Say where the pod fits, as if pending."""
        pod = msgspec.structs.replace(self._decoded(manifest), node="")
        # A pod that is to be judged is in nobody's picture yet, or is pending in it and counts on no node.
        mask = self._placer.feasible(pod)
        slots = np.flatnonzero(mask)
        nodes = self._snapshot.nodes
        names = {int(slot): nodes.node(int(slot)).name for slot in slots}
        placed, message = self._tried(pod)
        told = {verdict.node for verdict in self._placer.verdicts(pod) if verdict.fits}
        assert not names or told == set(names.values()), f"{pod.key}: {sorted(told)} fit by their reasons"
        if not names:
            assert (placed, message) == ("", self._placer.why_not(pod)), f"{pod.key}: placed otherwise than judged"
            return Word(frozenset(), message)
        columns = self._placer.scorer.breakdown(pod, mask)
        scores = {
            name: {plugin: int(points[slot]) for plugin, points in columns.items()} for slot, name in names.items()
        }
        word = Word(frozenset(names.values()), "", scores)
        assert placed == min(word.best), f"{pod.key}: placed on {placed}, but {sorted(word.best)} score highest"
        return word

    def _tried(self, pod: Pod) -> tuple[str, str]:
        """Place the pod and take it back: its node, and why it has none. Nothing of it may be left behind."""
        with self._snapshot.fork():
            placement = self._placer.place([pod])[0]
        return placement.pod.node, placement.message

    def place(self, manifest: Manifest) -> None:
        """Take in that the pod is where it is."""
        self._snapshot.put(self._decoded(manifest))

    def reserve(self, manifest: Manifest, node: str) -> None:
        """Promise the pod a place and the volumes that it would get there, as planners do."""
        pod = msgspec.structs.replace(self._decoded(manifest), node="")
        self._placer.reserve(pod, self._snapshot.nodes.slot_of[node])

    def forget(self, manifest: Manifest) -> None:
        """Take in that the pod is gone."""
        self._snapshot.remove(self._decoded(manifest))

    def change(self, gone: Iterable[Manifest], come: Iterable[Manifest]) -> None:
        """Take in that objects went, and that others came or changed."""
        for manifest in gone:
            if (value := decode_object(manifest, interner=self._interner)) is not None:
                self._snapshot.remove(value)
        for manifest in come:
            if (value := decode_object(manifest, interner=self._interner)) is not None:
                self._snapshot.put(value)

    def _decoded(self, manifest: Manifest) -> Pod:
        pod = decode_json("Pod", msgspec.json.encode(manifest), interner=self._interner)
        assert isinstance(pod, Pod)
        return pod
