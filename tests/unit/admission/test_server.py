"""Requests of the API server and their answers, byte for byte as they travel."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections import Counter
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from tests.admission_requests import admission_spec
from tests.fakes.api import FakeApi
from tests.fakes.clock import SetClock
from trimtab.admission.access import BindingAccess
from trimtab.admission.active_rules import ActiveRules, decode_stored_admission
from trimtab.admission.own_resources import OwnResourceReview
from trimtab.admission.report import RequestOutcome
from trimtab.admission.requests import WireRequest
from trimtab.admission.reviewer import Reviewer
from trimtab.admission.rules.toleration_seconds import DefaultTolerationSecondsRule
from trimtab.admission.server import LARGE_REQUEST, AdmissionMetrics, AdmissionServer
from trimtab.api.schema import FieldError
from trimtab.kube.api import Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Namespace
from trimtab.kube.resources import NAMESPACES
from trimtab.kube.watching.store import Store

HARDWARE = """
specialHardware: {classes: [{name: gpu, taint: {key: gpu}, resources: [example.com/gpu], exclusive: true}]}
"""
TOLERATING = {"containers": [], "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}


class Api(FakeApi):
    """Answers SubjectAccessReviews with `allowed`, or not at all."""

    allowed: bool | None = False

    def _answer(self, call: Any) -> Any:
        if call.path.endswith("/subjectaccessreviews"):
            if self.allowed is None:
                raise Unreachable("no answer")
            return {"status": {"allowed": self.allowed}}
        return super()._answer(call)


class Server:
    """The handlers with one namespace `shop`, and what they report."""

    def __init__(self, text: str | None = HARDWARE) -> None:
        self.api = Api()
        self.registry = CollectorRegistry()
        self.outcomes: list[RequestOutcome] = []
        self.resource_review = OwnResourceReview()
        namespaces: Store[Namespace] = Store()
        namespaces.apply(Namespace("shop", "u"))
        spec = None if text is None else admission_spec(text)
        reviewer = None if spec is None else Reviewer(spec)

        async def review(request: WireRequest) -> OwnResourceReview:
            assert request.kind.kind == "DeschedulerPolicy"
            return self.resource_review

        self.server = AdmissionServer(
            api=self.api,
            namespaces=namespaces,
            access=BindingAccess(self.api, clock=SetClock()),
            reviewer=lambda: reviewer,
            warn_only=lambda: spec is not None and spec.mode == "Warn",
            review_resource=review,
            metrics=AdmissionMetrics(self.registry),
            report=self.outcomes.append,
        )

    async def post(self, path: str, body: bytes) -> tuple[int, dict[str, Any] | str]:
        status, content = await self.server.posts[path](body)
        if status != 200:
            return status, content.decode()
        review = msgspec.json.decode(content)
        assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        return status, review["response"]

    async def ask(self, path: str, spec: dict[str, Any], **fields: Any) -> dict[str, Any]:
        status, response = await self.post(path, review_of(spec, **fields))
        assert status == 200
        assert isinstance(response, dict)
        assert response["uid"] == "u-1"
        return response

    def count(self, metric: str) -> Counter[str]:
        found: Counter[str] = Counter()
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == f"{metric}_total" and sample.value:
                    found[" ".join(sample.labels.values())] += int(sample.value)
        return found


def review_of(spec: dict[str, Any], *, kind: str = "Pod", group: str = "", **fields: Any) -> bytes:
    request = {
        "uid": "u-1",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "shop",
        "name": "web-1",
        "userInfo": {"username": "alice", "groups": ["system:authenticated"], "extra": {"x": ["y"]}},
        "object": {"apiVersion": "v1", "kind": kind, "metadata": {"name": "web-1"}, "spec": spec},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions"},
        **fields,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def gpu_pod() -> dict[str, Any]:
    return {"containers": [{"name": "a", "resources": {"requests": {"example.com/gpu": "1"}}}]}


async def test_change_is_a_json_patch_in_base64() -> None:
    server = Server()
    response = await server.ask("/mutate/fail", gpu_pod())
    assert response["allowed"] is True
    assert response["patchType"] == "JSONPatch"
    patch = msgspec.json.decode(base64.b64decode(response["patch"]))
    assert [each["op"] for each in patch] == ["add"]
    assert patch[0]["path"] == "/spec/tolerations"
    assert patch[0]["value"][0]["key"] == "gpu"
    assert server.outcomes[0].results == {"SpecialHardware": "Mutated"}
    assert server.count("trimtab_admission_requests") == {"/mutate/fail mutated": 1}


async def test_refusal_is_a_403_with_the_message_of_the_rule() -> None:
    server = Server()
    response = await server.ask("/validate/fail", TOLERATING)
    assert response["allowed"] is False
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")
    [outcome] = server.outcomes
    assert outcome.results == {"SpecialHardware": "Refused"}
    assert outcome.refusals == (("SpecialHardware", response["status"]["message"]),)
    assert (outcome.kind, outcome.namespace, outcome.name) == ("Pod", "shop", "web-1")
    assert server.count("trimtab_admission_rule_results") == {"SpecialHardware Refused": 1}


async def test_other_requests_are_allowed_without_a_patch() -> None:
    server = Server()
    plain = {"uid": "u-1", "allowed": True}
    assert await server.ask("/mutate/fail", {"containers": []}) == plain
    assert await server.ask("/validate/fail", {"containers": []}) == plain
    assert await server.ask("/validate/ignore", TOLERATING) == plain  # the rule has failurePolicy Fail
    assert await Server(None).ask("/validate/fail", TOLERATING) == plain


async def test_conditional_refusal_depends_on_pods_binding() -> None:
    server = Server()
    daemon_set = {"template": {"spec": TOLERATING}}
    refused = await server.ask("/validate/fail", daemon_set, kind="DaemonSet", group="apps")
    assert refused["allowed"] is False
    allowed = Server()
    allowed.api.allowed = True
    assert (await allowed.ask("/validate/fail", daemon_set, kind="DaemonSet", group="apps"))["allowed"] is True
    [call] = allowed.api.sent("POST")
    assert call.body["spec"]["user"] == "alice"
    assert "name" not in call.body["spec"]["resourceAttributes"]


async def test_permission_is_that_of_the_user_of_each_request() -> None:
    """Reviews of similar requests are cached without the identifiers of their users."""
    server = Server()
    fields = {"kind": "DaemonSet", "group": "apps"}
    users = [{"username": "alice", "uid": uid, "groups": ["a"], "extra": {"x": [uid]}} for uid in ("1", "2")]
    for user in users:
        await server.ask("/validate/fail", {"template": {"spec": TOLERATING}}, userInfo=user, **fields)
    sent = [call.body["spec"] for call in server.api.sent("POST")]
    assert [(each["uid"], each["extra"]) for each in sent] == [("1", {"x": ["1"]}), ("2", {"x": ["2"]})]


async def test_unknown_permission_is_an_http_error() -> None:
    server = Server()
    server.api.allowed = None
    body = review_of({"template": {"spec": TOLERATING}}, kind="DaemonSet", group="apps")
    status, message = await server.post("/validate/fail", body)
    assert status == 503
    assert "SubjectAccessReview failed" in message
    assert server.count("trimtab_admission_requests") == {"/validate/fail failed": 1}
    assert server.count("trimtab_admission_access_reviews") == Counter()


SEPARATE = """
dedicatedNodes: {pools: [{name: a, namespaces: [shop], taint: {key: pool, value: a}}]}
specialHardware:
  failurePolicy: Ignore
  classes: [{name: gpu, taint: {key: gpu}, resources: [example.com/gpu], exclusive: true}]
