"""Pictures as inline SVG: colours by class, so that light, dark and paper each have their own; no inline styles.

Every picture has a title and a description, and its numbers are in a table beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trimtab.cli.report.markup import Html, element, join
from trimtab.cli.report.rows import BINS, Row

_LONGEST: Final = 27
_LETTER: Final = 7.4
"""A letter's width at most, of what names are made of: which font there will be is not known here."""

_LINE: Final = 22
_CELL: Final = 50.0
_GAP: Final = 16.0
_TOP: Final = 44.0

_BAR: Final = 150.0
"""How long a bar of 100 percent is; beyond it ends, with its number beside it."""


def heat_map(rows: Sequence[Row], resources: Sequence[str]) -> Html:
    """A line a row, for each resource a cell before and one after, the darker the fuller."""
    group, left = 2 * _CELL + _GAP, _margin(rows)
    width, height = left + group * len(resources), _TOP + _LINE * len(rows) + 4
    parts = [_heading(name, left + group * index) for index, name in enumerate(resources)]
    for line, row in enumerate(rows):
        y = _TOP + _LINE * line
        cells = [_label(row, left, y)]
        for index, name in enumerate(resources):
            x = left + group * index
            before, after = row.before[index], row.after[index]
            cells.append(_cell(row, name, "before", before, x, y))
            cells.append(_cell(row, name, "after", after, x + _CELL, y, goes=before is not None))
        parts.append(element("g", *cells))
    told = f"Requested in percent of allocatable, before and after the plan, of {', '.join(resources)}."
    return _picture("heat", "Heat map of nodes and resources", told, width, height, parts)


def _heading(name: str, x: float) -> Html:
    middle = x + _CELL
    return join(
        element("text", _short(name), x=middle, y=16.0, class_="head", text_anchor="middle"),
        element("text", "before", x=x + _CELL / 2, y=36.0, class_="sub", text_anchor="middle"),
        element("text", "after", x=x + 1.5 * _CELL, y=36.0, class_="sub", text_anchor="middle"),
    )


def _margin(rows: Sequence[Row]) -> float:
    """How much room the labels need."""
    return 20.0 + _LETTER * max((len(_short(row.label)) for row in rows), default=0)


def _label(row: Row, left: float, y: float) -> Html:
    told = element("title", row.detail)
    return element("text", told, _short(row.label), x=left - 10, y=y + 15, class_="label", text_anchor="end")


def _cell(row: Row, resource: str, when: str, value: float | None, x: float, y: float, *, goes: bool = False) -> Html:
    shown = "\u2013" if value is None else f"{value:.0f}"
    told = f"{value:.1f}%" if value is not None else "gone" if goes else "has none"
    heat = "none" if value is None else step(value)
    return element(
        "g",
        element("title", f"{row.detail}: {resource} {when} {told}"),
        element("rect", x=x + 1, y=y, width=_CELL - 2, height=_LINE - 2, rx=3, class_=f"h{heat}"),
        element("text", shown, x=x + _CELL / 2, y=y + 14.5, class_=f"t{heat}", text_anchor="middle"),
    )


