"""Compares what the kubelet's eviction manager and trimtab do on the same timeline.

Each difference has a name and a reason. A difference without a name is a defect:

- ``ConditionFromNextReading``: trimtab counts the transition period from the first reading that shows no pressure, so
  that the annotation need not be written at each reading. The kubelet counts it from the last one that shows pressure.
- ``SeveralDue``: the kubelet relieves the memory first, and chooses at random between the soft and the hard threshold
  of a signal. trimtab relieves hard thresholds first.
- ``FreesNothing``: if only images are on a file system, the eviction of a pod frees nothing there. The kubelet evicts
  pods by priority; trimtab evicts none.
- ``WaitsForStats``: after a pod has left, trimtab waits for stats that do not include it.

Not generated: signals without a value and stats that are not measured again, which the kubelet forgets; requests of
ephemeral-storage next to thresholds of inodes, where the kubelet subtracts bytes from a number of inodes; values within
some bytes of a percentage, which the kubelet stores as a 32-bit number.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from msgspec import Struct

from tests.kubelet_differential.timelines import parsed
from trimtab.api import reasons
from trimtab.api.node_pressure_policy import NodePressurePolicySpec
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import Node, Pod, PodSpec
from trimtab.pressure.measurement import NodeMeasurement, PodUsage, SignalValue
from trimtab.pressure.planner import NodePlan, NodePlanner, NodeView, grace_period
from trimtab.pressure.state import NO_STATE, decode_state, encode_state

START = 1_763_877_600.0


class Comparison(Struct):
    """The comparison of some timelines.

    Attributes:
        readings: the number of readings.
        evictions: the number of evictions by the kubelet.
        named: the number of differences by name.
        unexplained: descriptions of differences without a name.
    """

    readings: int
    evictions: int
    named: Counter[str]
    unexplained: list[str]


def empty_comparison() -> Comparison:
    """Return the comparison of no timelines."""
    return Comparison(readings=0, evictions=0, named=Counter(), unexplained=[])


def spec_of(timeline: dict[str, Any]) -> NodePressurePolicySpec:
    """Return the policy of a timeline."""
    return NodePressurePolicySpec(
        mode="Act",
        eviction_hard=timeline["hard"],
        eviction_soft=timeline["soft"],
        eviction_soft_grace_period=timeline["grace"],
        eviction_minimum_reclaim=timeline["reclaim"],
        eviction_max_pod_grace_period=timeline["maxGrace"],
        eviction_pressure_transition_period=f"{timeline['transition']}s",
    )


def compare(timeline: dict[str, Any], outcomes: list[dict[str, Any]], found: Comparison) -> None:
    """Compare trimtab with the outcomes of the kubelet. The operator restarts after each reading.

    Args:
        timeline: the timeline.
        outcomes: the kubelet's conditions, evicted pod and grace period at each reading.
        found: the comparison to which the result is added.
    """
    planner = NodePlanner(spec_of(timeline))
    pods = {each["name"]: _pod(each) for each in timeline["pods"]}
    usage = {f"shop/{each['name']}": _usage(each) for each in timeline["pods"]}
    now, state = START, NO_STATE
    for number, (reading, outcome) in enumerate(zip(timeline["readings"], outcomes, strict=True)):
        now += reading["after"]
        for name in reading["gone"]:
            pods.pop(name, None)
        measurement = NodeMeasurement(
            node="n1",
            source="Summary",
            read_at=now,
            signals={
                signal: SignalValue(value["available"], value["capacity"], float(value["at"]))
                for signal, value in reading["values"].items()
            },
            pods=lambda: usage,
            dedicated_image_fs=timeline["dedicatedImageFs"],
            split_image_fs=timeline["splitImageFs"],
        )
        view = NodeView(Node(name="n1"), tuple(pods.values()), measurement, state=state)
        plan = planner.plan(view, now=now)
        found.readings += 1
        found.evictions += bool(outcome["evicted"])
        for name in _condition_differences(plan, outcome, planner, now):
            _count(found, name, f"reading {number}: {sorted(plan.conditions)} instead of {outcome['conditions']}")
        for name in _eviction_differences(plan, outcome, planner, measurement, pods):
            own = (plan.evict.pod.name, plan.evict.grace_period) if plan.evict else plan.reason
            kubelet = (outcome["evicted"], outcome["grace"])
            _count(found, name, f"reading {number}: {own} instead of {kubelet}")
        state = decode_state(encode_state(plan.state))


def _count(found: Comparison, name: str, message: str) -> None:
    if name:
        found.named[name] += 1
    else:
        found.unexplained.append(message)


def _condition_differences(plan: NodePlan, outcome: dict[str, Any], planner: NodePlanner, now: float) -> list[str]:
    """Return the names of the differences between the conditions; an empty name for one that has none."""
    found = []
    kubelet = set(outcome["conditions"])
    met = {each.threshold.condition for each in plan.met}
    for condition in plan.conditions ^ kubelet:
        ending = condition in plan.conditions and condition not in met
        ending = ending and now - plan.state.last_met[condition] < planner.transition
        found.append("ConditionFromNextReading" if ending else "")
    return found


def _eviction_differences(
    plan: NodePlan,
    outcome: dict[str, Any],
    planner: NodePlanner,
    measurement: NodeMeasurement,
    pods: dict[str, Pod],
) -> list[str]:
    """Return the names of the differences between the evictions; an empty name for one that has none."""
    own = ("", 0) if plan.evict is None else (plan.evict.pod.name, plan.evict.grace_period)
    kubelet = (outcome["evicted"], outcome["grace"])
    if own == kubelet:
        return []
    if plan.reason == reasons.WAITING_FOR_STATS and outcome["evicted"]:
        return ["WaitsForStats"]
    possible, useless = set(), False
    for met in plan.met:
        if met.past_grace:
            ranked, _ = planner.candidates(pods.values(), measurement, met.threshold.signal)
            if ranked:
                possible.add((ranked[0].pod.name, grace_period(ranked[0].pod, met.threshold, planner.spec)))
            useless = useless or not ranked
    if useless and measurement.split_image_fs and own in {("", 0), *possible}:
        return ["FreesNothing"]
    return ["SeveralDue"] if len(possible) > 1 and {own, kubelet} <= possible else [""]


def _pod(fields: dict[str, Any]) -> Pod:
    spec = PodSpec(
        priority=fields["priority"],
        requests=FrozenMap(parsed(fields["requests"])),
        termination_grace_period=fields["grace"],
    )
    return Pod(namespace="shop", name=fields["name"], uid=f"uid-{fields['name']}", phase="Running", spec=spec)


def _usage(fields: dict[str, Any]) -> PodUsage:
    return PodUsage(
        uid=f"uid-{fields['name']}",
        memory=fields["memory"],
        root=fields["root"],
        logs=fields["logs"],
        root_inodes=fields["rootInodes"],
        logs_inodes=fields["logsInodes"],
        processes=fields["processes"],
    )
