"""Which kinds make the picture of the cluster."""

from __future__ import annotations

from typing import Final

from trimtab.kube.resources import BUDGETS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource

KINDS: Final[tuple[Resource, ...]] = (NODES, NAMESPACES, PRIORITY_CLASSES, BUDGETS, PODS)
"""What planners read: what the operator watches, ``trimtab plan`` loads and ``trimtab snapshot`` writes.

A kind that planners come to read is one more entry here, and one more rule in the chart's ClusterRole.
"""
