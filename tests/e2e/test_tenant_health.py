"""The operator reports healthy only while it works, and a part that cannot work stops no other.

Each controller's task is killed or hung, definitions are deleted and created again in every order while all controllers
work, a SIGTERM ends the process in time whatever hangs, and the lease outlives a controllers' loop that is busy.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fixtures.audit import Audit
from tests.fixtures.clusters import MACHINES_AND_AUDIT, require_local_cluster
from tests.fixtures.joint import JointCluster, joint_cluster, joint_settings
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.waiting import eventually, patiently, wait_for
from trimtab.api import reasons
from trimtab.kube.api import Conflict, NotFound
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    MACHINE_AUTOSCALERS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.runtime.kopf_operator import MAX_WATCH_SILENCE
from trimtab.runtime.leader_election.elector import ElectionTimings
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, OperatorProcess

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/trimtab"
OURS: Final = (DESCHEDULER_POLICIES, DESCHEDULING_RUNS, CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, TAINT_MANAGERS)
WATCHED: Final[dict[Resource, tuple[Resource, ...]]] = {
    DESCHEDULER_POLICIES: (DESCHEDULER_POLICIES, DESCHEDULING_RUNS),
    CLUSTER_AUTOSCALERS: (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS),
    TAINT_MANAGERS: (TAINT_MANAGERS,),
}
"""By the kind of a controller's object, the definitions without which the controller waits."""

GRACE: Final = 55.0
"""Seconds after SIGTERM in which the process ends: the default of --shutdown-timeout."""


class Cluster(JointCluster):
    """A cluster with an object of every controller, and its CRDs."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.manifests = {each: self._manifest(each) for each in OURS}
        self.groups_made = False

    def stop_all(self) -> None:
        """Stop every operator that runs."""
        for each in self.processes:
            if each.running():
                each.stop(timeout=GRACE + 5)

    def defined(self, resource: Resource) -> bool:
        """Whether the CRD exists."""
        try:
            self.client.request("GET", f"{DEFINITIONS}/{name_of(resource)}")
        except NotFound:
            return False
        return True

    def _manifest(self, resource: Resource) -> dict[str, Any]:
        found = self.client.request("GET", f"{DEFINITIONS}/{name_of(resource)}")
        return {
            "apiVersion": found["apiVersion"],
            "kind": found["kind"],
            "metadata": {"name": found["metadata"]["name"]},
            "spec": found["spec"],
        }

    def define(self, resource: Resource) -> None:
        """Create the CRD again, and the object of its kind."""

        def created() -> bool:
            try:
                self.client.request("POST", DEFINITIONS, self.manifests[resource])
            except Conflict:
                return False
            return True

        wait_for(created, f"{resource.plural} to be gone before it is created again")

        def served() -> bool:
            try:
                self.client.request("GET", resource.path(), params={"limit": "1"})
            except Exception:  # noqa: BLE001 (not found, or still initializing)
                return False
            return True

        wait_for(served, f"{resource.plural} to be served")
        self.create_object(resource)

    def create_object(self, resource: Resource) -> None:
        """Create the object of a controller."""
        if resource == DESCHEDULER_POLICIES:
            self.write_policy(mode="Simulate")
        elif resource == TAINT_MANAGERS:
            self.manage_taints()
        elif resource == CLUSTER_AUTOSCALERS:
            self.autoscale()

    def undefine(self, resource: Resource) -> None:
        """Delete the CRD, and wait until it and its objects are gone."""
        path = f"{DEFINITIONS}/{name_of(resource)}"
        self.client.request("DELETE", path)

        def gone() -> bool:
            try:
                self.client.request("GET", path)
            except NotFound:
                return True
            return False

        wait_for(gone, f"{resource.plural} and its objects to be gone", timeout=90)

    def works(self, resource: Resource) -> bool:
        """Whether the controller reports the new generation after a change of its object."""
        path, generation = self.edit(resource)

        def reported() -> bool:
            return observed(self.client.request("GET", path).get("status") or {}) >= generation

        try:
            eventually(reported, f"{resource.kind} is reported", seconds=30, pause=0.3)
        except AssertionError:
            return False
        return True

    def edit(self, resource: Resource) -> tuple[str, int]:
        """Change the spec of a controller's object; returns its path and new generation."""
        path = resource.path("default")
        spec = {
            DESCHEDULER_POLICIES: {"interval": f"{5 + self._edits() % 3}s"},
            TAINT_MANAGERS: {"nodeLifecycle": {"nodeStartupGracePeriod": f"{10 + self._edits() % 7}s"}},
            CLUSTER_AUTOSCALERS: {"maxPodGracePeriod": 600 + self._edits() % 7},
        }[resource]
        written = self.client.request("PATCH", path, {"spec": spec}, content_type=MERGE)
        return path, int(written["metadata"]["generation"])

    def _edits(self) -> int:
        self._number = getattr(self, "_number", 0) + 1
        return self._number


