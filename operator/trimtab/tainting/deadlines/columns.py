"""When many pods go, as columns: a row a pod, and each question asked once per kind of pod and kind of taint.

150,000 pods of a cluster have a few dozen different lists of tolerations, and its nodes a few different taints. So how
long a taint is borne is asked per pair of them; the rest are sums over arrays. What comes out is what :func:`.deadline`
says of each pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from trimtab.kube.objects import Pod, Taint, Toleration
from trimtab.tainting.deadlines.rule import Deadline, concerned, deadline, start_on_node
from trimtab.tainting.deadlines.standing import NodeTaints
from trimtab.tainting.deadlines.tolerance import Tolerating, tolerance

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Item = tuple[str, Pod]
"""A pod with its key ``namespace/name``, which a cluster's picture has made already."""

FEW: Final = 32
"""Up to so many pods one after the other are quicker than arrays."""

_NONE: Final = -1


def deadlines(
    pods: Iterable[Item], taints: Mapping[str, NodeTaints], rule: Tolerating, *, now: float
) -> dict[str, Deadline]:
    """When each of these pods goes, by ``namespace/name``; those that stay are not in it.

    Args:
        pods: with their keys, on any node or none, in any order.
        taints: by the node's name; nodes without NoExecute taints need not be there.
        rule: how tolerations are read.
        now: seconds since the epoch.
    """
    keys, there = [], []
    for key, pod in pods:  # two lists: pairs would be 150,000 objects more for the garbage collector to look at
        if pod.node in taints and concerned(pod):
            keys.append(key)
            there.append(pod)
    if len(there) <= FEW:
        each = (deadline(pod, taints[pod.node].standing, rule, now=now) for pod in there)
        return {found.key: found for found in each if found is not None}
    return _Table(keys, there, taints, rule, now=now).deadlines()


class _Table:
    """The columns of one computation.

    Attributes:
        place: int64, shape (pods,): the row of each pod's node in the next two.
        nodes: the taints of each row.
        kinds: int64, shape (nodes, most taints of a node): which key and value, -1 for none. Times are left out: nodes
            that fail one after the other have taints that differ in nothing else.
        since: float64, the same shape: since when.
        start: float64, shape (pods,): since when each pod is on its node.
        classes: int64, shape (pods,): which of ``tolerations`` each pod has.
    """

    def __init__(
        self, keys: list[str], pods: list[Pod], taints: Mapping[str, NodeTaints], rule: Tolerating, *, now: float
    ) -> None:
        self._keys = keys
        self._pods = pods
        self._rule = rule
        self._kinds: list[Taint] = []
        self._borne_by: list[Toleration | None] = []
        rows: dict[str, int] = {}
        by_value: dict[tuple[Toleration, ...], int] = {}
        by_spec: dict[int, int] = {}  # specs are shared: their identity spares most of the hashing; the pods keep them
        place, start, classes = [], [], []
        for pod in pods:
            spec = pod.spec
            number = by_spec.get(id(spec))
            if number is None:
                number = by_spec[id(spec)] = by_value.setdefault(spec.tolerations, len(by_value))
            classes.append(number)
            place.append(rows.setdefault(pod.node, len(rows)))
            start.append(start_on_node(pod, now=now))
        self.place: Ints = np.array(place, dtype=np.int64)
        self.start: Floats = np.array(start, dtype=np.float64)
        self.classes: Ints = np.array(classes, dtype=np.int64)
        self._tolerations = list(by_value)
        self.nodes = [taints[name] for name in rows]
        self.kinds, self.since = self._columns(now)

    def deadlines(self) -> dict[str, Deadline]:
        """The first due of each pod, over all taints of its node."""
        count = len(self._pods)
        due: Floats = np.full(count, np.inf)
        base: Floats = np.zeros(count)
        which: Ints = np.zeros(count, dtype=np.int64)
        borne: Ints = np.zeros(count, dtype=np.int64)
        for column in range(self.kinds.shape[1]):
            kind = self.kinds[self.place, column]
            rows = np.flatnonzero(kind != _NONE)
            seconds, by = self._tolerances(self.classes[rows], kind[rows])
            since = np.maximum(self.since[self.place[rows], column], self.start[rows])
            ends = since + seconds
            sooner = ends < due[rows]
            rows = rows[sooner]
            due[rows], base[rows] = ends[sooner], since[sooner]
            which[rows], borne[rows] = column, by[sooner]
        return self._values(due, base, which, borne)

    def _values(self, due: Floats, base: Floats, which: Ints, borne: Ints) -> dict[str, Deadline]:
        rows = np.flatnonzero(np.isfinite(due))
        columns = (rows, self.place[rows], due[rows], base[rows], which[rows], borne[rows])
        found = {}
        for row, place, end, since, column, by in zip(*(each.tolist() for each in columns), strict=True):
            key, pod, taint = self._keys[row], self._pods[row], self.nodes[place].standing[column].taint
            found[key] = Deadline(key, pod.uid, pod.node, end, since, taint, self._borne_by[by])
        return found

    def _columns(self, now: float) -> tuple[Ints, Floats]:
        width = max((len(node.standing) for node in self.nodes), default=0)
        kinds: Ints = np.full((len(self.nodes), width), _NONE, dtype=np.int64)
        since: Floats = np.zeros((len(self.nodes), width))
        known: dict[tuple[str, str], int] = {}
        for row, node in enumerate(self.nodes):
            for column, each in enumerate(node.standing):
                taint = each.taint
                kind = known.setdefault((taint.key, taint.value), len(known))
                if kind == len(self._kinds):
                    self._kinds.append(taint)
                kinds[row, column] = kind
                since[row, column] = min(each.since, now)
        return kinds, since

    def _tolerances(self, classes: Ints, kinds: Ints) -> tuple[Floats, Ints]:
        """For each row the seconds for which its class bears its taint, and the place of the toleration by which."""
        pairs, back = np.unique(classes * len(self._kinds) + kinds, return_inverse=True)
        seconds: Floats = np.zeros(len(pairs))
        first = len(self._borne_by)
        for place, pair in enumerate(pairs.tolist()):
            class_, kind = divmod(pair, len(self._kinds))
            how = tolerance(self._rule.complete(self._tolerations[class_]), self._kinds[kind], self._rule)
            seconds[place] = how.seconds
            self._borne_by.append(how.toleration)
        return seconds[back], first + back.astype(np.int64)
