"""The filters in the order in which kube-scheduler v1.36's default profile asks them.

The order matters for explanations only: a node is counted under the first filter that it fails.
"""

from __future__ import annotations

from typing import Final

from trimtab.placement.filters.inter_pod_affinity import InterPodAffinity
from trimtab.placement.filters.named_nodes import NamedNodes
from trimtab.placement.filters.node_affinity import NodeAffinity
from trimtab.placement.filters.node_name import NodeName
from trimtab.placement.filters.node_ports import NodePorts
from trimtab.placement.filters.node_resources_fit import NodeResourcesFit
from trimtab.placement.filters.node_unschedulable import NodeUnschedulable
from trimtab.placement.filters.taint_toleration import TaintToleration
from trimtab.placement.framework import Filter

DEFAULT_FILTERS: Final[tuple[type[Filter], ...]] = (
    NamedNodes,
    NodeUnschedulable,
    NodeName,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    InterPodAffinity,
)
