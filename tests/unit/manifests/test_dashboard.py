"""The Grafana dashboard asks for metrics and labels that there are, and its panels lie side by side."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from tools.generate import CHART
from tools.generate.reference import metrics

from trimtab.disruption import outcome

DASHBOARD: dict[str, Any] = json.loads((CHART / "dashboards" / "trimtab.json").read_text(encoding="utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
LABELS = {metric.name: {*metric.labels, "job", "instance"} for metric in metrics()}
LABELS["process_resident_memory_bytes"] = {"job", "instance"}  # the Prometheus client's own
SERIES = re.compile(r"\b(?P<name>(?:trimtab|process)_[a-z_]+)(?:\{(?P<matchers>[^}]*)\})?")


def expressions() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield f"{panel['title']}: {target['refId']}", target
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            inner, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            yield f"${variable['name']}", {"expr": f"count by ({label}) ({inner})"}


def labels_of(name: str) -> set[str] | None:
    """The labels of a series, None where no metric has this name; a histogram has several series."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base in LABELS and base != name:
        return LABELS[base] | {"le"}
    return LABELS.get(name)


def unknown_names(target: dict[str, Any]) -> set[str]:
    """The metrics and labels of a query and its legend that do not exist."""
    expression = target["expr"]
    series = list(SERIES.finditer(expression))
    labels = {each["name"]: labels_of(each["name"]) for each in series}
    missing = {name for name, known in labels.items() if known is None}
    if missing or not series:
        return missing or {expression}
    common = set.intersection(*(known for known in labels.values() if known))
    grouped = {name.strip() for names in re.findall(r"\bby \(([^)]*)\)", expression) for name in names.split(",")}
    shown = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
    matched = {
        label
        for each in series
        for label in re.findall(r"(\w+)\s*[=!]~?\s*\"", each["matchers"] or "")
        if label not in (labels[each["name"]] or ())
    }
    return matched | (grouped - common) | (shown - (grouped or common))


def test_every_metric_and_label_of_a_query_exists() -> None:
    queries = list(expressions())
    assert len(queries) > 70
    assert {title: names for title, target in queries if (names := unknown_names(target))} == {}


def test_queried_results_exist() -> None:
    results = {outcome.EVICTED, outcome.REFUSED, outcome.GONE, outcome.SKIPPED, outcome.FAILED}
    results |= {"Completed", "InvalidPolicy", "Failed"}
    text = json.dumps(DASHBOARD)
    requested = {word for words in re.findall(r'result=~?\\"([^"\\]+)\\"', text) for word in words.split("|")}
    assert {"Evicted", "Failed"} <= requested <= results


@pytest.mark.parametrize(
    "controller", ["descheduler", "autoscaler", "tainting", "scheduler", "admission", "node_pressure"]
)
def test_every_metric_of_a_controller_is_shown(controller: str) -> None:
    text = json.dumps(DASHBOARD)
    ours = [name for name in LABELS if name.startswith(f"trimtab_{controller}_")]
    assert ours
    assert [name for name in ours if name not in text] == []


def test_panels_have_descriptions_and_use_the_selected_data_source() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_overlap() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        return {(column, row) for column in columns for row in rows}

    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
