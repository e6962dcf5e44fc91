"""The permissions that a DeschedulerPolicy needs."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.strategies.utilization import PROMETHEUS
from trimtab.controller.permissions import Requirement, own_resource, requirements
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.disruption.permissions import (
    eviction_requirements,
    report_requirements,
    snapshot_requirements,
    surge_requirements,
)
from trimtab.kube.resources import DESCHEDULER_POLICIES, DESCHEDULING_RUNS, NODE_METRICS, POD_METRICS

CHART_VALUE: Final = "controllers.descheduler.enabled"
SURGE_VALUE: Final = "controllers.descheduler.surge"


def required_permissions(policy: DeschedulerPolicy) -> tuple[Requirement, ...]:
    """Return the permissions that a policy needs in its mode. In Simulate mode it evicts nothing."""
    spec = policy.spec
    found = [
        *own_resource(DESCHEDULER_POLICIES, CHART_VALUE),
        *requirements("list watch create delete", DESCHEDULING_RUNS, granted_by=CHART_VALUE),
        *requirements("patch", DESCHEDULING_RUNS, subresource="status", granted_by=CHART_VALUE),
        *snapshot_requirements(CHART_VALUE),
        *report_requirements(CHART_VALUE),
    ]
    metrics = metrics_utilization_of(policy)
    if metrics is not None and metrics.source != PROMETHEUS:
        found += requirements("list", NODE_METRICS, POD_METRICS, granted_by=CHART_VALUE, essential=False)
    if spec.mode != "Simulate":
        found += eviction_requirements(CHART_VALUE)
        if spec.single_replica == "Surge":
            found += surge_requirements(SURGE_VALUE)
    return tuple(found)
