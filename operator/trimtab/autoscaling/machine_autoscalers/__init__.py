"""MachineAutoscalers: their limits on their targets, and in their status whether that is so."""

from trimtab.autoscaling.machine_autoscalers.controller import MachineAutoscalerController
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalers
from trimtab.autoscaling.machine_autoscalers.targets import KINDS

__all__ = ["KINDS", "MachineAutoscalerController", "MachineAutoscalers"]
