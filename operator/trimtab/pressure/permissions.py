"""The permissions that a NodePressurePolicy needs."""

from __future__ import annotations

from typing import Final

from trimtab.api.node_pressure_policy import SIMULATE, NodePressurePolicySpec
from trimtab.controller.permissions import Requirement, own_resource, requirements
from trimtab.disruption.permissions import eviction_requirements, report_requirements
from trimtab.kube.resources import (
    NODE_METRICS,
    NODE_PRESSURE_POLICIES,
    NODES,
    POD_METRICS,
    PODS,
    SERVICE_ACCOUNTS,
)
from trimtab.pressure.kubelet_client import KubeletClientSettings

CHART_VALUE: Final = "controllers.pressure.enabled"
ACCESS_VALUE: Final = "controllers.pressure.kubelet.access"


def required_permissions(
    spec: NodePressurePolicySpec, *, namespace: str, kubelets: KubeletClientSettings
) -> tuple[Requirement, ...]:
    """Return the permissions that a NodePressurePolicy needs in its mode.

    Args:
        spec: the spec of the policy. In Simulate mode it changes nothing.
        namespace: namespace in which the operator runs.
        kubelets: how the operator reads kubelets.
    """
    found = [
        *own_resource(NODE_PRESSURE_POLICIES, CHART_VALUE),
        *requirements("list watch", NODES, PODS, granted_by=CHART_VALUE),
        *requirements("list", NODE_METRICS, POD_METRICS, granted_by=CHART_VALUE, essential=False),
        *report_requirements(CHART_VALUE),
        *_kubelet_requirements(kubelets, namespace),
    ]
    if spec.mode == SIMULATE:
        return tuple(found)
    found += requirements("get patch", NODES, granted_by=CHART_VALUE)
    found += requirements("patch", NODES, subresource="status", granted_by=CHART_VALUE)
    found += eviction_requirements(CHART_VALUE)
    if spec.delete_after is not None or spec.failed_pods is not None:
        found += requirements("delete", PODS, granted_by=CHART_VALUE)
        found += requirements("patch", PODS, subresource="status", granted_by=CHART_VALUE)
    return tuple(found)


def _kubelet_requirements(kubelets: KubeletClientSettings, namespace: str) -> tuple[Requirement, ...]:
    value = f"{ACCESS_VALUE}={kubelets.access}"
    if kubelets.access == "Proxy":
        return requirements("get", NODES, subresource="proxy", granted_by=value)
    return requirements(
        "create",
        SERVICE_ACCOUNTS,
        subresource="token",
        namespace=namespace,
        name=kubelets.service_account,
        granted_by=value,
    )
