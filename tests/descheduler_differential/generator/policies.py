"""Policies of descheduler/v1alpha2: one strategy or several, with arguments of all kinds."""

from __future__ import annotations

from typing import Any, Final

from tests.descheduler_differential.generator.templates import APPS, PRIORITIES
from tests.differential.api_client import Manifest
from tests.differential.generator.rng import RandomSource

BALANCE: Final = (
    "RemoveDuplicates",
    "LowNodeUtilization",
    "HighNodeUtilization",
    "RemovePodsViolatingTopologySpreadConstraint",
)
DESCHEDULE: Final = (
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingInterPodAntiAffinity",
    "RemovePodsHavingTooManyRestarts",
    "PodLifeTime",
    "RemoveFailedPods",
)
PLUGINS: Final = (*BALANCE, *DESCHEDULE)
PROFILE: Final = "differential"

_SECONDS: Final = (200, 1_000, 4_000, 20_000, 75_000, 400_000)
_LIMITS: Final = ("maxNoOfPodsToEvictPerNode", "maxNoOfPodsToEvictPerNamespace", "maxNoOfPodsToEvictTotal")
_SCOPED: Final = frozenset(PLUGINS) - {"LowNodeUtilization", "HighNodeUtilization"}


def random_policy(rng: RandomSource, plugins: tuple[str, ...]) -> Manifest:
    """Generate a policy with one profile that enables these plugins."""
    policy: Manifest = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    if rng.one_in(6):
        policy[rng.pick(*_LIMITS)] = rng.pick(1, 2, 3)
    if rng.one_in(15):
        policy["nodeSelector"] = "disk=ssd"
    scope = _scope(
        rng.fork()
    )  # one for all plugins: strategies with different scopes are imported as separate policies
    config = [{"name": "DefaultEvictor", "args": _evictor(rng.fork())}]
    for name in plugins:
        args = _ARGUMENTS[name](rng.fork())
        own = {key: part for key, part in scope.items() if name in _SCOPED and _takes(name, key)}
        config.append({"name": name, "args": {**args, **own}})
    enabled = {
        point: {"enabled": [name for name in plugins if name in known]}
        for point, known in (("balance", BALANCE), ("deschedule", DESCHEDULE))
        if any(name in known for name in plugins)
    }
    policy["profiles"] = [{"name": PROFILE, "pluginConfig": config, "plugins": enabled}]
    return policy


def random_plugins(rng: RandomSource) -> tuple[str, ...]:
    """Choose one plugin, or sometimes two or three compatible ones."""
    if not rng.one_in(4):
        return (rng.pick(*PLUGINS),)
    drawn = rng.sample(PLUGINS, rng.pick(2, 3))
    return tuple(name for name in drawn if name != "HighNodeUtilization" or "LowNodeUtilization" not in drawn)


def _takes(plugin: str, key: str) -> bool:
    return key != "labelSelector" or plugin != "RemoveDuplicates"


def _scope(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.one_in(5):
        found["namespaces"] = rng.pick({"include": ["red", "blue"]}, {"exclude": ["red"]}, {"exclude": ["grey"]})
    if rng.one_in(6):
        found["labelSelector"] = {"matchLabels": {"app": rng.pick(*APPS)}}
    return found


def _evictor(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {"nodeFit": rng.one_in(2)}
    if rng.one_in(6):
        found["minReplicas"] = rng.pick(2, 3)
    if rng.one_in(8):
        found["minPodAge"] = rng.pick("3m20s", "70m")
    if rng.one_in(8):
        found["priorityThreshold"] = {"value": rng.pick(*PRIORITIES[1:])}
    if rng.one_in(10):
        found["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b", "c"]}]}
    if rng.one_in(12):
        found["namespaceLabelSelector"] = {"matchLabels": {"team": "x"}}
    if rng.one_in(12):
        found["noEvictionPolicy"] = "Mandatory"
    protections: dict[str, Any] = {}
    if rng.one_in(3):
        disabled = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
        protections["defaultDisabled"] = rng.sample(disabled, rng.pick(1, 1, 2))
    if rng.one_in(4):
        protections["extraEnabled"] = [rng.pick("PodsWithPVC", "PodsWithPVC", "PodsWithoutPDB")]
        if protections["extraEnabled"] == ["PodsWithPVC"] and rng.one_in(2):
            protections["config"] = {"PodsWithPVC": {"protectedStorageClasses": [{"name": rng.pick("slow", "fast")}]}}
    return found | ({"podProtections": protections} if protections else {})


def _duplicates(rng: RandomSource) -> dict[str, Any]:
    return {"excludeOwnerKinds": [rng.pick("ReplicaSet", "StatefulSet", "Job")]} if rng.one_in(5) else {}


