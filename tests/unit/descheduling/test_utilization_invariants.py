"""What holds of every plan by real use, whatever the cluster and whatever was measured of it."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cluster.worlds import fingerprint
from tests.unit.descheduling.planning import NOW, deviation, policy, utilization
from tests.unit.descheduling.test_invariants import after, every_move_watched, policies, worlds
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import FULL_SHARE, Usage, UsageAmounts
from trimtab.descheduling.planning.node_usage import QueriedUsage
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.descheduling.planning.recheck import recheck_move
from trimtab.kube.objects import Node, Pod

LOW = "LowNodeUtilization"
KUBERNETES: dict[str, Any] = {"metricsUtilization": {"source": "KubernetesMetrics"}}
PROMETHEUS: dict[str, Any] = {"metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "load"}}}


def by_use(chance: random.Random) -> dict[str, Any]:
    """LowNodeUtilization with one of the sources and some marks."""
    low, target = chance.choice([0, 20, 40]), chance.choice([40, 60, 80])
    queried = chance.random() < 0.5
    name = "MetricResource" if queried else "cpu"
    if chance.random() < 0.3:
        made = deviation({name: low}, {name: low})
    else:
        made = utilization({name: low}, {name: target} if queried else {name: target, "pods": target})
    made[LOW]["params"] |= PROMETHEUS if queried else KUBERNETES
    if queried and chance.random() < 0.3:
        made[LOW]["params"]["evictionLimits"] = {"node": 3}
    return made


def measured(world: list[Any], queried: bool, chance: random.Random) -> Usage:
    """Nodes and pods as somebody might have measured them: some are missing, and the numbers need not add up."""

    def use(cpu: int, least: float, most: float) -> UsageAmounts:
        share = chance.uniform(least, most)
        if queried:
            return {"MetricResource": round(share * FULL_SHARE)}
        return {"cpu": int(1.25 * share * cpu), "memory": chance.randrange(4 << 30)}

    nodes = {
        each.name: use(each.allocatable["cpu"], *chance.choice([(0, 0.2), (0, 1), (0.7, 1)]))
        for each in world
        if isinstance(each, Node)
    }
    pods = {each.key: use(1000, 0, 0.3) for each in world if isinstance(each, Pod)}
    of_pods = 0.0 if chance.random() < 0.3 else 0.8
    return Usage(
        nodes={name: amounts for name, amounts in sorted(nodes.items()) if chance.random() < 0.9},
        pods={key: amounts for key, amounts in sorted(pods.items()) if chance.random() < of_pods},
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Any], DeschedulerPolicy, Usage]:
    """A cluster, a policy that judges by real use among others, and what was measured."""
    world = draw(worlds())
    chance = random.Random(draw(st.integers(0, 2**32 - 1)))
    base = draw(policies())
    spec = msgspec.to_builtins(base.spec)
    strategies = {name: value for name, value in spec.pop("strategies").items() if name != "HighNodeUtilization"}
    if chance.random() < 0.5:
        strategies = {}
    strategies |= by_use(chance)
    given_policy = policy(strategies, **spec)
    queried = given_policy.spec.strategies.low_node_utilization.params.metrics_utilization.source == "Prometheus"  # type: ignore[union-attr]
    return world, given_policy, measured(world, queried, chance)


def planned(world: list[Any], given_policy: DeschedulerPolicy, usage: Usage) -> Plan:
    return plan_evictions(Snapshot(world), [given_policy], now=NOW, usages={"default": usage})


@given(cases())
def test_every_move_by_utilization_lowers_its_measure_only(case):
    with every_move_watched():
        planned(*case)


@given(cases(), st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_input_order_of_measurements(case, chance):
    world, given_policy, usage = case
    shuffled, nodes, pods = list(world), list(usage.nodes.items()), list(usage.pods.items())
    for each in (shuffled, nodes, pods):
        chance.shuffle(each)
    one = planned(world, given_policy, usage)
    other = planned(shuffled, given_policy, Usage(nodes=dict(nodes), pods=dict(pods)))
    assert msgspec.json.encode(one.document()) == msgspec.json.encode(other.document())


@given(cases())
def test_unmeasured_nodes_are_no_source_or_target(case):
    world, given_policy, usage = case
    done = planned(world, given_policy, usage)
    usage_problem = {each.name for each in world if isinstance(each, Node)} - set(usage.nodes)
    for action in done.actions:
        assert action.strategy != LOW or not {action.node, action.target} & usage_problem
    named = {each.name for each in done.kept if each.reason == "NotMeasured"}
    selector = given_policy.spec.node_selector
    assert named <= usage_problem
    assert selector is not None or named == usage_problem


@given(cases())
def test_planning_by_utilization_restores_snapshot(case):
    world, given_policy, usage = case
    snapshot = Snapshot(world)
    before = fingerprint(snapshot)
    plan_evictions(snapshot, [given_policy], now=NOW, usages={"default": usage})
    assert fingerprint(snapshot) == before


@given(cases())
def test_unchanged_move_passes_recheck(case):
    """All moves of a plan are judged again on the picture and the measurement that they were planned on."""
    world, given_policy, usage = case
    snapshot = Snapshot(world)
    done = plan_evictions(snapshot, [given_policy], now=NOW, usages={"default": usage})
    for action in [each for each in done.actions if each.strategy == LOW][:1]:
        others = [each for each in done.actions if each.strategy != LOW]
        if not others:  # else their moves may have made the place
            assert recheck_move(snapshot, given_policy, action, NOW, usage=usage) is None


@settings(max_examples=50)
@given(cases())
def test_repeated_planning_by_utilization_terminates(case):
    """Each plan comes true, and the next measurement says what the plan expected."""
    world, given_policy, usage = case
    for _ in range(60):
        done = planned(world, given_policy, usage)
        if not done.actions:
            return
        usage = after_moves(world, done, usage)
        world = after(world, done)
    pytest.fail("pods are sent back and forth")


def after_moves(world: list[Any], done: Plan, usage: Usage) -> Usage:
    """The measurement once the plan has come true: what a pod used has gone with it."""
    snapshot = Snapshot(world)
    queried = any("MetricResource" in amounts for amounts in usage.nodes.values())
    nodes = {name: dict(amounts) for name, amounts in usage.nodes.items()}
    load = QueriedUsage(snapshot, usage) if queried else None
    pods = dict(usage.pods)
    for action in done.actions:
        pod = snapshot.pods[action.key]
        for name, sign in ((action.node, -1), (action.target, 1)):
            if name not in nodes:
                continue
            if load is not None:
                size = int(snapshot.nodes.allocatable[snapshot.nodes.slot_of[name], 0])
                part = int(load.of_pod(pod)[0]) // size
                nodes[name]["MetricResource"] = int(np.clip(nodes[name]["MetricResource"] + sign * part, 0, FULL_SHARE))
                if sign > 0 and pod.key in pods:
                    pods[pod.key] = {"MetricResource": min(part, FULL_SHARE)}
            else:
                uses = usage.pods.get(pod.key, pod.spec.requests)
                for resource in ("cpu", "memory"):
                    nodes[name][resource] = max(0, nodes[name][resource] + sign * uses.get(resource, 0))
    return Usage(nodes=nodes, pods=pods)
