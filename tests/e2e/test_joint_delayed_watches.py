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
from tests.fixtures.invariants import is_end
from tests.fixtures.joint import (
    LATE,
    STALE,
    JointCluster,
    deploy_on,
    own_joint_cluster,
    until_all_run,
)
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
    with own_joint_cluster(request, tmp_path, history=True) as joint:
        yield joint


@pytest.mark.parametrize("seed", SEEDS)
def test_delayed_watches_repeat_no_action(joint: JointCluster, seed: int) -> None:
    chance = random.Random(seed)
    more, copies = chance.randrange(3, 7), chance.randrange(6, 13)
    with fault_proxy(joint.cluster, DELAYED, seed=seed) as proxy:
        joint.target = proxy
        joint.manage_taints()
        joint.autoscale()
        joint.operate()  # only the taint manager removes the not-ready taints of new nodes
        joint.group("workers", replicas=NODES, minimum=NODES, maximum=3 * NODES)
        names = sorted(joint.nodes("workers"))
        deploy_on(joint, "copies", copies, names[:1], cpu="100m")
        joint.write_policy()

        joint.deploy("whole", NODES + more, cpu=WHOLE)
        joint.until_running("whole", NODES + more, seconds=300)
        joint.until(lambda: len(joint.where("copies")) >= NODES, "the policy spreads the copies", seconds=180)
        [tainted] = chance.sample(sorted(joint.nodes("workers")), 1)
        joint.taint(tainted)
        joint.until(lambda: tainted not in joint.where(), "the tainted node is empty", seconds=120)
        joint.untaint(tainted)
        until_all_run(joint, joint.pods_namespace, seconds=180)
        largest = joint.size("workers")
        joint.resize("whole", 0)
        joint.until_sizes(workers=NODES, seconds=600)
        until_all_run(joint, joint.pods_namespace, seconds=180)
        joint.until_at_rest(seconds=420, quiet=LAG + 12.0)
        assert joint.operator is not None
        joint.operator.stop()
        assert proxy.injected[SLOW_STREAM] > 10

    print(f"seed {seed}: {NODES} + {more} nodes, {copies} copies, {len(joint.evictions())} evictions")
    require_none(joint.violations(late=LATE + patiently(LAG), stale=STALE + LAG))
    require_none([*repeated_deletions(joint.audit), *repeated_taints(joint.audit), *repeated_sizes(joint.audit)])
    # The pod of the tainted node may need one more node, and another one if a spare one is being removed just then. A
    # scale-up that is counted twice adds at least three.
    sizes = joint.audit.scales("workers")
    assert largest <= max(sizes) < NODES + more + 3, sizes


def repeated_deletions(audit: Audit) -> list[str]:
    """The requests to evict or delete a pod whose eviction or deletion had been granted, whatever their response."""
    granted: set[str] = set()
    found = []
    for each in audit.ours("pods", "pods/eviction", verbs=("delete", "create")):
        if not is_end(each):
            continue
        options = each.request_object.get("deleteOptions", each.request_object)
        uid = options["preconditions"]["uid"]
        if uid in granted:
            found.append(f"ended twice: {each.summary}")
        if each.granted:
            granted.add(uid)
    return found


def repeated_taints(audit: Audit) -> list[str]:
    """The taints that the operator added again although it had removed no taint of the node."""
    seen: dict[str, set[tuple[str, str]]] = {}
    found = []
    for asked in audit.ours("nodes", verbs=("patch", "update"), granted=True):
        operations = asked.request_object if isinstance(asked.request_object, list) else ()
        taints = [each for each in operations if each["path"].startswith("/spec/taints")]
        known = seen.setdefault(asked.object_ref.name, set())
        if any(each["op"] in ("remove", "replace") for each in taints):
            known.clear()
        for operation in taints:
            value = operation.get("value") if operation["op"] == "add" else None
            for taint in value if isinstance(value, list) else [value] if isinstance(value, dict) else ():
                key = (taint["key"], taint["effect"])
                if key in known:
                    found.append(f"tainted twice: {asked.summary} {taint['key']}")
                known.add(key)
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
