"""The requests that delete and evict pods past their deadline, against a real API server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from tests.fixtures.waiting import eventually_async
from trimtab.api import reasons
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.disruption.evictor import Evictor, Permit
from trimtab.disruption.evictor.requests import EvictionRequest
from trimtab.kube import verbs
from trimtab.kube.api import ApiError, NotFound
from trimtab.kube.clock import SYSTEM_CLOCK
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Pod, Taint
from trimtab.kube.resources import BUDGETS, PODS, Resource
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.due_pods import DuePodOutcome, DuePodResult, EvictionDecision, outcome_of
from trimtab.tainting.eviction_queue import MESSAGE, TIMEOUT, request_of

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


class NoPods:
    """A snapshot without pods."""

    def pod(self, _key: str) -> None:
        return None

    def desired_replicas(self, owner: OwnerKey) -> int | None:
        return None

    def owned_by(self, _owner: OwnerKey) -> Sequence[Pod]:
        return ()


def evictor() -> Evictor:
    return Evictor(clock=SYSTEM_CLOCK, view=NoPods())


def request(deadline: Deadline, action: Literal["Delete", "Evict"] = "Delete") -> tuple[EvictionRequest, Pod]:
    namespace, _, name = deadline.key.partition("/")
    pod = Pod(namespace=namespace, name=name, uid=deadline.uid)
    return request_of(EvictionDecision(action, deadline, math.inf), pod, now=SYSTEM_CLOCK.now()), pod


async def mark(api: Transport, deadline: Deadline) -> DuePodOutcome | None:
    acting = evictor()
    permit = acting.admit(*request(deadline))
    assert isinstance(permit, Permit)
    response = await acting.mark_disruption_target(
        permit, api, reason=reasons.DELETION_BY_TAINT_MANAGER, message=MESSAGE, timeout=TIMEOUT
    )
    return None if response is None else outcome_of(response, done=DuePodResult.DELETED)


async def send(api: Transport, deadline: Deadline, *, action: Literal["Delete", "Evict"] = "Delete") -> DuePodOutcome:
    acting = evictor()
    permit = acting.admit(*request(deadline, action))
    assert isinstance(permit, Permit)
    done = DuePodResult.DELETED if action == "Delete" else DuePodResult.EVICTED
    return outcome_of(await acting.send(permit, api, timeout=TIMEOUT), done=done)


async def due(api: Transport, namespace: str, name: str) -> Deadline:
    """A pod past its deadline on a node that does not exist, so that no kubelet removes it."""
    spec = {"nodeName": "nowhere", "containers": [{"name": "main", "image": IMAGE}]}
    made = await verbs.create(
        api, PODS, {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}, namespace=namespace
    )
    now = SYSTEM_CLOCK.now()
    return Deadline(f"{namespace}/{name}", made["metadata"]["uid"], "nowhere", now, now, Taint("a", "NoExecute"), None)


async def conditions(api: Transport, namespace: str, name: str) -> list[dict[str, Any]]:
    found = await verbs.get(api, PODS, name, namespace=namespace)
    return [each for each in found["status"].get("conditions") or () if each["type"] == "DisruptionTarget"]


async def test_deletion_sets_disruption_target_and_respects_the_grace_period(api: Transport, namespace: str) -> None:
    deadline = await due(api, namespace, "web")
    assert await mark(api, deadline) is None
    assert await mark(api, deadline) is None
    [condition] = await conditions(api, namespace, "web")
    assert (condition["status"], condition["reason"]) == ("True", "DeletionByTaintManager")
    assert condition["message"] == "Taint manager: deleting due to NoExecute taint"

    assert (await send(api, deadline)).result is DuePodResult.DELETED
    try:
        left = await verbs.get(api, PODS, "web", namespace=namespace)
    except NotFound:  # the garbage collector of pods was quick: the node is not there
        left = None
    assert left is None or left["metadata"]["deletionGracePeriodSeconds"] in (0, 30)


async def test_pod_with_another_uid_is_neither_patched_nor_deleted_nor_evicted(api: Transport, namespace: str) -> None:
    deadline = await due(api, namespace, "db")
    other = Deadline(deadline.key, "00000000-0000-0000-0000-000000000000", "nowhere", 0, 0, deadline.taint, None)
    marked = await mark(api, other)
    assert marked is not None
    assert marked.result is DuePodResult.GONE
    assert (await send(api, other)).result is DuePodResult.GONE
    assert (await send(api, other, action="Evict")).result is DuePodResult.GONE
    assert not await conditions(api, namespace, "db")
    assert "deletionTimestamp" not in (await verbs.get(api, PODS, "db", namespace=namespace))["metadata"]


async def test_missing_pod_counts_as_deleted(api: Transport, namespace: str) -> None:
    nobody = Deadline(f"{namespace}/nobody", "u", "nowhere", 0, 0, Taint("a", "NoExecute"), None)
    marked = await mark(api, nobody)
    assert marked is not None
    assert {marked.result, (await send(api, nobody)).result} == {DuePodResult.GONE}


async def test_budget_refusal_names_the_budget(api: Transport, namespace: str) -> None:
    deadline = await due(api, namespace, "kept")
    selector = {"matchLabels": {"app": "kept"}}
    budget = {"metadata": {"name": "two"}, "spec": {"minAvailable": 1, "selector": selector}}
    await verbs.create(api, BUDGETS, budget, namespace=namespace)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}  # else no budget is asked
    await verbs.merge_patch(api, PODS, "kept", {"status": status}, namespace=namespace, subresource="status")
    response = await send(api, deadline, action="Evict")
    assert (response.result, response.refuser) == (DuePodResult.REFUSED, "PodDisruptionBudget")
    assert "disruption budget two" in response.message


async def test_admission_policy_refusal_names_the_policy(api: Transport, namespace: str) -> None:
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
        response = await _refused(api, namespace, deadline)
        assert (response.result, response.refuser) == (DuePodResult.REFUSED, f"ValidatingAdmissionPolicy '{name}'")
        assert "not now" in response.message
    finally:
        await verbs.delete(api, BINDINGS, name)
        await verbs.delete(api, POLICIES, name)


async def _refused(api: Transport, namespace: str, deadline: Deadline) -> Any:
    """The response once the admission policy is in force; until then the pod is created again."""
    number = 0

    async def refused() -> Any:
        nonlocal deadline, number
        response = await send(api, deadline)
        if response.result is DuePodResult.REFUSED:
            return response
        number += 1
        deadline = await due(api, namespace, f"again-{number}")
        return None

    return await eventually_async(refused, "the admission policy is in force", pause=0.1)


async def test_errors_of_metadata_only_requests_keep_their_message(api: Transport, namespace: str) -> None:
    with pytest.raises(ApiError, match='pods "nobody" not found'):
        await verbs.delete(api, PODS, "nobody", namespace=namespace, accept=verbs.METADATA_ONLY)
    await due(api, namespace, "web")
    path = PODS.path("web", namespace=namespace)
    response = await api.request("DELETE", path, body={"gracePeriodSeconds": 0}, accept=verbs.METADATA_ONLY)
    assert isinstance(response, bytes)
    assert b"PartialObjectMetadata" in response
    assert IMAGE.encode() not in response
