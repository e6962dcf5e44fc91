"""Taints that are put on nodes and taken off, and pods that go because of taints, with their times."""

from __future__ import annotations

from typing import Final

from trimtab.api.node_taint import NodeTainting, TaintNode
from trimtab.api.plan import Plan
from trimtab.api.pod_deletion import BY_EVICTION, Delete
from trimtab.cli.report.excerpt import excerpt
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.parts import count, lines, note, section, table

NODES: Final = ("Node", "Action", "Taint", "Reason", "Why")
PODS: Final = ("Due", "Pod", "Node", "Reason", "Why")


def taints_section(plan: Plan, most: int | None) -> Html:
    """What is done to nodes' taints, where nodes are planned, and when each pod goes whose time is limited.

    Args:
        plan: with deletions, which may be none.
        most: rows that each table shows, some of each node; ``None`` for all.
    """
    nodes = None if plan.taints is None else _nodes(plan.taints, most)
    return section("taints", "Taints", nodes, _pods(plan.deletions or (), most))


def _nodes(changes: tuple[NodeTainting, ...], most: int | None) -> Html:
    if not changes:
        return note("No taint is put on a node or taken off. Nodes that have failed and wait are told under Kept.")
    shown = excerpt(changes, lambda each: each.node, most)
    put = sum(isinstance(each, TaintNode) for each in changes)
    of = count(len({each.node for each in changes}), "node")
    told = (
        f"{count(put, 'taint')} put on and {len(changes) - put:,} taken off, of {of}{_left(len(shown), len(changes))}."
    )
    rows = [_node(each) for _, each in shown]
    return lines(element("p", told), table("Taints put on nodes and taken off", NODES, rows, long=4))


def _node(each: NodeTainting) -> tuple[str, ...]:
    action = str(each.__struct_config__.tag)
    return each.node, action, f"{each.taint.key}:{each.taint.effect}", each.reason, each.message


def _pods(going: tuple[Delete, ...], most: int | None) -> Html:
    if not going:
        return note("No pod has to leave its node because of a taint.")
    shown = excerpt(going, lambda each: each.node, most)
    of = count(len({each.node for each in going}), "tainted node")
    told = f"{count(len(going), 'pod')} on {of}{_left(len(shown), len(going))}."
    caption = "Pods that go because of taints, the first first"
    rows = [_pod(each) for _, each in shown]
    return lines(element("p", told), table(caption, PODS, rows, named=1, long=4))


def _pod(each: Delete) -> tuple[str | Html, ...]:
    pod = f"{each.namespace}/{each.pod}" + (" (evict)" if each.how == BY_EVICTION else "")
    return element("time", each.due, datetime=each.due), pod, each.node, each.reason, each.message


def _left(shown: int, there: int) -> str:
    return "" if shown == there else f", of which {shown:,} are shown; --all puts all into the page"
