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
GROUPS = {"section", "details"}


def reported(things: Iterable[Any], strategies: dict[str, Any], *, cluster: str = "test", **spec: Any) -> Report:
    """The report of one policy's plan for a cluster of builders."""
    snapshot, policies = Snapshot(built(things)), [policy(strategies, **spec)]
    made, measures = plan_and_measure(snapshot, policies, now=NOW)
    return report(made, measures, snapshot, policies, cluster=cluster)


class Reader(HTMLParser):
    """A page taken apart: every element must be closed, and in order.

    Attributes:
        tables: by the id of the section or group that contains them, the cells of each table's rows.
        sections: by id, the text of each section.
        tags: every tag with its attributes.
        text: all of the text but styles and scripts.
        ids: of the elements.
    """

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[list[str]]]] = {}
        self.sections: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.ids: list[str] = []
        self._open: list[str] = []
        self._rows: list[list[str]] = []
        self._groups: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"{tag} has an attribute twice"
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
            self.tables.setdefault(self._groups[-1], []).append(self._rows)
        elif tag in GROUPS:
            self._groups.append(dict(attrs).get("id") or self._groups[-1])
        elif tag == "tr":
            self._rows.append([])
        elif tag in {"td", "th"}:
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} closes something else"
        if tag in GROUPS:
            self._groups.pop()
        elif tag in {"td", "th"}:
            self.sections[self._groups[0]] += "\t"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in {"style", "script"}:
            return
        self.text += data
        if self._groups:
            self.sections[self._groups[0]] = self.sections.get(self._groups[0], "") + data
        if self._rows and self._rows[-1] and {"td", "th"} & set(self._open):
            self._rows[-1][-1] += data

    def close(self) -> None:
        super().close()
        assert not self._open, f"left open: {self._open}"
        self.sections = {name: one_line_each(text) for name, text in self.sections.items()}


def one_line_each(text: str) -> str:
    """The text without empty lines and indentation; cells, which end with a tab, are separated by ``|``."""
    lines = (line.strip().replace("\t", " | ") for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def read(content: str) -> Reader:
    """The page, taken apart."""
    reader = Reader()
    reader.feed(content)
    reader.close()
    return reader


def read_page(content: Report, *, everything: bool = False) -> Reader:
    """A report's page, taken apart."""
    return read(page(content, everything=everything))
