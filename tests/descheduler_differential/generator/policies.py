"""Policies of descheduler/v1alpha2: one strategy or several, with arguments of all kinds."""

from __future__ import annotations

from typing import Any, Final

from tests.descheduler_differential.generator.templates import APPS, PRIORITIES
from tests.differential.generator.chance import Chance
from tests.differential.server import Manifest

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


def random_policy(chance: Chance, plugins: tuple[str, ...]) -> Manifest:
    """A policy with one profile that enables these plugins."""
    policy: Manifest = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    if chance.one_in(6):
        policy[chance.pick(*_LIMITS)] = chance.pick(1, 2, 3)
    if chance.one_in(15):
        policy["nodeSelector"] = "disk=ssd"
    scope = _scope(chance.fork())  # of a profile: strategies that differ in it become policies of their own
    config = [{"name": "DefaultEvictor", "args": _evictor(chance.fork())}]
    for name in plugins:
        args = _ARGUMENTS[name](chance.fork())
        own = {key: part for key, part in scope.items() if name in _SCOPED and _takes(name, key)}
        config.append({"name": name, "args": {**args, **own}})
    enabled = {
        point: {"enabled": [name for name in plugins if name in known]}
        for point, known in (("balance", BALANCE), ("deschedule", DESCHEDULE))
        if any(name in known for name in plugins)
    }
    policy["profiles"] = [{"name": PROFILE, "pluginConfig": config, "plugins": enabled}]
    return policy


def drawn_plugins(chance: Chance) -> tuple[str, ...]:
    """One plugin most of the time, else a few that do not work against each other."""
    if not chance.one_in(4):
        return (chance.pick(*PLUGINS),)
    drawn = chance.sample(PLUGINS, chance.pick(2, 3))
    return tuple(name for name in drawn if name != "HighNodeUtilization" or "LowNodeUtilization" not in drawn)


def _takes(plugin: str, key: str) -> bool:
    return key != "labelSelector" or plugin != "RemoveDuplicates"


