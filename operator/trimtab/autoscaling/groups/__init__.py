"""Node groups: nodes that one number governs, made from the snapshot's objects; one file a kind of provider."""

from trimtab.autoscaling.groups.build import groups
from trimtab.autoscaling.groups.external import NO_EXTERNAL_GROUPS, ExternalGroup, ExternalGroups, ExternalMachine
from trimtab.autoscaling.groups.node_group import (
    GroupMachine,
    GroupOptions,
    Groups,
    MachineState,
    NodeGroup,
    Problem,
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
    "Problem",
    "TemplateSource",
    "groups",
]
