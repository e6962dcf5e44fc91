"""descheduler/v1alpha1 files as DeschedulerPolicies."""

from __future__ import annotations

from typing import Any

import pytest

from tests import policies
from tests.fixtures.golden import Golden
from tests.unit.descheduling.imports.importing import errors_of, read_v1alpha1, warnings_of
from trimtab.api.decode import decode_policy
from trimtab.kube.objects import LabelRequirement, LabelSelector

DUPLICATES = "RemoveDuplicates: {enabled: true}"


def spec_of(content: str) -> Any:
    (policy,) = read_v1alpha1(content).policies
    return policy.spec


def params_of(content: str) -> Any:
    """The parameters of the only strategy, as they are written out."""
    (document,) = read_v1alpha1(f"{{strategies: {{{content}}}}}").documents
    (strategy,) = document["spec"]["strategies"].values()
    return strategy.get("params", {})


def test_openshift_3_policy_is_converted_completely() -> None:
    ours = decode_policy(policies.manifest({"strategies": policies.seed_strategies()}))

    (imported,) = read_v1alpha1(policies.seed_file()).policies

    assert imported.spec == ours.spec
    assert (imported.name, imported.spec.mode) == ("default", "Simulate")


def test_strategy_without_enabled_is_disabled() -> None:
    spec = spec_of("{strategies: {RemoveDuplicates: {}, RemovePodsViolatingInterPodAntiAffinity: {enabled: true}}}")

    assert [name for name, _ in spec.strategies.enabled()] == ["RemovePodsViolatingInterPodAntiAffinity"]


def test_top_level_fields_are_converted() -> None:
    spec = spec_of(
        f"{{strategies: {{{DUPLICATES}}}, evictLocalStoragePods: true, evictFailedBarePods: true, "
        "ignorePvcPods: true, evictSystemCriticalPods: false, maxNoOfPodsToEvictPerNode: 3, "
        "maxNoOfPodsToEvictPerNamespace: 4, "
        "nodeSelector: 'disk=ssd,zone notin (a,b)'}"
    )

    assert (spec.limits.per_node, spec.limits.per_namespace, spec.limits.per_cycle) == (3, 4, None)
    assert spec.protections.disabled == ("PodsWithLocalStorage", "FailedBarePods")
    assert spec.protections.extra == ("PodsWithPVC",)
    assert spec.node_selector.compile() == LabelSelector(
        match_labels={"disk": "ssd"},  # type: ignore[arg-type]
        match_expressions=(LabelRequirement("zone", "NotIn", ("a", "b")),),
    )


