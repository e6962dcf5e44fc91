"""Find a node for a pod, and reserve it: the question everything that trimtab plans rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.cluster.resources import CPU, MEMORY, BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.filters.named_nodes import CONFLICT
from trimtab.placement.framework import Failure, Filter
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
        self._on_nodes = tuple(rule for rule in self._filters if rule.reads == "node")
        self._on_room = tuple(rule for rule in self._filters if rule.reads == "room")
        self._on_pods = tuple(rule for rule in self._filters if rule.reads == "pods")
        self._eligible: dict[frozenset[int], BoolArray] = {}
        self._eligible_of: dict[tuple[int, str], tuple[PodSpec, BoolArray]] = {}
        self._version = -1

    def feasible(self, pod: Pod) -> BoolArray:
        """The slots on which a pending pod can run: bool, shape (capacity,), a fresh array."""
        mask: BoolArray = self.eligible(pod).copy()
        for rule in (*self._on_room, *self._on_pods):
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def eligible(self, pod: Pod) -> BoolArray:
        """The slots whose nodes suit the pod, however full they are and whatever runs there.

        Bool, shape (capacity,); one array for all specs that ask the same of nodes, so callers must not write to it.
        As everywhere here, the pod's ``node`` is to be empty, unless it asks for that node.
        """
        nodes = self.snapshot.nodes
        if self._version != nodes.version:
            self._eligible.clear()
            self._eligible_of.clear()
            self._version = nodes.version
        asked = (id(pod.spec), pod.node)
        found = self._eligible_of.get(asked)
        if found is None:
            verdicts = [passing for rule in self._on_nodes if (passing := rule.passing(pod)) is not None]
            key = frozenset(map(id, verdicts))  # filters keep their verdicts as long as the version, so ids hold
            mask = self._eligible.get(key)
            if mask is None:
                mask = self._eligible[key] = np.logical_and.reduce([nodes.used, *verdicts])
            found = self._eligible_of[asked] = (pod.spec, mask)  # the spec is held: its id stays its own
        return found[1]

    def neighbourly(self, pod: Pod) -> BoolArray:
        """The slots where the pods that are there, or around there, let the pod in: bool, shape (capacity,)."""
        mask: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._on_pods:
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def plain(self, pod: Pod) -> bool:
        """Whether only nodes and room decide where the pod can run.

        Such a pod can be judged where it is, for its presence changes nothing on other nodes.
        """
        return not any(rule.concerns(pod) for rule in self._on_pods)

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
        for texts, slots in self._failures(pod):
            reasons.update(dict.fromkeys(slots.tolist(), texts))
        return [
            NodeVerdict(nodes.node(slot).name, slot not in reasons, reasons.get(slot, ()))
            for slot in map(int, nodes.order())
        ]

    def why_not(self, pod: Pod, further: Iterable[tuple[BoolArray, str]] = ()) -> str:
        """kube-scheduler's sentence for a pending pod that fits nowhere; see :func:`sentence`.

        Args:
            pod: the pod, as if pending.
            further: rules beyond the filters, in order: which slots pass (bool, shape (capacity,)), and the text for
                those that do not.
        """
        counts: Counter[str] = Counter()
        left: BoolArray = self.snapshot.nodes.used.copy()
        for texts, slots in self._failures(pod):
            left[slots] = False
            counts.update(dict.fromkeys(texts, len(slots)))
        for passing, text in further:
            counts[text] += int(np.count_nonzero(left & ~passing))
            left &= passing
        return sentence(len(self.snapshot.nodes), counts)

    def _failures(self, pod: Pod) -> Iterator[Failure]:
        """Each slot with a node that fails, once, under the first filter that it fails."""
        left: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is None:
                continue
            failing = np.flatnonzero(left & ~passing)
            if len(failing):
                yield from rule.failures(pod, failing)
                left &= passing


def sentence(number: int, counts: Mapping[str, int]) -> str:
    """The aggregated sentence as kube-scheduler v1.36 writes it (``FitError.Error``), without its preemption clause.

    A node counts once per reason; the counted texts are sorted as strings, so "10 x" comes before "2 x".

    Args:
        number: of nodes.
        counts: of nodes by reason; reasons without a node are left out.
    """
    told = ((count, reason) for reason, count in counts.items() if count)
    texts = sorted(reason if reason == CONFLICT else f"{count} {reason}" for count, reason in told)
    start = f"0/{number} nodes are available:"
    return f"{start} {', '.join(texts)}." if texts else start


def unavailable(verdicts: list[NodeVerdict]) -> str:
    """:func:`sentence` of the verdicts on all nodes."""
    return sentence(len(verdicts), Counter(reason for verdict in verdicts for reason in verdict.reasons))
