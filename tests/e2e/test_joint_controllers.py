"""All controllers act at once: failures, budgets and owners that several of them affect, and kill -9."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.audit import OPERATOR, broken_budgets, require_none
from tests.fixtures.joint import (
    CHURN_TAINT,
    STRATEGIES,
    JointCluster,
    PodLife,
    deploy_on,
    guarded_namespace,
    own_joint_cluster,
    protected_pods,
    until_all_run,
)
from tests.fixtures.tainting import UNREACHABLE

SEED = 13
LIVES = 6
"""Operators that are killed while all controllers act."""
IN_FLIGHT = 1.0
"""Seconds in which requests that several controllers have sent at once may be granted in another order."""


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster of the test with two groups: ``flaky``, whose nodes fail, and ``stable``."""
    with own_joint_cluster(request, tmp_path, history=True) as joint:
        joint.manage_taints()
        joint.autoscale()
        joint.operate()
        joint.group("stable", replicas=3, minimum=3, maximum=6)
        yield joint


@pytest.mark.core
def test_node_failure_during_evictions_and_scale_down(joint: JointCluster) -> None:
    joint.group("flaky", replicas=6, minimum=4, maximum=8)
    nodes = sorted(joint.nodes("flaky"))
    deploy_on(joint, "web", 8, nodes[:4], cpu="1")
    deploy_on(joint, "duplicated", 6, nodes[:2], cpu="200m")
    protected_pods(joint, nodes[:1])

    joint.write_policy()
    joint.silence(nodes[0])

    joint.until(lambda: UNREACHABLE in taint_keys(joint, nodes[0]), "the silent node is tainted", seconds=30)
    joint.until(lambda: joint.size("flaky") < 6, "the autoscaler removes a node")
    joint.until(lambda: len(set(joint.where("duplicated"))) > 2, "the policy spreads the duplicates")
    joint.until(lambda: not staying(joint, nodes[0]), "the deadlines of the silent node's pods pass")
    joint.silence(nodes[0], on=False)
    until_all_run(joint)
    joint.until_at_rest(seconds=90)
    require_none(joint.violations(protected=[f"{joint.pods_namespace}/protected"]))


def staying(joint: JointCluster, node: str) -> list[str]:
    """Return the pods of a node that are not being deleted, without the protected ones, which tolerate everything."""
    return [
        each["metadata"]["name"]
        for each in joint.pods()
        if each["spec"].get("nodeName") == node
        and not each["metadata"].get("deletionTimestamp")
        and each["metadata"]["labels"]["app"] != "protected"
    ]


def taint_keys(joint: JointCluster, node: str) -> set[str]:
    return {each["key"] for each in joint.all_nodes()[node]["spec"].get("taints") or ()}


def test_budget_shared_by_two_controllers_is_never_exceeded(joint: JointCluster) -> None:
    """The policy moves duplicates of an application and the autoscaler drains a node that runs its other pods."""
    joint.group("flaky", replicas=4, minimum=1, maximum=6)
    nodes = sorted(joint.nodes("flaky"))
    deploy_on(joint, "web", 6, nodes[:3], cpu="300m")
    joint.budget("web", maxUnavailable=1)

    joint.write_policy()

    joint.until(lambda: joint.size("flaky") < 4, "the autoscaler removes nodes")
    joint.until(lambda: joint.evictions(), "pods of the application are evicted")
    joint.until_at_rest(seconds=120)
    until_all_run(joint)
    require_none(broken_budgets(joint.audit, joint.pods_namespace))
    require_none(joint.violations())


def test_random_kills_with_all_controllers_leave_no_orphans(joint: JointCluster) -> None:
    joint.group("flaky", replicas=6, minimum=3, maximum=8)
    nodes = sorted(joint.nodes("flaky"))
    guarded_namespace(joint, "guarded")
    deploy_on(joint, "web", 8, nodes[:2], cpu="300m")
    deploy_on(joint, "duplicated", 6, nodes[2:4], cpu="200m")
    joint.budget("web", maxUnavailable=2)
    protected_pods(joint, nodes[:2])
    chance = random.Random(SEED)

    joint.write_policy(namespaces={"include": [joint.pods_namespace, "guarded"]}, strategies=STRATEGIES)
    for life in range(LIVES):
        if life == 2:
            joint.silence(nodes[4])
        if life == 4:
            joint.silence(nodes[4], on=False)
            joint.taint(nodes[3])
        time.sleep(chance.uniform(2.0, 8.0))
        process = joint.processes[-1]
        killed = time.time()
        assert process.running(), process.log.read_text()[-2000:]
        process.stop(signal.SIGKILL)
        joint.operate()
        joint.downtimes.append((killed, time.time()))
    joint.untaint(nodes[3])

    until_all_run(joint, joint.pods_namespace, "guarded")
    joint.until_at_rest(seconds=120)
    prefix = f"{joint.pods_namespace}/protected"
    require_none(joint.violations(guarded=["guarded"], protected=[prefix]))


REPLICAS = 9
"""Of the application that several controllers want to move."""


@pytest.mark.parametrize("unavailable", [1, 3])
def test_evictions_by_three_controllers_respect_the_owners_budget(joint: JointCluster, unavailable: int) -> None:
    """The policy spreads an application's pods while a taint evicts others of them and the autoscaler drains nodes."""
    joint.manage_taints(taints=[{"key": CHURN_TAINT, "policy": "Evict"}])
    joint.group("flaky", replicas=6, minimum=3, maximum=8)
    nodes = sorted(joint.nodes("flaky"))
    deploy_on(joint, "wanted", REPLICAS, nodes[:3], cpu="300m")
    joint.budget("wanted", maxUnavailable=unavailable)
    [(tainted, _)] = joint.where("wanted").most_common(1)

    joint.write_policy()
    joint.taint(tainted)

    joint.until(lambda: tainted not in joint.where("wanted"), "the tainted node is empty", seconds=120)
    joint.until(lambda: joint.size("flaky") < 6, "the autoscaler removes nodes", seconds=120)
    joint.untaint(tainted)
    until_all_run(joint)
    joint.until_at_rest(seconds=180)

    require_none(broken_budgets(joint.audit, joint.pods_namespace))
    waited = "deadline missed"  # a taint with the policy Evict waits for budgets
    require_none([each for each in joint.violations() if not each.startswith(waited)])
    assert joint.where("wanted").total() == REPLICAS
    ended = [life for life in joint.lives().values() if life.by == OPERATOR]
    assert {life.how for life in ended} == {"evict"}
    moved = moved_by_policy(joint, ended)
    assert moved, "the policy moved pods"
    assert any(life.node == tainted for life in ended), "the taint evicted pods"
    short = {life.key: alive_at(joint, life.ended) for life in moved if alive_at(joint, life.ended) < REPLICAS}
    assert short == {}, "the policy moved a pod while its owner missed another one"


def moved_by_policy(joint: JointCluster, ended: list[PodLife]) -> list[PodLife]:
    """The evicted pods that neither a drain nor a taint accounts for."""
    drained = {each["regarding"]["name"] for each in joint.events("ScaleDown", "Pod")}
    tainted = {taint.node for taint in joint.taints}
    return [life for life in ended if life.key.partition("/")[2] not in drained and life.node not in tainted]


def alive_at(joint: JointCluster, moment: float) -> int:
    """The number of pods of the namespace that were bound at a moment and not evicted :data:`IN_FLIGHT` before it."""
    return sum(life.bound < moment <= life.ended + IN_FLIGHT for life in joint.lives().values())
