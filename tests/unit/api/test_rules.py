"""Rules that only Python can tell; those that the API server knows as well are in test_decode."""

from __future__ import annotations

import pytest

from tests import policies
from tests.fixtures.golden import Golden
from trimtab.api.decode import read_policy
from trimtab.api.rules import check_descheduler_policy, soft_above_hard


def errors_of(spec: str) -> dict[str, str]:
    policy, errors = read_policy(policies.manifest(spec))
    assert policy is not None, errors
    return {error.field: error.message for error in check_descheduler_policy(policy)}


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("61 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day-of-month"),
        ("* * * 13 *", "month"),
        ("* * * * 8", "day-of-week"),
        ("* * * * MOON", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("5-1 * * * *", "minute"),
        ("@daily", "macro"),
        ("* * * *", "count"),
    ],
)
def test_a_cron_expression_with_a_wrong_field_is_refused_by_the_fields_name(
    cron: str, words: str, golden: Golden
) -> None:
    errors = errors_of(policies.with_duplicates(f"schedule: {{cron: '{cron}'}}"))

    golden(errors["spec.schedule.cron"])


def test_cron_expression_that_is_never_due_is_rejected() -> None:
    errors = errors_of(policies.with_duplicates("schedule: {cron: '0 4 31 2 *'}"))

    assert set(errors) == {"spec.schedule.cron"}


@pytest.mark.parametrize(
    ("selector", "field"),
    [
        ("{matchLabels: {'a b': c}}", "spec.podSelector.matchLabels"),
        ("{matchLabels: {a: 'b c'}}", "spec.podSelector.matchLabels[a]"),
        ("{matchExpressions: [{key: /a, operator: Exists}]}", "spec.podSelector.matchExpressions[0].key"),
    ],
)
def test_invalid_label_is_rejected(selector: str, field: str) -> None:
    assert set(errors_of(policies.with_duplicates(f"podSelector: {selector}"))) == {field}


def test_thresholds_above_targets_are_reported_with_both_numbers(golden: Golden) -> None:
    errors = errors_of(
        policies.low_node("thresholds: {cpu: 60, memory: 71.5}, targetThresholds: {cpu: 50, memory: 50}")
    )

    place = "spec.strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds.thresholds"
    assert list(errors) == [f"{place}.cpu", f"{place}.memory"]
    golden("\n".join(errors.values()))


@pytest.mark.parametrize("spec", policies.ACCEPTED.values(), ids=policies.ACCEPTED)
def test_valid_policy_has_no_errors(spec: str) -> None:
    assert errors_of(spec) == {}


@pytest.mark.parametrize(
    ("soft", "hard", "above"),
    [
        ("1Gi", "500Mi", True),
        ("500Mi", "500Mi", False),
        ("10%", "5%", True),
        ("5%", "10%", False),
        ("1Gi", "10%", True),
        ("much", "1Gi", True),
    ],
    ids=["more", "equal", "larger share", "smaller share", "share of the node", "invalid"],
)
def test_soft_threshold_is_compared_with_the_hard_one(soft: str, hard: str, above: bool) -> None:
    assert soft_above_hard(soft, hard) is above
