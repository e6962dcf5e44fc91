"""Detects policies that would undo each other's evictions, and stores all policies of the cluster.

Conflicts are computed from the policies alone and not from the nodes of the cluster. Otherwise a new label on a node
could make two policies undo each other, and a plan made from files would differ from one made in the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any, Final, Literal

from msgspec import Struct

from trimtab.api.conditions import ConditionUpdate
from trimtab.api.decode import decode_policy
from trimtab.api.descheduler_policy import DeschedulerPolicy, contradict
from trimtab.api.reasons import POLICY_CONFLICT, SCHEDULER_CONFLICT
from trimtab.api.strategies import MetricsUtilization
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.disruption.settings_conflicts import SharedSettings
from trimtab.kube.api import Api
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DESCHEDULER_POLICIES
from trimtab.kube.verbs import list_objects

Scoring = Literal["LeastAllocated", "MostAllocated"]
"""How kube-scheduler's NodeResourcesFit scores nodes: LeastAllocated (its default) or MostAllocated."""

OPPOSED: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "LowNodeUtilization",
        "HighNodeUtilization",
        "one fills underutilized nodes and the other drains them, so each would undo the other's evictions",
    ),
)
"""Pairs of strategies that must not act on the same nodes, and the reasons."""

OPPOSED_BY_SCHEDULER: Final[dict[Scoring, tuple[str, str]]] = {
    "LeastAllocated": (
        "HighNodeUtilization",
        "evicts pods from the least utilized nodes, and the scheduler would place their replacements there again",
    ),
    "MostAllocated": (
        "LowNodeUtilization",
        "evicts pods from the most utilized nodes, and the scheduler would place their replacements there again",
    ),
}
"""Maps a scoring strategy to the descheduling strategy whose evictions such a scheduler would undo, and the reason.

OpenShift's operator rejects the same combinations.
"""

REMEDY: Final = "suspend one of them, or set nodeSelectors that cannot both match a node"


class PolicyConflict(Struct, frozen=True, order=True):
    """A conflict between two policies, or of one policy with itself or the scheduler: evictions would be undone.

    Attributes:
        first: name of a policy.
        second: name of the other policy, later in alphabetical order; the same as ``first`` if a policy conflicts with
            itself or the scheduler.
        reason: a reason code from :mod:`trimtab.api.reasons`.
        message: describes the strategies and why they conflict.
    """

    first: str
    second: str
    reason: str
    message: str

    @property
    def names(self) -> frozenset[str]:
        """Return the names of the conflicting policies, which must not act."""
        return frozenset((self.first, self.second))


def conflicts(policies: Iterable[DeschedulerPolicy], *, scoring: Scoring | None = None) -> tuple[PolicyConflict, ...]:
    """Return the conflicts of policies with each other and with the scheduler.

    Two policies conflict if each would undo the other's evictions. A policy conflicts with the scheduler if the
    scheduler would undo its evictions. Policies in Simulate mode are included, because their plans would be wrong as
    well. Callers must exclude suspended policies.

    Args:
        policies: valid policies with distinct names, in any order. Two policies overlap unless their node selectors
            contradict each other.
        scoring: the scheduler's scoring strategy; ``None`` if it is unknown. It cannot be read from the API server.
    """
    ordered = sorted(policies, key=lambda policy: policy.name)
    pairs = [(each, each) for each in ordered] + list(combinations(ordered, 2))
    found = [_conflict(first, second) for first, second in pairs]
    if scoring is not None:
        found += [_against_scheduler(each, scoring) for each in ordered]
    return tuple(sorted(each for each in found if each is not None))


def _against_scheduler(policy: DeschedulerPolicy, scoring: Scoring) -> PolicyConflict | None:
    strategy, why = OPPOSED_BY_SCHEDULER[scoring]
    if strategy not in dict(policy.spec.strategies.enabled()):
        return None
    text = f"the scheduler is configured to score nodes by {scoring}, and {strategy} of policy {policy.name} {why}"
    return PolicyConflict(policy.name, policy.name, SCHEDULER_CONFLICT, text)


def _conflict(first: DeschedulerPolicy, second: DeschedulerPolicy) -> PolicyConflict | None:
    if contradict(first.spec.node_selector, second.spec.node_selector):
        return None
    has, other = (dict(policy.spec.strategies.enabled()) for policy in (first, second))
    for one, opposite, why in OPPOSED:
        for left, right in ((one, opposite), (opposite, one)):
            if left in has and right in other:
                text = (
                    f"{left} of policy {first.name} and {right} of policy {second.name} apply to the same nodes: {why}"
                )
                return PolicyConflict(first.name, second.name, POLICY_CONFLICT, text)
    return None


