"""What the live tests read out of the API server's log is what the node lifecycle writes."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from tests.fixtures.audit import AuditEvent, ObjectRef, User
from tests.fixtures.tainting import RecordedTaint, ended_uid, put_by, taken_off_by
from tests.unit.tainting.nodes import START, a_node
from trimtab.kube.objects import Taint
from trimtab.tainting.lifecycle.node_updates import taint_patch
from trimtab.tainting.lifecycle.planner import TaintChange

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
NOW = datetime(2026, 11, 20, 12, 0, 5, tzinfo=UTC)


def asked(body: Any) -> AuditEvent:
    ref = ObjectRef(resource="nodes", name="n1")
    return AuditEvent(
        "patch",
        User("operator"),
        NOW,
        NOW,
        object_ref=ref,
        request_object=msgspec.json.decode(msgspec.json.encode(body)),
    )


def change(key: str, effect: str, *, add: bool) -> TaintChange:
    return TaintChange("n1", Taint(key, effect, "", START if add else None), add, "", "")


def test_added_and_removed_taints_are_read_from_one_patch():
    node = a_node(ready="Unknown", taints=[Taint(NOT_READY, "NoSchedule"), Taint(NOT_READY, "NoExecute")])
    changes = [
        change(UNREACHABLE, "NoExecute", add=True),
        change(UNREACHABLE, "NoSchedule", add=True),
        change(NOT_READY, "NoExecute", add=False),
        change(NOT_READY, "NoSchedule", add=False),
    ]
    observed = asked(taint_patch(node, changes))

    assert list(put_by(observed)) == [RecordedTaint(NOW.timestamp(), "n1", UNREACHABLE, START)]
    assert list(taken_off_by(observed)) == [RecordedTaint(NOW.timestamp(), "n1", NOT_READY, 0.0)]


def test_the_first_taint_of_a_node_is_read_too():
    operations = taint_patch(a_node(ready="Unknown"), [change(UNREACHABLE, "NoExecute", add=True)])
    assert [each.key for each in put_by(asked(operations))] == [UNREACHABLE]


def test_other_node_writes_add_no_taint():
    note = {"metadata": {"annotations": {"trimtab.dev/taints-since": "[]"}}}
    assert not [*put_by(asked(note)), *taken_off_by(asked(note)), *put_by(asked(None))]


def test_pod_is_read_from_deletions_and_evictions():
    options = {"preconditions": {"uid": "u"}}
    assert [ended_uid(body) for body in (options, {"deleteOptions": options}, None, {})] == ["u", "u", "", ""]
