"""Every watch of the operator lags by up to ten seconds while all controllers act: nothing is done or counted twice.

The operator acts on what it sees, and it sees its own evictions, sizes and taints late. TRIMTAB_E2E_SEEDS gives the
seeds of the delays and the sizes, separated by commas.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.audit import OPERATOR, Audit, require_none, scaled_to
from tests.fixtures.fault_proxy import SLOW_STREAM, WATCHES, Fault, fault_proxy
from tests.fixtures.joint import (
    LATE,
    STALE,
    JointCluster,
    deploy_on,
    is_end,
    own_joint_cluster,
    until_all_run,
)
from tests.fixtures.tainting import put_by
from tests.fixtures.waiting import patiently

SEEDS = [int(each) for each in os.environ.get("TRIMTAB_E2E_SEEDS", "1").split(",")]
LONGEST = 10.0
DELAYED = (Fault(SLOW_STREAM, WATCHES, seconds=(0.0, LONGEST), begins=0.0),)
LAG = 2 * LONGEST
"""Seconds after which the operator sees a change: what arrives during a delay waits for the next one."""

NODES = 4
WHOLE = "3"
"""The cpu of pods of which a node takes one: 3500m are allocatable."""


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    with own_joint_cluster(request, tmp_path) as joint:
        yield joint


@pytest.mark.parametrize("seed", SEEDS)
def test_delayed_watches_repeat_no_action(joint: JointCluster, seed: int) -> None:
    chance = random.Random(seed)
    more, copies = chance.randrange(2, 7), chance.randrange(6, 13)
    with fault_proxy(joint.cluster, DELAYED, seed=seed) as proxy:
        joint.target = proxy
        joint.manage_taints()
        joint.group("workers", replicas=NODES, minimum=NODES, maximum=3 * NODES)
        names = sorted(joint.nodes("workers"))
        deploy_on(joint, "copies", copies, names[:1], cpu="100m")
        joint.autoscale()
        joint.operate()
        joint.write_policy()

        joint.deploy("whole", NODES + more, cpu=WHOLE)
        joint.until_running("whole", NODES + more, seconds=180)
        joint.until(lambda: len(joint.where("copies")) >= NODES, "the policy spreads the copies", seconds=180)
        [tainted] = chance.sample(sorted(joint.nodes("workers")), 1)
        joint.taint(tainted)
        joint.until(lambda: tainted not in joint.where(), "the tainted node is empty", seconds=120)
        joint.untaint(tainted)
        until_all_run(joint, joint.pods_namespace, seconds=180)
        largest = joint.size("workers")
        joint.resize("whole", 0)
        joint.until_sizes(workers=NODES, seconds=300)
        until_all_run(joint, joint.pods_namespace, seconds=180)
        joint.until_at_rest(seconds=180, quiet=LAG + 12.0)
        assert joint.operator is not None
        joint.operator.stop()
        assert proxy.injected[SLOW_STREAM] > 10

    print(f"seed {seed}: {NODES} + {more} nodes, {copies} copies, {len(joint.evictions())} evictions")
    require_none(joint.violations(late=LATE + patiently(LAG), stale=STALE + LAG))
    require_none([*repeated_deletions(joint.audit), *repeated_taints(joint.audit), *repeated_sizes(joint.audit)])
    # A tainted node takes no pod, so one more node may be needed for the pods that it ran.
    sizes = joint.audit.scales("workers")
    assert largest <= max(sizes) <= NODES + more + 1, sizes


def repeated_deletions(audit: Audit) -> list[str]:
    """The pods for which the API server granted the operator a second deletion, or one after an eviction."""
    seen: set[str] = set()
    found = []
    for each in audit.ours("pods", "pods/eviction", verbs=("delete", "create"), granted=True):
        if not is_end(each):
            continue
        options = each.request_object.get("deleteOptions", each.request_object)
        uid = options["preconditions"]["uid"]
        if uid in seen:
            found.append(f"ended twice: {each.summary}")
        seen.add(uid)
    return found


def repeated_taints(audit: Audit) -> list[str]:
    """The taints that the operator added twice with the same time."""
    seen: set[tuple[str, str, float]] = set()
    found = []
    for asked in audit.ours("nodes", verbs=("patch", "update"), granted=True):
        for put in put_by(asked):
            if (key := (put.node, put.key, put.added)) in seen:
                found.append(f"tainted twice: {asked.summary} {put.key}")
            seen.add(key)
    return found


def repeated_sizes(audit: Audit) -> list[str]:
    """The requests for the size that the operator had requested last."""
    last: dict[str, int] = {}
    found = []
    for asked in audit.of("machinesets/scale", "machinesets", user=OPERATOR, verbs=("patch", "update"), granted=True):
        size = scaled_to(asked)
        if size is None:
            continue
        if last.get(asked.key) == size:
            found.append(f"size requested twice: {asked.summary} {size}")
        last[asked.key] = size
    return found
