"""Answers the API server's admission requests: decode, review, check permissions, encode.

    POST /mutate/fail  ->  AdmissionReview -> rules with failurePolicy Fail, and some with Ignore -> JSON patch
    POST /validate/... ->  AdmissionReview -> rules -> SubjectAccessReview, if a refusal depends on it -> allowed or 403

If a request cannot be answered (it is no AdmissionReview, its namespace or a permission is unknown, or a rule fails),
the response is an HTTP error, never a decision. The API server then applies the failure policy of the rule: it refuses
the request, or admits it without the rule.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from trimtab.admission.access import FAILED, AccessUnknown, BindingAccess
from trimtab.admission.own_resources import OwnResourceReview
from trimtab.admission.report import RequestOutcome
from trimtab.admission.requests import AdmissionReview, NamespaceInfo, WireRequest
from trimtab.admission.reviewer import Decision, Reviewer
from trimtab.admission.rule_scopes import MUTATE, VALIDATE, WARN, Stage
from trimtab.admission.rules import Refusal
from trimtab.admission.webhooks import RESOURCES_PATH, WARN_PATH
from trimtab.api.placement_admission import FailurePolicy, Result, RuleName
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.events.event import truncate
from trimtab.kube.objects import Namespace
from trimtab.kube.resources import NAMESPACES
from trimtab.kube.watching.store import Store

log = logging.getLogger(__name__)

NAMESPACE_TIMEOUT: Final = 1.0
"""Seconds for reading a namespace that the informer does not know yet."""

LARGE_REQUEST: Final = 256 * 1024
"""Minimum size in bytes of a request that is reviewed in a thread, one at a time.

The review of an object of 3 MiB that was written to be expensive takes up to a second. Meanwhile the event loop answers
the requests of other users.
"""

MAX_WARNINGS: Final = 10
MAX_MESSAGE: Final = 1024
"""Maximum number of warnings and length of a message for the client."""

_decoder = msgspec.json.Decoder(AdmissionReview)
_encoder = msgspec.json.Encoder()


class AdmissionMetrics:
    """The metrics of the webhooks.

    Args:
        registry: the Prometheus registry.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "trimtab_admission_requests",
            "Admission requests by webhook and result: allowed, mutated, refused, or failed (the failure policy "
            "applies). If a rule with failurePolicy Ignore fails in /mutate/fail, the request is also counted as "
            "failed in /mutate/ignore.",
            ["webhook", "result"],
            registry=registry,
        )
        self.seconds = Histogram(
            "trimtab_admission_request_seconds",
            "Seconds from receiving an admission request to answering it, without setting up the connection.",
            ["webhook"],
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 2.5),
            registry=registry,
        )
        self.results = Counter(
            "trimtab_admission_rule_results",
            "Admission requests by rule and result: Allowed, Mutated, Refused or Warned.",
            ["rule", "result"],
            registry=registry,
        )
        self.access_reviews = Counter(
            "trimtab_admission_access_reviews",
            "Checks whether a user may create pods/binding, by result: allowed, denied, failed or cached.",
            ["result"],
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "trimtab_admission_certificate_expiry_timestamp_seconds",
            "Unix time at which the served certificate expires.",
            registry=registry,
        )
        self.policy_valid = Gauge(
            "trimtab_admission_policy_valid",
            "1 if the PlacementAdmission is valid or absent, 0 if it is invalid: its last valid version is applied.",
            registry=registry,
        )
        self.registered = Gauge(
            "trimtab_admission_webhooks_registered",
            "1 if the webhook configurations have the webhooks that the PlacementAdmission needs.",
            registry=registry,
        )


