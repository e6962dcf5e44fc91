"""The permissions that the admission webhooks need."""

from __future__ import annotations

from typing import Final

from trimtab.api.placement_admission import PlacementAdmissionSpec
from trimtab.controller.permissions import Requirement, events, requirements
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DAEMON_SETS,
    DESCHEDULER_POLICIES,
    MACHINE_AUTOSCALERS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    NODE_PRESSURE_POLICIES,
    PLACEMENT_ADMISSIONS,
    PRIORITY_CLASSES,
    SCHEDULER_POLICIES,
    SECRETS,
    SUBJECT_ACCESS_REVIEWS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)

CHART_VALUE: Final = "admission.enabled"
CERTIFICATE_VALUE: Final = "admission.certificate.secretName"
EVENTS_NAMESPACE: Final = "default"
"""Namespace of events about objects without a namespace."""


def required_permissions(
    spec: PlacementAdmissionSpec | None, *, namespace: str, secret: str, configuration: str, issues_certificates: bool
) -> tuple[Requirement, ...]:
    """Return the permissions that the webhooks need.

    Args:
        spec: the spec of the PlacementAdmission; ``None`` if there is none or it is invalid.
        namespace: namespace of the webhooks and of the Secret.
        secret: name of the Secret with the certificate.
        configuration: name of both webhook configurations.
        issues_certificates: whether trimtab issues the certificate.
    """
    found = [
        *requirements("get list watch", PLACEMENT_ADMISSIONS, granted_by=CHART_VALUE),
        *requirements("patch", PLACEMENT_ADMISSIONS, subresource="status", granted_by=CHART_VALUE),
        *requirements("get list watch", NAMESPACES, granted_by=CHART_VALUE),
        *requirements(
            "list watch patch",
            MUTATING_WEBHOOK_CONFIGURATIONS,
            VALIDATING_WEBHOOK_CONFIGURATIONS,
            name=configuration,
            granted_by=CHART_VALUE,
        ),
        *requirements("list watch", SECRETS, namespace=namespace, name=secret, granted_by=CHART_VALUE),
        *requirements(
            "list",
            DESCHEDULER_POLICIES,
            SCHEDULER_POLICIES,
            NODE_PRESSURE_POLICIES,
            CLUSTER_AUTOSCALERS,
            MACHINE_AUTOSCALERS,
            PRIORITY_CLASSES,
            DAEMON_SETS,
            granted_by=CHART_VALUE,
            essential=False,
        ),
        *events(CHART_VALUE, namespace=EVENTS_NAMESPACE),
    ]
    if issues_certificates:
        found += requirements("patch", SECRETS, namespace=namespace, name=secret, granted_by=CERTIFICATE_VALUE)
    if spec is not None and _depends_on_binding(spec):
        found += requirements("create", SUBJECT_ACCESS_REVIEWS, granted_by=CHART_VALUE)
    return tuple(found)


def _depends_on_binding(spec: PlacementAdmissionSpec) -> bool:
    """Return whether a rule admits some requests only if their user may create ``pods/binding``."""
    classes = spec.special_hardware.classes if spec.special_hardware is not None else ()
    return bool(spec.pod_node_constraints or spec.dedicated_nodes or any(each.exclusive for each in classes))
