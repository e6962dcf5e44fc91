"""The autoscaling planner: a snapshot, a ClusterAutoscaler and a time give a plan. No I/O, no clock, no chance."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.plan import Plan
from trimtab.autoscaling import scale_down
from trimtab.autoscaling.groups import groups
from trimtab.autoscaling.scale_up import Inputs, scale_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


class Promises(Struct, frozen=True):
    """What a plan takes for granted, for :func:`reserve`.

    Attributes:
        pending: pending pods with the nodes that are there and that will have them.
        removals: the nodes that go, and where their pods will be.
    """

    pending: tuple[Pod, ...]
    removals: scale_down.ScalingDown


def plan(snapshot: Snapshot, inputs: Inputs) -> tuple[Plan, Promises]:
    """Which groups of nodes grow, which nodes are removed, and why not others.

    Pending pods have their places before any node goes. Where nodes are added by this very plan none is removed, as
    ``delayAfterAdd`` wants it.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        inputs: the ClusterAutoscaler's spec and what goes with it.

    Returns:
        The plan, and what others must not promise again.
    """
    up = scale_up(snapshot, inputs)
    down = scale_down.plan(
        snapshot,
        groups(snapshot, inputs.machine_autoscalers, inputs.external),
        inputs.spec,
        now=inputs.now,
        status=inputs.status,
        adding=bool(up.actions),
        standstill=scale_down.Standstill(inputs.halted, inputs.unhealthy),
    )
    made = Plan(now=inputs.now, kept=(*up.kept, *down.kept), scaling=(*up.actions, *down.actions))
    return made, Promises(up.reserved, down)


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