@pytest.mark.parametrize(
    ("strategy", "params"),
    [
        pytest.param(
            "LowNodeUtilization: {enabled: true, params: {nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, "
            "targetThresholds: {cpu: 50}, numberOfNodes: 3, useDeviationThresholds: true}}}",
            {
                "nodeResourceUtilizationThresholds": {
                    "thresholds": {"cpu": 20},
                    "targetThresholds": {"cpu": 50},
                    "numberOfNodes": 3,
                    "useDeviationThresholds": True,
                }
            },
            id="LowNodeUtilization",
        ),
        pytest.param(
            "HighNodeUtilization: {enabled: true, params: {nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}, "
            "numberOfNodes: 1}}}",
            {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "numberOfNodes": 1}},
            id="HighNodeUtilization",
        ),
        pytest.param(
            "RemoveDuplicates: {enabled: true, params: {removeDuplicates: {excludeOwnerKinds: [Job]}}}",
            {"removeDuplicates": {"excludeOwnerKinds": ["Job"]}},
            id="RemoveDuplicates",
        ),
        pytest.param(
            "RemovePodsViolatingNodeAffinity: {enabled: true, params: {nodeAffinityType: "
            "[preferredDuringSchedulingIgnoredDuringExecution]}}",
            {"nodeAffinityType": ["preferredDuringSchedulingIgnoredDuringExecution"]},
            id="RemovePodsViolatingNodeAffinity",
        ),
        pytest.param(
            "RemovePodsViolatingNodeTaints: {enabled: true, params: {excludedTaints: [a=b], "
            "includePreferNoSchedule: true}}",
            {"excludedTaints": ["a=b"], "includePreferNoSchedule": True},
            id="RemovePodsViolatingNodeTaints",
        ),
        pytest.param(
            "RemovePodsViolatingTopologySpreadConstraint: {enabled: true, params: {includeSoftConstraints: true}}",
            {"constraints": ["DoNotSchedule", "ScheduleAnyway"]},
            id="RemovePodsViolatingTopologySpreadConstraint",
        ),
        pytest.param(
            "RemovePodsViolatingTopologySpreadConstraint: {enabled: true, params: {includeSoftConstraints: false}}",
            {},
            id="hard constraints only",
        ),
        pytest.param(
            "RemovePodsHavingTooManyRestarts: {enabled: true, params: {podsHavingTooManyRestarts: "
            "{podRestartThreshold: 100, includingInitContainers: true}}}",
            {"podRestartThreshold": 100, "includingInitContainers": True},
            id="RemovePodsHavingTooManyRestarts",
        ),
        pytest.param(
            "PodLifeTime: {enabled: true, params: {podLifeTime: {maxPodLifeTimeSeconds: 86400, states: "
            "[PodInitializing], podStatusPhases: [Pending]}}}",
            {"maxPodLifeTimeSeconds": 86400, "states": ["Pending", "PodInitializing"]},
            id="PodLifeTime",
        ),
        pytest.param(
            "RemoveFailedPods: {enabled: true, params: {failedPods: {reasons: [NodeAffinity], excludeOwnerKinds: "
            "[Job], minPodLifetimeSeconds: 60, includingInitContainers: true}}}",
            {
                "reasons": ["NodeAffinity"],
                "excludeOwnerKinds": ["Job"],
                "minPodLifetimeSeconds": 60,
                "includingInitContainers": True,
            },
            id="RemoveFailedPods",
        ),
        pytest.param(
            "RemoveDuplicates: {enabled: true, params: {includeSoftConstraints: false, excludedTaints: [], "
            "podLifeTime: null, namespaces: null, thresholdPriorityClassName: '', labelSelector: {}}}",
            {},
            id="empty parameters as Go writes them",
        ),
    ],
)
def test_parameters_of_every_strategy_are_converted(strategy: str, params: Any) -> None:
    assert params_of(strategy) == params


SCOPE = "{namespaces: {include: [a]}, labelSelector: {matchLabels: {x: y}}, thresholdPriority: 100, nodeFit: true}"


def test_shared_scope_becomes_policy_scope() -> None:
    spec = spec_of(
        f"{{strategies: {{RemoveDuplicates: {{enabled: true, params: {SCOPE}}}, LowNodeUtilization: {{}}, "
        f"RemovePodsViolatingNodeAffinity: {{enabled: true, params: {SCOPE}}}}}}}"
    )

    assert spec.namespaces.include == ("a",)
    assert spec.pod_selector.compile() == LabelSelector(match_labels={"x": "y"})  # type: ignore[arg-type]
    assert spec.priority_threshold.value == 100


def test_priority_class_becomes_policy_threshold() -> None:
    spec = spec_of("{strategies: {RemoveDuplicates: {enabled: true, params: {thresholdPriorityClassName: high}}}}")

    assert (spec.priority_threshold.name, spec.priority_threshold.value) == ("high", None)


def test_different_scopes_become_several_policies_with_warning() -> None:
    imported = read_v1alpha1(
        f"{{strategies: {{RemoveDuplicates: {{enabled: true, params: {SCOPE}}}, LowNodeUtilization: {{}}, "
        "RemovePodsViolatingNodeAffinity: {enabled: true}}, maxNoOfPodsToEvictPerNode: 2}"
    )

    first, second = imported.policies
    assert (first.name, second.name) == ("default-remove-duplicates", "default-remove-pods-violating-node-affinity")
    assert [name for name, _ in first.spec.strategies] == ["RemoveDuplicates", "LowNodeUtilization"]
    assert [name for name, _ in second.spec.strategies] == ["RemovePodsViolatingNodeAffinity"]
    assert (first.spec.namespaces.include, second.spec.namespaces.include) == (("a",), ())
    assert (first.spec.limits.per_node, second.spec.limits.per_node) == (2, 2)
    assert "default-remove-duplicates, default-remove-pods" in warnings_of(imported)["strategies"]


