"""MachineAutoscalers: writes their limits to their targets as annotations, and reports the result in their status.

Before the first object arrives, register :meth:`~.controller.MachineAutoscalerController.target_changed` as a listener
on the stores of all :data:`KINDS`. :func:`~.handlers.register` connects the controller to Kopf.
"""

from trimtab.autoscaling.machine_autoscalers.controller import MachineAutoscalerController
from trimtab.autoscaling.machine_autoscalers.rbac import RULES
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalerRegistry
from trimtab.autoscaling.machine_autoscalers.targets import KINDS

__all__ = ["KINDS", "RULES", "MachineAutoscalerController", "MachineAutoscalerRegistry"]
