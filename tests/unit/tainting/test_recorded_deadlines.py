"""Times of taints without timeAdded, from the deadlines in the TaintManager's status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from trimtab.api.plan import rfc3339
from trimtab.api.taint_manager import NextDeadline, TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.tainting.preview import plan_taints

NOW = 1_795_176_000.0
"""2026-11-20T12:00:00Z."""


def recorded(due: float = NOW + 100, **more: str) -> NextDeadline:
    values: dict[str, Any] = {"namespace": "shop", "pod": "web-1", "node": "n1", "taint": "maintenance:NoExecute"}
    return msgspec.convert({**values, "due": rfc3339(due), **more}, NextDeadline)


def due(*deadlines: NextDeadline, now: float = NOW, name: str = "web-1") -> tuple[str, str]:
    """When the plan deletes the pod, and the message."""
    snapshot = Snapshot(
        each.build()
        for each in (
            node("n1").taint("maintenance", effect="NoExecute"),
            tolerating("web-1", 600),
            tolerating("web-2", 900),
        )
    )
    plan = plan_taints(snapshot, TaintManagerSpec(), now=now, recorded=deadlines)
    [found] = [each for each in plan.deletions if each.pod == name]
    return found.due, found.message


def tolerating(name: str, seconds: int) -> Any:
    toleration = {"key": "maintenance", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
    made = pod(name, "shop").on("n1").merge(spec={"tolerations": [toleration]})
    return made.merge(status={"startTime": rfc3339(NOW - 3600)})


@pytest.mark.parametrize("now", [NOW, NOW + 28.0])
def test_recorded_deadline_does_not_move(now: float) -> None:
    assert due(recorded(), now=now)[0] == rfc3339(NOW + 100)
    assert "no timeAdded" not in due(recorded(), now=now)[1]


def test_other_pods_of_the_node_have_the_same_start() -> None:
    assert due(recorded(), name="web-2")[0] == rfc3339(NOW + 100 + 300)


def test_earliest_of_several_times_counts() -> None:
    later = recorded(NOW + 890, pod="web-2")
    assert due(recorded(), later) == due(later, recorded())
    assert due(later, recorded())[0] == rfc3339(NOW + 100)


@pytest.mark.parametrize(
    "other",
    [{"taint": "other:NoExecute"}, {"node": "n2"}, {"pod": "gone"}],
)
def test_deadline_of_another_object_is_ignored(other: dict[str, str]) -> None:
    assert due(recorded(**other)) == due()


def test_unknown_time_is_counted_from_now_and_the_message_says_so() -> None:
    at, message = due()

    assert at == rfc3339(NOW + 600)
    assert "no timeAdded" in message
    assert rfc3339(NOW) in message
