"""descheduler/v1alpha2 files, profiles and plugins, as DeschedulerPolicies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.golden import Golden
from tests.unit.descheduling.imports.importing import errors_of, read_v1alpha2, warnings_of
from trimtab.api.strategies import STRATEGIES
from trimtab.descheduling.imports.strategy_mapping import ARGS, BALANCE, PLUGINS

LIFETIME = "{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60}}"
RUNS = "plugins: {deschedule: {enabled: [PodLifeTime]}}"


def evictor(args: str, top: str = "") -> str:
    """A policy with one strategy and those arguments of DefaultEvictor."""
    return profile(f"pluginConfig: [{{name: DefaultEvictor, args: {{{args}}}}}, {LIFETIME}], {RUNS}", top)


def profile(content: str, top: str = "") -> str:
    """A policy with one profile."""
    return f"{{{top}profiles: [{{name: ProfileName, {content}}}]}}"


def strategy(name: str, args: str) -> str:
    """A policy with one strategy and its arguments."""
    point = PLUGINS.get(name, BALANCE)
    return profile(f"pluginConfig: [{{name: {name}, args: {{{args}}}}}], plugins: {{{point}: {{enabled: [{name}]}}}}")


def spec_of(content: str) -> Any:
    """The only policy's spec as it is written out."""
    (document,) = read_v1alpha2(content).documents
    return document["spec"]


def params_of(content: str) -> Any:
    (found,) = spec_of(content)["strategies"].values()
    return found.get("params", {})


def test_a_profile_becomes_a_policy_that_simulates() -> None:
    (document,) = read_v1alpha2(profile(f"pluginConfig: [{LIFETIME}], {RUNS}")).documents

    assert document == {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "profile-name"},
        "spec": {
            "mode": "Simulate",
            "strategies": {"PodLifeTime": {"enabled": True, "params": {"maxPodLifeTimeSeconds": 60}}},
        },
    }


