"""Nodes fail with kube-controller-manager's two controllers off: who is tainted when, which pods go when, who stays.

One outage shows most of it: a node of one zone, ten of another, all of a third and most of a fourth fall silent in one
moment, and come back once all that was promised has had its time.
"""

from __future__ import annotations

import itertools
import math
import random
import secrets
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import Struct

from tests.fixtures.audit import OPERATOR, Audit, AuditEvent
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.proxy import BehindProxy
from tests.fixtures.tainting import (
    LATE,
    NOT_READY,
    OUTAGE,
    PERIOD,
    RATE,
    RENEWAL,
    SHORT,
    UNREACHABLE,
    PodDeletion,
    RecordedTaint,
    TaintStage,
    taint_settings,
    taint_stage,
)
from tests.fixtures.waiting import eventually, patiently
from trimtab_local.cluster import LocalCluster

SEED = 7
BRIEF = 3
"""Seconds for which brief pods bear an outage."""
PATIENT = 300
ZONES = {"one": 4, "ten": 19, "all": 5, "most": 5, "swap": 3}
NODES = {zone: [f"{zone}-{number:02}" for number in range(count)] for zone, count in ZONES.items()}
SILENT = {"one": NODES["one"][:1], "ten": NODES["ten"][:10], "all": NODES["all"], "most": NODES["most"][:4]}
"""10 of 19 are fewer than 55 %; 4 of 5 are more, and their zone has too few nodes for the secondary rate."""
TAINTED = {zone: names for zone, names in SILENT.items() if zone != "most"}
DEAD = [name for names in SILENT.values() for name in names]
FIRST_SICK = NODES["swap"][0]
"""Says itself that it is not ready, and then falls silent."""
GRACE = 5 + round(patiently(7))
"""Seconds without a heartbeat after which a node is unreachable. A busy kwok may renew Leases seconds late."""
LIFECYCLE = {**SHORT, "nodeMonitorGracePeriod": f"{GRACE}s"}
SWAPPED = 2 * GRACE
"""Seconds that a pod bears its outage: longer than until it counts as silent."""
STATES = {
    "one": ("Normal", 4, 1),
    "ten": ("Normal", 19, 10),
    "all": ("FullDisruption", 5, 5),
    "most": ("PartialDisruption", 5, 4),
    "swap": ("Normal", 3, 1),
}
"""The state, the nodes and the failed nodes of each zone at the height of the outage."""


def bears(seconds: int | None) -> dict[str, int | None]:
    return dict.fromkeys(sorted(OUTAGE), seconds)


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaintStage]:
    """Four zones, from whose new nodes only the operator removes the API server's taint."""
    require_local_cluster(request, "these tests need a control plane without the node lifecycle, and its audit log")
    audit = Audit(tmp_path_factory.mktemp("audit"))
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(taint_settings(audit), nodes=0)
    with taint_stage(cluster, f"nodes-{secrets.token_hex(4)}", audit, tmp_path_factory.mktemp("logs")) as stage:
        for zone, names in NODES.items():
            stage.nodes(zone, *names)
        yield stage


class Outage(Struct, frozen=True):
    """The recorded course of an outage.

    Attributes:
        renewed: when the Lease of each silent node was renewed for the last time.
        unknown: when each was marked.
        failed: the transition time with which each was marked.
        put: the taints.
        off: those that were taken off once the nodes were back.
        ends: of pods.
        woken: when the nodes came back.
        status: of the TaintManager at the height of it.
        zones: what it says of zones, by their labels.
        pods: at the height of it, by name.
        after: the pods that are left afterwards.
        cleared: the TaintManager's status afterwards.
    """

    renewed: dict[str, float]
    unknown: dict[str, float]
    failed: dict[str, float]
    put: list[RecordedTaint]
    off: list[RecordedTaint]
    ends: list[PodDeletion]
    woken: float
    status: dict[str, Any]
    zones: dict[str, dict[str, Any]]
    pods: dict[str, dict[str, Any]]
    after: dict[str, dict[str, Any]]
    cleared: dict[str, Any]

    def taints_of(self, zone: str) -> list[RecordedTaint]:
        """The recorded taints of the nodes of a zone, in order."""
        return [each for each in self.put if each.node in NODES[zone]]


