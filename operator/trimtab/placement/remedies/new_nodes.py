"""Remedies that add a node, either with the shape of an existing node or larger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np
from msgspec.structs import replace

from trimtab.cluster.resources import MEMORY, IntArray
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import CSINode, KubeObject, Node
from trimtab.kube.rules.node_labels import HOSTNAME, REGION, ZONE
from trimtab.kube.rules.quantity import format_amount
from trimtab.placement.remedies.capacity import amounts_text, bound_to_node, requested
from trimtab.placement.remedies.constraints import cheapest_to_meet, set_by_kubernetes, untolerated_taints
from trimtab.placement.remedies.costs import ADD_NODE, LARGER_NODE
from trimtab.placement.remedies.interface import NodeAddition, RemedyCase, Step

_PLACES: Final = frozenset((ZONE, REGION))
_OF_PLACE: Final = frozenset(("VolumeBinding", "VolumeZone"))
"""Filters whose result is the same for all nodes with the same labels, so that a new node with these labels would also
fail.
"""

_OF_SURROUNDINGS: Final = frozenset(("InterPodAffinity", "PodTopologySpread"))
"""Filters whose result is the same for all nodes of a zone if the pod's constraint uses zones as domains, but not if it
uses hosts.
"""

MAX_SHAPES: Final = 8
"""Maximum number of node templates to try."""


def node_templates(case: RemedyCase, *, large_enough: bool) -> list[Node]:
    """Return nodes to use as templates for a new node: one node of each shape, smallest first.

    Nodes that do not match the pod's selectors, or whose taints the pod does not tolerate, are skipped. Cordons, and
    taints that Kubernetes adds to faulty nodes, are ignored.

    Args:
        case: the pod.
        large_enough: whether to return only nodes with enough allocatable resources for the pod.
    """
    nodes, pod = case.snapshot.nodes, case.pod
    welcome = [all(map(set_by_kubernetes, untolerated_taints(taints, pod))) for taints in nodes.taint_sets]
    suits = nodes.used & np.array(welcome)[nodes.taints]
    suits &= cheapest_to_meet(case, lambda wanted: np.inf if wanted.requirement.key != HOSTNAME else 0.0) == 0
    second = np.zeros(nodes.capacity, dtype=np.bool_)
    for rule, failing in case.placer.failing_filters(pod):
        if rule.name in _OF_PLACE:
            suits &= ~failing
        elif rule.name in _OF_SURROUNDINGS:
            second |= failing
    columns, amounts = requested(case)
    missing: IntArray = np.maximum(amounts - nodes.allocatable[:, columns], 0)
    if large_enough:
        suits &= (missing == 0).all(axis=1)
        size = nodes.allocatable[:, : MEMORY + 1]
        weight = (size / np.maximum(size.max(axis=0), 1)).sum(axis=1)
    else:
        weight = (missing / amounts).sum(axis=1)
    slots = np.flatnonzero(suits)
    slots = slots[np.lexsort((case.rank[slots], weight[slots], second[slots]))]
    _, first = np.unique(_shape(case)[slots], return_index=True)
    return [nodes.node(slot) for slot in slots[np.sort(first)[:MAX_SHAPES]].tolist()]


def new_node_objects(case: RemedyCase, like: Node, allocatable: ResourceList | None = None) -> tuple[KubeObject, ...]:
    """Return the objects of a new node: the Node like the template, its DaemonSet pods and its CSINode.

    Args:
        case: the unschedulable pod.
        like: the template.
        allocatable: the allocatable resources of the new node, or ``None`` for those of the template.
    """
    name = new_name(case, like)
    labels = like.labels
    if HOSTNAME in labels:
        labels = Labels({**labels, HOSTNAME: name})
    node = replace(
        like,
        name=name,
        uid=name,
        labels=labels,
        unschedulable=False,
        taints=tuple(taint for taint in like.taints if not set_by_kubernetes(taint)),
        allocatable=like.allocatable if allocatable is None else allocatable,
        images=ResourceList(),
    )
    there = [pod for pod in case.snapshot.pods_on(like.name) if bound_to_node(pod) and not pod.terminal]
    pods = [replace(pod, name=f"{pod.name}-{name}", uid=f"{pod.uid}-{name}", node=name) for pod in there]
    drivers = case.snapshot.objects.of(CSINode).get(like.name)
    return (node, *pods, *(() if drivers is None else (replace(drivers, name=name),)))


def new_name(case: RemedyCase, like: Node) -> str:
    """Return an unused node name."""
    name = f"new-{like.name}"
    while name in case.snapshot.nodes.slot_of:
        name = f"new-{name}"
    return name


def enlarged_allocatable(case: RemedyCase, like: Node) -> ResourceList:
    """Return the template's allocatable resources, raised so that the pod fits together with the DaemonSet pods."""
    names = case.snapshot.nodes.axis.names
    requests = [case.snapshot.row(pod.spec) for pod in case.snapshot.pods_on(like.name) if bound_to_node(pod)]
    amounts = dict(like.allocatable)
    for column, amount in zip(*(array.tolist() for array in requested(case)), strict=True):
        needed = amount + sum(int(row[column]) for row in requests)
        amounts[names[column]] = max(amounts.get(names[column], 0), needed)
    return ResourceList(amounts)