def observed(status: dict[str, Any]) -> int:
    """The highest observedGeneration of a status."""
    found = [each.get("observedGeneration", 0) for each in status.get("conditions") or ()]
    return max([status.get("observedGeneration", 0), *found])


def name_of(resource: Resource) -> str:
    """The name of the CRD."""
    return f"{resource.plural}.{resource.group}"


MAX_INACTIVITY = 12.0
"""Seconds, instead of ten minutes."""

LOOPS = ("policy default", "autoscaler", "machine autoscalers", "taint manager", "node lifecycle")
"""The loops of all controllers."""


KOPF_WATCHER = f"watcher for {TAINT_MANAGERS.plural}.{TAINT_MANAGERS.version}.{TAINT_MANAGERS.group}@None"


class FaultyOperator(OperatorProcess):
    """An operator that obeys orders."""

    identity = ""

    def order(self, *words: str) -> None:
        """Order a fault."""
        with self.faults.open("a") as orders:
            orders.write(" ".join(words) + "\n")

    @property
    def faults(self) -> Path:
        """The file with the orders."""
        return self.log.with_suffix(".faults")

    def _command(self, *program: str) -> list[str]:
        """Return the command line with the entry point of the tests."""
        assert not program
        return super()._command("env", f"FAULTS={self.faults}", sys.executable, "-m", "tests.fixtures.faulty_operator")


class Operators:
    """A leader and a follower with faults on order; a new follower replaces a leader that has ended."""

    def __init__(self, joint: Cluster, directory: Path) -> None:
        self.joint = joint
        self.leader = self.standby = FaultyOperator(joint.cluster, directory, name="none")
        self._directory = directory
        self._number = 0
        self.leader = self._start()
        wait_for(lambda: self.holder == self.leader.identity, "the first to lead")
        self.standby = self._start()

    def _start(self) -> FaultyOperator:
        self._number += 1
        identity = f"operator-{self._number}"
        made = FaultyOperator(
            self.joint.cluster,
            self._directory,
            "--controllers=descheduler,autoscaler,tainting",
            f"--max-inactivity={MAX_INACTIVITY:.0f}s",
            f"--identity={identity}",
            name=identity,
        )
        made.identity = identity
        self.joint.processes.append(made)
        made.start()
        return made

    @property
    def holder(self) -> str:
        """The holder of the lease."""
        return str(self.joint.client.request("GET", LEASE)["spec"].get("holderIdentity") or "")

    def until_taken_over(self, *, within: float) -> float:
        """Wait until the leader has ended and the follower leads; returns the seconds in between."""
        wait_for(lambda: not self.leader.running(), "the leader to end", timeout=within, interval=0.1)
        ended = time.monotonic()
        wait_for(lambda: self.holder == self.standby.identity, "the standby to lead", timeout=30, interval=0.1)
        took = time.monotonic() - ended
        assert took < ElectionTimings().lease_duration + patiently(15)
        self.until_all_work()
        self.leader, self.standby = self.standby, self._start()
        return took

    def until_all_work(self) -> None:
        """Every controller reports on a change of its object."""
        for each in WATCHED:
            assert self.joint.works(each), each.kind