@pytest.fixture(scope="module")
def outage(stage: TaintStage) -> Outage:
    """Run the outage and record it."""
    for name in DEAD:
        stage.pod(f"brief-{name}", name, bears(BRIEF))
        stage.pod(f"patient-{name}", name, bears(PATIENT))
    stage.pod("agent", SILENT["one"][0], bears(None))
    stage.pod("at-once", SILENT["one"][0], {NOT_READY: 0, UNREACHABLE: 0})
    stage.pod("elsewhere", NODES["one"][1], bears(0))
    stage.pod("swapped", FIRST_SICK, bears(SWAPPED))
    stage.write(nodeLifecycle=LIFECYCLE)
    stage.operate()
    stage.until_ready()
    stage.until_running()
    time.sleep(3 * RENEWAL)  # until each node has been heard of twice

    stage.silence(*DEAD, FIRST_SICK)
    not_ready(stage, FIRST_SICK)
    renewed = stage.last_renewals(*DEAD)
    expected = {name for names in TAINTED.values() for name in names}
    stage.until(lambda: {each.node for each in stage.put()} >= expected, "all nodes are tainted", seconds=90)
    stage.until(lambda: due_pods(stage.put()).keys() <= {each.pod for each in stage.ends()}, "all due pods are deleted")
    with suppress(AssertionError):  # tests of the status show what is missing
        stage.until(lambda: states(stage.zones()) == STATES, "the status has the states of the zones")
        stage.until(lambda: not unready_missing(stage.pods()), "the pods of unreachable nodes are not ready")
    status, zones, pods = stage.status(), stage.zones(), stage.pods()

    woken = time.time()
    stage.wake(*DEAD, FIRST_SICK)
    stage.until_ready()
    stage.until(lambda: not stage.status()["counts"]["podsWithDeadline"], "no pod has a deadline")
    return Outage(
        renewed=renewed,
        unknown=stage.marked_unknown(),
        failed=stage.transitions(),
        put=stage.put(),
        off=stage.taken_off(),
        ends=stage.ends(),
        woken=woken,
        status=status,
        zones=zones,
        pods=pods,
        after=stage.pods(),
        cleared=stage.status(),
    )


def due_pods(put: list[RecordedTaint]) -> dict[str, float]:
    """The pods that recorded taints make due, and when."""
    due: dict[str, float] = {}
    for each in put:
        if each.node in DEAD:
            due[f"brief-{each.node}"] = each.added + BRIEF
        if each.node == FIRST_SICK:
            due["swapped"] = each.added + SWAPPED
        if each.node == SILENT["one"][0]:
            due["at-once"] = each.added
    return due


def states(zones: dict[str, dict[str, Any]]) -> dict[str, tuple[str, int, int]]:
    """The state, the nodes and the failed nodes of each zone."""
    return {zone: (each["state"], each["nodes"], each["notReady"]) for zone, each in zones.items()}


def unready_missing(pods: dict[str, dict[str, Any]]) -> set[str]:
    """The pods of unreachable nodes that are not marked as not ready."""
    return {name for name, each in pods.items() if each["spec"]["nodeName"] in DEAD and ready(each) != "False"}


def not_ready(stage: TaintStage, name: str) -> None:
    """The node condition NotReady, as a kubelet reports it."""
    conditions = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
    path = NODE_STATUS.format(name)
    body = {"status": {"conditions": conditions}}
    stage.client.request("PATCH", path, body, content_type="application/strategic-merge-patch+json")


NODE_STATUS = "/api/v1/nodes/{}/status"


def test_not_ready_taint_is_removed_from_new_nodes(stage: TaintStage, outage: Outage) -> None:
    assert not [name for names in NODES.values() for name in names if NOT_READY in stage.taints(name)]


def test_node_becomes_unknown_after_the_grace_period(outage: Outage) -> None:
    assert set(outage.unknown) == {*DEAD, FIRST_SICK}
    waits = {name: outage.unknown[name] - outage.renewed[name] for name in DEAD}
    assert {name: wait for name, wait in waits.items() if not GRACE <= wait <= GRACE + PERIOD + LATE} == {}


