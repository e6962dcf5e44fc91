"""Stores pods by node, and keeps track of the resources, host ports, volumes and affinity terms on each node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, ItemsView, Iterable, Iterator, Sequence, Set
from typing import Final

import numpy as np

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import Amounts, IntArray, amounts_of
from trimtab.cluster.volumes import VolumeUsers
from trimtab.kube.collector import collector_paused
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import HostPort, Pod, PodSpec

_ANY = "0.0.0.0"


class HostPortIndex:
    """The host ports in use, by protocol and port, then by node slot, then by address.

    The address ``0.0.0.0`` conflicts with every address on the same port and protocol (kube-scheduler v1.36
    ``HostPortInfo.CheckConflict``).
    """

    def __init__(self) -> None:
        self._taken: defaultdict[tuple[str, int], dict[int, dict[str, int]]] = defaultdict(dict)

    def count(self, ports: Iterable[HostPort], slot: int, amount: int) -> None:
        """Add the host ports of a pod on a slot (``amount`` 1) or remove them (-1)."""
        for port in ports:
            slots = self._taken[port.protocol, port.port]
            addresses = slots.setdefault(slot, {})
            addresses[port.ip] = addresses.get(port.ip, 0) + amount
            if not addresses[port.ip]:
                del addresses[port.ip]
            if not addresses:
                del slots[slot]

    def conflicts(self, ports: Iterable[HostPort]) -> Iterator[int]:
        """Yield the slots on which at least one of the host ports is in use. A slot may be yielded twice."""
        for port in ports:
            for slot, addresses in self._taken.get((port.protocol, port.port), {}).items():
                if port.ip == _ANY or _ANY in addresses or port.ip in addresses:
                    yield slot


_MAX_SPECS: Final = 32_768
"""Maximum number of pod specs whose amounts are cached.

