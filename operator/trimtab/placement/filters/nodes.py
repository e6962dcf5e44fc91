"""Filters that evaluate each node by itself: its state, taints, labels, host ports and free resources."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Set
from typing import ClassVar, Final

import msgspec
import numpy as np

from trimtab.cluster.resources import FIXED, PODS, UNKNOWN, Amounts, BoolArray, IntArray, amounts_of
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import NO_LABELS, ResourceList
from trimtab.kube.objects import Node, NodeSelector, NodeSelectorTerm, Pod, PodSpec, Taint
from trimtab.kube.rules.taints import UNSCHEDULABLE, tolerates
from trimtab.placement.interface import Failure, NodeFilter, PodFilter, Reads, StaticFilter
from trimtab.placement.node_masks import affinity_mask, untolerated_mask
from trimtab.placement.slot_cache import SlotCache, Slots


class Complexity(PodFilter):
    """Rejects pods whose own spec exceeds the complexity limits (:mod:`trimtab.kube.wire.limits`).

    kube-scheduler has no such limit and evaluates these pods, however long that takes.
    """

    name: ClassVar = "Complexity"

    def may_concern(self, spec: PodSpec) -> bool:
        return bool(spec.complexity)

    def refusal(self, pod: Pod) -> str | None:
        return _too_complex(self.snapshot, pod) if pod.spec.complexity else None


class NamespaceComplexity(NodeFilter):
    """Rejects pods that contribute to a sum of their namespace that exceeds a complexity limit."""

    name: ClassVar = "NamespaceComplexity"

    def concerns(self, pod: Pod) -> bool:
        return bool(self.snapshot.complexity.exceeded(pod))

    def refusal(self, pod: Pod) -> str | None:
        return _too_complex(self.snapshot, pod) if self.concerns(pod) else None

    def passing(self, pod: Pod) -> BoolArray | None:
        return None  # refusal() rejects the pod before any node is examined


def _too_complex(snapshot: Snapshot, pod: Pod) -> str | None:
    found = snapshot.complexity.refusal(pod)
    return None if found is None else f"trimtab does not place the pod ({found[0]}): {found[1]}"


class SchedulingGates(PodFilter):
    """Rejects pods with scheduling gates, with the message of their PodScheduled condition.

    The API server writes that condition (v1.36 ``applySchedulingGatedCondition``). kube-scheduler keeps such pods out
    of its queue and reports nothing, so the message does not begin with "0/5 nodes are available".
    """

    name: ClassVar = "SchedulingGates"
    reason: ClassVar = "Scheduling is blocked due to non-empty scheduling gates"

    def may_concern(self, spec: PodSpec) -> bool:
        return bool(spec.scheduling_gates)

    def refusal(self, pod: Pod) -> str | None:
        return self.reason if pod.spec.scheduling_gates else None


class DynamicResources(PodFilter):
    """Rejects pods with ResourceClaims, because trimtab does not read devices and how they are allocated.

    The message is trimtab's own, because trimtab cannot know whether kube-scheduler would place the pod.
    """

    name: ClassVar = "DynamicResources"

    def may_concern(self, spec: PodSpec) -> bool:
        return bool(spec.resource_claims)

    def refusal(self, pod: Pod) -> str | None:
        if not pod.spec.resource_claims:
            return None
        names = ", ".join(pod.spec.resource_claims)
        return f"trimtab does not evaluate ResourceClaims (dynamic resource allocation), and the pod has some: {names}"


CONFLICTING_TERMS: Final = "pod affinity terms conflict"
"""The reason if every term requires two different node names.