@pytest.mark.parametrize(
    ("name", "args", "params"),
    [
        pytest.param(
            "RemoveDuplicates", "excludeOwnerKinds: [Job]", {"removeDuplicates": {"excludeOwnerKinds": ["Job"]}}
        ),
        pytest.param(
            "LowNodeUtilization",
            "thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, numberOfNodes: 3, useDeviationThresholds: true, "
            "evictableNamespaces: {exclude: [a]}, evictionLimits: {node: 2}",
            {
                "nodeResourceUtilizationThresholds": {
                    "thresholds": {"cpu": 20},
                    "targetThresholds": {"cpu": 50},
                    "numberOfNodes": 3,
                    "useDeviationThresholds": True,
                },
                "evictableNamespaces": {"exclude": ["a"]},
                "evictionLimits": {"node": 2},
            },
        ),
        pytest.param(
            "HighNodeUtilization",
            "thresholds: {memory: 20}, evictionModes: [OnlyThresholdingResources]",
            {
                "nodeResourceUtilizationThresholds": {"thresholds": {"memory": 20}},
                "evictionModes": ["OnlyThresholdingResources"],
            },
        ),
        pytest.param("RemovePodsViolatingInterPodAntiAffinity", "", {}),
        pytest.param(
            "RemovePodsViolatingNodeAffinity",
            "nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]",
            {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
        ),
        pytest.param(
            "RemovePodsViolatingNodeTaints",
            "includePreferNoSchedule: true, includedTaints: [a=b, c]",
            {"includePreferNoSchedule": True, "includedTaints": ["a=b", "c"]},
        ),
        pytest.param(
            "RemovePodsViolatingTopologySpreadConstraint",
            "constraints: [DoNotSchedule, ScheduleAnyway]",
            {"constraints": ["DoNotSchedule", "ScheduleAnyway"]},
        ),
        pytest.param(
            "RemovePodsHavingTooManyRestarts",
            "podRestartThreshold: 100, includingInitContainers: true, states: [CrashLoopBackOff]",
            {"podRestartThreshold": 100, "includingInitContainers": True, "states": ["CrashLoopBackOff"]},
        ),
        pytest.param(
            "PodLifeTime",
            "states: [Succeeded], conditions: [{reason: PodCompleted, status: 'True', "
            "minTimeSinceLastTransitionSeconds: 14400}], ownerKinds: {exclude: [Job]}, exitCodes: [1], "
            "includingEphemeralContainers: true",
            {
                "states": ["Succeeded"],
                "conditions": [
                    {"reason": "PodCompleted", "status": "True", "minTimeSinceLastTransitionSeconds": 14400}
                ],
                "ownerKinds": {"exclude": ["Job"]},
                "exitCodes": [1],
                "includingEphemeralContainers": True,
            },
        ),
        pytest.param(
            "RemoveFailedPods",
            "reasons: [OutOfcpu], exitCodes: [1], minPodLifetimeSeconds: 3600, excludeOwnerKinds: [Job]",
            {"reasons": ["OutOfcpu"], "exitCodes": [1], "minPodLifetimeSeconds": 3600, "excludeOwnerKinds": ["Job"]},
        ),
        pytest.param("PodLifeTime", "apiVersion: x, kind: y, maxPodLifeTimeSeconds: 1", {"maxPodLifeTimeSeconds": 1}),
    ],
)
def test_arguments_of_every_strategy_are_converted(name: str, args: str, params: Any) -> None:
    assert params_of(strategy(name, args)) == params


def test_every_upstream_strategy_is_supported() -> None:
    assert set(PLUGINS) == set(ARGS)
    assert set(PLUGINS) <= set(STRATEGIES)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        pytest.param("nodeFit: true", {}, id="nodeFit, which is always so"),
        pytest.param("minReplicas: 2", {"protections": {"minReplicas": 2}}, id="minReplicas"),
        pytest.param("minReplicas: 1", {}, id="minReplicas without effect"),
        pytest.param("minPodAge: 1.5h", {"protections": {"minPodAge": "1h30m"}}, id="minPodAge"),
        pytest.param("minPodAge: 90s500ms", {"protections": {"minPodAge": "1m31s"}}, id="minPodAge, rounded up"),
        pytest.param("minPodAge: 0s", {}, id="minPodAge of 0"),
        pytest.param(
            "noEvictionPolicy: Mandatory", {"protections": {"noEvictionPolicy": "Mandatory"}}, id="noEvictionPolicy"
        ),
        pytest.param("noEvictionPolicy: ''", {}, id="no noEvictionPolicy"),
        pytest.param("priorityThreshold: {value: 10}", {"priorityThreshold": {"value": 10}}, id="priority by value"),
        pytest.param("priorityThreshold: {name: high}", {"priorityThreshold": {"name": "high"}}, id="priority by name"),
        pytest.param("priorityThreshold: {name: ''}", {}, id="an empty priority threshold"),
        pytest.param(
            "labelSelector: {matchLabels: {a: b}}", {"podSelector": {"matchLabels": {"a": "b"}}}, id="labelSelector"
        ),
        pytest.param(
            "namespaceLabelSelector: {matchExpressions: [{key: a, operator: Exists}]}",
            {"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
            id="namespaceLabelSelector",
        ),
        pytest.param("labelSelector: {}", {}, id="a selector of everything"),
        pytest.param(
            "podProtections: {defaultDisabled: [PodsWithLocalStorage, FailedBarePods], "
            "extraEnabled: [PodsWithPVC, PodsWithoutPDB, PodsWithResourceClaims], "
            "config: {PodsWithPVC: {protectedStorageClasses: [{name: fast}, {name: slow}]}}}",
            {
                "protections": {
                    "disabled": ["PodsWithLocalStorage", "FailedBarePods"],
                    "extra": ["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"],
                    "protectedStorageClasses": ["fast", "slow"],
                }
            },
            id="podProtections",
        ),
        pytest.param("podProtections: {defaultDisabled: , extraEnabled: , config: {}}", {}, id="only comments there"),
        pytest.param(
            "evictLocalStoragePods: true, evictFailedBarePods: true, ignorePvcPods: true, ignorePodsWithoutPDB: true, "
            "evictDaemonSetPods: false, evictSystemCriticalPods: false",
            {
                "protections": {
                    "disabled": ["PodsWithLocalStorage", "FailedBarePods"],
                    "extra": ["PodsWithPVC", "PodsWithoutPDB"],
                }
            },
            id="the older switches",
        ),
    ],
)
def test_default_evictor_becomes_protections(args: str, expected: dict[str, Any]) -> None:
    imported = read_v1alpha2(evictor(args))
    assert imported.warnings == ()
    (document,) = imported.documents
    spec = document["spec"]
    assert {part: spec[part] for part in spec if part not in ("mode", "strategies")} == expected


