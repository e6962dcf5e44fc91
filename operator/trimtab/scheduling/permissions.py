"""The permissions that a SchedulerPolicy needs."""

from __future__ import annotations

from typing import Final

from trimtab.controller.permissions import Requirement, own_resource, requirements
from trimtab.disruption.permissions import eviction_requirements, report_requirements, snapshot_requirements
from trimtab.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SCHEDULER_POLICIES

CHART_VALUE: Final = "controllers.scheduler.enabled"


def required_permissions() -> tuple[Requirement, ...]:
    """Return the permissions that a SchedulerPolicy needs: for bindings, volumes and preemption."""
    return (
        *own_resource(SCHEDULER_POLICIES, CHART_VALUE),
        *snapshot_requirements(CHART_VALUE),
        *requirements("create", PODS, subresource="binding", granted_by=CHART_VALUE),
        *requirements("patch", PODS, subresource="status", granted_by=CHART_VALUE),
        *eviction_requirements(CHART_VALUE),
        *requirements("delete", PODS, granted_by=CHART_VALUE),
        *requirements("get patch", PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, granted_by=CHART_VALUE),
        *report_requirements(CHART_VALUE),
    )