A full cache is cleared, and soon contains the specs in use again.
"""

_SPARE_COLUMNS: Final = 16
"""Number of unused resource columns that are kept. Plans use such columns for node groups that have no node yet."""


_MANY_PODS: Final = 10_000
"""Number of pods from which the affinity index is exempt from garbage collection."""


class PodAccounting:
    """The resources, host ports, volumes and affinity terms of the pods on each node.

    Updated as pods are added, moved or removed.

    Args:
        nodes: the node table, whose amounts are updated.
        placed: yields every counted pod with its slot. It is called to build the affinity index.
        namespace_labels: returns the labels of a namespace by name.

    Attributes:
        ports: the host ports in use.
        volume_users: the pods with volumes, by claim and by node.
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
        """Return the amounts that a pod with this spec uses on a node."""
        found = self._amounts.get(id(spec))
        if found is None:
            made = amounts_of(spec, self._nodes.axis)
            if len(self._amounts) >= _MAX_SPECS:
                self._amounts.clear()
            found = self._amounts[id(spec)] = (spec, made)  # keeps the spec alive, so that its id is not reused
        return found[1]

    def add_resources(self, names: Iterable[str]) -> None:
        """Add columns for the resources of a new node. Pods that request these resources are counted again."""
        axis = self._nodes.axis
        added = [name for name in names if name not in axis.column]
        if added:
            self._recount(added, lambda: [axis.add(name) for name in added])

    def release_resources(self) -> None:
        """Drop the columns of resources that no node has. No-op while changes are being recorded."""
        unused = self._nodes.axis.unused()
        if len(unused) > _SPARE_COLUMNS:
            self._recount(unused, lambda: self._nodes.axis.release(unused))

    def forget_removed(self, used: Set[int], waiting: Container[tuple[str, Labels]]) -> None:
        """Drop the amounts of specs that no pod has any longer, and what the affinity index has for deleted pods.

        Args:
            used: the ids of the specs that existing pods have.
            waiting: the namespaces and labels of the pods that are not bound.
        """
        if self._affinity is not None:
            self._affinity = self._affinity.forget_removed(used)
            if self._affinity.is_stale(waiting):
                self._affinity = None
        self._amounts = {key: each for key, each in self._amounts.items() if key in used}

    def _recount(self, names: Iterable[str], change: Callable[[], object]) -> None:
        """Add or remove resource columns, and recompute the amounts of the pods that request these resources.

        Args:
            names: the names of the resources.
            change: adds or removes the columns.
        """
        sought = frozenset(names)
        asking: dict[int, bool] = {}
        placed: list[tuple[PodSpec, int]] = []
        for pod, slot in self._placed():
            asks = asking.get(id(pod.spec))
            if asks is None:
                asks = asking[id(pod.spec)] = _may_request(pod.spec, sought)
            if asks:
                placed.append((pod.spec, slot))
        nodes = self._nodes
        for spec, slot in placed:
            nodes.taken[slot] -= self.amounts(spec).taken
        change()
        width = nodes.allocatable.shape[1]
        nodes.fit_width()
        if width != nodes.axis.width:
            self._amounts.clear()  # cached rows have the old width
        else:
            self._amounts = {key: each for key, each in self._amounts.items() if not _may_request(each[0], sought)}
        for spec, slot in placed:
            nodes.taken[slot] += self.amounts(spec).taken
        nodes.touch_all()

    def count(self, pod: Pod, slot: int, amount: int) -> None:
        """Add a pod on a slot (``amount`` 1) or remove it (-1). Terminal pods are not counted."""
        if pod.terminal:
            return
        nodes = self._nodes
        amounts = self.amounts(pod.spec)
        taken = nodes.taken[slot]
        if amount > 0:
            taken += amounts.taken
        else:
            taken -= amounts.taken
        nodes.touch(slot)
        if not amounts.amounts_only:
            self._count_others(pod, slot, amount)
        if self._affinity is not None:
            self._affinity.count(pod, slot, amount)

    def count_move(self, pod: Pod, old: int, new: int) -> None:
        """Update the sums for a pod that moved from slot ``old`` to slot ``new``; -1 means no node."""
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
        if not amounts.amounts_only or self._affinity is not None:
            self._move_others(pod, old, new)

    def count_moves(self, moves: Sequence[tuple[Pod, int, int]]) -> None:
        """Update the sums for pods that moved, given as (pod, old slot, new slot), in one array operation."""
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
            if not amounts.amounts_only or self._affinity is not None:
                self._move_others(pod, old, new)
        if rows:
            self._nodes.count_rows(np.stack(rows)[which], out, into)

    def _move_others(self, pod: Pod, old: int, new: int) -> None:
        if not self.amounts(pod.spec).amounts_only:
            for slot, amount in ((old, -1), (new, 1)):
                if slot >= 0:
                    self._count_others(pod, slot, amount)
        if self._affinity is not None:
            self._affinity.count_move(pod, old, new)

    def _count_others(self, pod: Pod, slot: int, amount: int) -> None:
        spec = pod.spec
        if spec.host_ports:
            self.ports.count(spec.host_ports, slot, amount)
        if spec.volumes:
            self.volume_users.count(pod, slot, amount)
        if spec.affinity.has_pod_terms:
            self._affinity_pods += amount
            if spec.affinity.anti_required:
                self._anti_affinity_pods += amount

    @property
    def any_anti_affinity(self) -> bool:
        """Return whether any bound pod has required anti-affinity.

        If none has, filters do not need the affinity index.
        """
        return self._anti_affinity_pods > 0

    @property
    def any_pod_affinity(self) -> bool:
        """Return whether any bound pod has pod affinity or anti-affinity, required or preferred."""
        return self._affinity_pods > 0

    @property
    def affinity(self) -> AffinityIndex:
        """Return the affinity index, which is built on first access."""
        if self._affinity is None:
            self._affinity = AffinityIndex(self._nodes, self._namespace_labels)
            placed = list(self._placed())
            with collector_paused(exempt=len(placed) >= _MANY_PODS):
                self._affinity.add_all(placed)
        return self._affinity

    def forget_affinity(self) -> None:
        """Drop the affinity index. It is rebuilt on the next access."""
        self._affinity = None

    def prune_affinity(self, pending: int) -> None:
        """Drop the affinity index if most of it belongs to deleted pods, else the terms that no pod uses.

        Args:
            pending: the number of pods that are not bound.
        """
        if self._affinity is not None and self._affinity.overgrown(pending):
            self._affinity = None
        if self._affinity is not None:
            self._affinity.prune()


def _may_request(spec: PodSpec, names: frozenset[str]) -> bool:
    """Return whether a spec may request one of these resources. False positives are possible."""
    return bool(spec.further_requests) or not names.isdisjoint(spec.requests)