@pytest.mark.parametrize("zone", TAINTED)
def test_unreachable_nodes_are_tainted_at_the_rate_of_their_zone(zone: str, outage: Outage) -> None:
    """One node, ten nodes of a zone, and a whole zone of several."""
    put = outage.taints_of(zone)

    assert sorted(each.node for each in put) == TAINTED[zone]
    assert {each.key for each in put} == {UNREACHABLE}
    first = min(outage.failed[name] for name in TAINTED[zone])
    for place, each in enumerate(put):
        promised = first + place / RATE
        assert promised - 1.5 <= each.added, (place, each)
        assert each.at <= promised + 1 / RATE + LATE, (place, each)
    assert_rate(put, RATE)


def assert_rate(put: list[RecordedTaint], rate: float) -> None:
    """Taints have the operator's time in whole seconds."""
    added = sorted(each.added for each in put)
    for (i, before), (j, after) in itertools.combinations(enumerate(added), 2):
        assert after - before >= (j - i) / rate - 1.5, added


@pytest.mark.parametrize("zone", TAINTED)
def test_nodes_are_tainted_in_the_order_of_failure(zone: str, outage: Outage) -> None:
    """Conditions have whole seconds, and nodes that fail in the same second may be marked in two iterations."""
    failed = [outage.failed[each.node] for each in outage.taints_of(zone)]
    assert all(earlier <= later + 1 for earlier, later in itertools.pairwise(failed)), failed


def test_small_partially_disrupted_zone_is_not_tainted(outage: Outage) -> None:
    """Nodes that pass the grace period before the zone counts as partially disrupted may have been tainted."""
    tainted = sum(each.at < outage.woken for each in outage.taints_of("most"))
    assert tainted <= 2
    assert outage.zones["most"]["state"] == "PartialDisruption"
    assert outage.zones["most"]["waiting"] == len(SILENT["most"]) - tainted


def test_status_reports_zone_states(outage: Outage) -> None:
    assert states(outage.zones) == STATES


def test_pods_are_deleted_when_their_toleration_ends(outage: Outage) -> None:
    due = due_pods([each for each in outage.put if each.at < outage.woken])
    ends = {each.pod: each for each in outage.ends if each.at < outage.woken}

    assert set(ends) == set(due), "nobody else goes, and nobody is forgotten"
    assert len(outage.ends) == len({each.pod for each in outage.ends}), "each goes once"
    late = {pod: each.at - due[pod] for pod, each in ends.items()}
    assert {pod: wait for pod, wait in late.items() if not 0 <= wait <= LATE} == {}
    assert {(each.how, each.by) for each in outage.ends} == {("delete", OPERATOR)}
    assert all(each.uid for each in outage.ends), "each names whom it means"


def test_deadline_is_kept_when_not_ready_becomes_unreachable(outage: Outage) -> None:
    """The second taint replaces the first and keeps its time."""
    first, second = outage.taints_of("swap")
    assert (first.key, second.key) == (NOT_READY, UNREACHABLE)
    assert second.at >= first.at + 2
    assert second.added == first.added
    [end] = [each for each in outage.ends if each.pod == "swapped"]
    assert first.added + SWAPPED <= end.at <= first.added + SWAPPED + LATE


def test_pods_of_unreachable_nodes_become_not_ready(outage: Outage) -> None:
    pods = {name: each for name, each in outage.pods.items() if each["spec"]["nodeName"] in DEAD}
    assert len(pods) >= len(DEAD)
    assert unready_missing(pods) == set()
    assert ready(outage.pods["elsewhere"]) == "True"


def ready(pod: dict[str, Any]) -> str:
    return next((each["status"] for each in pod["status"]["conditions"] if each["type"] == "Ready"), "")


def test_recovery_untaints_nodes_and_cancels_deletions(outage: Outage) -> None:
    freed = {each.node: each for each in outage.off if each.at >= outage.woken}
    assert set(freed) == {each.node for each in outage.put}
    assert max(each.at for each in freed.values()) <= outage.woken + 10 * PERIOD + LATE
    assert {f"patient-{name}" for name in DEAD} | {"agent", "elsewhere"} <= set(outage.after)
    assert "nextDeadlines" not in outage.cleared or outage.cleared["nextDeadlines"] == []


