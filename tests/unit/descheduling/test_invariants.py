"""What holds of every plan, whatever the cluster and the policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cluster import worlds as small
from tests.unit.cluster.worlds import DISK, NAMESPACES, fingerprint
from tests.unit.descheduling.planning import (
    DUPLICATES,
    NOW,
    PREFERRED,
    REQUIRED,
    affinity,
    anti_affinity,
    deviation,
    failed,
    life_time,
    node_affinity,
    node_taints,
    packing,
    policy,
    restarts,
    topology_spread,
    utilization,
)
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.context import StrategyContext
from trimtab.descheduling.planning.planner import plan_evictions
from trimtab.descheduling.planning.scope import PolicyScope, can_start_pods
from trimtab.descheduling.strategies.registry import IN_ORDER, IN_PLACE
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

PLACE = {kind.NAME: place for place, kind in enumerate(IN_ORDER)}
worlds = partial(small.worlds, nodes_least=3, pods_least=8, pods_most=24)
SHARES = st.sampled_from([0, 20, 40])
TARGETS = st.sampled_from([40, 60, 80])


def each_strategy() -> list[st.SearchStrategy[dict[str, Any]]]:
    balance = st.builds(
        lambda cpu, pods, low: utilization({"cpu": low, "pods": low}, {"cpu": cpu, "pods": pods}),
        TARGETS,
        TARGETS,
        SHARES,
    )
    around = st.builds(lambda low, high: deviation({"cpu": low}, {"cpu": high, "pods": high}), SHARES, SHARES)
    pack = st.builds(
        lambda share, number, modes: packing({"cpu": share, "pods": share}, number, **modes),
        TARGETS,
        st.integers(0, 1),
        st.sampled_from([{}, {"evictionModes": ["OnlyThresholdingResources"]}]),
    )
    types = st.sampled_from([(REQUIRED,), (PREFERRED,), (REQUIRED, PREFERRED)])
    soft = st.booleans().map(lambda prefer: node_taints(includePreferNoSchedule=prefer))
    spread = st.sampled_from([("DoNotSchedule",), ("ScheduleAnyway",), ("DoNotSchedule", "ScheduleAnyway")])
    return [
        soft,
        spread.map(lambda constraints: topology_spread(*constraints)),
        types.map(lambda names: node_affinity(*names)),
        types.map(lambda names: anti_affinity(*names)),
        types.map(lambda names: affinity(*names)),
        st.sampled_from([1, 10]).map(restarts),
        st.sampled_from([life_time(int(NOW) - 1500), life_time(0), life_time(states=["Succeeded"])]),
        st.just({DUPLICATES: {}}),
        st.one_of(balance, around, pack),
        st.just(failed()),
    ]


@st.composite
def policies(draw: st.DrawFn, name: str = "default") -> DeschedulerPolicy:
    """Some of the strategies, now and then with a scope, limits and protections lifted."""
    strategies: dict[str, Any] = {}
    for choice in each_strategy():
        if draw(st.booleans()):
            strategies |= draw(choice)
    spec: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        spec["nodeSelector"] = {"matchLabels": {DISK: "ssd"}}
    if draw(st.integers(0, 3)) == 0:
        spec["namespaces"] = {"include": [draw(st.sampled_from(NAMESPACES))]}
    if draw(st.integers(0, 3)) == 0:
        limits = ["perCycle", "perNode", "perNamespace", "perOwner"]
        spec["limits"] = {draw(st.sampled_from(limits)): draw(st.integers(1, 3))}
    return policy(strategies or {DUPLICATES: {}}, name, **spec)


def after(world: list[Any], done: Plan) -> list[Any]:
    """The cluster once the plan has come true: where a pod went there is a new one, and what had ended is gone."""
    targets = {action.key: action.target for action in done.actions}
    end = []
    for each in world:
        target = targets.get(each.key) if isinstance(each, Pod) else None
        if target is None:
            end.append(each)
        elif target:
            end.append(msgspec.structs.replace(each, node=target, created=NOW, restarts=0))
    return end


@contextmanager
def every_move_watched() -> Iterator[None]:
    """Check each single move and removal against the measures of its strategy and of those before it."""

    def watched(act: Any) -> Any:
        def acting(self: StrategyContext, *pod: Any, **words: str) -> Refusal | None:
            strategies = [each for each in self.plan_state.observers if PLACE[each.NAME] <= PLACE[self.strategy]]
            before = {each.NAME: each.measure() for each in strategies}
            refusal: Refusal | None = act(self, *pod, **words)
            now = {each.NAME: each.measure() for each in strategies}
            if refusal is None:
                assert now[self.strategy] < before[self.strategy], "a move that betters nothing"
            assert all(now[name] <= before[name] for name in now), "a move that undoes what came before"
            return refusal

        return acting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StrategyContext, "plan_move", watched(StrategyContext.plan_move))
        patch.setattr(StrategyContext, "plan_removal", watched(StrategyContext.plan_removal))
        yield


@given(worlds(), policies())
def test_every_move_lowers_its_measure_only(world, given_policy):
    with every_move_watched():
        plan_evictions(Snapshot(world), [given_policy], now=NOW)


@settings(max_examples=50)
@given(worlds(), policies())
def test_repeated_planning_terminates(world, given_policy):
    for _ in range(40):
        done = plan_evictions(Snapshot(world), [given_policy], now=NOW)
        if not done.actions:
            return
        world = after(world, done)
    pytest.fail("pods are sent back and forth")


@given(worlds(), policies("a"), policies("b"), st.randoms(use_true_random=False))
def test_plan_does_not_depend_on_input_order(world, first, second, chance):
    shuffled = list(world)
    chance.shuffle(shuffled)
    one = plan_evictions(Snapshot(world), [first, second], now=NOW)
    other = plan_evictions(Snapshot(shuffled), [second, first], now=NOW)
    assert msgspec.json.encode(one.document()) == msgspec.json.encode(other.document())


@given(worlds(), policies("a"), policies("b"))
def test_planning_restores_snapshot(world, first, second):
    snapshot = Snapshot(world)
    before = fingerprint(snapshot)
    plan_evictions(snapshot, [first, second], now=NOW)
    assert fingerprint(snapshot) == before


@given(worlds(), policies("a"), policies("b"))
def test_every_moved_pod_fits_in_final_state(world, first, second):
    """Judged anew on the end state, by all filters: nothing is overcommitted, nothing promised twice."""
    done = plan_evictions(Snapshot(world), [first, second], now=NOW)
    end = Snapshot(after(world, done))
    placer = Placer(end)
    for action in done.actions:
        if not action.target:
            assert action.key not in end.pods
            continue
        slot = end.nodes.slot_of[action.target]
        assert can_start_pods(end.nodes.node(slot))
        with end.fork():
            assert placer.feasible(placer.unbind(end.pods[action.key]))[slot], action


@given(worlds(), policies("a"), policies("b"))
def test_no_pod_is_moved_twice_or_despite_protection(world, first, second):
    snapshot = Snapshot(world)
    done = plan_evictions(snapshot, [first, second], now=NOW)
    by_name = {"a": first, "b": second}
    assert max(Counter(action.key for action in done.actions).values(), default=1) == 1
    for action in done.actions:
        pod, spec = snapshot.pods[action.key], by_name[action.policy].spec
        assert (pod.node, pod.uid) == (action.node, action.uid)
        assert action.target != action.node or action.strategy in IN_PLACE
        assert pod.controller is not None
        assert pod.terminal == (not action.target)
        assert pod.deleted is None
        assert not spec.namespaces.include or pod.namespace in spec.namespaces.include
        for name in filter(None, (action.node, action.target)):
            assert spec.node_selector is None or snapshot.nodes.get(name).labels[DISK] == "ssd"


@given(worlds(), policies("a"), policies("b"))
def test_pdbs_and_limits_are_not_exceeded(world, first, second):
    snapshot = Snapshot(world)
    done = plan_evictions(snapshot, [first, second], now=NOW)
    moved = [snapshot.pods[action.key] for action in done.actions if action.target]
    for budget in snapshot.budgets.values():
        hit = [pod for pod in moved if pod.namespace == budget.namespace and pod.labels["app"] == budget.name]
        assert len(hit) <= budget.disruptions_allowed
    for each in (first, second):
        own = [action for action in done.actions if action.policy == each.name]
        limits = each.spec.limits
        for limit, counts in (
            (limits.per_cycle, Counter(action.policy for action in own)),
            (limits.per_node, Counter(action.node for action in own)),
            (limits.per_namespace, Counter(action.namespace for action in own)),
            (limits.per_owner, Counter((action.namespace, action.owner) for action in own)),
        ):
            assert limit is None or max(counts.values(), default=0) <= limit


@given(worlds(), policies())
def test_kept_pods_are_reported_once_per_strategy(world, given_policy):
    done = plan_evictions(Snapshot(world), [given_policy], now=NOW)
    named = Counter((each.strategy, each.kind, each.namespace, each.name) for each in done.kept)
    assert max(named.values(), default=1) == 1
    assert not {(action.strategy, "Pod", action.namespace, action.pod) for action in done.actions} & set(named)
    for each in done.kept:
        assert each.reason
        assert each.message
        if each.reason in ("NoPlace", "NoImprovement") and each.message.startswith("0/"):
            number = int(each.message.removeprefix("0/").split()[0])
            assert number == len(Snapshot(world).nodes)


@pytest.mark.parametrize("kind", IN_ORDER, ids=lambda kind: kind.NAME)
def test_measures_of_empty_cluster_are_zero(kind):
    strategies = {**node_affinity(), **anti_affinity(), DUPLICATES: {}, **utilization({"cpu": 20}, {"cpu": 50})}
    strategies |= {**affinity(), **packing({"cpu": 20})}
    strategies |= {**node_taints(), **topology_spread(), **restarts(), **life_time(0), **failed()}
    enabled: dict[str, Any] = dict(policy(strategies).spec.strategies.enabled())
    snapshot = Snapshot()
    scope = PolicyScope(policy(strategies).spec, snapshot)
    assert not np.any(kind(enabled[kind.NAME].params, scope, Placer(snapshot)).measure())
