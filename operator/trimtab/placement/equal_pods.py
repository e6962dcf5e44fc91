"""Places many equal pods at once.

Placing a pod changes the score of its own node and, with topology spread, the scores of the other nodes in the same
domains. So if several nodes have the highest score, one pod can be placed on each of them (with topology spread: on one
of them in each zone) before the nodes are scored again. The result is the same as placing the pods one by one, apart
from the rounding of normalized scores. Thousands of pods need only as many evaluations as there are distinct scores.

With topology spread, few nodes have exactly the same score. If at least :data:`SAMPLED` nodes are feasible, nodes whose
scores differ by at most :data:`CLOSE` of several hundred points are therefore treated as equal, as long as no zone is
preferred to another one. kube-scheduler deviates more from the highest score in such clusters, because it scores only a
random sample of the nodes (``numFeasibleNodesToFind``).

Pods whose feasible nodes depend on other pods (anti-affinity, host ports, required topology spread) and pods with
claims are placed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.kube.objects import Pod
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.placement.interface import CouplingScore
from trimtab.placement.placer import Placer
from trimtab.placement.volume_binding import has_claims

_ONE_BY_ONE: Final = None

SAMPLED: Final = 100
"""Number of feasible nodes from which on kube-scheduler scores only a sample of them (``minFeasibleNodesToFind``)."""

CLOSE: Final = 5
"""Maximum difference of total scores that are treated as equal if there are many nodes."""


class EqualPods(Struct, frozen=True):
    """The result of placing equal pods: the placed pods with their nodes, and the pods that fit on no node."""

    placed: list[Pod]
    left: Sequence[Pod]


class EqualPodPlacer:
    """Places groups of equal pods. Keep it as long as the placer.

    Args:
        placer: finds, scores and reserves nodes.
    """

    def __init__(self, placer: Placer) -> None:
        self._placer = placer
        self._scores = placer.scorer.scores
        self._coupling = tuple(score for score in self._scores if isinstance(score, CouplingScore))

    def place(self, pods: Sequence[Pod]) -> EqualPods:
        """Place pods with the same spec, labels and namespace, until one does not fit.

        Each pod is placed on a node with the highest score, in ties the first one by name. Placed pods are bound in the
        snapshot. If a pod does not fit, the pods after it do not fit either.

        Args:
            pods: pending pods, each with an empty ``node``.
        """
        placed: list[Pod] = []
        first = pods[0]
        topology = self._topology(first) if len(pods) > 1 else _ONE_BY_ONE
        while len(placed) < len(pods):
            best = self._best(first, topology, len(pods) - len(placed))
            if not len(best):
                break
            for slot, pod in zip(best.tolist(), pods[len(placed) : len(placed) + len(best)], strict=False):
                placed.append(self._placer.reserve(pod, slot))
        return EqualPods(placed, pods[len(placed) :])

    def _best(self, pod: Pod, topology: frozenset[str] | None, number: int) -> IntArray:
        """Return distinct slots for up to ``number`` of the next pods: int64, best first."""
        feasible = self._placer.feasible(pod)
        if topology is _ONE_BY_ONE:
            slot = self._placer.choose(pod, feasible)
            return np.array([] if slot is None else [slot], dtype=np.int64)
        nodes = self._placer.snapshot.nodes
        if len(topology) == 1 and int(np.count_nonzero(feasible)) >= SAMPLED:
            domains = nodes.column(next(iter(topology))).ids
            return self._evenly(self._placer.scorer.totals(pod, feasible), feasible, domains, number)
        best = self._placer.scorer.best(pod, feasible)
        for key in topology:
            _, first_of_domain = np.unique(nodes.column(key).ids[best], return_index=True)
            best = best[np.sort(first_of_domain)]
        return best

    def _evenly(self, totals: IntArray, feasible: BoolArray, domains: IntArray, number: int) -> IntArray:
        """Return slots with nearly the highest score, in turn from each domain.

        If some domain has no such slot, fewer pods should be placed in the others before scores are computed again, so
        the result has only one slot of each domain.

        Args:
            totals: the total scores: int64, shape (capacity,).
            feasible: the feasible slots: bool, same shape.
            domains: the domain of each slot: int64, same shape.
            number: the maximum number of slots.
        """
        close = np.flatnonzero(totals >= totals.max() - CLOSE)
        present, near = _numbers(domains[feasible]), _numbers(domains[close])
        rounds = -(-number // len(near)) if len(near) == len(present) else 1
        order = self._placer.snapshot.nodes.rank()[close] - totals[close] * len(totals)  # by score, then by name
        turns: list[tuple[int, int, int]] = []
        for domain in near:
            inside = np.flatnonzero(domains[close] == domain)
            if len(inside) > rounds:
                inside = inside[np.argpartition(order[inside], rounds - 1)[:rounds]]
            keys = sorted(zip(order[inside].tolist(), close[inside].tolist(), strict=True))
            turns += [(turn, key, slot) for turn, (key, slot) in enumerate(keys)]
        return np.array([slot for _, _, slot in sorted(turns)[:number]], dtype=np.int64)

    def _topology(self, pod: Pod) -> frozenset[str] | None:
        """Return the topology keys in whose domains a placed pod changes scores.

        ``None`` if the pods must be placed one by one.
        """
        if len(self._coupling) < len(self._scores) or not self._placer.ignores_other_pods(pod):
            return _ONE_BY_ONE
        if pod.spec.volumes and has_claims(pod):
            return _ONE_BY_ONE
        keys: frozenset[str] = frozenset()
        for score in self._coupling:
            found = score.coupled_by(pod)
            if found is None:
                return _ONE_BY_ONE
            keys |= found
        return keys - {HOSTNAME}


def _numbers(domains: IntArray) -> list[int]:
    """Return the distinct domains, including -1 for nodes without the label."""
    found: list[int] = (np.flatnonzero(np.bincount(domains + 1)) - 1).tolist()
    return found
