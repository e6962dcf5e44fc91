"""Scale-down: which nodes nobody needs, where their pods go, and why each other node stays."""

from trimtab.autoscaling.scale_down.planner import STRATEGY, ScalingDown, plan
from trimtab.autoscaling.scale_down.promises import reserve
from trimtab.autoscaling.scale_down.records import UNNEEDED_SINCE, next_records, recorded
from trimtab.autoscaling.scale_down.standstill import Standstill

__all__ = ["STRATEGY", "UNNEEDED_SINCE", "ScalingDown", "Standstill", "next_records", "plan", "recorded", "reserve"]
