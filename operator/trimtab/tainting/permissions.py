"""The permissions that a TaintManager needs in its mode."""

from __future__ import annotations

from typing import Final

from trimtab.api.taint_manager import EVICT, OBSERVE, TAINT_AND_EVICT, TaintManagerSpec
from trimtab.controller.permissions import Requirement, own_resource, requirements
from trimtab.disruption.permissions import report_requirements
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS, TAINT_MANAGERS
from trimtab.tainting.lifecycle.record import NAME as RECORD

CHART_VALUE: Final = "controllers.taintManager.enabled"
MODE_VALUE: Final = "controllers.taintManager.rights"


def required_permissions(spec: TaintManagerSpec, *, namespace: str) -> tuple[Requirement, ...]:
    """Return the permissions that a TaintManager needs, in the namespace of the operator where they are namespaced.

    The mode, and whether any taint has policy Evict, determine them.
    """
    found = [
        *own_resource(TAINT_MANAGERS, CHART_VALUE),
        *requirements("list watch", NODES, PODS, granted_by=CHART_VALUE),
        *requirements("list watch", LEASES, namespace=NODE_LEASES, granted_by=CHART_VALUE),
        *report_requirements(CHART_VALUE),
    ]
    if spec.mode == OBSERVE:
        return tuple(found)
    value = f"{MODE_VALUE}={spec.mode}"
    found += requirements("get delete", PODS, granted_by=value)
    if any(each.policy == EVICT for each in spec.taints):
        found += requirements("create", PODS, subresource="eviction", granted_by=value)
    found += requirements("patch", PODS, subresource="status", granted_by=value)
    found += requirements("patch", NODES, granted_by=value)
    if spec.mode == TAINT_AND_EVICT:
        found += requirements("get", NODES, granted_by=value)
        found += requirements("patch", NODES, subresource="status", granted_by=value)
        found += requirements("get", LEASES, namespace=NODE_LEASES, granted_by=value)
        found += requirements("create", CONFIG_MAPS, namespace=namespace, granted_by=value)
        found += requirements("get patch", CONFIG_MAPS, namespace=namespace, name=RECORD, granted_by=value)
    return tuple(found)
