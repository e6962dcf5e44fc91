"""``trimtab migrate check`` on files."""

from __future__ import annotations

import msgspec
import pytest

from tests.builders import node, pod
from tests.unit.inspection.test_migration import autoscaler, policy_map, workload

NOW = "2026-11-20T12:00:00Z"


@pytest.fixture
def cluster(write):
    pods = [pod(f"web-{number}").on("n1").owned_by("ReplicaSet", "web") for number in range(2)]
    return write(
        "cluster.yaml",
        node("n1"),
        node("n2"),
        *pods,
        autoscaler("--scan-interval=1m"),
        workload("descheduler", "descheduler:v0.34.0"),
        policy_map(),
    )


def test_the_report_is_json(run, cluster) -> None:
    result = run("migrate", "check", "--cluster", cluster, "--now", NOW, "-o", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = msgspec.json.decode(result.stdout)
    assert {each["program"]: each["converted"] for each in document["programs"]} == {
        "cluster-autoscaler": True,
        "descheduler": True,
    }
    assert document["plan"]["summary"]["Evict"] == 1


def test_the_table_names_programs_differences_and_steps(run, cluster) -> None:
    result = run("migrate", "check", "--cluster", cluster, "--now", NOW)
    assert result.exit_code == 0
    for part in ("Deployment/kube-system/cluster-autoscaler", "--scan-interval", "--replicas=0", "MovePods"):
        assert part in result.stdout
