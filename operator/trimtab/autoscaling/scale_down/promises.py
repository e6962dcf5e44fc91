"""What a scale-down plan takes for granted, put into a snapshot for whoever plans next."""

from __future__ import annotations

from msgspec.structs import replace

from trimtab.autoscaling.scale_down.planner import ScalingDown
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.placer import Placer


def reserve(snapshot: Snapshot, made: ScalingDown) -> None:
    """Move the pods of nodes that go, take these nodes out, and lower the budgets by what their drains cost.

    Only in a fork: nothing of it has happened yet. Moved pods count as starting.

    Args:
        snapshot: the one that the plan was made on.
        made: the plan.
    """
    placer = Placer(snapshot)
    for action in made.actions:
        for move in action.moves:
            pod = placer.lift(snapshot.pods[move.pod])
            placer.reserve(replace(pod, phase="Pending", created=None), snapshot.nodes.slot_of[move.target])
    for action in made.actions:
        snapshot.remove(snapshot.nodes.node(snapshot.nodes.slot_of[action.node]))
    for key, number in made.disruptions.items():
        budget = snapshot.budgets[key]
        snapshot.put(replace(budget, disruptions_allowed=max(0, budget.disruptions_allowed - number)))