It is reported for the pod as a whole instead of for single nodes.
"""


class NamedNodes(StaticFilter):
    """Rejects nodes whose names the pod's ``matchFields`` terms do not permit. It runs before all other filters.

    The DaemonSet controller adds such terms to its pods. kube-scheduler v1.36 evaluates them in NodeAffinity's
    PreFilter, before every filter. Only the operator ``In`` on ``metadata.name`` is evaluated. It restricts the nodes
    only if all terms contain it, because one matching term is sufficient.
    """

    name: ClassVar = "NodeAffinity"
    reason: ClassVar = "node(s) didn't satisfy plugin(s) [NodeAffinity]"

    def key(self, pod: Pod) -> Hashable | None:
        return named(pod.spec.affinity.node.required)

    def refusal(self, pod: Pod) -> str | None:
        names = named(pod.spec.affinity.node.required)
        return CONFLICTING_TERMS if names is not None and not names else None

    def compute(self, pod: Pod) -> BoolArray:
        nodes = self.snapshot.nodes
        passing: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        for name in named(pod.spec.affinity.node.required) or ():
            slot = nodes.slot_of.get(name)
            if slot is not None:
                passing[slot] = True
        return passing


def named(selector: NodeSelector | None) -> frozenset[str] | None:
    """Return the node names that a required node affinity permits, or ``None`` if it permits any name."""
    if selector is None or not selector.terms:
        return None
    names: frozenset[str] = frozenset()
    for term in selector.terms:
        found = _named_by(term)
        if found is None:
            return None
        names |= found
    return names


def _named_by(term: NodeSelectorTerm) -> frozenset[str] | None:
    found: frozenset[str] | None = None
    for requirement in term.match_fields:
        if requirement.key == "metadata.name" and requirement.operator == "In":
            values = frozenset(requirement.values)
            found = values if found is None else found & values
    return found


_CORDON: Final = Taint(key=UNSCHEDULABLE, effect="NoSchedule")


class NodeUnschedulable(StaticFilter):
    """Rejects cordoned nodes, unless the pod tolerates ``node.kubernetes.io/unschedulable:NoSchedule`` (v1.36)."""

    name: ClassVar = "NodeUnschedulable"
    reason: ClassVar = "node(s) were unschedulable"

    def key(self, pod: Pod) -> Hashable | None:
        return None if any(tolerates(toleration, _CORDON) for toleration in pod.spec.tolerations) else UNSCHEDULABLE

    def compute(self, pod: Pod) -> BoolArray:
        passing: BoolArray = ~self.snapshot.nodes.cordoned
        return passing


class NodeName(StaticFilter):
    """Rejects nodes other than the pod's ``spec.nodeName``. Callers clear this field before they move a pod."""

    name: ClassVar = "NodeName"
    reason: ClassVar = "node(s) didn't match the requested node name"

    def key(self, pod: Pod) -> Hashable | None:
        return pod.node or None

    def compute(self, pod: Pod) -> BoolArray:
        nodes = self.snapshot.nodes
        passing: BoolArray = np.zeros(nodes.capacity, dtype=np.bool_)
        slot = nodes.slot_of.get(pod.node)
        if slot is not None:
            passing[slot] = True
        return passing


class TaintToleration(StaticFilter):
    """Rejects nodes with untolerated NoSchedule or NoExecute taints (v1.36). ``tolerationSeconds`` is ignored."""

    name: ClassVar = "TaintToleration"
    reason: ClassVar = "node(s) had untolerated taint(s)"

    def key(self, pod: Pod) -> Hashable | None:
        return pod.spec.tolerations

    def compute(self, pod: Pod) -> BoolArray:
        return ~untolerated_mask(self.snapshot, pod.spec.tolerations)


class NodeAffinity(StaticFilter):
    """Rejects nodes that do not match the pod's ``nodeSelector`` and required node affinity (v1.36)."""

    name: ClassVar = "NodeAffinity"
    reason: ClassVar = "node(s) didn't match Pod's node affinity/selector"

    def key(self, pod: Pod) -> Hashable | None:
        required = pod.spec.affinity.node.required
        if not pod.spec.node_selector and required is None:
            return None
        return pod.spec.node_selector, required

    def compute(self, pod: Pod) -> BoolArray:
        return affinity_mask(self.snapshot, pod.spec.node_selector, pod.spec.affinity.node.required)


class AddedNodeAffinity(StaticFilter):
    """Rejects nodes that do not match the node affinity that the profile adds to all pods (v1.36 ``addedAffinity``).

    It is part of the NodeAffinity plugin, and is evaluated before the pod's own affinity.

    Args:
        snapshot: the cluster.
        required: the added terms.
    """

    name: ClassVar = "NodeAffinity"
    reason: ClassVar = "node(s) didn't match scheduler-enforced node affinity"

    def __init__(self, snapshot: Snapshot, *, required: NodeSelector) -> None:
        super().__init__(snapshot)
        self._required = required

    def key(self, pod: Pod) -> Hashable | None:
        return "every pod"

    def compute(self, pod: Pod) -> BoolArray:
        return affinity_mask(self.snapshot, NO_LABELS, self._required)


class NodeDeclaredFeatures(StaticFilter):
    """Rejects nodes that lack a feature that the pod needs (:attr:`~trimtab.kube.objects.PodSpec.required_features`).

    Few pods require a feature, so the node table has no column for features. Instead, the nodes are read once for each
    distinct set of features.
    """

    name: ClassVar = "NodeDeclaredFeatures"
    reason: ClassVar = "node(s) didn't match Pod's required features"

    def key(self, pod: Pod) -> Hashable | None:
        return pod.spec.required_features or None

    def compute(self, pod: Pod) -> BoolArray:
        needed = frozenset(pod.spec.required_features)

        def declares(node: Node | None) -> bool:
            return node is not None and needed.issubset(node.declared_features)

        passing: BoolArray = np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        at = self.snapshot.nodes.at
        passing[: len(at)] = np.fromiter(map(declares, at), dtype=np.bool_, count=len(at))
        return passing


class NodePorts(NodeFilter):
    """Rejects nodes where a requested host port is in use, per protocol and address (v1.36).

    The address ``0.0.0.0`` conflicts with all addresses.
    """

    name: ClassVar = "NodePorts"
    reason: ClassVar = "node(s) didn't have free ports for the requested pod ports"

    def may_concern(self, spec: PodSpec) -> bool:
        return bool(spec.host_ports)

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return False

    def passing(self, pod: Pod) -> BoolArray | None:
        if not pod.spec.host_ports:
            return None
        passing = self.snapshot.nodes.used.copy()
        for slot in self.snapshot.ports.conflicts(pod.spec.host_ports):
            passing[slot] = False
        return passing