def test_conditions_and_cordons_become_taints_and_other_taints_are_kept(stage: TaintStage, outage: Outage) -> None:
    name = NODES["one"][2]
    stage.taint(name, "example.com/foreign")
    pressure(stage, name, "True")
    stage.client.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, content_type=MERGE)
    wanted = {f"node.kubernetes.io/{each}": "NoSchedule" for each in ("memory-pressure", "unschedulable")}
    foreign = {"example.com/foreign": "NoExecute"}
    stage.until(lambda: stage.taints(name) == wanted | foreign, "the taints are there")
    pressure(stage, name, "False")
    stage.client.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}}, content_type=MERGE)
    stage.until(lambda: stage.taints(name) == foreign, "the taints are gone")
    stage.untaint(name, "example.com/foreign")


def pressure(stage: TaintStage, name: str, status: str) -> None:
    """The node condition MemoryPressure, as a kubelet reports it."""
    body = {"status": {"conditions": [{"type": "MemoryPressure", "status": status}]}}
    path = NODE_STATUS.format(name)
    stage.client.request("PATCH", path, body, content_type="application/strategic-merge-patch+json")


def test_outage_emits_events(stage: TaintStage, outage: Outage) -> None:
    name = SILENT["one"][0]
    assert stage.events("NodeNotReady", about=name)
    assert stage.events("TaintManagerEviction", about=f"brief-{name}")


def test_full_disruption_of_all_zones_stops_tainting(stage: TaintStage, outage: Outage) -> None:
    """Then the operator is more likely cut off than every node dead.

    A grace period of two renewals of a kubelet's Lease and more is what this takes.
    """
    everybody = [name for names in NODES.values() for name in names]
    stage.change(nodeLifecycle={"nodeMonitorGracePeriod": "22s"})
    stage.audit.mark()
    try:
        stage.silence(*everybody)
        stage.until(lambda: set(stage.marked_unknown()) == set(everybody), "all are marked")
        stage.until(lambda: set(stage_states(stage)) == {"FullDisruption"}, "all zones are down")
        time.sleep(2 / RATE)
    finally:
        stage.wake(*everybody)
    stage.until_ready()
    time.sleep(2 / RATE)
    stage.change(nodeLifecycle=LIFECYCLE)

    assert not stage.put()
    assert not stage.ends()
    assert "elsewhere" in stage.pods()


def stage_states(stage: TaintStage) -> list[str]:
    """The states of the zones in the status."""
    return [state for state, _, _ in states(stage.zones()).values()]


def taints(asked: AuditEvent) -> bool:
    return (
        asked.what == "nodes" and UNREACHABLE in str(asked.request_object) and "timeAdded" in str(asked.request_object)
    )


def prepares(asked: AuditEvent) -> bool:
    return asked.what == "pods/status"


def deletes(asked: AuditEvent) -> bool:
    return asked.what == "pods" and asked.verb == "delete"


def lives(asked: AuditEvent) -> bool:
    return asked.verb in ("get", "list")


POINTS: tuple[Callable[[AuditEvent], bool], ...] = (taints, deletes, prepares, lives)
"""What has been seen of a process when it is killed, a random moment later."""
LONGEST = 6.0
"""Seconds that a process lives, even if it does not get to where it was to be killed."""
SLOW = 0.35
"""Nodes a second, so that the outage outlasts ten processes."""


class Life(Struct, frozen=True):
    """The lifetime of a process: from its first complete snapshot until it was killed."""

    begin: float
    end: float


def test_ten_kills_during_a_zone_outage_lose_no_deadline(stage: TaintStage, outage: Outage) -> None:
    """Ten nodes of a zone failed; ten processes live for some seconds, the last one until all pods are deleted."""
    dead = SILENT["ten"]
    for name in dead:
        stage.pod(f"short-{name}", name, bears(BRIEF))
        stage.pod(f"long-{name}", name, bears(PATIENT))
    stage.until_running()
    stage.change(nodeLifecycle={**LIFECYCLE, "nodeEvictionRate": SLOW})
    chance = random.Random(SEED)
    points = [*POINTS, *chance.choices(POINTS, k=10 - len(POINTS))]
    chance.shuffle(points)
    stage.audit.mark()

    stage.silence(*dead)
    stage.until(lambda: set(stage.marked_unknown()) == set(dead), "all are marked")
    lives = [live_until(stage, point, chance.uniform(0.0, 0.5)) for point in points]
    stage.operate()
    lives.append(Life(time.time(), math.inf))
    stage.until(lambda: {each.pod for each in stage.ends()} >= {f"short-{name}" for name in dead}, "all short pods go")
    time.sleep(3 * PERIOD)

    put, ends = stage.put(), stage.ends()
    assert sorted(each.node for each in put) == sorted(dead), "each is tainted once"
    assert_rate(put, SLOW)
    assert {each.pod for each in ends} == {f"short-{name}" for name in dead}
    for each in put:
        end, due = next(end for end in ends if end.pod == f"short-{each.node}"), each.added + BRIEF
        assert due <= end.at <= promised(due, lives) + LATE, (each, end, lives)
    assert {f"long-{name}" for name in dead} <= set(stage.pods())
    told_of_stuck(stage, put[0].node)
    stage.wake(*dead)
    stage.until_ready()


