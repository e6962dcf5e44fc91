"""What the joint tests read from the audit log: the checks find what they are there for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fixtures.audit import OPERATOR, AuditEvent, ObjectRef, ResponseStatus, Tail, User
from tests.fixtures.joint import (
    CHURN_TAINT,
    LATE,
    STALE,
    TOLERATION,
    PodLife,
    TaintInterval,
    evicted_elsewhere,
    evictions_without_uid,
    lives_of,
    marked_as_preempted,
    missed_deadlines,
    repeated_evictions,
    unfounded_deletions,
    wrong_victims,
)
from tests.fixtures.tainting import UNREACHABLE
from trimtab.api.reasons import PREEMPTION_BY_SCHEDULER

OUTAGE = TaintInterval("n1", UNREACHABLE, added=100.0, removed=200.0)
DUE = 100.0 + TOLERATION


def life(ended: float = float("inf"), *, how: str = "delete", bound: float = 50.0, node: str = "n1") -> PodLife:
    by = OPERATOR if ended != float("inf") else ""
    return PodLife("shop/web-1", node, bound, ended, by, how)


def lives(*found: PodLife) -> dict[str, PodLife]:
    return {each.key: each for each in found}


def test_pod_deleted_at_its_deadline_is_no_violation() -> None:
    there = lives(life(DUE + 0.1))

    assert unfounded_deletions(there, [OUTAGE]) == []
    assert missed_deadlines(there, [OUTAGE], [], now=300.0) == []


def test_pod_deleted_before_its_deadline_is_a_violation() -> None:
    assert len(unfounded_deletions(lives(life(DUE - 2.0)), [OUTAGE])) == 1


def test_pod_deleted_on_an_untainted_node_is_a_violation() -> None:
    assert len(unfounded_deletions(lives(life(DUE + 0.1, node="n2")), [OUTAGE])) == 1


def test_pod_deleted_long_after_taint_removal_is_a_violation() -> None:
    assert len(unfounded_deletions(lives(life(OUTAGE.removed + STALE + 1.0)), [OUTAGE])) == 1


def test_eviction_needs_no_deadline() -> None:
    assert unfounded_deletions(lives(life(150.0, how="evict", node="n2")), [OUTAGE]) == []


def test_pod_that_outlives_its_deadline_is_a_violation() -> None:
    assert len(missed_deadlines(lives(life()), [OUTAGE], [], now=300.0)) == 1
    assert len(missed_deadlines(lives(life(DUE + LATE + 1.0)), [OUTAGE], [], now=300.0)) == 1


def test_untolerated_taint_is_due_at_binding() -> None:
    churn = TaintInterval("n1", CHURN_TAINT, added=100.0)

    assert missed_deadlines(lives(life(120.0 + LATE, bound=120.0)), [churn], [], now=300.0) == []
    assert len(missed_deadlines(lives(life(121.0 + LATE, bound=120.0)), [churn], [], now=300.0)) == 1


def test_deadline_that_is_cancelled_or_passes_in_a_downtime_is_not_missed() -> None:
    short = TaintInterval("n1", UNREACHABLE, added=100.0, removed=DUE - 1.0)

    assert missed_deadlines(lives(life()), [short], [], now=300.0) == []
    assert missed_deadlines(lives(life()), [OUTAGE], [(DUE - 1.0, DUE + 1.0)], now=300.0) == []


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"tolerated": frozenset({UNREACHABLE})}, 0),
        ({"tolerated": frozenset({""})}, 0),
        ({"tolerated": frozenset({CHURN_TAINT})}, 1),
        ({"finished": DUE - 1.0}, 0),
        ({"finished": DUE + LATE + 1.0}, 1),
    ],
    ids=["tolerates it", "tolerates all", "tolerates another taint", "finished before", "finished after"],
)
def test_pod_without_a_deadline_misses_none(changes: dict[str, Any], missed: int) -> None:
    there = msgspec.structs.replace(life(), **changes)

    assert len(missed_deadlines(lives(there), [OUTAGE], [], now=300.0)) == missed


def test_tolerations_and_ends_of_containers_are_read_from_responses() -> None:
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    pod = ObjectRef("pods", "shop", "agent-1")
    limited = {"key": CHURN_TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 6}
    other = {"key": "example.com/disk", "operator": "Exists", "effect": "NoSchedule"}
    one_value = {"key": "example.com/disk", "operator": "Equal", "value": "full", "effect": "NoExecute"}
    tolerations = [{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}, limited, other, one_value]

    def event(user: str, verb: str, subresource: str = "", **more: Any) -> AuditEvent:
        ref = msgspec.structs.replace(pod, subresource=subresource)
        return AuditEvent(verb, User(user), moment, moment, object_ref=ref, response_status=ResponseStatus(201), **more)

    events = [
        event("daemon-set-controller", "create", response_object={"spec": {"tolerations": tolerations}}),
        event(OPERATOR, "create", "binding", request_object={"target": {"name": "n1"}}),
        event("kwok", "patch", "status", response_object={"status": {"phase": "Running"}}),
    ]
    ((bound,),) = lives_of(events, OPERATOR).values()
    assert (bound.node, bound.tolerated, bound.finished) == ("n1", {UNREACHABLE}, float("inf"))

    events.append(event("kwok", "patch", "status", response_object={"status": {"phase": "Succeeded"}}))
    ((bound,),) = lives_of(events, OPERATOR).values()
    assert bound.finished == moment.timestamp()


@pytest.mark.parametrize(
    ("code", "shown_later", "marked"),
    [(200, False, True), (504, True, True), (504, False, False)],
    ids=["granted", "stored without a granted response", "not stored"],
)
def test_preempted_pod_has_the_condition(code: int, shown_later: bool, marked: bool) -> None:
    moment, ref = datetime(2026, 12, 1, tzinfo=UTC), ObjectRef("pods", "shop", "web-1")
    condition = {"type": "DisruptionTarget", "status": "True", "reason": PREEMPTION_BY_SCHEDULER}
    with_condition = {"status": {"conditions": [condition]}}

    def event(user: str, verb: str, answered: int = 200, **more: Any) -> AuditEvent:
        return AuditEvent(
            verb, User(user), moment, moment, object_ref=ref, response_status=ResponseStatus(answered), **more
        )

    events = [
        event(OPERATOR, "patch", code, request_object=with_condition, response_object={"status": "Failure"}),
        event(OPERATOR, "delete", request_object={}, response_object={"status": "Success"}),
        event("kwok", "delete", request_object={}, response_object=with_condition if shown_later else {"status": {}}),
    ]
    assert marked_as_preempted(events) == ({"shop/web-1"} if marked else set())


class FakeAudit:
    """An audit log with evictions that have these options."""

    def __init__(self, *options: dict[str, Any]) -> None:
        now = datetime(2026, 11, 30, tzinfo=UTC)
        self._events = [
            AuditEvent("create", User(OPERATOR), now, now, request_object={"deleteOptions": each}) for each in options
        ]

    def ours(self, *_: str, granted: bool | None = None) -> list[AuditEvent]:
        return self._events


@pytest.mark.parametrize(
    ("options", "without", "twice"),
    [
        ([{"preconditions": {"uid": "a"}}, {"preconditions": {"uid": "b"}}], 0, 0),
        ([{"preconditions": {"uid": "a"}}, {"preconditions": {"uid": "a"}}], 0, 1),
        ([{"preconditions": {"uid": ""}}, {"preconditions": {}}, {}], 3, 0),
    ],
    ids=["two pods", "one pod", "no UID"],
)
def test_eviction_needs_a_uid_which_no_other_one_has(options: list[Any], without: int, twice: int) -> None:
    audit: Any = FakeAudit(*options)

    assert (len(evictions_without_uid(audit)), len(repeated_evictions(audit))) == (without, twice)


PRIORITIES = {"shop/batch-1": -10, "shop/web-1": 0, "shop/web-2": 0, "shop/urgent-1": 1000, "shop/urgent-2": 1000}


@pytest.mark.parametrize(
    ("victim", "preemptor", "wrong"),
    [
        ("shop/web-1", "shop/urgent-1", False),
        ("shop/web-1", "", False),
        ("shop/batch-1", "shop/web-1", False),
        ("shop/urgent-2", "shop/urgent-1", True),
        ("shop/urgent-2", "", True),
        ("shop/web-1", "shop/web-2", True),
        ("shop/web-1", "shop/batch-1", True),
    ],
)
def test_priority_of_a_victim_is_below_the_one_of_its_preemptor(victim: str, preemptor: str, wrong: bool) -> None:
    assert bool(wrong_victims({victim: preemptor}, PRIORITIES)) == wrong


@pytest.mark.parametrize(
    ("nodes", "asked", "elsewhere"),
    [
        (["stable-1"], [150.0], 1),
        (["flaky-1"], [150.0], 0),
        (["flaky-1", "stable-1"], [150.0], 0),
        (["flaky-1", "stable-1"], [350.0], 1),
        (["stable-1", "stable-2"], [150.0, 350.0], 1),
        (["flaky-1"], [40.0], 1),
    ],
    ids=["wrong node", "right node", "next pod elsewhere", "next pod evicted", "wrong nodes", "before it was bound"],
)
def test_pod_is_evicted_for_pressure_of_its_own_node(nodes: list[str], asked: list[float], elsewhere: int) -> None:
    named = [life(150.0, how="evict", bound=50.0 + 200 * number, node=each) for number, each in enumerate(nodes)]
    ends = [("shop/web-1", each) for each in asked]

    assert len(evicted_elsewhere({"shop/web-1": named}, {"web-1"}, ends)) == elsewhere
    assert evicted_elsewhere({"shop/web-1": named}, {"web-2"}, ends) == []


def test_pod_that_its_controller_deleted_before_the_eviction_was_on_the_same_node() -> None:
    deleted = PodLife("shop/web-1", "flaky-1", 50.0, 149.9, "replicaset-controller", "delete")

    assert evicted_elsewhere({"shop/web-1": [deleted]}, {"web-1"}, [("shop/web-1", 150.0)]) == []


def test_rotated_audit_log_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    stamps = {"requestReceivedTimestamp": "2026-12-01T12:00:00Z", "stageTimestamp": "2026-12-01T12:00:00Z"}
    line = json.dumps({"verb": "create", "user": {"username": OPERATOR}, **stamps}) + "\n"
    log.write_text(2 * line)
    tail = Tail(log, 0)
    assert len(tail.read()) == 2

    log.write_text(line)

    with pytest.raises(RuntimeError, match="rotated"):
        tail.read()
