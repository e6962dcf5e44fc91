"""Selects a node for a pod and reserves it in the snapshot. All plans of trimtab are built on this."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.replacements import Replacements
from trimtab.kube.objects import Pod
from trimtab.placement.feasibility import FeasibilityChecker
from trimtab.placement.interface import Score, ScoreFactory
from trimtab.placement.registry import DEFAULT, Profile
from trimtab.placement.volume_binding import reserve_volumes


class Scorer:
    """Scores nodes on one snapshot. Reuse an instance for the lifetime of the snapshot, because it caches results.

    Args:
        snapshot: the cluster; changes to it take effect immediately.
        scores: the score plugins.
    """

    def __init__(self, snapshot: Snapshot, scores: tuple[ScoreFactory, ...]) -> None:
        self._nodes = snapshot.nodes
        self._scores: tuple[Score, ...] = tuple(kind(snapshot) for kind in scores)

    @property
    def scores(self) -> tuple[Score, ...]:
        """Return the score plugins."""
        return self._scores

    def totals(self, pod: Pod, among: BoolArray) -> IntArray:
        """Return the weighted sum of all scores for each slot: int64, shape (capacity,), -1 outside ``among``.

        Args:
            pod: the pod, which must not be counted on any node.
            among: the feasible nodes to score: bool, shape (capacity,).
        """
        flat = 0
        total: IntArray | None = None
        for score in self._scores:
            found = score.scores(pod, among)
            if isinstance(found, int):
                flat += score.weight * found
            else:
                weighted = found if score.weight == 1 else found * score.weight
                total = weighted if total is None else total + weighted
        if total is None:
            return np.where(among, flat, -1)
        return np.where(among, total + flat, -1)

    def best(self, pod: Pod, among: BoolArray) -> IntArray:
        """Return the slots in ``among`` with the highest total score, ordered by node name: int64.

        The scheduler selects one of them at random.
        """
        if not among.any():
            return np.empty(0, dtype=np.int64)
        totals = self.totals(pod, among)
        top = np.flatnonzero(totals == totals.max())
        if len(top) > 1:
            top = top[np.argsort(self._nodes.rank()[top])]
        return top

    def first(self, pod: Pod, among: BoolArray, added: IntArray | None = None) -> int | None:
        """Return the slot with the highest total score, the first one by node name in a tie.

        ``None`` if ``among`` is empty.

        Args:
            pod: the pod.
            among: the candidate slots: bool, shape (capacity,).
            added: additional scores of each slot, not negative: int64, shape (capacity,).
        """
        if not among.any():
            return None
        totals = self.totals(pod, among)
        if added is not None:
            totals = np.where(among, totals + added, -1)
        highest = int(totals.argmax())
        top = np.flatnonzero(totals == totals[highest])
        return highest if len(top) == 1 else int(top[np.argmin(self._nodes.rank()[top])])

    def breakdown(self, pod: Pod, among: BoolArray) -> dict[str, IntArray]:
        """Return the weighted scores of each plugin, by plugin name: int64, shape (capacity,).

        Their sum is :meth:`totals`.
        """
        found = {}
        for score in self._scores:
            points = score.scores(pod, among)
            column = np.full(len(among), points, dtype=np.int64) if isinstance(points, int) else points
            found[score.name] = np.where(among, column * score.weight, 0)
        return found


class Placement(Struct, frozen=True, gc=False):
    """The node on which a pod was placed, or the reason why it was not placed.

    Attributes:
        pod: the pod as it now is in the snapshot, with its node if it was placed.
        message: kube-scheduler's message if the pod fits on no node, otherwise ``""``.
    """

    pod: Pod
    message: str = ""


class Placer(FeasibilityChecker):
    """Finds, scores and reserves nodes on one snapshot.

    Reuse it for the lifetime of the snapshot, because it caches results.

    Args:
        snapshot: the cluster; changes to it take effect immediately.
        profile: the filters and scores.

    Attributes:
        preempts: whether the profile permits preemption.
    """

    def __init__(self, snapshot: Snapshot, profile: Profile = DEFAULT) -> None:
        super().__init__(snapshot, profile.filters, checks_all=profile.checks_all)
        self.scorer = Scorer(snapshot, profile.scores)
        self.preempts = profile.preempts
        self._replacements = Replacements(snapshot)

    def choose(self, pod: Pod, among: BoolArray, added: IntArray | None = None) -> int | None:
        """Return the slot that kube-scheduler would most likely choose, or ``None`` if ``among`` is empty.

        This is the slot with the highest score, and in a tie the first one by node name.

        Args:
            pod: the pod being placed.
            among: the candidate slots: bool, shape (capacity,).
            added: additional scores of each slot, for example from scheduler extenders: int64, shape (capacity,).
        """
        return self.scorer.first(pod, among, added)

    def place(self, pods: Iterable[Pod]) -> list[Placement]:
        """Place pending pods in the given order. Each pod reserves its node before the next pod is placed.

        Pods with identical specs share cached results, so only nodes that the previous placement changed are evaluated
        again. Within a fork, all placements can be undone.

        Args:
            pods: pending pods, each with an empty ``node`` unless it requests that node.
        """
        made = []
        rejected: dict[tuple[int, str, int, str], tuple[Pod, int, str]] = {}
        nodes = self.snapshot.nodes
        for pod in pods:
            slot = self.choose(pod, self.feasible(pod))
            if slot is not None:
                made.append(Placement(self.reserve(pod, slot)))
                continue
            # Thousands of equal pods may be pending, so their message is built once as long as nothing changes.
            alike = (id(pod.spec), pod.namespace, id(pod.labels), pod.node)
            now = nodes.changes
            known = rejected.get(alike)
            if known is None or known[1] != now or pod.spec.volumes:
                known = rejected[alike] = (pod, now, self.unschedulable_message(pod))
            made.append(Placement(pod, known[2]))
        return made

    def unbind(self, pod: Pod) -> Pod:
        """Remove a pod from its node and return it without a node, so that it can be evaluated as if it were pending.

        Call this method only between ``snapshot.mark()`` and its ``undo`` or ``commit``, for example within a fork.
        """
        self.snapshot.remove(pod)
        return msgspec.structs.replace(pod, node="")

    def replacement(self, pod: Pod) -> Pod:
        """Return the pod that will need a node if a bound pod is evicted, without a node.

        See :class:`~trimtab.cluster.workloads.replacements.Replacements`. A pending pod is returned unchanged.
        """
        return self._replacements.of(pod)

    def displace(self, pod: Pod) -> Pod:
        """Remove a pod from its node and return its replacement without a node, as :meth:`unbind` does for the pod."""
        replacement = self._replacements.of(pod)
        self.snapshot.remove(pod)
        return replacement

    def reserve(self, pod: Pod, slot: int) -> Pod:
        """Bind the pod to a node in the snapshot, so that subsequent pods cannot use the same resources and volumes."""
        node = self.snapshot.nodes.node(slot).name
        if pod.spec.volumes:
            reserve_volumes(self.snapshot, pod, node)
        return self.snapshot.move(pod, node)


def hold_nominated(snapshot: Snapshot) -> list[Pod]:
    """Bind pending pods to the nodes that the scheduler has nominated for them, and return them as they were.

    Pods are being preempted there for them, so kube-scheduler keeps their room from other pods
    (``RunFilterPluginsWithNominatedPods``, for pods of the same or lower priority; here for all pods). Call this
    function only within a fork.
    """
    waiting = [
        pod
        for _, pod in snapshot.unbound()
        if pod.nominated_node in snapshot.nodes.slot_of and pod.deleted is None and not pod.terminal
    ]
    for pod in waiting:
        snapshot.move(pod, pod.nominated_node)
    return waiting