def told_of_stuck(stage: TaintStage, name: str) -> None:
    """The status reports pods of dead nodes that cannot terminate, with a remedy."""
    stage.until(lambda: stage.status().get("stuckNodes"), "pods that cannot end are reported", seconds=60)
    stuck = {each["name"]: each for each in stage.status()["stuckNodes"]}
    assert stuck[name]["terminating"] == 1
    assert "out-of-service" in stuck[name]["message"]


def live_until(stage: TaintStage, point: Callable[[AuditEvent], bool], longer: float) -> Life:
    """Run a process until a given point and some moments longer, and kill it; the first one runs already."""
    tail = stage.audit.tail()
    process = stage.operator if stage.operator.running() else stage.operate(ready=False)
    begin = math.inf

    def there() -> bool:
        nonlocal begin
        if begin == math.inf and process.ready():
            begin = time.time()
        return any(point(each) for each in tail.read() if each.user.username == OPERATOR)

    with suppress(AssertionError):  # the point may be in a later process
        eventually(there, "the point is reached", seconds=LONGEST, pause=0.02)
    time.sleep(longer)
    assert process.running(), process.log.read_text()[-2000:]
    process.stop(signal.SIGKILL)
    return Life(begin, time.time())


def promised(due: float, lives: list[Life]) -> float:
    """The latest deletion of a pod that is due then: a process needs a second after its start."""
    return next(max(due, each.begin) for each in lives if max(due, each.begin) + LATE <= each.end)


KEY = "example.com/ill"
STALLED = GRACE + 12
"""Seconds for which the watches stall: longer than the grace period."""
IN_DOUBT = {"spared": NODES["one"][2], "due": NODES["one"][3]}
"""Pods on nodes that somebody taints."""


def test_stalled_watches_taint_no_healthy_node(stage: TaintStage, outage: Outage) -> None:
    """Kubelets renew their Leases, which the stalled watches hide; direct reads respond.

    Of two pods that would be due meanwhile one is spared, for its node's taint is taken off.
    """
    [dead] = SILENT["one"]
    for name in ("spared", "due"):
        stage.pod(name, IN_DOUBT[name], {KEY: STALLED})
    stage.until_running()
    stage.operator.stop()
    behind = BehindProxy(stage.cluster)
    try:
        stage.operate(target=behind)
        time.sleep(3 * RENEWAL)
        stage.audit.mark()
        tainted = [stage.taint(name, KEY) for name in IN_DOUBT.values()]
        time.sleep(1.0)
        behind.proxy.freeze()
        stage.silence(dead)
        stage.untaint(IN_DOUBT["spared"], KEY)
        time.sleep(max(0.0, max(tainted) + STALLED + 2 * PERIOD - time.time()))
        assert not stage.marked_unknown()
        assert not stage.put()

        assert {"spared", "due"} <= set(stage.pods())

        behind.proxy.thaw()
        stage.until(stage.put, "the dead node is tainted")
        stage.until(stage.ends, "the due pod is deleted")
        time.sleep(3 * PERIOD)
        assert [each.pod for each in stage.ends()] == ["due"]
        assert set(stage.marked_unknown()) == {dead}
        assert {each.node for each in stage.put()} == {dead}
        stage.wake(dead)
        stage.until_ready()
    finally:
        stage.wake(dead)
        stage.operator.stop()
        behind.proxy.close()
