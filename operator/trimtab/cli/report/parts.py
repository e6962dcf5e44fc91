"""Pieces that several sections are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.cli.report.markup import Html, Part, element, join


def section(name: str, heading: str, *parts: Part) -> Html:
    """A section with its heading, which names it to those who hear the page."""
    return element(
        "section", element("h2", heading, id=f"{name}-heading"), *parts, id=name, aria_labelledby=f"{name}-heading"
    )


def table(
    caption: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[Part]],
    *,
    numbers: Sequence[int] = (),
    named: int = 0,
    long: int | None = None,
    name: str | None = None,
) -> Html:
    """A table that can be scrolled sideways, also by keyboard.

    Args:
        caption: what it shows; read out, and shown on paper.
        headers: of the columns.
        rows: their cells.
        numbers: the columns that are numbers.
        named: the column whose cells name their rows.
        long: the column with sentences.
        name: its id.
    """
    kinds = ["number" if column in numbers else "long" if column == long else None for column in range(len(headers))]
    head = element("tr", *(element("th", text, scope="col", class_=kinds[place]) for place, text in enumerate(headers)))
    body = [
        element(
            "tr",
            *(
                element("th", cell, scope="row", class_=kinds[place])
                if place == named
                else element("td", cell, class_=kinds[place])
                for place, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    made = element("table", element("caption", caption), element("thead", head), element("tbody", *body), id=name)
    return element("div", made, class_="scroll", role="region", aria_label=caption, tabindex=0)


def finder(target: str, what: str, number: int, choices: Sequence[tuple[str, str, Iterable[str]]] = ()) -> Html:
    """A search field and choices above a table; hidden until the script shows them, for without it they do nothing.

    Args:
        target: the id of what holds the rows.
        what: what the rows are, in the plural.
        number: of rows.
        choices: label, the column of the rows' cells counted from 0, and the values to choose from.
    """
    fields = [
        element(
            "label",
            f"Search {what}",
            element("input", type="search", data_search=True, placeholder="words, all of which a row has"),
        )
    ]
    for label, column, values in choices:
        options = [element("option", "all", value=""), *(element("option", value, value=value) for value in values)]
        fields.append(element("label", label, element("select", *options, data_column=column)))
    fields.append(element("output", f"{number} {what}", data_told=what))
    return element("form", *fields, class_="finder", data_finder=target, hidden=True, role="search", aria_label=what)


def count(number: int, one: str, many: str | None = None) -> str:
    """``1 pod``, ``2 pods``, ``27,553 pods``."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def note(*parts: Part) -> Html:
    """A paragraph of lesser weight."""
    return element("p", *parts, class_="note")


def lines(*parts: Html) -> Html:
    """Blocks one below the other."""
    return join(*parts)
