"""kube-scheduler's filters with their reasons. :mod:`trimtab.placement.registry` defines their order."""

from trimtab.placement.filters.nodes import (
    AddedNodeAffinity,
    Complexity,
    DynamicResources,
    NamedNodes,
    NamespaceComplexity,
    NodeAffinity,
    NodeDeclaredFeatures,
    NodeName,
    NodePorts,
    NodeResourcesFit,
    NodeUnschedulable,
    SchedulingGates,
    TaintToleration,
)
from trimtab.placement.filters.pods import InterPodAffinity, PodTopologySpread
from trimtab.placement.filters.volumes import NodeVolumeLimits, VolumeBinding, VolumeRestrictions, VolumeZone

__all__ = [
    "AddedNodeAffinity",
    "Complexity",
    "DynamicResources",
    "InterPodAffinity",
    "NamedNodes",
    "NamespaceComplexity",
    "NodeAffinity",
    "NodeDeclaredFeatures",
    "NodeName",
    "NodePorts",
    "NodeResourcesFit",
    "NodeUnschedulable",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "SchedulingGates",
    "TaintToleration",
    "VolumeBinding",
    "VolumeRestrictions",
    "VolumeZone",
]
