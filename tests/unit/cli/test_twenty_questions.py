"""The questions that administrators ask about a cluster: one command each, and its right answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.story import GROUP, NOW, cluster, policies
from tests.unit.cli.conftest import Run
from trimtab.inspection.doctor import check_status

Ask = Callable[..., Any]


@pytest.fixture
def ask(run: Run, tmp_path: Path) -> Ask:
    """``ask("explain", "node", "a1")``: the JSON document that the command prints for the story."""
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(cluster()))

    def ask(*command: str | Path, now: bool = True) -> Any:
        result = run(*command, "--cluster", file, *(["--now", NOW] if now else []), "-o", "json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return ask


@pytest.fixture
def unhealthy(run: Run, tmp_path: Path) -> Ask:
    """``unhealthy({"Degraded": (status, reason, message)})``: what ``status`` prints about the ClusterAutoscaler."""

    def unhealthy(conditions: dict[str, tuple[str, str, str]]) -> Any:
        story = cluster()
        autoscaler = next(each for each in story["items"] if each["kind"] == "ClusterAutoscaler")
        autoscaler["status"] = {
            "conditions": [
                {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}
                for type_, (status, reason, message) in conditions.items()
            ]
        }
        file = tmp_path / "unhealthy.json"
        file.write_text(json.dumps(story))
        document = json.loads(run("status", "--cluster", file, "-o", "json").stdout)
        assert document["degraded"] is True
        return next(each for each in document["resources"] if each["kind"] == "ClusterAutoscaler")

    return unhealthy


def test_question_1_why_is_this_pod_pending(ask: Ask) -> None:
    found = ask("explain", "pod", "shop/big-1")

    assert found["state"] == "Pending"
    assert found["fits"] == []
    assert found["autoscaling"]["reason"] == "MaxSizeReached"
    [group] = found["nodeGroups"]
    assert (group["nodeGroup"], group["fits"], group["maximum"]) == (GROUP, True, 5)


def test_question_2_why_was_it_evicted(ask: Ask) -> None:
    found = ask("explain", "pod", "shop/gone-1")

    assert found["state"] == "Gone"
    assert found["eviction"]["reason"] == "DuplicateOnNode"


def test_question_3_why_was_it_not_evicted(ask: Ask) -> None:
    [policy] = ask("explain", "pod", "shop/db-1")["policies"]

    assert policy["verdict"] == "Keep"
    assert [each["reason"] for each in policy["strategies"]] == ["DisruptionBudget"]


def test_question_4_when_will_it_be_evicted(ask: Ask) -> None:
    deadline = ask("explain", "pod", "shop/late-1")["deadline"]

    assert (deadline["due"], deadline["taint"]) == ("2026-11-20T12:05:00Z", "maintenance:NoExecute")


def test_question_5_where_would_it_fit(ask: Ask) -> None:
    found = ask("explain", "pod", "shop/web-1")

    assert found["fits"] == ["a1", "a2", "b1"]
    assert found["likely"] == ["b1"]


def test_question_6_what_would_make_it_fit(ask: Ask) -> None:
    remedy = ask("explain", "pod", "shop/big-1")["remedy"]

    assert (remedy["reason"], remedy["node"]) == ("Uncordon", "b2")
    assert "RaiseMaximum" in [each["reason"] for each in remedy["alternatives"]]


def test_question_7_why_is_this_node_not_removed(ask: Ask) -> None:
    found = ask("explain", "node", "a1")["scaleDown"]

    assert (found["removable"], found["reason"]) == (False, "NotUnderutilized")


def test_question_8_which_pods_block_its_removal(ask: Ask) -> None:
    blockers = ask("explain", "node", "b1")["scaleDown"]["blockers"]

    assert {(each["pod"], each["reason"]) for each in blockers} == {
        ("batch/bare", "NotReplicated"),
        ("shop/cache-1", "LocalStorageRequested"),
    }


def test_question_9_why_this_node_group(ask: Ask) -> None:
    found = ask("explain", "nodegroup", "workers")

    assert (found["nodeGroup"], found["size"], found["maximum"]) == (GROUP, 5, 5)
    assert found["limit"]["reason"] == "MaxSizeReached"
    assert found["pendingPods"]["fits"] == ["shop/big-1"]


def test_question_10_what_would_this_policy_change(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text(yaml.safe_dump(policies()[0]))

    actions = ask("plan", "--policy", file)["actions"]

    assert [(each["pod"], each["node"], each["reason"]) for each in actions] == [
        ("web-1", "a1", "DuplicateOnNode"),
        ("web-2", "a1", "DuplicateOnNode"),
    ]


def test_question_11_who_cordoned_it(ask: Ask) -> None:
    cordon = ask("explain", "node", "b2")["cordon"]

    assert cordon["by"] == "administrator"
    assert cordon["changed"] == {"manager": "kubectl-cordon", "time": "2026-11-20T10:00:00Z"}


def test_question_12_what_did_it_do_last_night(ask: Ask) -> None:
    [entry] = ask("history", "--since", "2026-11-20T00:00:00Z", now=False)["entries"]

    assert (entry["action"], entry["pod"], entry["reason"]) == ("Evict", "shop/gone-1", "DuplicateOnNode")


def test_question_13_what_is_it_about_to_do(ask: Ask) -> None:
    actions = ask("plan")["actions"]

    assert [(each["action"], each.get("pod", each["node"])) for each in actions] == [
        ("RemoveNode", "b2"),
        ("RemoveNode", "b3"),
        ("Evict", "web-1"),
        ("Evict", "web-2"),
        ("Delete", "late-1"),
    ]


def test_question_14_what_if_this_zone_failed(ask: Ask) -> None:
    found = ask("what-if", "--without", "zone=zone-a")

    assert {each["pod"] for each in found["rescheduled"]} == {f"shop/web-{n}" for n in (1, 2, 3)} | {
        "shop/db-1",
        "shop/db-2",
    }
    assert found["lost"] == []
    assert [(each["pdb"], each["violated"]) for each in found["budgets"]] == [("shop/db", True)]


def test_question_15_how_much_would_be_saved(ask: Ask) -> None:
    summary = ask("plan")["summary"]

    assert (summary["RemoveNode"], summary["savings"]) == (2, 0.4)


def test_question_16_which_budgets_block(ask: Ask) -> None:
    [budget] = ask("explain", "pdb")["budgets"]

    assert (budget["pdb"], budget["reason"], budget["disruptionsAllowed"]) == ("shop/db", "AllPodsRequired", 0)
    assert (budget["nodes"], budget["evictions"]) == (1, 2)


def test_question_17_which_pods_are_never_evicted(ask: Ask) -> None:
    [descheduler, _] = ask("explain", "protections")["controllers"]

    groups = {each["reason"]: [pod["pod"] for pod in each["pods"]] for each in descheduler["groups"]}
    assert groups == {
        "AllPodsRequired": ["shop/db-1", "shop/db-2"],
        "BarePod": ["batch/bare"],
        "LocalStorage": ["shop/cache-1"],
    }


def test_question_18_what_changed_since_yesterday(run: Run, tmp_path: Path) -> None:
    after = cluster()
    before = copy.deepcopy(after)
    for each in before["items"]:
        if (each["kind"], each["metadata"]["name"]) == ("Node", "b2"):
            each["spec"] = {"providerID": "local://b2"}
    before["items"] = [each for each in before["items"] if each["metadata"]["name"] != "big-1"]
    files = []
    for name, content in (("before.json", before), ("after.json", after)):
        files.append(tmp_path / name)
        files[-1].write_text(json.dumps(content))

    result = run("diff", *files, "-o", "json")

    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    [node] = found["nodes"]
    assert (node["node"], node["change"]) == ("b2", "Changed")
    assert {"field": "unschedulable", "before": False, "after": True} in node["fields"]
    assert [(each["pod"], each["change"]) for each in found["pods"]] == [("shop/big-1", "Added")]


def test_question_19_is_it_healthy(ask: Ask, unhealthy: Ask) -> None:
    healthy = ask("status", now=False)
    assert healthy["degraded"] is False
    kinds = {each["kind"] for each in healthy["resources"]}
    assert kinds == {"ClusterAutoscaler", "DeschedulerPolicy", "TaintManager"}

    found = unhealthy({"Ready": ("True", "Reconciled", ""), "Degraded": ("True", "ScaleUpFailed", "quota")})

    assert (found["ready"], found["state"]) == ("True", "Degraded")
    assert [(each["type"], each["reason"]) for each in found["blockedBy"]] == [("Degraded", "ScaleUpFailed")]


def test_question_20_which_permissions_are_missing(unhealthy: Ask) -> None:
    missing = "update machinesets/scale in machine.openshift.io"

    found = unhealthy({"PermissionsMissing": ("True", "PermissionsMissing", missing)})

    [check] = check_status({"operator": None, "invalid": [], "resources": [found]})  # of ``trimtab doctor``
    assert (check.subject, check.result) == ("ClusterAutoscaler/default", "Failed")
    assert (check.reason, check.message) == ("PermissionsMissing", missing)