def _low(rng: RandomSource) -> dict[str, Any]:
    resources = rng.pick(("cpu", "memory", "pods"), ("cpu",), ("cpu", "memory"), ("memory",), ("pods",))
    if rng.one_in(5):
        return {
            "useDeviationThresholds": True,
            "thresholds": {name: rng.pick(5, 10) for name in resources},
            "targetThresholds": {name: rng.pick(5, 10, 20) for name in resources},
        } | _numbers(rng)
    return {
        "thresholds": {name: rng.pick(20, 30, 40) for name in resources},
        "targetThresholds": {name: rng.pick(40, 50, 70) for name in resources},
    } | _numbers(rng)


def _high(rng: RandomSource) -> dict[str, Any]:
    resources = rng.pick(("cpu", "memory", "pods"), ("cpu",), ("cpu", "memory"))
    found: dict[str, Any] = {"thresholds": {name: rng.pick(15, 25, 40) for name in resources}}
    if rng.one_in(4):
        found["evictionModes"] = ["OnlyThresholdingResources"]
    return found | _numbers(rng)


def _numbers(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.one_in(6):
        found["numberOfNodes"] = rng.pick(1, 2)
    if rng.one_in(8):
        found["evictableNamespaces"] = {"exclude": ["red"]}
    return found


def _spread(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.one_in(3):
        found["constraints"] = rng.pick(["DoNotSchedule", "ScheduleAnyway"], ["ScheduleAnyway"])
    if rng.one_in(3):
        found["topologyBalanceNodeFit"] = False
    return found


def _taints(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if rng.one_in(3):
        found["includePreferNoSchedule"] = True
    if rng.one_in(3):
        key = rng.pick("includedTaints", "excludedTaints")
        found[key] = rng.pick(["dedicated"], ["spot"], ["dedicated=db"], ["node.kubernetes.io/unreachable", "spot"])
    return found


def _affinity(rng: RandomSource) -> dict[str, Any]:
    kinds = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
    return {"nodeAffinityType": rng.pick([kinds[0]], [kinds[0]], [kinds[1]], list(kinds))}


def _nothing(_rng: RandomSource) -> dict[str, Any]:
    return {}


def _restarts(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {"podRestartThreshold": rng.pick(3, 5, 10)}
    found["includingInitContainers"] = rng.one_in(2)
    if rng.one_in(3):
        found["states"] = rng.pick(["Running"], ["CrashLoopBackOff"])
    return found


def _life_time(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not rng.one_in(4):
        found["maxPodLifeTimeSeconds"] = rng.pick(*_SECONDS)
    if rng.one_in(3) or not found:
        states = (
            ["Running"],
            ["Pending", "ImagePullBackOff"],
            ["CrashLoopBackOff"],
            ["OOMKilled", "Failed"],
            ["Error"],
        )
        found["states"] = rng.pick(*states)
    if rng.one_in(8):
        found["exitCodes"] = [rng.pick(137, 2)]
    if rng.one_in(6):
        ready = {"type": "Ready", "status": "False", "minTimeSinceLastTransitionSeconds": 200}
        begun = {"type": "Initialized", "status": "True", "minTimeSinceLastTransitionSeconds": 1_000}
        found["conditions"] = [rng.pick(ready, begun, {"type": "PodScheduled", "status": "True"})]
    if rng.one_in(6):
        found["ownerKinds"] = rng.pick({"exclude": ["Job"]}, {"include": ["ReplicaSet", "StatefulSet"]})
    found["includingInitContainers"] = rng.one_in(3)
    return found


def _failed(rng: RandomSource) -> dict[str, Any]:
    found: dict[str, Any] = {"includingInitContainers": rng.one_in(3)}
    if rng.one_in(2):
        found["minPodLifetimeSeconds"] = rng.pick(*_SECONDS[:4])
    if rng.one_in(4):
        found["reasons"] = [rng.pick("OOMKilled", "Error", "Evicted", "NodeAffinity")]
    if rng.one_in(5):
        found["exitCodes"] = [rng.pick(1, 137, 2)]
    if rng.one_in(5):
        found["excludeOwnerKinds"] = [rng.pick("Job", "StatefulSet")]
    return found


_ARGUMENTS: Final = {
    "RemoveDuplicates": _duplicates,
    "LowNodeUtilization": _low,
    "HighNodeUtilization": _high,
    "RemovePodsViolatingTopologySpreadConstraint": _spread,
    "RemovePodsViolatingNodeTaints": _taints,
    "RemovePodsViolatingNodeAffinity": _affinity,
    "RemovePodsViolatingInterPodAntiAffinity": _nothing,
    "RemovePodsHavingTooManyRestarts": _restarts,
    "PodLifeTime": _life_time,
    "RemoveFailedPods": _failed,
}
