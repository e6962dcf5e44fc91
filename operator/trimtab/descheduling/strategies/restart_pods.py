"""Strategies that evict pods to restart them, and that delete failed pods.

The restart itself resolves the violation, regardless of which node runs the replacement.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import ClassVar, Final, TypeVar

import numpy as np

from trimtab.api.base import Spec
from trimtab.api.reasons import POD_FAILED, POD_LIFE_TIME_EXCEEDED, POD_STATE_MATCHED, POD_TOO_YOUNG, TOO_MANY_RESTARTS
from trimtab.api.strategies import FailedPodsParams, PodConditionFilter, PodLifeTimeParams, TooManyRestartsParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.planning.context import PlacementPreference, StrategyContext
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import Rank, rank
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.kube.objects import ContainerState, Pod, PodCondition
from trimtab.kube.objects.pod import CONTAINER, EPHEMERAL_CONTAINER, INIT_CONTAINER
from trimtab.placement.placer import Placer


def kinds_of_containers(*, init: bool, ephemeral: bool = False) -> frozenset[str]:
    """Return the kinds of containers (:attr:`ContainerState.kind`) to consider.

    Args:
        init: whether to include init containers.
        ephemeral: whether to include ephemeral containers.
    """
    return frozenset(
        {CONTAINER} | ({INIT_CONTAINER} if init else set()) | ({EPHEMERAL_CONTAINER} if ephemeral else set())
    )


def idle_containers(pod: Pod, kinds: Collection[str]) -> Iterator[ContainerState]:
    """Yield the states of the pod's waiting and terminated containers of the given kinds."""
    return (each for each in pod.container_states if each.kind in kinds)


def words(state: ContainerState) -> str:
    """Return a description of a container's state, such as ``container main is waiting: CrashLoopBackOff``."""
    if state.exit_code is None:
        return f"{state.kind} {state.name} is waiting: {state.reason or 'no reason given'}"
    reason = f": {state.reason}" if state.reason else ""
    return f"{state.kind} {state.name} terminated{reason} (exit code {state.exit_code})"


def state_among(pod: Pod, states: Collection[str], kinds: Collection[str]) -> str | None:
    """Return a description of the first match of ``states``; ``None`` if nothing matches.

    The pod's phase, the pod's reason and the reasons of its containers are compared, in this order.
    """
    if pod.phase in states:
        return f"phase {pod.phase}"
    if pod.reason in states:
        return f"reason {pod.reason}"
    return next((words(each) for each in idle_containers(pod, kinds) if each.reason in states), None)


def exit_code_among(pod: Pod, codes: Collection[int], kinds: Collection[str]) -> str | None:
    """Return a description of the first container that terminated with one of ``codes``; ``None`` if none did."""
    return next((words(each) for each in idle_containers(pod, kinds) if each.exit_code in codes), None)


def age_of(pod: Pod, now: float) -> int | None:
    """Return the whole seconds since the pod was created; ``None`` if unknown, as in hand-written files."""
    return None if pod.created is None else int(now - pod.created)


P = TypeVar("P", bound=Spec)

FORESEEN: Final = 1000
"""Maximum number of pods for which a plan computes the likely target.

At 30 evictions per minute, evicting that many pods takes half an hour, and plans are made more often. For further pods
it is sufficient that their own node can run the replacement.
"""


