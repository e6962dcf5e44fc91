"""MachineAutoscalers: their limits on their targets, and in their status whether that is so.

For whoever composes the process: every store of :data:`KINDS` tells
:meth:`~.controller.MachineAutoscalerController.target_changed` from its first object on; then
:func:`~.handlers.register` gives the controller its events, its start and its end.
"""

from trimtab.autoscaling.machine_autoscalers.controller import MachineAutoscalerController
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalers
from trimtab.autoscaling.machine_autoscalers.rights import RULES
from trimtab.autoscaling.machine_autoscalers.targets import KINDS

__all__ = ["KINDS", "RULES", "MachineAutoscalerController", "MachineAutoscalers"]
