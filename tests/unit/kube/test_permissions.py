"""Asking what we may do."""

from __future__ import annotations

import pytest

from tests.fakes.api import FakeApi
from trimtab.kube.permissions import Permission, is_permitted
from trimtab.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS


@pytest.mark.parametrize(
    ("right", "attributes", "words"),
    [
        (Permission("delete", PODS), {"verb": "delete", "version": "v1", "resource": "pods"}, "delete pods"),
        (
            Permission("patch", NODES, "status"),
            {"verb": "patch", "version": "v1", "resource": "nodes", "subresource": "status"},
            "patch nodes/status",
        ),
        (
            Permission("get", LEASES, namespace="kube-node-lease"),
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
            Permission("get", CONFIG_MAPS, namespace="a", name="b"),
            {"verb": "get", "version": "v1", "resource": "configmaps", "namespace": "a", "name": "b"},
            "get configmaps b in a",
        ),
    ],
    ids=["of all", "a subresource", "in a namespace", "one object"],
)
async def test_access_review_names_group_resource_and_subresource(right, attributes, words):
    api = FakeApi()

    assert await is_permitted(api, right)

    [call] = api.calls
    assert (call.method, call.path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert call.body["spec"] == {"resourceAttributes": attributes}
    assert right.text == words


async def test_denied_review_is_not_permitted():
    assert not await is_permitted(
        FakeApi(may=lambda attributes: attributes["verb"] != "delete"), Permission("delete", PODS)
    )