class RestartPods(Strategy[P]):
    """Base class of strategies that evict pods so that their controllers create new ones.

    The replacement may run on the same node, whose capacity the eviction frees. But some node must be able to run it,
    because otherwise the pod would not be replaced. The measure counts the pods that have not been restarted, so every
    move lowers it.
    """

    IN_PLACE: ClassVar[bool] = True

    def __init__(self, params: P, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._anywhere: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        self._selected: list[bool] = scope.selected.tolist()
        self._restarted: set[str] = set()
        self._foreseen = 0

    def measure(self) -> Measure:
        """Return the number of matching pods that the plan does not restart or delete."""
        return (float(sum(1 for _ in self._matching_pods())),)

    def pod_moved(self, before: Pod, after: Pod) -> None:
        """Record that a planned move restarts the pod. A second call for the same pod means that it was undone."""
        del after
        self._restarted ^= {before.key}

    @abstractmethod
    def _matches_parameters(self, pod: Pod) -> bool:
        """Return whether the pod matches the strategy's parameters.

        Implementations should make the cheapest check first, because every pod is checked.
        """

    def _matching_pods(self) -> Iterator[Pod]:
        """Yield the matching pods on the policy's nodes, unsorted."""
        slot_of, selected = self.snapshot.nodes.slot_of, self._selected
        for pod in self.snapshot.pods.values():
            if pod.deleted is None and self._matches_parameters(pod) and pod.key not in self._restarted:
                slot = slot_of.get(pod.node)
                if slot is not None and selected[slot] and self.scope.covers(pod):
                    yield pod

    def _restart(self, context: StrategyContext, pod: Pod, *, reason: str, text: str, elsewhere: bool = False) -> None:
        """Plan to evict the pod if a node can run the replacement; otherwise keep it.

        Args:
            context: the strategy's context.
            pod: a candidate.
            reason: the reason code of the eviction.
            text: the eviction's message, with the values that were compared.
            elsewhere: whether to prefer every other node to the pod's own.
        """
        nodes = self.snapshot.nodes
        home = nodes.slot_of[pod.node]
        if self._foreseen >= FORESEEN and not elsewhere and self._current_node_fits(pod, home):
            at_home = f"{text}; its own node can run the replacement"
            refusal = context.blocker(pod) or context.plan_move(pod, home, reason=reason, message=at_home)
            if refusal is not None:
                context.keep(pod, refusal.reason, refusal.message)
            return
        rank: IntArray | None = None
        if elsewhere:
            rank = np.zeros(nodes.capacity, dtype=np.int64)
            rank[home] = 1

        def message(slot: int) -> str:
            return f"{text}; {'its own node' if slot == home else nodes.node(slot).name} can run the replacement"

        refused = context.try_move(
            pod, PlacementPreference(self._anywhere, "", rank, allow_current=True), reason=reason, message=message
        )
        self._foreseen += refused is None

    def _current_node_fits(self, pod: Pod, home: int) -> bool:
        """Return whether the pod's own node can certainly run the replacement.

        This is the case if the node is eligible and not overcommitted.
        """
        nodes, asked = self.snapshot.nodes, self.placer.replacement(pod)
        spec = asked.spec
        return (
            spec is pod.spec
            and not (spec.volumes or spec.host_ports or spec.resource_claims)
            and bool(self.scope.destinations[home])
            and not (self.scope.being_removed is not None and self.scope.being_removed[home])
            and self.placer.ignores_other_pods(asked)
            and self.placer.refusal(asked) is None
            and bool(self.placer.eligible(asked)[home])
            and bool((nodes.requested[home] <= nodes.allocatable[home]).all())
        )


class RemovePodsHavingTooManyRestarts(RestartPods[TooManyRestartsParams]):
    """Evicts pods whose containers have restarted at least ``podRestartThreshold`` times in total.

    The node may be the cause, for example a volume that cannot be attached or a broken device. Therefore other nodes
    are preferred to the pod's own, which is used only if no other has capacity. Terminated pods are ignored, because
    they do not restart (upstream evicts them as well); RemoveFailedPods and PodLifeTime handle them.

    The pods with the most restarts are evicted first, regardless of their priority. If a limit or a budget stops the
    strategy, the worst pods have then been evicted.
    """

    NAME = "RemovePodsHavingTooManyRestarts"

    def __init__(self, params: TooManyRestartsParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._threshold = params.pod_restart_threshold
        self._init = params.including_init_containers
        self._states = frozenset(params.states)
        self._kinds = kinds_of_containers(init=params.including_init_containers)

    def plan(self, context: StrategyContext) -> None:
        """Evict the pods with the most restarts first."""
        for pod in sorted(filter(context.is_candidate, self._matching_pods()), key=self._order):
            self._restart(context, pod, reason=TOO_MANY_RESTARTS, text=self._text(pod), elsewhere=True)

    def _matches_parameters(self, pod: Pod) -> bool:
        if self._threshold is None or self._restarts(pod) < self._threshold or pod.terminal:
            return False
        return not self._states or state_among(pod, self._states, self._kinds) is not None

    def _restarts(self, pod: Pod) -> int:
        return pod.restarts + pod.init_restarts if self._init else pod.restarts

    def _order(self, pod: Pod) -> tuple[int, Rank, float, str, str]:
        return -self._restarts(pod), rank(pod), pod.created or 0.0, pod.namespace, pod.name

    def _text(self, pod: Pod) -> str:
        init = f" and {pod.init_restarts} of init containers" if self._init and pod.init_restarts else ""
        state = state_among(pod, self._states, self._kinds) if self._states else None
        found = f"; {state}" if state else ""
        return f"{pod.restarts} restarts of containers{init}, podRestartThreshold is {self._threshold}{found}"


class PodLifeTime(RestartPods[PodLifeTimeParams]):
    """Evicts pods that match all parameters: maximum age, states, conditions and exit codes.

    Ages are measured from the pod's creation, as upstream does, and not from the start of its containers. The
    replacement may run on the same node. The executor evicts one pod of an owner at a time, so an owner does not lose
    all its old pods at once. Terminated pods that match are deleted.

    The oldest pods are evicted first, regardless of their priority. The order only matters if a limit or a budget stops
    the strategy, because otherwise all of them are evicted.
    """

    NAME = "PodLifeTime"

    def __init__(self, params: PodLifeTimeParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._most = params.max_pod_life_time_seconds
        self._states = frozenset(params.states)
        self._codes = frozenset(params.exit_codes)
        self._include = frozenset(params.owner_kinds.include)
        self._exclude = frozenset(params.owner_kinds.exclude)
        init, ephemeral = params.including_init_containers, params.including_ephemeral_containers
        self._of_states = kinds_of_containers(init=init, ephemeral=ephemeral)
        self._of_codes = kinds_of_containers(init=init)

    def plan(self, context: StrategyContext) -> None:
        """Evict the oldest pods of all nodes first, so that the youngest are kept if a limit is reached."""
        reason = POD_STATE_MATCHED if self._most is None else POD_LIFE_TIME_EXCEEDED
        for pod in sorted(self._matching_pods(), key=_oldest_and_least_important_first):
            if context.is_candidate(pod):
                self._restart(context, pod, reason=reason, text=self._text(pod))
            elif context.is_removable(pod):
                context.plan_removal(pod, reason=reason, message=self._text(pod))

    def _matches_parameters(self, pod: Pod) -> bool:
        if self._most is not None and (pod.created is None or int(self.scope.now - pod.created) <= self._most):
            return False
        if self._states and state_among(pod, self._states, self._of_states) is None:
            return False
        if self._codes and exit_code_among(pod, self._codes, self._of_codes) is None:
            return False
        if self.params.conditions and self._condition(pod) is None:
            return False
        return self._owned_rightly(pod) and self._has_filters

    @property
    def _has_filters(self) -> bool:
        """Return whether any filter is set. Without filters, no pod matches."""
        return self._most is not None or bool(self._states or self._codes or self.params.conditions)

    def _owned_rightly(self, pod: Pod) -> bool:
        if self._include:
            return any(owner.kind in self._include for owner in pod.owners)
        return not any(owner.kind in self._exclude for owner in pod.owners)

    def _condition(self, pod: Pod) -> str | None:
        """Return a description of the pod's first condition that matches a filter; ``None`` if none does."""
        now = self.scope.now
        for wanted in self.params.conditions:
            for condition in pod.all_conditions():
                if _describes(wanted, condition, now):
                    return _describe_condition(condition, now)
        return None

    def _text(self, pod: Pod) -> str:
        return "; ".join(dict.fromkeys(self._texts(pod)))  # a container's state and exit code give the same text

    def _texts(self, pod: Pod) -> Iterator[str]:
        if self._most is not None:
            yield f"created {age_of(pod, self.scope.now)}s ago, maxPodLifeTimeSeconds is {self._most}"
        if self._states:
            yield f"{state_among(pod, self._states, self._of_states)}"
        if self._codes:
            yield f"{exit_code_among(pod, self._codes, self._of_codes)}"
        if self.params.conditions:
            yield f"{self._condition(pod)}"


def _oldest_and_least_important_first(pod: Pod) -> tuple[float, Rank, str, str]:
    return pod.created or 0.0, rank(pod), pod.namespace, pod.name


def _describes(wanted: PodConditionFilter, condition: PodCondition, now: float) -> bool:
    """Return whether a pod's condition matches all fields that the filter sets."""
    if wanted.type not in (None, condition.type) or wanted.status not in (None, condition.status):
        return False
    if wanted.reason not in (None, condition.reason):
        return False
    least = wanted.min_time_since_last_transition_seconds
    if least is None:
        return True
    return condition.since is not None and condition.since <= now and int(now - condition.since) >= least


def _describe_condition(condition: PodCondition, now: float) -> str:
    reason = f" ({condition.reason})" if condition.reason else ""
    since = f" for {int(now - condition.since)}s" if condition.since is not None else ""
    return f"condition {condition.type} is {condition.status}{reason}{since}"


_SHOWN = 3


class RemoveFailedPods(Strategy[FailedPodsParams]):
    """Deletes pods in phase Failed that are old enough and match the parameters.

    A failed pod uses no capacity and needs none. A ReplicaSet has already replaced it, and a Job has counted the
    failure. A pod without a controller is not recreated, so it is kept unless the policy disables that protection.
    PodDisruptionBudgets do not apply, neither here nor in the API server, because a terminated pod cannot be disrupted.

    The oldest pods are deleted first. Their priority is ignored, because they do not run.
    """

    NAME = "RemoveFailedPods"

    def __init__(self, params: FailedPodsParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._reasons = frozenset(params.reasons)
        self._codes = frozenset(params.exit_codes)
        self._excluded = frozenset(params.exclude_owner_kinds)
        self._kinds = kinds_of_containers(init=params.including_init_containers)
        self._selected: list[bool] = scope.selected.tolist()

    def plan(self, context: StrategyContext) -> None:
        """Plan to delete the pods that are old enough, and report the others as too young."""
        for pod in sorted(filter(context.is_removable, self._matching_pods()), key=_oldest_first):
            text = self._text(pod)
            if self._is_old_enough(pod):
                context.plan_removal(pod, reason=POD_FAILED, message=text)
            else:
                context.keep(pod, POD_TOO_YOUNG, text)

    def measure(self) -> Measure:
        """Return the number of failed pods that match the parameters and still exist in the snapshot."""
        return (float(sum(self._is_old_enough(pod) for pod in self._matching_pods())),)

    def _matching_pods(self) -> Iterator[Pod]:
        """Yield the failed pods that match the parameters, unsorted."""
        for pod in self.snapshot.pods.values():
            if pod.phase == "Failed" and pod.deleted is None and self._is_selected(pod):
                slot = self.snapshot.slot(pod)
                if slot is not None and self._selected[slot] and self.scope.covers(pod):
                    yield pod

    def _is_selected(self, pod: Pod) -> bool:
        if any(owner.kind in self._excluded for owner in pod.owners):
            return False
        idle = [*idle_containers(pod, self._kinds)]
        if self._reasons and self._reasons.isdisjoint((pod.reason, *(each.reason for each in idle))):
            return False
        return not self._codes or not self._codes.isdisjoint(each.exit_code for each in idle)

    def _is_old_enough(self, pod: Pod) -> bool:
        least, age = self.params.min_pod_lifetime_seconds, age_of(pod, self.scope.now)
        return not least or (age is not None and age >= least)

    def _text(self, pod: Pod) -> str:
        age, least = age_of(pod, self.scope.now), self.params.min_pod_lifetime_seconds
        failed = f"the pod has failed ({pod.reason})" if pod.reason else "the pod has failed"
        idle = [words(each) for each in idle_containers(pod, self._kinds)]
        more = [f"{len(idle) - _SHOWN} more containers are terminated or waiting"] if len(idle) > _SHOWN else []
        created = "creation time unknown" if age is None else f"created {age}s ago"
        return "; ".join([failed, *idle[:_SHOWN], *more, f"{created}, minPodLifetimeSeconds is {least}"])


def _oldest_first(pod: Pod) -> tuple[float, str, str]:
    return pod.created or 0.0, pod.namespace, pod.name
