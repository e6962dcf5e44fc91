"""The status of the PlacementAdmission on a real API server, written by two replicas."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import MakeCluster
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.placement_admission import AdmissionCluster, pod
from tests.fixtures.users import User
from tests.fixtures.waiting import wait_for
from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import MAX_REFUSALS, PlacementAdmissionStatus
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import PODS

pytestmark = pytest.mark.live

WORKERS = 6
EACH = 25
"""Number of pods that each worker creates, and of pods that are refused to it."""
BY_NAME = "node selection by nodeName is prohibited by policy for your role"


@pytest.fixture
def replicated(make_cluster: MakeCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AdmissionCluster]:
    """A cluster with two replicas of the admission role."""
    require_local_cluster(request, "the replicas run as processes next to a local control plane")
    with ExitStack() as stack:
        cluster = AdmissionCluster(make_cluster(nodes=0), tmp_path, stack)
        cluster.start()
        cluster.start()
        yield cluster


def status(cluster: AdmissionCluster) -> PlacementAdmissionStatus:
    return decode_placement_admission(cluster.policy()).status


def requests_of(page: str | None) -> float:
    """The number of admission requests in a page of metrics."""
    lines = (page or "").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("trimtab_admission_requests_total{"))


def test_two_replicas_count_every_request_once(replicated: AdmissionCluster) -> None:
    cluster = replicated
    namespace = cluster.namespace()
    cluster.enforce(podNodeConstraints={}, podNodeSelector={"clusterDefaultNodeSelector": "type=user-node"})
    wait_for(lambda: len(status(cluster).replicas) == 2, "both replicas to report", timeout=30)
    before = status(cluster)

    def work(number: int) -> None:
        user = User(cluster.cluster, "dev")  # each thread has its own connection
        for index in range(EACH):
            user.create(PODS, pod(f"p{number}-{index}"), namespace=namespace)
            with pytest.raises(Forbidden, match=BY_NAME):
                user.create(PODS, pod(f"r{number}-{index}", nodeName="n0"), namespace=namespace)
        user.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    total = WORKERS * EACH
    # A refused pod has been changed before: the mutating webhooks come first.
    wait_for(lambda: status(cluster).refused - before.refused == total, "all refusals to be counted", timeout=40)
    wait_for(lambda: status(cluster).mutated - before.mutated == 2 * total, "all changes to be counted", timeout=40)

    after = status(cluster)
    counts = {(each.rule, each.result): each.count for each in after.counts}
    assert counts["PodNodeConstraints", "Refused"] == after.refused
    assert counts["PodNodeSelector", "Mutated"] == after.mutated
    assert len(after.recent_refusals) == MAX_REFUSALS
    assert {(each.rule, each.kind, each.namespace) for each in after.recent_refusals} == {
        ("PodNodeConstraints", "Pod", namespace)
    }
    assert all(BY_NAME in each.message for each in after.recent_refusals)
    assert all(each.certificate_expires is not None and each.problem == "" for each in after.replicas)
    answered = [requests_of(replica.get("/metrics")) for replica in cluster.replicas]
    assert all(answered), "one replica answered all requests, so the test has shown nothing"

    # A replica that stops adds its last counts and leaves the status.
    first, second = cluster.replicas
    with pytest.raises(Forbidden):
        cluster.dev.create(PODS, pod("last", nodeName="n0"), namespace=namespace)
    assert first.stop() == 0
    assert [each.name for each in status(cluster).replicas] != [each.name for each in after.replicas]
    assert second.stop() == 0
    assert status(cluster).refused == after.refused + 1
    assert status(cluster).replicas == ()
