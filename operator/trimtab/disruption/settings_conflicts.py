"""Detects settings of a DeschedulerPolicy and of the ClusterAutoscaler that work against each other.

LowNodeUtilization spreads pods over nodes until no node is above ``targetThresholds``. Scale-down moves the pods on
nodes at or below ``scaleDown.utilizationThreshold`` to other nodes and removes these nodes. If the target is not above
the threshold, scale-down drains the nodes that LowNodeUtilization has relieved, and LowNodeUtilization fills others
again. Despite a conflict both continue to act, because it causes needless evictions but leaves no pod unschedulable:
unneeded nodes are not used as targets. HighNodeUtilization drains nodes as scale-down does and never conflicts with it.

The controllers of both kinds exchange their specs through :class:`SharedSettings`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.conditions import CONFLICTING, ConditionUpdate
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.reasons import NO_CONFLICT, SETTINGS_CONFLICT

_COUNTED: Final = ("cpu", "memory")
"""The resources that determine a node's utilization in scale-down if the node has no GPUs."""

_REMEDY: Final = (
    "raise targetThresholds above utilizationThreshold, lower utilizationThreshold, use HighNodeUtilization instead, "
    "or set scaleDown.enabled to false"
)


class SettingsConflict(Struct, frozen=True):
    """A policy and a ClusterAutoscaler whose settings work against each other.

    Attributes:
        policy: the policy's name.
        autoscaler: the ClusterAutoscaler's name.
        why: description of the conflicting settings with their values.
    """

    policy: str
    autoscaler: str
    why: str


def settings_conflict(policy: DeschedulerPolicy, autoscaler: ClusterAutoscaler) -> SettingsConflict | None:
    """Return the conflict between the settings of a policy and a ClusterAutoscaler; ``None`` if there is none.

    Only the specs are compared. The state of the cluster and the modes are ignored. A policy that uses measured
    utilization never conflicts, because it cannot be compared with the requests that scale-down uses.

    Args:
        policy: a valid policy. A suspended policy has no conflicts.
        autoscaler: a valid ClusterAutoscaler.
    """
    strategy, scale_down = policy.spec.strategies.low_node_utilization, autoscaler.spec.scaling_down
    if policy.spec.suspend or strategy is None or not strategy.enabled or not scale_down.enabled:
        return None
    thresholds = strategy.params.node_resource_utilization_thresholds
    if thresholds is None or strategy.params.metrics_utilization is not None:
        return None
    limit = round(100.0 * scale_down.threshold, 6)  # a value such as 0.29 has no exact float
    targets = thresholds.target_thresholds or {}
    low = [resource for resource in _COUNTED if resource in targets and targets[resource] <= limit]
    if thresholds.use_deviation_thresholds:
        spreads = "LowNodeUtilization levels nodes around their mean (useDeviationThresholds), however low that is"
    elif low:
        messages = " and ".join(f"{resource} {targets[resource]:g}%" for resource in low)
        spreads = f"LowNodeUtilization spreads pods of nodes that are above {messages} (targetThresholds)"
    else:
        return None
    why = f"{spreads}; scaleDown merges pods of nodes at or below {limit:g}% (utilizationThreshold)"
    return SettingsConflict(policy.name, autoscaler.name, why)


def settings_conflicts(
    policies: Iterable[DeschedulerPolicy], autoscaler: ClusterAutoscaler | None
) -> tuple[SettingsConflict, ...]:
    """Return the conflicts between the policies and the ClusterAutoscaler, sorted by policy."""
    ordered = () if autoscaler is None else sorted(policies, key=lambda policy: policy.name)
    found = (settings_conflict(policy, autoscaler) for policy in ordered if autoscaler is not None)
    return tuple(each for each in found if each is not None)


def policy_condition(conflicts: Iterable[SettingsConflict], policy: str, autoscaler: str) -> ConditionUpdate:
    """Return a policy's ``Conflicting`` condition, whose message names the ClusterAutoscaler.

    Args:
        conflicts: the conflicts of all policies.
        policy: the policy's name.
        autoscaler: the ClusterAutoscaler's name; ``""`` if there is none.
    """
    return _condition(
        (f"ClusterAutoscaler {each.autoscaler}: {each.why}" for each in conflicts if each.policy == policy),
        f"no setting of ClusterAutoscaler {autoscaler} works against the policy"
        if autoscaler
        else "there is no ClusterAutoscaler",
    )


def autoscaler_condition(conflicts: Iterable[SettingsConflict]) -> ConditionUpdate:
    """Return the ClusterAutoscaler's ``Conflicting`` condition, whose message names the policies."""
    messages = (f"DeschedulerPolicy {each.policy}: {each.why}" for each in conflicts)
    return _condition(messages, "no setting of a DeschedulerPolicy works against scaleDown")


def _condition(found: Iterator[str] | Iterable[str], otherwise: str) -> ConditionUpdate:
    messages = list(found)
    if not messages:
        return ConditionUpdate(CONFLICTING, False, NO_CONFLICT, otherwise)
    return ConditionUpdate(CONFLICTING, True, SETTINGS_CONFLICT, f"{'; '.join(messages)}. To end this, {_REMEDY}")


class SharedSettings:
    """Stores the current policies and the ClusterAutoscaler, and computes the conflicts between them."""

    def __init__(self) -> None:
        self._policies: tuple[DeschedulerPolicy, ...] = ()
        self._autoscaler: ClusterAutoscaler | None = None
        self._conflicts: tuple[SettingsConflict, ...] = ()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Register a callback for changes of the conditions. Registering it again has no effect."""
        if changed not in self._listeners:
            self._listeners.append(changed)

    def set_policies(self, policies: Iterable[DeschedulerPolicy]) -> None:
        """Set the policies: all that are valid and not suspended."""
        self._policies = tuple(policies)
        self._judge(changed=False)

    def set_autoscaler(self, autoscaler: ClusterAutoscaler | None) -> None:
        """Set the ClusterAutoscaler; ``None`` if there is none or if it is invalid."""
        changed = (autoscaler is None) != (self._autoscaler is None)
        self._autoscaler = autoscaler
        self._judge(changed=changed)

    def of_policy(self, name: str) -> ConditionUpdate:
        """Return the policy's ``Conflicting`` condition."""
        return policy_condition(self._conflicts, name, "" if self._autoscaler is None else self._autoscaler.name)

    def of_autoscaler(self) -> ConditionUpdate:
        """Return the ClusterAutoscaler's ``Conflicting`` condition."""
        return autoscaler_condition(self._conflicts)

    @property
    def any_policies(self) -> bool:
        """Return whether any valid policies are not suspended."""
        return bool(self._policies)

    @property
    def any_autoscaler(self) -> bool:
        """Return whether there is a valid ClusterAutoscaler."""
        return self._autoscaler is not None

    def _judge(self, *, changed: bool) -> None:
        before, self._conflicts = self._conflicts, settings_conflicts(self._policies, self._autoscaler)
        if changed or before != self._conflicts:
            for each in self._listeners:
                each()
