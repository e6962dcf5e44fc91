"""NodePressurePolicies as users write them, and what trimtab and the API server must both reject."""

from __future__ import annotations

from typing import Any

import msgspec

EVERYTHING = """
mode: Act
nodeSelector:
  matchLabels: {node-role.kubernetes.io/worker: ""}
  matchExpressions:
  - {key: example.com/pool, operator: In, values: [batch, web]}
evictionHard: {memory.available: 1Gi, nodefs.available: 12%, pid.available: "500"}
evictionSoft: {memory.available: 1.5Gi, nodefs.available: 15%, imagefs.inodesFree: 7.5%}
evictionSoftGracePeriod: {memory.available: 1m30s, nodefs.available: 2m, imagefs.inodesFree: 0s}
evictionMinimumReclaim: {memory.available: 0Mi, nodefs.available: 5%}
evictionMaxPodGracePeriod: 60
hardEvictionMaxPodGracePeriod: 10
evictionPressureTransitionPeriod: 3m
monitoringInterval: 15s
evictionForecast: 1m
memoryStall: {percent: 12.5, window: avg10, gracePeriod: 30s}
kubeletEvictionHard: {memory.available: 200Mi, nodefs.available: 10%}
ranking: QoS
taintNodes: false
deleteAfter: 5m
failedPods: {after: 2h, keepPerOwner: 3}
"""


def node_pressure_policy(spec: dict[str, Any] | str, *, name: str = "workers") -> dict[str, Any]:
    """A NodePressurePolicy with that spec, which may be YAML."""
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "NodePressurePolicy",
        "metadata": {"name": name},
        "spec": msgspec.yaml.decode(spec) if isinstance(spec, str) else spec,
    }


def _hard(value: str) -> str:
    return f"{{evictionHard: {{memory.available: {value}}}}}"


def _reclaim(value: str) -> str:
    return f"{{evictionHard: {{memory.available: 1Gi}}, evictionMinimumReclaim: {{memory.available: {value}}}}}"


def _grace(value: str) -> str:
    return f"{{evictionSoft: {{memory.available: 1Gi}}, evictionSoftGracePeriod: {{memory.available: {value}}}}}"


def _both(soft: str, hard: str) -> str:
    return (
        f"{{evictionSoft: {{memory.available: {soft}}}, evictionSoftGracePeriod: {{memory.available: 1m}}, "
        f"evictionHard: {{memory.available: {hard}}}}}"
    )


ACCEPTED = {
    "everything": EVERYTHING,
    "hard thresholds only": _hard("1Gi"),
    "soft thresholds only": _grace("90s"),
    "memory stalls only": "{memoryStall: {percent: 20}}",
    "memory stalls next to empty maps": "{memoryStall: {percent: 100}, evictionSoft: {}, evictionHard: {}}",
    "bytes": _hard("'1073741824'"),
    "decimal suffix": _hard("500M"),
    "fraction": _hard("0.5Gi"),
    "fraction of a percent": _hard("0.125%"),
    "smallest quantity": _hard("'0.001'"),
    "largest quantity": _hard("1023.999Ti"),
    "threshold that is switched off by 0%": _hard("0%"),
    "threshold that is switched off by 100%": _hard("100.0%"),
    "every signal": (
        "{evictionHard: {memory.available: 1Gi, allocatableMemory.available: 1Gi, nodefs.available: 1Gi, "
        "nodefs.inodesFree: 10%, imagefs.available: 10%, imagefs.inodesFree: '1000', containerfs.available: 1Gi, "
        "containerfs.inodesFree: 1k, pid.available: 10%}}"
    ),
    "reclaim of nothing": _reclaim("'0'"),
    "reclaim of everything": _reclaim("100%"),
    "no grace period": _grace("0s"),
    "grace period of a week": _grace("168h"),
    "soft percentage above the hard one": _both("10.5%", "10.25%"),
    "soft quantity just above the hard one": _both("'1025'", "1Ki"),
    "soft fraction just above the hard one": _both("'1.002'", "'1.001'"),
    "soft percentage and hard quantity": _both("1%", "100Gi"),
    "soft threshold below one that is switched off": _both("10%", "100%"),
    "soft threshold that is switched off": _both("0%", "10%"),
    "soft threshold of another signal": (
        "{evictionSoft: {memory.available: 100Mi}, evictionSoftGracePeriod: {memory.available: 1m}, "
        "evictionHard: {nodefs.available: 1Gi}}"
    ),
    "shortest times": (
        "{evictionSoft: {pid.available: '100'}, evictionSoftGracePeriod: {pid.available: 0s}, deleteAfter: 0s, "
        "evictionForecast: 1s, monitoringInterval: 5s, evictionPressureTransitionPeriod: 0s, "
        "failedPods: {after: 0s, keepPerOwner: 0}, memoryStall: {percent: 0.1, gracePeriod: 0s}}"
    ),
}
"""Valid specs."""