def test_top_level_fields_apply_to_every_profile(golden: Golden) -> None:
    imported = read_v1alpha2(
        "{nodeSelector: 'pool=a', maxNoOfPodsToEvictPerNode: 1, maxNoOfPodsToEvictPerNamespace: 2, "
        "maxNoOfPodsToEvictTotal: 3, "
        "gracePeriodSeconds: 0, profiles: ["
        f"{{name: a, pluginConfig: [{LIFETIME}, {{name: DefaultEvictor, args: {{minReplicas: 2}}}}], {RUNS}}}, "
        f"{{name: b, pluginConfig: [{LIFETIME}, {{name: DefaultEvictor, args: {{minPodAge: 5m}}}}], {RUNS}}}]}}"
    )

    first, second = imported.policies
    assert (first.name, second.name) == ("a", "b")
    for policy in imported.policies:
        limits = policy.spec.limits
        assert (limits.per_node, limits.per_namespace, limits.per_cycle) == (1, 2, 3)
        assert policy.spec.node_selector is not None
        assert policy.spec.grace_period_seconds == 0
    assert (first.spec.protections.min_replicas, second.spec.protections.min_replicas) == (2, None)
    assert (first.spec.protections.min_pod_age, second.spec.protections.min_pod_age) == (None, "5m")
    golden("\n".join(f"{key}: {text}" for key, text in warnings_of(imported).items()))


def test_profiles_do_not_share_protections() -> None:
    pvc = "{name: DefaultEvictor, args: {ignorePvcPods: true}}"
    storage = "{name: DefaultEvictor, args: {podProtections: {extraEnabled: [PodsWithoutPDB]}}}"
    first, second = read_v1alpha2(
        f"{{profiles: [{{name: a, pluginConfig: [{LIFETIME}, {pvc}], {RUNS}}}, "
        f"{{name: b, pluginConfig: [{LIFETIME}, {storage}], {RUNS}}}]}}"
    ).policies

    assert first.spec.protections.extra == ("PodsWithPVC",)
    assert second.spec.protections.extra == ("PodsWithoutPDB",)


