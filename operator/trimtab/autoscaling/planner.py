"""The autoscaling planner: a snapshot, a ClusterAutoscaler and a time give a plan. No I/O, no clock, no chance."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.cluster_autoscaler_status import Replacement
from trimtab.api.plan import Plan
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.replace import planner as replacements
from trimtab.autoscaling.replace.record import replacing, with_begun
from trimtab.autoscaling.scale_up import Inputs, scale_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class Promises(Struct, frozen=True):
    """What a plan takes for granted, for :func:`reserve`.

    Attributes:
        pending: pending pods with the nodes that are there and that will have them.
        removals: the nodes that go, and where their pods will be.
        replacements: of nodes by others, that which the plan begins included: what is to stand in the status once
            the plan is acted on.
        given_up: replacements that end with this plan, with the reason in their messages.
    """

    pending: tuple[Pod, ...]
    removals: scale_down.ScalingDown
    replacements: tuple[Replacement, ...] = ()
    given_up: tuple[Replacement, ...] = ()


def plan(snapshot: Snapshot, inputs: Inputs) -> tuple[Plan, Promises]:
    """Which groups of nodes grow, which nodes are removed, and why not others.

    Pending pods have their places before any node goes. Where nodes are added by this very plan none is removed, as
    ``delayAfterAdd`` wants it. Nodes are replaced only where nothing else is to be done.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        inputs: the ClusterAutoscaler's spec and what goes with it.

    Returns:
        The plan, and what others must not promise again.
    """
    found = inputs.grouped(snapshot)
    inputs = replace(inputs, groups=found)
    up = scale_up(snapshot, inputs)
    standing = replacing(inputs.status.replacements, snapshot, found, inputs.spec, now=inputs.now)
    down = scale_down.plan(
        snapshot,
        found,
        inputs.spec,
        now=inputs.now,
        status=inputs.status,
        adding=bool(up.actions),
        standstill=scale_down.Standstill(inputs.halted, inputs.unhealthy),
        replacing=standing,
    )
    new = replacements.plan(snapshot, found, inputs, standing=standing, up=up, down=down)
    made = Plan(
        now=inputs.now,
        kept=(*up.kept, *down.kept, *new.kept),
        scaling=(*up.actions, *new.actions, *down.actions),
    )
    return made, Promises(up.reserved, down, with_begun(standing.records, new.begun), standing.given_up)


def reserve(snapshot: Snapshot, promises: Promises) -> None:
    """Put pods where they will be and take nodes out that go, so that who plans next builds on that.

    Such pods count as starting, so that nobody plans to move them on. A pending pod whose node goes has another place.
    Only in a fork: nothing of it has happened yet.
    """
    scale_down.reserve(snapshot, promises.removals)
    _place(snapshot, promises.pending)


def _place(snapshot: Snapshot, pods: Iterable[Pod]) -> None:
    placer = Placer(snapshot)
    for pod in pods:
        starting = replace(pod, node="", phase="Pending", created=None)
        slot = snapshot.nodes.slot_of.get(pod.node)
        if slot is not None:
            placer.reserve(starting, slot)
        else:
            placer.place([starting])
