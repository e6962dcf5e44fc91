"""Profiles of kube-scheduler for the differential suite. trimtab converts the same configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tests.builders import HOSTNAME, ZONE, expression
from tests.differential.generator.names import GPU, REGION
from trimtab.placement.registry import Profile
from trimtab.scheduling.imports import read_scheduler
from trimtab.scheduling.profiles import profile_of
from trimtab_local.versions import SCHEDULER

DEFAULT: Final = "default"


def _argument(plugin: str, **args: Any) -> dict[str, Any]:
    return {"name": plugin, "args": args}


def _constraint(key: str, when: str, skew: int, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "whenUnsatisfiable": when, "maxSkew": skew, **more}


def _prefers(weight: int, key: str, value: str) -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": [expression(key, "In", value)]}}


_CPU_AND_MEMORY = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
_MANY = [{"name": "cpu", "weight": 3}, {"name": GPU, "weight": 5}, {"name": "ephemeral-storage", "weight": 2}]

PROFILES: Final[dict[str, dict[str, Any]]] = {
    DEFAULT: {},
    "most-allocated": {
        "pluginConfig": [
            _argument("NodeResourcesFit", scoringStrategy={"type": "MostAllocated", "resources": _CPU_AND_MEMORY})
        ]
    },
    "soft": {
        "plugins": {
            "multiPoint": {"enabled": [{"name": "InterPodAffinity", "weight": 5}, {"name": "TaintToleration"}]},
            "score": {"enabled": [{"name": "ImageLocality", "weight": 7}]},
        },
        "pluginConfig": [
            _argument("NodeResourcesFit", scoringStrategy={"type": "MostAllocated", "resources": _MANY}),
            _argument(
                "PodTopologySpread",
                defaultingType="List",
                defaultConstraints=[
                    _constraint(ZONE, "ScheduleAnyway", 1),
                    _constraint(HOSTNAME, "ScheduleAnyway", 2, nodeTaintsPolicy="Honor"),
                ],
            ),
            _argument(
                "NodeAffinity",
                addedAffinity={
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        _prefers(20, "disk", "ssd"),
                        _prefers(7, REGION, "north"),
                    ]
                },
            ),
            _argument("InterPodAffinity", hardPodAffinityWeight=40),
            _argument("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}, {"name": "ephemeral-storage"}]),
        ],
    },
    "hard": {
        "plugins": {
            "filter": {"disabled": [{"name": "NodePorts"}]},
            "score": {"disabled": [{"name": "ImageLocality"}], "enabled": [{"name": "NodeAffinity", "weight": 3}]},
        },
        "pluginConfig": [
            _argument(
                "NodeResourcesFit",
                ignoredResourceGroups=[GPU.partition("/")[0]],
                scoringStrategy={
                    "type": "RequestedToCapacityRatio",
                    "resources": [*_CPU_AND_MEMORY, {"name": GPU, "weight": 4}],
                    "requestedToCapacityRatio": {
                        "shape": [
                            {"utilization": 0, "score": 2},
                            {"utilization": 40, "score": 9},
                            {"utilization": 100, "score": 1},
                        ]
                    },
                },
            ),
            _argument(
                "PodTopologySpread",
                defaultingType="List",
                defaultConstraints=[
                    _constraint(ZONE, "DoNotSchedule", 1, minDomains=2),
                    _constraint("disk", "ScheduleAnyway", 1, nodeAffinityPolicy="Ignore"),
                ],
            ),
            _argument(
                "NodeAffinity",
                addedAffinity={
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [expression("gen", "NotIn", "new", "007")]},
                            {"matchExpressions": [expression(REGION, "Exists")]},
                        ]
                    }
                },
            ),
            _argument("InterPodAffinity", ignorePreferredTermsOfExistingPods=True, hardPodAffinityWeight=0),
            _argument(
                "NodeResourcesBalancedAllocation",
                resources=[{"name": "memory"}, {"name": GPU}, {"name": "cpu"}, {"name": "ephemeral-storage"}],
            ),
        ],
    },
}
"""Together, these profiles change every argument that affects placement."""


def configuration(name: str) -> dict[str, Any]:
    """Build the KubeSchedulerConfiguration with a profile of :data:`PROFILES`."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", **PROFILES[name]}],
    }


def converted(name: str) -> Profile:
    """Convert the configuration as ``trimtab convert`` does."""
    found = read_scheduler(configuration(name))
    assert found is not None
    assert found.warnings == ()
    [policy] = found.policies
    return profile_of(policy.spec)


def write_configuration(name: str, directory: Path) -> Path:
    """Write the configuration file of the cluster's kube-scheduler, and return its path."""
    path = directory / "scheduler.json"
    process = {
        "clientConnection": {"kubeconfig": str(directory / f"{SCHEDULER}.kubeconfig"), "qps": 5000, "burst": 10000},
        "leaderElection": {"leaderElect": False},
    }
    path.write_bytes(msgspec.json.encode({**configuration(name), **process}))
    return path