def test_strategies_are_grouped_by_scope() -> None:
    imported = read_v1alpha2(
        profile(
            "pluginConfig: [{name: DefaultEvictor, args: {labelSelector: {matchLabels: {tier: web}}}}, "
            "{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 60, namespaces: {include: [a]}, "
            "labelSelector: {matchLabels: {app: x, tier: db}}}}, "
            "{name: RemovePodsViolatingNodeTaints, args: {namespaces: {exclude: []}}}], "
            "plugins: {deschedule: {enabled: [PodLifeTime, RemovePodsViolatingNodeTaints]}, "
            "balance: {enabled: [RemoveDuplicates]}}"
        )
    )

    own, shared = (document["spec"] for document in imported.documents)
    assert [policy.name for policy in imported.policies] == [
        "profile-name-pod-life-time",
        "profile-name-remove-pods-violating-node-taints",
    ]
    assert own["namespaces"] == {"include": ["a"]}
    assert own["podSelector"] == {
        "matchLabels": {"tier": "web", "app": "x"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["db"]}],
    }
    assert list(shared["strategies"]) == ["RemovePodsViolatingNodeTaints", "RemoveDuplicates"]
    assert shared["podSelector"] == {"matchLabels": {"tier": "web"}}
    assert "namespaces" not in shared
    assert "2 policies" in warnings_of(imported)["profiles[0]"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(["ProfileName"], ["profile-name"], id="of two words"),
        pytest.param(["strategy-RemoveDuplicates-profile"], ["strategy-remove-duplicates-profile"], id="as migrated"),
        pytest.param(["a b", "a_b"], ["a-b", "a-b-2"], id="that become one"),
        pytest.param([None], ["default"], id="none"),
        pytest.param(["…"], ["default"], id="without a letter"),
    ],
)
def test_profile_names_become_object_names(names: list[str | None], expected: list[str]) -> None:
    profiles = [
        {
            **({"name": name} if name else {}),
            "pluginConfig": [{"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 1}}],
            "plugins": {"deschedule": {"enabled": ["PodLifeTime"]}},
        }
        for name in names
    ]
    data = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": profiles}
    assert [policy.name for policy in read_v1alpha2(data).policies] == expected


CONFIG = "profiles[0].pluginConfig"
POINT = "profiles[0].plugins"


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            profile(f"nodeFit: true, pluginConfig: [{LIFETIME}], {RUNS}"),
            "profiles[0].nodeFit",
            "nodeFit belongs to the args of DefaultEvictor (profiles[].pluginConfig[])",
            id="nodeFit next to name: issue 1627",
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], {RUNS}", "namespaces: {include: [a]}, "),
            "namespaces",
            "namespaces belongs to the args of RemoveDuplicates",
            id="namespaces at the top: issue 1704",
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], {RUNS}", "evictLocalStoragePods: true, "),
            "evictLocalStoragePods",
            "evictLocalStoragePods belongs to the args of DefaultEvictor",
            id="v1alpha1's flag at the top",
        ),
        pytest.param(
            profile(f"maxNoOfPodsToEvictPerNode: 1, pluginConfig: [{LIFETIME}], {RUNS}"),
            "profiles[0].maxNoOfPodsToEvictPerNode",
            "belongs to the top of the file",
            id="a limit in a profile",
        ),
        pytest.param(
            evictor("", "maxNoOfPodsToEvictPerNodes: 5, "),
            "maxNoOfPodsToEvictPerNodes",
            "did you mean maxNoOfPodsToEvictPerNode?",
            id="a misspelt limit",
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], {RUNS}", "metricsProviders: [{sources: Prometheus}], "),
            "metricsProviders[0].sources",
            "did you mean source?",
            id="a misspelt source of metrics",
        ),
        pytest.param(
            "profiles: [{name: default, plugins: {evict: {enabled: [DefaultEvictor]}, "
            "deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}}]",
            "profiles[0].plugins.evict",
            "DefaultEvictor is always enabled",
            id="the extension point evict",
        ),
    ],
)
def test_unknown_keys_are_ignored_as_upstream_does(content: str, field: str, words: str) -> None:
    imported = read_v1alpha2(content)
    dropped = {each.field: each for each in imported.warnings if "as by the descheduler" in each.message}
    assert set(dropped) == {field}
    assert dropped[field].severity == "high"
    assert words in dropped[field].message


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            profile(f"pluginConfig: [{{name: PodLifeTime, maxPodLifeTimeSeconds: 60}}], {RUNS}"),
            f"{CONFIG}[0].maxPodLifeTimeSeconds",
            "maxPodLifeTimeSeconds belongs to the args of PodLifeTime",
            id="an argument next to args",
        ),
        pytest.param(
            "{strategies: {PodLifeTime: {enabled: true}}, profiles: []}",
            "strategies",
            "it belongs to descheduler/v1alpha1",
            id="v1alpha1's strategies",
        ),
        pytest.param(
            profile(f"pluginConfigs: [{LIFETIME}], {RUNS}"),
            "profiles[0].pluginConfigs",
            "did you mean pluginConfig?",
            id="a misspelt key",
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], plugins: {{deschedule: {{enable: [PodLifeTime]}}}}"),
            f"{POINT}.deschedule.enable",
            "did you mean enabled?",
            id="a misspelt list of plugins",
        ),
    ],
)
def test_unknown_key_is_reported_before_the_errors_that_it_causes(content: str, field: str, words: str) -> None:
    errors = errors_of(read_v1alpha2, content)
    assert next(iter(errors)) == field
    assert len(errors) == 2
    assert words in errors[field]


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            strategy("PodLifeTime", "maxPodLifetimeSeconds: 5, states: [Pending]"),
            f"{CONFIG}[0].args.maxPodLifetimeSeconds",
            "did you mean maxPodLifeTimeSeconds?",
            id="a misspelt argument",
        ),
        pytest.param(
            strategy("RemovePodsViolatingNodeTaints", "minReplicas: 2"),
            f"{CONFIG}[0].args.minReplicas",
            "minReplicas belongs to the args of DefaultEvictor",
            id="DefaultEvictor's argument in a strategy",
        ),
        pytest.param(
            strategy("PodLifeTime", "podLifeTime: {maxPodLifeTimeSeconds: 5}, states: [Pending]"),
            f"{CONFIG}[0].args.podLifeTime",
            "it belongs to descheduler/v1alpha1",
            id="v1alpha1's nesting",
        ),
        pytest.param(
            evictor("podProtections: {extraEnabled: [PodsWithLocalStorage]}"),
            f"{CONFIG}[0].args.podProtections.extraEnabled[0]",
            "belongs to podProtections.defaultDisabled",
            id="a default protection as extra",
        ),
        pytest.param(
            evictor("podProtections: {extraEnabled: [PodsWithPvc]}"),
            f"{CONFIG}[0].args.podProtections.extraEnabled[0]",
            "did you mean PodsWithPVC?",
            id="a misspelt protection",
        ),
        pytest.param(
            evictor("podProtections: {extraEnabled: [PodsWithPVC, PodsWithPVC]}"),
            f"{CONFIG}[0].args.podProtections.extraEnabled[1]",
            "twice",
            id="a protection twice",
        ),
        pytest.param(
            evictor("podProtections: {disabled: [PodsWithLocalStorage]}"),
            f"{CONFIG}[0].args.podProtections.disabled",
            "unknown field",
            id="our own name of a list",
        ),
        pytest.param(
            evictor("podProtections: {config: {PodsWithPVC: {protectedStorageClasses: [{name: fast}]}}}"),
            f"{CONFIG}[0].args.podProtections.config.PodsWithPVC.protectedStorageClasses",
            "must be in extraEnabled",
            id="an empty list of storage classes",
        ),
        pytest.param(
            evictor("ignorePvcPods: true, podProtections: {extraEnabled: [PodsWithoutPDB]}"),
            f"{CONFIG}[0].args.ignorePvcPods",
            "cannot be given together with podProtections",
            id="old and new protections",
        ),
        pytest.param(
            evictor("priorityThreshold: {name: high, value: 3}"),
            f"{CONFIG}[0].args.priorityThreshold",
            "exactly one of name and value",
            id="a priority by name and value",
        ),
        pytest.param(
            evictor("minPodAge: 5 minutes"),
            f"{CONFIG}[0].args.minPodAge",
            "must be a duration",
            id="an age that is none",
        ),
        pytest.param(
            evictor("minReplicas: -1"),
            f"{CONFIG}[0].args.minReplicas",
            "at least 1",
            id="a negative number of replicas",
        ),
        pytest.param(
            evictor("labelSelector: {matchLabel: {a: b}}"),
            f"{CONFIG}[0].args.labelSelector.matchLabel",
            "did you mean matchLabels?",
            id="a misspelt selector",
        ),
        pytest.param(
            evictor("nodeFit: 'yes'"), f"{CONFIG}[0].args.nodeFit", "true or false", id="a switch that is none"
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], plugins: {{balance: {{enabled: [PodLifeTime]}}}}"),
            f"{POINT}.balance.enabled[0]",
            "PodLifeTime belongs to plugins.deschedule.enabled",
            id="a strategy at the wrong point",
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], plugins: {{deschedule: {{enabled: [PodLifetime]}}}}"),
            f"{POINT}.deschedule.enabled[0]",
            "did you mean PodLifeTime?",
            id="a misspelt plugin",
        ),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], plugins: {{deschedule: {{enabled: [{{name: PodLifeTime}}]}}}}"),
            f"{POINT}.deschedule.enabled[0]",
            "must be a plugin's name alone",
            id="a plugin as kube-scheduler has it",
        ),
        pytest.param(
            profile(
                f"pluginConfig: [{LIFETIME}], "
                "plugins: {deschedule: {enabled: [PodLifeTime], disabled: [PodLifeTime]}}"
            ),
            f"{POINT}.deschedule.enabled[0]",
            "both enabled and disabled",
            id="on and off",
        ),
        pytest.param(
            profile(
                f"pluginConfig: [{LIFETIME}], plugins: {{deschedule: {{enabled: [PodLifeTime]}}, "
                "filter: {enabled: [MyFilter]}}"
            ),
            f"{POINT}.filter.enabled[0]",
            "its protections would be lost",
            id="another filter",
        ),
        pytest.param(
            profile(f"pluginConfig: [{{args: {{}}}}, {LIFETIME}], {RUNS}"),
            f"{CONFIG}[0].name",
            "is required",
            id="a configuration of an unknown plugin",
        ),
        pytest.param(
            profile(f"pluginConfig: [{{name: RemoveDuplicates, args: {{nodeFit: true}}}}, {LIFETIME}], {RUNS}"),
            f"{CONFIG}[0].args.nodeFit",
            "belongs to the args of DefaultEvictor",
            id="an error in a disabled plugin",
        ),
        pytest.param(
            strategy("LowNodeUtilization", "thresholds: {cpu: 60}, targetThresholds: {cpu: 50}"),
            f"{CONFIG}[0].args.thresholds.cpu",
            "must not exceed targetThresholds",
            id="a threshold above its target",
        ),
        pytest.param(
            strategy("RemovePodsHavingTooManyRestarts", ""),
            f"{CONFIG}[0].args.podRestartThreshold",
            "is required",
            id="an argument that is missing",
        ),
        pytest.param(
            strategy("PodLifeTime", "maxPodLifeTimeSeconds: 1, namespaces: {include: [a], exclude: [b]}"),
            f"{CONFIG}[0].args.namespaces.exclude",
            "cannot be given together",
            id="namespaces in and out",
        ),
        pytest.param(
            strategy(
                "LowNodeUtilization",
                "thresholds: {MetricResource: 20}, targetThresholds: {MetricResource: 50}, "
                "metricsUtilization: {source: Prometheus}",
            ),
            f"{CONFIG}[0].args.metricsUtilization.prometheus",
            "is required for the source Prometheus",
            id="Prometheus without a query",
        ),
        pytest.param(
            strategy(
                "LowNodeUtilization",
                "thresholds: {MetricResource: 20}, targetThresholds: {MetricResource: 50}, "
                "metricsUtilization: {source: Datadog}",
            ),
            f"{CONFIG}[0].args.metricsUtilization.source",
            "KubernetesMetrics",
            id="real use of a source that is not known",
        ),
        pytest.param(
            strategy(
                "LowNodeUtilization",
                "thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, "
                "metricsUtilization: {source: Prometheus, metricsServer: true, prometheus: {query: up}}",
            ),
            f"{CONFIG}[0].args.metricsUtilization.metricsServer",
            "cannot be given together",
            id="two sources of real use",
        ),
        pytest.param(
            strategy(
                "LowNodeUtilization",
                "thresholds: {cpu: 20}, targetThresholds: {MetricResource: 50}, "
                "metricsUtilization: {source: Prometheus, prometheus: {query: up}}",
            ),
            f"{CONFIG}[0].args.thresholds.cpu",
            "measures MetricResource and nothing else",
            id="thresholds of resources without a query",
        ),
        pytest.param("{profiles: []}", "profiles", "no profile enables a strategy", id="no profile"),
        pytest.param(
            profile("pluginConfig: [{name: DefaultEvictor}]"),
            "profiles",
            "no profile enables a strategy",
            id="no plugin",
        ),
        pytest.param("{profiles: {}}", "profiles", "must be a list", id="profiles that are no list"),
        pytest.param(
            profile(f"pluginConfig: [{LIFETIME}], {RUNS}", "maxNoOfPodsToEvictTotal: 0, "),
            "maxNoOfPodsToEvictTotal",
            "to evict no pods",
            id="a limit of 0",
        ),
        pytest.param(
            f"{{profiles: [{{name: a, pluginConfig: [{LIFETIME}], {RUNS}}}, "
            f"{{name: a, pluginConfig: [{LIFETIME}], {RUNS}}}]}}",
            "profiles[1].name",
            "must not be given twice",
            id="two profiles of one name",
        ),
    ],
)
def test_invalid_fields_are_reported_by_their_own_name(content: str, field: str, words: str) -> None:
    errors = errors_of(read_v1alpha2, content)
    assert set(errors) == {field}
    assert words in errors[field]


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            evictor("evictSystemCriticalPods: true"),
            f"{CONFIG}[0].args.evictSystemCriticalPods",
            "system-critical pods are always protected",
            id="critical pods",
        ),
        pytest.param(
            evictor("podProtections: {defaultDisabled: [DaemonSetPods]}"),
            f"{CONFIG}[0].args.podProtections.defaultDisabled[0]",
            "DaemonSets' pods stay protected",
            id="pods of DaemonSets",
        ),
        pytest.param(
            evictor("nodeFit: false"), f"{CONFIG}[0].args.nodeFit", "finds a node that can run a pod", id="no nodeFit"
        ),
        pytest.param(
            evictor("nodeFit: true, nodeSelector: 'disk=ssd'", "nodeSelector: 'pool=a', "),
            f"{CONFIG}[0].args.nodeSelector",
            "also limits the nodes that pods are evicted from",
            id="a selector of destinations",
        ),
        pytest.param(
            evictor("", "evictionFailureEventNotification: false, "),
            "evictionFailureEventNotification",
            "always reported as events",
            id="no events",
        ),
        pytest.param(
            evictor("", "metricsProviders: [{source: Datadog}], "),
            "metricsProviders[0]",
            "is ignored",
            id="a source of metrics that is not read",
        ),
        pytest.param(
            evictor("", "metricsProviders: [{source: Prometheus, prometheus: {url: 'https://p:9091'}}], "),
            "metricsProviders[0]",
            "--prometheus-url=https://p:9091 and a --prometheus-token-file with the token of the service account",
            id="where Prometheus is",
        ),
        pytest.param(
            evictor(
                "",
                "metricsProviders: [{source: Prometheus, prometheus: {authToken: {secretReference: {name: a}}}}], ",
            ),
            "metricsProviders[0]",
            "with the token of that Secret",
            id="how to log in at Prometheus",
        ),
        pytest.param(
            profile(f"pluginConfig: [{{name: RemoveDuplicates}}, {LIFETIME}], {RUNS}"),
            f"{CONFIG}[0]",
            "RemoveDuplicates is not enabled in profiles[0].plugins",
            id="a plugin that does not run",
        ),
        pytest.param(
            profile(
                f"pluginConfig: [{LIFETIME}], plugins: {{sort: {{enabled: [Mine]}}, "
                "deschedule: {enabled: [PodLifeTime]}}"
            ),
            f"{POINT}.sort.enabled[0]",
            "never calls it",
            id="a point that is never called",
        ),
        pytest.param(
            profile(
                f"pluginConfig: [{LIFETIME}], plugins: {{filter: {{disabled: [DefaultEvictor]}}, "
                "deschedule: {enabled: [PodLifeTime]}}"
            ),
            f"{POINT}.filter.disabled",
            "DefaultEvictor's protections always apply",
            id="no protections",
        ),
        pytest.param(
            f"{{profiles: [{{name: a}}, {{name: b, pluginConfig: [{LIFETIME}], {RUNS}}}]}}",
            "profiles[0]",
            "enables no strategy",
            id="a profile without plugins",
        ),
    ],
)
def test_differences_are_reported_as_warnings(content: str, field: str, words: str) -> None:
    warnings = warnings_of(read_v1alpha2(content))
    assert set(warnings) == {field}
    assert words in warnings[field]


