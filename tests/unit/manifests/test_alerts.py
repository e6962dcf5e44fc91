"""The alerts of the chart are those that the documentation describes."""

from __future__ import annotations

import re

import yaml
from tools.generate import CHART, ROOT

RULES = yaml.safe_load((CHART / "alerts/trimtab.yaml").read_text())
DOCUMENTED = (ROOT / "docs/troubleshooting.md").read_text().split("## Alerts")[1]
LEFT_OUT = {
    "a policy with `interval: 5m` has completed no cycle for 30 minutes",
    "more evictions than expected",
    "watches of the taint manager are stalled",
    "many nodes are under pressure",
}
"""Alerts whose expression depends on the policies or the mode of a cluster."""


def test_every_documented_alert_is_in_the_chart_with_its_expression() -> None:
    rows = re.findall(r"^\| (?!Alert |---)(.*?) \| `(.*?)`", DOCUMENTED, re.MULTILINE)
    expected = {(f"trimtab: {text}", expr.replace("\\|", "|")) for text, expr in rows if text not in LEFT_OUT}

    assert {(rule["annotations"]["summary"], rule["expr"]) for rule in RULES} == expected


def test_names_are_unique_and_no_text_is_a_template() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    assert "{{" not in (CHART / "alerts/trimtab.yaml").read_text()
