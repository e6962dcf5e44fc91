"""What is to be done with a pod that was due, what the server's answers mean, and which nodes' pods are stuck."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.tainting.deadlines import START, pod, taint
from trimtab.api import reasons
from trimtab.api.taint_manager import KeyPolicy, TaintManagerSpec
from trimtab.kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from trimtab.kube.eviction import BEGUN, GONE, GRANTED, REFUSED, SEVERAL_BUDGETS, EvictionResult
from trimtab.kube.guarded import NotLeading
from trimtab.kube.objects import Node, NodeCondition, Pod, Taint
from trimtab.tainting.deadlines import Deadline
from trimtab.tainting.ending.again import CROWD, MARK_TRIES, REMARK, delay, marked, waits_for_mark
from trimtab.tainting.ending.answer import BUDGET, Answer, answer_to, answer_to_eviction
from trimtab.tainting.ending.job import Job
from trimtab.tainting.ending.judging import Move, Verdict, judge, waits
from trimtab.tainting.ending.outcome import What
from trimtab.tainting.ending.stuck import PATIENCE, stuck_nodes
from trimtab.tainting.picture import Picture

WEB = pod()
DUE = Deadline(WEB.key, WEB.uid, "n1", START, START, taint(), None)
LATER = replace(DUE, due=START + 100)
OTHER = replace(DUE, taint=taint("b"))

# --- what is to be done ----------------------------------------------------------------------------------------------

JUDGED: dict[str, tuple[Deadline | None, Pod | None, tuple[Move, What | None]]] = {
    "due": (DUE, WEB, (Move.DELETE, None)),
    "by eviction": (OTHER, WEB, (Move.EVICT, None)),
    "due later": (LATER, WEB, (Move.WAIT, None)),
    "not due at all": (None, WEB, (Move.NOTHING, What.NOT_DUE)),
    "gone": (DUE, None, (Move.NOTHING, What.GONE)),
    "another of its name": (DUE, replace(WEB, uid="u2"), (Move.NOTHING, What.GONE)),
    "another of its name in the book": (replace(DUE, uid="u2"), WEB, (Move.NOTHING, What.NOT_DUE)),
    "being deleted": (DUE, replace(WEB, deleted=START + 5), (Move.NOTHING, What.GONE)),
    "ended": (DUE, replace(WEB, phase="Failed"), (Move.NOTHING, What.NOT_DUE)),
    "elsewhere": (DUE, replace(WEB, node="n2"), (Move.NOTHING, What.NOT_DUE)),
}


@pytest.mark.parametrize(("found", "there", "expected"), JUDGED.values(), ids=JUDGED)
def test_a_pod_is_judged_anew(found: Deadline | None, there: Pod | None, expected: tuple[Move, What | None]) -> None:
    verdict = judge(DUE, found, there, waits={"b": 60.0}, now=START + 1)
    assert (verdict.move, verdict.why and verdict.why.what) == expected


@pytest.mark.parametrize(
    ("at", "other", "expected"),
    [
        (59, None, (Move.EVICT, 60, False)),
        (60, None, (Move.DELETE, 60, True)),
        (10, replace(DUE, due=START + 30), (Move.EVICT, 30, False)),
        (30, replace(DUE, due=START + 30), (Move.DELETE, 30, False)),
        (10, replace(DUE, due=START + 90), (Move.EVICT, 60, False)),
        (10, replace(OTHER, taint=taint("c"), due=START + 20), (Move.EVICT, 25, False)),
        (25, replace(OTHER, taint=taint("c"), due=START + 20), (Move.DELETE, 25, True)),
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
def test_an_eviction_waits_as_long_as_it_may(
    at: float, other: Deadline | None, expected: tuple[Move, float, bool]
) -> None:
    verdict = judge(
        OTHER, OTHER, WEB, waits={"b": 60.0, "c": 5.0}, now=START + at, each=lambda _: [] if other is None else [other]
    )
    assert (verdict.move, verdict.until - START, verdict.waited) == expected


others = st.lists(
    st.builds(
        lambda key, due: replace(DUE, taint=taint(key), due=START + due), st.sampled_from("abc"), st.integers(0, 90)
    ),
    max_size=4,
)


@given(more=others, fewer=others, at=st.integers(0, 99))
def test_another_taint_never_lets_a_pod_that_waits_for_its_eviction_wait_longer(
    more: list[Deadline], fewer: list[Deadline], at: int
) -> None:
    def judged(each: list[Deadline]) -> Verdict:
        return judge(OTHER, OTHER, WEB, waits={"b": 60.0, "c": 5.0}, now=START + at, each=lambda _: each)

    some, all_ = judged(fewer), judged(fewer + more)
    assert all_.until <= some.until <= START + 60
    assert (all_.move is Move.DELETE) == (all_.until <= START + at)
    assert not (some.move is Move.DELETE and all_.move is Move.EVICT)


def test_policies_say_how_long_an_eviction_waits() -> None:
    spec = TaintManagerSpec(
        taints=(
            KeyPolicy(key="a", policy="Delete"),
            KeyPolicy(key="b", policy="Evict"),
            KeyPolicy(key="c", policy="Evict", maximum_wait="1h"),
        )
    )
    assert waits(spec) == {"b": 600.0, "c": 3600.0}


# --- answers ---------------------------------------------------------------------------------------------------------

DENIED = 'admission webhook "guard.example.com" denied the request: no'
FAILING = 'Internal error occurred: failed calling webhook "guard.example.com": timed out'
POLICY = "pods \"web\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'all' denied request: no"
OTHER_UID = 'Pod "db" is invalid: metadata.uid: Invalid value: "u": field is immutable'
RBAC = 'pods "web" is forbidden: User "x" cannot delete resource "pods" in API group "" in the namespace "shop"'

ERRORS: dict[str, tuple[ApiError | Unreachable, tuple[What, str, bool]]] = {
    "not found": (NotFound('pods "web" not found', status=404), (What.GONE, "", False)),
    "another uid": (Conflict("Precondition failed: UID in precondition: a", status=409), (What.GONE, "", False)),
    "a mark for another uid": (Invalid(OTHER_UID, status=422), (What.GONE, "", False)),
    "a pod called uid": (Conflict('cannot delete "uid"', status=409), (What.FAILED, "", False)),
    "a webhook denies": (Forbidden(DENIED, status=403), (What.REFUSED, "guard.example.com", False)),
    "a webhook denies by a code": (NotFound(DENIED, status=404), (What.REFUSED, "guard.example.com", False)),
    "a webhook fails": (ServerError(FAILING, status=500), (What.REFUSED, "guard.example.com", False)),
    "a policy denies": (Invalid(POLICY, status=422), (What.REFUSED, "ValidatingAdmissionPolicy 'keep'", False)),
    "no right": (Forbidden(RBAC, status=403), (What.REFUSED, "", False)),
    "overloaded": (TooManyRequests("later", status=429, retry_after=7), (What.FAILED, "", False)),
    "no login": (Unauthorized("who?", status=401), (What.FAILED, "", False)),
    "a server's error": (ServerError("etcd", status=500), (What.FAILED, "", True)),
    "no answer": (Unreachable("reset"), (What.FAILED, "", True)),
    "not sent": (NotLeading("not sent"), (What.FAILED, "", False)),
}


@pytest.mark.parametrize(("error", "expected"), ERRORS.values(), ids=ERRORS)
def test_an_error_says_who_refused_and_whether_it_is_in_doubt(
    error: ApiError | Unreachable, expected: tuple[What, str, bool]
) -> None:
    answer = answer_to(error)
    assert (answer.what, answer.refuser, answer.doubt) == expected


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (GRANTED, (What.EVICTED, reasons.NO_EXECUTE_TAINT, "")),
        (GONE, (What.GONE, reasons.ALREADY_GONE, "")),
        (REFUSED, (What.REFUSED, reasons.DISRUPTION_BUDGET, BUDGET)),
        (SEVERAL_BUDGETS, (What.REFUSED, reasons.DISRUPTION_BUDGET, BUDGET)),
        (BEGUN, (What.REFUSED, reasons.EVICTION_IN_BACKGROUND, "virt.example.com")),
    ],
)
def test_what_the_eviction_api_says(outcome: str, expected: tuple[What, str, str]) -> None:
    words = 'admission webhook "virt.example.com" denied the request: Eviction triggered evacuation'
    answer = answer_to_eviction(EvictionResult(outcome, words))
    assert (answer.what, answer.reason, answer.refuser) == expected


# --- trying again ----------------------------------------------------------------------------------------------------

FAILED = Answer(What.FAILED, reasons.DELETION_FAILED, "no answer")


def test_a_pod_is_tried_ever_more_rarely_but_never_given_up() -> None:
    waits = [delay(Job(DUE, attempts=number), FAILED, others=0, left=None) for number in (1, 3, 20, 10_000)]
    assert 0.2 <= waits[0] <= 0.3
    assert 0.8 <= waits[1] <= 1.2
    assert all(5 <= each <= 7.5 for each in waits[2:])


def test_many_that_are_refused_are_tried_in_turn() -> None:
    assert delay(Job(DUE, attempts=1), FAILED, others=20 * CROWD, left=None) == 20


def test_the_server_may_ask_for_more_time() -> None:
    assert delay(Job(DUE, attempts=1), replace(FAILED, retry_after=42.0), others=0, left=None) == 42


def test_an_eviction_is_tried_again_no_later_than_it_becomes_a_deletion() -> None:
    assert delay(Job(DUE, attempts=50), replace(FAILED, refuser=BUDGET), others=0, left=0.4) == 0.4


def test_a_mark_is_believed_for_a_while_and_then_looked_for() -> None:
    job = Job(DUE, marked=100.0)
    assert marked(job, WEB, now=100 + REMARK - 1)
    assert not marked(job, WEB, now=100 + REMARK)
    assert not marked(Job(DUE), None, now=0)


@pytest.mark.parametrize(
    ("what", "tries"),
    [(What.FAILED, MARK_TRIES - 1), (What.REFUSED, 0), (What.GONE, 10)],
    ids=["fails: a few times", "refused: not at all", "gone: nothing to delete"],
)
def test_how_often_a_pod_waits_for_its_mark(what: What, tries: int) -> None:
    job = Job(DUE)
    assert [waits_for_mark(job, replace(FAILED, what=what)) for _ in range(10)].count(True) == tries


# --- stuck nodes -----------------------------------------------------------------------------------------------------

UNREACHABLE = Taint("node.kubernetes.io/unreachable", "NoExecute")
OUT_OF_SERVICE = Taint("node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")
UNKNOWN = NodeCondition("Ready", "Unknown")


@pytest.mark.parametrize(
    ("node", "deleted", "stuck"),
    [
        ({"taints": (UNREACHABLE,)}, -PATIENCE - 1, 1),
        ({"conditions": (UNKNOWN,)}, -PATIENCE - 1, 1),
        ({"taints": (UNREACHABLE,)}, -PATIENCE + 1, 0),
        ({"taints": (UNREACHABLE,)}, 300, 0),
        ({"taints": (UNREACHABLE,)}, None, 0),
        ({"taints": (UNREACHABLE, OUT_OF_SERVICE)}, -PATIENCE - 1, 0),
        ({"conditions": (NodeCondition("Ready", "False"),)}, -PATIENCE - 1, 0),
    ],
    ids=["unreachable", "unknown", "just over", "in its grace period", "not terminating", "freed already", "not dead"],
)
def test_pods_are_stuck_that_are_past_their_grace_period_on_a_dead_node(
    node: dict[str, Any], deleted: float | None, stuck: int
) -> None:
    picture = Picture()
    picture.node_changed(None, Node(name="n1", **node))
    picture.pod_changed(None, replace(WEB, deleted=None if deleted is None else START + deleted))
    found = stuck_nodes(picture, now=START)
    assert [(each.name, each.terminating) for each in found] == [("n1", 1)] * stuck
    assert all(
        "kubectl taint nodes n1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute" in each.message
        for each in found
    )
