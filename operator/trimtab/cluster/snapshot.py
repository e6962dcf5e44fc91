"""The Snapshot: the cluster state that every planner reads.

The snapshot is updated incrementally: adding, moving or removing a pod or node changes a few numbers. Planners try
moves within :meth:`Snapshot.fork`, which undoes only the changes that were made, in reverse order. What planners read
does not depend on the order in which objects arrived.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.complexity import PodComplexity
from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.object_store import ObjectStore
from trimtab.cluster.pod_accounting import PodBindings, counts_alike, only_moved
from trimtab.cluster.resources import Amounts, IntArray
from trimtab.cluster.workloads.owners import OwnerKey, Owners
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import TYPES, KubeObject, Namespace, Node, Pod, PodDisruptionBudget, PodSpec, PriorityClass
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits

Change = tuple[str, str, KubeObject | None]
"""A recorded change: the name of the kind, the key, and the previous object.

The kind is a string instead of a type, so that the garbage collector does not track the tuple.
"""

_MANY: Final = 64
"""Number of changes above which it is faster to undo them in one array operation."""


class Snapshot:
    """The cluster state, with columns and counters for fast queries.

    Attributes:
        nodes: the node table with allocatable and requested amounts.
        pods: all pods by ``namespace/name``, including pending and terminal ones.
        objects: the objects of all other kinds.
        complexity: determines which pods are too complex to be moved or placed.
        ports: the host ports that bound pods use.
        volume_users: the bound pods that use volumes.
    """

    def __init__(self, objects: Iterable[KubeObject] = (), *, limits: ComplexityLimits = DEFAULT_LIMITS) -> None:
        self.nodes = NodeTable()
        self.pods: dict[str, Pod] = {}
        self.objects = ObjectStore()
        self.complexity = PodComplexity(limits)
        self._owners = Owners(self.pods)
        self._bindings = PodBindings(self.nodes, self.namespace_labels)
        self._accounting = self._bindings.accounting
        self.ports = self._accounting.ports
        self.volume_users = self._accounting.volume_users
        self._journal: list[Change] = []
        self._depth = 0
        for obj in objects:
            self.put(obj)

    # --- reading -----------------------------------------------------------------------------------------------

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods bound to a node, including terminal ones, ordered by ``namespace/name``."""
        return self._bindings.pods(node)

    def items_on(self, node: str) -> ItemsView[str, Pod]:
        """Return the key and the pod of every pod bound to a node, including terminal pods, in no particular order."""
        return self._bindings.items(node)

    def unbound(self) -> ItemsView[str, Pod]:
        """Return the key and the pod of every pod without a node, including terminal pods, in no particular order."""
        return self._bindings.items("")

    def bound_nodes(self) -> set[str]:
        """Return the names of all nodes that pods are bound to, including nodes that the snapshot lacks."""
        return self._bindings.nodes()

    def owners(self) -> list[OwnerKey]:
        """Return the controllers that own at least one pod, ordered by key."""
        return self._owners.keys()

    def owned_by(self, owner: OwnerKey) -> list[Pod]:
        """Return the pods of a controller, including pending and terminal ones, ordered by ``namespace/name``."""
        return [self.pods[key] for key in sorted(self._owners.pods(owner))]

    def each_owned_by(self, owner: OwnerKey) -> Iterator[Pod]:
        """Yield the pods of a controller in no particular order, which is faster than :meth:`owned_by`."""
        return map(self.pods.__getitem__, self._owners.pods(owner))

    def owners_with_colocated_pods(self) -> list[OwnerKey]:
        """Return the controllers that have two or more pods on the same node, ordered by key.

        Terminal and terminating pods are ignored.
        """
        return self._owners.with_colocated_pods()

    def slot(self, pod: Pod) -> int | None:
        """Return the slot of the pod's node, or ``None`` if the pod is pending or the node does not exist."""
        return self.nodes.slot_of.get(pod.node) if pod.node else None

    def amounts(self, spec: PodSpec) -> Amounts:
        """Return the amounts that a pod with this spec uses on a node."""
        return self._accounting.amounts(spec)

    def row(self, spec: PodSpec) -> IntArray:
        """Return the requests that filters compare for a pod with this spec (:attr:`Amounts.row`)."""
        return self.amounts(spec).row

    def add_resources(self, spec: PodSpec) -> None:
        """Add columns for all resources that a spec requests, including those that no node has.

        Explanations need these columns to report missing amounts by resource. One pod may request a limited number of
        resources, which limits the number of columns.
        """
        self._accounting.add_resources(name for name, amount in spec.requests.items() if amount > 0)

    @property
    def budgets(self) -> dict[str, PodDisruptionBudget]:
        """Return the PodDisruptionBudgets by ``namespace/name``."""
        return self.objects.of(PodDisruptionBudget)

    @property
    def namespaces(self) -> dict[str, Namespace]:
        """Return the Namespaces by name."""
        return self.objects.of(Namespace)

    @property
    def priority_classes(self) -> dict[str, PriorityClass]:
        """Return the PriorityClasses by name."""
        return self.objects.of(PriorityClass)

    def namespace_labels(self, name: str) -> Labels:
        """Return the labels of a namespace.

        If the snapshot does not contain the Namespace, the result is only the label that every namespace has,
        ``kubernetes.io/metadata.name``.
        """
        namespace = self.namespaces.get(name)
        if namespace is not None and namespace.labels:
            return namespace.labels
        return Labels({"kubernetes.io/metadata.name": name}) if name else NO_LABELS

    @property
    def any_anti_affinity(self) -> bool:
        """Return whether any bound pod has required anti-affinity.

        If none has, filters do not need the affinity index.
        """
        return self._accounting.any_anti_affinity

    @property
    def any_pod_affinity(self) -> bool:
        """Return whether any bound pod has pod affinity or anti-affinity, required or preferred."""
        return self._accounting.any_pod_affinity

    @property
    def affinity(self) -> AffinityIndex:
        """Return the affinity index, which is built on first access."""
        return self._accounting.affinity

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
                self._record(kind, key, self.objects.of(kind).get(key))
                self._store_object(kind, key, obj)

    def remove(self, obj: KubeObject) -> None:
        """Remove an object of any kind. No-op if the snapshot does not contain it.

        A watch may report a deletion twice.
        """
        kind, key = type(obj), obj.key
        there = self._find(kind, key)
        if there is not None:
            self._record(kind, key, there)
            self._take(kind, key)

    def move(self, pod: Pod, node: str) -> Pod:
        """Bind the pod to another node as a scheduler does, and return the changed pod."""
        moved = msgspec.structs.replace(pod, node=node, node_name_managed=False)
        self.put(moved)
        return moved

    @contextmanager
    def fork(self) -> Iterator[Snapshot]:
        """Return a context manager that undoes all changes of the snapshot on exit. Forks can be nested."""
        depth, mark = self._depth, self.mark()
        try:
            yield self
        finally:
            # An error within the fork may have left marks open. Without this, changes would be recorded indefinitely.
            self._depth = depth + 1
            self.undo(mark)

    def mark(self) -> int:
        """Start recording changes, and return a mark to which they can be undone.

        Every mark must be passed to :meth:`undo` or :meth:`commit`, in reverse order.
        """
        if not self._depth:  # compact before planners start, so that their references into the index stay valid
            self._accounting.release_resources()
            if self.nodes.needs_rebuild:
                self.nodes.renumber()
                self._accounting.forget_affinity()
            else:
                self._accounting.prune_affinity(len(self.unbound()))
                self.nodes.release_columns()
        self._depth += 1
        return len(self._journal)

    def forget_removed(self) -> None:
        """Drop caches for pods, specs and labels that no longer exist.

        Do not call this method while changes are being recorded.
        """
        used = {id(pod.spec) for pod in self.pods.values()}
        waiting = {(pod.namespace, pod.labels) for _, pod in self.unbound()}
        with self.fork():
            self._accounting.forget_removed(used, waiting)
        for cache in [*self.nodes.caches]:
            cache.forget_removed(used)
        self.nodes.release_columns()

    def undo(self, mark: int) -> None:
        """Undo all changes since ``mark``, in reverse order."""
        self._depth -= 1
        depth, self._depth = self._depth, 0  # do not record the undo itself
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

    def changes_since(self, mark: int) -> list[Change]:
        """Return the changes recorded since ``mark``, in order."""
        return self._journal[mark:]

    def commit(self, mark: int) -> None:
        """Keep the changes since ``mark``. They can still be undone to an earlier mark."""
        self._depth -= 1
        if not self._depth:
            del self._journal[mark:]

    # --- inside ------------------------------------------------------------------------------------------------

    def _rewind(self, changes: list[Change]) -> None:
        """Undo changes of pods, in reverse order.

        The amounts of pods that were only moved are updated in one array operation.
        """
        moves: list[tuple[Pod, int, int]] = []
        uncounted: set[str] = set()
        for _, key, old in reversed(changes):
            pod = self.pods.get(key)
            if pod is None or not isinstance(old, Pod) or not only_moved(old, pod):
                if key in uncounted:  # its pending move must be counted before the pod is removed
                    self._accounting.count_moves(moves)
                    moves.clear()
                    uncounted.clear()
                if old is None:
                    self._take(Pod, key)
                else:
                    self.put(old)
                continue
            moves.append((old, *self._bindings.rebind(key, pod, old)))
            uncounted.add(key)
            self.pods[key] = old
            self._owners.note(old)
        self._accounting.count_moves(moves)

    def _record(self, kind: type[KubeObject], key: str, old: KubeObject | None) -> None:
        if self._depth:
            self._journal.append((kind.__name__, key, old))

    def _find(self, kind: type[KubeObject], key: str) -> KubeObject | None:
        if kind is Pod:
            return self.pods.get(key)
        if kind is Node:
            return self.nodes.get(key)
        return self.objects.of(kind).get(key)

    def _take(self, kind: type[KubeObject], key: str) -> None:
        if kind is Pod:
            pod = self.pods.pop(key)
            self._bindings.drop(key, pod)
            self._owners.discard(key, pod)
            self._owners.note(pod)
            self.complexity.count(pod, -1)
        elif kind is Node:
            self._take_node(key)
        else:
            self._store_object(kind, key, None)

    def _store_object(self, kind: type[KubeObject], key: str, obj: KubeObject | None) -> None:
        """Store an object in :attr:`objects`, or remove it if ``obj`` is ``None``."""
        if kind is not Namespace:
            self.objects.set(kind, key, obj)
            return
        before = self.namespace_labels(key)
        self.objects.set(kind, key, obj)
        if self.namespace_labels(key) != before:
            self._accounting.forget_affinity()  # namespace selectors may select other pods now; this is rare

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key  # built once: a large cluster has 150,000 pods
        old = self.pods.get(key)
        self._record(Pod, key, old)
        if old is None:
            self._bindings.add(key, pod)
            self._owners.add(key, pod)
            self._owners.note(pod)
            self.complexity.count(pod, 1)
        else:
            if old.spec is not pod.spec or old.annotations is not pod.annotations or old.terminal != pod.terminal:
                self.complexity.count(old, -1)
                self.complexity.count(pod, 1)
            if not counts_alike(old, pod):
                if only_moved(old, pod):
                    self._accounting.count_move(pod, *self._bindings.rebind(key, old, pod))
                else:
                    self._bindings.drop(key, old)
                    self._bindings.add(key, pod)
                self._owners.note(pod)
            else:
                self._bindings.replace(key, pod)
                if old.started != pod.started:  # victims of preemption are ranked by it
                    self._bindings.touch(pod.node)
            if old.owners is not pod.owners and old.owners != pod.owners:
                self._owners.discard(key, old)
                self._owners.add(key, pod)
                self._owners.note(old)
                self._owners.note(pod)
        self.pods[key] = pod

    def _put_node(self, node: Node) -> None:
        old = self.nodes.get(node.name)
        if old is None or old.allocatable != node.allocatable:
            self._accounting.add_resources(node.allocatable)
        if old is not None and old.labels == node.labels:
            self.nodes.put(node)
            return
        if old is not None:
            self._take_node(node.name)  # its pods must be counted in the domains of the new labels
        slot, _ = self.nodes.put(node)
        self._bindings.count_node(node.name, slot, 1)

    def _take_node(self, name: str) -> None:
        slot = self.nodes.slot_of[name]
        self._bindings.count_node(name, slot, -1)
        self.nodes.drop(name)
