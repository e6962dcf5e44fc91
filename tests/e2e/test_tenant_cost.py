"""What the most expensive pods of a tenant cost the operator: memory, the lease, and the time of others.

With the chart's permissions and all controllers. The pods are those of the security review: thousands of invented
resource names, affinity terms and topology keys, and annotations of hundreds of kilobytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pytest

from tests.fixtures.audit import Audit
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.joint import STRATEGIES, JointCluster, joint_cluster, joint_settings, until_all_run
from tests.fixtures.tainting import LENIENT
from tests.fixtures.tenant import MEMORY_LIMIT, Tenant, resident_bytes
from tests.fixtures.waiting import eventually, patiently
from trimtab.api import reasons
from trimtab.kube.resources import LEASES
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, OperatorProcess
from trimtab_local.loop_lag import loop_lags

LONGEST_LAG: Final = 0.1
"""Seconds by which a tenant may delay others on the controllers' loop."""

RETURNED: Final = 1.1
"""The most that resident memory may be after the pods are gone, over that before."""

SCALE_UP: Final = 10.0
"""Seconds in which another tenant's pending pods must raise a group's size."""


def resources(number: int) -> dict[str, Any]:
    return {"resources": {"limits": {f"x.io/p{number}-{each}": "1" for each in range(10_000)}}}


def terms(number: int) -> dict[str, Any]:
    def term(each: int) -> dict[str, Any]:
        expression = {"key": f"a{number}-{each}", "operator": "Exists"}
        selector = {"matchExpressions": [expression]}
        return {"topologyKey": f"k{each % 7}", "namespaceSelector": {}, "labelSelector": selector}

    required = [term(each) for each in range(8_000)]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def topology_keys(number: int) -> dict[str, Any]:
    selector = {"matchLabels": {"app": "x"}}
    preferred = [
        {"weight": 1, "podAffinityTerm": {"topologyKey": f"t{number}-{each}", "labelSelector": selector}}
        for each in range(5_000)
    ]
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def allowed_terms(number: int) -> dict[str, Any]:
    """As many terms as the limits allow."""
    required = [
        {"topologyKey": f"t{number}-{each % 16}", "labelSelector": {"matchLabels": {f"a{number}-{each}": "x"}}}
        for each in range(64)
    ]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def annotations(number: int) -> dict[str, Any]:
    return {"annotations": {f"trimtab.dev/notes-{number}": "x" * 250_000}}


Make = Callable[[int], Mapping[str, Any]]

ATTACKS: Final[dict[str, tuple[Make, int, bool, int]]] = {
    "resource names, pinned": (resources, 15, True, 15),
    "resource names, pending": (resources, 15, False, 15),
    "affinity terms, pinned": (terms, 12, True, 12),
    "topology keys, pinned": (topology_keys, 15, True, 15),
    "annotations, pinned": (annotations, 60, True, 60),
    "terms within the limits, pinned": (allowed_terms, 50, True, 0),
}
"""What each pod has, how many there are, whether they name a node, and how many are too complex."""


class Running:
    """A cluster with a workload of another tenant, and the leading operator."""

    def __init__(self, joint: JointCluster, tenant: Tenant, operator: OperatorProcess) -> None:
        self.joint = joint
        self.tenant = tenant
        self.operator = operator
        self.lag_at_rest = 0.0
        """The 90th percentile of the loop's lag before the first attack: what the machine itself causes."""

    def metric(self, name: str) -> float:
        """A sample of the operator's metrics by its name with labels."""
        text = self.operator.get("/metrics") or ""
        return next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(f"{name} ")), 0.0)

    def lease(self) -> tuple[str, int]:
        """The holder of the lease, and its number of transitions."""
        spec = self.joint.client.request("GET", LEASES.path("trimtab", namespace=NAMESPACE))["spec"]
        return spec["holderIdentity"], int(spec.get("leaseTransitions") or 0)

    def too_complex(self) -> float:
        """The number of pods that the operator neither evicts nor places because they are too complex."""
        return self.metric(f'trimtab_pods_too_complex{{reason="{reasons.POD_TOO_COMPLEX}"}}')


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    require_local_cluster(request, "these tests need the machine controller of a local control plane")
    directory = tmp_path_factory.mktemp("cost")
    audit = Audit(directory)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(joint_settings(audit), nodes=0)
    try:
        with joint_cluster(cluster, audit, directory) as joint:
            operator = OperatorProcess(cluster, directory, "--controllers=descheduler,autoscaler,tainting")
            operator.start()
            try:
                yield _prepared(joint, cluster, operator)
            finally:
                operator.stop()
    finally:
        cluster.down()


def _prepared(joint: JointCluster, cluster: LocalCluster, operator: OperatorProcess) -> Running:
    joint.manage_taints(nodeLifecycle=LENIENT)
    joint.autoscale(scaleDown={"enabled": False})
    joint.group("workers", replicas=4, minimum=4, maximum=30)
    joint.deploy("bank", 8, cpu="300m")
    until_all_run(joint)
    joint.write_policy(strategies=STRATEGIES)
    running = Running(joint, Tenant(cluster), operator)
    begin = loop_lags(operator)
    time.sleep(30.0)  # every controller has planned, so that all code is loaded
    running.lag_at_rest = (loop_lags(operator) - begin).quantile(0.9)
    return running


@pytest.mark.parametrize("name", ATTACKS)
def test_expensive_pods_of_a_tenant_cost_bounded_memory_and_time(running: Running, name: str) -> None:
    make, count, pinned, expected = ATTACKS[name]
    joint, operator = running.joint, running.operator
    where = {"nodeName": min(joint.nodes("workers"))} if pinned else {}
    before, lease, bank = resident_bytes(operator.pid), running.lease(), set(joint.where("bank"))

    begin = loop_lags(operator)
    for number in range(count):
        running.tenant.create_pod(f"pod-{number}", **make(number), **where)
    eventually(lambda: running.too_complex() == expected, what=f"{expected} pods are too complex", seconds=30)
    size, started = joint.size("workers"), time.monotonic()
    joint.deploy(f"asking-{size}", 2, cpu="3500m")
    eventually(lambda: joint.size("workers") > size, what="the group grows for others", seconds=60)
    took = time.monotonic() - started
    time.sleep(10.0)
    lags = loop_lags(operator) - begin
    highest = resident_bytes(operator.pid, "VmHWM")
    running.tenant.delete_pods()
    eventually(lambda: running.too_complex() == 0, what="no pod is too complex", seconds=30)
    with suppress(AssertionError):  # the assertion below shows the memory
        eventually(
            lambda: resident_bytes(operator.pid) <= before * RETURNED, "memory is returned", seconds=120, pause=1.0
        )
    after = resident_bytes(operator.pid)
    print(
        f"\n{name}: {before / 2**20:.0f} MiB before, {highest / 2**20:.0f} at most, {after / 2**20:.0f} after; "
        f"lag 90th percentile {lags.quantile(0.9) * 1000:.0f} ms, largest {lags.quantile(1.0) * 1000:.0f} ms; "
        f"scale-up of others after {took:.1f} s"
    )
    assert operator.running()
    assert running.lease() == lease
    assert set(joint.where("bank")) == bank
    assert highest < MEMORY_LIMIT
    assert after <= before * RETURNED
    assert lags.quantile(0.9) - running.lag_at_rest < LONGEST_LAG
    assert took < patiently(SCALE_UP)
