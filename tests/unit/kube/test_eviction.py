import pytest

from tests.fakes.api import FakeApi
from trimtab.kube.api import Conflict, Forbidden, ServerError, TooManyRequests, Unreachable
from trimtab.kube.eviction import EvictionResult, evict

POD = "/api/v1/namespaces/shop/pods/web-1"
BUDGET = (
    {"reason": "DisruptionBudget", "message": "The disruption budget web needs 2 healthy pods and has 2 currently"},
)
REFUSAL = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.fixture
def api() -> FakeApi:
    fake = FakeApi()
    fake.put(POD, {"metadata": {"name": "web-1", "namespace": "shop", "uid": "u1"}})
    return fake


async def test_a_granted_eviction_removes_exactly_this_pod(api):
    result = await evict(api, namespace="shop", name="web-1", uid="u1", grace_period=30)
    assert result == EvictionResult("Granted")
    assert result.granted
    assert POD not in api.objects
    [call] = api.calls
    assert (call.method, call.path, call.params) == ("POST", f"{POD}/eviction", {})
    assert call.body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 30},
    }


async def test_a_dry_run_lets_the_server_judge_and_changes_nothing(api):
    assert (await evict(api, namespace="shop", name="web-1", uid="u1", dry_run=True)).granted
    assert api.calls[0].params == {"dryRun": "All"}
    assert POD in api.objects


async def test_a_budgets_refusal_is_an_outcome_with_its_numbers_and_its_wait(api):
    api.fail(TooManyRequests(REFUSAL, status=429, causes=BUDGET, retry_after=10))
    assert await evict(api, namespace="shop", name="web-1", uid="u1") == EvictionResult(
        "Refused", f"{REFUSAL} {BUDGET[0]['message']}", 10
    )


async def test_an_overloaded_server_is_no_budgets_refusal(api):
    api.fail(TooManyRequests("too many requests", status=429, retry_after=1))
    with pytest.raises(TooManyRequests):
        await evict(api, namespace="shop", name="web-1", uid="u1")
    assert len(api.calls) == 1


async def test_a_pod_that_is_gone_is_an_outcome(api):
    assert (await evict(api, namespace="shop", name="web-2", uid="u1")).outcome == "Gone"


async def test_a_pod_replaced_by_one_of_the_same_name_is_spared(api):
    result = await evict(api, namespace="shop", name="web-1", uid="u0")
    assert (result.outcome, result.granted) == ("Gone", False)
    assert "UID in precondition: u0" in result.message
    assert POD in api.objects


async def test_two_budgets_on_one_pod_are_an_outcome(api):
    words = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    api.fail(ServerError(words, status=500, reason="InternalError"))
    assert await evict(api, namespace="shop", name="web-1", uid="u1") == EvictionResult("SeveralBudgets", words)


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("no", status=403),
        ServerError("etcd", status=500),
        Unreachable("cut"),
        Conflict("the pod is being used", status=409),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_has_nothing_to_do_with_the_pod_is_raised_and_not_repeated(api, error):
    api.fail(error)
    with pytest.raises(type(error)):
        await evict(api, namespace="shop", name="web-1", uid="u1")
    assert len(api.calls) == 1
