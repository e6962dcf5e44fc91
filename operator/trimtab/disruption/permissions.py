"""The permissions for moving pods: those of the evictor, and the caches that planners read."""

from __future__ import annotations

from trimtab.cluster.kinds import ADDITIONAL, REQUIRED
from trimtab.controller.permissions import Requirement, events, requirements
from trimtab.kube.resources import DEPLOYMENTS, HISTORY_RECORDS, PODS


def snapshot_requirements(granted_by: str) -> tuple[Requirement, ...]:
    """Return the requirements for the snapshot that all planners read."""
    return (
        *requirements("list watch", *REQUIRED, granted_by=granted_by),
        *requirements("list watch", *ADDITIONAL, granted_by=granted_by, essential=False),
    )


def report_requirements(granted_by: str) -> tuple[Requirement, ...]:
    """Return the requirements for events and the history, without which nothing but the reports is missing."""
    return (
        *events(granted_by),
        *requirements("get list create patch delete", HISTORY_RECORDS, granted_by="rbac.create", essential=False),
    )


def eviction_requirements(granted_by: str) -> tuple[Requirement, ...]:
    """Return the requirements for evicting pods. ``get`` is for checking a pod whose response was lost."""
    return (
        *requirements("create", PODS, subresource="eviction", granted_by=granted_by),
        *requirements("get", PODS, granted_by=granted_by),
    )


def surge_requirements(granted_by: str) -> tuple[Requirement, ...]:
    """Return the requirements for restarting the Deployment of a single replica instead of evicting its pod."""
    return requirements("get list patch", DEPLOYMENTS, granted_by=granted_by, essential=False)
