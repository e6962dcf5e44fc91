"""Next to a kube-controller-manager that does its own tainting: Observe predicts and never acts, EvictPods acts first.

Where kube-controller-manager's known defects make it differ, both times are asserted here. They are read from the API
server's log: what it did when, not what anybody says.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

import pytest
from msgspec import Struct

from tests.fixtures.audit import OPERATOR, Audit
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.taint_scenarios import ENDPOINTS
from tests.fixtures.tainting import (
    GRACE,
    NOT_READY,
    UNREACHABLE,
    PodDeletion,
    TaintStage,
    taint_settings,
    taint_stage,
)
from tests.fixtures.waiting import patiently
from tests.fixtures.webhooks import Gate, webhook
from trimtab.kube.resources import PODS
from trimtab_local.cluster import LocalCluster
from trimtab_local.versions import CONTROLLER_MANAGER

NEAR = patiently(4.0)
"""Seconds by which a deletion may be late. The times of the two controllers differ by more, on a quiet machine."""
KEY = "example.com/ill"
OTHER = "example.com/worse"
THEIRS = "system:serviceaccount:kube-system:"
BORNE = 12
"""Seconds that most pods bear their node's taint."""
CASES = ("plain", "two", "cancel", "lengthen", "shorten", "second", "removed", "order", "settled")
SILENT = "silent"


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaintStage]:
    """A node for each case; kube-controller-manager detects a dead node as early as our tests do elsewhere."""
    require_local_cluster(
        request, "these tests need the flags of kube-controller-manager, and the API server's audit log"
    )
    audit = Audit(tmp_path_factory.mktemp("audit"))
    flags = ("--node-monitor-period=1s", f"--node-monitor-grace-period={GRACE:.0f}s", "--node-eviction-rate=0.5")
    settings = taint_settings(audit, node_lifecycle=True, controller_manager_args=flags)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    logs = tmp_path_factory.mktemp("logs")
    with taint_stage(cluster, f"beside-{secrets.token_hex(4)}", audit, logs, rights="EvictPods") as stage:
        for name in (*CASES, *(f"{name}-2" for name in CASES), SILENT):
            stage.nodes("zone-a", name)
        stage.until_ready()
        stage.write("Observe")
        stage.operate()
        yield stage


class Seen(Struct, frozen=True):
    """Predicted and actual deletions.

    Attributes:
        since: when each node's first taint was put on; of ``worse`` the second one of ``second``.
        predicted: the deadline of each pod in the last status that had one.
        withdrawn: pods whose deadline left the status while they still ran.
        ends: of pods, by name.
        there: pods that are left.
    """

    since: dict[str, float]
    predicted: dict[str, float]
    withdrawn: set[str]
    ends: dict[str, PodDeletion]
    there: set[str]


@pytest.fixture(scope="module")
def seen(stage: TaintStage) -> Seen:
    """All cases, run concurrently in half a minute."""
    stage.pod("plain", "plain", {KEY: BORNE})
    stage.pod("at-once", "plain")
    stage.pod("never", "plain", {KEY: None})
    stage.pod("two", "two", {KEY: BORNE, OTHER: 2 * BORNE})
    stage.pod("cancel", "cancel", {KEY: BORNE})
    stage.pod("lengthen", "lengthen", {KEY: BORNE})
    stage.pod("shorten", "shorten", {KEY: 22})
    stage.pod("second", "second", {KEY: 22, OTHER: 6})
    stage.pod("removed", "removed", {KEY: 24, OTHER: BORNE})
    stage.pod("finite-first", "order", [(KEY, BORNE), (KEY, None)])
    stage.pod("infinite-first", "order", [(KEY, None), (KEY, BORNE)])
    stage.pod("settled", "settled", {KEY: BORNE})
    stage.pod("outage", SILENT, {UNREACHABLE: BORNE, NOT_READY: BORNE})
    stage.until_running()
    ended = {"status": {"phase": "Succeeded"}}
    path = PODS.path("settled", namespace=stage.namespace, subresource="status")
    stage.client.request("PATCH", path, ended, content_type="application/merge-patch+json")
    stage.until(lambda: stage.status().get("observedGeneration"), "the status is written")
    stage.audit.mark()

    watch, since = Watch(stage), {}
    stage.silence(SILENT)
    for case in CASES:
        keys = (KEY, OTHER) if case in ("two", "removed") else (KEY,)
        since[case] = stage.taint(case, *keys, with_time=False)
    watch.until(since["plain"] + 4)
    stage.tolerate("lengthen", KEY, 20)
    stage.tolerate("shorten", KEY, 14)
    since["worse"] = stage.taint("second", OTHER, with_time=False)
    stage.untaint("removed", OTHER)
    stage.untaint("cancel", KEY)
    watch.until(since["plain"] + 25)
    return Seen(
        since=since,
        predicted=watch.predicted,
        withdrawn=watch.withdrawn,
        ends={each.pod: each for each in stage.ends()},
        there=set(stage.pods()),
    )


