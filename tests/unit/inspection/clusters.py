"""Clusters for tests of inspections."""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput, PolicySet

NOW = 1_795_176_000.0
"""2026-11-20T12:00:00Z."""


def cluster_of(*builders: Any, autoscaler: dict[str, Any] | None = None, **more: Any) -> ClusterInput:
    """A cluster of builders. ``autoscaler`` is the spec of the ClusterAutoscaler."""
    policies = more.pop("policies", PolicySet())
    if autoscaler is not None:
        made = msgspec.convert({"metadata": {"name": "default"}, "spec": autoscaler}, ClusterAutoscaler)
        policies = msgspec.structs.replace(policies, cluster_autoscaler=made)
    return ClusterInput(snapshot=Snapshot(each.build() for each in builders), now=NOW, policies=policies, **more)


def descheduler(spec: dict[str, Any], name: str = "default", **more: Any) -> DeschedulerPolicy:
    """A DeschedulerPolicy with this spec."""
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, **more}, DeschedulerPolicy)
