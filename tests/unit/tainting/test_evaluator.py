"""What is to be done with a pod that was due, what the server's answers mean, and which nodes' pods are stuck."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.caches import Caches
from tests.fixtures.golden import Golden
from tests.unit.tainting.deadlines import START, pod, taint
from trimtab.api import reasons
from trimtab.api.taint_manager import KeyPolicy, TaintManagerSpec
from trimtab.disruption.evictor.eviction_api import response_of
from trimtab.disruption.evictor.requests import BUDGET_REFUSER, EvictionResponse, ResponseCode
from trimtab.kube.api import (
    ApiError,
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
from trimtab.kube.objects import Node, NodeCondition, Pod, Taint
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.due_pods import (
    MARK_TRIES,
    DuePod,
    DuePodOutcome,
    DuePodResult,
    EvictionDecision,
    decide,
    maximum_waits,
    must_retry_mark,
    outcome_of,
)
from trimtab.tainting.report.status import KUBELET_DELAY, stuck_nodes

WEB = pod()
DUE = Deadline(WEB.key, WEB.uid, "n1", START, START, taint(), None)
LATER = replace(DUE, due=START + 100)
OTHER = replace(DUE, taint=taint("b"))

# --- what is to be done ----------------------------------------------------------------------------------------------

JUDGED: dict[str, tuple[Deadline | None, Pod | None, tuple[str | None, DuePodResult | None]]] = {
    "due": (DUE, WEB, ("Delete", None)),
    "by eviction": (OTHER, WEB, ("Evict", None)),
    "due later": (LATER, WEB, (None, None)),
    "not due at all": (None, WEB, (None, DuePodResult.NOT_DUE)),
    "gone": (DUE, None, (None, DuePodResult.GONE)),
    "another of its name": (DUE, replace(WEB, uid="u2"), (None, DuePodResult.GONE)),
    "another of its name in the book": (replace(DUE, uid="u2"), WEB, (None, DuePodResult.NOT_DUE)),
    "being deleted": (DUE, replace(WEB, deleted=START + 5), (None, DuePodResult.GONE)),
    "ended": (DUE, replace(WEB, phase="Failed"), (None, DuePodResult.NOT_DUE)),
    "elsewhere": (DUE, replace(WEB, node="n2"), (None, DuePodResult.NOT_DUE)),
}


@pytest.mark.parametrize(("found", "there", "expected"), JUDGED.values(), ids=JUDGED)
def test_decision_for_due_pod(
    found: Deadline | None, there: Pod | None, expected: tuple[str | None, DuePodResult | None]
) -> None:
    verdict = decide(DUE, found, there, maximum_waits={"b": 60.0}, now=START + 1)
    assert (verdict.action, verdict.why and verdict.why.result) == expected


@pytest.mark.parametrize(
    ("at", "other", "expected"),
    [
        (59, None, ("Evict", 60, False)),
        (60, None, ("Delete", 60, True)),
        (10, replace(DUE, due=START + 30), ("Evict", 30, False)),
        (30, replace(DUE, due=START + 30), ("Delete", 30, False)),
        (10, replace(DUE, due=START + 90), ("Evict", 60, False)),
        (10, replace(OTHER, taint=taint("c"), due=START + 20), ("Evict", 25, False)),
        (25, replace(OTHER, taint=taint("c"), due=START + 20), ("Delete", 25, True)),
    ],
    ids=[
        "waits",
        "has waited",
        "another taint will end it",
        "another taint ends it",
        "another taint comes later",
        "another taint lets it wait for less",
        "it has waited for that",
    ],
)
def test_eviction_turns_into_deletion_after_maximum_wait(
    at: float, other: Deadline | None, expected: tuple[str, float, bool]
) -> None:
    verdict = decide(
        OTHER,
        OTHER,
        WEB,
        maximum_waits={"b": 60.0, "c": 5.0},
        now=START + at,
        deadlines_by_taint=lambda _: [] if other is None else [other],
    )
    assert (verdict.action, verdict.evict_until - START, verdict.waited) == expected


others = st.lists(
    st.builds(
        lambda key, due: replace(DUE, taint=taint(key), due=START + due), st.sampled_from("abc"), st.integers(0, 90)
    ),
    max_size=4,
)


@given(more=others, fewer=others, at=st.integers(0, 99))
def test_another_taint_never_extends_the_wait(more: list[Deadline], fewer: list[Deadline], at: int) -> None:
    def judged(each: list[Deadline]) -> EvictionDecision:
        return decide(
            OTHER, OTHER, WEB, maximum_waits={"b": 60.0, "c": 5.0}, now=START + at, deadlines_by_taint=lambda _: each
        )

    some, all_ = judged(fewer), judged(fewer + more)
    assert all_.evict_until <= some.evict_until <= START + 60
    assert (all_.action == "Delete") == (all_.evict_until <= START + at)
    assert not (some.action == "Delete" and all_.action == "Evict")


def test_maximum_waits_by_taint_key() -> None:
    spec = TaintManagerSpec(
        taints=(
            KeyPolicy(key="a", policy="Delete"),
            KeyPolicy(key="b", policy="Evict"),
            KeyPolicy(key="c", policy="Evict", maximum_wait="1h"),
        )
    )
    assert maximum_waits(spec) == {"b": 600.0, "c": 3600.0}


# --- answers ---------------------------------------------------------------------------------------------------------

DENIED = 'admission webhook "guard.example.com" denied the request: no'
FAILING = 'Internal error occurred: failed calling webhook "guard.example.com": timed out'
POLICY = "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: no"
OTHER_UID = 'Pod "db" is invalid: metadata.uid: Invalid value: "u": field is immutable'
RBAC = 'pods "web" is forbidden: User "x" cannot delete resource "pods" in API group "" in the namespace "shop"'

ERRORS: dict[str, tuple[ApiError | Unreachable, tuple[DuePodResult, str, bool]]] = {
    "not found": (NotFound('pods "web" not found', status=404), (DuePodResult.GONE, "", False)),
    "another uid": (
        Conflict("Precondition failed: UID in precondition: a", status=409),
        (DuePodResult.GONE, "", False),
    ),
    "a mark for another uid": (Invalid(OTHER_UID, status=422), (DuePodResult.GONE, "", False)),
    "a pod called uid": (Conflict('cannot delete "uid"', status=409), (DuePodResult.FAILED, "", False)),
    "a webhook denies": (Forbidden(DENIED, status=403), (DuePodResult.REFUSED, "guard.example.com", False)),
    "a webhook denies by a code": (NotFound(DENIED, status=404), (DuePodResult.REFUSED, "guard.example.com", False)),
    "a webhook fails": (ServerError(FAILING, status=500), (DuePodResult.REFUSED, "guard.example.com", False)),
    "a policy denies": (
        Invalid(POLICY, status=422),
        (DuePodResult.REFUSED, "ValidatingAdmissionPolicy 'keep'", False),
    ),
    "no right": (Forbidden(RBAC, status=403), (DuePodResult.REFUSED, "", False)),
    "overloaded": (TooManyRequests("later", status=429, retry_after=7), (DuePodResult.FAILED, "", False)),
    "no login": (Unauthorized("who?", status=401), (DuePodResult.FAILED, "", False)),
    "a server's error": (ServerError("etcd", status=500), (DuePodResult.FAILED, "", True)),
    "no answer": (Unreachable("reset"), (DuePodResult.FAILED, "", True)),
    "not sent": (NotLeading("POST", "/eviction"), (DuePodResult.FAILED, "", False)),
}


@pytest.mark.parametrize(("error", "expected"), ERRORS.values(), ids=ERRORS)
def test_error_names_refuser_and_uncertainty(
    error: ApiError | Unreachable, expected: tuple[DuePodResult, str, bool]
) -> None:
    response = outcome_of(response_of(error), done=DuePodResult.DELETED)
    assert (response.result, response.refuser, response.uncertain) == expected


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (ResponseCode.GRANTED, (DuePodResult.EVICTED, reasons.NO_EXECUTE_TAINT, "")),
        (ResponseCode.GONE, (DuePodResult.GONE, reasons.ALREADY_GONE, "")),
        (ResponseCode.BUDGET, (DuePodResult.REFUSED, reasons.DISRUPTION_BUDGET, BUDGET_REFUSER)),
        (ResponseCode.SEVERAL_BUDGETS, (DuePodResult.REFUSED, reasons.DISRUPTION_BUDGET, BUDGET_REFUSER)),
        (ResponseCode.BACKGROUND, (DuePodResult.REFUSED, reasons.EVICTION_IN_BACKGROUND, "virt.example.com")),
    ],
)
def test_response_codes_map_to_results(answered: ResponseCode, expected: tuple[DuePodResult, str, str]) -> None:
    response = outcome_of(EvictionResponse(answered, "no", expected[2]), done=DuePodResult.EVICTED)
    assert (response.result, response.reason, response.refuser) == expected


# --- the condition DisruptionTarget -----------------------------------------------------------------------------------


FAILED = DuePodOutcome(DuePodResult.FAILED, reasons.DELETION_FAILED, "no answer")


@pytest.mark.parametrize(
    ("result", "tries"),
    [(DuePodResult.FAILED, MARK_TRIES - 1), (DuePodResult.REFUSED, 0), (DuePodResult.GONE, 10)],
    ids=["fails: a few times", "refused: not at all", "gone: nothing to delete"],
)
def test_failed_mark_is_retried_before_deletion(result: DuePodResult, tries: int) -> None:
    job = DuePod(DUE)
    assert [must_retry_mark(job, replace(FAILED, result=result)) for _ in range(10)].count(True) == tries


# --- stuck nodes -----------------------------------------------------------------------------------------------------

UNREACHABLE = Taint("node.kubernetes.io/unreachable", "NoExecute")
OUT_OF_SERVICE = Taint("node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")
UNKNOWN = NodeCondition("Ready", "Unknown")


@pytest.mark.parametrize(
    ("node", "deleted", "stuck"),
    [
        ({"taints": (UNREACHABLE,)}, -KUBELET_DELAY - 1, 1),
        ({"conditions": (UNKNOWN,)}, -KUBELET_DELAY - 1, 1),
        ({"taints": (UNREACHABLE,)}, -KUBELET_DELAY + 1, 0),
        ({"taints": (UNREACHABLE,)}, 300, 0),
        ({"taints": (UNREACHABLE,)}, None, 0),
        ({"taints": (UNREACHABLE, OUT_OF_SERVICE)}, -KUBELET_DELAY - 1, 0),
        ({"conditions": (NodeCondition("Ready", "False"),)}, -KUBELET_DELAY - 1, 0),
    ],
    ids=["unreachable", "unknown", "just over", "in its grace period", "not terminating", "freed already", "not dead"],
)
def test_pods_past_grace_period_on_unreachable_node_are_stuck(
    node: dict[str, Any], deleted: float | None, stuck: int, golden: Golden
) -> None:
    caches = Caches()
    caches.apply(None, Node(name="n1", **node))
    caches.apply(None, replace(WEB, deleted=None if deleted is None else START + deleted))
    found = stuck_nodes(caches.lister, now=START)
    assert [(each.name, each.terminating) for each in found] == [("n1", 1)] * stuck
    for each in found:
        golden(each.message)
