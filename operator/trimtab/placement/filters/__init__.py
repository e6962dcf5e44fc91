"""One rule of kube-scheduler a file, each with its reason texts; :mod:`trimtab.placement.registry` has their order."""

from trimtab.placement.filters.dynamic_resources import DynamicResources
from trimtab.placement.filters.inter_pod_affinity import InterPodAffinity
from trimtab.placement.filters.named_nodes import NamedNodes
from trimtab.placement.filters.node_affinity import NodeAffinity
from trimtab.placement.filters.node_declared_features import NodeDeclaredFeatures
from trimtab.placement.filters.node_name import NodeName
from trimtab.placement.filters.node_ports import NodePorts
from trimtab.placement.filters.node_resources_fit import NodeResourcesFit
from trimtab.placement.filters.node_unschedulable import NodeUnschedulable
from trimtab.placement.filters.node_volume_limits import NodeVolumeLimits
from trimtab.placement.filters.pod_topology_spread import PodTopologySpread
from trimtab.placement.filters.scheduling_gates import SchedulingGates
from trimtab.placement.filters.taint_toleration import TaintToleration
from trimtab.placement.filters.volume_binding import VolumeBinding
from trimtab.placement.filters.volume_restrictions import VolumeRestrictions
from trimtab.placement.filters.volume_zone import VolumeZone

__all__ = [
    "DynamicResources",
    "InterPodAffinity",
    "NamedNodes",
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