@pytest.mark.parametrize("point", ["preevictionfilter", "preEvictionFilter", "filter"])
def test_default_evictor_may_be_listed_as_filter(point: str) -> None:
    imported = read_v1alpha2(
        profile(
            f"pluginConfig: [{LIFETIME}], plugins: {{{point}: {{enabled: [DefaultEvictor]}}, "
            "deschedule: {enabled: [PodLifeTime]}}"
        )
    )
    assert imported.warnings == ()


def test_a_strategy_needs_no_entry_of_its_own_in_plugin_config() -> None:
    assert list(spec_of(profile("plugins: {balance: {enabled: [RemoveDuplicates]}}"))["strategies"]) == [
        "RemoveDuplicates"
    ]


def test_all_errors_are_reported_together() -> None:
    errors = errors_of(
        read_v1alpha2,
        "{nodeFit: true, profiles: [{name: a, namespaces: {}, pluginConfig: ["
        "{name: DefaultEvictor, args: {minReplica: 1}}, {name: PodLifeTime, args: {maxPodLifeTime: 1}}], "
        "plugins: {balance: {enabled: [PodLifeTime, RemoveDuplicate]}}}]}",
    )
    assert set(errors) == {
        "nodeFit",
        "profiles[0].namespaces",
        f"{CONFIG}[0].args.minReplica",
        f"{CONFIG}[1].args.maxPodLifeTime",
        f"{POINT}.balance.enabled[0]",
        f"{POINT}.balance.enabled[1]",
    }


