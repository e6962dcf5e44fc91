"""Plans in a line: ``plan([...], {"RemoveDuplicates": {}})``, and what matters of them as small tuples."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.builders import NodeBuilder, PodBuilder, node, pod
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning import planner
from trimtab.kube.objects import KubeObject

NOW = 1_795_176_000.0
DUPLICATES = "RemoveDuplicates"
UTILIZATION = "LowNodeUtilization"
ANTI_AFFINITY = "RemovePodsViolatingInterPodAntiAffinity"
NODE_AFFINITY = "RemovePodsViolatingNodeAffinity"
AFFINITY = "RemovePodsViolatingInterPodAffinity"
HIGH = "HighNodeUtilization"
NODE_TAINTS = "RemovePodsViolatingNodeTaints"
TOPOLOGY_SPREAD = "RemovePodsViolatingTopologySpreadConstraint"
RESTARTS = "RemovePodsHavingTooManyRestarts"
LIFE_TIME = "PodLifeTime"
FAILED = "RemoveFailedPods"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def policy(strategies: dict[str, Any], name: str = "default", **spec: Any) -> DeschedulerPolicy:
    """A policy as its YAML has it: ``policy({"RemoveDuplicates": {}}, namespaces={"include": ["shop"]})``."""
    body = {"strategies": {key: {"enabled": True, **value} for key, value in strategies.items()}, **spec}
    return msgspec.convert({"metadata": {"name": name}, "spec": body}, DeschedulerPolicy)


def utilization(thresholds: dict[str, float], targets: dict[str, float], number: int = 0) -> dict[str, Any]:
    """LowNodeUtilization with its parameters."""
    values = {"thresholds": thresholds, "targetThresholds": targets, "numberOfNodes": number}
    return {UTILIZATION: {"params": {"nodeResourceUtilizationThresholds": values}}}


def deviation(thresholds: dict[str, float], targets: dict[str, float], **params: Any) -> dict[str, Any]:
    """LowNodeUtilization with thresholds that are counted from the mean."""
    values = {"thresholds": thresholds, "targetThresholds": targets, "useDeviationThresholds": True}
    return {UTILIZATION: {"params": {"nodeResourceUtilizationThresholds": values, **params}}}


def packing(thresholds: dict[str, float], number: int = 0, **params: Any) -> dict[str, Any]:
    """HighNodeUtilization with its parameters."""
    values = {"thresholds": thresholds, "numberOfNodes": number}
    return {HIGH: {"params": {"nodeResourceUtilizationThresholds": values, **params}}}


def anti_affinity(*types: str) -> dict[str, Any]:
    """RemovePodsViolatingInterPodAntiAffinity with its types."""
    return {ANTI_AFFINITY: {"params": {"interPodAntiAffinityType": list(types or (REQUIRED,))}}}


def affinity(*types: str) -> dict[str, Any]:
    """RemovePodsViolatingInterPodAffinity with its types."""
    return {AFFINITY: {"params": {"interPodAffinityType": list(types or (REQUIRED,))}}}


def node_affinity(*types: str) -> dict[str, Any]:
    """RemovePodsViolatingNodeAffinity with its types."""
    return {NODE_AFFINITY: {"params": {"nodeAffinityType": list(types or (REQUIRED,))}}}


def node_taints(**params: Any) -> dict[str, Any]:
    """RemovePodsViolatingNodeTaints with its parameters."""
    return {NODE_TAINTS: {"params": params}}


def topology_spread(*constraints: str) -> dict[str, Any]:
    """RemovePodsViolatingTopologySpreadConstraint with the constraints that it mends."""
    return {TOPOLOGY_SPREAD: {"params": {"constraints": list(constraints)} if constraints else {}}}


def restarts(threshold: int = 100, **params: Any) -> dict[str, Any]:
    """RemovePodsHavingTooManyRestarts with its parameters."""
    return {RESTARTS: {"params": {"podRestartThreshold": threshold, **params}}}


def life_time(seconds: int | None = None, **params: Any) -> dict[str, Any]:
    """PodLifeTime with its parameters."""
    limit = {} if seconds is None else {"maxPodLifeTimeSeconds": seconds}
    return {LIFE_TIME: {"params": {**limit, **params}}}


def failed(**params: Any) -> dict[str, Any]:
    """RemoveFailedPods with its parameters."""
    return {FAILED: {"params": params}}


def ago(seconds: float) -> str:
    """A time so long before ``NOW``, as manifests have it."""
    return datetime.fromtimestamp(NOW - seconds, tz=UTC).isoformat()


def built(things: Iterable[Any]) -> list[KubeObject]:
    """Builders as objects; objects as they are."""
    return [item.build() if hasattr(item, "build") else item for item in things]


def plan(things: Iterable[Any], strategies: dict[str, Any], **spec: Any) -> Plan:
    """The plan of one policy for a cluster of builders."""
    return planner.plan_evictions(Snapshot(built(things)), [policy(strategies, **spec)], now=NOW)


def moves(plan: Plan) -> list[tuple[str, str, str]]:
    """Pod, node and target of each eviction, in order."""
    return [(action.pod, action.node, action.target) for action in plan.actions]


def kept(plan: Plan) -> dict[str, str]:
    """The reason of each pod or node that stays."""
    return {each.name: each.reason for each in plan.kept}


def messages(plan: Plan) -> dict[str, str]:
    """The message of each pod or node that stays."""
    return {each.name: each.message for each in plan.kept}


def web(name: str, on: str = "", *, owner: str = "web", namespace: str = "shop") -> PodBuilder:
    """A pod of the ReplicaSet ``web``, running where ``on`` says."""
    builder = pod(name, namespace).labels(app=owner).owned_by("ReplicaSet", owner)
    return builder.on(on).ready() if on else builder


def nodes(*names: str) -> list[NodeBuilder]:
    """Ready nodes of 4 cpu and 16Gi."""
    return [node(name) for name in names]
