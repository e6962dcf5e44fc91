"""Converts rules of a PlacementAdmission to admission policies of Kubernetes, which need no webhook.

The API server itself evaluates a ValidatingAdmissionPolicy and a MutatingAdmissionPolicy
(admissionregistration.k8s.io/v1, Kubernetes 1.36), so converted rules do not depend on a webhook. The CEL expressions
have the same verdicts and messages as the rules of :mod:`trimtab.admission.rules`;
``tests/api/test_admission_policies.py`` compares both on a live API server, case by case.

CEL can ask for permissions (``authorizer``) and read the annotations of the namespace (``namespaceObject``), but it
cannot parse JSON. Therefore PodTolerationRestriction, whose lists are JSON in annotations, is not converted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.admission.cel.documents import PolicyDocuments
from trimtab.admission.cel.node_selection import convert_node_constraints, convert_node_selector
from trimtab.admission.cel.reserved_nodes import (
    convert_dedicated_nodes,
    convert_extended_resources,
    convert_special_hardware,
    convert_toleration_seconds,
)
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.api.schema import FieldError

NO_JSON: Final = (
    "is not converted: its namespaces' lists are JSON in annotations, and CEL has no function that parses JSON. Keep "
    "the rule in the PlacementAdmission"
)


class ConvertedAdmission(Struct, frozen=True):
    """The result of a conversion.

    Attributes:
        documents: admission policies and their bindings, ready for ``kubectl apply``.
        warnings: what is not converted, and which rules to remove from the PlacementAdmission.
    """

    documents: tuple[dict[str, Any], ...]
    warnings: tuple[FieldError, ...]


def to_admission_policies(admission: PlacementAdmission, *, exempt: Sequence[str] = ()) -> ConvertedAdmission:
    """Convert the rules of a PlacementAdmission that Kubernetes can apply without a webhook.

    Args:
        admission: a valid PlacementAdmission.
        exempt: namespaces to exempt, in addition to kube-system and those of the PlacementAdmission.
    """
    spec = admission.spec
    policies = PolicyDocuments(spec, exempt)
    if spec.pod_node_constraints is not None:
        convert_node_constraints(policies, spec.pod_node_constraints, spec)
    if spec.pod_node_selector is not None:
        convert_node_selector(policies, spec.pod_node_selector)
    if spec.default_toleration_seconds is not None:
        convert_toleration_seconds(policies, spec.default_toleration_seconds)
    if spec.pod_toleration_restriction is not None:
        policies.warn("podTolerationRestriction", NO_JSON)
    if spec.extended_resource_toleration is not None:
        convert_extended_resources(policies, spec.extended_resource_toleration)
    if spec.dedicated_nodes is not None:
        convert_dedicated_nodes(policies, spec.dedicated_nodes)
    if spec.special_hardware is not None:
        convert_special_hardware(policies, spec.special_hardware)
    return ConvertedAdmission(tuple(policies.documents), tuple(policies.warnings))
