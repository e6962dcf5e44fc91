"""Who may create pods/binding: the review, its cache, and what happens without an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.fakes.clock import LoopClock
from trimtab.admission import access
from trimtab.admission.access import ALLOWED_SECONDS, DENIED_SECONDS, AccessUnknown, BindingAccess
from trimtab.admission.requests import UserInfo
from trimtab.kube.api import ServerError, Unreachable

pytestmark = pytest.mark.looptime

ALICE = UserInfo("alice", "u1", ("team-a", "system:authenticated"), {"scopes": ("x", "y")})
BOB = UserInfo("bob")
PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Reviews(FakeApi):
    """Answers reviews with `allowed`: user, namespace and pod name ("" for all pods)."""

    def __init__(self, *allowed: tuple[str, str, str], delay: float = 0.0) -> None:
        super().__init__()
        self.allowed = set(allowed)
        self.delay = delay

    def _answer(self, call: Any) -> Any:
        spec = call.body["spec"]
        what = spec["resourceAttributes"]
        found = (spec["user"], what["namespace"], what.get("name", "")) in self.allowed
        return {"status": {"allowed": found}}

    async def request(self, *args: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(self.delay)
        return await super().request(*args, **kwargs)


async def test_review_has_the_whole_user_and_the_binding_subresource() -> None:
    api = Reviews(("alice", "shop", ""))
    assert await BindingAccess(api, clock=LoopClock()).may_bind(ALICE, "shop", "web-1")
    [call] = api.sent("POST", PATH)
    assert call.body["spec"] == {
        "user": "alice",
        "uid": "u1",
        "groups": ["team-a", "system:authenticated"],
        "extra": {"scopes": ["x", "y"]},
        "resourceAttributes": {
            "verb": "create",
            "group": "",
            "version": "v1",
            "resource": "pods",
            "subresource": "binding",
            "namespace": "shop",
        },
    }


async def test_permission_for_one_pod_is_checked_after_that_for_all() -> None:
    api = Reviews(("bob", "shop", "web-1"))
    found = BindingAccess(api, clock=LoopClock())
    assert await found.may_bind(BOB, "shop", "web-1")
    assert not await found.may_bind(BOB, "shop", "web-2")
    assert not await found.may_bind(BOB, "shop")
    names = [call.body["spec"]["resourceAttributes"].get("name", "") for call in api.sent("POST")]
    assert names == ["", "web-1", "web-2"]


async def test_answers_are_cached_for_their_own_times() -> None:
    api = Reviews(("alice", "shop", ""))
    found = BindingAccess(api, clock=LoopClock())
    assert await found.may_bind(ALICE, "shop")
    assert not await found.may_bind(BOB, "shop")
    api.allowed = {("bob", "shop", "")}
    await asyncio.sleep(DENIED_SECONDS - 0.1)
    assert not await found.may_bind(BOB, "shop")
    await asyncio.sleep(0.2)
    assert await found.may_bind(BOB, "shop")
    await asyncio.sleep(ALLOWED_SECONDS - DENIED_SECONDS - 0.2)
    assert await found.may_bind(ALICE, "shop")
    await asyncio.sleep(0.2)
    assert not await found.may_bind(ALICE, "shop")


async def test_users_who_differ_in_groups_or_extra_do_not_share_answers() -> None:
    api = Reviews()
    found = BindingAccess(api, clock=LoopClock())
    users = [BOB, UserInfo("bob", groups=("a",)), UserInfo("bob", groups=("b",)), UserInfo("bob", extra={"k": ("v",)})]
    for user in (*users, *users):
        assert not await found.may_bind(user, "shop")
    assert len(api.sent("POST")) == len(users)


async def test_equal_questions_share_one_review() -> None:
    api = Reviews(("alice", "shop", ""), delay=0.5)
    results: list[str] = []
    found = BindingAccess(api, clock=LoopClock(), observe=results.append)
    assert await asyncio.gather(*(found.may_bind(ALICE, "shop") for _ in range(100))) == [True] * 100
    assert len(api.sent("POST")) == 1
    assert results == [access.ALLOWED]


async def test_cancelled_request_does_not_cancel_the_review_of_others() -> None:
    api = Reviews(("alice", "shop", ""), delay=0.5)
    found = BindingAccess(api, clock=LoopClock())
    one, other = (asyncio.create_task(found.may_bind(ALICE, "shop")) for _ in range(2))
    await asyncio.sleep(0.1)
    one.cancel()
    assert await other


async def test_slow_review_fails_before_the_webhook_does() -> None:
    began = asyncio.get_running_loop().time()
    results: list[str] = []
    found = BindingAccess(Reviews(delay=10.0), clock=LoopClock(), observe=results.append)
    with pytest.raises(AccessUnknown):
        await found.may_bind(ALICE, "shop")
    assert asyncio.get_running_loop().time() - began == access.REVIEW_TIMEOUT
    assert results == [access.FAILED]


@pytest.mark.parametrize("error", [ServerError("oh", status=500), Unreachable("no")])
async def test_failed_review_is_not_cached(error: Exception) -> None:
    api = Reviews(("alice", "shop", ""))
    api.fail(error)
    found = BindingAccess(api, clock=LoopClock())
    with pytest.raises(AccessUnknown):
        await found.may_bind(ALICE, "shop")
    assert await found.may_bind(ALICE, "shop")


async def test_cache_and_outstanding_reviews_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_DENIED", 10)
    found = BindingAccess(Reviews(), clock=LoopClock())
    for number in range(100):
        assert not await found.may_bind(UserInfo(f"u{number}"), "shop")
    assert len(found._denied) == 10
    slow = BindingAccess(Reviews(delay=0.5), clock=LoopClock())
    asked = (slow.may_bind(UserInfo(f"u{number}"), "shop") for number in range(access.MAX_REVIEWS + 3))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(each, AccessUnknown) for each in answers) == 3
    assert not slow._reviews


async def test_close_cancels_outstanding_reviews() -> None:
    found = BindingAccess(Reviews(delay=0.5), clock=LoopClock())
    asked = asyncio.create_task(found.may_bind(ALICE, "shop"))
    await asyncio.sleep(0.1)
    await found.close()
    with pytest.raises(asyncio.CancelledError):
        await asked
