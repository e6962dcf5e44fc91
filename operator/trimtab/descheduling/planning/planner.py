"""The planner: computes a plan from a snapshot, policies and a time, without I/O, clocks or randomness."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduler_status import EvictionMemory
from trimtab.api.plan import Kept, Plan
from trimtab.cluster.disruption_signals import mark_unneeded
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage.measurement import Usage
from trimtab.cluster.workloads.rollouts import Rollouts
from trimtab.descheduling.memory.cooldown import CooldownIndex
from trimtab.descheduling.memory.holds import held_too_long
from trimtab.descheduling.planning.context import StrategyContext
from trimtab.descheduling.planning.plan_state import Guard, PlanState
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.strategies.registry import IN_ORDER, IN_PLACE
from trimtab.descheduling.strategies.strategy import AnyStrategy, Measure
from trimtab.disruption.background_evictions import pods_evicted_in_background
from trimtab.disruption.protections.gate import EvictionRules
from trimtab.kube.objects import Pod
from trimtab.placement.placer import hold_nominated
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget


class PeerPolicyGuard:
    """A strategy of another policy that objects to moves. The messages of its objections name that policy.

    Policies run in separate cycles. If each respected only its own strategies, two policies could alternately evict the
    same pods forever. For example, RemoveDuplicates of one policy separates the pods of an owner, and
    HighNodeUtilization of the other packs them onto one node again.

    Args:
        strategy: the other policy's strategy.
        policy: the other policy's name.
    """

    def __init__(self, strategy: AnyStrategy, policy: str) -> None:
        self._strategy = strategy
        self.objection_text = f"{strategy.objection_text} ({strategy.NAME} of policy {policy})"

    def may_object(self) -> bool:
        """Return whether the strategy can object to any move."""
        return self._strategy.may_object()

    def objections(self, pod: Pod) -> Collection[int]:
        """Return the slots where the pod would raise the strategy's measure if it were moved there.

        The result is empty if the pod is not in the scope of the strategy's policy.
        """
        return self._strategy.objections(pod)


class StrategyRun(Struct, frozen=True):
    """One enabled strategy of one policy in a plan.

    Attributes:
        policy: the policy's name.
        place: the strategy's position in :data:`IN_ORDER`.
        strategy: the strategy with the policy's parameters.
        scope: the policy's scope.
        rules: the policy's protections and limits, shared by its strategies.
        memory: the cooldowns that earlier evictions have caused; ``None`` if there are none.
    """

    policy: str
    place: int
    strategy: AnyStrategy
    scope: PolicyScope
    rules: EvictionRules
    memory: CooldownIndex | None


class StrategyMeasures(Struct, frozen=True):
    """The measure of one strategy of one policy before and after a plan.

    Attributes:
        policy: the policy's name.
        strategy: the strategy's name.
        before: the strategy's measure (:meth:`~trimtab.descheduling.strategies.strategy.Strategy.measure`) in the
            current cluster.
        after: the strategy's measure after all moves of the plan, including those of other strategies and policies.
    """

    policy: str
    strategy: str
    before: Measure
    after: Measure


def plan_evictions(
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    *,
    now: float,
    memories: Mapping[str, EvictionMemory] | None = None,
    usages: Mapping[str, Usage] | None = None,
    rollouts: Rollouts | None = None,
    peers: Sequence[DeschedulerPolicy] = (),
    only: str = "",
    unneeded: Mapping[str, float] | None = None,
    budget: PlanBudget = UNLIMITED,
) -> Plan:
    """Plan which pods to evict, reserve capacity for their replacements, and record why other candidates are kept.

    Policies are planned in the order of their names, and the strategies of each in the order of the registry. All share
    one snapshot, which contains the earlier reservations, one set of budgets and limits, and one list of moves.
    Therefore no capacity is reserved twice and no pod is moved twice. The policies' mode, interval and suspension are
    ignored.

    Args:
        snapshot: the cluster state. It is restored after planning.
        policies: valid policies (:func:`trimtab.api.rules.check_descheduler_policy`).
        now: seconds since the epoch; ages are computed from it.
        memories: the assessed eviction memories by policy name (:func:`trimtab.descheduling.memory.assess.assess`). The
            policies' status is not read.
        usages: measured utilization by policy name.
        rollouts: the Deployments, for policies with ``singleReplica: Surge``; if ``None``, each Deployment is read just
            before it is restarted.
        peers: other active policies. Nothing is planned for them, but their strategies object to moves.
        only: the name of the only strategy to plan for; empty for all strategies. The other strategies still object to
            moves.
        unneeded: the nodes that scale-down considers unneeded but has not tainted yet: node name to the time since when
            the node is unneeded.
        budget: limits the time that planning may take. Candidates that are not reached in time are kept with the reason
            ``PlanDeadlineExceeded``.
    """
    with snapshot.fork():
        mark_unneeded(snapshot, unneeded or {})
        return _plan(snapshot, policies, now, memories, usages, rollouts, lambda _: None, peers, only, budget)


def plan_and_measure(
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    *,
    now: float,
    memories: Mapping[str, EvictionMemory] | None = None,
    usages: Mapping[str, Usage] | None = None,
    rollouts: Rollouts | None = None,
) -> tuple[Plan, tuple[StrategyMeasures, ...]]:
    """Plan as :func:`plan_evictions` does, and return every strategy's measure before and after the plan.

    This is a separate function, because a cycle does not need the measures and computing them visits all pods.
    """
    measures: list[list[tuple[StrategyRun, Measure]]] = []

    def observe(runs: Sequence[StrategyRun]) -> None:
        measures.append([(run, run.strategy.measure()) for run in runs])

    made = _plan(snapshot, policies, now, memories, usages, rollouts, observe)
    measured = (
        StrategyMeasures(run.policy, run.strategy.NAME, before, after)
        for (run, before), (_, after) in zip(*measures, strict=True)
    )
    return made, tuple(measured)


def _plan(
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    now: float,
    memories: Mapping[str, EvictionMemory] | None,
    usages: Mapping[str, Usage] | None,
    rollouts: Rollouts | None,
    observe: Callable[[Sequence[StrategyRun]], None],
    peers: Sequence[DeschedulerPolicy] = (),
    only: str = "",
    budget: PlanBudget = UNLIMITED,
) -> Plan:
    """Compute the plan, and call ``observe`` with the strategies before the first move and after the last one."""
    with snapshot.fork():
        leaving = pods_evicted_in_background(snapshot, (memories or {}).values(), now=now)
        for pod in leaving:  # treated as terminating: no strategy moves these pods or counts them
            snapshot.put(msgspec.structs.replace(pod, deleted=now))
        held = hold_nominated(snapshot)
        plan_state = PlanState(snapshot, now=now, rollouts=rollouts, leaving=leaving, budget=budget)
        plan_state.moved.update(pod.key for pod in held)  # no candidates, because they are not on their nodes yet
        runs = list(_runs(plan_state, sorted(policies, key=lambda policy: policy.name), memories or {}, usages or {}))
        peer_runs = list(_runs(plan_state, peers, {}, usages or {}))
        plan_state.observers = tuple(run.strategy for run in (*runs, *peer_runs))
        observe(runs)
        for run in runs:
            if only not in ("", run.strategy.NAME):
                continue
            context = StrategyContext(
                plan_state,
                run.scope,
                run.rules,
                policy=run.policy,
                strategy=run.strategy.NAME,
                guards=_guards(run, (*runs, *peer_runs)),
                memory=run.memory,
            )
            run.strategy.plan(context)
        observe(runs)
        return Plan(now=now, actions=tuple(plan_state.actions), kept=tuple(_still_kept(plan_state)))


def _still_kept(plan_state: PlanState) -> Iterator[Kept]:
    """Yield the kept objects, except for pods that the same strategy moved later."""
    moved = {(each.policy, each.strategy, each.key) for each in plan_state.actions}
    for each in plan_state.kept:
        if each.kind != "Pod" or (each.policy, each.strategy, f"{each.namespace}/{each.name}") not in moved:
            yield each


def _guards(run: StrategyRun, runs: Sequence[StrategyRun]) -> list[Guard]:
    """Return the strategies that may object to the moves of a strategy run.

    These are all strategies that precede it in one strict order over all policies. If two policies have the same
    strategy, the policies' names decide. Policies that are planned later or by another call are included, because their
    next plan would undo the move. Every move therefore lowers one measure and raises no preceding one, and repeated
    planning terminates regardless of the order of the policies' cycles.
    """
    return [
        other.strategy if other.policy == run.policy else PeerPolicyGuard(other.strategy, other.policy)
        for other in runs
        if (other.place, other.policy) < (run.place, run.policy)
    ]


def _runs(
    plan_state: PlanState,
    policies: Sequence[DeschedulerPolicy],
    memories: Mapping[str, EvictionMemory],
    usages: Mapping[str, Usage],
) -> Iterator[StrategyRun]:
    for policy in policies:
        scope = PolicyScope(policy.spec, plan_state.snapshot, now=plan_state.now, usage=usages.get(policy.name))
        remembered = memories.get(policy.name)
        expired = held_too_long(remembered or EvictionMemory(), policy.spec, now=plan_state.now)
        rules = plan_state.gate.rules_for(policy.spec, expired)
        memory = None
        if remembered is not None:
            memory = CooldownIndex(remembered, policy.spec.cooldown, now=plan_state.now, in_place=IN_PLACE)
        enabled: dict[str, Any] = dict(policy.spec.strategies.enabled())
        for place, kind in enumerate(IN_ORDER):
            if kind.NAME in enabled:
                strategy = kind(enabled[kind.NAME].params, scope, plan_state.placer)
                yield StrategyRun(policy.name, place, strategy, scope, rules, memory)
