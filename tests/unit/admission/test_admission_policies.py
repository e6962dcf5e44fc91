"""Documents of admission policies: structure, quoting and what is reported. Verdicts: tests/api."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.admission.admission_policies import ConvertedAdmission, to_admission_policies
from trimtab.admission.cel.documents import MAX_EXPRESSION
from trimtab.admission.cel.expressions import literal
from trimtab.admission.cel.reserved_nodes import IS_CHANGED
from trimtab.admission.rules.node_selector import NOT_EXTENDED
from trimtab.api.placement_admission import PlacementAdmission

POOL = {"name": "a", "namespaces": ["a"], "taint": {"key": "dedicated", "value": "a"}}
CLASS = {"name": "gpu", "resources": ["example.com/gpu"], "taint": {"key": "gpu"}}


def converted(**spec: Any) -> ConvertedAdmission:
    manifest = {"metadata": {"name": "default"}, "spec": spec}
    return to_admission_policies(msgspec.convert(manifest, PlacementAdmission), exempt=("mine",))


def kinds(found: ConvertedAdmission) -> list[tuple[str, str]]:
    return [(each["kind"], each["metadata"]["name"]) for each in found.documents]


def test_every_policy_has_a_binding() -> None:
    found = converted(dedicatedNodes={"pools": [POOL]}, defaultTolerationSeconds={})
    assert kinds(found) == [
        ("MutatingAdmissionPolicy", "trimtab-default-toleration-seconds"),
        ("MutatingAdmissionPolicyBinding", "trimtab-default-toleration-seconds"),
        ("MutatingAdmissionPolicy", "trimtab-dedicated-nodes"),
        ("MutatingAdmissionPolicyBinding", "trimtab-dedicated-nodes"),
        ("ValidatingAdmissionPolicy", "trimtab-dedicated-nodes"),
        ("ValidatingAdmissionPolicyBinding", "trimtab-dedicated-nodes"),
    ]
    for policy, binding in zip(found.documents[::2], found.documents[1::2], strict=True):
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert binding["kind"] == f"{policy['kind']}Binding"


def test_namespaces_and_failure_policy_are_taken_over() -> None:
    found = converted(
        exemptNamespaces=["b", "a"],
        dedicatedNodes={"pools": [POOL]},
        extendedResourceToleration={},
    )
    policies = found.documents[::2]
    assert [each["spec"]["failurePolicy"] for each in policies] == ["Ignore", "Fail", "Fail"]
    for each in policies:
        (expression,) = each["spec"]["matchConstraints"]["namespaceSelector"]["matchExpressions"]
        assert expression["values"] == ["a", "b", "kube-system", "mine"]


def test_mode_warn_converts_no_changes_and_refuses_nothing() -> None:
    found = converted(mode="Warn", dedicatedNodes={"pools": [POOL]}, defaultTolerationSeconds={})
    assert kinds(found)[0] == ("ValidatingAdmissionPolicy", "trimtab-dedicated-nodes")
    assert found.documents[1]["spec"]["validationActions"] == ["Warn", "Audit"]
    assert len(found.documents) == 2
    assert {each.field for each in found.warnings} == {"spec.defaultTolerationSeconds", "spec.dedicatedNodes"}


def validations_of(found: ConvertedAdmission) -> set[str]:
    policies = (each for each in found.documents if each["kind"] == "ValidatingAdmissionPolicy")
    return {validation["message"] for each in policies for validation in each["spec"]["validations"]}


def test_mode_warn_does_not_require_the_changes_that_are_not_converted() -> None:
    rules: dict[str, Any] = {"podNodeSelector": {"clusterDefaultNodeSelector": "a=b"}}
    assert validations_of(converted(**rules)) - validations_of(converted(mode="Warn", **rules)) == {NOT_EXTENDED}


def variable(found: ConvertedAdmission, name: str) -> str:
    (policy,) = (each for each in found.documents if each["kind"] == "ValidatingAdmissionPolicy")
    return str(next(each["expression"] for each in policy["spec"]["variables"] if each["name"] == name))


def test_mode_warn_assumes_that_pods_of_a_pool_require_its_label() -> None:
    rules: dict[str, Any] = {"dedicatedNodes": {"pools": [POOL]}}
    enforced, warned = variable(converted(**rules), "selected"), variable(converted(mode="Warn", **rules), "selected")
    assert warned == f"{enforced} || (variables.mine.size() > 0 && {IS_CHANGED})"


@pytest.mark.parametrize(
    ("rules", "number"),
    [({"podNodeConstraints": {}}, 2), ({"podNodeSelector": {}}, 1), ({"dedicatedNodes": {"pools": [POOL]}}, 2)],
)
def test_differences_from_the_webhooks_are_reported(rules: dict[str, Any], number: int) -> None:
    assert len(converted(**rules).warnings) == number + 1, "and that the rule must be removed"


@pytest.mark.parametrize("exclusive", [False, True])
def test_hardware_is_validated_only_if_a_class_is_exclusive(exclusive: bool) -> None:
    found = converted(specialHardware={"classes": [CLASS | {"exclusive": exclusive}]})
    assert ("ValidatingAdmissionPolicy", "trimtab-special-hardware") in kinds(found) or not exclusive
    assert len(found.documents) == (4 if exclusive else 2)


def test_rule_with_json_in_annotations_is_reported() -> None:
    found = converted(podTolerationRestriction={})
    assert found.documents == ()
    assert [each.field for each in found.warnings] == ["spec.podTolerationRestriction"]


def resources_of(found: ConvertedAdmission) -> set[str]:
    rules = found.documents[0]["spec"]["matchConstraints"]["resourceRules"]
    return {resource for rule in rules for resource in rule["resources"]}


@pytest.mark.parametrize(
    ("check", "resource"), [("DaemonSets", "daemonsets"), ("EphemeralContainers", "pods/ephemeralcontainers")]
)
def test_additional_checks_add_resources(check: str, resource: str) -> None:
    plain, checked = (
        converted(podNodeConstraints={"additionalChecks": checks}) for checks in (("NodeAffinity",), (check,))
    )
    assert resources_of(checked) - resources_of(plain) == {resource}
    assert {"pods", "deployments", "cronjobs", "deploymentconfigs", "podtemplates"} <= resources_of(plain)


def test_node_selector_of_namespaces_is_converted_with_updates() -> None:
    for updates, operations in ((True, ["CREATE", "UPDATE"]), (False, ["CREATE"])):
        found = converted(podNodeSelector={"checkUpdates": updates})
        assert [each for each, _ in kinds(found)][::2] == ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"]
        for policy in found.documents[::2]:
            (rule,) = policy["spec"]["matchConstraints"]["resourceRules"]
            assert (rule["resources"], rule["operations"]) == (["pods"], operations)


def test_difference_of_default_tolerations_is_reported() -> None:
    protected = {"additionalChecks": ["Tolerations"], "protectedTaints": [{"key": "dedicated"}]}
    alone = converted(podNodeConstraints=protected)
    both = converted(podNodeConstraints=protected, podTolerationRestriction={})
    assert len(both.warnings) == len(alone.warnings) + 2


NAMES = [f"team-{'x' * 40}-{number}" for number in range(250)]
TOO_LONG: dict[str, Any] = {
    "dedicatedNodes": {
        "pools": [
            {"name": f"p{number}", "namespaces": NAMES, "taint": {"key": "dedicated", "value": f"v{number}"}}
            for number in range(64)
        ]
    },
    "specialHardware": {
        "classes": [
            {
                "name": f"c{number}",
                "resources": [f"example.com/{number}-{resource}-{'x' * 40}" for resource in range(64)],
                "taint": {"key": "hardware", "value": f"v{number}"},
            }
            for number in range(64)
        ]
    },
    "podNodeSelector": {
        "namespaceWhitelists": dict.fromkeys(NAMES, ",".join(f"{'x' * 50}-{number}=a" for number in range(16)))
    },
}


@pytest.mark.parametrize("rule", TOO_LONG)
def test_rule_whose_expressions_the_api_server_would_not_compile_is_reported(rule: str) -> None:
    found = converted(**{rule: TOO_LONG[rule]}, extendedResourceToleration={}, defaultTolerationSeconds={})
    reported = [each.message for each in found.warnings if each.field == f"spec.{rule}"]
    assert len(reported) == 1
    assert str(MAX_EXPRESSION) in reported[0]
    assert {name for _, name in kinds(found)} == {
        "trimtab-default-toleration-seconds",
        "trimtab-extended-resource-toleration",
    }


@pytest.mark.parametrize("mode", ["Enforce", "Warn"])
def test_cost_limit_is_reported_if_it_would_admit_requests(mode: str) -> None:
    fail, ignore = (
        converted(mode=mode, podNodeConstraints={"failurePolicy": policy}).warnings for policy in ("Fail", "Ignore")
    )
    assert len(ignore) == len(fail) + (mode == "Enforce")


def test_converted_rules_are_to_be_removed() -> None:
    found = converted(extendedResourceToleration={})
    assert [each.field for each in found.warnings] == ["spec.extendedResourceToleration"]
    assert "remove it" in found.warnings[0].message


def test_conversion_is_deterministic() -> None:
    once, again = (converted(specialHardware={"classes": [CLASS]}, dedicatedNodes={"pools": [POOL]}) for _ in range(2))
    assert json.dumps(once.documents) == json.dumps(again.documents)


@given(st.text())
def test_literal_is_one_quoted_string(text: str) -> None:
    found = literal(text)
    assert found[0] == found[-1] == '"'
    assert json.loads(found) == text
    assert '"' not in found[1:-1].replace("\\\\", "").replace('\\"', "")
