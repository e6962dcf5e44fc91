"""The deadlines of a cluster, kept: a change of a node or a pod asks anew for what it concerns, and for no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Final

from msgspec import Struct

from trimtab.kube.objects import Node, Pod
from trimtab.tainting.deadlines.columns import Item, deadlines
from trimtab.tainting.deadlines.rule import Deadline, deadline
from trimtab.tainting.deadlines.standing import NodeTaints, observe
from trimtab.tainting.deadlines.tolerance import Tolerating

_KEY: Final = attrgetter("key")


class Change(Struct, frozen=True, gc=False):
    """A pod's deadline that is another one now; ``None`` for none."""

    key: str
    before: Deadline | None
    after: Deadline | None


class DeadlineBook:
    """When which pod goes, as the cluster changes.

    A deadline is never moved by its history: what the book holds after any changes is what it would hold had it seen
    only the last of them, but for the times of taints that do not tell their own (:mod:`.standing`). Nodes and pods may
    come in any order: a pod whose node is not known yet has none, until the node comes.

    Args:
        pods_on: the pods on a node with their keys, in any order, as the book has last been told of them; e.g.
            :meth:`~trimtab.cluster.snapshot.Snapshot.items_on`.
        rule: how tolerations are read.

    Attributes:
        rule: as given; :meth:`read_by` changes it.
        deadlines: by the pod's ``namespace/name``.
        taints: by node; of nodes that have NoExecute taints.
    """

    def __init__(self, pods_on: Callable[[str], Iterable[Item]], rule: Tolerating) -> None:
        self.rule = rule
        self.deadlines: dict[str, Deadline] = {}
        self.taints: dict[str, NodeTaints] = {}
        self._pods_on = pods_on
        self._seen: dict[str, NodeTaints] = {}

    def node_changed(self, old: Node | None, new: Node | None, *, now: float, followed: bool = True) -> list[Change]:
        """A node came, changed or went; the changes are of its pods, by their keys.

        A node that goes takes its taints along: its pods' time is no matter of taints any more.

        Args:
            old: as it was.
            new: as it is.
            now: seconds since the epoch.
            followed: whether every change in between was seen; not where the nodes are being listed again.
        """
        node = new or old
        if node is None:
            return []
        before = self.taints.get(node.name)
        after = self._see(node.name, new, now=now, followed=followed)
        if after == before:
            return []
        pods = list(self._pods_on(node.name))
        return self._settle((key for key, _ in pods), deadlines(pods, self.taints, self.rule, now=now))

    def pod_changed(self, old: Pod | None, new: Pod | None, *, now: float) -> list[Change]:
        """A pod came, changed or went."""
        pod = new or old
        if pod is None or (pod.node not in self.taints and pod.key not in self.deadlines):
            return []
        key = pod.key
        found = deadlines(((key, new),), self.taints, self.rule, now=now) if new is not None else {}
        return self._settle((key,), found)

    def everything(self, nodes: Iterable[Node], pods: Iterable[Item], *, now: float) -> list[Change]:
        """See the whole cluster anew, as after a relist: what is not in it is gone, and changes were missed."""
        seen = self._seen
        self._seen = {node.name: observe(node, seen.get(node.name), now=now, followed=False) for node in nodes}
        self.taints = {name: taints for name, taints in self._seen.items() if taints.standing}
        found = deadlines(pods, self.taints, self.rule, now=now)
        return self._settle({**self.deadlines, **found}, found)

    def read_by(self, rule: Tolerating, *, now: float) -> list[Change]:
        """Read tolerations by another rule from now on."""
        if rule == self.rule:
            return []
        self.rule = rule
        pods = [item for node in self.taints for item in self._pods_on(node)]
        return self._settle((key for key, _ in pods), deadlines(pods, self.taints, rule, now=now))

    def deadlines_of(self, pod: Pod, *, now: float) -> tuple[Deadline, ...]:
        """The deadline that each taint of its node alone would give a pod, of those that give it one."""
        there = self.taints.get(pod.node)
        standing = () if there is None else there.standing
        each = (deadline(pod, (taint,), self.rule, now=now) for taint in standing)
        return tuple(found for found in each if found is not None)

    def _see(self, name: str, node: Node | None, *, now: float, followed: bool) -> NodeTaints | None:
        """Take a node in, or let it go; its taints, ``None`` for none."""
        if node is None:
            self._seen.pop(name, None)
            self.taints.pop(name, None)
            return None
        seen = self._seen[name] = observe(node, self._seen.get(name), now=now, followed=followed)
        if seen.standing:
            self.taints[name] = seen
            return seen
        self.taints.pop(name, None)
        return None

    def _settle(self, keys: Iterable[str], found: Mapping[str, Deadline]) -> list[Change]:
        changes = []
        for key in keys:
            before, after = self.deadlines.get(key), found.get(key)
            if before == after:
                continue
            if after is None:
                del self.deadlines[key]
            else:
                self.deadlines[key] = after
            changes.append(Change(key, before, after))
        return sorted(changes, key=_KEY)
