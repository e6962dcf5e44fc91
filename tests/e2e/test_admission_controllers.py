"""Dedicated nodes with every controller of the operator: scheduler, autoscaler, taint manager and descheduler."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import wait_for_cycles
from tests.fixtures.joint import VALUES, JointCluster, own_joint_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.placement_admission import AdmissionCluster, deploy
from tests.fixtures.waiting import eventually
from trimtab.kube.resources import DEPLOYMENTS, NODES

TAINT = {"key": "dedicated", "value": "team-a", "effect": "NoExecute"}
RULES: dict[str, Any] = {
    "dedicatedNodes": {"pools": [{"name": "team-a", "groups": ["team-a"], "taint": TAINT}]},
    "podNodeConstraints": {
        "nodeSelectorLabelBlacklist": ["kubernetes.io/hostname"],
        "additionalChecks": ["NodeAffinity", "GatedPodUpdates", "EphemeralContainers"],
    },
}
STRATEGIES = {
    "RemovePodsViolatingNodeTaints": {},
    "RemovePodsViolatingNodeAffinity": {},
    "RemoveDuplicates": {"enabled": True},
}
BIG = {"requests": {"cpu": "1500m", "memory": "512Mi"}}


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster whose only scheduler is the operator, with two open nodes and a pool of team-a that is empty."""
    with own_joint_cluster(request, tmp_path, schedules=True) as joint:
        joint.manage_taints()
        joint.autoscale(scaleDown={"enabled": False})
        joint.write_policy(strategies=STRATEGIES)
        joint.operate()
        joint.group("open", replicas=2, minimum=2, maximum=2)
        joint.group("team", minimum=0, maximum=3, labels={"dedicated": "team-a"}, taints=[TAINT])
        yield joint


@pytest.fixture
def admission(joint: JointCluster, tmp_path: Path) -> Iterator[AdmissionCluster]:
    """Two replicas of the admission role on that cluster."""
    with ExitStack() as stack:
        values = (*VALUES, "controllers.scheduler.enabled=true")
        found = AdmissionCluster(joint.cluster, tmp_path, stack, values=values)
        found.start()
        found.start()
        found.enforce(**RULES)
        yield found


def owners(joint: JointCluster, pool: str) -> set[str]:
    """Return the apps whose pods run or are bound on the nodes of a pool."""
    nodes = set(joint.nodes(pool))
    return {each["metadata"]["labels"]["app"] for each in joint.pods() if each["spec"].get("nodeName") in nodes}


def test_dedicated_pool_scales_for_its_group_and_no_controller_moves_a_pod_wrongly(
    joint: JointCluster, admission: AdmissionCluster
) -> None:
    name = admission.namespace()
    joint.pods_namespace = name
    joint.write_policy(strategies=STRATEGIES)  # for the namespace of this test

    # 1. The group's pods need the empty pool: the autoscaler adds nodes for them, the scheduler binds them there.
    deploy(admission.member, name, "team", 4, resources=BIG)
    joint.until_running("team", 4)
    assert owners(joint, "team") == {"team"}
    size = joint.size("team")
    assert size == 2

    # 2. Others fill the open nodes; for the rest the autoscaler adds none of the group's nodes.
    deploy(admission.dev, name, "others", 6, resources=BIG)
    eventually(lambda: sum(joint.where("others").values()) == 4, what="the pods that fit", seconds=60)
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        assert owners(joint, "team") == {"team"}
        assert joint.size("team") == size
        time.sleep(0.5)

    # 3. An open node joins the pool: the taint manager evicts the others and not the group's pods.
    [taken, *_] = sorted(joint.nodes("open"))
    before = {each["metadata"]["uid"] for each in joint.pods("team")}
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = {"metadata": {"labels": {"dedicated": "team-a"}}, "spec": {"taints": [{**TAINT, "timeAdded": stamp}]}}
    joint.client.request("PATCH", NODES.path(taken), body, content_type=MERGE)
    eventually(
        lambda: not [each for each in joint.pods("others") if each["spec"].get("nodeName") == taken],
        what="the others to leave the node",
        seconds=60,
    )
    scale = {"spec": {"replicas": 6}}
    admission.member.patch(DEPLOYMENTS, "team", scale, namespace=name, subresource="scale")
    joint.until_running("team", 6)
    assert joint.where("team")[taken] == 2
    assert joint.size("team") == size
    assert before <= {each["metadata"]["uid"] for each in joint.pods("team")}

    # 4. Without webhooks, what runs keeps running, and no controller evicts anything because of it.
    for each in admission.replicas:
        each.stop(signal.SIGKILL)
    evictions = len(joint.evictions())
    wait_for_cycles(joint.processes[-1], "default")
    assert sum(joint.where("team").values()) == 6
    assert len(joint.evictions()) == evictions
    assert owners(joint, "team") == {"team"}

    # 5. The taint is removed: the node is open again.
    admission.start()
    joint.client.request("PATCH", NODES.path(taken), {"spec": {"taints": None}}, content_type=MERGE)
    admission.member.patch(DEPLOYMENTS, "team", {"spec": {"replicas": 4}}, namespace=name, subresource="scale")
    eventually(lambda: joint.where("others")[taken] > 0, what="the others to return", seconds=60)
