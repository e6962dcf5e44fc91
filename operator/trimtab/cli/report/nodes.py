"""How full nodes are before and after: a heat map, bars, and the numbers as a table."""

from __future__ import annotations

import numpy as np

from trimtab.cli.report.content import Usage
from trimtab.cli.report.markup import Html, element
from trimtab.cli.report.parts import count, note, section, table
from trimtab.cli.report.pictures import bars, heat_map, histograms
from trimtab.cli.report.rows import BINS, Row, histogram, rows

BUSIEST = 25
"""Nodes that a large cluster's page names one by one: those with the most moves."""


def nodes_section(usage: Usage) -> Html:
    """The pictures, and beside them what they show in numbers."""
    if not usage.names:
        return section("nodes", "Nodes", note("The cluster has no nodes."))
    shown = rows(usage)
    grouped = len(usage.names) > len(shown)
    told = "Requested in percent of allocatable, as the scheduler counts it."
    if usage.going:
        told += f" {count(len(usage.going), 'node goes', 'nodes go')}, and have nothing after."
    if grouped:
        told += (
            f" {len(usage.names):,} nodes, {shown[0].nodes} a line, the fullest first; a cell is the mean of its nodes."
        )
    parts = [
        note(told),
        element(
            "div",
            _framed("Heat map", _key(), heat_map(shown, usage.resources)),
            _framed("Bars", _legend(), _histograms(usage) if grouped else bars(shown, usage.resources)),
            class_="pictures",
        ),
        _numbers(usage, shown, grouped=grouped),
    ]
    if grouped:
        parts += [element("h3", "Nodes with the most moves"), _busiest(usage)]
    return section("nodes", "Nodes before and after", *parts)


def _framed(name: str, key: Html, picture: Html) -> Html:
    scrolled = element("div", picture, class_="scroll", role="region", aria_label=name, tabindex=0)
    return element("div", element("h3", name), key, scrolled, class_="picture")


def _histograms(usage: Usage) -> Html:
    return histograms(
        [
            (name, histogram(usage.before[:, column]), histogram(usage.after[:, column]))
            for column, name in enumerate(usage.resources)
        ]
    )


def _key() -> Html:
    steps = [
        element(
            "li",
            element(
                "svg",
                element("rect", width=14, height=14, rx=3, class_=f"h{step}"),
                width=14,
                height=14,
                aria_hidden="true",
            ),
            f" {10 * step}\u2013{10 * step + 10}%" if step < BINS - 1 else " above 100%",
        )
        for step in range(BINS)
    ]
    return element("ul", *steps, class_="key", aria_label="Colours of the heat map")


def _legend() -> Html:
    kinds = [
        element(
            "li",
            element(
                "svg", element("rect", width=14, height=14, rx=2, class_=kind), width=14, height=14, aria_hidden="true"
            ),
            f" {told}",
        )
        for kind, told in (("before", "before"), ("after", "after"), ("after over", "after, above 100%"))
    ]
    return element("ul", *kinds, class_="key", aria_label="Colours of the bars")


def _numbers(usage: Usage, shown: tuple[Row, ...], *, grouped: bool) -> Html:
    first = "Nodes by fullness" if grouped else "Node"
    cells: list[list[str | int]] = [
        [row.label if grouped else row.detail, row.leaving, row.arriving, *_changes(row)] for row in shown
    ]
    made = _table("Pods moved and requests in percent, before and after", first, usage, cells)
    return element("details", element("summary", "The numbers as a table"), made)


def _busiest(usage: Usage) -> Html:
    order = np.argsort(-(usage.leaving + usage.arriving), kind="stable")[:BUSIEST].tolist()
    cells: list[list[str | int]] = []
    for index in order:
        if usage.leaving[index] + usage.arriving[index]:
            before, after = usage.before[index].tolist(), usage.after[index].tolist()
            changes = [_change(*pair) for pair in zip(before, after, strict=True)]
            cells.append([usage.names[index], int(usage.leaving[index]), int(usage.arriving[index]), *changes])
    if not cells:
        return note("No pod moves.")
    return _table(f"The {len(cells)} nodes with the most moves", "Node", usage, cells)


def _table(caption: str, first: str, usage: Usage, cells: list[list[str | int]]) -> Html:
    headers = [first, "Pods away", "Pods to it", *usage.resources]
    return table(caption, headers, cells, numbers=range(1, len(headers)))


def _changes(row: Row) -> list[str]:
    nothing = float("nan")
    pairs = zip(row.before, row.after, strict=True)
    return [_change(nothing if old is None else old, nothing if new is None else new) for old, new in pairs]


def _change(before: float, after: float) -> str:
    if np.isnan(before):
        return "\u2013"
    if np.isnan(after):
        return f"{before:.1f} \u2192 gone"
    return f"{before:.1f} \u2192 {after:.1f}" if before != after else f"{after:.1f}"
