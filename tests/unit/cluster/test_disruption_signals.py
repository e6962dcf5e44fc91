"""What others are about to do to nodes and pods, as the objects say it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.builders import NodeBuilder, PodBuilder, node, pod
from tests.fixtures.golden import Golden
from trimtab.api.reasons import DISRUPTION_UNDERWAY, TAINT_DEADLINE
from trimtab.cluster.disruption_signals import (
    TAINT_DEADLINE_HORIZON,
    UNNEEDED_SINCE,
    is_being_removed,
    pending_termination,
    removal_signal,
    taint_deadline,
    unneeded_since,
)

NOW = 1_795_176_000.0
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"


def at(offset: float) -> str:
    return datetime.fromtimestamp(NOW + offset, tz=UTC).isoformat()


@pytest.mark.parametrize(
    ("builder", "removed", "sign"),
    [
        pytest.param(node(), False, None, id="an ordinary node"),
        pytest.param(node().taint("dedicated"), False, None, id="any other taint"),
        pytest.param(node().taint(CANDIDATE, "1", "PreferNoSchedule"), False, CANDIDATE, id="deletion candidate"),
        pytest.param(node().annotations({UNNEEDED_SINCE: at(-60)}), False, UNNEEDED_SINCE, id="unneeded-since"),
        pytest.param(node().annotations({UNNEEDED_SINCE: "soon"}), False, None, id="an unreadable unneeded-since"),
        pytest.param(node().cordoned(), False, "cordoned", id="cordoned"),
        pytest.param(node().taint("ToBeDeletedByClusterAutoscaler", "1"), True, None, id="cluster-autoscaler drains"),
        pytest.param(node().taint("karpenter.sh/disrupted"), True, None, id="karpenter v1 drains"),
        pytest.param(node().taint("karpenter.sh/disruption", "disrupting"), True, None, id="karpenter v1beta1 drains"),
        pytest.param(node().taint("karpenter.sh/disruption", "other"), False, None, id="another value of karpenter's"),
    ],
)
def test_removal_signals(builder: NodeBuilder, removed: bool, sign: str | None) -> None:
    found = builder.build()
    assert is_being_removed(found) is removed
    text = removal_signal(found)
    assert text is None if sign is None else text is not None and sign in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-20T12:00:00Z", datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()),
        ("2026-11-20T12:00:00", None),
        ("1969-01-01T00:00:00Z", None),
        ("", None),
    ],
)
def test_unneeded_since_requires_a_time_zone_and_a_year_after_1970(text: str, expected: float | None) -> None:
    assert unneeded_since(node().annotations({UNNEEDED_SINCE: text}).build()) == expected


def going() -> NodeBuilder:
    return node().taint("maintenance", effect="NoExecute", added=at(-100))


@pytest.mark.parametrize(
    ("builder", "on", "expected"),
    [
        pytest.param(pod(), node(), None, id="no taint"),
        pytest.param(pod(), node().taint("a"), None, id="NoSchedule has no deadline"),
        pytest.param(pod(), going(), -100.0, id="not tolerated: since the taint was added"),
        pytest.param(pod(), node().taint("a", effect="NoExecute"), 0.0, id="a taint of unknown age counts from now"),
        pytest.param(pod().tolerates("maintenance"), going(), None, id="tolerated without limit"),
        pytest.param(pod().tolerates("maintenance", seconds=300), going(), 200.0, id="tolerated for a while"),
        pytest.param(pod().tolerates("maintenance", seconds=-1), going(), -100.0, id="negative counts as 0"),
        pytest.param(
            pod().tolerates("maintenance", seconds=300).tolerates("maintenance", seconds=30),
            going(),
            -70.0,
            id="the shortest of several",
        ),
        pytest.param(
            pod().tolerates("maintenance", seconds=30).tolerates(), going(), None, id="one without limit is enough"
        ),
        pytest.param(
            pod().tolerates("maintenance", seconds=300).tolerates("other", seconds=10),
            going().taint("other", effect="NoExecute", added=at(0)),
            10.0,
            id="the earliest of two taints",
        ),
    ],
)
def test_taint_deadline(builder: PodBuilder, on: NodeBuilder, expected: float | None) -> None:
    found = taint_deadline(builder.build(), on.build(), now=NOW)
    assert (None if found is None else found.at - NOW) == expected


def target(age: float, status: str = "True", reason: str = "PreemptionByScheduler") -> PodBuilder:
    return pod().condition("DisruptionTarget", status, reason=reason, since=at(-age))


@pytest.mark.parametrize(
    ("builder", "on", "but", "expected"),
    [
        pytest.param(pod(), node(), None, None, id="nothing"),
        pytest.param(pod(), None, None, None, id="an unknown node"),
        pytest.param(pod(), going(), None, TAINT_DEADLINE, id="overdue"),
        pytest.param(
            pod().tolerates("maintenance", seconds=int(TAINT_DEADLINE_HORIZON) + 100),
            going(),
            None,
            TAINT_DEADLINE,
            id="soon",
        ),
        pytest.param(
            pod().tolerates("maintenance", seconds=int(TAINT_DEADLINE_HORIZON) + 101),
            going(),
            None,
            None,
            id="further away than soon",
        ),
        pytest.param(pod().tolerates(), going(), None, None, id="tolerated without limit"),
        pytest.param(target(119), node(), None, DISRUPTION_UNDERWAY, id="DisruptionTarget"),
        pytest.param(target(120), node(), None, None, id="a stale DisruptionTarget"),
        pytest.param(target(1, "False"), node(), None, None, id="DisruptionTarget is False"),
        pytest.param(target(1), node(), "EvictionByEvictionAPI", DISRUPTION_UNDERWAY, id="another reason counts"),
        pytest.param(
            target(1, reason="EvictionByEvictionAPI"), node(), "EvictionByEvictionAPI", None, id="the excepted reason"
        ),
    ],
)
def test_pending_terminations(builder: PodBuilder, on: NodeBuilder | None, but: str | None, expected: Any) -> None:
    found = pending_termination(builder.build(), None if on is None else on.build(), now=NOW, but=but)
    assert (None if found is None else found.reason) == expected


def test_message_names_taint_and_numbers(golden: Golden) -> None:
    found = pending_termination(pod().tolerates("maintenance", seconds=300).build(), going().build(), now=NOW)
    assert found is not None
    golden(found.message)
    golden(found.message, "2")
