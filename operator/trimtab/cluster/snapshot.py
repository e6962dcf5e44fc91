"""The Snapshot: one picture of the cluster for every planner.

It is kept, not rebuilt: adding, moving or removing a pod or node changes a few numbers. Planners try moves inside
:meth:`Snapshot.fork`, which undoes them in the order opposite to how they were made; the cost is that of the changes.
The order in which objects arrive leaves no trace in anything planners read.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.amounts import Amounts
from trimtab.cluster.bindings import Bindings, counts_alike, only_moved
from trimtab.cluster.nodes import NodeTable
from trimtab.cluster.owners import OwnerKey, Owners
from trimtab.cluster.resources import IntArray
from trimtab.cluster.shelves import Shelves
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import TYPES, KubeObject, Namespace, Node, Pod, PodDisruptionBudget, PodSpec, PriorityClass

Change = tuple[str, str, KubeObject | None]
"""Kind by its name, key, and the object before. By its type, the garbage collector would look at each such tuple."""

_MANY: Final = 64
"""From so many changes on it pays to take them back in one sweep."""


class Snapshot:
    """All that planners read of a cluster, with the columns and counters that make it quick to ask.

    Attributes:
        nodes: node slots, allocatable and requested columns.
        pods: every pod by ``namespace/name``, also pending and terminal ones.
        shelves: the objects of all other kinds.
        ports: host ports taken by placed pods.
        volume_users: placed pods that use volumes.
    """

    def __init__(self, objects: Iterable[KubeObject] = ()) -> None:
        self.nodes = NodeTable()
        self.pods: dict[str, Pod] = {}
        self.shelves = Shelves()
        self._owners = Owners(self.pods)
        self._bindings = Bindings(self.nodes, self.namespace_labels)
        self._tally = self._bindings.tally
        self.ports = self._tally.ports
        self.volume_users = self._tally.volume_users
        self._journal: list[Change] = []
        self._depth = 0
        for obj in objects:
            self.put(obj)

    # --- reading -----------------------------------------------------------------------------------------------

    def pods_on(self, node: str) -> list[Pod]:
        """The pods bound to a node, terminal ones included, by ``namespace/name``."""
        return self._bindings.pods(node)

    def items_on(self, node: str) -> ItemsView[str, Pod]:
        """The same with their keys, in no particular order."""
        return self._bindings.items(node)

    def unbound(self) -> ItemsView[str, Pod]:
        """The pods without a node with their keys, terminal ones included, in no particular order."""
        return self._bindings.items("")

    def owners(self) -> list[OwnerKey]:
        """The controllers that own at least one pod, in the order of their keys."""
        return self._owners.keys()

    def owned_by(self, owner: OwnerKey) -> list[Pod]:
        """The pods of a controller, pending and terminal ones included, by ``namespace/name``."""
        return [self.pods[key] for key in sorted(self._owners.pods(owner))]

    def each_owned_by(self, owner: OwnerKey) -> Iterator[Pod]:
        """The same in no particular order, for counting."""
        return map(self.pods.__getitem__, self._owners.pods(owner))

    def crowded_owners(self) -> list[OwnerKey]:
        """The controllers that have two pods on one node that neither have ended nor are going, in order of keys."""
        return self._owners.crowded()

    def slot(self, pod: Pod) -> int | None:
        """The slot of the pod's node; ``None`` for a pending pod or one whose node is gone."""
        return self.nodes.slot_of.get(pod.node) if pod.node else None

    def amounts(self, spec: PodSpec) -> Amounts:
        """What a pod of this spec takes of a node."""
        return self._tally.amounts(spec)

    def row(self, spec: PodSpec) -> IntArray:
        """What filters count of a pod of this spec: :attr:`Amounts.row`."""
        return self.amounts(spec).row

    @property
    def budgets(self) -> dict[str, PodDisruptionBudget]:
        """Disruption budgets by ``namespace/name``."""
        return self.shelves.of(PodDisruptionBudget)

    @property
    def namespaces(self) -> dict[str, Namespace]:
        """Namespaces by name."""
        return self.shelves.of(Namespace)

    @property
    def priority_classes(self) -> dict[str, PriorityClass]:
        """Priority classes by name."""
        return self.shelves.of(PriorityClass)

    def namespace_labels(self, name: str) -> Labels:
        """The labels of a namespace; without the object, the name label that every live namespace has."""
        namespace = self.namespaces.get(name)
        if namespace is not None and namespace.labels:
            return namespace.labels
        return Labels({"kubernetes.io/metadata.name": name}) if name else NO_LABELS

    @property
    def any_anti_affinity(self) -> bool:
        """Whether some placed pod carries required anti-affinity; if none does, nobody need ask for the index."""
        return self._tally.any_anti_affinity

    @property
    def any_pod_affinity(self) -> bool:
        """Whether some placed pod states anything about other pods, be it required or preferred."""
        return self._tally.any_pod_affinity

    @property
    def affinity(self) -> AffinityIndex:
        """Counters of selectors and affinity terms over nodes and topology domains; made when first asked for."""
        return self._tally.affinity

    # --- changing ----------------------------------------------------------------------------------------------

    def put(self, obj: KubeObject) -> None:
        """Add or replace an object of any kind."""
        match obj:
            case Pod():
                self._put_pod(obj)
            case Node():
                self._record(Node, obj.name, self.nodes.get(obj.name))
                self._put_node(obj)
            case _:
                kind, key = type(obj), obj.key
                self._record(kind, key, self.shelves.of(kind).get(key))
                self._shelve(kind, key, obj)

    def remove(self, obj: KubeObject) -> None:
        """Remove an object of any kind; one that is not there is no error, as a watch may say so twice."""
        kind, key = type(obj), obj.key
        there = self._find(kind, key)
        if there is not None:
            self._record(kind, key, there)
            self._take(kind, key)

    def move(self, pod: Pod, node: str) -> Pod:
        """Bind the pod to another node and return it as it is then."""
        moved = msgspec.structs.replace(pod, node=node)
        self.put(moved)
        return moved

    @contextmanager
    def fork(self) -> Iterator[Snapshot]:
        """Try changes: on leaving, the snapshot is what it was on entering. Forks nest."""
        depth, mark = self._depth, self.mark()
        try:
            yield self
        finally:
            self._depth = depth + 1  # an error inside may have left marks open: changes would be recorded for ever
            self.undo(mark)

    def mark(self) -> int:
        """Start recording changes; each mark must be given to :meth:`undo` or :meth:`commit`, the latest first."""
        if not self._depth:  # before planners start: what they hold of the index stays right
            if self.nodes.overgrown:
                self.nodes.forget()
                self._tally.forget_affinity()
            else:
                self._tally.forget_affinity(if_overgrown=True)
        self._depth += 1
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back everything since ``mark``, the latest first."""
        self._depth -= 1
        depth, self._depth = self._depth, 0  # undoing is not recorded
        journal = self._journal
        if len(journal) - mark > _MANY and all(kind == "Pod" for kind, _, _ in journal[mark:]):
            self._rewind(journal[mark:])
            del journal[mark:]
        while len(journal) > mark:
            kind, key, old = journal.pop()
            if old is None:
                self._take(TYPES[kind], key)
            else:
                self.put(old)
        self._depth = depth

    def commit(self, mark: int) -> None:
        """Keep the changes since ``mark``; an outer mark can still undo them."""
        self._depth -= 1
        if not self._depth:
            del self._journal[mark:]

    # --- inside ------------------------------------------------------------------------------------------------

    def _rewind(self, changes: list[Change]) -> None:
        """Take back changes of pods, the latest first; those that were only moved are counted in one sweep."""
        moves: list[tuple[Pod, int, int]] = []
        uncounted: set[str] = set()
        for _, key, old in reversed(changes):
            pod = self.pods.get(key)
            if pod is None or not isinstance(old, Pod) or not only_moved(old, pod):
                if key in uncounted:  # it is about to be counted out from where it is
                    self._tally.count_moves(moves)
                    moves.clear()
                    uncounted.clear()
                if old is None:
                    self._take(Pod, key)
                else:
                    self.put(old)
                continue
            moves.append((old, *self._bindings.carry(key, pod, old)))
            uncounted.add(key)
            self.pods[key] = old
            self._owners.note(old)
        self._tally.count_moves(moves)

    def _record(self, kind: type[KubeObject], key: str, old: KubeObject | None) -> None:
        if self._depth:
            self._journal.append((kind.__name__, key, old))

    def _find(self, kind: type[KubeObject], key: str) -> KubeObject | None:
        if kind is Pod:
            return self.pods.get(key)
        if kind is Node:
            return self.nodes.get(key)
        return self.shelves.of(kind).get(key)

    def _take(self, kind: type[KubeObject], key: str) -> None:
        if kind is Pod:
            pod = self.pods.pop(key)
            self._bindings.drop(key, pod)
            self._owners.discard(key, pod)
            self._owners.note(pod)
        elif kind is Node:
            self._take_node(key)
        else:
            self._shelve(kind, key, None)

    def _shelve(self, kind: type[KubeObject], key: str, obj: KubeObject | None) -> None:
        """Put an object of a kind that is only looked up, or take it off."""
        if kind is not Namespace:
            self.shelves.set(kind, key, obj)
            return
        before = self.namespace_labels(key)
        self.shelves.set(kind, key, obj)
        if self.namespace_labels(key) != before:
            self._tally.forget_affinity()  # namespace selectors may pick otherwise now; rare enough to count anew

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key  # made once: a large cluster has 150,000 of them
        old = self.pods.get(key)
        self._record(Pod, key, old)
        if old is None:
            self._bindings.add(key, pod)
            self._owners.add(key, pod)
            self._owners.note(pod)
        else:
            if not counts_alike(old, pod):
                if only_moved(old, pod):
                    self._tally.count_move(pod, *self._bindings.carry(key, old, pod))
                else:
                    self._bindings.drop(key, old)
                    self._bindings.add(key, pod)
                self._owners.note(pod)
            else:
                self._bindings.replace(key, pod)
            if old.owners is not pod.owners and old.owners != pod.owners:
                self._owners.discard(key, old)
                self._owners.add(key, pod)
                self._owners.note(old)
                self._owners.note(pod)
        self.pods[key] = pod

    def _put_node(self, node: Node) -> None:
        old = self.nodes.get(node.name)
        if old is not None and old.labels == node.labels:
            self.nodes.put(node)
            return
        if old is not None:
            self._take_node(node.name)  # its pods leave the counters of the old labels and join those of the new
        slot, _ = self.nodes.put(node)
        self._bindings.count_node(node.name, slot, 1)

    def _take_node(self, name: str) -> None:
        slot = self.nodes.slot_of[name]
        self._bindings.count_node(name, slot, -1)
        self.nodes.drop(name)
