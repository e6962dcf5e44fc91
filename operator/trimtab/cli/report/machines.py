"""Nodes that are added and nodes that go, with the pods they are about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from trimtab.api.plan import Plan
from trimtab.api.reasons import PENDING_PODS
from trimtab.autoscaling.scale_up.told import STRATEGY
from trimtab.cli.report.content import Report, removals, scale_ups
from trimtab.cli.report.excerpt import excerpt
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.parts import count, note, section, table

GROWING: Final = ("Group", "From", "To", "Pods", "Reason", "Message")
GOING: Final = ("Node", "Group", "Pods to move", "Reason", "Message")
HELPED: Final = ("Pod", "Group")
MOVED: Final = ("Pod", "From", "To")


def machines_section(report: Report, most: int | None) -> Html:
    """Groups that grow, nodes that go, and what becomes of pods that wait.

    Args:
        report: whose plan is about nodes.
        most: how many pods each list shows; ``None`` for all.
    """
    plan = report.plan
    up, down = scale_ups(plan), removals(plan)
    parts = [note(_told(report)), _pending(plan)]
    if up:
        rows: list[list[str | int]] = [
            [each.group, each.from_, each.to, len(each.pods), each.reason, each.message] for each in up
        ]
        parts.append(table("Groups that grow", GROWING, rows, numbers=(1, 2, 3), long=5))
        parts.append(
            _pods("Pods that get new nodes", HELPED, [(pod, each.group) for each in up for pod in each.pods], most)
        )
    if down:
        cells: list[list[str | int]] = [
            [each.node, each.group, len(each.moves), each.reason, each.message] for each in down
        ]
        parts.append(table("Nodes that go, in order", GOING, cells, numbers=(2,), long=4))
        moved = [(move.pod, each.node, move.target) for each in down for move in each.moves]
        if moved:
            parts.append(_pods("Where the pods of nodes that go have places", MOVED, moved, most))
    return section("machines", "Nodes added and removed", *parts)


def _told(report: Report) -> str:
    up, down = scale_ups(report.plan), removals(report.plan)
    before = len(report.usage.names)
    added, gone = sum(each.to - each.from_ for each in up), len(down)
    if not added and not gone:
        return f"{count(before, 'node')}; none is added and none goes. Why nodes stay is told under Kept."
    after = f"{count(before + added - gone, 'node')} once all of it is done"
    return (
        f"{count(before, 'node')} now, {added:,} asked for, {gone:,} removed: {after}. "
        "New nodes are not in the pictures below; why other nodes stay is told under Kept."
    )


def _pending(plan: Plan) -> Html:
    """Pods without a node, by what becomes of them."""
    helped = sum(len(each.pods) for each in scale_ups(plan))
    left = Counter(kept.reason for kept in plan.kept if kept.kind == "Pod" and kept.strategy == STRATEGY)
    rows: list[list[str | Html]] = [[PENDING_PODS, f"{helped:,}"]] if helped else []
    rows += [[element("a", reason, href=f"#kept-{reason}"), f"{number:,}"] for reason, number in sorted(left.items())]
    if not rows:
        return note("No pod waits for a node.")
    return table("Pods without a node, by why", ("Reason", "Pods"), rows, numbers=(1,))


def _pods(caption: str, headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], most: int | None) -> Html:
    shown = excerpt(rows, lambda row: row[1], most)
    told = f"{caption}: {len(rows):,}"
    if len(shown) < len(rows):
        told += f", of which {len(shown):,} are shown; --all puts all into the page"
    return element("details", element("summary", told), table(caption, headers, [row for _, row in shown]))
