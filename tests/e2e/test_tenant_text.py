"""Text that a tenant writes stops no operator and forges no line: regular expressions, escape sequences, YAML bombs.

These are the attacks A8 and A10 of the security review, on a live cluster with the chart's permissions.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.joint import ALL_CONTROLLERS, JointCluster, own_joint_cluster, until_all_run
from tests.fixtures.tenant import Tenant, require_kept_lease, restricted_pod
from tests.fixtures.waiting import patiently
from trimtab.kube.resources import CONFIG_MAPS, PODS
from trimtab_local.install import NAMESPACE, OperatorProcess

ESCAPES = "x\x1b]0;OWNED\x07\x1b[2J\r\nINFO everything is fine"
"""Sets the title of a terminal, clears it, and adds a line to a log."""

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
WITHIN = patiently(20.0)


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    """A cluster of the test."""
    with own_joint_cluster(request, tmp_path) as joint:
        yield joint


@pytest.fixture
def leader(joint: JointCluster, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that holds the lease, and writes its log as text."""
    process = OperatorProcess(joint.cluster, tmp_path, ALL_CONTROLLERS[0], "--log-format=text", name="leader")
    joint.operator = process
    process.start()
    try:
        yield process
    finally:
        if process.running():
            process.stop()


def test_catastrophic_regular_expression_delays_no_scale_up(joint: JointCluster, leader: OperatorProcess) -> None:
    """A8: a backtracking engine needs 35 s for one name of this group, in which the lease was lost."""
    joint.manage_taints()
    joint.autoscale(scaleDown={"enabled": False}, expanders=["Priority"])
    for name in ("workers-with-a-name-of-many-letters", "others-with-a-name-of-many-letters"):
        joint.group(name, replicas=1, minimum=1, maximum=5)
    config = {
        "metadata": {"name": "cluster-autoscaler-priority-expander"},
        "data": {"priorities": "10:\n- '([a-zA-Z/-]+)+!'\n5:\n- 'others'\n"},
    }
    joint.client.request("POST", CONFIG_MAPS.path(namespace=NAMESPACE), config)
    with require_kept_lease(joint.client, leader):
        began = time.monotonic()
        joint.deploy("burst", 4, cpu="3", memory="64Mi")
        joint.until(
            lambda: joint.size("others-with-a-name-of-many-letters") > 1, "a node of the second priority", seconds=60
        )
        took = time.monotonic() - began
        sys.stdout.write(f"scale-up after {took:.1f} s\n")
        assert took < WITHIN
        until_all_run(joint)
    assert joint.size("workers-with-a-name-of-many-letters") == 1


def test_escape_sequences_reach_neither_terminal_nor_log(
    joint: JointCluster, leader: OperatorProcess, tmp_path: Path
) -> None:
    """A10: an annotation that the plan and the log show."""
    joint.manage_taints()
    joint.group("workers", replicas=2, minimum=2, maximum=2)
    node = min(joint.nodes("workers"))
    tenant = Tenant(joint.cluster)
    with require_kept_lease(joint.client, leader):
        for number in range(3):
            annotations = {"descheduler.alpha.kubernetes.io/evict": ESCAPES, "trimtab.dev/evict": ESCAPES}
            pod = restricted_pod(f"pod-{number}", annotations=annotations, nodeName=node, labels={"app": "x"})
            tenant.client.request("POST", PODS.path(namespace=tenant.namespace), pod)
        joint.write_policy(
            namespaces={"include": [tenant.namespace]},
            strategies={"PodLifeTime": {"enabled": True, "params": {"maxPodLifeTimeSeconds": 1}}},
        )
        joint.until(lambda: joint.policy_status().get("lastRun"), "a cycle", seconds=60)
        time.sleep(5.0)
        policy = tmp_path / "policy.yaml"
        policy.write_text(
            "apiVersion: trimtab.dev/v1alpha1\nkind: DeschedulerPolicy\nmetadata: {name: p}\n"
            "spec: {strategies: {PodLifeTime: {enabled: true, params: {maxPodLifeTimeSeconds: 1}}}}\n"
        )
        command = [sys.executable, "-m", "trimtab", "plan", "--policy", str(policy), "--all"]
        shown = subprocess.run(
            [*command, f"--kubeconfig={joint.cluster.kubeconfig}"], capture_output=True, text=True, timeout=60
        )
    assert "pod-0" in shown.stdout
    for text in (shown.stdout, shown.stderr, leader.log.read_text()):
        assert CONTROL.search(text) is None
        assert not re.search(r"^INFO everything is fine", text, re.MULTILINE)


def test_yaml_merge_bomb_is_refused_at_once(tmp_path: Path) -> None:
    """A10: nested merge keys, of which each level is thirty times as large as the one before."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, 12):
        merged = ", ".join([f"*a{level - 1}"] * 30)
        lines.append(f"a{level}: &a{level}\n  <<: [{merged}]")
    bomb = tmp_path / "bomb.yaml"
    bomb.write_text("apiVersion: v1\nkind: List\nitems: []\n" + "\n".join(lines) + "\n")
    began = time.monotonic()
    for arguments in (["plan", "--cluster"], ["convert"]):
        ended = subprocess.run(
            [sys.executable, "-m", "trimtab", *arguments, str(bomb)], capture_output=True, text=True, timeout=60
        )
        assert ended.returncode == 2
        assert "bomb.yaml" in ended.stderr
    assert time.monotonic() - began < patiently(10.0)
