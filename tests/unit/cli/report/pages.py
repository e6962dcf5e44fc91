"""Pages in a line, and reading them back."""

from __future__ import annotations

from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any

from tests.unit.descheduling.planning import NOW, built, policy
from trimtab.cli.report import Report, page, report
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.planner import plan_and_measure

VOID = {"meta", "link", "input", "br", "col"}


def reported(things: Iterable[Any], strategies: dict[str, Any], *, cluster: str = "test", **spec: Any) -> Report:
    """The report of one policy's plan for a cluster of builders."""
    snapshot, policies = Snapshot(built(things)), [policy(strategies, **spec)]
    made, measures = plan_and_measure(snapshot, policies, now=NOW)
    return report(made, measures, snapshot, policies, cluster=cluster)


class Reader(HTMLParser):
    """A page taken apart: every element must be closed, and in order.

    Attributes:
        tables: by caption, the rows' cells.
        tags: every tag with its attributes.
        text: all of the text but styles and scripts.
        ids: of the elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.ids: list[str] = []
        self._open: list[str] = []
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} closes something else"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in {"style", "script"}:
            return
        self.text += data
        if "caption" in self._open:
            self.tables[data] = self._rows
        elif self._rows and self._rows[-1] and {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data

    def close(self) -> None:
        super().close()
        assert not self._open, f"left open: {self._open}"


def read(content: str) -> Reader:
    """The page, taken apart."""
    reader = Reader()
    reader.feed(content)
    reader.close()
    return reader


def read_page(content: Report, *, everything: bool = False) -> Reader:
    """A report's page, taken apart."""
    return read(page(content, everything=everything))
