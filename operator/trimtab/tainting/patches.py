"""What is written to a node for changes of its taints: one guarded JSON patch (RFC 6902), and when to try again.

The patch builds on places in lists, and each place is tested to hold what was seen there: an edit of another taint in
between is kept, and one of ours makes the API server refuse the whole. Not-ready and unreachable are guarded by the
Ready condition too, so that a node that has recovered in between does not get one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.api.plan import rfc3339
from trimtab.kube.objects import Node, Taint
from trimtab.kube.retry import Backoff
from trimtab.tainting.conditions import READY, READY_KEYS, TaintChange

Operation = Mapping[str, Any]
"""An operation of a JSON patch."""

RETRY: Final = Backoff(initial=0.2, maximum=10.0)
"""How long to wait after failures of one node in a row."""


class TaintPatch(Struct, frozen=True):
    """All changes of one node's taints.

    Attributes:
        node: its name.
        uid: whose it must be: a new node of the same name is another one.
        changes: what is to be changed, those that add first.
        operations: the body of ``application/json-patch+json``.
    """

    node: str
    uid: str
    changes: tuple[TaintChange, ...]
    operations: tuple[Operation, ...]


class Outcome(enum.Enum):
    """What became of a patch."""

    WRITTEN = "Written"
    CONFLICT = "Conflict"  # a test did not hold (422 of a JSON patch, or 409)
    GONE = "Gone"  # there is no such node any more
    FAILED = "Failed"  # no answer, or another error


def look_again(outcome: Outcome, failures: int, *, jitter: float = 0.0) -> float | None:
    """Seconds after which a node is to be planned anew; ``None`` where its next change does that.

    Nothing is ever given up: upstream says in its log that it requeues a node and does not.

    Args:
        outcome: of its patch.
        failures: how many went before in a row, of this node.
        jitter: between 0 and 1, drawn by the caller: failures of many nodes are spread over time.
    """
    if outcome in (Outcome.WRITTEN, Outcome.GONE):
        return None
    return RETRY.delay(failures, random=lambda: jitter)


def patches(changes: Iterable[TaintChange], nodes: Mapping[str, Node]) -> tuple[TaintPatch, ...]:
    """One patch a node, by name; of nodes that are gone none.

    Args:
        changes: of any nodes, each at most once.
        nodes: as they were planned on, by name.
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
    """That the node has not recovered: what the taint says is still its Ready status."""
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
    """From the last place to the first, so that no removal shifts the place of another; what was added is behind."""
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
