"""Authenticates and authorizes the clients of a server of the operator, with reviews by the API server.

It works like controller-runtime's ``FilterProvider``. A TokenReview returns the user of a bearer token, and
SubjectAccessReviews check whether the user has all permissions of an :class:`AccessCheck`. The operator needs the rules
of ``system:auth-delegator``.

Example::

    check = AccessCheck("metrics", ({"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},))
    refusal = await authorizer.token_refusal(request.headers.get("Authorization", ""), request.remote, check)

The results are cached, and reviews of unknown users are rate-limited per client and in total, so that requests with
invented tokens cannot flood the API server. Users that were allowed before have their own rate limit and cache, so that
invented tokens neither delay nor displace them.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from trimtab.kube.token_bucket import KeyedTokenBuckets, TokenBucket

log = logging.getLogger(__name__)

ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 10.0
"""Seconds for which the result of a review is cached."""
OUTAGE_SECONDS: Final = 300.0
"""Seconds for which an allowed user remains allowed while the API server does not respond to reviews."""
MAX_ALLOWED: Final = 64
MAX_DENIED: Final = 1024
"""Maximum number of cached results. The least recently used result is dropped."""
MAX_TOKEN: Final = 16384
REVIEW_TIMEOUT: Final = 5.0
CONCURRENT_REVIEWS: Final = 8
"""Maximum number of SubjectAccessReviews of one check that are sent at the same time."""

NEW_PER_SECOND: Final = 5.0
NEW_PER_SECOND_PER_CLIENT: Final = 1.0
NEW_BURST: Final = 5.0
KNOWN_PER_SECOND: Final = 5.0
"""Maximum reviews per second. The three limits apply to unknown users in total, to unknown users per client, and to
known allowed users.
"""

STATUS: Final[Mapping[str, int]] = {
    reasons.UNAUTHENTICATED: 401,
    reasons.UNAUTHORIZED: 403,
    reasons.TOO_MANY_REQUESTS: 429,
    reasons.REVIEW_FAILED: 503,
}
"""The HTTP status of each refusal."""


class UserInfo(Struct, frozen=True, kw_only=True):
    """An authenticated user, as in authentication.k8s.io.

    Attributes:
        username: the name of the user.
        uid: the UID of the user; empty if it is unknown.
        groups: the groups of the user.
        extra: further values about the user, by key.
    """

    username: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class AccessCheck(Struct, frozen=True):
    """The permissions that a client needs, all of them.

    Attributes:
        name: the name of the check, which distinguishes its cached results from those of other checks.
        attributes: for each permission, the ``resourceAttributes`` or ``nonResourceAttributes`` of a
            SubjectAccessReview.
    """

    name: str
    attributes: tuple[Mapping[str, Mapping[str, str]], ...]


class Refusal(Struct, frozen=True):
    """Why a client is refused.

    Attributes:
        reason: the reason code.
        message: what is missing, for the client; empty if the reason code says it all.
    """

    reason: str
    message: str = ""


class _ReviewResult(Struct, frozen=True):
    """The result of a review, with its time on the monotonic clock."""

    refusal: Refusal | None
    at: float


class RequestAuthorizer:
    """Authorizes the clients of one server.

    Args:
        api: the API client, which sends the reviews of tokens and permissions.
        name: what is served, for log messages.
        clock: provides the time.
        allowed_seconds: seconds for which a user remains allowed without another review.
        outage_seconds: seconds for which an allowed user remains allowed while reviews fail.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        allowed_seconds: float = ALLOWED_SECONDS,
        outage_seconds: float = OUTAGE_SECONDS,
    ) -> None:
        self._api = api
        self._name = name
        self._clock = clock
        self._allowed_seconds = allowed_seconds
        self._outage_seconds = outage_seconds
        now = clock.monotonic()
        self._new = TokenBucket(rate=NEW_PER_SECOND, burst=2 * NEW_BURST, now=now)
        self._new_of: KeyedTokenBuckets[str] = KeyedTokenBuckets(NEW_PER_SECOND_PER_CLIENT, burst=NEW_BURST)
        self._known = TokenBucket(rate=KNOWN_PER_SECOND, burst=MAX_ALLOWED, now=now)
        self._allowed: OrderedDict[bytes, _ReviewResult] = OrderedDict()
        self._denied: OrderedDict[bytes, _ReviewResult] = OrderedDict()
        self._reviews: dict[bytes, asyncio.Task[Refusal | None]] = {}
        self._last_error = ""

    async def token_refusal(self, authorization: str, client: str, check: AccessCheck) -> Refusal | None:
        """Return why a request with a bearer token is refused; ``None`` if it is allowed.

        Args:
            authorization: the Authorization header; ``""`` if there is none.
            client: the client's address, for the rate limit.
            check: the permissions that the client needs.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN or not token.isascii():
            return Refusal(reasons.UNAUTHENTICATED)
        return await self._refusal(b"token", token.encode(), client, check, partial(self._review_token, token, check))

    async def user_refusal(self, user: UserInfo, check: AccessCheck) -> Refusal | None:
        """Return why the request of an authenticated user is refused; ``None`` if it is allowed.

        Args:
            user: the user. The caller has authenticated the request.
            check: the permissions that the user needs.
        """
        identity = msgspec.json.encode(user, order="deterministic")
        return await self._refusal(b"user", identity, f"user {user.username}", check, partial(self._check, user, check))

    async def close(self) -> None:
        """Cancel outstanding reviews."""
        reviews = list(self._reviews.values())
        for review in reviews:
            review.cancel()
        await asyncio.gather(*reviews, return_exceptions=True)

    async def _refusal(
        self,
        kind: bytes,
        identity: bytes,
        client: str,
        check: AccessCheck,
        review: Callable[[], Awaitable[Refusal | None]],
    ) -> Refusal | None:
        """Return the cached result of a review, or start one."""
        key = hashlib.sha256(b"\0".join((kind, check.name.encode(), identity))).digest()
        now = self._clock.monotonic()
        known = self._allowed.get(key)
        if known is not None and now - known.at < self._allowed_seconds:
            self._allowed.move_to_end(key)
            return None
        denied = self._denied.get(key)
        if denied is not None and now - denied.at < DENIED_SECONDS:
            self._denied.move_to_end(key)
            return denied.refusal
        running = self._reviews.get(key)
        if running is None:
            if not (self._known.take(now) if known is not None else self._may_review(client, now)):
                return Refusal(reasons.TOO_MANY_REQUESTS)
            running = self._reviews[key] = asyncio.create_task(self._review(key, review), name="review a client")
        return await asyncio.shield(running)

    def _may_review(self, client: str, now: float) -> bool:
        return self._new_of.take(client, now) and self._new.take(now)

    async def _review(self, key: bytes, review: Callable[[], Awaitable[Refusal | None]]) -> Refusal | None:
        """Let the API server review a client, and cache the result."""
        try:
            refusal = await review()
        except (ApiError, Unreachable) as error:
            if (message := str(error)) != self._last_error:
                self._last_error = message
                log.warning("Failed to check the permissions of a client that requested %s: %s", self._name, message)
            known = self._allowed.get(key)
            usable = known is not None and self._clock.monotonic() - known.at < self._outage_seconds
            return None if usable else Refusal(reasons.REVIEW_FAILED)
        finally:
            del self._reviews[key]
        self._last_error = ""
        self._keep(key, _ReviewResult(refusal, self._clock.monotonic()))
        return refusal

    async def _review_token(self, token: str, check: AccessCheck) -> Refusal | None:
        review = await self._create(TOKEN_REVIEWS, {"token": token})
        if review.get("authenticated") is not True:
            return Refusal(reasons.UNAUTHENTICATED)
        user = review.get("user") or {}
        info = UserInfo(
            username=user.get("username", ""),
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            extra={key: tuple(values) for key, values in (user.get("extra") or {}).items()},
        )
        return await self._check(info, check)

    async def _check(self, user: UserInfo, check: AccessCheck) -> Refusal | None:
        """Return the first permission of a check that a user lacks; ``None`` if the user has all of them."""
        slots = asyncio.Semaphore(CONCURRENT_REVIEWS)
        extra = {key: list(values) for key, values in user.extra.items()}
        spec = {"user": user.username, "uid": user.uid, "groups": list(user.groups), "extra": extra}

        async def allowed(attributes: Mapping[str, Mapping[str, str]]) -> bool:
            async with slots:
                verdict = await self._create(SUBJECT_ACCESS_REVIEWS, {**spec, **attributes})
            return verdict.get("allowed") is True

        verdicts = await asyncio.gather(*map(allowed, check.attributes))
        for attributes, verdict in zip(check.attributes, verdicts, strict=True):
            if not verdict:
                return Refusal(reasons.UNAUTHORIZED, f"user {user.username} may not {describe_access(attributes)}")
        return None

    async def _create(self, resource: Any, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = await self._api.request("POST", resource.path(), body=body, timeout=REVIEW_TIMEOUT)
        return answer.get("status") or {}

    def _keep(self, key: bytes, verdict: _ReviewResult) -> None:
        self._allowed.pop(key, None)
        self._denied.pop(key, None)
        kept, most = (self._allowed, MAX_ALLOWED) if verdict.refusal is None else (self._denied, MAX_DENIED)
        kept[key] = verdict
        while len(kept) > most:
            kept.popitem(last=False)


def describe_access(attributes: Mapping[str, Mapping[str, str]]) -> str:
    """Return what a permission allows, such as ``list pods in all namespaces``, for messages."""
    path = attributes.get("nonResourceAttributes")
    if path is not None:
        return f"{path['verb']} {path['path']}"
    resource = attributes["resourceAttributes"]
    name = resource["resource"] + (f"/{resource['subresource']}" if resource.get("subresource") else "")
    group = f".{resource['group']}" if resource.get("group") else ""
    return f"{resource['verb']} {name}{group} in all namespaces"
