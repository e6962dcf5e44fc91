"""The requests that end pods, and what the API server's answers mean."""

import msgspec
import pytest

from tests.fakes.api import FakeApi
from trimtab.disruption.evictor.eviction_api import (
    confirm_eviction,
    mark_disrupted,
    response_of,
    send_deletion,
    send_eviction,
)
from trimtab.disruption.evictor.requests import (
    BUDGET_REFUSER,
    EvictionRequest,
    EvictionResponse,
    Requester,
    ResponseCode,
)
from trimtab.kube.api import (
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)

POD = "/api/v1/namespaces/shop/pods/web-1"
WEB = EvictionRequest(namespace="shop", pod="web-1", uid="u1", requester=Requester("descheduler", "spread"))
OTHER_UID = msgspec.structs.replace(WEB, uid="u0")
BUDGET = (
    {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"},
)
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."
WEBHOOK = 'admission webhook "guard.example.com" denied the request: no'


@pytest.fixture
def api() -> FakeApi:
    fake = FakeApi()
    fake.put(POD, {"metadata": {"name": "web-1", "namespace": "shop", "uid": "u1"}})
    return fake


async def test_eviction_has_the_uid_as_precondition(api):
    outcome = await send_eviction(api, msgspec.structs.replace(WEB, grace_period=30), timeout=10)
    assert outcome == EvictionResponse(ResponseCode.GRANTED)
    assert outcome.granted
    assert POD not in api.objects
    [call] = api.calls
    assert (call.method, call.path, call.params) == ("POST", f"{POD}/eviction", {})
    assert call.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 30},
    }


async def test_deletion_has_the_uid_as_precondition(api):
    assert (await send_deletion(api, WEB, timeout=10)).granted
    assert POD not in api.objects
    assert api.calls[-1].body["preconditions"] == {"uid": "u1"}
    assert "gracePeriodSeconds" not in api.calls[-1].body, "the grace period of the pod"


async def test_deletion_with_another_grace_period(api):
    assert (await send_deletion(api, msgspec.structs.replace(WEB, grace_period=1), timeout=10)).granted
    assert api.calls[-1].body["gracePeriodSeconds"] == 1


async def test_budget_refusal_has_numbers_and_retry_after(api):
    api.fail(TooManyRequests(REFUSAL, status=429, causes=BUDGET, retry_after=10))
    assert await send_eviction(api, WEB, timeout=10) == EvictionResponse(
        ResponseCode.BUDGET, f"{REFUSAL} {BUDGET[0]['message']}", BUDGET_REFUSER, 10, transient=True
    )


async def test_not_found_counts_as_deleted(api):
    deleted = msgspec.structs.replace(WEB, pod="web-2")
    assert (await send_eviction(api, deleted, timeout=10)).code is ResponseCode.GONE


async def test_uid_conflict_counts_as_deleted(api):
    outcome = await send_eviction(api, OTHER_UID, timeout=10)
    assert (outcome.code, outcome.granted) == (ResponseCode.GONE, False)
    assert "UID in precondition: u0" in outcome.message
    assert POD in api.objects


@pytest.mark.parametrize(
    ("error", "answer", "refuser", "transient"),
    [
        (TooManyRequests("too many requests", status=429), ResponseCode.OVERLOADED, "", True),
        (TooManyRequests(WEBHOOK, status=429), ResponseCode.REFUSED, "guard.example.com", True),
        (TooManyRequests(f"{WEBHOOK} Eviction triggered evacuation", status=429), ResponseCode.BACKGROUND,
         "guard.example.com", False),
        (Forbidden(WEBHOOK, status=403), ResponseCode.REFUSED, "guard.example.com", False),
        (NotFound(WEBHOOK, status=404), ResponseCode.REFUSED, "guard.example.com", False),
        (ServerError('failed calling webhook "guard.example.com": timed out', status=500), ResponseCode.REFUSED,
         "guard.example.com", True),
        (Invalid("ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: no", status=422),
         ResponseCode.REFUSED, "ValidatingAdmissionPolicy 'keep'", False),
        (ServerError("This pod has more than one PodDisruptionBudget, which", status=500),
         ResponseCode.SEVERAL_BUDGETS, BUDGET_REFUSER, False),
        (Forbidden("no", status=403), ResponseCode.REJECTED, "", False),
        (Unauthorized("who?", status=401), ResponseCode.UNAUTHORIZED, "", False),
        (Conflict("the pod is being used", status=409), ResponseCode.CONFLICT, "", True),
        (Conflict('cannot delete "uid"', status=409), ResponseCode.CONFLICT, "", True),
        (ServerError("etcd", status=500), ResponseCode.IN_DOUBT, "", True),
        (Unreachable("cut"), ResponseCode.IN_DOUBT, "", True),
        (NotLeading("POST", "/eviction"), ResponseCode.NOT_SENT, "", True),
    ],
)  # fmt: skip
async def test_errors_map_to_response_codes_without_retry(api, error, answer, refuser, transient):
    api.fail(error)
    outcome = await send_eviction(api, WEB, timeout=10)
    assert (outcome.code, outcome.refuser, outcome.transient) == (answer, refuser, transient)
    assert str(error) in outcome.message
    assert len(api.calls) == 1
    assert response_of(error) == outcome


async def test_disruption_target_condition_has_the_uid_as_precondition(api):
    api.fail(Invalid('Pod "web-1" is invalid: metadata.uid: Invalid value: "u0"', status=422))
    found = await mark_disrupted(api, OTHER_UID, reason="A", message="b", now=0.0, timeout=10)
    assert found is not None
    assert found.code is ResponseCode.GONE
    assert await mark_disrupted(api, WEB, reason="A", message="b", now=0.0, timeout=10) is None
    condition = api.calls[-1].body["status"]["conditions"][0]
    assert (condition["type"], condition["status"], condition["reason"]) == ("DisruptionTarget", "True", "A")


@pytest.mark.parametrize(
    ("pod", "answer"),
    [
        (None, ResponseCode.GRANTED),
        ({"metadata": {"uid": "u2"}}, ResponseCode.GRANTED),
        ({"metadata": {"uid": "u1"}}, None),
        ({"metadata": {"uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, ResponseCode.GONE),
        (
            {
                "metadata": {"uid": "u1", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": {"conditions": [{"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI"}]},
            },
            ResponseCode.GRANTED,
        ),
    ],
    ids=["gone", "replaced", "still there", "deleted by something else", "evicted"],
)
async def test_lost_response_is_resolved_by_reading_the_pod(api, pod, answer):
    api.objects.clear()
    if pod is not None:
        api.put(POD, pod)
    found = await confirm_eviction(api, WEB, timeout=10)
    assert (found and found.code) == answer


async def test_lost_response_stays_in_doubt_while_the_server_is_unreachable(api):
    api.fail(Unreachable("cut"))
    found = await confirm_eviction(api, WEB, timeout=10)
    assert found is not None
    assert found.code is ResponseCode.IN_DOUBT
