"""The alerts of the chart are those that the documentation describes."""

from __future__ import annotations

import re

import msgspec
import yaml
from tools.generate import CHART, ROOT

from trimtab.admission.webhooks import Endpoint, webhooks
from trimtab.api.placement_admission import PlacementAdmissionSpec

RULES = yaml.safe_load((CHART / "alerts/trimtab.yaml").read_text())
EXPRESSIONS = {rule["alert"]: rule["expr"] for rule in RULES}
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


def test_fail_open_alert_concerns_the_webhooks_that_enforce_rules_on_pods() -> None:
    rules = {"podNodeConstraints": {"failurePolicy": "Fail"}, "podNodeSelector": {"failurePolicy": "Ignore"}}
    spec = msgspec.convert(rules, PlacementAdmissionSpec)
    found = webhooks(spec, Endpoint(url="https://localhost"), b"")
    names = {each["name"] for each in (*found.mutating, *found.validating)}
    [pattern] = re.findall(r'name=~"(.*?)"', EXPRESSIONS["TrimtabAdmissionFailOpen"])

    concerned = {name.partition(".")[0] for name in names if re.fullmatch(pattern, name)}
    assert {name.partition(".")[0] for name in names} - concerned == {"resources", "warn"}
    assert concerned >= {"mutate-ignore", "validate-fail"}


def test_alert_of_missing_replicas_ends_soon_after_admission_was_disabled() -> None:
    [minutes] = re.findall(r"\[(\d+)m]", EXPRESSIONS["TrimtabAdmissionNoReplica"])
    assert int(minutes) <= 30


def test_names_are_unique_and_no_text_is_a_template() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names)
    assert "{{" not in (CHART / "alerts/trimtab.yaml").read_text()
