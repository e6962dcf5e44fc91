"""PodLifeTime: pods do not live longer than they are to, nor stay for long in a state that is to be short."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.api.reasons import POD_LIFE_TIME_EXCEEDED, POD_STATE_MATCHED
from trimtab.api.strategies import PodConditionFilter, PodLifeTimeParams
from trimtab.descheduling.context import Context
from trimtab.descheduling.order import Rank, rank
from trimtab.descheduling.pod_states import age_of, exit_code_among, kinds_of_containers, state_among
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.anew import StartAnew
from trimtab.kube.objects import Pod, PodCondition
from trimtab.placement.placer import Placer


class PodLifeTime(StartAnew[PodLifeTimeParams]):
    """A pod goes that is as all the parameters say: older than a limit, in a state, with a condition, an exit code.

    Ages count from the pod's creation, as upstream, not from the start of its containers. The next pod may run where
    this one did: that it is new is the purpose. That an owner does not lose all its old pods at once is seen to when
    the plan is carried out, one pod of an owner at a time. Where the parameters match a pod that has run to its end, it
    is only removed.

    The oldest go first, whatever their priority: all are to go, and each frees a place of its own, so that the order
    only says who waits where a limit or a budget cuts the row short.
    """

    NAME = "PodLifeTime"

    def __init__(self, params: PodLifeTimeParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._most = params.max_pod_life_time_seconds
        self._states = frozenset(params.states)
        self._codes = frozenset(params.exit_codes)
        self._include = frozenset(params.owner_kinds.include)
        self._exclude = frozenset(params.owner_kinds.exclude)
        init, ephemeral = params.including_init_containers, params.including_ephemeral_containers
        self._of_states = kinds_of_containers(init=init, ephemeral=ephemeral)
        self._of_codes = kinds_of_containers(init=init)

    def plan(self, context: Context) -> None:
        """The oldest first, of the whole cluster: a limit then leaves the youngest, on whichever node they are."""
        reason = POD_STATE_MATCHED if self._most is None else POD_LIFE_TIME_EXCEEDED
        for pod in sorted(self._found(), key=_order):
            if context.is_candidate(pod):
                self._restart(context, pod, reason=reason, text=self._text(pod))
            elif context.is_removable(pod):
                context.remove(pod, reason=reason, message=self._text(pod))

    def _concerns(self, pod: Pod) -> bool:
        if self._most is not None and (pod.created is None or int(self.scope.now - pod.created) <= self._most):
            return False
        if self._states and state_among(pod, self._states, self._of_states) is None:
            return False
        if self._codes and exit_code_among(pod, self._codes, self._of_codes) is None:
            return False
        if self.params.conditions and self._condition(pod) is None:
            return False
        return self._owned_rightly(pod) and self._given

    @property
    def _given(self) -> bool:
        """Whether the policy says anything that a pod could fail; one that says nothing means no pod, and not all."""
        return self._most is not None or bool(self._states or self._codes or self.params.conditions)

    def _owned_rightly(self, pod: Pod) -> bool:
        if self._include:
            return any(owner.kind in self._include for owner in pod.owners)
        return not any(owner.kind in self._exclude for owner in pod.owners)

    def _condition(self, pod: Pod) -> str | None:
        """The first condition that one of the filters describes, in words."""
        now = self.scope.now
        for wanted in self.params.conditions:
            for condition in pod.every_condition():
                if _describes(wanted, condition, now):
                    return _words(condition, now)
        return None

    def _text(self, pod: Pod) -> str:
        return "; ".join(dict.fromkeys(self._texts(pod)))  # a container's state and exit code are told in one

    def _texts(self, pod: Pod) -> Iterator[str]:
        if self._most is not None:
            yield f"created {age_of(pod, self.scope.now)}s ago, maxPodLifeTimeSeconds is {self._most}"
        if self._states:
            yield f"{state_among(pod, self._states, self._of_states)}"
        if self._codes:
            yield f"{exit_code_among(pod, self._codes, self._of_codes)}"
        if self.params.conditions:
            yield f"{self._condition(pod)}"


def _order(pod: Pod) -> tuple[float, Rank, str, str]:
    return pod.created or 0.0, rank(pod), pod.namespace, pod.name


def _describes(wanted: PodConditionFilter, condition: PodCondition, now: float) -> bool:
    """Whether all that the filter gives holds of the condition."""
    if wanted.type not in (None, condition.type) or wanted.status not in (None, condition.status):
        return False
    if wanted.reason not in (None, condition.reason):
        return False
    least = wanted.min_time_since_last_transition_seconds
    if least is None:
        return True
    return condition.since is not None and condition.since <= now and int(now - condition.since) >= least


def _words(condition: PodCondition, now: float) -> str:
    reason = f" ({condition.reason})" if condition.reason else ""
    since = f" for {int(now - condition.since)}s" if condition.since is not None else ""
    return f"condition {condition.type} is {condition.status}{reason}{since}"
