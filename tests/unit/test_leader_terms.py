"""The check of the audit log for processes that act at the same time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.fixtures.audit import OPERATOR, AuditEvent, ObjectRef, ResponseStatus, User
from tests.fixtures.leader_terms import overlaps, terms

START = datetime(2026, 11, 24, tzinfo=UTC)


def write(token: str, at: float, resource: str = "pods", *, name: str = "", holder: str = "") -> AuditEvent:
    time = START + timedelta(seconds=at)
    return AuditEvent(
        verb="update",
        user=User(OPERATOR, {"authentication.kubernetes.io/credential-id": [token]}),
        request_received_timestamp=time,
        stage_timestamp=time,
        object_ref=ObjectRef(resource=resource, name=name),
        response_status=ResponseStatus(200),
        request_object={"metadata": {"name": name}, "spec": {"holderIdentity": holder}},
    )


def renew(token: str, at: float, *, holder: str | None = None) -> AuditEvent:
    return write(token, at, "leases", name="trimtab", holder=f"pod-{token}" if holder is None else holder)


TAKEOVER = (renew("a", 0.0), renew("a", 2.0), renew("b", 17.0), renew("b", 19.0))


def violations(*writes: AuditEvent) -> int:
    return len(overlaps(terms(writes), writes))


def test_terms_are_in_order_and_end_with_the_last_renewal() -> None:
    found = terms(TAKEOVER)
    assert [(each.token, each.acquired, each.renewed) for each in found] == [
        ("a", TAKEOVER[0], TAKEOVER[1]),
        ("b", TAKEOVER[2], TAKEOVER[3]),
    ]


def test_writes_within_the_terms_are_no_violation() -> None:
    others = write("a", 3.0), write("b", 17.1), write("b", 18.0, "leases", name="trimtab-acting", holder="pod-b")
    assert violations(*TAKEOVER, *others) == 0


@pytest.mark.parametrize(
    "other",
    [write("a", 17.1), write("a", 17.0), write("b", 16.9), write("c", 10.0), write("a", 18.0, "leases", name="other")],
    ids=["old leader", "same time", "standby", "third process", "second Lease"],
)
def test_write_of_a_process_that_is_not_the_leader_is_a_violation(other: AuditEvent) -> None:
    assert violations(*TAKEOVER, other) == 1


def test_takeover_before_the_lease_expires_is_a_violation() -> None:
    assert violations(renew("a", 0.0), renew("b", 14.9)) == 1


def test_former_leader_that_acquires_the_lease_again_is_a_violation() -> None:
    assert violations(renew("a", 0.0), renew("b", 15.0), renew("a", 30.0)) >= 1
