"""Asks the API server whether the user of a request may create ``pods/binding``, with SubjectAccessReviews.

A user who may bind pods may choose their nodes anyway, so OpenShift's PodNodeConstraints does not restrict such users.
The answers are cached for a limited time, and requests that need the same review share it.

The API server waits for the webhook while the webhook waits for the review. The timeout of a review is therefore much
shorter than that of the webhooks. If there is no answer, the webhook fails, and the API server applies the failure
policy of the rule.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from trimtab.admission.requests import UserInfo
from trimtab.controller.loop import end_tasks
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import SUBJECT_ACCESS_REVIEWS

ALLOWED_SECONDS: Final = 30.0
DENIED_SECONDS: Final = 5.0
"""Seconds for which an answer is cached. An administrator who grants a permission expects it to work soon."""
MAX_ALLOWED: Final = 8192
MAX_DENIED: Final = 2048
"""Maximum number of cached answers. The least recently used one is dropped."""
REVIEW_TIMEOUT: Final = 1.0
"""Seconds for one review. A request needs at most two."""
MAX_REVIEWS: Final = 64
"""Maximum number of outstanding reviews. Further requests fail at once instead of waiting until their timeout."""

ALLOWED: Final = "allowed"
DENIED: Final = "denied"
FAILED: Final = "failed"
CACHED: Final = "cached"

_encoder = msgspec.json.Encoder(order="deterministic")


class AccessUnknown(Exception):
    """The API server did not answer a SubjectAccessReview in time."""


class BindingAccess:
    """Checks which users may create ``pods/binding``.

    Args:
        api: the API server.
        clock: provides the time.
        observe: called with the result of each check: :data:`ALLOWED`, :data:`DENIED` or :data:`FAILED` for a
            review, :data:`CACHED` for an answer from the cache.
    """

    def __init__(
        self, api: Api, *, clock: Clock = SYSTEM_CLOCK, observe: Callable[[str], None] = lambda _result: None
    ) -> None:
        self._api = api
        self._clock = clock
        self._observe = observe
        self._allowed: OrderedDict[bytes, float] = OrderedDict()
        self._denied: OrderedDict[bytes, float] = OrderedDict()
        self._reviews: dict[bytes, asyncio.Task[bool]] = {}

    async def may_bind(self, user: UserInfo, namespace: str, pod: str = "") -> bool:
        """Return whether a user may create ``pods/binding``.

        A permission for all pods of the namespace is checked first, because its answer serves requests for all pods.

        Args:
            user: the user of the request.
            namespace: the namespace.
            pod: name of the pod; ``""`` if it has no name yet, or for a workload.

        Raises:
            AccessUnknown: the API server did not answer in time.
        """
        if await self._answer(user, namespace, ""):
            return True
        return bool(pod) and await self._answer(user, namespace, pod)

    async def close(self) -> None:
        """Cancel outstanding reviews."""
        await end_tasks(self._reviews.values())

    async def _answer(self, user: UserInfo, namespace: str, pod: str) -> bool:
        spec = _review_spec(user, namespace, pod)
        key = hashlib.sha256(_encoder.encode(spec)).digest()
        known = self._cached(key)
        if known is not None:
            self._observe(CACHED)
            return known
        review = self._reviews.get(key)
        if review is None:
            if len(self._reviews) >= MAX_REVIEWS:
                self._observe(FAILED)
                raise AccessUnknown(f"{MAX_REVIEWS} SubjectAccessReviews are outstanding")
            review = self._reviews[key] = asyncio.create_task(self._review(key, spec), name="SubjectAccessReview")
            review.add_done_callback(_ignore_failure)
        return await asyncio.shield(review)

    def _cached(self, key: bytes) -> bool | None:
        now = self._clock.monotonic()
        for answers, seconds, allowed in (
            (self._allowed, ALLOWED_SECONDS, True),
            (self._denied, DENIED_SECONDS, False),
        ):
            at = answers.get(key)
            if at is not None:
                if now - at < seconds:
                    answers.move_to_end(key)
                    return allowed
                del answers[key]
        return None

    async def _review(self, key: bytes, spec: dict[str, Any]) -> bool:
        resource = SUBJECT_ACCESS_REVIEWS
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT):
                answer = await self._api.request("POST", resource.path(), body=body, timeout=REVIEW_TIMEOUT)
        except (ApiError, Unreachable, TimeoutError) as error:
            self._observe(FAILED)
            why = str(error) or f"no answer within {REVIEW_TIMEOUT:g} s"
            raise AccessUnknown(f"SubjectAccessReview failed: {why}") from error
        finally:
            del self._reviews[key]
        allowed = (answer.get("status") or {}).get("allowed") is True
        self._observe(ALLOWED if allowed else DENIED)
        answers, most = (self._allowed, MAX_ALLOWED) if allowed else (self._denied, MAX_DENIED)
        answers[key] = self._clock.monotonic()
        while len(answers) > most:
            answers.popitem(last=False)
        return allowed


def _review_spec(user: UserInfo, namespace: str, pod: str) -> dict[str, Any]:
    attributes = {
        "verb": "create",
        "group": "",
        "version": "v1",
        "resource": "pods",
        "subresource": "binding",
        "namespace": namespace,
    }
    return {
        "user": user.username,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra.items()},
        "resourceAttributes": attributes | ({"name": pod} if pod else {}),
    }


def _ignore_failure(review: asyncio.Task[bool]) -> None:
    """Retrieve the exception of a review, which asyncio would log if all waiting requests were cancelled."""
    if not review.cancelled():
        review.exception()