def step(value: float) -> int:
    """Which of the colours a percentage has: 0 to 9 up to 100, 10 beyond."""
    if value > 100.0:
        return BINS - 1
    return min(int(value // 10), BINS - 2)


def bars(rows: Sequence[Row], resources: Sequence[str]) -> Html:
    """A line a node, for each resource two bars: before the thin one, after the thick one."""
    group, left = _BAR + 86, _margin(rows)
    width, height = left + group * len(resources), _TOP + _LINE * len(rows) + 4
    parts = []
    for index, name in enumerate(resources):
        x = left + group * index
        parts.append(element("text", _short(name), x=x, y=16.0, class_="head"))
        for percent in (0, 50, 100):
            at = x + _BAR * percent / 100
            parts.append(element("text", f"{percent}%", x=at, y=36.0, class_="sub", text_anchor="middle"))
            parts.append(element("line", x1=at, x2=at, y1=_TOP - 4, y2=height, class_="grid"))
    for line, row in enumerate(rows):
        y = _TOP + _LINE * line
        parts.append(_label(row, left, y))
        for index, name in enumerate(resources):
            parts.append(_pair(row, name, row.before[index], row.after[index], left + group * index, y))
    told = "For each node and resource: requested in percent of allocatable, before and after the plan."
    return _picture("bars", "Bars of nodes", told, width, height, parts)


def _pair(row: Row, resource: str, before: float | None, after: float | None, x: float, y: float) -> Html:
    if before is None:
        return element("text", "has none", x=x, y=y + 14, class_="sub")
    if after is None:
        return element(
            "g",
            element("title", f"{row.detail}: {resource} {before:.1f}% before, then gone"),
            element("rect", x=x, y=y + 1, width=_length(before), height=5, rx=1, class_="before"),
            element("text", f"{before:.0f} \u2192 gone", x=x + _BAR + 8, y=y + 14, class_="value"),
        )
    shown = f"{before:.0f} \u2192 {after:.0f}" if f"{before:.0f}" != f"{after:.0f}" else f"{after:.0f}"
    return element(
        "g",
        element("title", f"{row.detail}: {resource} {before:.1f}% before, {after:.1f}% after"),
        element("rect", x=x, y=y + 1, width=_length(before), height=5, rx=1, class_="before"),
        element("rect", x=x, y=y + 8, width=_length(after), height=9, rx=1, class_=_after(after)),
        element("text", shown, x=x + _BAR + 8, y=y + 14, class_="value"),
    )


def _after(value: float) -> str:
    return "after over" if value > 100.0 else "after"


def _length(percent: float) -> float:
    return max(0.5, _BAR * min(percent, 104.0) / 100.0)


_BIN: Final = 30.0
_HIGH: Final = 110.0
COLUMN: Final = 5
"""Histograms that stand one below the other, as high as the heat map beside them; more stand in two columns."""


def histograms(named: Sequence[tuple[str, Sequence[int], Sequence[int]]]) -> Html:
    """For each resource how many nodes are how full, before and after, in ranges of ten percent.

    Args:
        named: resource, counts before, counts after (:func:`~trimtab.cli.report.rows.histogram`).
    """
    group = _BIN * BINS + 46
    per_line = 1 if len(named) <= COLUMN else 2
    lines = -(-len(named) // per_line)
    width, tall = 10 + group * per_line, _HIGH + 94
    parts = []
    for index, (name, before, after) in enumerate(named):
        x, y = 10 + group * (index % per_line), tall * (index // per_line)
        parts.append(_histogram(name, before, after, x, y))
    told = "How many nodes are how full, by resource, before and after the plan, in ranges of ten percent."
    return _picture("bars", "Bars of nodes by utilization", told, width, max(1, lines) * tall, parts)


def _histogram(name: str, before: Sequence[int], after: Sequence[int], x: float, y: float) -> Html:
    most = max(1, *before, *after)
    bottom = y + 46 + _HIGH
    parts = [
        element("text", _short(name), x=x, y=y + 16, class_="head"),
        element("line", x1=x, x2=x + _BIN * BINS, y1=bottom, y2=bottom, class_="grid"),
    ]
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        left = x + _BIN * place
        over = place == BINS - 1
        reach = "above 100%" if over else f"{10 * place} to {10 * place + 10}%"
        columns = [element("title", f"{name} {reach}: {old} nodes before, {new} after")]
        for number, at, kind in ((old, left + 3, "before"), (new, left + 15, "after over" if over else "after")):
            high = _HIGH * number / most
            columns.append(element("rect", x=at, y=bottom - high, width=11, height=high, class_=kind))
        if new:
            top = bottom - _HIGH * new / most - 4
            columns.append(element("text", new, x=left + 20.5, y=top, class_="sub", text_anchor="middle"))
        parts.append(element("g", *columns))
        told = ">100" if over else f"{10 * place}"
        parts.append(
            element("text", told, x=left + (16 if over else 3), y=bottom + 15, class_="sub", text_anchor="middle")
        )
    parts.append(element("text", "percent of allocatable", x=x, y=bottom + 32, class_="sub"))
    return element("g", *parts)


def _picture(name: str, title: str, told: str, width: float, height: float, parts: Sequence[Html]) -> Html:
    return element(
        "svg",
        element("title", title, id=f"{name}-title"),
        element("desc", told, id=f"{name}-desc"),
        *parts,
        id=name,
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
    )


def _short(name: str) -> str:
    """The name with its middle left out where it is too long: both ends tell nodes apart."""
    if len(name) <= _LONGEST:
        return name
    half = (_LONGEST - 1) // 2
    return f"{name[:half]}\u2026{name[-half:]}"
