import pytest

from tests.fakes.api import FakeApi
from trimtab.kube import verbs
from trimtab.kube.api import Conflict, Gone, NotFound
from trimtab.kube.resources import DESCHEDULER_POLICIES, LEASES, NODES, PODS


class PagedApi:
    """Lists numbers in pages, and forgets a token when told so."""

    def __init__(self, total: int, *, forgets_at: int | None = None) -> None:
        self.total = total
        self.forgets_at = forgets_at
        self.asked: list[dict[str, str]] = []

    async def request(self, method, path, *, params=None, **_):
        assert (method, path) == ("GET", "/api/v1/pods")
        self.asked.append(dict(params))
        begin, limit = int(params.get("continue", 0)), int(params.get("limit", self.total))
        if begin and begin == self.forgets_at:
            raise Gone("the provided continue parameter is too old", status=410, reason="Expired")
        end = min(begin + limit, self.total)
        metadata = {"resourceVersion": "42"} | ({"continue": str(end)} if end < self.total else {})
        return {"metadata": metadata, "items": [{"n": n} for n in range(begin, end)]}

    def stream(self, path, **_):
        raise NotImplementedError


@pytest.mark.parametrize(("total", "requests"), [(0, 1), (1, 1), (500, 1), (501, 2), (1700, 4)])
async def test_a_list_is_read_in_pages(total, requests):
    api = PagedApi(total)
    listed = await verbs.list_objects(api, PODS, label_selector="app=web", field_selector="spec.nodeName=n1")
    assert [item["n"] for item in listed.items] == list(range(total))
    assert listed.resource_version == "42"
    assert len(api.asked) == requests
    assert all(each["labelSelector"] == "app=web" for each in api.asked)
    assert all(each["fieldSelector"] == "spec.nodeName=n1" for each in api.asked)


async def test_list_with_an_expired_token_restarts_without_pages():
    api = PagedApi(1700, forgets_at=1000)
    listed = await verbs.list_objects(api, PODS)
    assert [item["n"] for item in listed.items] == list(range(1700))
    assert api.asked[-1] == {}


async def test_first_page_with_status_410_is_an_error():
    api = FakeApi()
    api.fail(Gone("too old", status=410))
    with pytest.raises(Gone):
        await verbs.list_objects(api, PODS)


async def test_a_list_without_items_is_empty():
    class Null(PagedApi):
        async def request(self, *_, **__):
            return {"metadata": {}, "items": None}

    assert (await verbs.list_objects(Null(0), PODS)).items == []


async def test_an_object_is_created_read_replaced_and_deleted():
    api = FakeApi()
    created = await verbs.create(api, LEASES, {"metadata": {"name": "x"}}, namespace="a")
    assert (created["apiVersion"], created["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert api.calls[0].params == {"fieldManager": "trimtab"}
    assert await verbs.get(api, LEASES, "x", namespace="a") == created
    await verbs.replace(api, LEASES, "x", created | {"spec": {}}, namespace="a")
    with pytest.raises(Conflict):
        await verbs.replace(api, LEASES, "x", created, namespace="a")
    await verbs.delete(api, LEASES, "x", namespace="a")
    with pytest.raises(NotFound):
        await verbs.get(api, LEASES, "x", namespace="a")
    assert {call.path.removesuffix("/x") for call in api.calls} == {"/apis/coordination.k8s.io/v1/namespaces/a/leases"}


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ({}, {}),
        ({"uid": "u1"}, {"preconditions": {"uid": "u1"}}),
        ({"grace_period": 0}, {"gracePeriodSeconds": 0}),
        ({"propagation": "Foreground"}, {"propagationPolicy": "Foreground"}),
    ],
)
async def test_deletion_options_are_sent_if_given(options, body):
    api = FakeApi()
    api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}})
    await verbs.delete(api, NODES, "n1", **options)
    assert api.calls[0].body == {"apiVersion": "v1", "kind": "DeleteOptions"} | body


async def test_a_status_is_merged_through_its_subresource():
    api = FakeApi()
    path = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies/p"
    api.put(path, {"status": {"a": 1, "b": 2}})
    await verbs.merge_patch(api, DESCHEDULER_POLICIES, "p", {"status": {"a": None, "c": 3}}, subresource="status")
    assert api.objects[path]["status"] == {"b": 2, "c": 3}
    assert (api.calls[0].path, api.calls[0].content_type) == (f"{path}/status", "application/merge-patch+json")


async def test_json_patch_sends_a_list():
    api = FakeApi()
    api.fail(NotFound("x", status=404))
    operations = ({"op": "test", "path": "/a", "value": 1},)
    with pytest.raises(NotFound):
        await verbs.json_patch(api, NODES, "n1", operations)
    assert api.calls[0].body == [{"op": "test", "path": "/a", "value": 1}]
    assert api.calls[0].content_type == "application/json-patch+json"


@pytest.mark.parametrize("force", [True, False])
async def test_apply_names_the_object_and_its_field_manager(force):
    api = FakeApi()
    fields = {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}
    await verbs.apply(api, LEASES, "x", fields, namespace="a", force=force)
    [call] = api.calls
    assert call.params == {"fieldManager": "trimtab", "force": str(force).lower()}
    assert call.content_type == "application/apply-patch+yaml"
    assert call.body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"labels": {"a": "b"}, "name": "x", "namespace": "a"},
        "spec": {"x": 1},
    }
    assert fields == {"metadata": {"labels": {"a": "b"}}, "spec": {"x": 1}}
