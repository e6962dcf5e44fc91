"""Policies as users write them: the seed's YAML, and what must be refused, by trimtab and by the API server alike."""

from __future__ import annotations

from typing import Any

import msgspec

SEED_STRATEGIES = """
  "RemoveDuplicates":
     enabled: false
  "LowNodeUtilization":
     enabled: true
     params:
       nodeResourceUtilizationThresholds:
         thresholds:
           "cpu" : 20
           "memory": 20
           "pods": 20
         targetThresholds:
           "cpu" : 50
           "memory": 50
           "pods": 50
         numberOfNodes: 3
  "RemovePodsViolatingInterPodAntiAffinity":
     enabled: true
  "RemovePodsViolatingNodeAffinity":
    enabled: true
    params:
      nodeAffinityType:
      - "requiredDuringSchedulingIgnoredDuringExecution"
"""
"""The strategies of OpenShift 3.11's sample policy file, as its documentation prints them."""


def seed_strategies() -> dict[str, Any]:
    loaded = msgspec.yaml.decode(SEED_STRATEGIES)
    assert isinstance(loaded, dict)
    return loaded


def seed_file() -> dict[str, Any]:
    """The whole sample file in the descheduler's own format."""
    return {"apiVersion": "descheduler/v1alpha1", "kind": "DeschedulerPolicy", "strategies": seed_strategies()}


def manifest(spec: dict[str, Any] | str, *, name: str = "test") -> dict[str, Any]:
    """A DeschedulerPolicy with that spec, which may be YAML."""
    content = msgspec.yaml.decode(spec) if isinstance(spec, str) else spec
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": name},
        "spec": content,
    }


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_AFFINITY = "{strategies: {RemovePodsViolatingNodeAffinity: {params: {nodeAffinityType: %s}}}}"
DUPLICATES = "strategies: {RemoveDuplicates: {}}"


def with_duplicates(rest: str) -> str:
    """A spec with one strategy and something else."""
    return f"{{{DUPLICATES}, {rest}}}"


def low_node(thresholds: str) -> str:
    """A spec of LowNodeUtilization with those nodeResourceUtilizationThresholds."""
    return (
        f"{{strategies: {{LowNodeUtilization: {{params: {{nodeResourceUtilizationThresholds: {{{thresholds}}}}}}}}}}}"
    )


def high_node(thresholds: str, rest: str = "") -> str:
    """A spec of HighNodeUtilization with those nodeResourceUtilizationThresholds, and other parameters."""
    params = f"nodeResourceUtilizationThresholds: {{{thresholds}}}{rest}"
    return f"{{strategies: {{HighNodeUtilization: {{params: {{{params}}}}}}}}}"


def by_use(metrics: str, thresholds: str = "{MetricResource: 30}", targets: str = "{MetricResource: 70}") -> str:
    """A spec of LowNodeUtilization with that metricsUtilization."""
    limits = f"{{thresholds: {thresholds}, targetThresholds: {targets}}}"
    params = f"{{metricsUtilization: {metrics}, nodeResourceUtilizationThresholds: {limits}}}"
    return f"{{strategies: {{LowNodeUtilization: {{params: {params}}}}}}}"


UNDER_20 = "{enabled: %s, params: {nodeResourceUtilizationThresholds: {thresholds: {cpu: 20}%s}}}"


def both_utilizations(low: str, high: str) -> str:
    """A spec of LowNodeUtilization and HighNodeUtilization, each enabled or not."""
    even, fill = UNDER_20 % (low, ", targetThresholds: {cpu: 50}"), UNDER_20 % (high, "")
    return f"{{strategies: {{LowNodeUtilization: {even}, HighNodeUtilization: {fill}}}}}"


