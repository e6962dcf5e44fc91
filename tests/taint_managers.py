"""TaintManagers as users write them, and what trimtab and the API server must refuse alike."""

from __future__ import annotations

from typing import Any

import msgspec

EVERYTHING = """
mode: Own
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
    """A TaintManager with that spec, which may be YAML; ``None`` for none."""
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
    "nothing": "{}",
    "everything": EVERYTHING,
    "beside kube-controller-manager": "{mode: EarlierOnly}",
    "a wait of nothing": _taints("key: a, policy: Evict, maximumWait: 0s"),
    "a wait of a week": _taints("key: a, policy: Evict, maximumWait: 168h"),
    "a rate as a whole number": _lifecycle("nodeEvictionRate: 1"),
    "no tainting at all": _lifecycle("nodeEvictionRate: 0, fullDisruptionEvictionRate: 0"),
    "a threshold of all nodes": _lifecycle("unhealthyZoneThreshold: 1"),
    "a grace period that is just longer": _lifecycle("nodeMonitorPeriod: 5s, nodeMonitorGracePeriod: 6s"),
}
"""Specs that are good."""

REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "a mode that is none": ("{mode: Act}", ("spec.mode", "EarlierOnly")),
    "a mode in small letters": ("{mode: own}", ("spec.mode", "Own")),
    "a policy that is none": (_taints("key: a, policy: Drain"), ("spec.taints[0].policy", "Delete or Evict")),
    "a key without a policy": (_taints("key: a"), ("spec.taints[0].policy",)),
    "a policy without a key": (_taints("policy: Evict"), ("spec.taints[0].key",)),
    "an empty key": (_taints("key: '', policy: Evict"), ("spec.taints[0].key",)),
    "a key with its effect": (_taints("key: 'a:NoExecute', policy: Evict"), ("spec.taints[0].key", "NoExecute")),
    "a key twice": (_taints("key: a, policy: Evict", "key: a, policy: Delete"), ("spec.taints[1]",)),
    "a wait with Delete": (
        _taints("key: a, policy: Delete, maximumWait: 5m"),
        ("spec.taints[0].maximumWait", "belongs to policy Evict"),
    ),
    "a wait that is none": (_taints("key: a, policy: Evict, maximumWait: soon"), ("taints[0].maximumWait", "e.g. 30s")),
    "a wait in days": (_taints("key: a, policy: Evict, maximumWait: 1d"), ("taints[0].maximumWait", "e.g. 30s")),
    "a wait of more than a week": (
        _taints("key: a, policy: Evict, maximumWait: 168h1s"),
        ("taints[0].maximumWait", "168h"),
    ),
    "a rate of no pods": ("{userTaintRates: {total: 0}}", ("spec.userTaintRates.total", "0.001")),
    "a negative rate": ("{userTaintRates: {perZone: -1}}", ("spec.userTaintRates.perZone",)),
    "a rate as a text": ("{userTaintRates: {perNamespace: '1'}}", ("spec.userTaintRates.perNamespace", "number")),
    "a rate beyond all bounds": (_lifecycle("nodeEvictionRate: 1001"), ("nodeLifecycle.nodeEvictionRate", "1000")),
    "a negative rate of nodes": (_lifecycle("nodeEvictionRate: -0.1"), ("nodeLifecycle.nodeEvictionRate", "0")),
    "a share in percent": (_lifecycle("unhealthyZoneThreshold: 55"), ("nodeLifecycle.unhealthyZoneThreshold", "1")),
    "nodes by halves": (_lifecycle("largeClusterSizeThreshold: 0.5"), ("largeClusterSizeThreshold", "whole number")),
    "a period of nothing": (_lifecycle("nodeMonitorPeriod: 0s"), ("nodeMonitorPeriod", "between 1s and 168h")),
    "a period without a unit": (_lifecycle("nodeMonitorPeriod: '5'"), ("nodeMonitorPeriod",)),
    "a period as a number": (_lifecycle("nodeMonitorPeriod: 5"), ("nodeMonitorPeriod", "a text")),
    "a period in milliseconds": (_lifecycle("nodeMonitorPeriod: 500ms"), ("nodeMonitorPeriod", "e.g. 30s")),
    "a grace period that is not longer": (
        _lifecycle("nodeMonitorPeriod: 50s"),
        ("nodeLifecycle.nodeMonitorGracePeriod", "longer than nodeMonitorPeriod"),
    ),
    "a startup of nothing": (_lifecycle("nodeStartupGracePeriod: 0s"), ("nodeStartupGracePeriod", "1s")),
    "tolerations of less than nothing": (
        "{defaultTolerations: {defaultNotReadyTolerationSeconds: -1}}",
        ("spec.defaultTolerations.defaultNotReadyTolerationSeconds", "0"),
    ),
    "tolerations as a duration": (
        "{defaultTolerations: {defaultUnreachableTolerationSeconds: 5m}}",
        ("spec.defaultTolerations.defaultUnreachableTolerationSeconds",),
    ),
    "a matching that is none": ("{tolerationMatching: Last}", ("spec.tolerationMatching", "All or First")),
}
"""Specs that are refused, with words that must be told."""

UNKNOWN_FIELDS = {
    "at the top": ("{modes: Own}", "spec.modes"),
    "a flag as it is written for upstream": (
        _lifecycle("node-monitor-period: 5s"),
        "spec.nodeLifecycle.node-monitor-period",
    ),
    "of a policy": (_taints("key: a, policy: Evict, wait: 5m"), "spec.taints[0].wait"),
}
"""Fields that there are not."""
