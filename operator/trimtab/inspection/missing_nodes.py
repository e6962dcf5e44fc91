"""Finds pods on nodes that a snapshot lacks. Planners ignore such pods, so commands report them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from trimtab.cluster.snapshot import Snapshot


def pods_without_node(snapshot: Snapshot) -> dict[str, Any]:
    """Return the pods that are bound to nodes which the snapshot lacks: their number, and the names of the nodes.

    A file may lack nodes, for example because only a page of them was saved. In a live cluster, a node may be deleted
    shortly before its pods.
    """
    nodes: Counter[str] = Counter()
    for node in snapshot.bound_nodes() - snapshot.nodes.slot_of.keys():
        nodes[node] += sum(not pod.terminal for _, pod in snapshot.items_on(node))
    found = {name: number for name, number in sorted(nodes.items()) if number}
    return {"pods": sum(found.values()), "nodes": list(found)}
