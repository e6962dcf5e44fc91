"""``trimtab plan`` on files, for policies that renew single replicas by a rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.cli.report.pages import read
from tests.unit.cluster.test_rollouts import deployment, settled

NOW = "2026-11-20T12:00:00Z"
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  singleReplica: Surge
  strategies: {RemovePodsViolatingNodeTaints: {}}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


def file(tmp_path: Path, *deployments: dict[str, Any]) -> Path:
    labels = {"app": "web", "pod-template-hash": "1a2b"}
    single = pod("web-1a2b-x", "shop").labels(labels).owned_by("ReplicaSet", "web-1a2b").on("n1").ready()
    items = [each.manifest() for each in (node("n1").taint("x"), node("n2"), single)]
    path = tmp_path / "cluster.json"
    path.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [*items, *deployments]}))
    return path


def test_rollout_is_shown_as_surge(run, policy, tmp_path, golden: Golden) -> None:
    cluster = file(tmp_path, settled(deployment()))
    arguments = ("plan", "--cluster", cluster, "--policy", policy, "--now", NOW)
    assert "n2 (surge)" in run(*arguments).stdout
    document = msgspec.json.decode(run(*arguments, "-o", "json").stdout)
    assert [action["how"] for action in document["actions"]] == ["Surge"]
    page = read(run(*arguments, "-o", "html").stdout)
    assert "n2 (surge)" in page.sections["moves"]
    golden(page.sections["summary"])


def test_missing_deployments_are_reported(run, policy, tmp_path) -> None:
    cluster = file(tmp_path)
    result = run("plan", "--cluster", cluster, "--policy", policy, "--now", NOW, "-o", "json")
    [kept] = msgspec.json.decode(result.stdout)["kept"]
    assert (kept["reason"], kept["message"]) == ("CannotSurge", f"{cluster} contains no Deployment")


def test_deployments_are_not_read_without_surge(run, policy, tmp_path) -> None:
    policy.write_text(POLICY.replace("  singleReplica: Surge\n", ""))
    result = run("plan", "--cluster", file(tmp_path), "--policy", policy, "--now", NOW)
    assert "(surge)" not in result.stdout
    assert "1 Evict" in result.stdout


def test_rollout_is_planned_with_an_autoscaler(run, policy, tmp_path) -> None:
    autoscaler = tmp_path / "autoscaler.yaml"
    autoscaler.write_text(
        "{apiVersion: autoscaling.openshift.io/v1, kind: ClusterAutoscaler, metadata: {name: default}}"
    )
    cluster = file(tmp_path, settled(deployment()))
    result = run("plan", "--cluster", cluster, "--policy", policy, "--policy", autoscaler, "--now", NOW, "-o", "json")
    document = msgspec.json.decode(result.stdout)
    assert [action["how"] for action in document["actions"]] == ["Surge"]
    assert document["summary"]["ScaleUp"] == 0
