"""The requests that end pods whose time is over, against the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trimtab.kube import verbs
from trimtab.kube.api import ApiError, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Taint
from trimtab.kube.resources import BUDGETS, PODS, Resource
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending import What, requests

IMAGE = "registry.example.com/none"
POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)


async def due(api: Transport, namespace: str, name: str) -> Deadline:
    """A pod on a node that is not there, so that nobody ends it but who is asked to; its time is over."""
    spec = {"nodeName": "nowhere", "containers": [{"name": "main", "image": IMAGE}]}
    made = await verbs.create(
        api, PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}, namespace=namespace
    )
    now = SYSTEM_CLOCK.now()
    return Deadline(f"{namespace}/{name}", made["metadata"]["uid"], "nowhere", now, now, Taint("a", "NoExecute"), None)


async def conditions(api: Transport, namespace: str, name: str) -> list[dict[str, Any]]:
    found = await verbs.get(api, PODS, name, namespace=namespace)
    return [each for each in found["status"].get("conditions") or () if each["type"] == "DisruptionTarget"]


async def test_a_pod_is_marked_as_upstream_marks_it_and_deleted_with_its_grace_period(
    api: Transport, namespace: str
) -> None:
    deadline = await due(api, namespace, "web")
    assert await requests.mark(api, deadline, now=SYSTEM_CLOCK.now()) is None
    assert await requests.mark(api, deadline, now=SYSTEM_CLOCK.now()) is None
    [condition] = await conditions(api, namespace, "web")
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByTaintManager")
    assert condition["message"] == "Taint manager: deleting due to NoExecute taint"

    assert (await requests.delete(api, deadline)).what is What.DELETED
    try:
        left = await verbs.get(api, PODS, "web", namespace=namespace)
    except NotFound:  # the garbage collector of pods was quick: the node is not there
        left = None
    assert left is None or left["metadata"]["deletionGracePeriodSeconds"] in (0, 30)


async def test_another_pod_of_the_name_is_neither_marked_nor_deleted_nor_evicted(
    api: Transport, namespace: str
) -> None:
    deadline = await due(api, namespace, "db")
    other = Deadline(deadline.key, "00000000-0000-0000-0000-000000000000", "nowhere", 0, 0, deadline.taint, None)
    marked = await requests.mark(api, other, now=SYSTEM_CLOCK.now())
    assert marked is not None
    assert marked.what is What.GONE
    assert (await requests.delete(api, other)).what is What.GONE
    assert (await requests.evict(api, other)).what is What.GONE
    assert not await conditions(api, namespace, "db")
    assert "deletionTimestamp" not in (await verbs.get(api, PODS, "db", namespace=namespace))["metadata"]


async def test_a_pod_that_is_not_there_is_gone(api: Transport, namespace: str) -> None:
    nobody = Deadline(f"{namespace}/nobody", "u", "nowhere", 0, 0, Taint("a", "NoExecute"), None)
    marked = await requests.mark(api, nobody, now=SYSTEM_CLOCK.now())
    assert marked is not None
    assert {marked.what, (await requests.delete(api, nobody)).what} == {What.GONE}


async def test_a_budget_refuses_an_eviction_by_its_name(api: Transport, namespace: str) -> None:
    deadline = await due(api, namespace, "kept")
    selector = {"matchLabels": {"app": "kept"}}
    budget = {"metadata": {"name": "two"}, "spec": {"minAvailable": 1, "selector": selector}}
    await verbs.create(api, BUDGETS, budget, namespace=namespace)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}  # else no budget is asked
    await verbs.merge_patch(api, PODS, "kept", {"status": status}, namespace=namespace, subresource="status")
    answer = await requests.evict(api, deadline)
    assert (answer.what, answer.refuser) == (What.REFUSED, "PodDisruptionBudget")
    assert "disruption budget two" in answer.message


async def test_an_admission_policy_that_refuses_is_named(api: Transport, namespace: str) -> None:
    deadline = await due(api, namespace, "web")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}
    place = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    policy = {
        "matchConstraints": {"resourceRules": [rule], **place},
        "validations": [{"expression": "false", "message": "not now"}],
    }
    name = f"keep-{namespace}"
    await verbs.create(api, POLICIES, {"metadata": {"name": name}, "spec": policy})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    await verbs.create(api, BINDINGS, {"metadata": {"name": name}, "spec": binding})
    try:
        answer = await _refused(api, namespace, deadline)
        assert (answer.what, answer.refuser) == (What.REFUSED, f"ValidatingAdmissionPolicy '{name}'")
        assert "not now" in answer.message
    finally:
        await verbs.delete(api, BINDINGS, name)
        await verbs.delete(api, POLICIES, name)


async def _refused(api: Transport, namespace: str, deadline: Deadline) -> Any:
    """The answer once the policy holds, which takes the API server a moment; until then pods are made anew."""
    for number in range(100):
        answer = await requests.delete(api, deadline)
        if answer.what is What.REFUSED:
            return answer
        await asyncio.sleep(0.1)
        deadline = await due(api, namespace, f"again-{number}")
    pytest.fail("the policy was never heeded")


async def test_what_is_asked_for_as_metadata_costs_no_error_its_words(api: Transport, namespace: str) -> None:
    with pytest.raises(ApiError, match='pods "nobody" not found'):
        await verbs.delete(api, PODS, "nobody", namespace=namespace, accept=verbs.METADATA)
    await due(api, namespace, "web")
    path = PODS.path("web", namespace=namespace)
    answer = await api.request("DELETE", path, body={"gracePeriodSeconds": 0}, accept=verbs.METADATA)
    assert isinstance(answer, bytes)
    assert b"PartialObjectMetadata" in answer
    assert IMAGE.encode() not in answer
