"""Who may read /metrics, and how many reviews that costs the API server."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.fakes.clock import SetClock
from trimtab.api import reasons
from trimtab.kube.api import ApiError, Forbidden, Unreachable
from trimtab.runtime.http import authorizer
from trimtab.runtime.metrics.authorizer import MetricsAuthorizer

READER, OTHER = "Bearer reader", "Bearer other"
CLIENT = "10.0.0.1"


class Reviews:
    """An API server that knows two users, one of whom may read."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.users = {"reader": True, "other": False}

    async def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> Any:
        assert method == "POST"
        self.posted.append((path, body["spec"]))
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            if spec["token"] not in self.users:
                return {"status": {"error": "invalid bearer token"}}
            user = {"username": spec["token"], "uid": "7", "groups": ["g"], "extra": {"k": ["v"]}}
            return {"status": {"authenticated": True, "user": user}}
        assert body["kind"] == "SubjectAccessReview"
        return {"status": {"allowed": self.users[spec["user"]]}}

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


@pytest.fixture
def api() -> Reviews:
    return Reviews()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def access(api: Reviews, clock: SetClock) -> MetricsAuthorizer:
    return MetricsAuthorizer(api, clock=clock)


async def test_the_api_server_decides(access: MetricsAuthorizer, api: Reviews) -> None:
    assert await access.refusal_reason(READER, CLIENT) is None
    assert await access.refusal_reason(OTHER, CLIENT) == reasons.UNAUTHORIZED
    assert await access.refusal_reason("Bearer invented", CLIENT) == reasons.UNAUTHENTICATED
    assert [path for path, _ in api.posted] == [
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    ] * 2 + ["/apis/authentication.k8s.io/v1/tokenreviews"]
    assert api.posted[1][1] == {
        "user": "reader",
        "uid": "7",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic cmVhZGVyOg==", "reader", "Bearer " + "x" * 16385, "Bearer r\xe9ader"]
)
async def test_malformed_tokens_are_not_reviewed(access: MetricsAuthorizer, api: Reviews, header: str) -> None:
    assert await access.refusal_reason(header, CLIENT) == reasons.UNAUTHENTICATED
    assert not api.posted


async def test_concurrent_requests_share_a_review(access: MetricsAuthorizer, api: Reviews) -> None:
    assert set(await asyncio.gather(*(access.refusal_reason(READER, CLIENT) for _ in range(50)))) == {None}
    assert len(api.posted) == 2


async def test_verdicts_are_kept_for_a_while(access: MetricsAuthorizer, api: Reviews, clock: SetClock) -> None:
    for _ in range(100):
        await access.refusal_reason(READER, CLIENT)
        await access.refusal_reason(OTHER, CLIENT)
    assert len(api.posted) == 4
    api.users["other"] = True
    clock.time += authorizer.DENIED_SECONDS
    assert await access.refusal_reason(OTHER, CLIENT) is None
    api.users["reader"] = False
    assert await access.refusal_reason(READER, CLIENT) is None
    clock.time += authorizer.ALLOWED_SECONDS
    assert await access.refusal_reason(READER, CLIENT) == reasons.UNAUTHORIZED


@pytest.mark.parametrize("seed", range(5))
async def test_a_flood_of_invented_tokens_makes_few_reviews_and_keeps_no_reader_out(seed: int, clock: SetClock) -> None:
    api, chance = Reviews(), random.Random(seed)
    access = MetricsAuthorizer(api, clock=clock)
    assert await access.refusal_reason(READER, CLIENT) is None
    seconds = 120
    for second in range(seconds):
        for number in range(500):
            token = f"Bearer {second}-{number}-{chance.random()}"
            await access.refusal_reason(token, f"10.1.0.{chance.randrange(200)}")
        clock.time += 1.0
        assert await access.refusal_reason(READER, CLIENT) is None
    reviewed = len(api.posted)
    assert reviewed <= seconds * authorizer.NEW_PER_SECOND + 2 * authorizer.NEW_BURST + 2 * 4
    assert len(access._denied) <= authorizer.MAX_DENIED
    assert len(access._new_of) <= 1024
    assert not access._reviews


async def test_one_client_does_not_use_up_the_reviews_of_others(access: MetricsAuthorizer, clock: SetClock) -> None:
    for number in range(1000):
        await access.refusal_reason(f"Bearer {number}", "10.1.0.1")
    assert await access.refusal_reason("Bearer 1001", "10.1.0.1") == reasons.TOO_MANY_REQUESTS
    assert await access.refusal_reason(READER, CLIENT) is None


async def test_known_reader_is_accepted_during_an_outage(
    access: MetricsAuthorizer, api: Reviews, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    assert await access.refusal_reason(READER, CLIENT) is None
    api.error = Unreachable("no answer")
    assert await access.refusal_reason(OTHER, CLIENT) == reasons.REVIEW_FAILED
    clock.time += authorizer.OUTAGE_SECONDS - 1
    assert await access.refusal_reason(READER, CLIENT) is None
    clock.time += 1
    assert await access.refusal_reason(READER, CLIENT) == reasons.REVIEW_FAILED
    assert len(caplog.records) == 1


@pytest.mark.parametrize("error", [Forbidden("no", status=403), ApiError("x", status=500)])
async def test_no_review_is_no_permission(access: MetricsAuthorizer, api: Reviews, error: Exception) -> None:
    api.error = error
    assert await access.refusal_reason(READER, CLIENT) == reasons.REVIEW_FAILED
    api.error = None
    assert await access.refusal_reason(READER, CLIENT) is None, "and it is not kept"


async def test_close_cancels_outstanding_reviews(access: MetricsAuthorizer, api: Reviews) -> None:
    async def hang(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    api.request = hang  # type: ignore[method-assign]
    waiting = asyncio.create_task(access.refusal_reason(READER, CLIENT))
    await asyncio.sleep(0)
    await access.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