class Watch:
    """Reads the predictions of the status periodically."""

    def __init__(self, stage: TaintStage) -> None:
        self.predicted: dict[str, float] = {}
        self.withdrawn: set[str] = set()
        self._stage = stage

    def until(self, moment: float) -> None:
        """Read the status until then."""
        while time.time() < moment:
            there, reported = set(self._stage.pods()), self._stage.next_deadlines()
            self.withdrawn = {name for name in self.predicted if name not in reported and name in there}
            self.predicted |= reported
            time.sleep(0.2)


def test_observe_mode_writes_only_events_and_status(stage: TaintStage, seen: Seen) -> None:
    written = {asked.what for asked in stage.audit.ours(verbs=("create", "update", "patch", "delete"))}
    assert written <= {"events", "taintmanagers", "taintmanagers/status"}, "its own object has a finalizer"
    assert "taintmanagers/status" in written
    assert not [each for each in seen.ends.values() if each.by == OPERATOR]


@pytest.mark.parametrize("pod", ["plain", "two", "outage"])
def test_predicted_deletions_equal_kube_controller_managers(pod: str, seen: Seen) -> None:
    """Our times are whole seconds, as in timeAdded; kube-controller-manager counts from when it saw the taint."""
    assert seen.ends[pod].by.startswith(THEIRS)
    assert -1.2 <= seen.ends[pod].at - seen.predicted[pod] <= 1.0 + NEAR, (seen.ends[pod], seen.predicted[pod])


def test_pod_without_toleration_is_deleted_at_once_by_both(stage: TaintStage, seen: Seen) -> None:
    assert seen.ends["at-once"].at <= seen.since["plain"] + 2 * NEAR


@pytest.mark.parametrize("pod", ["never", "cancel", "infinite-first"])
def test_tolerating_pod_is_kept_by_both(pod: str, seen: Seen) -> None:
    assert pod in seen.there
    assert pod not in seen.predicted or pod in seen.withdrawn


OURS = {
    "lengthen": ("lengthen", 20),
    "shorten": ("shorten", 14),
    "second": ("worse", 6),
    "removed": ("removed", 24),
    "finite-first": None,
    "settled": None,
}
"""After which taint and how many seconds a pod's time is over, ``None`` for never."""
THEIRS_INSTEAD = {
    "lengthen": BORNE,
    "shorten": 22,
    "second": 22,
    "removed": BORNE,
    "finite-first": BORNE,
    "settled": BORNE,
}
"""kube-controller-manager v1.36, in seconds after the first taint: a timer that was set is never moved, nor dropped
while any taint is left; a toleration that is found first hides the others; pods that have ended are deleted with their
logs."""