ACCEPTED = {
    "one strategy by its name": "{strategies: {RemoveDuplicates: {}}}",
    "a strategy that is off needs no params": "{strategies: {LowNodeUtilization: {enabled: false}}}",
    "empty params": "{strategies: {RemovePodsViolatingInterPodAntiAffinity: {params: {}}}}",
    "owner kinds to leave alone": "{strategies: {RemoveDuplicates: {params: {removeDuplicates: "
    "{excludeOwnerKinds: [StatefulSet]}}}}}",
    "both node affinity types": "{strategies: {RemovePodsViolatingNodeAffinity: {params: {nodeAffinityType: "
    "[requiredDuringSchedulingIgnoredDuringExecution, preferredDuringSchedulingIgnoredDuringExecution]}}}}",
    "different resources on both sides": low_node("thresholds: {cpu: 20}, targetThresholds: {pods: 50}"),
    "fractions and any resource": low_node(
        "thresholds: {nvidia.com/gpu: 12.5}, targetThresholds: {nvidia.com/gpu: 80}"
    ),
    "equal thresholds": low_node("thresholds: {cpu: 50}, targetThresholds: {cpu: 50}"),
    "restarts": "{strategies: {RemovePodsHavingTooManyRestarts: {params: {podRestartThreshold: 100, "
    "includingInitContainers: true, states: [Running, CrashLoopBackOff]}}}}",
    "a strategy that is off needs none of its params": "{strategies: {RemovePodsHavingTooManyRestarts: "
    "{enabled: false}, PodLifeTime: {enabled: false, params: {includingInitContainers: true}}}}",
    "a life time": "{strategies: {PodLifeTime: {params: {maxPodLifeTimeSeconds: 86400}}}}",
    "states, conditions and exit codes": "{strategies: {PodLifeTime: {params: {states: [Pending, ImagePullBackOff], "
    "conditions: [{type: Ready, status: 'False', minTimeSinceLastTransitionSeconds: 60}, {reason: PodCompleted}], "
    "exitCodes: [-1, 0, 137], ownerKinds: {exclude: [Job]}, includingEphemeralContainers: true}}}}",
    "conditions alone": "{strategies: {PodLifeTime: {params: {conditions: [{status: Unknown}]}}}}",
    "failed pods": "{strategies: {RemoveFailedPods: {params: {reasons: [Evicted, anything], exitCodes: [1], "
    "minPodLifetimeSeconds: 0, excludeOwnerKinds: [Job], includingInitContainers: true}}}}",
    "failed pods of any kind": "{strategies: {RemoveFailedPods: {}}}",
    "taints to leave aside": "{strategies: {RemovePodsViolatingNodeTaints: {params: {includePreferNoSchedule: true, "
    "excludedTaints: [dedicated, example.com/pool=a.b-c, node.kubernetes.io/unschedulable, empty=]}}}}",
    "the only taints to look at": "{strategies: {RemovePodsViolatingNodeTaints: {params: {includedTaints: [a=b]}}}}",
    "all taints": "{strategies: {RemovePodsViolatingNodeTaints: {params: {}}}}",
    "hard and soft constraints": "{strategies: {RemovePodsViolatingTopologySpreadConstraint: {params: {constraints: "
    "[DoNotSchedule, ScheduleAnyway], topologyBalanceNodeFit: false}}}}",
    "topology spread as it is": "{strategies: {RemovePodsViolatingTopologySpreadConstraint: {}}}",
    "deviations, of which the lower may be the larger": low_node(
        "useDeviationThresholds: true, thresholds: {cpu: 30, example.com/gpu: 5}, targetThresholds: {cpu: 10}"
    ),
    "namespaces to spare and a limit per node": "{strategies: {LowNodeUtilization: {params: {evictableNamespaces: "
    "{exclude: [kube-system]}, evictionLimits: {node: 2}, nodeResourceUtilizationThresholds: "
    "{thresholds: {cpu: 20}, targetThresholds: {cpu: 50}}}}}}",
    "real use from the metrics API": by_use("{source: KubernetesMetrics}", "{cpu: 30}", "{memory: 70}"),
    "real use from Prometheus": by_use("{source: Prometheus, prometheus: {query: up}}"),
    "real use from Prometheus, of pods as well": by_use(
        "{source: Prometheus, prometheus: {query: 'a:b', nodeLabel: node, podQuery: 'sum(x) by (namespace, pod)'}}"
    ),
    "nodes to empty": high_node("thresholds: {cpu: 20, pods: 10}, numberOfNodes: 2"),
    "nodes to empty of some resource": high_node(
        "thresholds: {nvidia.com/gpu: 50}",
        ", evictionModes: [OnlyThresholdingResources], evictableNamespaces: {exclude: [shop]}",
    ),
    "filling nodes, and levelling them while it is off": both_utilizations("false", "true"),
    "levelling nodes, and filling them while it is off": both_utilizations("true", "false"),
    "pods to part by preference": "{strategies: {RemovePodsViolatingInterPodAntiAffinity: {params: "
    f"{{interPodAntiAffinityType: [preferredDuringSchedulingIgnoredDuringExecution, {REQUIRED}]}}}}}}}}",
    "pods to bring together": "{strategies: {RemovePodsViolatingInterPodAffinity: {params: "
    f"{{interPodAffinityType: [{REQUIRED}]}}}}}}}}",
    "a grace period": with_duplicates("gracePeriodSeconds: 0"),
    "an interval": with_duplicates("interval: 1h30m"),
    "the shortest interval": with_duplicates("interval: 5s"),
    "cooldown": with_duplicates("cooldown: {initial: 1s, maximum: 168h, attempts: 20, pendingDeadline: 90s}"),
    "approval": with_duplicates("mode: Approve, approvalDeadline: 3h30m, runsHistoryLimit: 50"),
    "single replicas by a rollout": with_duplicates("singleReplica: Surge"),
    "no runs": with_duplicates("mode: Act, runsHistoryLimit: 0"),
    "a schedule": with_duplicates("schedule: {cron: '*/10 2-4 * * MON-FRI', timeZone: Europe/Berlin}"),
    "windows": with_duplicates(
        "windows: [{schedule: '0 22 * * 1-5', duration: 4h, timeZone: Europe/Berlin}, "
        "{schedule: '0 0 * * 6', duration: 48h}]"
    ),
    "a schedule without a time zone": with_duplicates("schedule: {cron: '0 4 1,15 * *'}"),
    "limits": with_duplicates("limits: {perCycle: 5, perNode: 1, perNamespace: 2, perOwner: 1, perMinute: 10}"),
    "protections": with_duplicates(
        "protections: {disabled: [PodsWithLocalStorage, SystemNamespaces], extra: [PodsWithPVC, PodsWithoutPDB], "
        "minReplicas: 2, minPodAge: 10m}"
    ),
    "more protections": with_duplicates(
        "protections: {disabled: [FailedBarePods], extra: [PodsWithResourceClaims, PodsWithPVC], "
        "protectedStorageClasses: [fast, slow], noEvictionPolicy: Mandatory}"
    ),
    "namespaces by label": with_duplicates("namespaceSelector: {matchLabels: {team: a}}, namespaces: {exclude: [b]}"),
    "namespaces to look at": with_duplicates("namespaces: {include: [shop, shop-2]}"),
    "selectors": with_duplicates(
        "podSelector: {matchLabels: {app: web}}, nodeSelector: {matchExpressions: [{key: zone, operator: In, "
        "values: [a]}, {key: spot, operator: DoesNotExist}]}"
    ),
    "a priority by name": with_duplicates("priorityThreshold: {name: high}"),
    "a priority by number": with_duplicates("priorityThreshold: {value: -5}"),
    "suspended and acting": with_duplicates("suspend: true, mode: Act"),
}
"""What is good, as YAML of a spec."""

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "an unknown strategy": (
        "{strategies: {uneededStrategy: {}}}",
        ("spec.strategies", "uneededStrategy", "RemoveDuplicates, LowNodeUtilization"),
    ),
    "an unknown strategy beside a good one": (
        "{strategies: {RemoveDuplicates: {}, PodLifetime: {enabled: false}}}",
        ("spec.strategies", "PodLifetime"),
    ),
    "no strategy at all": ("{strategies: {}}", ("spec.strategies", "at least")),
    "strategies missing": ("{mode: Act}", ("spec.strategies",)),
    "a threshold above 100": (
        low_node("thresholds: {cpu: 120}, targetThresholds: {memory: 50}"),
        ("nodeResourceUtilizationThresholds.thresholds.cpu", "100"),
    ),
    "a negative threshold": (
        low_node("thresholds: {cpu: 20}, targetThresholds: {cpu: -1}"),
        ("nodeResourceUtilizationThresholds.targetThresholds.cpu", "0"),
    ),
    "a threshold that is no number": (
        low_node("thresholds: {cpu: '20'}, targetThresholds: {cpu: 50}"),
        ("nodeResourceUtilizationThresholds.thresholds.cpu", "number"),
    ),
    "a threshold above its target": (
        low_node("thresholds: {cpu: 60, memory: 10}, targetThresholds: {cpu: 50, memory: 50}"),
        ("nodeResourceUtilizationThresholds.thresholds", "cpu", "targetThresholds"),
    ),
    "thresholds without targets": (
        low_node("thresholds: {cpu: 60}"),
        ("nodeResourceUtilizationThresholds.targetThresholds", "equired"),
    ),
    "levelling and filling nodes at once": (
        both_utilizations("true", "true"),
        ("spec.strategies", "LowNodeUtilization and HighNodeUtilization would undo each other"),
    ),
    "a target for filling nodes": (
        high_node("thresholds: {cpu: 20}, targetThresholds: {cpu: 50}"),
        ("spec.strategies", "HighNodeUtilization", "targetThresholds", "LowNodeUtilization"),
    ),
    "deviations for filling nodes": (
        high_node("thresholds: {cpu: 20}, useDeviationThresholds: true"),
        ("spec.strategies", "HighNodeUtilization", "useDeviationThresholds", "LowNodeUtilization"),
    ),
    "filling nodes without thresholds": (
        "{strategies: {HighNodeUtilization: {}}}",
        ("spec.strategies", "HighNodeUtilization.params.nodeResourceUtilizationThresholds", "required"),
    ),
    "an unknown eviction mode": (
        high_node("thresholds: {cpu: 20}", ", evictionModes: [Everything]"),
        ("HighNodeUtilization.params.evictionModes[0]", "OnlyThresholdingResources"),
    ),
    "namespaces to move": (
        high_node("thresholds: {cpu: 20}", ", evictableNamespaces: {exclude: ['*']}"),
        ("HighNodeUtilization.params.evictableNamespaces.exclude[0]",),
    ),
    "queries for another source": (
        by_use("{source: KubernetesMetrics, prometheus: {query: up}}", "{cpu: 30}", "{cpu: 70}"),
        ("LowNodeUtilization.params.metricsUtilization.prometheus", "source Prometheus"),
    ),
    "Prometheus without a query": (
        by_use("{source: Prometheus}"),
        ("LowNodeUtilization.params.metricsUtilization.prometheus", "source Prometheus"),
    ),
    "an empty query": (
        by_use("{source: Prometheus, prometheus: {query: ''}}"),
        ("LowNodeUtilization.params.metricsUtilization.prometheus.query", "1"),
    ),
    "a label that is none": (
        by_use("{source: Prometheus, prometheus: {query: up, nodeLabel: a.b}}"),
        ("LowNodeUtilization.params.metricsUtilization.prometheus.nodeLabel",),
    ),
    "an unknown source of real use": (
        by_use("{source: Metrics}"),
        ("LowNodeUtilization.params.metricsUtilization.source", "KubernetesMetrics", "Prometheus"),
    ),
    "a threshold of what Prometheus does not measure": (
        by_use("{source: Prometheus, prometheus: {query: up}}", "{cpu: 30, MetricResource: 30}"),
        ("spec.strategies", "LowNodeUtilization", "MetricResource"),
    ),
    "a target of what Prometheus does not measure": (
        by_use("{source: Prometheus, prometheus: {query: up}}", targets="{cpu: 30}"),
        ("spec.strategies", "LowNodeUtilization", "MetricResource"),
    ),
    "a threshold of a query that nobody asks": (
        low_node("thresholds: {MetricResource: 20}, targetThresholds: {MetricResource: 50}"),
        ("spec.strategies", "LowNodeUtilization", "MetricResource"),
    ),
    "a limit of none per node": (
        "{strategies: {LowNodeUtilization: {enabled: false, params: {evictionLimits: {node: 0}}}}}",
        ("LowNodeUtilization.params.evictionLimits.node", "1"),
    ),
    "an unknown pod affinity type": (
        "{strategies: {RemovePodsViolatingInterPodAffinity: {params: {interPodAffinityType: [soft]}}}}",
        ("RemovePodsViolatingInterPodAffinity.params.interPodAffinityType[0]", "requiredDuringSchedulingIgnored"),
    ),
    "pod affinity types of the opposite": (
        (
            "{strategies: {RemovePodsViolatingInterPodAffinity: {params: "
            f"{{interPodAntiAffinityType: [{REQUIRED}]}}}}}}}}"
        ),
        ("spec.strategies", "RemovePodsViolatingInterPodAffinity", "interPodAntiAffinityType"),
    ),
    "a negative number of nodes": (
        low_node("thresholds: {cpu: 20}, targetThresholds: {cpu: 50}, numberOfNodes: -1"),
        ("nodeResourceUtilizationThresholds.numberOfNodes", "0"),
    ),
    "an enabled strategy without what it needs": (
        "{strategies: {LowNodeUtilization: {}}}",
        ("spec.strategies", "LowNodeUtilization.params.nodeResourceUtilizationThresholds", "required"),
    ),
    "restarts without a threshold": (
        "{strategies: {RemovePodsHavingTooManyRestarts: {params: {states: [Running]}}}}",
        ("spec.strategies", "RemovePodsHavingTooManyRestarts.params.podRestartThreshold", "required"),
    ),
    "a threshold of no restarts": (
        "{strategies: {RemovePodsHavingTooManyRestarts: {params: {podRestartThreshold: 0}}}}",
        ("RemovePodsHavingTooManyRestarts.params.podRestartThreshold", "1"),
    ),
    "a state that is another strategy's": (
        "{strategies: {RemovePodsHavingTooManyRestarts: {params: {podRestartThreshold: 1, states: [Pending]}}}}",
        ("RemovePodsHavingTooManyRestarts", "params.states", "CrashLoopBackOff"),
    ),
    "a life time without any limit": (
        "{strategies: {PodLifeTime: {params: {includingInitContainers: true}}}}",
        ("spec.strategies", "PodLifeTime.params", "maxPodLifeTimeSeconds, states, conditions, exitCodes"),
    ),
    "a state that is none": (
        "{strategies: {PodLifeTime: {params: {states: [Sleeping]}}}}",
        ("PodLifeTime.params.states[0]", "CrashLoopBackOff"),
    ),
    "a condition that says nothing": (
        "{strategies: {PodLifeTime: {params: {conditions: [{}]}}}}",
        ("PodLifeTime.params.conditions[0]", "at least one of type, status, reason"),
    ),
    "owners both included and excluded": (
        "{strategies: {PodLifeTime: {params: {states: [Failed], ownerKinds: {include: [Job], exclude: [Job]}}}}}",
        ("PodLifeTime.params.ownerKinds", "cannot be given together"),
    ),
    "an exit code beyond 32 bits": (
        "{strategies: {RemoveFailedPods: {params: {exitCodes: [2147483648]}}}}",
        ("RemoveFailedPods.params.exitCodes[0]", "2147483647"),
    ),
    "a negative age": (
        "{strategies: {RemoveFailedPods: {params: {minPodLifetimeSeconds: -1}}}}",
        ("RemoveFailedPods.params.minPodLifetimeSeconds", "0"),
    ),
    "taints both excluded and included": (
        "{strategies: {RemovePodsViolatingNodeTaints: {params: {excludedTaints: [a], includedTaints: [b]}}}}",
        ("spec.strategies", "NodeTaints.params", "excludedTaints and includedTaints cannot be given together"),
    ),
    "taints both excluded and included, though the strategy is off": (
        (
            "{strategies: {RemovePodsViolatingNodeTaints: {enabled: false, params: "
            "{excludedTaints: [a], includedTaints: [b]}}}}"
        ),
        ("spec.strategies", "NodeTaints.params", "excludedTaints and includedTaints cannot be given together"),
    ),
    "a taint with its effect": (
        "{strategies: {RemovePodsViolatingNodeTaints: {params: {excludedTaints: ['a=b:NoSchedule']}}}}",
        ("RemovePodsViolatingNodeTaints.params.excludedTaints[0]", "match"),
    ),
    "no taint to look at": (
        "{strategies: {RemovePodsViolatingNodeTaints: {params: {includedTaints: []}}}}",
        ("RemovePodsViolatingNodeTaints.params.includedTaints", "at least 1"),
    ),
    "a constraint that is none": (
        "{strategies: {RemovePodsViolatingTopologySpreadConstraint: {params: {constraints: [Soft]}}}}",
        ("RemovePodsViolatingTopologySpreadConstraint.params.constraints[0]", "ScheduleAnyway"),
    ),
    "a constraint twice": (
        (
            "{strategies: {RemovePodsViolatingTopologySpreadConstraint: {params: "
            "{constraints: [DoNotSchedule, DoNotSchedule]}}}}"
        ),
        ("RemovePodsViolatingTopologySpreadConstraint.params.constraints[1]",),
    ),
    "params of another strategy": (
        f"{{strategies: {{RemoveDuplicates: {{params: {{nodeAffinityType: [{REQUIRED}]}}}}}}}}",
        ("spec.strategies", "RemoveDuplicates", "nodeAffinityType"),
    ),
    "an unknown parameter": (
        NODE_AFFINITY.replace("nodeAffinityType", "nodeAffinityTypes") % "[]",
        ("spec.strategies.RemovePodsViolatingNodeAffinity.params.nodeAffinityTypes",),
    ),
    "an unknown affinity type": (
        NODE_AFFINITY % "[required]",
        ("RemovePodsViolatingNodeAffinity.params.nodeAffinityType[0]", "requiredDuringSchedulingIgnored"),
    ),
    "an affinity type twice": (
        NODE_AFFINITY % f"[{REQUIRED}, {REQUIRED}]",
        ("RemovePodsViolatingNodeAffinity.params.nodeAffinityType[1]",),
    ),
    "enabled that is no boolean": ("{strategies: {RemoveDuplicates: {enabled: 'yes'}}}", ("RemoveDuplicates.enabled",)),
    "single replicas otherwise": (with_duplicates("singleReplica: Restart"), ("spec.singleReplica", "Evict", "Surge")),
    "an unknown mode": (with_duplicates("mode: act"), ("spec.mode", "Act", "Simulate")),
    "a window of seconds": (
        with_duplicates("windows: [{schedule: '0 22 * * *', duration: 59s}]"),
        ("spec.windows[0].duration", "must be between 1m and 168h"),
    ),
    "a window without times": (
        with_duplicates("windows: [{schedule: tonight, duration: 1h}]"),
        ("spec.windows[0].schedule", "must have five fields"),
    ),
    "a window in no time zone": (
        with_duplicates("windows: [{schedule: '0 22 * * *', duration: 1h, timeZone: Mars/Olympus}]"),
        ("spec.windows[0].timeZone", "must be a name of the IANA time zone database"),
    ),
    "an approval deadline too short": (
        with_duplicates("mode: Approve, approvalDeadline: 59s"),
        ("spec.approvalDeadline", "must be between 1m and 168h"),
    ),
    "an approval deadline that is none": (
        with_duplicates("approvalDeadline: soon"),
        ("spec.approvalDeadline", "1h30m"),
    ),
    "a cool-down of nothing": (
        with_duplicates("cooldown: {initial: 0s}"),
        ("spec.cooldown.initial", "must be between 1s and 168h"),
    ),
    "a cool-down that is none": (with_duplicates("cooldown: {maximum: long}"), ("spec.cooldown.maximum", "1h30m")),
    "no attempt": (with_duplicates("cooldown: {attempts: 0}"), ("spec.cooldown.attempts", "1")),
    "approval without runs": (
        with_duplicates("mode: Approve, runsHistoryLimit: 0"),
        ("spec.runsHistoryLimit", "at least 1"),
    ),
    "too many runs": (with_duplicates("runsHistoryLimit: 51"), ("spec.runsHistoryLimit", "50")),
    "an interval too short": (with_duplicates("interval: 1s"), ("spec.interval", "5s")),
    "an interval too long": (with_duplicates("interval: 200h"), ("spec.interval", "168h")),
    "an interval that is none": (with_duplicates("interval: 5 minutes"), ("spec.interval", "1h30m")),
    "an interval that is a number": (with_duplicates("interval: 300"), ("spec.interval",)),
    "interval and schedule": (
        with_duplicates("interval: 5m, schedule: {cron: '0 4 * * *'}"),
        ("spec.schedule", "interval and schedule cannot be given together"),
    ),
    "a cron expression of four fields": (
        with_duplicates("schedule: {cron: '0 4 * *'}"),
        ("spec.schedule.cron", "five fields"),
    ),
    "a cron expression of six fields": (
        with_duplicates("schedule: {cron: '0 0 4 * * *'}"),
        ("spec.schedule.cron", "five fields"),
    ),
    "a cron expression with a wrong minute": (
        with_duplicates("schedule: {cron: '61 * * * *'}"),
        ("spec.schedule.cron", "minute", "61"),
    ),
    "a cron macro": (
        with_duplicates("schedule: {cron: '@daily'}"),
        ("spec.schedule.cron", "five fields", "@daily"),
    ),
    "a window with a wrong hour": (
        with_duplicates("windows: [{schedule: '0 24 * * *', duration: 4h}]"),
        ("spec.windows[0].schedule", "hour", "24"),
    ),
    "an unknown time zone": (
        with_duplicates("schedule: {cron: '0 4 * * *', timeZone: Mars/Olympus}"),
        ("spec.schedule.timeZone", "Mars/Olympus", "Europe/Berlin"),
    ),
    "an offset for a time zone": (
        with_duplicates("schedule: {cron: '0 4 * * *', timeZone: '+02:00'}"),
        ("spec.schedule.timeZone", "Europe/Berlin"),
    ),
    "a negative grace period": (with_duplicates("gracePeriodSeconds: -1"), ("spec.gracePeriodSeconds", "0")),
    "a limit of nothing": (with_duplicates("limits: {perNode: 0}"), ("spec.limits.perNode", "1")),
    "a protection that cannot be lifted": (
        with_duplicates("protections: {disabled: [SystemCriticalPods]}"),
        ("spec.protections.disabled[0]", "PodsWithLocalStorage", "SystemNamespaces"),
    ),
    "an unknown extra protection": (
        with_duplicates("protections: {extra: [PodsWithPDB]}"),
        ("spec.protections.extra[0]", "PodsWithPVC", "PodsWithoutPDB"),
    ),
    "storage classes without the protection": (
        with_duplicates("protections: {protectedStorageClasses: [fast]}"),
        ("spec.protections.protectedStorageClasses", "PodsWithPVC"),
    ),
    "an unknown policy of no eviction": (
        with_duplicates("protections: {noEvictionPolicy: Always}"),
        ("spec.protections.noEvictionPolicy", "Preferred", "Mandatory"),
    ),
    "a namespace selector that is none": (
        with_duplicates("namespaceSelector: {matchExpressions: [{key: team, operator: In}]}"),
        ("spec.namespaceSelector.matchExpressions[0].values",),
    ),
    "a pod age that is none": (
        with_duplicates("protections: {minPodAge: 10min}"),
        ("spec.protections.minPodAge", "1h30m"),
    ),
    "include and exclude": (
        with_duplicates("namespaces: {include: [a], exclude: [b]}"),
        ("spec.namespaces.exclude", "cannot be given together"),
    ),
    "a namespace that is none": (with_duplicates("namespaces: {include: ['*']}"), ("spec.namespaces.include[0]",)),
    "In without values": (
        with_duplicates("podSelector: {matchExpressions: [{key: app, operator: In}]}"),
        ("spec.podSelector.matchExpressions[0].values",),
    ),
    "Exists with values": (
        with_duplicates("nodeSelector: {matchExpressions: [{key: app, operator: Exists, values: [a]}]}"),
        ("spec.nodeSelector.matchExpressions[0].values",),
    ),
    "an operator of node affinity": (
        with_duplicates("nodeSelector: {matchExpressions: [{key: app, operator: Gt, values: ['1']}]}"),
        ("spec.nodeSelector.matchExpressions[0].operator", "DoesNotExist"),
    ),
    "a priority by name and number": (
        with_duplicates("priorityThreshold: {name: high, value: 3}"),
        ("spec.priorityThreshold", "exactly one of name and value"),
    ),
    "a priority by neither": (with_duplicates("priorityThreshold: {}"), ("spec.priorityThreshold", "exactly one")),
}
"""What is refused: YAML of a spec, and what the refusal says, whoever refuses."""

UNKNOWN_FIELDS: dict[str, tuple[str, str]] = {
    "of a query, which says nothing of the server": (
        by_use("{source: Prometheus, prometheus: {query: up, url: 'http://p'}}"),
        "spec.strategies.LowNodeUtilization.params.metricsUtilization.prometheus.url",
    ),
    "of the spec": (with_duplicates("dryRun: true"), "spec.dryRun"),
    "of limits": (with_duplicates("limits: {perPod: 1}"), "spec.limits.perPod"),
    "of a strategy": ("{strategies: {RemoveDuplicates: {weight: 1}}}", "spec.strategies.RemoveDuplicates.weight"),
}
"""Fields that do not exist: YAML of a spec, and the field. The API server tells only clients that ask (strict)."""
