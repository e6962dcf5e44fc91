"""``trimtab status`` and ``trimtab explain`` of a live cluster in which all controllers run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.joint import JointCluster, own_joint_cluster
from tests.fixtures.waiting import patiently


@pytest.fixture
def joint(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JointCluster]:
    with own_joint_cluster(request, tmp_path) as joint:
        joint.manage_taints()
        joint.autoscale()
        joint.operate()
        joint.group("stable", replicas=3, minimum=1, maximum=6)
        yield joint


def trimtab(joint: JointCluster, *arguments: str, status: int = 0) -> str:
    command = [sys.executable, "-m", "trimtab", *arguments, f"--kubeconfig={joint.cluster.kubeconfig}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
    assert (done.returncode, done.stderr) == (status, ""), done.stdout
    return done.stdout


def status(joint: JointCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(trimtab(joint, "status", "-o", "json"))
    return found


def kubectl_wait(joint: JointCluster, kind: str, namespace: str, name: str) -> None:
    """Let kubectl wait for the condition Ready, which it only accepts for the object's latest generation."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here")
    command = [kubectl, "--kubeconfig", str(joint.cluster.kubeconfig), "wait", "--for=condition=Ready"]
    command += [f"--timeout={patiently(30):.0f}s", f"{kind.lower()}/{name}", *(["-n", namespace] if namespace else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def watch(joint: JointCluster, *, seconds: float) -> str:
    """Return what ``trimtab status --watch`` prints until Ctrl-C, after which it must end without an error."""
    command = [sys.executable, "-m", "trimtab", "status", "--watch", f"--kubeconfig={joint.cluster.kubeconfig}"]
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let background jobs ignore it
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, ignored)
    with process:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=patiently(30))
    assert (process.returncode, errors) == (0, "")
    return printed


def test_status_covers_all_controllers_and_a_stopped_operator(joint: JointCluster) -> None:
    joint.deploy("web", 3, cpu="100m")
    joint.until_running("web", 3)
    joint.budget("web", maxUnavailable=0)
    joint.write_policy()

    def settled() -> bool:
        found = status(joint)
        states = {each["kind"]: each["state"] for each in found["resources"]}
        return bool(found["operator"]["running"]) and {
            kind: states.get(kind) in ("Idle", "Acting", "Waiting")
            for kind in ("DeschedulerPolicy", "ClusterAutoscaler", "MachineAutoscaler", "TaintManager")
        } == dict.fromkeys(("DeschedulerPolicy", "ClusterAutoscaler", "MachineAutoscaler", "TaintManager"), True)

    joint.until(settled, "all controllers have processed their resources", seconds=60)
    for each in status(joint)["resources"]:
        kubectl_wait(joint, each["kind"], each["namespace"], each["name"])
    began = time.monotonic()
    found = status(joint)
    assert time.monotonic() - began < patiently(10)
    assert found["degraded"] is False
    (leader,) = found["operator"]["leaders"]
    assert {"descheduler", "autoscaler", "tainting"} <= set(leader["controllers"])
    policy = next(each for each in found["resources"] if each["kind"] == "DeschedulerPolicy")
    assert policy["mode"] == "Act"
    assert policy["nextRun"] is not None

    budget = json.loads(trimtab(joint, "explain", "pdb", f"{joint.pods_namespace}/web", "-o", "json"))
    assert budget["reason"] == "AllPodsRequired"
    assert budget["blocksNodes"]
    groups = json.loads(trimtab(joint, "explain", "nodegroups", "-o", "json"))["nodeGroups"]
    assert [(each["size"], each["ready"]) for each in groups] == [(3, 3)]

    watched = watch(joint, seconds=8)
    assert watched.startswith("trimtab: ")
    assert "ClusterAutoscaler default" in watched

    joint.operator.stop()
    joint.until(lambda: status(joint)["operator"]["running"] is False, "the stopped operator is reported", seconds=60)
    assert "not running" in trimtab(joint, "status", "--exit-code", status=1).splitlines()[0]