"""


async def test_unknown_permission_for_a_rule_with_ignore_refuses_no_request() -> None:
    server = Server(SEPARATE)
    server.api.allowed = None
    body = review_of({"nodeName": "n1", "nodeSelector": {"pool": "a"}})  # a pod of the pool
    for path in ("/mutate/fail", "/validate/fail"):
        status, response = await server.post(path, body)
        assert (status, isinstance(response, dict) and response["allowed"]) == (200, True)
    status, _ = await server.post("/validate/ignore", body)
    assert status == 503


async def test_failed_rule_with_ignore_is_counted_for_the_webhook_with_ignore(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError

    monkeypatch.setattr(DefaultTolerationSecondsRule, "mutate", fail)
    server = Server("{defaultTolerationSeconds: {}, podNodeSelector: {clusterDefaultNodeSelector: pool=a}}")
    assert "patch" in await server.ask("/mutate/fail", {"containers": []})
    assert server.outcomes[0].results == {"PodNodeSelector": "Mutated"}
    assert server.count("trimtab_admission_requests") == {"/mutate/fail mutated": 1, "/mutate/ignore failed": 1}


async def test_mode_warn_refuses_and_changes_nothing() -> None:
    server = Server(f"mode: Warn\n{HARDWARE}")
    refused = await server.ask("/validate/fail", TOLERATING)
    assert refused["allowed"] is True
    assert any("would be refused" in each for each in refused["warnings"])
    changed = await server.ask("/mutate/fail", gpu_pod())
    assert "patch" not in changed
    assert server.outcomes[0].results == {"SpecialHardware": "Warned"}


async def test_dry_run_is_answered_but_not_counted() -> None:
    server = Server()
    assert (await server.ask("/validate/fail", TOLERATING, dryRun=True))["allowed"] is False
    assert not server.outcomes


async def test_new_namespace_is_read_from_the_api_server() -> None:
    server = Server()
    server.api.put(NAMESPACES.path("new"), {"metadata": {"name": "new", "annotations": {"a": "b"}}})
    assert (await server.ask("/validate/fail", TOLERATING, namespace="new"))["allowed"] is False
    status, _ = await server.post("/validate/fail", review_of(TOLERATING, namespace="missing"))
    assert status == 503


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"request": {}}', b'{"request": null}', b"[" * 100_000])
async def test_body_that_is_no_review_is_a_client_error(body: bytes) -> None:
    status, _ = await Server().post("/validate/fail", body)
    assert status == 400


async def test_object_that_cannot_be_decoded_is_not_admitted() -> None:
    server = Server()
    status, response = await server.post("/validate/fail", review_of({"tolerations": "all", "containers": []}))
    assert status != 200 or (isinstance(response, dict) and not response["allowed"])


async def test_failed_report_does_not_fail_the_request(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.server._report = lambda _outcome: 1 / 0  # type: ignore[assignment,return-value]
    assert (await server.ask("/validate/fail", {"containers": []}))["allowed"] is True
    assert "Failed to record metrics and an event" in caplog.text


async def test_warnings_about_a_template_are_given_whatever_the_failure_policy_and_not_counted() -> None:
    server = Server('podNodeSelector: {clusterDefaultNodeSelector: "pool=a", failurePolicy: Fail}')
    template = {"template": {"spec": {"containers": []}}}
    response = await server.ask("/warn", template, kind="DaemonSet", group="apps")
    assert response["allowed"] is True
    assert "pool=a" in response["warnings"][0]
    broken = {"template": {"spec": {"nodeSelector": "all"}}}
    assert await server.ask("/warn", broken, kind="DaemonSet", group="apps") == {"uid": "u-1", "allowed": True}
    assert (server.outcomes, server.count("trimtab_admission_rule_results")) == ([], {})


async def test_large_requests_are_reviewed_one_at_a_time_and_do_not_delay_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, decide = Server(), Reviewer.decide
    released, reviewing = threading.Event(), []

    def slow(self: Reviewer, request: WireRequest, *args: Any, **options: Any) -> Any:
        reviewing.append(threading.current_thread() is threading.main_thread())
        if not reviewing[-1]:
            assert released.wait(30)
        return decide(self, request, *args, **options)

    monkeypatch.setattr(Reviewer, "decide", slow)
    large = {**TOLERATING, "hostname": "h" * LARGE_REQUEST}
    waiting = [asyncio.create_task(server.ask("/validate/fail", large)) for _ in range(2)]
    while not reviewing:  # noqa: ASYNC110 (a thread appends to it)
        await asyncio.sleep(0.001)
    for _ in range(3):
        assert not (await server.ask("/validate/fail", TOLERATING))["allowed"]
    assert reviewing == [False, True, True, True]
    released.set()
    assert [each["allowed"] for each in await asyncio.gather(*waiting)] == [False, False]


async def test_own_resource_is_refused_with_its_errors_and_warnings() -> None:
    server = Server()
    fields = {"kind": "DeschedulerPolicy", "group": "trimtab.dev"}
    assert (await server.ask("/validate/resources", {}, **fields)) == {"uid": "u-1", "allowed": True}
    server.resource_review = OwnResourceReview((FieldError("spec.x", "is wrong"),), (FieldError("spec.y", "is odd"),))
    response = await server.ask("/validate/resources", {}, **fields)
    assert response["allowed"] is False
    assert response["status"] == {"message": "spec.x: is wrong", "reason": "Invalid", "code": 422}
    assert response["warnings"] == ["spec.y: is odd"]


def policy(generation: int, spec: Any, *, uid: str = "u", name: str = "default") -> Any:
    metadata = {"name": name, "uid": uid, "generation": generation, "resourceVersion": str(generation)}
    body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "PlacementAdmission", "metadata": metadata, "spec": spec}
    return decode_stored_admission(msgspec.json.encode(body))


def test_last_valid_policy_stays_in_force() -> None:
    changes: list[int] = []
    source = ActiveRules(Reviewer, changed=lambda: changes.append(1))
    valid = policy(1, {"podNodeSelector": {}})
    source.observe(None, valid)
    assert source.applied is valid
    rules = source.rules
    assert rules is not None
    invalid = policy(2, {"podNodeSelector": {"clusterDefaultNodeSelector": 7}})
    source.observe(valid, invalid)
    assert source.applied is valid
    assert source.rules is rules
    assert "clusterDefaultNodeSelector" in source.problem
    assert source.check() is None
    again = policy(3, {"podNodeSelector": {"checkUpdates": False}})
    source.observe(invalid, again)
    assert source.applied is again
    assert not source.problem
    source.observe(again, None)
    assert (source.spec, source.rules, source.latest) == (None, None, None)
    assert len(changes) == 4


def test_policy_that_is_invalid_at_the_start_is_not_ready() -> None:
    source = ActiveRules(Reviewer)
    source.observe(None, policy(1, {"unknown": True}))
    assert "unknown" in (source.check() or "")
    assert source.spec is None


def test_rules_that_cannot_be_compiled_are_a_problem() -> None:
    error = InputError("rule x is wrong")

    def fail(_spec: Any) -> None:
        raise error

    source = ActiveRules(fail)
    source.observe(None, policy(1, {}))
    assert source.problem == str(error)


def test_status_change_compiles_nothing() -> None:
    compiled: list[int] = []
    source = ActiveRules(lambda _spec: compiled.append(1) or 1)  # type: ignore[func-returns-value]
    first, second = policy(1, {}), policy(1, {})
    source.observe(None, first)
    source.observe(first, second)
    assert source.latest is second
    assert compiled == [1]


def test_objects_of_other_names_are_ignored() -> None:
    source = ActiveRules(Reviewer)
    source.observe(None, policy(1, {}, name="other"))
    assert source.latest is None
    with pytest.raises(InputError):
        decode_stored_admission(b"[]")
