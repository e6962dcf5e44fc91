"""Builds the JSON patch (RFC 6902) for changes to a node's taints, and computes when to retry it, without side effects.

A patch addresses list elements by index, so it tests that each element is still the observed one. A concurrent edit of
another taint is preserved. If a taint that the patch changes was edited, the API server refuses the whole patch.
Patches that add not-ready or unreachable also test the Ready condition, so that a node that has recovered in the
meantime is not tainted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.api.plan import rfc3339
from trimtab.kube.objects import Node, Taint
from trimtab.kube.retry import Backoff
from trimtab.tainting.lifecycle.node_conditions import READY, READY_KEYS, TaintChange

Operation = Mapping[str, Any]
"""An operation of a JSON patch."""

RETRY: Final = Backoff(initial=0.2, maximum=10.0)
"""Backoff after consecutive failures of one node."""


class TaintPatch(Struct, frozen=True):
    """All taint changes of one node.

    Attributes:
        node: name of the node.
        uid: UID of the node. The patch tests it, so that a recreated node with the same name is not modified.
        changes: the taint changes, additions first.
        operations: the operations of the JSON patch.
    """

    node: str
    uid: str
    changes: tuple[TaintChange, ...]
    operations: tuple[Operation, ...]


class PatchResult(enum.Enum):
    """The result of a patch."""

    WRITTEN = "NodeWriteResult"
    CONFLICT = "Conflict"  # a test of the JSON patch failed (422), or the write conflicted (409)
    GONE = "Gone"  # the node no longer exists
    FAILED = "Failed"  # no response, or another error


def retry_delay(outcome: PatchResult, failures: int, *, jitter: float = 0.0) -> float | None:
    """Return the seconds after which a node is planned again; ``None`` if its next watch event triggers that.

    Retries never stop. Upstream logs that it requeues a node, but does not requeue it.

    Args:
        outcome: the result of the node's patch.
        failures: number of previous consecutive failures of this node.
        jitter: a random number between 0 and 1, which spreads the retries of many nodes.
    """
    if outcome in (PatchResult.WRITTEN, PatchResult.GONE):
        return None
    return RETRY.delay(failures, random=lambda: jitter)


def patches(changes: Iterable[TaintChange], nodes: Mapping[str, Node]) -> tuple[TaintPatch, ...]:
    """Build one patch per node, sorted by name. Nodes that no longer exist are omitted.

    Args:
        changes: the taint changes of all nodes, each at most once.
        nodes: the nodes for which the changes were planned, by name.
    """
    by_node: dict[str, list[TaintChange]] = {}
    for change in changes:
        by_node.setdefault(change.node, []).append(change)
    return tuple(_patch(nodes[name], by_node[name]) for name in sorted(by_node) if name in nodes)


def _patch(node: Node, changes: list[TaintChange]) -> TaintPatch:
    ordered = sorted(changes, key=lambda each: (not each.add, each.taint.key, each.taint.effect))
    operations: list[Operation] = [_test("/metadata/uid", node.uid)]
    added = [each.taint for each in ordered if each.add]
    operations += _guards(node, added)
    operations += _additions(node, added)
    operations += _removals(node, [each.taint for each in ordered if not each.add])
    return TaintPatch(node.name, node.uid, tuple(ordered), tuple(operations))


def _guards(node: Node, added: list[Taint]) -> list[Operation]:
    """Return tests that the node has not recovered, so that the added taint still matches its Ready status."""
    keys = {taint.key for taint in added}
    for status, key in READY_KEYS.items():
        if key not in keys:
            continue
        for place, condition in enumerate(node.conditions):
            if condition.type == READY:
                path = f"/status/conditions/{place}"
                return [_test(f"{path}/type", READY), _test(f"{path}/status", status)]
    return []


def _additions(node: Node, added: list[Taint]) -> list[Operation]:
    if added and not node.taints:
        return [_test("/spec/taints", None), _add("/spec/taints", [_written(taint) for taint in added])]
    return [_add("/spec/taints/-", _written(taint)) for taint in added]


def _removals(node: Node, removed: list[Taint]) -> list[Operation]:
    """Return the removals, starting with the last index, so that no removal shifts the index of another.

    Additions are appended to the list and shift no index.
    """
    operations: list[Operation] = []
    gone = {(taint.key, taint.effect) for taint in removed}
    for place in range(len(node.taints) - 1, -1, -1):
        taint = node.taints[place]
        if (taint.key, taint.effect) in gone:
            path = f"/spec/taints/{place}"
            operations += [_test(f"{path}/key", taint.key), _test(f"{path}/effect", taint.effect)]
            operations.append({"op": "remove", "path": path})
    return operations


def _written(taint: Taint) -> dict[str, str]:
    written = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        written["value"] = taint.value
    if taint.time_added is not None:
        written["timeAdded"] = rfc3339(taint.time_added)
    return written


def _test(path: str, value: Any) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _add(path: str, value: Any) -> Operation:
    return {"op": "add", "path": path, "value": value}
