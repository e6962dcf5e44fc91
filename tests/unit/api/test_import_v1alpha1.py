"""descheduler/v1alpha1 files as DeschedulerPolicies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests import policies
from trimtab.api.decode import InvalidObject, decode_policy
from trimtab.descheduling.imports.v1alpha1 import import_policy
from trimtab.kube.objects import LabelRequirement, LabelSelector


def file(content: str) -> dict[str, Any]:
    return {"apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy", **msgspec.yaml.decode(content)}


def spec_of(content: str) -> Any:
    return import_policy(file(content)).spec


def errors_of(content: Any) -> dict[str, str]:
    with pytest.raises(InvalidObject) as refused:
        import_policy(file(content) if isinstance(content, str) else content, source="p.yaml")
    return {error.field: error.message for error in refused.value.errors}


def test_the_seeds_file_means_what_its_strategies_mean_in_our_kind() -> None:
    ours = decode_policy(policies.manifest({"strategies": policies.seed_strategies()}))

    imported = import_policy(policies.seed_file())

    assert imported.spec == ours.spec
    assert (imported.name, imported.spec.mode) == ("default", "Simulate")


def test_a_strategy_without_enabled_is_off_as_it_was_there() -> None:
    spec = spec_of("{strategies: {RemoveDuplicates: {}, RemovePodsViolatingInterPodAntiAffinity: {enabled: true}}}")

    assert [name for name, _ in spec.strategies.enabled()] == ["RemovePodsViolatingInterPodAntiAffinity"]


def test_what_stands_at_the_top_finds_its_place() -> None:
    spec = spec_of(
        "{strategies: {RemoveDuplicates: {enabled: true, weight: 3}}, evictLocalStoragePods: true, "
        "ignorePvcPods: true, evictSystemCriticalPods: false, maxNoOfPodsToEvictPerNode: 3, "
        "maxNoOfPodsToEvictPerNamespace: 4, "
        "nodeSelector: 'disk=ssd,zone notin (a,b)'}"
    )

    assert (spec.limits.per_node, spec.limits.per_namespace, spec.limits.per_cycle) == (3, 4, None)
    assert (spec.protections.disabled, spec.protections.extra) == (("PodsWithLocalStorage",), ("PodsWithPVC",))
    assert spec.node_selector.compile() == LabelSelector(
        match_labels={"disk": "ssd"},  # type: ignore[arg-type]
        match_expressions=(LabelRequirement("zone", "NotIn", ("a", "b")),),
    )


SCOPE = "{namespaces: {include: [a]}, labelSelector: {matchLabels: {x: y}}, thresholdPriority: 100, nodeFit: true}"


def test_a_scope_that_all_strategies_share_becomes_the_policys() -> None:
    spec = spec_of(
        f"{{strategies: {{RemoveDuplicates: {{enabled: true, params: {SCOPE}}}, LowNodeUtilization: {{}}, "
        f"RemovePodsViolatingNodeAffinity: {{enabled: true, params: {SCOPE}}}}}}}"
    )

    assert spec.namespaces.include == ("a",)
    assert spec.pod_selector.compile() == LabelSelector(match_labels={"x": "y"})  # type: ignore[arg-type]
    assert spec.priority_threshold.value == 100


def test_a_priority_class_becomes_the_policys() -> None:
    spec = spec_of("{strategies: {RemoveDuplicates: {enabled: true, params: {thresholdPriorityClassName: high}}}}")

    assert (spec.priority_threshold.name, spec.priority_threshold.value) == ("high", None)


def test_scopes_that_differ_are_refused() -> None:
    errors = errors_of(
        f"{{strategies: {{RemoveDuplicates: {{enabled: true, params: {SCOPE}}}, "
        "RemovePodsViolatingNodeAffinity: {enabled: true}}}"
    )

    assert set(errors) == {f"strategies.*.params.{key}" for key in ("namespaces", "labelSelector", "thresholdPriority")}
    assert all("RemoveDuplicates" in message for message in errors.values())


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        ("{strategies: {PodLifeTime: {enabled: true}}}", "strategies.PodLifeTime", "not supported yet; supported:"),
        ("{strategies: {RemoveDuplicate: {}}}", "strategies.RemoveDuplicate", "did you mean RemoveDuplicates?"),
        ("{strategies: {}, nodeFit: true}", "nodeFit", "unknown field"),
        ("{strategies: {}}", "strategies", "must have at least one"),
        ("{nodeSelector: a=b}", "strategies", "must be a mapping"),
        (
            "{strategies: {RemoveDuplicates: {}}, evictSystemCriticalPods: true}",
            "evictSystemCriticalPods",
            "must be false or left out",
        ),
        (
            "{strategies: {RemoveDuplicates: {}}, evictLocalStoragePods: 'yes'}",
            "evictLocalStoragePods",
            "true or false",
        ),
        (
            "{strategies: {RemoveDuplicates: {}}, maxNoOfPodsToEvictPerNode: -1}",
            "maxNoOfPodsToEvictPerNode",
            "at least 1",
        ),
        ("{strategies: {RemoveDuplicates: {}}, nodeSelector: 'a='}", "", ""),
        ("{strategies: {RemoveDuplicates: {}}, nodeSelector: 'a in'}", "nodeSelector", ""),
        ("{strategies: {RemoveDuplicates: {}}, nodeSelector: {a: b}}", "nodeSelector", "in text form"),
        (
            policies.low_node("thresholds: {cpu: 10}"),
            "strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds.targetThresholds",
            "is required",
        ),
        (
            "{strategies: {RemovePodsViolatingNodeAffinity: {enabled: true, params: {excludedTaints: [a]}}}}",
            "strategies.RemovePodsViolatingNodeAffinity.params.excludedTaints",
            "unknown field",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_under_its_own_name(content: str, field: str, words: str) -> None:
    if not field:  # an empty value is a valid selector
        assert import_policy(file(content))
        return
    errors = errors_of(content)
    assert set(errors) == {field}
    assert words in errors[field]


@pytest.mark.parametrize("name", ["RemoveFailedPods", "RemovePodsViolatingNodeTaints"])
def test_a_strategy_that_is_not_there_yet_may_be_named_while_it_is_off(name: str) -> None:
    spec = spec_of(f"{{strategies: {{{name}: {{enabled: false}}, RemoveDuplicates: {{enabled: true}}}}}}")

    assert [strategy for strategy, _ in spec.strategies] == ["RemoveDuplicates"]


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        policies.seed_file() | {"kind": "Other"},
    ],
)
def test_what_is_no_such_file_is_refused(data: Any) -> None:
    assert errors_of(data) == {"": "must be a DeschedulerPolicy of descheduler/v1alpha1"}


def test_the_next_version_is_told_to_be_not_read_yet() -> None:
    errors = errors_of({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": []})

    assert "descheduler/v1alpha2 (profiles and plugins) is not read yet" in errors["apiVersion"]
