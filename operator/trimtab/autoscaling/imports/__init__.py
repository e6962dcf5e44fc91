"""Converts the settings of cluster-autoscaler to a ClusterAutoscaler and MachineAutoscalers."""

from trimtab.autoscaling.imports.arguments import CommandLine, read_workload
from trimtab.autoscaling.imports.conversion import ImportedAutoscaler, convert_command_line
from trimtab.autoscaling.imports.groups import NodeGroupObject, group_autoscaler, node_group_object, target_autoscalers

__all__ = [
    "CommandLine",
    "ImportedAutoscaler",
    "NodeGroupObject",
    "convert_command_line",
    "group_autoscaler",
    "node_group_object",
    "read_workload",
    "target_autoscalers",
]
