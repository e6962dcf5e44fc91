"""Find a node for a pod, and reserve it: the question everything that trimtab plans rests on."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.judge import Judge
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.placement.scorer import Scorer
from trimtab.placement.volumes import reserve_volumes


class Placement(Struct, frozen=True, gc=False):
    """Where a pod was placed, or why nowhere.

    Attributes:
        pod: as it is in the snapshot now, with its node where it has one.
        message: kube-scheduler's sentence where it fits nowhere, else empty.
    """

    pod: Pod
    message: str = ""


class Placer(Judge):
    """Judges, chooses and reserves places on one snapshot; keep it as long as the snapshot, for its caches.

    Args:
        snapshot: the picture; changes to it are seen at once.
        profile: the rules.
    """

    def __init__(self, snapshot: Snapshot, profile: Profile = DEFAULT) -> None:
        super().__init__(snapshot, profile.filters)
        self.scorer = Scorer(snapshot, profile.scores)

    def choose(self, pod: Pod, among: BoolArray) -> int | None:
        """The slot where the scheduler would most likely put the pod: the highest score, ties by node name.

        Args:
            pod: the pod to place.
            among: bool, shape (capacity,): the slots to choose from.
        """
        return self.scorer.first(pod, among)

    def place(self, pods: Iterable[Pod]) -> list[Placement]:
        """Decide on pending pods in the order given, each reserving its place before the next is judged.

        Pods of one class share all that is computed for them; a decision costs what the one before changed. Within a
        fork all of it can be undone.

        Args:
            pods: as if pending, each with an empty ``node`` unless it asks for that node.
        """
        made = []
        told: dict[tuple[int, str, int, str], tuple[Pod, tuple[int, int], str]] = {}
        nodes = self.snapshot.nodes
        for pod in pods:
            slot = self.choose(pod, self.feasible(pod))
            if slot is not None:
                made.append(Placement(self.reserve(pod, slot)))
                continue
            # Thousands may wait for the same: the sentence is made once for a class as long as nothing changes.
            alike = (id(pod.spec), pod.namespace, id(pod.labels), pod.node)
            now = (nodes.epoch, len(nodes.touched))
            known = told.get(alike)
            if known is None or known[1] != now or pod.spec.volumes:
                known = told[alike] = (pod, now, self.why_not(pod))
            made.append(Placement(pod, known[2]))
        return made

    def lift(self, pod: Pod) -> Pod:
        """Take a pod off its node, for judging it as if it were pending; only between a mark and its undo or commit."""
        self.snapshot.remove(pod)
        return msgspec.structs.replace(pod, node="")

    def reserve(self, pod: Pod, slot: int) -> Pod:
        """Put the pod on a node, so that whoever is judged next finds the place and the volumes taken."""
        node = self.snapshot.nodes.node(slot).name
        if pod.spec.volumes:
            reserve_volumes(self.snapshot, pod, node)
        return self.snapshot.move(pod, node)
