"""The permissions that the ClusterAutoscaler and the MachineAutoscalers need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.autoscaling.report.status_config_map import NAME as STATUS
from trimtab.autoscaling.scale_up.expanders.priority import CONFIG_MAP as PRIORITIES
from trimtab.cluster.kinds import CHILD_KINDS, POD_DEFAULTS
from trimtab.controller.permissions import Requirement, own_resource, requirements
from trimtab.disruption.permissions import eviction_requirements, report_requirements, snapshot_requirements
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    CLUSTER_MACHINES,
    CONFIG_MAPS,
    DAEMON_SETS,
    MACHINE_AUTOSCALERS,
    MACHINES,
    NODES,
    Resource,
)

CHART_VALUE: Final = "controllers.clusterAutoscaler.enabled"
KWOK_VALUE: Final = "cloudProvider.kwok.enabled"
KWOK_CONFIG_MAPS: Final = ("kwok-provider-config", "kwok-provider-templates")


def required_permissions(
    autoscaler: ClusterAutoscaler,
    *,
    namespace: str,
    targets: Iterable[Resource] = (),
    kwok: bool = False,
    priority_namespace: str = "",
) -> tuple[Requirement, ...]:
    """Return the permissions that the ClusterAutoscaler needs.

    Args:
        autoscaler: the ClusterAutoscaler.
        namespace: the namespace of the operator's ConfigMaps.
        targets: the kinds of node groups in use. A cluster may serve further kinds.
        kwok: whether the provider kwok is enabled, which creates and deletes nodes itself.
        priority_namespace: the namespace of the ConfigMap of the expander Priority, if it is not ``namespace``.
    """
    spec = autoscaler.spec
    found = [
        *own_resource(CLUSTER_AUTOSCALERS, CHART_VALUE),
        *snapshot_requirements(CHART_VALUE),
        *requirements("list watch", DAEMON_SETS, granted_by=CHART_VALUE),
        *requirements("list watch", *POD_DEFAULTS, granted_by=CHART_VALUE, essential=False),
        *report_requirements(CHART_VALUE),
        *requirements("create", CONFIG_MAPS, namespace=namespace, granted_by=CHART_VALUE, essential=False),
        *requirements(
            "get patch", CONFIG_MAPS, namespace=namespace, name=STATUS, granted_by=CHART_VALUE, essential=False
        ),
    ]
    for target in sorted(set(targets), key=lambda each: each.name):
        found += group_requirements(target)
    if "Priority" in spec.expanders:
        where = priority_namespace or namespace
        found += requirements(
            "get", CONFIG_MAPS, namespace=where, name=PRIORITIES, granted_by=CHART_VALUE, essential=False
        )
    if spec.scaling_down.enabled:
        found += requirements("get patch", NODES, granted_by=CHART_VALUE)
        found += eviction_requirements(CHART_VALUE)
    if kwok:
        found += requirements("create delete", NODES, granted_by=KWOK_VALUE)
        for name in KWOK_CONFIG_MAPS:
            found += requirements("get", CONFIG_MAPS, namespace=namespace, name=name, granted_by=KWOK_VALUE)
    return tuple(dict.fromkeys(found))


def machine_autoscaler_permissions(targets: Iterable[Resource] = ()) -> tuple[Requirement, ...]:
    """Return the permissions that MachineAutoscalers need for writing the limits to their targets.

    Args:
        targets: the kinds of the targets in use.
    """
    found = [
        *own_resource(MACHINE_AUTOSCALERS, CHART_VALUE),
        *requirements("get", MACHINE_AUTOSCALERS, granted_by=CHART_VALUE),
        *report_requirements(CHART_VALUE),
    ]
    for target in sorted(set(targets), key=lambda each: each.name):
        found += requirements("get list watch patch", target, granted_by=CHART_VALUE)
    return tuple(found)


def group_requirements(target: Resource) -> tuple[Requirement, ...]:
    """Return the permissions for scaling one kind of node group and for marking its machines."""
    children = [each for each in CHILD_KINDS[target] if each in (MACHINES, CLUSTER_MACHINES)]
    return (
        *requirements("get list watch patch", target, granted_by=CHART_VALUE),
        *requirements("get patch", target, subresource="scale", granted_by=CHART_VALUE),
        *requirements("get list watch patch", *children, granted_by=CHART_VALUE),
    )
