"""The autoscaling planner: computes a plan from a snapshot, a ClusterAutoscaler and a time.

It does no I/O, reads no clock and uses no randomness.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.cluster_autoscaler_status import Replacement
from trimtab.api.plan import Plan, RemoveNode, ScaleUp, Scaling
from trimtab.api.reasons import REPLACEMENT
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.replace import planner as replacements
from trimtab.autoscaling.replace.replacement_state import replacement_state, with_new_record
from trimtab.autoscaling.scale_up import PlanInputs, scale_up
from trimtab.autoscaling.scale_up.expanders import price_of
from trimtab.autoscaling.scale_up.expanders.choice import ExpanderChoice
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

SCALE_UP_SHARE: Final = 0.5
SCALE_DOWN_SHARE: Final = 0.375
"""Shares of the planning time for scale-up and scale-down.

The rest is for replacing nodes. Unused time is not passed on.
"""


class PlanReservations(Struct, frozen=True):
    """The capacity that a plan depends on, for :func:`reserve`.

    Attributes:
        pending: pending pods, bound to the existing or new node that the plan chose for each.
        removals: the planned node removals, with the target nodes of their pods.
        replacements: the replacements of nodes for the status, including one that this plan starts.
        given_up: the replacements that this plan abandons. Their messages contain the reasons.
        choices: how the expanders chose among groups.
    """

    pending: tuple[Pod, ...]
    removals: scale_down.ScaleDownPlan
    replacements: tuple[Replacement, ...] = ()
    given_up: tuple[Replacement, ...] = ()
    choices: tuple[ExpanderChoice, ...] = ()


def plan(snapshot: Snapshot, inputs: PlanInputs) -> tuple[Plan, PlanReservations]:
    """Plan which groups are scaled up, which nodes are removed or replaced, and why other objects are left unchanged.

    1. Scale-up comes first, so that capacity for pending pods is reserved before a node is removed.
    2. If the plan adds nodes, it removes none, as ``delayAfterAdd`` requires.
    3. Nodes are replaced only if there is nothing else to do.

    Args:
        snapshot: the cluster state. Planning changes it and restores it.
        inputs: spec and status of the ClusterAutoscaler, and all other inputs.

    Returns:
        The plan, and the capacity that it depends on.
    """
    found = inputs.node_groups(snapshot)
    inputs = replace(inputs, groups=found)
    # 1. Scale up first, so that capacity for pending pods is reserved before a node is removed.
    up = scale_up(snapshot, replace(inputs, budget=inputs.budget.stage(SCALE_UP_SHARE)))
    replacements_state = replacement_state(inputs.status.replacements, snapshot, found, inputs.spec, now=inputs.now)
    # 2. Scale down, unless this plan adds nodes.
    down = scale_down.plan(
        snapshot,
        found,
        inputs.spec,
        now=inputs.now,
        status=inputs.status,
        adding=bool(up.actions),
        pause=scale_down.ScaleDownPause(inputs.cluster_unhealthy, inputs.unhealthy_groups),
        replacing=replacements_state,
        budget=inputs.budget.stage(SCALE_DOWN_SHARE),
    )
    # 3. Replace nodes, if there is nothing else to do.
    inputs = replace(inputs, budget=inputs.budget.stage(1 - SCALE_UP_SHARE - SCALE_DOWN_SHARE))
    new = replacements.plan(snapshot, found, inputs, replacements=replacements_state, up=up, down=down)
    made = Plan(
        now=inputs.now,
        kept=(*up.kept, *down.kept, *new.kept),
        scaling=_with_prices((*up.actions, *new.actions, *down.actions), found, new),
    )
    return made, PlanReservations(
        up.reserved,
        down,
        with_new_record(replacements_state.records, new.record),
        replacements_state.given_up,
        up.choices,
    )


def _with_prices(
    actions: Iterable[Scaling], groups: Groups, replacing: replacements.ReplacePlan
) -> tuple[Scaling, ...]:
    """Return the actions with the prices per hour of the nodes that they add or remove, as far as they are known."""
    prices = {group.id: float(found) for group in groups.all if (found := price_of(group)) is not None}
    priced: list[Scaling] = []
    for action in actions:
        price = prices.get(action.group)
        if price is None:
            priced.append(action)
        elif isinstance(action, RemoveNode):
            priced.append(replace(action, savings=round(price, 6)))
        else:
            priced.append(replace(action, hourly_cost=round(price * (action.to - action.from_), 6)))
    if replacing.record is not None and replacing.actions:
        names = (each.name for each in replacing.record.nodes)
        old = sum(prices.get(groups.of_node.get(name, ""), 0.0) for name in names)
        first = next(
            place for place, each in enumerate(priced) if isinstance(each, ScaleUp) and each.reason == REPLACEMENT
        )
        priced[first] = replace(priced[first], savings=round(old, 6))
    return tuple(priced)


def reserve(snapshot: Snapshot, reservations: PlanReservations) -> None:
    """Apply a plan to a snapshot, so that subsequent planners see its reservations.

    Pods are placed and nodes are removed as planned. The pods count as starting, so that no other planner moves them. A
    pending pod whose node will be removed is placed again. Call this only on a fork of a snapshot, because the plan has
    not been executed yet.
    """
    scale_down.reserve(snapshot, reservations.removals)
    _place(snapshot, reservations.pending)


def _place(snapshot: Snapshot, pods: Iterable[Pod]) -> None:
    placer = Placer(snapshot)
    for pod in pods:
        starting = replace(pod, node="", phase="Pending", created=None)
        slot = snapshot.nodes.slot_of.get(pod.node)
        if slot is not None:
            placer.reserve(starting, slot)
        else:
            placer.place([starting])
