"""Asking what we may do."""

from __future__ import annotations

import pytest

from tests.fakes.api import FakeApi
from trimtab.kube.access import Right, allowed
from trimtab.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS


@pytest.mark.parametrize(
    ("right", "attributes", "words"),
    [
        (Right("delete", PODS), {"verb": "delete", "version": "v1", "resource": "pods"}, "delete pods"),
        (
            Right("patch", NODES, "status"),
            {"verb": "patch", "version": "v1", "resource": "nodes", "subresource": "status"},
            "patch nodes/status",
        ),
        (
            Right("get", LEASES, namespace="kube-node-lease"),
            {
                "verb": "get",
                "group": "coordination.k8s.io",
                "version": "v1",
                "resource": "leases",
                "namespace": "kube-node-lease",
            },
            "get leases.coordination.k8s.io in kube-node-lease",
        ),
        (
            Right("get", CONFIG_MAPS, namespace="a", name="b"),
            {"verb": "get", "version": "v1", "resource": "configmaps", "namespace": "a", "name": "b"},
            "get configmaps b in a",
        ),
    ],
    ids=["of all", "a subresource", "in a namespace", "one object"],
)
async def test_a_right_is_asked_for_as_the_api_server_names_it(right, attributes, words):
    api = FakeApi()

    assert await allowed(api, right)

    [call] = api.calls
    assert (call.method, call.path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert call.body["spec"] == {"resourceAttributes": attributes}
    assert right.words == words


async def test_what_is_not_allowed_is_not():
    assert not await allowed(FakeApi(may=lambda attributes: attributes["verb"] != "delete"), Right("delete", PODS))
