"""The permissions that the webhooks need for the rules of a PlacementAdmission."""

from __future__ import annotations

import pytest

from tests.admission_requests import admission_spec
from trimtab.admission.permissions import required_permissions

POOL = "dedicatedNodes: {pools: [{name: a, namespaces: [a], taint: {key: k}}]}"
CLASS = "specialHardware: {classes: [{name: gpu, resources: [example.com/gpu], taint: {key: gpu}%s}]}"


@pytest.mark.parametrize(
    ("rules", "reviews"),
    [
        ("{}", False),
        ("podNodeSelector: {}", False),
        ("podTolerationRestriction: {}", False),
        ("podNodeConstraints: {}", True),
        (POOL, True),
        (CLASS % "", False),
        (CLASS % ", exclusive: true", True),
    ],
)
def test_rules_that_depend_on_pods_binding_need_access_reviews(rules: str, reviews: bool) -> None:
    found = required_permissions(
        admission_spec(rules), namespace="here", secret="s", configuration="c", issues_certificates=False
    )
    assert ("create subjectaccessreviews.authorization.k8s.io" in {each.permission.text for each in found}) is reviews