@pytest.mark.parametrize("data", [None, {}, [], {"apiVersion": "descheduler/v1alpha2", "kind": "Other"}])
def test_other_documents_are_rejected(data: Any, golden: Golden) -> None:
    golden("\n".join(f"{key}: {text}" for key, text in errors_of(read_v1alpha2, data).items()))


UPSTREAM = Path.home() / "go/pkg/mod/sigs.k8s.io/descheduler@v0.36.0"
EXAMPLES = sorted(UPSTREAM.glob("examples/*.y*ml"))


@pytest.mark.skipif(not EXAMPLES, reason="the descheduler project's module is not in Go's module cache")
def test_upstream_examples_are_accepted() -> None:
    for path in EXAMPLES:
        imported = read_v1alpha2(yaml.safe_load(path.read_text(encoding="utf-8")))
        assert [policy.name for policy in imported.policies] == ["profile-name"]
        assert imported.warnings == ()


@pytest.mark.parametrize(
    ("metrics", "resource", "expected"),
    [
        pytest.param(
            "{source: Prometheus, prometheus: {query: 'avg by (instance) (x)'}}",
            "MetricResource",
            {"source": "Prometheus", "prometheus": {"query": "avg by (instance) (x)"}},
            id="a query",
        ),
        pytest.param("{source: KubernetesMetrics}", "cpu", {"source": "KubernetesMetrics"}, id="the metrics API"),
        pytest.param("{metricsServer: true}", "cpu", {"source": "KubernetesMetrics"}, id="its old name"),
        pytest.param(
            "{metricsServer: false, source: KubernetesMetrics}", "cpu", {"source": "KubernetesMetrics"}, id="not by it"
        ),
    ],
)
def test_metrics_utilization_is_converted(metrics: str, resource: str, expected: dict[str, Any]) -> None:
    shares = f"thresholds: {{{resource}: 20}}, targetThresholds: {{{resource}: 50}}"
    content = strategy("LowNodeUtilization", f"{shares}, evictionLimits: {{node: 2}}, metricsUtilization: {metrics}")
    (document,) = read_v1alpha2(content).documents
    params = document["spec"]["strategies"]["LowNodeUtilization"]["params"]
    assert params["metricsUtilization"] == expected
    assert params["evictionLimits"] == {"node": 2}


