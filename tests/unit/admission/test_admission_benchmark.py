"""The pods of the benchmark of the webhooks, and the API server's metric that it reads."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from benchmarks.admission import ALL, durations, patches_for
from benchmarks.admission_pods import ALIKE, DIFFERENT, KINDS, NUMBER, TEMPLATES, drawn, each_once, template
from tests.admission_requests import admission_spec, wire
from tests.json_patch import apply_patch
from trimtab.admission.requests import NamespaceInfo
from trimtab.admission.reviewer import Reviewer
from trimtab.admission.rule_scopes import MUTATE, VALIDATE
from trimtab.admission.webhooks import Endpoint, webhooks


def decoded(pods: list[msgspec.Raw], number: int = 0) -> list[dict]:
    return [msgspec.json.decode(bytes(each).replace(b"@n", str(number).encode())) for each in pods]


@pytest.mark.parametrize("kind", KINDS)
def test_rules_of_the_benchmark_refuse_no_pod(kind: str) -> None:
    reviewer = Reviewer(admission_spec(ALL))
    for pod in decoded(each_once(kind, 1, {})):
        mutated = reviewer.decide(wire(pod), NamespaceInfo("load"), stage=MUTATE, failure_policy="Fail").review
        final = wire(apply_patch(pod, msgspec.json.decode(mutated.patch)))
        validated = reviewer.decide(final, NamespaceInfo("load"), stage=VALIDATE, failure_policy="Fail").review
        assert not mutated.refusals
        assert not validated.refusals


def keys(kind: str, numbers: tuple[int, ...] = (0,)) -> int:
    reviewer = Reviewer(admission_spec(ALL))
    for number in numbers:
        for pod in decoded(each_once(kind, 1, {})[:100], number):
            reviewer.decide(wire(pod), NamespaceInfo("load"), stage=MUTATE, failure_policy="Fail")
    return len(reviewer._reviews)


def test_reviews_of_pods_differ_as_the_pods_do() -> None:
    assert keys(ALIKE, (0, 1)) == 1
    assert keys(TEMPLATES, (0, 1)) == 100
    assert keys(DIFFERENT, (0, 1)) == 200


def test_templates_of_two_loads_are_the_same_but_different_pods_are_not() -> None:
    for kind, same in ((TEMPLATES, True), (DIFFERENT, False)):
        first, second = (each["spec"] for load in (1, 2) for each in decoded(each_once(kind, load, {})[:1]))
        assert (first == second) is same


def test_some_templates_are_used_far_more_often_than_others() -> None:
    number = 6000
    used = Counter(template(each["metadata"]["name"]) for each in decoded(drawn(TEMPLATES, 1, {}, number)))
    assert sum(used.values()) == number
    assert 700 < len(used) <= NUMBER
    assert sum(count for _, count in used.most_common(100)) > number / 2
    assert used["t0"] > 500


@pytest.mark.parametrize(
    ("rules", "number"), [(ALL, 1), ("defaultTolerationSeconds: {}", 1), ("podNodeSelector: {}", 0)]
)
def test_patches_of_the_floor_are_those_of_each_mutating_webhook(rules: str, number: int) -> None:
    spec = admission_spec(rules)
    [pod] = decoded(each_once(ALIKE, 1, {}))
    body = msgspec.json.encode({"request": {"uid": "1", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": pod}})
    recorded = {f"{stage}-{policy}.a0": body for stage in ("mutate", "validate") for policy in ("fail", "ignore")}
    found = patches_for(Reviewer(spec), recorded)
    registered = webhooks(spec, Endpoint(url="https://localhost"), b"").mutating
    assert len([each for each in registered if each["name"].partition(".")[0] + ".a0" in found]) == number


def test_additional_fields_are_in_each_spec() -> None:
    assert all(each["spec"]["nodeName"] == "n" for each in decoded(each_once(TEMPLATES, 1, {"nodeName": "n"})))


def test_quantiles_are_interpolated_within_a_bucket() -> None:
    labels = 'name="a.example.com",operation="CREATE",rejected="false",type="admit"'
    name = "apiserver_admission_webhook_admission_duration_seconds"
    rows = [
        (f'_bucket{{{labels},le="{bound}"}}', count) for bound, count in (("0.005", 98), ("0.025", 100), ("+Inf", 100))
    ]
    page = "\n".join(f"{name}{row} {value}" for row, value in [*rows, (f"_sum{{{labels}}}", 0.25)])
    found = durations(page)["a.example.com"]
    assert (found.number, found.seconds) == (100, 0.25)
    assert found.quantile(0.99) == pytest.approx(0.015)