class AdmissionServer:
    """The handlers of the webhooks.

    Args:
        api: the API server, for namespaces that the informer does not know yet.
        namespaces: the store of namespaces.
        access: checks which users may create ``pods/binding``.
        reviewer: returns the rules in force; ``None`` if no PlacementAdmission exists.
        warn_only: returns whether requests are neither changed nor refused (mode Warn).
        review_resource: reviews an object of trimtab's own kinds.
        metrics: the metrics.
        report: called with the outcome of each request to which a rule applied.

    Attributes:
        posts: the handlers by path, from the body of a POST request to the status and the body of its response.
    """

    def __init__(
        self,
        *,
        api: Api,
        namespaces: Store[Namespace],
        access: BindingAccess,
        reviewer: Callable[[], Reviewer | None],
        warn_only: Callable[[], bool],
        review_resource: Callable[[WireRequest], Awaitable[OwnResourceReview]],
        metrics: AdmissionMetrics,
        report: Callable[[RequestOutcome], None] = lambda _outcome: None,
    ) -> None:
        self._api = api
        self._namespaces = namespaces
        self._access = access
        self._reviewer = reviewer
        self._warn_only = warn_only
        self._review_resource = review_resource
        self._metrics = metrics
        self._report = report
        self._counters: dict[tuple[RuleName, Result], Counter] = {}
        self._reviewing_large = asyncio.Lock()
        stages: tuple[Stage, ...] = (MUTATE, VALIDATE)
        policies: tuple[FailurePolicy, ...] = ("Fail", "Ignore")
        self.posts = {
            path: self._handler(path, partial(self._apply_rules, stage=stage, failure_policy=policy))
            for stage in stages
            for policy in policies
            if (path := f"/{stage}/{policy.lower()}")
        }
        warn = partial(self._apply_rules, stage=WARN, failure_policy="Ignore")
        self.posts[WARN_PATH] = self._handler(WARN_PATH, warn)
        self.posts[RESOURCES_PATH] = self._handler(RESOURCES_PATH, self._validate_resource)

    def _handler(
        self, path: str, answer: Callable[[WireRequest, int], Awaitable[_Response]]
    ) -> Callable[[bytes], Awaitable[tuple[int, bytes]]]:
        results = {each: self._metrics.requests.labels(path, each) for each in (_ALLOWED, _MUTATED, _REFUSED, FAILED)}
        seconds = self._metrics.seconds.labels(path)

        async def handle(body: bytes) -> tuple[int, bytes]:
            began = time.perf_counter()
            status, content, result = 200, b"", FAILED
            try:
                response = await answer(_decoded(body), len(body))
                result = _REFUSED if not response.allowed else _MUTATED if response.patch else _ALLOWED
                content = _encoder.encode(_ReviewResponse(response))
            except InputError as error:
                status, content = 400, _failure(path, error)
            except (AccessUnknown, ApiError, Unreachable) as error:
                status, content = 503, _failure(path, error)
            finally:
                results[result].inc()
                seconds.observe(time.perf_counter() - began)
            return status, content

        return handle

    async def _apply_rules(
        self, request: WireRequest, size: int, *, stage: Stage, failure_policy: FailurePolicy
    ) -> _Response:
        reviewer = self._reviewer()
        if reviewer is None:
            return _Response(request.uid, allowed=True)
        namespace = await self._namespace(request.namespace)
        decide = partial(reviewer.decide, request, namespace, stage=stage, failure_policy=failure_policy)
        if size < LARGE_REQUEST:
            decision = decide()
        else:
            async with self._reviewing_large:
                decision = await asyncio.to_thread(decide)
        review = decision.review
        if review.failed:
            self._metrics.requests.labels(f"/{stage}/ignore", FAILED).inc()
        refusals = review.refusals
        if any(refusal.unless_may_bind for _, refusal in refusals):
            name = request.name if decision.is_pod else ""
            if await self._access.may_bind(request.user_info, request.namespace, name):
                refusals = tuple(each for each in refusals if not each[1].unless_may_bind)
        warn_only = self._warn_only()
        self._record(request, decision, refusals, warn_only=warn_only)
        return _response(request.uid, refusals, review.warnings, review.patch, warn_only=warn_only)

    async def _validate_resource(self, request: WireRequest, _size: int) -> _Response:
        review = await self._review_resource(request)
        warnings = _warnings(str(each) for each in review.warnings)
        if not review.errors:
            return _Response(request.uid, allowed=True, warnings=warnings)
        status = _Status(truncate("; ".join(str(each) for each in review.errors), MAX_MESSAGE), "Invalid", 422)
        return _Response(request.uid, allowed=False, status=status, warnings=warnings)

    async def _namespace(self, name: str) -> NamespaceInfo:
        """Return a namespace. A namespace that has just been created is read from the API server.

        Raises:
            ApiError: the namespace could not be read.
            Unreachable: there was no response.
        """
        found = self._namespaces.get(name)
        if found is not None:
            return NamespaceInfo(name, found.labels, found.annotations)
        read = await verbs.get(self._api, NAMESPACES, name, timeout=NAMESPACE_TIMEOUT)
        metadata = read.get("metadata") or {}
        return NamespaceInfo(name, metadata.get("labels") or {}, metadata.get("annotations") or {})

    def _record(
        self,
        request: WireRequest,
        decision: Decision,
        refusals: Sequence[tuple[RuleName, Refusal]],
        *,
        warn_only: bool,
    ) -> None:
        """Count the results of the rules, and report them. Dry runs are not counted."""
        review = decision.review
        if request.dry_run or not (review.applied or refusals):
            return
        results: dict[RuleName, Result] = dict.fromkeys(review.applied, "Allowed")
        results.update(dict.fromkeys(review.mutated, "Mutated"))
        results.update((rule, "Warned" if warn_only else "Refused") for rule, _ in refusals)
        for counted in results.items():
            counter = self._counters.get(counted)
            if counter is None:  # finding the labels of a metric takes longer than most rules
                counter = self._counters[counted] = self._metrics.results.labels(*counted)
            counter.inc()
        outcome = RequestOutcome(
            results=results,
            refusals=tuple((rule, refusal.message) for rule, refusal in refusals),
            kind=decision.kind,
            namespace=request.namespace,
            name=decision.name,
        )
        try:
            self._report(outcome)
        except Exception:
            log.exception("Failed to record metrics and an event for an admission request")