@pytest.mark.parametrize(
    ("content", "field", "words"),
    [
        pytest.param(
            "profiles: [{name: default, plugins: {balance: {enabled: [LowNodeUtilization]}}}]",
            "profiles[0].pluginConfig",
            ("thresholds and targetThresholds", "args of LowNodeUtilization"),
            id="utilization without thresholds",
        ),
        pytest.param(
            "profiles: [{name: default, pluginConfig: [{name: LowNodeUtilization, args: {thresholds: {cpu: 20}}}], "
            "plugins: {balance: {enabled: [LowNodeUtilization]}}}]",
            "profiles[0].pluginConfig[0].args",
            ("targetThresholds: required",),
            id="utilization without targetThresholds",
        ),
        pytest.param(
            "profiles: [{name: default, pluginConfig: [{name: LowNodeUtilization, args: {thresholds: {cpu: 20}, "
            "targetThresholds: {cpu: 50}, evictableNamespaces: {include: [shop]}}}], "
            "plugins: {balance: {enabled: [LowNodeUtilization]}}}]",
            "profiles[0].pluginConfig[0].args.evictableNamespaces.include",
            ("is not supported", "spec.namespaces.include"),
            id="evictableNamespaces with include",
        ),
    ],
)
def test_errors_name_what_the_format_has_instead(content: str, field: str, words: tuple[str, ...]) -> None:
    errors = errors_of(read_v1alpha2, content)
    assert set(errors) == {field}
    assert all(each in errors[field] for each in words)


@pytest.mark.parametrize(("seconds", "severity"), [(604800, "low"), (60, "medium")])
def test_first_of_two_configurations_of_a_plugin_is_used(seconds: int, severity: str) -> None:
    imported = read_v1alpha2(
        "profiles: [{name: a, pluginConfig: [{name: PodLifeTime, args: {maxPodLifeTimeSeconds: 604800}}, "
        f"{{name: PodLifeTime, args: {{maxPodLifeTimeSeconds: {seconds}}}}}], "
        "plugins: {deschedule: {enabled: [PodLifeTime]}}}]"
    )
    (document,) = imported.documents
    assert document["spec"]["strategies"]["PodLifeTime"]["params"] == {"maxPodLifeTimeSeconds": 604800}
    assert [(each.field, each.severity) for each in imported.warnings] == [
        ("profiles[0].pluginConfig[1].name", severity)
    ]