def _scope(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.one_in(5):
        found["namespaces"] = chance.pick({"include": ["red", "blue"]}, {"exclude": ["red"]}, {"exclude": ["grey"]})
    if chance.one_in(6):
        found["labelSelector"] = {"matchLabels": {"app": chance.pick(*APPS)}}
    return found


def _evictor(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {"nodeFit": chance.one_in(2)}
    if chance.one_in(6):
        found["minReplicas"] = chance.pick(2, 3)
    if chance.one_in(8):
        found["minPodAge"] = chance.pick("3m20s", "70m")
    if chance.one_in(8):
        found["priorityThreshold"] = {"value": chance.pick(*PRIORITIES[1:])}
    if chance.one_in(10):
        found["labelSelector"] = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b", "c"]}]}
    if chance.one_in(12):
        found["namespaceLabelSelector"] = {"matchLabels": {"team": "x"}}
    if chance.one_in(12):
        found["noEvictionPolicy"] = "Mandatory"
    protections: dict[str, Any] = {}
    if chance.one_in(3):
        disabled = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
        protections["defaultDisabled"] = chance.sample(disabled, chance.pick(1, 1, 2))
    if chance.one_in(4):
        protections["extraEnabled"] = [chance.pick("PodsWithPVC", "PodsWithPVC", "PodsWithoutPDB")]
        if protections["extraEnabled"] == ["PodsWithPVC"] and chance.one_in(2):
            protections["config"] = {
                "PodsWithPVC": {"protectedStorageClasses": [{"name": chance.pick("slow", "fast")}]}
            }
    return found | ({"podProtections": protections} if protections else {})


def _duplicates(chance: Chance) -> dict[str, Any]:
    return {"excludeOwnerKinds": [chance.pick("ReplicaSet", "StatefulSet", "Job")]} if chance.one_in(5) else {}


def _low(chance: Chance) -> dict[str, Any]:
    resources = chance.pick(("cpu", "memory", "pods"), ("cpu",), ("cpu", "memory"), ("memory",), ("pods",))
    if chance.one_in(5):
        return {
            "useDeviationThresholds": True,
            "thresholds": {name: chance.pick(5, 10) for name in resources},
            "targetThresholds": {name: chance.pick(5, 10, 20) for name in resources},
        } | _numbers(chance)
    return {
        "thresholds": {name: chance.pick(20, 30, 40) for name in resources},
        "targetThresholds": {name: chance.pick(40, 50, 70) for name in resources},
    } | _numbers(chance)


def _high(chance: Chance) -> dict[str, Any]:
    resources = chance.pick(("cpu", "memory", "pods"), ("cpu",), ("cpu", "memory"))
    found: dict[str, Any] = {"thresholds": {name: chance.pick(15, 25, 40) for name in resources}}
    if chance.one_in(4):
        found["evictionModes"] = ["OnlyThresholdingResources"]
    return found | _numbers(chance)


def _numbers(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.one_in(6):
        found["numberOfNodes"] = chance.pick(1, 2)
    if chance.one_in(8):
        found["evictableNamespaces"] = {"exclude": ["red"]}
    return found


def _spread(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.one_in(3):
        found["constraints"] = chance.pick(["DoNotSchedule", "ScheduleAnyway"], ["ScheduleAnyway"])
    if chance.one_in(3):
        found["topologyBalanceNodeFit"] = False
    return found


def _taints(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chance.one_in(3):
        found["includePreferNoSchedule"] = True
    if chance.one_in(3):
        key = chance.pick("includedTaints", "excludedTaints")
        found[key] = chance.pick(["dedicated"], ["spot"], ["dedicated=db"], ["node.kubernetes.io/unreachable", "spot"])
    return found


def _affinity(chance: Chance) -> dict[str, Any]:
    kinds = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")
    return {"nodeAffinityType": chance.pick([kinds[0]], [kinds[0]], [kinds[1]], list(kinds))}


def _nothing(_chance: Chance) -> dict[str, Any]:
    return {}


def _restarts(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {"podRestartThreshold": chance.pick(3, 5, 10)}
    found["includingInitContainers"] = chance.one_in(2)
    if chance.one_in(3):
        found["states"] = chance.pick(["Running"], ["CrashLoopBackOff"])
    return found


def _life_time(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not chance.one_in(4):
        found["maxPodLifeTimeSeconds"] = chance.pick(*_SECONDS)
    if chance.one_in(3) or not found:
        states = (
            ["Running"],
            ["Pending", "ImagePullBackOff"],
            ["CrashLoopBackOff"],
            ["OOMKilled", "Failed"],
            ["Error"],
        )
        found["states"] = chance.pick(*states)
    if chance.one_in(8):
        found["exitCodes"] = [chance.pick(137, 2)]
    if chance.one_in(6):
        ready = {"type": "Ready", "status": "False", "minTimeSinceLastTransitionSeconds": 200}
        begun = {"type": "Initialized", "status": "True", "minTimeSinceLastTransitionSeconds": 1_000}
        found["conditions"] = [chance.pick(ready, begun, {"type": "PodScheduled", "status": "True"})]
    if chance.one_in(6):
        found["ownerKinds"] = chance.pick({"exclude": ["Job"]}, {"include": ["ReplicaSet", "StatefulSet"]})
    found["includingInitContainers"] = chance.one_in(3)
    return found


def _failed(chance: Chance) -> dict[str, Any]:
    found: dict[str, Any] = {"includingInitContainers": chance.one_in(3)}
    if chance.one_in(2):
        found["minPodLifetimeSeconds"] = chance.pick(*_SECONDS[:4])
    if chance.one_in(4):
        found["reasons"] = [chance.pick("OOMKilled", "Error", "Evicted", "NodeAffinity")]
    if chance.one_in(5):
        found["exitCodes"] = [chance.pick(1, 137, 2)]
    if chance.one_in(5):
        found["excludeOwnerKinds"] = [chance.pick("Job", "StatefulSet")]
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
