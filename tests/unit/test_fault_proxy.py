"""The fault proxy assigns each request to a kind, on which the faults depend."""

from __future__ import annotations

import pytest

from tests.fixtures.fault_proxy import GET, LIST, OTHER, WATCH, WRITE, kind_of_request


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET /api/v1/pods", (LIST, "pods")),
        ("GET /api/v1/pods?watch=true", (WATCH, "pods")),
        ("GET /api/v1/pods?watch=1", (WATCH, "pods")),
        ("GET /api/v1/namespaces", (LIST, "namespaces")),
        ("GET /api/v1/namespaces/shop", (GET, "namespaces")),
        ("GET /api/v1/namespaces/shop/pods", (LIST, "pods")),
        ("GET /api/v1/namespaces/shop/pods/web-1", (GET, "pods")),
        ("POST /api/v1/namespaces/shop/pods/web-1/eviction", (WRITE, "pods/eviction")),
        ("GET /api/v1/nodes/n1/proxy/stats/summary", (GET, "nodes/proxy")),
        ("PATCH /apis/trimtab.dev/v1alpha1/deschedulerpolicies/a/status", (WRITE, "deschedulerpolicies/status")),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", (OTHER, "")),
        ("GET /apis/apps/v1", (OTHER, "")),
        ("GET /readyz", (OTHER, "")),
        ("GET /", (OTHER, "")),
    ],
)
def test_kind_of_request(request_line: str, expected: tuple[str, str]) -> None:
    method, url = request_line.split()
    path, _, query = url.partition("?")
    assert kind_of_request(method, path, dict(part.split("=") for part in query.split("&") if part)) == expected
