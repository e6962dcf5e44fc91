"""What placed pods add up to: amounts per node, host ports, volumes in use, selectors and affinity terms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

import numpy as np

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.amounts import Amounts, amounts_of
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.ports import HostPortIndex
from trimtab.cluster.resources import IntArray
from trimtab.cluster.volume_users import VolumeUsers
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Pod, PodSpec

_MOST_SPECS: Final = 32_768
"""Amounts that are kept; templates come and go, and those of the ones that still live are soon made again."""


class Tally:
    """Numbers that follow from which pods are on which nodes, each kept up to date pod by pod.

    Args:
        nodes: the node slots, whose amounts are counted here.
        placed: every pod that counts, with its slot; asked when counters of affinity are made.
        namespace_labels: labels of a namespace by name.

    Attributes:
        ports: host ports taken.
        volume_users: pods that use volumes.
    """

    def __init__(
        self,
        nodes: NodeTable,
        placed: Callable[[], Iterable[tuple[Pod, int]]],
        namespace_labels: Callable[[str], Labels],
    ) -> None:
        self.ports = HostPortIndex()
        self.volume_users = VolumeUsers()
        self._nodes = nodes
        self._placed = placed
        self._namespace_labels = namespace_labels
        self._amounts: dict[int, tuple[PodSpec, Amounts]] = {}
        self._affinity: AffinityIndex | None = None
        self._anti_affinity_pods = 0
        self._affinity_pods = 0

    def amounts(self, spec: PodSpec) -> Amounts:
        """What a pod of this spec takes of a node."""
        found = self._amounts.get(id(spec))
        if found is None or len(found[1].row) != self._nodes.axis.width:
            made = amounts_of(spec, self._nodes.axis)
            self._nodes.widen()
            if len(self._amounts) >= _MOST_SPECS:
                self._amounts.clear()
            found = self._amounts[id(spec)] = (spec, made)  # the spec is held, so that its id stays its own
        return found[1]

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Count a pod in (``amount`` 1) or out (-1) on the node in ``slot``; one that has ended counts for nothing."""
        if pod.terminal:
            return
        nodes = self._nodes
        amounts = self.amounts(pod.spec)
        taken = nodes.taken[slot]  # after the amounts, which may widen it
        if amount > 0:
            taken += amounts.taken
        else:
            taken -= amounts.taken
        nodes.touch(slot)
        if not amounts.only:
            self._count_others(pod, slot, amount)
        if self._affinity is not None:
            self._affinity.count(pod, slot, amount)

    def count_move(self, pod: Pod, old: int, new: int) -> None:
        """Count a pod out of the node in one slot and into that in another, -1 for none."""
        if pod.terminal:
            return
        nodes = self._nodes
        amounts = self.amounts(pod.spec)
        if old >= 0:
            nodes.taken[old] -= amounts.taken
            nodes.touch(old)
        if new >= 0:
            nodes.taken[new] += amounts.taken
            nodes.touch(new)
        if not amounts.only or self._affinity is not None:
            self._move_others(pod, old, new)

    def count_moves(self, moves: Sequence[tuple[Pod, int, int]]) -> None:
        """The same of many pods with their slots, but amounts are added up in one sweep."""
        kinds: dict[int, int] = {}
        rows: list[IntArray] = []
        which, out, into = [], [], []
        for pod, old, new in moves:
            if pod.terminal:
                continue
            amounts = self.amounts(pod.spec)
            kind = kinds.get(id(pod.spec))
            if kind is None:
                kind = kinds[id(pod.spec)] = len(rows)
                rows.append(amounts.taken)
            which.append(kind)
            out.append(old)
            into.append(new)
            if not amounts.only or self._affinity is not None:
                self._move_others(pod, old, new)
        if rows:
            self._nodes.count_rows(np.stack(rows)[which], out, into)

    def _move_others(self, pod: Pod, old: int, new: int) -> None:
        for slot, amount in ((old, -1), (new, 1)):
            if slot >= 0:
                self._count_others(pod, slot, amount)
                if self._affinity is not None:
                    self._affinity.count(pod, slot, amount)

    def _count_others(self, pod: Pod, slot: int, amount: int) -> None:
        """Count what is more than amounts."""
        spec = pod.spec
        if spec.host_ports:
            self.ports.count(spec.host_ports, slot, amount)
        if spec.volumes:
            self.volume_users.count(pod, slot, amount)
        if spec.affinity.of_pods:
            self._affinity_pods += amount
            if spec.affinity.anti_required:
                self._anti_affinity_pods += amount

    @property
    def any_anti_affinity(self) -> bool:
        """Whether some placed pod carries required anti-affinity; if none does, nobody need ask for the index."""
        return self._anti_affinity_pods > 0

    @property
    def any_pod_affinity(self) -> bool:
        """Whether some placed pod states anything about other pods, be it required or preferred."""
        return self._affinity_pods > 0

    @property
    def affinity(self) -> AffinityIndex:
        """Counters of selectors and affinity terms over nodes and topology domains; made when first asked for."""
        if self._affinity is None:
            self._affinity = AffinityIndex(self._nodes, self._namespace_labels)
            for pod, slot in self._placed():
                self._affinity.count(pod, slot, 1)
        return self._affinity

    def forget_affinity(self, *, if_overgrown: bool = False) -> None:
        """Drop these counters, to be made anew: all of them may be wrong, or too many be about pods that are gone."""
        if self._affinity is not None and (not if_overgrown or self._affinity.overgrown):
            self._affinity = None