@pytest.fixture(scope="module")
def operators(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """A leader and a follower for the tests of faults."""
    operators = Operators(cluster, tmp_path_factory.mktemp("operators"))
    operators.until_all_work()
    yield operators
    cluster.stop_all()


@pytest.mark.parametrize("fault", ["hang", "kill"])
@pytest.mark.parametrize("loop", LOOPS)
def test_stalled_loop_ends_the_process(operators: Operators, loop: str, fault: str) -> None:
    leader = operators.leader
    leader.order(fault, loop)
    took = operators.until_taken_over(within=MAX_INACTIVITY + 30)
    sys.stdout.write(f"{fault} {loop}: the standby led {took:.1f} s after the leader ended\n")
    assert f"{reasons.INACTIVE}: {loop}" in leader.log.read_text().replace("taint manager: ", "")


@pytest.mark.parametrize("task", ["watch pods", "progress of watches", "definitions", KOPF_WATCHER])
def test_cancelled_task_ends_the_process(operators: Operators, task: str) -> None:
    operators.leader.order("kill-task", task)
    operators.until_taken_over(within=MAX_WATCH_SILENCE + 30 if task == KOPF_WATCHER else 60)


def test_hung_event_loop_ends_the_process(operators: Operators) -> None:
    operators.leader.order("hang-thread")
    operators.until_taken_over(within=MAX_INACTIVITY + 15)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this module with an object of every controller."""
    require_local_cluster(request, MACHINES_AND_AUDIT)
    directory = tmp_path_factory.mktemp("health")
    audit = Audit(directory)
    local: LocalCluster = request.getfixturevalue("make_cluster")(joint_settings(audit), nodes=0)
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.fixtures.joint.JointCluster", Cluster)
    try:
        with joint_cluster(local, audit, directory) as joint:
            assert isinstance(joint, Cluster)
            for each in WATCHED:
                joint.create_object(each)
            yield joint
    finally:
        patch.undo()
        local.down()


@pytest.fixture
def joint(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with one operator, which is stopped afterwards; missing CRDs are created again."""
    operator = cluster.operate("--leader-elect")
    if not cluster.groups_made:
        cluster.group("stable", replicas=2, minimum=2, maximum=4)
        cluster.groups_made = True
    try:
        yield cluster
    finally:
        if operator.running():
            operator.stop(timeout=GRACE + 5)
        cluster.stop_all()
        for each in OURS:
            if not cluster.defined(each):
                cluster.define(each)


def test_event_loop_busy_for_35_seconds_keeps_the_lease(cluster: Cluster, tmp_path: Path) -> None:
    """The process continues, and neither renewals nor probes are late."""
    cluster.stop_all()
    leader = FaultyOperator(
        cluster.cluster, tmp_path, "--controllers=descheduler,autoscaler,tainting", "--identity=leader", name="busy"
    )
    leader.start()
    try:
        for each in WATCHED:
            assert cluster.works(each), each.kind
        transitions = cluster.client.request("GET", LEASE)["spec"]["leaseTransitions"]
        leader.order("block", "taint manager", "35")
        began, renewed, latest, probes = time.monotonic(), "", time.monotonic(), []
        longest = 0.0
        while time.monotonic() - began < 40:
            spec = cluster.client.request("GET", LEASE)["spec"]
            assert spec["holderIdentity"] == "leader"
            if spec["renewTime"] != renewed:
                longest = max(longest, time.monotonic() - latest)
                renewed, latest = spec["renewTime"], time.monotonic()
            asked = time.monotonic()
            leader.get("/readyz")
            probes.append(time.monotonic() - asked)
            time.sleep(0.2)
        sys.stdout.write(f"longest between renewals {longest:.1f} s, slowest probe {max(probes):.2f} s\n")
        assert longest < ElectionTimings().retry_period + patiently(2)
        assert max(probes) < patiently(1.0)
        for each in WATCHED:
            assert cluster.works(each), each.kind
        assert cluster.client.request("GET", LEASE)["spec"]["leaseTransitions"] == transitions
        assert leader.running()
    finally:
        if leader.running():
            leader.stop(timeout=60)


def test_overdue_plan_sets_and_clears_degraded(cluster: Cluster, tmp_path: Path) -> None:
    cluster.stop_all()
    leader = FaultyOperator(
        cluster.cluster, tmp_path, "--controllers=descheduler,autoscaler,tainting", "--identity=leader", name="stale"
    )
    leader.start()
    try:
        for each in WATCHED:
            assert cluster.works(each), each.kind
        leader.order("block", "autoscaler", "85")

        def reason(resource: Resource) -> str:
            status = cluster.client.request("GET", resource.path("default")).get("status") or {}
            return next((each["reason"] for each in status.get("conditions") or () if each["type"] == "Degraded"), "")

        wait_for(lambda: reason(CLUSTER_AUTOSCALERS) == reasons.PLAN_STALE, "the overdue plan to be reported")
        assert leader.running()
        wait_for(lambda: reason(CLUSTER_AUTOSCALERS) != reasons.PLAN_STALE, "it to be withdrawn")
    finally:
        if leader.running():
            leader.stop(timeout=60)


def check(joint: Cluster, missing: set[Resource]) -> None:
    """The controllers whose CRDs exist work, /readyz names the missing ones, and one process keeps the lease."""
    for controller, needed in WATCHED.items():
        if not missing & set(needed):
            assert joint.works(controller), f"{controller.kind} while {[each.plural for each in missing]} are missing"
    assert joint.operator is not None
    assert joint.operator.running()
    assert joint.operator.get("/healthz") is not None
    assert (joint.operator.get("/readyz") is None) == bool(missing)
    wanted = {
        f'trimtab_definition_served{{definition="{name_of(each)}"}} {float(each not in missing)}' for each in OURS
    }

    def counted() -> bool:
        assert joint.operator is not None
        return wanted <= set((joint.operator.get("/metrics") or "").splitlines())

    # The metric can follow /readyz by ten seconds.
    wait_for(counted, "the metric of definitions", timeout=40)


def until_noticed(joint: Cluster, *, ready: bool) -> None:
    wait_for(lambda: joint.operator is not None and joint.operator.ready() == ready, "/readyz to say so", timeout=40)


def stops(joint: Cluster) -> float:
    """Send SIGTERM; returns the seconds until the process ended, and asserts that the lease is released."""
    assert joint.operator is not None
    began = time.monotonic()
    assert joint.operator.stop(timeout=GRACE + 5) == 0
    assert not joint.client.request("GET", LEASE)["spec"].get("holderIdentity")
    return time.monotonic() - began


@pytest.mark.parametrize(
    "missing",
    [pytest.param(each, id=each.plural) for each in OURS],
)
def test_deleted_crd_stops_only_its_controller(joint: Cluster, missing: Resource) -> None:
    check(joint, set())
    holder = joint.client.request("GET", LEASE)["spec"]["holderIdentity"]
    joint.undefine(missing)
    until_noticed(joint, ready=False)
    check(joint, {missing})
    joint.define(missing)
    until_noticed(joint, ready=True)
    check(joint, set())
    assert joint.client.request("GET", LEASE)["spec"]["holderIdentity"] == holder
    assert stops(joint) < GRACE


def test_crds_are_deleted_and_created_in_every_order(joint: Cluster) -> None:
    """Each of the five CRDs is deleted, and created, before and after each other one."""
    check(joint, set())
    orders = [OURS, tuple(reversed(OURS)), (*OURS[2:], *OURS[:2]), (*reversed(OURS[:3]), *OURS[3:])]
    pairs = {pair for order in orders for pair in itertools.combinations(order, 2)}
    assert len(pairs) == len(OURS) * (len(OURS) - 1)
    for deleting, creating in zip(orders, reversed(orders), strict=True):
        missing: set[Resource] = set()
        for each in deleting:
            joint.undefine(each)
            missing.add(each)
            if len(missing) in (1, 3):
                until_noticed(joint, ready=False)
                check(joint, missing)
        for each in creating:
            joint.define(each)
        until_noticed(joint, ready=True)
        check(joint, set())
    assert stops(joint) < GRACE


def test_sigterm_ends_the_process_while_all_crds_are_missing(joint: Cluster) -> None:
    for each in OURS:
        joint.undefine(each)
    until_noticed(joint, ready=False)
    assert stops(joint) < 15


def test_crds_installed_after_the_operator_are_watched(joint: Cluster) -> None:
    assert stops(joint) < GRACE
    for each in OURS:
        path = each.path("default") if each in WATCHED else None
        if path is not None:  # no operator runs that would remove finalizers
            joint.client.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    for namespace_and_name in machine_autoscalers(joint):
        joint.client.request("PATCH", namespace_and_name, {"metadata": {"finalizers": None}}, content_type=MERGE)
    for each in OURS:
        joint.undefine(each)
    joint.operate("--leader-elect", ready=False)
    wait_for(lambda: joint.client.request("GET", LEASE)["spec"].get("holderIdentity"), "the lease to be held")
    for each in OURS:
        joint.define(each)
    until_noticed(joint, ready=True)
    check(joint, set())


def machine_autoscalers(joint: Cluster) -> list[str]:
    items = joint.client.request("GET", MACHINE_AUTOSCALERS.path())["items"]
    return [
        MACHINE_AUTOSCALERS.path(each["metadata"]["name"], namespace=each["metadata"]["namespace"]) for each in items
    ]
