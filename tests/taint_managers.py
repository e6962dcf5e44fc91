"""Valid and invalid TaintManagers, on which trimtab and the API server must agree."""

from __future__ import annotations

from typing import Any

import msgspec

EVERYTHING = """
mode: TaintAndEvict
taints:
- {key: example.com/maintenance, policy: Evict, maximumWait: 30m}
- {key: node.kubernetes.io/out-of-service, policy: Delete}
- {key: plain, policy: Evict}
userTaintRates: {total: 50, perZone: 20, perNamespace: 0.5}
nodeLifecycle:
  nodeMonitorPeriod: 2s
  nodeMonitorGracePeriod: 40s
  nodeStartupGracePeriod: 1m30s
  nodeEvictionRate: 0.2
  secondaryNodeEvictionRate: 0
  largeClusterSizeThreshold: 20
  unhealthyZoneThreshold: 0.7
  fullDisruptionEvictionRate: 0.05
defaultTolerations: {defaultNotReadyTolerationSeconds: 30, defaultUnreachableTolerationSeconds: 0}
tolerationMatching: First
"""


def taint_manager(spec: dict[str, Any] | str | None = None, *, name: str = "default") -> dict[str, Any]:
    """Build the manifest of a TaintManager.

    Args:
        spec: the spec as a dictionary or as YAML; ``None`` omits it.
        name: the name of the object.
    """
    manifest: dict[str, Any] = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "TaintManager",
        "metadata": {"name": name},
    }
    if spec is None:
        return manifest
    return {**manifest, "spec": msgspec.yaml.decode(spec) if isinstance(spec, str) else spec}


def _taints(*items: str) -> str:
    return f"{{taints: [{', '.join(f'{{{item}}}' for item in items)}]}}"


def _lifecycle(text: str) -> str:
    return f"{{nodeLifecycle: {{{text}}}}}"


ACCEPTED = {
    "empty": "{}",
    "all fields": EVERYTHING,
    "mode EvictPods": "{mode: EvictPods}",
    "maximumWait 0s": _taints("key: a, policy: Evict, maximumWait: 0s"),
    "maximumWait 168h": _taints("key: a, policy: Evict, maximumWait: 168h"),
    "integer rate": _lifecycle("nodeEvictionRate: 1"),
    "rates 0": _lifecycle("nodeEvictionRate: 0, fullDisruptionEvictionRate: 0"),
    "threshold 1": _lifecycle("unhealthyZoneThreshold: 1"),
    "grace period 1s longer than monitor period": _lifecycle("nodeMonitorPeriod: 5s, nodeMonitorGracePeriod: 6s"),
}
"""Valid specs by test id."""

FORMER_MODES = {"EarlierOnly": "EvictPods", "Own": "TaintAndEvict"}
"""Current modes by former mode: trimtab accepts former ones in stored objects, and the API server refuses new ones."""

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown mode": ("{mode: Act}", ("spec.mode", "EvictPods")),
    "lower-case mode": ("{mode: own}", ("spec.mode", "TaintAndEvict")),
    "unknown policy": (_taints("key: a, policy: Drain"), ("spec.taints[0].policy", "Delete or Evict")),
    "key without policy": (_taints("key: a"), ("spec.taints[0].policy",)),
    "policy without key": (_taints("policy: Evict"), ("spec.taints[0].key",)),
    "empty key": (_taints("key: '', policy: Evict"), ("spec.taints[0].key",)),
    "key with effect": (_taints("key: 'a:NoExecute', policy: Evict"), ("spec.taints[0].key", "NoExecute")),
    "duplicate key": (_taints("key: a, policy: Evict", "key: a, policy: Delete"), ("spec.taints[1]",)),
    "maximumWait with Delete": (
        _taints("key: a, policy: Delete, maximumWait: 5m"),
        ("spec.taints[0].maximumWait", "requires policy Evict"),
    ),
    "maximumWait not a duration": (
        _taints("key: a, policy: Evict, maximumWait: soon"),
        ("taints[0].maximumWait", "e.g. 30s"),
    ),
    "maximumWait in days": (_taints("key: a, policy: Evict, maximumWait: 1d"), ("taints[0].maximumWait", "e.g. 30s")),
    "maximumWait above 168h": (
        _taints("key: a, policy: Evict, maximumWait: 168h1s"),
        ("taints[0].maximumWait", "168h"),
    ),
    "rate 0": ("{userTaintRates: {total: 0}}", ("spec.userTaintRates.total", "0.001")),
    "negative rate": ("{userTaintRates: {perZone: -1}}", ("spec.userTaintRates.perZone",)),
    "rate as string": ("{userTaintRates: {perNamespace: '1'}}", ("spec.userTaintRates.perNamespace", "number")),
    "rate above 1000": (_lifecycle("nodeEvictionRate: 1001"), ("nodeLifecycle.nodeEvictionRate", "1000")),
    "negative node rate": (_lifecycle("nodeEvictionRate: -0.1"), ("nodeLifecycle.nodeEvictionRate", "0")),
    "threshold in percent": (_lifecycle("unhealthyZoneThreshold: 55"), ("nodeLifecycle.unhealthyZoneThreshold", "1")),
    "fractional node count": (
        _lifecycle("largeClusterSizeThreshold: 0.5"),
        ("largeClusterSizeThreshold", "whole number"),
    ),
    "period 0s": (_lifecycle("nodeMonitorPeriod: 0s"), ("nodeMonitorPeriod", "between 1s and 168h")),
    "period without unit": (_lifecycle("nodeMonitorPeriod: '5'"), ("nodeMonitorPeriod",)),
    "period as number": (_lifecycle("nodeMonitorPeriod: 5"), ("nodeMonitorPeriod", "a string")),
    "period in milliseconds": (_lifecycle("nodeMonitorPeriod: 500ms"), ("nodeMonitorPeriod", "e.g. 30s")),
    "grace period shorter than monitor period": (
        _lifecycle("nodeMonitorPeriod: 50s"),
        ("nodeLifecycle.nodeMonitorGracePeriod", "longer than nodeMonitorPeriod"),
    ),
    "startup grace period 0s": (_lifecycle("nodeStartupGracePeriod: 0s"), ("nodeStartupGracePeriod", "1s")),
    "negative toleration seconds": (
        "{defaultTolerations: {defaultNotReadyTolerationSeconds: -1}}",
        ("spec.defaultTolerations.defaultNotReadyTolerationSeconds", "0"),
    ),
    "toleration seconds as duration": (
        "{defaultTolerations: {defaultUnreachableTolerationSeconds: 5m}}",
        ("spec.defaultTolerations.defaultUnreachableTolerationSeconds",),
    ),
    "unknown tolerationMatching": ("{tolerationMatching: Last}", ("spec.tolerationMatching", "All or First")),
}
"""Invalid specs by test id, with the strings that the error must contain."""

UNKNOWN_FIELDS = {
    "unknown field of spec": ("{modes: TaintAndEvict}", "spec.modes"),
    "upstream flag name": (
        _lifecycle("node-monitor-period: 5s"),
        "spec.nodeLifecycle.node-monitor-period",
    ),
    "unknown field of taint policy": (_taints("key: a, policy: Evict, wait: 5m"), "spec.taints[0].wait"),
}
"""Specs with an unknown field by test id, with the path of the field."""