class PolicyRegistry:
    """Stores all policies and computes which of them conflict.

    Each policy's loop registers its own policy. One list request at the start adds the policies whose loops have not
    started yet, so that no policy acts before all others are known.

    Args:
        scoring: the scheduler's scoring strategy; ``None`` if unknown.
        settings: shares the policies with the ClusterAutoscaler's controller.
    """

    def __init__(self, scoring: Scoring | None = None, settings: SharedSettings | None = None) -> None:
        self._scoring = scoring
        self._settings = settings or SharedSettings()
        self._settings.listen(self._call_all)
        self._policies: dict[
            str, tuple[str, DeschedulerPolicy | None]
        ] = {}  # by name: UID, and the policy or None if invalid
        self._measured: dict[str, tuple[MetricsUtilization, Usage]] = {}  # by name: the source and its measurement
        self._listeners: dict[str, Callable[[], None]] = {}
        self._conflicts: tuple[PolicyConflict, ...] = ()
        self._listed = False

    async def list_existing(self, api: Api) -> None:
        """List the existing policies, once.

        Raises:
            ApiError: the API server refuses the list.
            Unreachable: the API server does not answer.
        """
        if self._listed:
            return
        found = await list_objects(api, DESCHEDULER_POLICIES)
        for body in found.items:
            metadata = body["metadata"]
            if metadata["name"] not in self._policies and not metadata.get("deletionTimestamp"):
                self._policies[metadata["name"]] = metadata.get("uid", ""), _decode_or_none(body)
        self._listed = True
        self._update_conflicts()

    def update(self, name: str, uid: str, policy: DeschedulerPolicy | None) -> None:
        """Store a policy. ``policy`` is ``None`` if its spec is invalid."""
        self._policies[name] = uid, policy
        self._update_conflicts()

    def forget(self, name: str, uid: str) -> None:
        """Remove a deleted policy. A new policy with the same name and another UID is not removed."""
        if self._policies.get(name, ("", None))[0] == uid:
            del self._policies[name]
            self._listeners.pop(name, None)
            self._measured.pop(name, None)
            self._update_conflicts()

    def listen(self, name: str, callback: Callable[[], None]) -> None:
        """Set the callback for changes of a policy's conflicts."""
        self._listeners[name] = callback

    def conflicts_of(self, name: str) -> tuple[PolicyConflict, ...]:
        """Return the conflicts in which the policy is involved."""
        return tuple(each for each in self._conflicts if name in each.names)

    def active_peers(self, name: str) -> tuple[DeschedulerPolicy, ...]:
        """Return the other policies that may evict pods, sorted by name.

        These policies are neither suspended, nor in conflict, nor in Simulate mode. Other plans must not undo their
        moves. A policy is included even if its window is closed, because the window opens again.
        """
        others = (policy for other, (_, policy) in sorted(self._policies.items()) if other != name)
        return tuple(policy for policy in others if policy is not None and self._may_act(policy))

    def record_usage(self, name: str, wanted: MetricsUtilization, usage: Usage) -> None:
        """Store a policy's latest utilization measurement.

        The plans of other policies use it to evaluate this policy's objections to their moves.
        """
        if name in self._policies:
            self._measured[name] = wanted, usage

    def usages(self) -> dict[str, Usage]:
        """Return the latest measurement of each policy, by the policy's name.

        Policies whose source or query has changed since the measurement are omitted.
        """
        return {
            name: usage
            for name, (wanted, usage) in list(self._measured.items())  # copied, because cycles plan in another thread
            if (policy := self._policies.get(name, ("", None))[1]) is not None
            and metrics_utilization_of(policy) == wanted
        }

    def _may_act(self, policy: DeschedulerPolicy) -> bool:
        return policy.spec.mode != "Simulate" and not policy.spec.suspend and not self.conflicts_of(policy.name)

    def _update_conflicts(self) -> None:
        before = self._conflicts
        usable = (policy for _, policy in self._policies.values() if policy is not None)
        awake = [policy for policy in usable if not policy.spec.suspend]
        self._conflicts = conflicts(awake, scoring=self._scoring)
        changed = {name for each in {*before} ^ {*self._conflicts} for name in each.names}
        for name in sorted(changed & self._listeners.keys()):
            self._listeners[name]()
        self._settings.set_policies(awake)

    def settings_condition(self, name: str) -> ConditionUpdate | None:
        """Return the policy's ``Conflicting`` condition; ``None`` if there is no ClusterAutoscaler."""
        return self._settings.of_policy(name) if self._settings.any_autoscaler else None

    def _call_all(self) -> None:
        for name in sorted(self._listeners):
            self._listeners[name]()


def _decode_or_none(body: dict[str, Any]) -> DeschedulerPolicy | None:
    try:
        return decode_policy(body, source="")
    except InputError:
        return None  # the policy's own loop reports the error