_ALLOWED: Final = "allowed"
_MUTATED: Final = "mutated"
_REFUSED: Final = "refused"


class _Status(Struct, frozen=True):
    """metav1.Status of a refusal."""

    message: str
    reason: str = "Forbidden"
    code: int = 403


class _Response(Struct, frozen=True, rename="camel", omit_defaults=True):
    """admission/v1 AdmissionResponse."""

    uid: str
    allowed: bool
    status: _Status | None = None
    patch_type: str | None = None
    patch: bytes | None = None  # encoded in base64
    warnings: tuple[str, ...] = ()


class _ReviewResponse(Struct, frozen=True, rename="camel"):
    """admission/v1 AdmissionReview with a response."""

    response: _Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


def _decoded(body: bytes) -> WireRequest:
    """Decode an AdmissionReview.

    Raises:
        InputError: it is not one.
    """
    try:
        return _decoder.decode(body).request
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not an AdmissionReview: {error}") from error


def _response(
    uid: str,
    refusals: Sequence[tuple[RuleName, Refusal]],
    warnings: Sequence[str],
    patch: bytes,
    *,
    warn_only: bool,
) -> _Response:
    messages = tuple(dict.fromkeys(refusal.message for _, refusal in refusals))
    if warn_only:
        return _Response(
            uid, allowed=True, warnings=_warnings((*(f"would be refused: {m}" for m in messages), *warnings))
        )
    if messages:
        status = _Status(truncate("; ".join(messages), MAX_MESSAGE))
        return _Response(uid, allowed=False, status=status, warnings=_warnings(warnings))
    if patch:
        return _Response(uid, allowed=True, patch_type="JSONPatch", patch=patch, warnings=_warnings(warnings))
    return _Response(uid, allowed=True, warnings=_warnings(warnings))


def _warnings(messages: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(truncate(each, MAX_MESSAGE) for each in messages))[:MAX_WARNINGS]


def _failure(path: str, error: Exception) -> bytes:
    message = truncate(str(error), MAX_MESSAGE)
    log.warning("Failed to process an admission request at path %s: %s", path, message)
    return message.encode()