LOW_NODE = "strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds"


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            f"{{strategies: {{{DUPLICATES}}}, nodeFit: true}}",
            "nodeFit",
            "nodeFit belongs to the params of a strategy",
            id="nodeFit at the top",
        ),
        pytest.param(
            f"{{strategies: {{{DUPLICATES}}}, namespaces: {{include: [a]}}}}",
            "namespaces",
            "namespaces belongs to the params of a strategy",
            id="namespaces at the top",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, nodeFit: true}}}",
            "strategies.RemoveDuplicates.nodeFit",
            "nodeFit belongs to the params of a strategy",
            id="nodeFit next to params",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, params: {podLifeTime: {maxPodLifeTimeSeconds: 5}}}}}",
            "strategies.RemoveDuplicates.params.podLifeTime",
            "podLifeTime belongs to the params of PodLifeTime",
            id="another strategy's parameters",
        ),
        pytest.param(
            "{strategies: {RemovePodsViolatingNodeAffinity: {enabled: true, params: {excludedTaints: [a]}}}}",
            "strategies.RemovePodsViolatingNodeAffinity.params.excludedTaints",
            "excludedTaints belongs to the params of RemovePodsViolatingNodeTaints",
            id="another strategy's parameter",
        ),
        pytest.param(
            "{strategies: {HighNodeUtilization: {enabled: true, params: {nodeResourceUtilizationThresholds: "
            "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}}}}}",
            "strategies.HighNodeUtilization.params.nodeResourceUtilizationThresholds.targetThresholds",
            "of LowNodeUtilization",
            id="a target for HighNodeUtilization",
        ),
        pytest.param(
            f"{{strategies: {{{DUPLICATES}}}, podProtections: {{}}}}",
            "podProtections",
            "unknown field",
            id="v1alpha2's",
        ),
        pytest.param(
            f"{{strategies: {{{DUPLICATES}}}, profiles: []}}",
            "profiles",
            "it belongs to descheduler/v1alpha2",
            id="profiles",
        ),
        pytest.param(
            f"{{strategies: {{{DUPLICATES}}}, evictDaemonSetPods: true}}",
            "evictDaemonSetPods",
            "it belongs to descheduler/v1alpha2",
            id="a later flag",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, params: {namespaces: {includ: [a]}}}}}",
            "strategies.RemoveDuplicates.params.namespaces.includ",
            "did you mean include?",
            id="a misspelt list of namespaces",
        ),
        pytest.param(
            "strategies: {LowNodeUtilization: {enabled: true, params: {nodeResourceUtilizationThresholds: "
            "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, evictableNamespaces: {exclude: [shop]}}}}}",
            "strategies.LowNodeUtilization.params.nodeResourceUtilizationThresholds.evictableNamespaces",
            "namespaces in the params",
            id="evictableNamespaces",
        ),
    ],
)
def test_unknown_keys_are_ignored_as_upstream_does(content: str, field: str, words: str) -> None:
    imported = read_v1alpha1(content)
    dropped = {each.field: each for each in imported.warnings if "as by the descheduler" in each.message}
    assert set(dropped) == {field}
    assert dropped[field].severity == "high"
    assert words in dropped[field].message


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            "{strategies: {PodLifeTime: {enabled: true, params: {maxPodLifeTimeSeconds: 5}}}}",
            "strategies.PodLifeTime.params.maxPodLifeTimeSeconds",
            "maxPodLifeTimeSeconds belongs to params.podLifeTime of PodLifeTime",
            id="a parameter that is to be nested",
        ),
        pytest.param(
            policies.low_node("threshold: {cpu: 10}, targetThresholds: {cpu: 10}"),
            f"{LOW_NODE}.threshold",
            "did you mean thresholds?",
            id="a misspelt parameter",
        ),
        pytest.param(
            "spec: {strategies: {RemoveDuplicates: {enabled: true}}}", "spec", "a policy has no spec", id="under spec"
        ),
    ],
)
def test_unknown_key_is_reported_before_the_errors_that_it_causes(content: str, field: str, words: str) -> None:
    errors = errors_of(read_v1alpha1, content)
    assert next(iter(errors)) == field
    assert len(errors) == 2
    assert words in errors[field]


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            "{strategies: {RemoveDuplicate: {}}}",
            "strategies.RemoveDuplicate",
            "did you mean RemoveDuplicates?",
            id="a misspelt strategy",
        ),
        pytest.param("{strategies: {}}", "strategies", "must have at least one", id="no strategy"),
        pytest.param("{nodeSelector: a=b}", "strategies", "must be a mapping", id="no strategies"),
        pytest.param(
            "{strategies: {RemoveDuplicates: {}}, evictLocalStoragePods: 'yes'}",
            "evictLocalStoragePods",
            "true or false",
            id="a flag that is none",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {}}, maxNoOfPodsToEvictPerNode: -1}",
            "maxNoOfPodsToEvictPerNode",
            "at least 1",
            id="a negative limit",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {}}, maxNoOfPodsToEvictPerNode: 0}",
            "maxNoOfPodsToEvictPerNode",
            "to evict no pods, use mode: Simulate",
            id="a limit of 0",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {}}, nodeSelector: 'a in'}", "nodeSelector", "", id="a broken selector"
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {}}, nodeSelector: {a: b}}",
            "nodeSelector",
            "in text form",
            id="a selector that is no text",
        ),
        pytest.param(
            policies.low_node("thresholds: {cpu: 60}, targetThresholds: {cpu: 10}").replace(
                "{params", "{enabled: true, params"
            ),
            f"{LOW_NODE}.thresholds.cpu",
            "must not exceed targetThresholds",
            id="a threshold above its target",
        ),
        pytest.param(
            policies.low_node("thresholds: {cpu: 10}"),
            f"{LOW_NODE}.targetThresholds",
            "is required",
            id="a missing parameter",
        ),
        pytest.param(
            "{strategies: {PodLifeTime: {enabled: true, params: {podLifeTime: {states: [Sleeping]}}}}}",
            "strategies.PodLifeTime.params.podLifeTime.states[0]",
            "must be",
            id="an unknown state",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, params: {thresholdPriority: 5, "
            "thresholdPriorityClassName: high}}}}",
            "strategies.RemoveDuplicates.params.thresholdPriorityClassName",
            "exactly one of name and value",
            id="a priority by name and number",
        ),
    ],
)
def test_invalid_fields_are_reported_by_their_own_name(content: str, field: str, words: str) -> None:
    errors = errors_of(read_v1alpha1, content)
    assert set(errors) == {field}
    assert words in errors[field]


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            f"{{strategies: {{{DUPLICATES}}}, evictSystemCriticalPods: true}}",
            "evictSystemCriticalPods",
            "system-critical pods are always protected",
            id="critical pods",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, weight: 3}}}",
            "strategies.RemoveDuplicates.weight",
            "has no effect",
            id="weight",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, params: {nodeFit: false}}}}",
            "strategies.RemoveDuplicates.params.nodeFit",
            "finds a node that can run a pod",
            id="no nodeFit",
        ),
        pytest.param(
            "{strategies: {RemoveDuplicates: {enabled: true, params: {namespaces: {include: [kube-system, a]}}}}}",
            "strategies.RemoveDuplicates.params.namespaces.include",
            "kube-system: system namespaces are protected here",
            id="namespaces of the cluster",
        ),
    ],
)
def test_differences_are_reported_as_warnings(content: str, field: str, words: str) -> None:
    warnings = warnings_of(read_v1alpha1(content))
    assert set(warnings) == {field}
    assert words in warnings[field]


def test_empty_node_selector_is_valid() -> None:
    assert spec_of(f"{{strategies: {{{DUPLICATES}}}, nodeSelector: ''}}").node_selector is None


@pytest.mark.parametrize("data", [None, {}, policies.seed_file() | {"kind": "Other"}])
def test_other_documents_are_rejected(data: Any, golden: Golden) -> None:
    golden("\n".join(f"{key}: {text}" for key, text in errors_of(read_v1alpha1, data).items()))
