"""Plans scale-up: which groups get how many nodes for unschedulable pods, and why other pods get none."""

from trimtab.autoscaling.scale_up.actions import NewNode
from trimtab.autoscaling.scale_up.messages import GroupVerdict
from trimtab.autoscaling.scale_up.planner import PlanInputs, PodScaleUp, ScaleUpPlan, scale_up, scale_up_of_pod

__all__ = [
    "GroupVerdict",
    "NewNode",
    "PlanInputs",
    "PodScaleUp",
    "ScaleUpPlan",
    "scale_up",
    "scale_up_of_pod",
]
