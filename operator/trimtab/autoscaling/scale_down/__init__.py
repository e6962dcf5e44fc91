"""Plans scale-down: which unneeded nodes to remove, where to place their pods, and why each other node is kept."""

from trimtab.autoscaling.scale_down.planner import STRATEGY, ScaleDownPlan, plan, reserve
from trimtab.autoscaling.scale_down.unneeded_nodes import ScaleDownPause, next_unneeded_records, recorded_unneeded
from trimtab.cluster.disruption_signals import UNNEEDED_SINCE

__all__ = [
    "STRATEGY",
    "UNNEEDED_SINCE",
    "ScaleDownPause",
    "ScaleDownPlan",
    "next_unneeded_records",
    "plan",
    "recorded_unneeded",
    "reserve",
]