REJECTED = {
    "no threshold": ("{}", ("spec", "needs evictionSoft, evictionHard or memoryStall")),
    "empty thresholds": (
        "{evictionSoft: {}, evictionHard: {}}",
        ("spec", "needs evictionSoft, evictionHard or memoryStall"),
    ),
    "unknown mode": (f"{{mode: Observe, {_hard('1Gi')[1:]}", ("spec.mode", "Simulate")),
    "unknown ranking": (f"{{ranking: Random, {_hard('1Gi')[1:]}", ("spec.ranking", "UsagePriority")),
    "unknown signal": (
        "{evictionHard: {memory.free: 1Gi}}",
        ("spec.evictionHard", "must contain only eviction signals"),
    ),
    "unknown soft signal": (
        "{evictionSoft: {cpu.available: 10%}, evictionSoftGracePeriod: {cpu.available: 1m}}",
        ("spec.evictionSoft", "must contain only eviction signals"),
    ),
    "unknown signal of a reclaim": (
        "{evictionHard: {memory.available: 1Gi}, evictionMinimumReclaim: {memory: 1Gi}}",
        ("spec.evictionMinimumReclaim", "must contain only eviction signals"),
    ),
    "unknown signal of the kubelet": (
        "{evictionHard: {memory.available: 1Gi}, kubeletEvictionHard: {memory: 1Gi}}",
        ("spec.kubeletEvictionHard", "must contain only eviction signals"),
    ),
    **{
        f"threshold {value}": (_hard(f"'{value}'"), ("spec.evictionHard", "must be a quantity above 0"))
        for value in (
            *("0", "0Mi", "-1Gi", "+1Gi", "1Pi", "1024Ti", "1 Gi", "1gi", "1GiB", "Gi", ".5Gi", "5.Gi", "1.0001Gi"),
            *("1e9", "500m", "100.1%", "101%", "-1%", "%", "5.%", ".5%", "1e1%", "10 %", "10%%", "half", "1\u0662%"),
        )
    },
    "negative reclaim": (_reclaim("-1"), ("spec.evictionMinimumReclaim",)),
    "reclaim of 0%": (_reclaim("0%"), ("spec.evictionMinimumReclaim", "must be a quantity below 1Pi")),
    "reclaim above 100%": (_reclaim("101%"), ("spec.evictionMinimumReclaim", "must be a quantity below 1Pi")),
    "soft threshold without a grace period": (
        "{evictionSoft: {memory.available: 1Gi}}",
        ("spec.evictionSoftGracePeriod", "must contain a grace period for each signal in evictionSoft"),
    ),
    "soft threshold with the grace period of another": (
        "{evictionSoft: {memory.available: 1Gi}, evictionSoftGracePeriod: {pid.available: 1m}}",
        ("spec.evictionSoftGracePeriod", "must contain a grace period for each signal in evictionSoft"),
    ),
    "grace period without a soft threshold": (
        "{evictionHard: {memory.available: 1Gi}, evictionSoftGracePeriod: {memory.available: 1m}}",
        ("spec.evictionSoftGracePeriod", "must contain only signals of evictionSoft"),
    ),
    "grace period that is no duration": (_grace("90.5s"), ("spec.evictionSoftGracePeriod", "must be a duration")),
    "grace period above a week": (_grace("169h"), ("spec.evictionSoftGracePeriod", "must be at most 168h")),
    "soft percentage below the hard one": (
        _both("5%", "10%"),
        ("spec.evictionSoft", "each threshold must be above that of the same signal in evictionHard"),
    ),
    "equal percentages": (_both("10.0%", "10%"), ("spec.evictionSoft", "each threshold must be above")),
    "soft quantity below the hard one": (_both("500Mi", "1Gi"), ("spec.evictionSoft", "must be above")),
    "equal quantities": (_both("1024Mi", "1Gi"), ("spec.evictionSoft", "each threshold must be above")),
    "forecast without a soft threshold": (
        "{evictionHard: {memory.available: 1Gi}, evictionForecast: 1m}",
        ("spec.evictionForecast", "requires evictionSoft"),
    ),
    "forecast with empty soft thresholds": (
        "{evictionHard: {memory.available: 1Gi}, evictionSoft: {}, evictionForecast: 1m}",
        ("spec.evictionForecast", "requires evictionSoft"),
    ),
    **{
        f"{field} {text}": (
            f"{_grace('1m')[:-1]}, {field}: {text}}}",
            (f"spec.{field}", message),
        )
        for field, text, message in (
            ("monitoringInterval", "4s", "must be between 5s and 168h"),
            ("monitoringInterval", "500ms", "must be a duration"),
            ("evictionForecast", "0s", "must be between 1s and 168h"),
            ("deleteAfter", "169h", "must be between 0s and 168h"),
            ("evictionPressureTransitionPeriod", "1d", "must be a duration"),
            ("evictionMaxPodGracePeriod", "0", "1"),
            ("hardEvictionMaxPodGracePeriod", "0", "1"),
        )
    },
    "stall of 0 percent": ("{memoryStall: {percent: 0}}", ("spec.memoryStall.percent", "0")),
    "stall above 100 percent": ("{memoryStall: {percent: 101}}", ("spec.memoryStall.percent", "100")),
    "unknown window": ("{memoryStall: {percent: 10, window: avg30}}", ("spec.memoryStall.window", "avg60")),
    "grace period of stalls": (
        "{memoryStall: {percent: 10, gracePeriod: 169h}}",
        ("spec.memoryStall.gracePeriod", "must be between 0s and 168h"),
    ),
    "age of failed pods": (
        "{memoryStall: {percent: 10}, failedPods: {after: 8d}}",
        ("spec.failedPods.after", "must be a duration"),
    ),
    "selector without values": (
        "{memoryStall: {percent: 10}, nodeSelector: {matchExpressions: [{key: a, operator: In}]}}",
        ("spec.nodeSelector",),
    ),
}
"""Invalid specs, with texts that the error must contain. The first is the field."""

UNKNOWN_FIELDS = {
    "of the spec": (f"{{evictionhard: {{}}, {_hard('1Gi')[1:]}", "spec.evictionhard"),
    "of memoryStall": ("{memoryStall: {percent: 10, average: avg10}}", "spec.memoryStall.average"),
}
"""Specs with a field that does not exist."""
