"""The planner: a snapshot, policies and a time give a plan. No I/O, no clock, no chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.eviction_memory import Memory
from trimtab.api.plan import Plan
from trimtab.cluster.rollouts import Rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.usage import Usage
from trimtab.descheduling.board import Board, Guard
from trimtab.descheduling.context import Context
from trimtab.descheduling.guards import OfAnotherPolicy
from trimtab.descheduling.memory.recollection import Recollection
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.registry import IN_ORDER, IN_PLACE
from trimtab.descheduling.strategies.strategy import AnyStrategy, Measure
from trimtab.disruption.background import leaving as in_the_background
from trimtab.disruption.gate import Rules


class Run(Struct, frozen=True):
    """One enabled strategy of one policy.

    Attributes:
        policy: the policy's name.
        place: the strategy's place in the order of :data:`IN_ORDER`.
        strategy: with the policy's parameters.
        scope: of the policy.
        rules: of the policy, shared by its strategies, for limits hold for all of them together.
        memory: what did not help before; ``None`` where there is nothing.
    """

    policy: str
    place: int
    strategy: AnyStrategy
    scope: Scope
    rules: Rules
    memory: Recollection | None


class Measured(Struct, frozen=True):
    """What a plan does for one strategy of one policy.

    Attributes:
        policy: the policy's name.
        strategy: the strategy's name.
        before: its measure (:meth:`~trimtab.descheduling.strategies.strategy.Strategy.measure`) on the
            cluster as it is.
        after: the same once all of the plan is done, the moves of other strategies and policies among it.
    """

    policy: str
    strategy: str
    before: Measure
    after: Measure


def plan(
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    *,
    now: float,
    memories: Mapping[str, Memory] | None = None,
    usages: Mapping[str, Usage] | None = None,
    rollouts: Rollouts | None = None,
    peers: Sequence[DeschedulerPolicy] = (),
    only: str = "",
) -> Plan:
    """Which pods to move where, and which stay and why.

    Policies run in the order of their names, and the strategies of each in the order of the registry. All share one
    picture with the places reserved so far, one account of budgets and limits, and one list of moves, so that two of
    them never promise the same place, nor move the same pod. Mode, interval and suspension are the caller's to read.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        policies: valid ones (:func:`trimtab.api.checks.validate`).
        now: seconds since the epoch; protections by age count from it.
        memories: what policies remember of their evictions, by the policies' names
            (:func:`trimtab.descheduling.memory.assess.assess`); what is in their status is not read here.
        usages: what was measured, by the policies' names, for strategies that judge by real use.
        rollouts: the Deployments, for policies with ``singleReplica: Surge``; where nobody has asked for them, each is
            looked at right before it is restarted.
        peers: policies whose turn is another time. Nothing is planned for them, but what they see to is not undone:
            their strategies object as they would if they were planned for as well.
        only: the one strategy to plan for; the others object as ever. All of them unless given.
    """
    return _plan(snapshot, policies, now, memories, usages, rollouts, lambda _: None, peers, only)


def plan_and_measure(
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    *,
    now: float,
    memories: Mapping[str, Memory] | None = None,
    usages: Mapping[str, Usage] | None = None,
    rollouts: Rollouts | None = None,
) -> tuple[Plan, tuple[Measured, ...]]:
    """The same plan, and every strategy's measure before and after it, in the order in which they run.

    Apart from :func:`plan` because measuring looks at all pods, which a cycle has no use for.
    """
    looks: list[list[tuple[Run, Measure]]] = []

    def look(runs: Sequence[Run]) -> None:
        looks.append([(run, run.strategy.measure()) for run in runs])

    made = _plan(snapshot, policies, now, memories, usages, rollouts, look)
    measured = (
        Measured(run.policy, run.strategy.NAME, before, after) for (run, before), (_, after) in zip(*looks, strict=True)
    )
    return made, tuple(measured)


def _plan(
    snapshot: Snapshot,
    policies: Sequence[DeschedulerPolicy],
    now: float,
    memories: Mapping[str, Memory] | None,
    usages: Mapping[str, Usage] | None,
    rollouts: Rollouts | None,
    look: Callable[[Sequence[Run]], None],
    peers: Sequence[DeschedulerPolicy] = (),
    only: str = "",
) -> Plan:
    """Plan, and let somebody look at the strategies on the picture before the first move and after the last one."""
    with snapshot.fork():
        leaving = in_the_background(snapshot, (memories or {}).values(), now=now)
        for pod in leaving:  # as one that is being deleted: nobody moves it, nor counts it among those that stay
            snapshot.put(msgspec.structs.replace(pod, deleted=now))
        board = Board(snapshot, now=now, rollouts=rollouts, leaving=leaving)
        runs = list(_runs(board, sorted(policies, key=lambda policy: policy.name), memories or {}, usages or {}))
        beside = list(_runs(board, peers, {}, usages or {}))
        board.watchers = tuple(run.strategy for run in (*runs, *beside))
        look(runs)
        for run in runs:
            if only not in ("", run.strategy.NAME):
                continue
            context = Context(
                board,
                run.scope,
                run.rules,
                policy=run.policy,
                strategy=run.strategy.NAME,
                guards=_guards(run, (*runs, *beside)),
                memory=run.memory,
            )
            run.strategy.plan(context)
        look(runs)
        return Plan(now=now, actions=tuple(board.actions), kept=tuple(board.kept))


def _guards(run: Run, runs: Sequence[Run]) -> list[Guard]:
    """Who may object to what a run wants: all that come before it in one strict order, whichever policy's they are.

    Also those of policies that are planned for later, or not now: the next plan would undo what they find wrong. Where
    two policies have the same strategy, the names of the policies decide. So every move lowers one measure and raises
    none before it, and whatever policies plan in whichever order, they come to rest.
    """
    return [
        other.strategy if other.policy == run.policy else OfAnotherPolicy(other.strategy, other.policy)
        for other in runs
        if (other.place, other.policy) < (run.place, run.policy)
    ]


def _runs(
    board: Board,
    policies: Sequence[DeschedulerPolicy],
    memories: Mapping[str, Memory],
    usages: Mapping[str, Usage],
) -> Iterator[Run]:
    for policy in policies:
        scope = Scope(policy.spec, board.snapshot, now=board.now, usage=usages.get(policy.name))
        rules = board.gate.rules_for(policy.spec)
        remembered = memories.get(policy.name)
        memory = None
        if remembered is not None:
            memory = Recollection(remembered, policy.spec.cooldown, now=board.now, in_place=IN_PLACE)
        enabled: dict[str, Any] = dict(policy.spec.strategies.enabled())
        for place, kind in enumerate(IN_ORDER):
            if kind.NAME in enabled:
                strategy = kind(enabled[kind.NAME].params, scope, board.placer)
                yield Run(policy.name, place, strategy, scope, rules, memory)
