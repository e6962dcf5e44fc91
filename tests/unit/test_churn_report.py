"""The table of a churn: what it counts and measures in the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.fixtures.audit import OPERATOR, AuditEvent, ObjectRef, ResponseStatus, User
from tests.fixtures.churn_report import (
    LEADER,
    STANDBY,
    UNKNOWN,
    actions,
    fifths,
    leader_at_rest,
    memory_by_role,
    takeovers,
    without_leader,
)
from tests.fixtures.cluster_history import History


def event(at: float, what: str, request: Any, *, token: str = "first", user: str = OPERATOR) -> AuditEvent:
    resource, _, subresource = what.partition("/")
    moment = datetime.fromtimestamp(at, UTC)
    return AuditEvent(
        verb="patch",
        user=User(user, {"authentication.kubernetes.io/credential-id": [token]}),
        request_received_timestamp=moment,
        stage_timestamp=moment,
        object_ref=ObjectRef(resource=resource, subresource=subresource, name="trimtab"),
        response_status=ResponseStatus(200),
        request_object=request,
    )


def lease(at: float, token: str) -> AuditEvent:
    return event(at, "leases", {"spec": {"holderIdentity": token, "leaseDurationSeconds": 15}}, token=token)


def test_takeover_ends_with_the_first_lease_of_another_process() -> None:
    history = History([lease(0, "a"), lease(10, "a"), lease(29, "b"), lease(31, "b"), lease(60, "c")])

    assert takeovers(history, [12.0, 40.0]) == [(12.0, 29.0), (40.0, 60.0)]


def test_takeover_that_never_comes_is_left_out() -> None:
    assert takeovers(History([lease(0, "a"), lease(10, "a")]), [5.0]) == []


def test_time_without_a_leader_begins_with_its_last_renewal() -> None:
    history = History([lease(0, "a"), lease(10, "a"), lease(29, "b"), lease(31, "b"), lease(60, "c")])

    assert without_leader(history) == [(10.0, 29.0), (31.0, 60.0)]


def test_size_changes_of_the_operator_are_counted_by_direction() -> None:
    sizes = [event(at, "machinesets/scale", {"spec": {"replicas": size}}) for at, size in enumerate((3, 5, 4, 4, 2))]
    by_hand = event(9, "machinesets/scale", {"spec": {"replicas": 9}}, user="admin")

    assert actions(History([*sizes, by_hand]), lag=1.0) == {"node groups scaled up": 1, "node groups scaled down": 2}


def test_memory_is_compared_while_a_process_has_one_role_and_has_filled_its_caches() -> None:
    history = History([lease(0, "a"), lease(100, "a"), lease(200, "b"), lease(300, "a")])
    samples = [(float(at), pid, pid * 1000 + at) for at in range(5, 400, 10) for pid in (1, 2)]

    found = memory_by_role(samples, history, {1: "a", 2: "b"})

    assert [(role, own[0], own[-1]) for role, own in found] == [
        (LEADER, (65.0, 1065), (195.0, 1195)),
        (STANDBY, (65.0, 2065), (195.0, 2195)),
        (STANDBY, (265.0, 1265), (295.0, 1295)),
        (LEADER, (265.0, 2265), (295.0, 2295)),
        (LEADER, (365.0, 1365), (395.0, 1395)),
        (STANDBY, (365.0, 2365), (395.0, 2395)),
    ]


def test_memory_of_an_ended_process_is_left_out() -> None:
    assert memory_by_role([(at, 1, 0) for at in range(100)], History([]), {}) == []


def test_without_an_audit_log_the_role_of_a_process_is_unknown() -> None:
    assert memory_by_role([(0, 1, 5), (70, 1, 6)], History([]), {}) == [(UNKNOWN, [(70, 6)])]


def test_memory_at_rest_is_that_of_the_leader_at_that_time() -> None:
    history = History([lease(0, "a"), lease(100, "a"), lease(200, "b")])
    samples = [(float(at), pid, pid * 1000 + at) for at in range(5, 400, 10) for pid in (1, 2, 3)]
    tokens = {1: "a", 2: "b"}

    assert leader_at_rest(samples, history, tokens, [150.0, 300.0]) == [1155, 2305]
    assert leader_at_rest(samples, history, tokens, [399.0]) == []
    assert leader_at_rest(samples, History([]), tokens, [150.0]) == []


def test_fifths_are_medians() -> None:
    assert fifths([(float(at), at) for at in range(10)]) == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert fifths([(0.0, 1)] * 4) == []