@pytest.mark.parametrize("pod", OURS)
def test_deadlines_that_kube_controller_manager_miscalculates_are_reported(pod: str, seen: Seen) -> None:
    ours = OURS[pod]
    if ours is None:
        assert pod not in seen.predicted
    else:
        assert -0.2 <= seen.predicted[pod] - (seen.since[ours[0]] + ours[1]) <= 1.0 + NEAR
    assert seen.ends[pod].by.startswith(THEIRS)
    case = "order" if pod == "finite-first" else pod
    assert -0.2 <= seen.ends[pod].at - (seen.since[case] + THEIRS_INSTEAD[pod]) <= NEAR


def test_earlier_only_mode_deletes_only_before_kube_controller_manager(stage: TaintStage, seen: Seen) -> None:
    stage.write("EvictPods")
    stage.pod("plain-2", "plain-2", {KEY: BORNE})
    stage.pod("lengthen-2", "lengthen-2", {KEY: BORNE})
    stage.pod("shorten-2", "shorten-2", {KEY: 60})
    stage.pod("second-2", "second-2", {KEY: 60, OTHER: 3})
    stage.pod("never-2", "plain-2", {KEY: None})
    stage.until_running()
    stage.until(lambda: stage.condition("Ready").get("status") == "True", "it is ready")
    stage.audit.mark()

    tainted = time.time()
    for case in ("plain-2", "lengthen-2", "shorten-2", "second-2"):
        stage.taint(case, KEY, with_time=False)
    time.sleep(max(0.0, tainted + 3 - time.time()))
    stage.tolerate("lengthen-2", KEY, 60)
    stage.tolerate("shorten-2", KEY, BORNE + 2)
    worse = time.time()
    stage.taint("second-2", OTHER, with_time=False)
    ended = {"plain-2", "lengthen-2", "shorten-2", "second-2"}
    stage.until(lambda: ended <= {each.pod for each in stage.ends()}, "the pods are deleted")

    first = {each.pod: each for each in reversed(stage.ends())}
    assert set(first) == ended
    assert first["shorten-2"].by == first["second-2"].by == OPERATOR
    assert -0.2 <= first["shorten-2"].at - (tainted + BORNE + 2) <= 2 * NEAR
    assert -0.2 <= first["second-2"].at - (worse + 3) <= 2 * NEAR
    assert -0.2 <= first["plain-2"].at - (tainted + BORNE) <= 2 * NEAR
    assert first["lengthen-2"].by.startswith(THEIRS), "it cannot be held back"
    assert "never-2" in stage.pods()
    assert not stage.audit.ours("nodes/status", verbs=("patch", "update"))
    assert not stage.put(), "nodes are not ours to taint"


def test_earlier_only_mode_deletes_pods_that_kube_controller_manager_forgets(stage: TaintStage, seen: Seen) -> None:
    """It gives up a deletion after 50 ms of rejections, and restarts all periods when it restarts."""
    stage.pod("refused", "order-2", {KEY: 1})
    stage.pod("restarted", "settled-2", {KEY: 12})
    stage.until_running()
    gate = Gate(lambda request: request["name"] == "refused", refuse="not now")
    with webhook(stage.client, ca=stage.cluster.ca, name="refuser", rules=[ENDPOINTS], judge=gate):
        time.sleep(1.0)
        tainted = stage.taint("order-2", KEY, with_time=False)
        time.sleep(max(0.0, tainted + 4 - time.time()))
        gate.open()
        opened = time.time()
        stage.until(lambda: stage.ends("refused"), "the refused pod goes")
    [end] = stage.ends("refused")
    assert end.by == OPERATOR
    assert opened <= end.at

    tainted = stage.taint("settled-2", KEY, with_time=False)
    time.sleep(2.0)
    stage.kill(CONTROLLER_MANAGER)
    stage.cluster.up()
    stage.until(lambda: stage.ends("restarted"), "the other pod goes")
    [end] = stage.ends("restarted")
    assert end.by == OPERATOR
    assert 0 <= end.at - (tainted + 12) <= NEAR
