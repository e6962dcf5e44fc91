"""What stays and why, by reason."""

from __future__ import annotations

from typing import Final

from trimtab.api.plan import Kept, Plan
from trimtab.cli.report.excerpt import excerpt
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.parts import count, finder, note, section, table

HEADERS: Final = ("Pod or node", "On", "Strategy", "Message", "Policy")

OPEN: Final = 20
"""Rows up to which a group is open from the beginning."""


def kept_section(plan: Plan, most: int | None) -> Html:
    """All that was considered and left, or so many, shared alike between reasons; the rare reasons first.

    Args:
        plan: what was planned.
        most: how many are shown; ``None`` for all.
    """
    if not plan.kept:
        return section("kept", "Kept", note("Nothing that was considered had to stay."))
    shown = excerpt(plan.kept, lambda kept: kept.reason, most)
    numbers: dict[str, int] = {}
    for kept in plan.kept:
        numbers[kept.reason] = numbers.get(kept.reason, 0) + 1
    groups: dict[str, list[Kept]] = {}
    for _, kept in shown:
        groups.setdefault(kept.reason, []).append(kept)
    ordered = sorted(groups.items(), key=lambda group: (numbers[group[0]], group[0]))
    told = f"{count(len(plan.kept), 'candidate')} considered and left"
    if len(shown) < len(plan.kept):
        told += f", of which {len(shown):,} are shown, every reason's first ones; --all puts all into the page"
    return section(
        "kept",
        "Kept, and why",
        note(f"{told}."),
        table(
            "How many by reason",
            ("Reason", "Kept"),
            [(_link(reason), f"{numbers[reason]:,}") for reason, _ in ordered],
            numbers=(1,),
        ),
        finder("kept-groups", "kept", len(shown)),
        element("div", *(_group(reason, rows, numbers[reason]) for reason, rows in ordered), id="kept-groups"),
    )


def _link(reason: str) -> Html:
    return element("a", reason, href=f"#kept-{reason}")


def _group(reason: str, rows: list[Kept], number: int) -> Html:
    told = f"{number:,}" if len(rows) == number else f"{number:,}, of which {len(rows):,} are shown"
    made = table(f"Kept: {reason}", HEADERS, [_cells(kept) for kept in rows], long=3)
    heading = element("summary", element("h3", reason), element("span", told, class_="badge"))
    return element("details", heading, made, id=f"kept-{reason}", open=number <= OPEN)


def _cells(kept: Kept) -> list[str]:
    name = f"{kept.namespace}/{kept.name}" if kept.namespace else kept.name
    named = name if kept.kind == "Pod" else f"{kept.kind} {name}"
    return [named, kept.node, kept.strategy, kept.message, kept.policy]
