"""Node groups: groups of identical nodes with one target size, built from the snapshot and from external providers."""

from trimtab.autoscaling.groups.build import build_groups
from trimtab.autoscaling.groups.external import NO_EXTERNAL_GROUPS, ExternalGroup, ExternalGroups, ExternalMachine
from trimtab.autoscaling.groups.node_group import (
    GroupMachine,
    GroupOptions,
    Groups,
    MachineState,
    NodeGroup,
    ObjectProblem,
    TemplateSource,
)

__all__ = [
    "NO_EXTERNAL_GROUPS",
    "ExternalGroup",
    "ExternalGroups",
    "ExternalMachine",
    "GroupMachine",
    "GroupOptions",
    "Groups",
    "MachineState",
    "NodeGroup",
    "ObjectProblem",
    "TemplateSource",
    "build_groups",
]
