"""The autoscaling planner: a snapshot, a ClusterAutoscaler and a time give a plan. No I/O, no clock, no chance."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from trimtab.api.plan import Plan
from trimtab.autoscaling.scale_up import Inputs, scale_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer


def plan(snapshot: Snapshot, inputs: Inputs) -> tuple[Plan, tuple[Pod, ...]]:
    """Which groups of nodes to scale, and why not others.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        inputs: the ClusterAutoscaler's spec and what goes with it.

    Returns:
        The plan, and pending pods with the nodes that are there and that will have them: for :func:`reserve`.
    """
    made = scale_up(snapshot, inputs)
    return Plan(now=inputs.now, kept=made.kept, scaling=made.actions), made.reserved


def reserve(snapshot: Snapshot, pods: Iterable[Pod]) -> None:
    """Put pending pods where the scheduler will put them, so that who plans next finds these places taken.

    They count as starting, so that nobody plans to move them on. Only in a fork: they are not there yet.
    """
    placer = Placer(snapshot)
    for pod in pods:
        starting = replace(pod, node="", phase="Pending", created=None)
        placer.reserve(starting, snapshot.nodes.slot_of[pod.node])
