"""Scale-up: how many nodes of which groups would take the pods that find no place, and why not more."""

from trimtab.autoscaling.scale_up.actions import NewNode
from trimtab.autoscaling.scale_up.inputs import Inputs
from trimtab.autoscaling.scale_up.planner import ScalingUp, scale_up

__all__ = ["Inputs", "NewNode", "ScalingUp", "scale_up"]