_ANY: Final = np.iinfo(np.int64).min
_BITS: Final = 62
"""Maximum number of resources for which the set of insufficient ones is stored as bits of one integer."""
RequestedAmounts = tuple[tuple[int, int], ...]
_MAX_REDUCED: Final = 16_384


class NodeResourcesFit(NodeFilter):
    """Rejects nodes with too few free resources for the pod's requests (v1.36 ``fitsRequest``).

    Resources that the pod does not request are ignored, except the number of pods.

    Args:
        snapshot: the cluster.
        ignored: extended resources that the filter ignores.
        ignored_groups: API groups (the part before the slash) of further extended resources that the filter ignores.
    """

    name: ClassVar = "NodeResourcesFit"
    reads: ClassVar[Reads] = "resources"

    def __init__(self, snapshot: Snapshot, *, ignored: Iterable[str] = (), ignored_groups: Iterable[str] = ()) -> None:
        self.snapshot = snapshot
        self._ignored, self._ignored_groups = frozenset(ignored), frozenset(ignored_groups)
        self._fits: SlotCache[RequestedAmounts, np.bool_] = SlotCache(snapshot.nodes)
        self._reduced: dict[int, tuple[PodSpec, Amounts]] = {}
        self._version = -1
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._reduced = {key: each for key, each in self._reduced.items() if key in used}

    def passing(self, pod: Pod) -> BoolArray | None:
        amounts = self._amounts if self._ignored or self._ignored_groups else self.snapshot.amounts
        return self._fits.of(amounts(pod.spec).wanted, self._compute)

    def _amounts(self, spec: PodSpec) -> Amounts:
        """Return the amounts that a pod with this spec uses, excluding the ignored resources."""
        if not any(map(self._ignores, spec.requests)):
            return self.snapshot.amounts(spec)
        axis = self.snapshot.nodes.axis
        if self._version != axis.version or len(self._reduced) >= _MAX_REDUCED:
            self._reduced.clear()
            self._version = axis.version
        found = self._reduced.get(id(spec))
        if found is None:
            kept = {name: amount for name, amount in spec.requests.items() if not self._ignores(name)}
            reduced = msgspec.structs.replace(spec, requests=ResourceList(kept))
            found = self._reduced[id(spec)] = (spec, amounts_of(reduced, axis))  # keeps the spec alive
        return found[1]

    def _ignores(self, name: str) -> bool:
        group, slash, _ = name.partition("/")
        return bool(slash) and (name in self._ignored or group in self._ignored_groups)

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        amounts = self._amounts(pod.spec)
        row, nodes = amounts.row, self.snapshot.nodes
        wanted = np.array(sorted(np.flatnonzero(row > 0).tolist(), key=self._place), dtype=np.int64)
        left = nodes.allocatable[np.ix_(slots, wanted)] - nodes.requested[np.ix_(slots, wanted)]
        short = left < row[wanted]
        if len(wanted) <= _BITS:  # much faster than comparing rows
            codes = short @ (1 << np.arange(len(wanted))[::-1])
            patterns, which = np.unique(codes, return_inverse=True)
            rows = (patterns[:, None] >> np.arange(len(wanted))[::-1] & 1).astype(np.bool_)
        else:
            rows, which = np.unique(short, axis=0, return_inverse=True)
        for number, pattern in enumerate(rows):
            yield self._texts(wanted[pattern].tolist(), amounts.missing), slots[which.ravel() == number]

    def _compute(self, wanted: RequestedAmounts, slots: Slots) -> BoolArray:
        nodes = self.snapshot.nodes
        least = np.full(nodes.axis.width, _ANY, dtype=np.int64)
        for column, amount in wanted:
            least[column] = amount
        fits: BoolArray = np.all(nodes.allocatable[slots] - nodes.requested[slots] >= least, axis=1)
        return fits

    def _place(self, column: int) -> tuple[bool, bool, str | int]:
        """Return a column's sort key for kube-scheduler's order: pods, cpu, memory, storage, then others by name."""
        fixed = column < FIXED
        return column != PODS, not fixed, column if fixed else self.snapshot.nodes.axis.names[column]

    def _texts(self, columns: list[int], missing: tuple[str, ...]) -> tuple[str, ...]:
        if UNKNOWN not in columns:
            return tuple(shortage_text(self.snapshot, column) for column in columns)
        fixed = [column for column in columns if column < UNKNOWN]
        names = self.snapshot.nodes.axis.names
        others = sorted([*missing, *(names[column] for column in columns if column > UNKNOWN)])
        return (
            *(shortage_text(self.snapshot, column) for column in fixed),
            *(f"Insufficient {name}" for name in others),
        )


def shortage_text(snapshot: Snapshot, column: int) -> str:
    """Return kube-scheduler's reason for a node with too little of a resource, given by its column."""
    return "Too many pods" if column == PODS else f"Insufficient {snapshot.nodes.axis.names[column]}"
