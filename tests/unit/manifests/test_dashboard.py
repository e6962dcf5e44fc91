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


def expressions() -> Iterator[Any]:
    for panel in PANELS:
        for target in panel["targets"]:
            yield pytest.param(target, id=f"{panel['title']}: {target['refId']}")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            inner, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"]).groups()
            yield pytest.param({"expr": f"count by ({label}) ({inner})"}, id=f"${variable['name']}")


def known(name: str) -> set[str]:
    """The labels of a series; those of histograms come in parts."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    if base in LABELS and base != name:
        return LABELS[base] | {"le"}
    assert name in LABELS, f"no metric is called {name}"
    return LABELS[name]


@pytest.mark.parametrize("target", list(expressions()))
def test_every_metric_and_every_label_that_is_asked_for_exists(target: dict[str, Any]) -> None:
    expression = target["expr"]
    found = list(SERIES.finditer(expression))
    assert found, "it asks for nothing of ours"
    labels = set.intersection(*(known(each["name"]) for each in found))
    for each in found:
        assert set(re.findall(r"(\w+)\s*[=!]~?\s*\"", each["matchers"] or "")) <= known(each["name"])
    grouped = {name.strip() for names in re.findall(r"\bby \(([^)]*)\)", expression) for name in names.split(",")}
    shown = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
    assert grouped <= labels
    assert shown <= (grouped or labels)


def test_results_that_are_asked_for_exist() -> None:
    results = {outcome.EVICTED, outcome.REFUSED, outcome.GONE, outcome.SKIPPED, outcome.FAILED}
    results |= {"Completed", "InvalidPolicy", "Failed"}
    text = json.dumps(DASHBOARD)
    asked = {word for words in re.findall(r'result=~?\\"([^"\\]+)\\"', text) for word in words.split("|")}
    assert {"Evicted", "Failed"} <= asked <= results


@pytest.mark.parametrize("controller", ["descheduler", "autoscaler", "tainting"])
def test_every_metric_of_a_controller_is_shown(controller: str) -> None:
    text = json.dumps(DASHBOARD)
    ours = [name for name in LABELS if name.startswith(f"trimtab_{controller}_")]
    assert ours
    assert [name for name in ours if name not in text] == []


def test_panels_say_what_they_show_and_take_their_data_from_the_source_that_is_chosen() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_no_panel_covers_another_one() -> None:
    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        return {(column, row) for column in columns for row in rows}

    for one, other in combinations(DASHBOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
