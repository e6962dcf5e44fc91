"""The taint manager in mode TaintAndEvict: deadlines of pods, a dead node, and kill -9. What happened when is judged by
the audit log."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator

import pytest

from tests.fixtures.audit import OPERATOR, Audit
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.tainting import (
    NOT_READY,
    OUTAGE,
    SHORT,
    UNREACHABLE,
    PodDeletion,
    TaintStage,
    taint_settings,
    taint_stage,
)
from tests.fixtures.waiting import patiently

pytestmark = pytest.mark.core

KEY = "example.com/maintenance"
SECONDS = 5
GRACE = 20
"""Seconds after which a node without renewals counts as dead. On a busy machine a living one misses several."""
BRIEF = 3
LATE = 15.0
"""Seconds by which a deletion may be late on a busy machine; none may be early."""


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaintStage]:
    """Two zones of three nodes, on a control plane without a node lifecycle of its own."""
    require_local_cluster(request, "these tests need a control plane without the node lifecycle, and its audit log")
    audit = Audit(tmp_path_factory.mktemp("audit"))
    cluster = request.getfixturevalue("make_cluster")(taint_settings(audit), nodes=0)
    with taint_stage(cluster, f"taints-{secrets.token_hex(4)}", audit, tmp_path_factory.mktemp("logs")) as stage:
        for zone in "ab":
            stage.nodes(f"zone-{zone}", *(f"{zone}-{number}" for number in range(3)))
        stage.write(nodeLifecycle={**SHORT, "nodeMonitorGracePeriod": f"{GRACE}s"})
        stage.operate()
        stage.until_ready()
        yield stage


@pytest.fixture(autouse=True)
def clean(stage: TaintStage) -> Iterator[None]:
    """Leave no taint and no pod behind, also if the test fails: it may be repeated."""
    yield
    for number in range(3):
        stage.untaint(f"a-{number}", KEY)
    stage.remove_pods()


def end_of(stage: TaintStage, pod: str) -> PodDeletion:
    """Wait until the operator has deleted a pod, and return the only deletion."""
    uid = stage.uids[pod]

    def ends() -> list[PodDeletion]:
        return [each for each in stage.ends(pod) if each.uid == uid]

    stage.until(ends, f"pod {pod} is deleted")
    [end] = ends()
    assert end.by == OPERATOR
    return end


def test_pod_is_deleted_at_the_deadline_of_its_toleration(stage: TaintStage) -> None:
    stage.pod("tolerates-briefly", "a-0", {KEY: SECONDS})
    stage.pod("tolerates-always", "a-0", {KEY: None})
    stage.pod("elsewhere", "a-1")
    stage.pod("tolerates-nothing", "a-0")
    stage.until_running()
    since = stage.taint("a-0", KEY)
    at_once, due = end_of(stage, "tolerates-nothing"), end_of(stage, "tolerates-briefly")
    assert since <= at_once.at <= since + patiently(LATE)
    assert since + SECONDS <= due.at <= since + SECONDS + patiently(LATE)
    assert {"tolerates-always", "elsewhere"} <= set(stage.pods())


def test_deadline_survives_kill_9(stage: TaintStage) -> None:
    stage.pod("survivor", "a-1", {KEY: 3 * SECONDS})
    stage.pod("untainted-in-time", "a-2", {KEY: 300})
    stage.until_running()
    since = stage.taint("a-1", KEY)
    stage.taint("a-2", KEY)
    stage.until(lambda: {"survivor", "untainted-in-time"} <= set(stage.next_deadlines()), "both deadlines are reported")
    stage.operator.stop(signal.SIGKILL)
    stage.untaint("a-2", KEY)
    stage.operate()
    end = end_of(stage, "survivor")
    assert since + 3 * SECONDS <= end.at
    assert not stage.ends("untainted-in-time")
    stage.until(lambda: "untainted-in-time" not in stage.next_deadlines(), "the deadline is cancelled")


def test_dead_node_is_tainted_its_pods_deleted_and_the_taint_removed_after_recovery(stage: TaintStage) -> None:
    dead = "b-0"
    stage.pod("brief", dead, dict.fromkeys(sorted(OUTAGE), BRIEF))
    stage.pod("patient", dead, dict.fromkeys(sorted(OUTAGE), 300))
    stage.pod("healthy", "b-1", dict.fromkeys(sorted(OUTAGE), 0))
    stage.until_running()
    stage.audit.mark()
    stage.silence(dead)
    stage.until(stage.put, "the dead node is tainted", seconds=GRACE + 60)
    end = end_of(stage, "brief")
    [taint] = stage.put()
    assert (taint.node, taint.key) == (dead, UNREACHABLE)
    assert taint.at - stage.renewed(dead)[dead] >= GRACE - 1.0
    assert taint.added + BRIEF <= end.at <= taint.added + BRIEF + patiently(LATE)
    assert set(stage.marked_unknown()) == {dead}
    stage.wake(dead)
    stage.until_ready()
    assert {"patient", "healthy"} <= set(stage.pods())
    assert not OUTAGE & stage.taints(dead).keys()
    assert NOT_READY not in stage.taints("b-1")
