"""``trimtab diff``: what changed between two snapshots."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.builders import node, pod
from tests.unit.cli.conftest import Run

AUTOSCALER = {
    "apiVersion": "autoscaling.openshift.io/v1",
    "kind": "ClusterAutoscaler",
    "metadata": {"name": "default"},
    "spec": {"scaleDown": {"enabled": True, "unneededTime": "10m"}},
}


def group(size: int) -> dict[str, Any]:
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": "a", "namespace": "machines"},
        "spec": {"replicas": size},
    }


def compared(run: Run, before: Any, after: Any) -> Any:
    found = run("diff", before, after, "-o", "json")
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture
def before(write: Any) -> Any:
    return write("before.json", node("n1"), node("n2"), pod("web-1").on("n1"), pod("web-2").on("n1"), AUTOSCALER)


def test_identical_snapshots_have_no_changes(run: Run, before: Any) -> None:
    document = compared(run, before, before)
    assert document["message"] == "nothing changed"
    assert document["totals"]["before"] == document["totals"]["after"]
    assert document["plan"] == {"new": [], "gone": []}


def test_changes_are_found_by_object_and_field(run: Run, write: Any, before: Any) -> None:
    changed = {**AUTOSCALER, "spec": {"scaleDown": {"enabled": True, "unneededTime": "5m"}}}
    cordoned = node("n1").manifest()
    cordoned["spec"] = {**cordoned.get("spec", {}), "unschedulable": True}
    after = write("after.json", cordoned, node("n3"), pod("web-1").on("n3"), pod("web-3").on("n1"), changed)
    document = compared(run, before, after)

    assert [(each["node"], each["change"]) for each in document["nodes"]] == [
        ("n1", "Changed"),
        ("n2", "Removed"),
        ("n3", "Added"),
    ]
    assert document["nodes"][0]["fields"] == [{"field": "unschedulable", "before": False, "after": True}]
    assert {(each["pod"].partition("/")[2], each["change"]) for each in document["pods"]} == {
        ("web-1", "Moved"),
        ("web-2", "Removed"),
        ("web-3", "Added"),
    }
    [policy] = document["policies"]
    assert policy["policy"] == "ClusterAutoscaler/default"
    assert [each["field"] for each in policy["fields"]] == ["spec.scaleDown.unneededTime"]


def test_sizes_of_node_groups_are_compared(run: Run, write: Any) -> None:
    files = [write(f"{size}.json", node("n1"), group(size)) for size in (2, 3)]
    [changed] = compared(run, *files)["nodeGroups"]
    assert changed["fields"] == [{"field": "replicas", "before": 2, "after": 3}]


def test_table_names_the_changes(run: Run, write: Any, before: Any) -> None:
    after = write("after.json", node("n1"), pod("web-1").on("n1"), AUTOSCALER)
    found = run("diff", before, after)
    assert found.exit_code == 0, found.output
    assert "1 node removed" in found.stdout.splitlines()[0]
    assert "web-2" in found.stdout


def test_missing_file_is_an_error(run: Run, before: Any) -> None:
    found = run("diff", before, "absent.json")
    assert found.exit_code == 2
