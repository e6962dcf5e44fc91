"""Tracks the deadlines of all pods of a cluster, and updates them incrementally as nodes and pods change.

150,000 pods have a few dozen distinct lists of tolerations, and their nodes have a few distinct taints. The toleration
time is computed once for each combination of the two. All other computations are array operations with one row per pod.
The results are the same as those of :func:`~trimtab.tainting.deadlines.rule.deadline` for each pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from trimtab.kube.objects import Node, Pod, Taint, Toleration
from trimtab.tainting.deadlines.rule import (
    Deadline,
    NodeTaints,
    TolerationRule,
    deadline,
    observe_taints,
    start_on_node,
    subject_to_taints,
    tolerance,
)

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Item = tuple[str, Pod]
"""A pod and its key ``namespace/name``, which the cache has already computed."""

SMALL: Final = 32
"""Maximum number of pods for which a loop is faster than array operations."""

_NO_TAINT: Final = -1


def deadlines(
    pods: Iterable[Item], taints: Mapping[str, NodeTaints], rule: TolerationRule, *, now: float
) -> dict[str, Deadline]:
    """Compute the deadlines of pods, by ``namespace/name``. Pods without a deadline are not included.

    Args:
        pods: pods with their keys, in any order. Unbound pods are ignored.
        taints: NoExecute taints by node name. Nodes without NoExecute taints may be missing.
        rule: determines how tolerations are matched.
        now: the current time in seconds since the epoch.
    """
    keys, found = [], []
    for key, pod in pods:  # two lists instead of 150,000 pairs, which the garbage collector would have to scan
        if pod.node in taints and subject_to_taints(pod):
            keys.append(key)
            found.append(pod)
    if len(found) <= SMALL:
        each = (deadline(pod, taints[pod.node].observed, rule, now=now) for pod in found)
        return {item.key: item for item in each if item is not None}
    return _DeadlineTable(keys, found, taints, rule, now=now).deadlines()


class _DeadlineTable:
    """The arrays for one computation of deadlines.

    Attributes:
        place: index of each pod's node in ``nodes``, ``kinds`` and ``since``; int64, shape (pods,).
        nodes: the taints of each node.
        kinds: index of the key and value of each taint, -1 for no taint; int64, shape (nodes, maximum number of taints
            of a node). The index ignores times, because the taints of nodes that fail one after another differ only in
            their time.
        since: the time from which each taint applies; float64, same shape as ``kinds``.
        start: when each pod's time on its node began; float64, shape (pods,).
        classes: index of each pod's list of tolerations; int64, shape (pods,).
    """

    def __init__(
        self, keys: list[str], pods: list[Pod], taints: Mapping[str, NodeTaints], rule: TolerationRule, *, now: float
    ) -> None:
        self._keys = keys
        self._pods = pods
        self._rule = rule
        self._kinds: list[Taint] = []
        self._tolerations_by_index: list[Toleration | None] = []
        rows: dict[str, int] = {}
        by_value: dict[tuple[Toleration, ...], int] = {}
        by_spec: dict[
            int, int
        ] = {}  # pods of one template share their spec: comparing identities avoids most of the hashing
        place, start, classes = [], [], []
        for pod in pods:
            spec = pod.spec
            number = by_spec.get(id(spec))
            if number is None:
                number = by_spec[id(spec)] = by_value.setdefault(spec.tolerations, len(by_value))
            classes.append(number)
            place.append(rows.setdefault(pod.node, len(rows)))
            started = pod.started
            # A call for each of 150,000 pods would take a tenth of the time, and nearly all pods have a start time.
            start.append(started if started is not None and started <= now else start_on_node(pod, now=now))
        self.place: Ints = np.array(place, dtype=np.int64)
        self.start: Floats = np.array(start, dtype=np.float64)
        self.classes: Ints = np.array(classes, dtype=np.int64)
        self._tolerations = list(by_value)
        self.nodes = [taints[name] for name in rows]
        self.kinds, self.since = self._columns(now)

    def deadlines(self) -> dict[str, Deadline]:
        """Return the earliest deadline of each pod over all taints of its node."""
        count = len(self._pods)
        due: Floats = np.full(count, np.inf)
        base: Floats = np.zeros(count)
        which: Ints = np.zeros(count, dtype=np.int64)
        toleration_index: Ints = np.zeros(count, dtype=np.int64)
        for column in range(self.kinds.shape[1]):
            kind = self.kinds[self.place, column]
            rows = np.flatnonzero(kind != _NO_TAINT)
            seconds, by = self._tolerances(self.classes[rows], kind[rows])
            since = np.maximum(self.since[self.place[rows], column], self.start[rows])
            ends = since + seconds
            sooner = ends < due[rows]
            rows = rows[sooner]
            due[rows], base[rows] = ends[sooner], since[sooner]
            which[rows], toleration_index[rows] = column, by[sooner]
        return self._values(due, base, which, toleration_index)

    def _values(self, due: Floats, base: Floats, which: Ints, toleration_index: Ints) -> dict[str, Deadline]:
        rows = np.flatnonzero(np.isfinite(due))
        columns = (rows, self.place[rows], due[rows], base[rows], which[rows], toleration_index[rows])
        found = {}
        for row, place, end, since, column, by in zip(*(each.tolist() for each in columns), strict=True):
            key, pod, taint = self._keys[row], self._pods[row], self.nodes[place].observed[column].taint
            found[key] = Deadline(key, pod.uid, pod.node, end, since, taint, self._tolerations_by_index[by])
        return found

    def _columns(self, now: float) -> tuple[Ints, Floats]:
        width = max((len(node.observed) for node in self.nodes), default=0)
        kinds: Ints = np.full((len(self.nodes), width), _NO_TAINT, dtype=np.int64)
        since: Floats = np.zeros((len(self.nodes), width))
        known: dict[tuple[str, str], int] = {}
        for row, node in enumerate(self.nodes):
            for column, each in enumerate(node.observed):
                taint = each.taint
                kind = known.setdefault((taint.key, taint.value), len(known))
                if kind == len(self._kinds):
                    self._kinds.append(taint)
                kinds[row, column] = kind
                since[row, column] = min(each.since, now)
        return kinds, since

    def _tolerances(self, classes: Ints, kinds: Ints) -> tuple[Floats, Ints]:
        """Return for each row the toleration time in seconds and the index of the toleration that determines it."""
        pairs, back = np.unique(classes * len(self._kinds) + kinds, return_inverse=True)
        seconds: Floats = np.zeros(len(pairs))
        first = len(self._tolerations_by_index)
        for place, pair in enumerate(pairs.tolist()):
            class_, kind = divmod(pair, len(self._kinds))
            how = tolerance(self._rule.complete(self._tolerations[class_]), self._kinds[kind], self._rule)
            seconds[place] = how.seconds
            self._tolerations_by_index.append(how.toleration)
        return seconds[back], first + back.astype(np.int64)


_KEY: Final = attrgetter("key")


class DeadlineChange(Struct, frozen=True, gc=False):
    """The deadline of a pod before and after a change. ``None`` means that the pod has no deadline."""

    key: str
    before: Deadline | None
    after: Deadline | None


class TaintDeadlineTracker:
    """Tracks the deadline of every pod as the cluster changes.

    The deadlines depend only on the latest state and not on the sequence of changes. The times of taints without a
    usable ``timeAdded`` are an exception (see :mod:`.rule`). Nodes and pods may be observed in any order: a pod has no
    deadline until its node is known.

    Args:
        pods_on: returns the current pods on a node with their keys, in any order; for example
            :meth:`~trimtab.cluster.snapshot.Snapshot.items_on`.
        rule: determines how tolerations are matched.

    Attributes:
        rule: the current rule. :meth:`set_rule` changes it.
        deadlines: the deadlines by the pod's ``namespace/name``.
        taints: the NoExecute taints by node name. Nodes without NoExecute taints are not included.
    """

    def __init__(self, pods_on: Callable[[str], Iterable[Item]], rule: TolerationRule) -> None:
        self.rule = rule
        self.deadlines: dict[str, Deadline] = {}
        self.taints: dict[str, NodeTaints] = {}
        self._pods_on = pods_on
        self._seen: dict[str, NodeTaints] = {}

    def node_changed(
        self, old: Node | None, new: Node | None, *, now: float, in_sync: bool = True
    ) -> list[DeadlineChange]:
        """Process an added, changed or removed node, and return the changed deadlines of its pods, sorted by pod.

        The pods of a removed node have no deadline.

        Args:
            old: the node before the change; ``None`` if the node was added.
            new: the node after the change; ``None`` if the node was removed.
            now: the current time in seconds since the epoch.
            in_sync: whether every change in between was observed; ``False`` during a relist of nodes.
        """
        node = new or old
        if node is None:
            return []
        before = self.taints.get(node.name)
        after = self._observe_node(node.name, new, now=now, in_sync=in_sync)
        if after == before:
            return []
        pods = list(self._pods_on(node.name))
        return self._update((key for key, _ in pods), deadlines(pods, self.taints, self.rule, now=now))

    def pod_changed(self, old: Pod | None, new: Pod | None, *, now: float) -> list[DeadlineChange]:
        """Process an added, changed or removed pod, and return the change of its deadline, if any."""
        pod = new or old
        if pod is None or (pod.node not in self.taints and pod.key not in self.deadlines):
            return []
        key = pod.key
        found = deadlines(((key, new),), self.taints, self.rule, now=now) if new is not None else {}
        return self._update((key,), found)

    def resync(self, nodes: Iterable[Node], pods: Iterable[Item], *, now: float) -> list[DeadlineChange]:
        """Rebuild the deadlines from the whole cluster, for example after a relist, and return those that changed."""
        seen = self._seen
        self._seen = {node.name: observe_taints(node, seen.get(node.name), now=now, in_sync=False) for node in nodes}
        self.taints = {name: taints for name, taints in self._seen.items() if taints.observed}
        found = deadlines(pods, self.taints, self.rule, now=now)
        return self._update({**self.deadlines, **found}, found)

    def set_rule(self, rule: TolerationRule, *, now: float) -> list[DeadlineChange]:
        """Apply a new rule for matching tolerations, and return the changed deadlines."""
        if rule == self.rule:
            return []
        self.rule = rule
        pods = [item for node in self.taints for item in self._pods_on(node)]
        return self._update((key for key, _ in pods), deadlines(pods, self.taints, rule, now=now))

    def deadlines_of(self, pod: Pod, *, now: float) -> tuple[Deadline, ...]:
        """Return one deadline for each taint of the pod's node, as if the node had only that taint."""
        taints = self.taints.get(pod.node)
        observed = () if taints is None else taints.observed
        each = (deadline(pod, (taint,), self.rule, now=now) for taint in observed)
        return tuple(found for found in each if found is not None)

    def _observe_node(self, name: str, node: Node | None, *, now: float, in_sync: bool) -> NodeTaints | None:
        """Update or remove the taints of a node, and return them; ``None`` if it has none."""
        if node is None:
            self._seen.pop(name, None)
            self.taints.pop(name, None)
            return None
        seen = self._seen[name] = observe_taints(node, self._seen.get(name), now=now, in_sync=in_sync)
        if seen.observed:
            self.taints[name] = seen
            return seen
        self.taints.pop(name, None)
        return None

    def _update(self, keys: Iterable[str], found: Mapping[str, Deadline]) -> list[DeadlineChange]:
        changes = []
        for key in keys:
            before, after = self.deadlines.get(key), found.get(key)
            if before == after:
                continue
            if after is None:
                del self.deadlines[key]
            else:
                self.deadlines[key] = after
            changes.append(DeadlineChange(key, before, after))
        return sorted(changes, key=_KEY)
