"""Which webhooks a PlacementAdmission needs, and when they are registered."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

import trimtab.kube.resources
from tests.admission_requests import admission_spec
from tests.fakes.api import FakeApi
from trimtab.admission.own_resources import KINDS
from trimtab.admission.webhooks import (
    CONFIGURATIONS,
    DOMAIN,
    FIELD_MANAGER,
    Endpoint,
    Webhooks,
    apply_webhooks,
    decode_configuration,
    differs,
    webhooks,
)
from trimtab.kube.errors import InputError
from trimtab.kube.resources import Resource

SERVICE = Endpoint(service="trimtab-admission", namespace="trimtab")
ALL_RULES = """
podNodeConstraints: {nodeSelectorLabelBlacklist: [region]}
podNodeSelector: {}
defaultTolerationSeconds: {}
podTolerationRestriction: {}
extendedResourceToleration: {}
dedicatedNodes: {pools: [{name: a, taint: {key: dedicated}, namespaces: [a]}]}
specialHardware: {classes: [{name: gpu, taint: {key: gpu}, resources: [example.com/gpu], exclusive: true}]}
"""

POOL = "dedicatedNodes: {failurePolicy: Ignore, pools: [{name: a, taint: {key: d}, groups: [a]}]}"


def made(text: str, **options: Any) -> Webhooks:
    return webhooks(admission_spec(text), SERVICE, b"CA", own_namespace="trimtab", **options)


def by_name(items: tuple[dict[str, Any], ...]) -> dict[str, dict[str, Any]]:
    return {each["name"].removesuffix(f".{DOMAIN}"): each for each in items}


def resources(webhook: dict[str, Any]) -> set[str]:
    return {
        f"{group}/{name}" if group else name
        for rule in webhook["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }


def test_webhook_of_own_resources_is_called_for_exactly_the_kinds_that_are_reviewed() -> None:
    own = {each.kind: each for each in vars(trimtab.kube.resources).values() if isinstance(each, Resource)}
    [webhook] = webhooks(None, SERVICE, b"CA").validating
    registered = {(rule["apiGroups"][0], rule["apiVersions"][0], name) for rule in webhook["rules"]
                  for name in rule["resources"]}  # fmt: skip
    assert registered == {(own[kind].group, own[kind].version, own[kind].plural) for kind in KINDS}


def test_without_a_policy_only_own_resources_are_validated() -> None:
    found = webhooks(None, SERVICE, b"CA")
    assert not found.mutating
    assert set(by_name(found.validating)) == {"resources"}
    assert by_name(found.validating)["resources"]["failurePolicy"] == "Ignore"


def test_each_failure_policy_has_a_webhook_of_each_kind() -> None:
    found = made("podNodeConstraints: {}\ndefaultTolerationSeconds: {}\npodNodeSelector: {failurePolicy: Ignore}")
    assert set(by_name(found.mutating)) == {"mutate-ignore"}
    assert set(by_name(found.validating)) == {"validate-fail", "validate-ignore", "warn", "resources"}
    policies = {name: each["failurePolicy"] for name, each in by_name((*found.mutating, *found.validating)).items()}
    assert policies.pop("validate-fail") == "Fail"
    assert set(policies.values()) == {"Ignore"}


SECONDS = "podNodeSelector: {}\ndefaultTolerationSeconds: {}\n"
HARDWARE = "specialHardware: {failurePolicy: Ignore, classes: [{name: g, taint: {key: g}, resources: [e.com/g]}]}"
BOTH = ["mutate-fail", "mutate-ignore"]


@pytest.mark.parametrize(
    ("text", "mutating", "validating"),
    [
        (ALL_RULES, ["mutate-fail"], ["validate-fail"]),
        (SECONDS, ["mutate-fail"], ["validate-fail"]),
        (f"{ALL_RULES.partition('specialHardware')[0]}{HARDWARE}", ["mutate-fail"], ["validate-fail"]),
        (f"mode: Warn\n{SECONDS}", BOTH, ["validate-fail"]),
        # The webhook with Fail is called for some pods only, or changes nothing, or is called for no DaemonSets.
        ("extendedResourceToleration: {failurePolicy: Fail}\ndefaultTolerationSeconds: {}", BOTH, []),
        ("podNodeConstraints: {}\ndefaultTolerationSeconds: {}", ["mutate-ignore"], ["validate-fail"]),
        (f"{SECONDS}{HARDWARE}", BOTH, ["validate-fail"]),
        # A rule with Ignore may refuse requests.
        (f"{SECONDS}podTolerationRestriction: {{failurePolicy: Ignore}}", BOTH, ["validate-fail", "validate-ignore"]),
        (f"{SECONDS}{POOL}", BOTH, ["validate-fail", "validate-ignore"]),
    ],
    ids=["all", "all pods", "DaemonSets", "Warn", "some pods", "no change", "no DaemonSets", "whitelist", "pool"],
)
def test_webhook_that_is_called_anyway_applies_rules_with_ignore_that_refuse_nothing(
    text: str, mutating: list[str], validating: list[str]
) -> None:
    found = made(text)
    assert list(by_name(found.mutating)) == mutating
    assert [name for name in by_name(found.validating) if name.startswith("validate")] == validating


def test_webhooks_cannot_hurt() -> None:
    found = made(f"exemptNamespaces: [infra]\n{ALL_RULES}")
    for each in (*found.mutating, *found.validating):
        assert each["sideEffects"] == "None"
        assert each["matchPolicy"] == "Equivalent"
        assert each["admissionReviewVersions"] == ["v1"]
        assert each["timeoutSeconds"] <= 5
        assert not any("*" in rule["resources"] + rule["apiGroups"] + rule["operations"] for rule in each["rules"])
        assert each["clientConfig"]["caBundle"] == base64.b64encode(b"CA").decode()
        if not each["name"].startswith("resources"):
            [expression] = each["namespaceSelector"]["matchExpressions"]
            assert expression == {
                "key": "kubernetes.io/metadata.name",
                "operator": "NotIn",
                "values": ["infra", "kube-system", "trimtab"],
            }
            conditions = [condition["name"] for condition in each["matchConditions"]]
            assert conditions[:3] == ["not-a-node", "spec-changed", "template-changed"]
    assert all(each["reinvocationPolicy"] == "IfNeeded" for each in found.mutating)


@pytest.mark.parametrize(
    ("text", "mutated", "validated"),
    [
        ("podNodeConstraints: {}", None, {"pods", "apps/deployments", "batch/cronjobs", "podtemplates"}),
        (
            "podNodeConstraints: {additionalChecks: [DaemonSets, EphemeralContainers]}",
            None,
            {"apps/daemonsets", "pods/ephemeralcontainers", "apps.openshift.io/deploymentconfigs"},
        ),
        ("podNodeSelector: {}", {"pods"}, {"pods"}),
        ("podTolerationRestriction: {}", {"pods"}, {"pods"}),
        ("dedicatedNodes: {pools: [{name: a, taint: {key: d}, groups: [a]}]}", {"apps/deployments"}, {"batch/jobs"}),
        (
            "specialHardware: {classes: [{name: g, taint: {key: g}, resources: [e.com/g]}]}",
            {"pods", "apps/daemonsets"},
            None,
        ),
    ],
)
def test_rules_are_called_for_the_resources_that_they_concern(
    text: str, mutated: set[str] | None, validated: set[str] | None
) -> None:
    found = made(text)
    for name, items, expected in (
        ("mutate-fail", by_name(found.mutating), mutated),
        ("validate-fail", by_name(found.validating), validated),
    ):
        assert (name in items) == (expected is not None)
        assert expected is None or expected <= resources(items[name])
    if "DaemonSets" not in text and "podNodeConstraints" in text:
        assert "apps/daemonsets" not in resources(by_name(found.validating)["validate-fail"])


def test_missing_warnings_refuse_no_workload() -> None:
    """Templates are sent to PodNodeSelector for warnings only, so an outage must not stop their authors."""
    found = by_name(made("podNodeSelector: {}").validating)
    assert resources(found["validate-fail"]) == {"pods"}
    assert {"apps/daemonsets", "apps/deployments", "batch/cronjobs"} <= resources(found["warn"])
    assert found["warn"]["failurePolicy"] == "Ignore"
    assert "warn" not in by_name(made("podNodeConstraints: {}").validating)


def test_pods_that_no_rule_concerns_are_excluded() -> None:
    def concerns(text: str, name: str) -> str:
        found = {**by_name(made(text).mutating), **by_name(made(text).validating)}
        return next((c["expression"] for c in found[name]["matchConditions"] if c["name"] == "concerns-a-rule"), "")

    node_name = concerns("podNodeConstraints: {}", "validate-fail")
    assert "has(object.spec.nodeName)" in node_name
    assert "affinity" not in node_name
    affinity = concerns("podNodeConstraints: {additionalChecks: [NodeAffinity]}", "validate-fail")
    assert "has(object.spec.affinity)" in affinity
    assert "topologySpreadConstraints" not in affinity
    topology = concerns("podNodeConstraints: {additionalChecks: [TopologyKeys]}", "validate-fail")
    assert "has(object.spec.affinity)" in topology
    assert "has(object.spec.topologySpreadConstraints)" in topology
    assert "requests" in concerns("extendedResourceToleration: {}", "mutate-ignore")
    assert not concerns("extendedResourceToleration: {}\ndefaultTolerationSeconds: {}", "mutate-ignore")


def test_outage_refuses_nothing_in_mode_warn() -> None:
    found = made(f"mode: Warn\n{ALL_RULES}")
    assert {each["failurePolicy"] for each in (*found.mutating, *found.validating)} == {"Ignore"}
    assert "mutate-fail" in by_name(found.mutating)


def test_url_replaces_the_service() -> None:
    endpoint = Endpoint(url="https://127.0.0.1:9443/")
    assert endpoint.client_config("/mutate/fail", b"") == {"url": "https://127.0.0.1:9443/mutate/fail"}
    assert SERVICE.client_config("/x", b"")["service"] == {
        "name": "trimtab-admission",
        "namespace": "trimtab",
        "path": "/x",
        "port": 443,
    }


async def test_webhooks_are_applied_only_if_they_differ() -> None:
    api, wanted = FakeApi(), made(ALL_RULES)
    for resource, items in zip(CONFIGURATIONS, (wanted.mutating, wanted.validating), strict=True):
        path = resource.path("trimtab-admission")
        api.put(path, {"metadata": {"name": "trimtab-admission"}})
        assert differs(decode_configuration(msgspec.json.encode(api.objects[path])), items)
        await apply_webhooks(api, resource, "trimtab-admission", items)
        stored = decode_configuration(msgspec.json.encode(api.objects[path]))
        assert not differs(stored, items)
        assert stored.bundles == (b"CA",) * len(items)
        changed = msgspec.structs.replace(stored, webhooks=(*stored.webhooks, {"name": "x.example.com"}))
        assert not differs(changed, items)
        assert differs(msgspec.structs.replace(stored, webhooks=stored.webhooks[1:]), items)
    assert {call.params["fieldManager"] for call in api.sent("PATCH")} == {FIELD_MANAGER}


def test_invalid_configuration_is_an_input_error() -> None:
    with pytest.raises(InputError):
        decode_configuration(b"[]")
    broken = {"metadata": {"name": "x"}, "webhooks": [{"name": f"a.{DOMAIN}", "clientConfig": {"caBundle": "%"}}]}
    assert decode_configuration(msgspec.json.encode(broken)).bundles == (b"",)
