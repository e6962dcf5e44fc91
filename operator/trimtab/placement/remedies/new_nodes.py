"""Nodes that could be added: like ones that are there, but new, and so empty but for what DaemonSets put on each."""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from trimtab.cluster.resources import MEMORY, IntArray
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import CSINode, KubeObject, Node
from trimtab.kube.rules.node_labels import HOSTNAME, REGION, ZONE
from trimtab.placement.remedies.amounts import wanted
from trimtab.placement.remedies.framework import Case
from trimtab.placement.remedies.selectors import cheapest_to_meet
from trimtab.placement.remedies.taint_sets import of_the_system, unwelcome
from trimtab.placement.remedies.victims import bound_to_node

_PLACES: Final = frozenset((ZONE, REGION))
_OF_PLACE: Final = frozenset(("VolumeBinding", "VolumeZone"))
"""Where such a rule fails, it fails on every node with the same labels."""

_OF_SURROUNDINGS: Final = frozenset(("InterPodAffinity", "PodTopologySpread"))
"""Here too if the rule goes by zones, but not if it goes by hosts."""

MOST: Final = 8
"""So many shapes are tried."""


def shapes(case: Case, *, large_enough: bool) -> list[Node]:
    """Nodes whose like, but new, may take the pod; one of each shape, the smallest first.

    Those are left out that the pod does not choose or tolerate, faults and cordons of this very node aside.

    Args:
        case: the case.
        large_enough: whether only those count whose allocatable amounts hold the pod.
    """
    nodes, pod = case.snapshot.nodes, case.pod
    welcome = [all(map(of_the_system, unwelcome(taints, pod))) for taints in nodes.taint_sets]
    suits = nodes.used & np.array(welcome)[nodes.taints]
    suits &= cheapest_to_meet(case, lambda wish: np.inf if wish.requirement.key != HOSTNAME else 0.0) == 0
    second = np.zeros(nodes.capacity, dtype=np.bool_)
    for rule, failing in case.placer.failing(pod):
        if rule.name in _OF_PLACE:
            suits &= ~failing
        elif rule.name in _OF_SURROUNDINGS:
            second |= failing
    columns, amounts = wanted(case)
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
    return [nodes.node(slot) for slot in slots[np.sort(first)[:MOST]].tolist()]


def fresh(case: Case, like: Node, allocatable: ResourceList | None = None) -> tuple[KubeObject, ...]:
    """A new node of that shape, with what comes with each node: its DaemonSets' pods and its volume drivers.

    Args:
        case: the case.
        like: the node whose shape it has.
        allocatable: its amounts, where they are others.
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
        taints=tuple(taint for taint in like.taints if not of_the_system(taint)),
        allocatable=like.allocatable if allocatable is None else allocatable,
        images=ResourceList(),
    )
    there = [pod for pod in case.snapshot.pods_on(like.name) if bound_to_node(pod) and not pod.terminal]
    pods = [replace(pod, name=f"{pod.name}-{name}", uid=f"{pod.uid}-{name}", node=name) for pod in there]
    drivers = case.snapshot.shelves.of(CSINode).get(like.name)
    return (node, *pods, *(() if drivers is None else (replace(drivers, name=name),)))


def new_name(case: Case, like: Node) -> str:
    """A name that no node has: it only has to tell the new node from the others."""
    name = f"new-{like.name}"
    while name in case.snapshot.nodes.slot_of:
        name = f"new-{name}"
    return name


def enlarged(case: Case, like: Node) -> ResourceList:
    """The node's amounts, raised so that the pod fits beside the DaemonSets' pods."""
    names = case.snapshot.nodes.axis.names
    held = [case.snapshot.row(pod.spec) for pod in case.snapshot.pods_on(like.name) if bound_to_node(pod)]
    amounts = dict(like.allocatable)
    for column, amount in zip(*(array.tolist() for array in wanted(case)), strict=True):
        needed = amount + sum(int(row[column]) for row in held)
        amounts[names[column]] = max(amounts.get(names[column], 0), needed)
    return ResourceList(amounts)


def _shape(case: Case) -> IntArray:
    """A number per slot, equal where new nodes like it would be alike to the pod: int64, shape (capacity,)."""
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