_NO_PODS: Final[dict[str, Pod]] = {}


class PodBindings:
    """Stores pods by node name. Pods on existing nodes are counted in ``accounting``.

    Pending pods are stored under the empty name, so that finding them does not require a scan of all pods.

    Args:
        nodes: the node table.
        namespace_labels: returns the labels of a namespace by name.

    Attributes:
        accounting: the sums per node.
    """

    def __init__(self, nodes: NodeTable, namespace_labels: Callable[[str], Labels]) -> None:
        self.accounting = PodAccounting(nodes, self._placed, namespace_labels)
        self._nodes = nodes
        self._slot_of = nodes.slot_of
        self._on: dict[str, dict[str, Pod]] = {}

    def pods(self, node: str) -> list[Pod]:
        """Return the pods bound to a node, ordered by ``namespace/name``."""
        there = self._on.get(node, _NO_PODS)
        return [there[key] for key in sorted(there)]

    def items(self, node: str) -> ItemsView[str, Pod]:
        """Return the key and the pod of every pod bound to a node, in no particular order."""
        return self._on.get(node, _NO_PODS).items()

    def nodes(self) -> set[str]:
        """Return the names of all nodes that pods are bound to."""
        return self._on.keys() - {""}

    def add(self, key: str, pod: Pod) -> None:
        """Add a pod, and add it to the sums of its node."""
        self._on.setdefault(pod.node, {})[key] = pod
        slot = self._slot_of.get(pod.node)
        if slot is not None:
            self.accounting.count(pod, slot, 1)

    def drop(self, key: str, pod: Pod) -> None:
        """Remove a pod, and subtract it from the sums of its node."""
        self._unbind(key, pod)
        slot = self._slot_of.get(pod.node)
        if slot is not None:
            self.accounting.count(pod, slot, -1)

    def replace(self, key: str, pod: Pod) -> None:
        """Replace a pod with a newer version that has the same effect on the sums (:func:`counts_alike`)."""
        self._on[pod.node][key] = pod

    def touch(self, node: str) -> None:
        """Log a change of the pods on a node that does not affect the sums."""
        slot = self._slot_of.get(node)
        if slot is not None:
            self._nodes.touch(slot)

    def rebind(self, key: str, old: Pod, new: Pod) -> tuple[int, int]:
        """Replace a pod with a version that is bound to another node (:func:`only_moved`).

        The caller must then update the sums (:meth:`PodAccounting.count_move`).

        Returns:
            The slots of the old and the new node; -1 if there is no such node.
        """
        self._unbind(key, old)
        if new.node in self._on:
            self._on[new.node][key] = new
        else:
            self._on[new.node] = {key: new}
        return self._slot_of.get(old.node, -1), self._slot_of.get(new.node, -1)

    def count_node(self, node: str, slot: int, amount: int) -> None:
        """Add the pods of a new node to its sums (``amount`` 1), or subtract them before the node is removed (-1)."""
        for _, pod in self.items(node):
            self.accounting.count(pod, slot, amount)

    def _unbind(self, key: str, pod: Pod) -> None:
        there = self._on[pod.node]
        del there[key]
        if not there:
            del self._on[pod.node]

    def _placed(self) -> Iterator[tuple[Pod, int]]:
        """Yield the non-terminal pods on existing nodes with their slots."""
        for name, pods in self._on.items():
            slot = self._slot_of.get(name)
            if slot is not None:
                for pod in pods.values():
                    if not pod.terminal:
                        yield pod, slot


def counts_alike(old: Pod, new: Pod) -> bool:
    """Return whether two versions of a pod are on the same node and have the same effect on its sums."""
    return (
        old.node == new.node
        and old.spec is new.spec
        and old.labels is new.labels
        and old.uid == new.uid
        and old.terminal == new.terminal
        and (old.deleted is None) == (new.deleted is None)
    )


def only_moved(old: Pod, new: Pod) -> bool:
    """Return whether two versions of a pod have the same effect on sums, and differ at most in their node."""
    return (
        old.spec is new.spec
        and old.labels is new.labels
        and old.annotations is new.annotations
        and old.owners is new.owners
        and old.phase == new.phase
        and old.uid == new.uid
        and old.deleted is new.deleted
    )
