"""The moves in the order in which they would be made, to be searched."""

from __future__ import annotations

from typing import Final

from trimtab.api.plan import SURGE, Evict, Plan
from trimtab.cli.report.excerpt import excerpt
from trimtab.cli.report.markup import Html
from trimtab.cli.report.parts import count, finder, note, section, table

HEADERS: Final = ("#", "Pod", "From", "To", "Strategy", "Reason", "Message", "Policy")


def moves_section(plan: Plan, most: int | None) -> Html:
    """Every move, or so many of them, shared alike between strategies and reasons.

    Args:
        plan: what was planned.
        most: how many are shown; ``None`` for all.
    """
    if not plan.actions:
        return section("moves", "Moves", note("No pod is moved."))
    shown = excerpt(plan.actions, lambda action: f"{action.policy}/{action.strategy}/{action.reason}", most)
    told = f"In the order in which they would be made. {count(len(plan.actions), 'pod')}"
    if len(shown) < len(plan.actions):
        told += f", of which {len(shown):,} are shown, every strategy's first ones; --all puts all into the page"
    rows: list[list[str | int]] = [[place + 1, *_cells(action)] for place, action in shown]
    choices = [
        (label, str(column), sorted({str(row[column]) for row in rows}))
        for label, column in (("Strategy", 4), ("Reason", 5), ("Policy", 7))
    ]
    choices = [choice for choice in choices if len(choice[2]) > 1]
    return section(
        "moves",
        "Moves",
        note(f"{told}."),
        finder("moves-table", "moves", len(rows), choices),
        table("Moves", HEADERS, rows, numbers=(0,), named=1, long=6, name="moves-table"),
    )


def _cells(action: Evict) -> list[str]:
    if not action.target:
        target = "removed"
    elif action.target == action.node:
        target = f"{action.target} (anew)"
    else:
        target = action.target
    if action.how == SURGE:
        target = f"{target} (surge)"
    return [action.key, action.node, target, action.strategy, action.reason, action.message, action.policy]