def _shape(case: RemedyCase) -> IntArray:
    """Return a number for the shape of each slot's node, equal for nodes of the same shape: int64, shape (capacity,).

    If two nodes have the same shape, it makes no difference to the pod which of them is the template of a new node.
    """
    nodes, pod = case.snapshot.nodes, case.pod
    affinity = pod.spec.affinity
    keys = {term.topology_key for term in (*affinity.pod_required, *affinity.anti_required)}
    keys |= {constraint.topology_key for constraint in pod.spec.topology_spread}
    if case.snapshot.any_anti_affinity:
        keys |= {counter.topology.key for counter in case.snapshot.affinity.carriers_against(pod)}
    columns = [nodes.taints, *nodes.allocatable.T]
    columns += [nodes.column(key).ids for key in sorted((keys | _PLACES) - {HOSTNAME})]
    found: IntArray = np.zeros(nodes.capacity, dtype=np.int64)
    for column in columns:
        if (column[nodes.used] != column[nodes.used][0]).any():
            values, which = np.unique(column, return_inverse=True)
            _, found = np.unique(found * len(values) + which.ravel(), return_inverse=True)
    return found


class AddNode(NodeAddition):
    """Adds a node like an existing one, which runs only DaemonSet pods, as a cluster autoscaler would.

    The smallest template is tried first. The new node is not cordoned and has no taints that Kubernetes sets.
    """

    reason: ClassVar = "AddNode"
    least: ClassVar = ADD_NODE

    def steps(self, case: RemedyCase) -> Iterator[Step]:
        for like in node_templates(case, large_enough=True):
            amounts = {name: format_amount(name, amount) for name, amount in like.allocatable.items()}
            size = ", ".join(f"{name} {amounts[name]}" for name in ("cpu", "memory") if name in amounts)
            yield Step(
                reason=self.reason,
                change=f"add a node like {like.name} ({size})",
                cost=ADD_NODE,
                kind="Node",
                name=new_name(case, like),
                details={"like": like.name, "allocatable": amounts},
                puts=new_node_objects(case, like),
            )


class LargerNode(NodeAddition):
    """Adds a larger node, for a pod that would not fit on any eligible node even if that node were empty.

    The message names the node with the smallest shortage.
    """

    reason: ClassVar = "LargerNode"
    least: ClassVar = LARGER_NODE

    def steps(self, case: RemedyCase) -> Iterator[Step]:
        for like in node_templates(case, large_enough=False):
            amounts = enlarged_allocatable(case, like)
            names = [name for name, amount in amounts.items() if amount > like.allocatable.get(name, 0)]
            if not names:
                continue
            needed = {name: format_amount(name, amounts[name]) for name in names}
            has = {name: format_amount(name, like.allocatable.get(name, 0)) for name in names}
            by = {name: format_amount(name, amounts[name] - like.allocatable.get(name, 0)) for name in names}
            larger = sum(amounts[name] / max(like.allocatable.get(name, 0), 1) for name in names)
            yield Step(
                reason=self.reason,
                change=f"add a node with at least {amounts_text(needed)}: the closest one, {like.name}, "
                f"has only {amounts_text(has)} even if empty, {amounts_text(by)} too little",
                cost=LARGER_NODE + float(np.log2(1 + larger)),
                kind="Node",
                name=new_name(case, like),
                details={"like": like.name, "allocatable": needed, "missing": by},
                puts=new_node_objects(case, like, amounts),
            )
