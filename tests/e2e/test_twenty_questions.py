"""The questions of ``docs/tasks/answers.md`` about a live cluster with all controllers: one command and answer each."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec import Struct

from tests.fixtures.autoscaling import MACHINE_NAMESPACE, SHORT
from tests.fixtures.joint import JointCluster, own_joint_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.waiting import wait_for
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    MACHINE_AUTOSCALERS,
    PODS,
    TAINT_MANAGERS,
    Resource,
)

GROUP: Final = f"{MACHINE_NAMESPACE}/workers"
TOLERATED: Final = 600
TAINT: Final = "maintenance"
DUPLICATES: Final = {"RemoveDuplicates": {"enabled": True}}


class Story(Struct):
    """A cluster with three nodes of group ``workers``, which is at its maximum size, and an empty one of ``spare``.

    Attributes:
        joint: the cluster.
        directory: of files that commands read.
        nodes: ``a`` runs pods of ``web``, ``db`` and ``twin``; ``b`` runs ``web``, ``bare`` and ``cache``; ``c`` is
            cordoned, runs ``late`` and has a NoExecute taint; ``empty`` is the one of ``spare``.
        evicted: the pod of ``web`` that the descheduler evicted.
    """

    joint: JointCluster
    directory: Path
    nodes: dict[str, str]
    evicted: str

    def ask(self, *command: str, status: int = 0) -> Any:
        """Return the JSON document that a command prints, and check its exit status."""
        full = [
            sys.executable,
            "-m",
            "trimtab",
            *command,
            f"--kubeconfig={self.joint.cluster.kubeconfig}",
            "-o",
            "json",
        ]
        done = subprocess.run(full, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout)

    def pods(self, app: str) -> list[str]:
        """Return the keys of the pods of a Deployment, in order."""
        return sorted(f"{self.joint.pods_namespace}/{each['metadata']['name']}" for each in self.joint.pods(app))

    def pod_on(self, app: str, node: str) -> str:
        """Return the key of the pod of a Deployment on a node, given by its name in the story."""
        [name] = [
            each["metadata"]["name"]
            for each in self.joint.pods(app)
            if each["spec"].get("nodeName") == self.nodes[node]
        ]
        return f"{self.joint.pods_namespace}/{name}"

    def write(self, name: str, manifest: dict[str, Any]) -> str:
        """Write a manifest for ``--policy``, and return the path."""
        path = self.directory / name
        path.write_text(json.dumps(manifest))
        return str(path)


@pytest.fixture(scope="module")
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    directory = tmp_path_factory.mktemp("questions")
    with own_joint_cluster(request, directory) as joint:
        joint.manage_taints()
        joint.autoscale(scaleDown={**SHORT, "unneededTime": "1h"})
        joint.operate()
        joint.group("workers", minimum=1, maximum=3, replicas=3)
        taint = {"key": "dedicated", "value": "spare", "effect": "NoSchedule"}
        price = {"trimtab.dev/price": "0.20"}
        joint.group("spare", minimum=0, maximum=1, replicas=1, taints=[taint], annotations=price)
        a, b, c = sorted(joint.nodes("workers"))
        [empty] = joint.nodes("spare")
        story = Story(joint, directory, {"a": a, "b": b, "c": c, "empty": empty}, "")
        _place_late(story)
        _evict_a_duplicate(story)
        _save_snapshot(story)
        _place_the_rest(story)
        yield story


def _place_late(story: Story) -> None:
    joint, nodes = story.joint, story.nodes
    for name in ("a", "b"):
        joint.cordon(nodes[name])
    toleration = {"key": TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATED}
    joint.deploy("late", 1, cpu="100m", tolerations=[toleration])
    joint.until_running("late", 1)
    joint.taint(nodes["c"], TAINT)
    joint.cordon(nodes["a"], on=False)


def _evict_a_duplicate(story: Story) -> None:
    joint, nodes = story.joint, story.nodes
    joint.deploy("web", 2, cpu="100m")
    joint.until_running("web", 2)
    before = set(story.pods("web"))
    joint.cordon(nodes["b"], on=False)
    joint.write_policy()
    joint.until(lambda: joint.where("web") == {nodes["a"]: 1, nodes["b"]: 1}, "the duplicate is evicted")
    joint.write_policy(mode="Simulate")
    [story.evicted] = before - set(story.pods("web"))


def _save_snapshot(story: Story) -> None:
    file, kubeconfig = story.directory / "before.json", story.joint.cluster.kubeconfig
    with file.open("w") as output:
        command = [sys.executable, "-m", "trimtab", "snapshot", f"--kubeconfig={kubeconfig}"]
        subprocess.run(command, stdout=output, check=True)


def _place_the_rest(story: Story) -> None:
    joint, nodes = story.joint, story.nodes
    joint.cordon(nodes["b"])
    joint.deploy("db", 2, cpu="100m")
    joint.budget("db", maxUnavailable=0)
    joint.deploy("twin", 2, cpu="100m")
    for app in ("db", "twin"):
        joint.until_running(app, 2)
    joint.cordon(nodes["b"], on=False)
    joint.cordon(nodes["c"])
    volumes = [{"name": "scratch", "emptyDir": {}}]
    joint.deploy("cache", 1, cpu="100m", volumes=volumes, nodeName=nodes["b"])
    container = {"name": "main", "image": "registry.example/app", "resources": {"requests": {"cpu": "100m"}}}
    bare = {"metadata": {"name": "bare"}, "spec": {"nodeName": nodes["b"], "containers": [container]}}
    joint.client.request("POST", PODS.path(namespace=joint.pods_namespace), bare)
    joint.until_running("cache", 1)
    joint.deploy("big", 1, cpu="3400m")
    joint.until(lambda: joint.events("NotTriggerScaleUp", "Pod"), "the autoscaler has considered big")
    joint.until(lambda: story.ask("status")["degraded"] is False, "all resources are processed")


def test_question_1_why_is_this_pod_pending(story: Story) -> None:
    found = story.ask("explain", "pod", *story.pods("big"))

    assert (found["state"], found["fits"]) == ("Pending", [])
    assert found["autoscaling"]["reason"] == "MaxSizeReached"
    groups = {each["nodeGroup"]: each for each in found["nodeGroups"]}
    assert (groups[GROUP]["fits"], groups[GROUP]["maximum"]) == (True, 3)


def test_question_2_why_was_it_evicted(story: Story) -> None:
    found = story.ask("explain", "pod", story.evicted)

    assert (found["state"], found["eviction"]["reason"]) == ("Gone", "DuplicateOnNode")


def test_question_3_why_was_it_not_evicted(story: Story) -> None:
    verdicts = [
        strategy["reason"]
        for pod in story.pods("db")
        for policy in story.ask("explain", "pod", pod)["policies"]
        for strategy in policy["strategies"]
        if policy["verdict"] == "Keep"
    ]

    assert "DisruptionBudget" in verdicts


def test_question_4_when_will_it_be_evicted(story: Story) -> None:
    deadline = story.ask("explain", "pod", *story.pods("late"))["deadline"]

    [taint] = story.joint.taints
    due = datetime.fromtimestamp(taint.added, UTC) + timedelta(seconds=TOLERATED)
    assert (deadline["due"], deadline["taint"]) == (f"{due:%Y-%m-%dT%H:%M:%SZ}", f"{TAINT}:NoExecute")


def test_question_5_where_would_it_fit(story: Story) -> None:
    found = story.ask("explain", "pod", story.pod_on("web", "b"))

    assert set(found["fits"]) == {story.nodes["a"], story.nodes["b"]}


def test_question_6_what_would_make_it_fit(story: Story) -> None:
    remedy = story.ask("explain", "pod", *story.pods("big"))["remedy"]

    assert "RaiseMaximum" in [remedy["reason"], *(each["reason"] for each in remedy["alternatives"])]


def test_question_7_why_is_this_node_not_removed(story: Story) -> None:
    found = story.ask("explain", "node", story.nodes["a"])["scaleDown"]

    assert (found["removable"], found["reason"]) == (False, "BlockedByPod")
    assert {(each["pod"], each["reason"]) for each in found["blockers"]} == {
        (pod, "NotEnoughPdb") for pod in story.pods("db")
    }


def test_question_8_which_pods_block_its_removal(story: Story) -> None:
    blockers = story.ask("explain", "node", story.nodes["b"])["scaleDown"]["blockers"]

    assert {(each["pod"], each["reason"]) for each in blockers} == {
        (f"{story.joint.pods_namespace}/bare", "NotReplicated"),
        (story.pod_on("cache", "b"), "LocalStorageRequested"),
    }


def test_question_9_why_this_node_group(story: Story) -> None:
    found = story.ask("explain", "nodegroup", "workers")

    assert (found["nodeGroup"], found["size"], found["maximum"]) == (GROUP, 3, 3)
    assert found["limit"]["reason"] == "MaxSizeReached"
    assert found["pendingPods"]["fits"] == story.pods("big")


def test_question_10_what_would_this_policy_change(story: Story) -> None:
    manifest = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "new"},
        "spec": {"namespaces": {"include": [story.joint.pods_namespace]}, "strategies": DUPLICATES},
    }

    [action] = story.ask("plan", "--policy", story.write("policy.json", manifest))["actions"]

    assert (action["action"], action["reason"]) == ("Evict", "DuplicateOnNode")
    assert (f"{action['namespace']}/{action['pod']}", action["target"]) in [
        (pod, story.nodes["b"]) for pod in story.pods("twin")
    ]


def test_question_11_who_cordoned_it(story: Story) -> None:
    cordon = story.ask("explain", "node", story.nodes["c"])["cordon"]

    assert cordon["by"] == "administrator"
    assert cordon["changed"]["time"]


def test_question_12_what_did_it_do_last_night(story: Story) -> None:
    entries = story.ask("history", "--since", "1h")["entries"]

    evicted = [(each["action"], each["pod"], each["result"]) for each in entries if each["reason"] == "DuplicateOnNode"]
    assert evicted == [("Evict", story.evicted, "Succeeded")]


def test_question_13_what_is_it_about_to_do(story: Story) -> None:
    actions = story.ask("plan")["actions"]

    planned = {(each["action"], f"{each.get('namespace')}/{each.get('pod')}") for each in actions}
    assert planned & {("Evict", pod) for pod in story.pods("twin")}
    assert ("Delete", *story.pods("late")) in planned


def test_question_14_what_if_this_node_failed(story: Story) -> None:
    found = story.ask("what-if", "--without", f"node/{story.nodes['a']}")

    affected = {each["pod"] for part in ("rescheduled", "pending") for each in found[part]}
    assert affected >= {*story.pods("db"), *story.pods("twin"), story.pod_on("web", "a")}
    assert [(each["pdb"], each["violated"]) for each in found["budgets"]] == [
        (f"{story.joint.pods_namespace}/db", True)
    ]


def test_question_15_how_much_would_be_saved(story: Story) -> None:
    manifest = {
        "apiVersion": "autoscaling.openshift.io/v1",
        "kind": "ClusterAutoscaler",
        "metadata": {"name": "default"},
        "spec": {"scaleDown": {**SHORT, "unneededTime": "1s"}},
    }

    file = story.write("autoscaler.json", manifest)

    def removed() -> bool:
        """Whether the empty node is planned to be removed, once it has been unneeded for long enough."""
        found = story.ask("plan", "--policy", file)
        nodes = {each["node"] for each in found["actions"] if each["action"] == "RemoveNode"}
        return story.nodes["empty"] in nodes and found["summary"]["savings"] >= 0.2

    story.joint.until(removed, "the savings of the empty node are planned", seconds=90)


def test_question_16_which_budgets_block(story: Story) -> None:
    blocking = [each for each in story.ask("explain", "pdb")["budgets"] if each["disruptionsAllowed"] == 0]

    assert [(each["pdb"], each["reason"]) for each in blocking] == [
        (f"{story.joint.pods_namespace}/db", "AllPodsRequired")
    ]


def test_question_17_which_pods_are_never_evicted(story: Story) -> None:
    [descheduler, *_] = story.ask("explain", "protections")["controllers"]

    groups = {each["reason"]: [pod["pod"] for pod in each["pods"]] for each in descheduler["groups"]}
    assert sorted(groups["AllPodsRequired"]) == story.pods("db")
    assert groups["BarePod"] == [f"{story.joint.pods_namespace}/bare"]
    assert groups["LocalStorage"] == story.pods("cache")


def test_question_18_what_changed_since_yesterday(story: Story) -> None:
    found = story.ask("diff", str(story.directory / "before.json"))

    changed = {each["node"]: each for each in found["nodes"]}
    assert {"field": "unschedulable", "before": False, "after": True} in changed[story.nodes["c"]]["fields"]
    added = {each["pod"] for each in found["pods"] if each["change"] == "Added"}
    assert added >= {f"{story.joint.pods_namespace}/bare", *story.pods("big"), *story.pods("db")}


def test_events_on_owner_and_node_tell_what_happened(story: Story) -> None:
    joint = story.joint
    [evicted] = [
        each for each in joint.events("Evicted", "ReplicaSet") if each["regarding"]["namespace"] == joint.pods_namespace
    ]
    assert evicted["regarding"]["name"] == story.evicted.rpartition("/")[2].rpartition("-")[0]
    assert "DuplicateOnNode" in evicted["note"]

    def blocked() -> set[str]:
        return {each["regarding"]["name"] for each in joint.events("ScaleDownBlocked", "Node")}

    joint.until(lambda: blocked() >= {story.nodes["a"], story.nodes["b"]}, "events on the blocked nodes", seconds=90)


def current(story: Story, resource: Resource, path: str, type_: str = "Ready") -> bool:
    """Whether ``kubectl wait --for=condition=TYPE`` would return: it ignores conditions of earlier generations."""
    found = story.joint.client.request("GET", path)
    conditions = found.get("status", {}).get("conditions", ())
    [condition] = [each for each in conditions if each["type"] == type_] or [{}]
    return (condition.get("status"), condition.get("observedGeneration")) == ("True", found["metadata"]["generation"])


@pytest.mark.parametrize(
    ("resource", "name", "spec"),
    [
        pytest.param(DESCHEDULER_POLICIES, "default", {"interval": "7s"}, id="DeschedulerPolicy"),
        pytest.param(CLUSTER_AUTOSCALERS, "default", {"scaleDown": {"unneededTime": "2h"}}, id="ClusterAutoscaler"),
        pytest.param(MACHINE_AUTOSCALERS, "workers", {"minReplicas": 2}, id="MachineAutoscaler"),
        pytest.param(TAINT_MANAGERS, "default", {"nodeLifecycle": {"nodeEvictionRate": 0.2}}, id="TaintManager"),
    ],
)
def test_ready_can_be_waited_for_after_a_change(
    story: Story, resource: Resource, name: str, spec: dict[str, Any]
) -> None:
    path = resource.path(name, namespace=MACHINE_NAMESPACE if resource.namespaced else "")
    before = story.joint.client.request("GET", path)["metadata"]["generation"]
    after = story.joint.client.request("PATCH", path, {"spec": spec}, content_type=MERGE)["metadata"]["generation"]
    assert after == before + 1
    story.joint.until(lambda: current(story, resource, path), "Ready for the new generation", seconds=60)
    assert story.joint.client.request("GET", path)["status"]["state"]


def test_complete_can_be_waited_for(story: Story) -> None:
    for run in story.joint.client.request("GET", DESCHEDULING_RUNS.path())["items"]:
        path = DESCHEDULING_RUNS.path(run["metadata"]["name"])
        story.joint.until(lambda path=path: current(story, DESCHEDULING_RUNS, path, "Complete"), "Complete")


def test_questions_19_and_20_is_it_healthy_and_which_permissions_are_missing(story: Story) -> None:
    """Without a permission that the controllers can do without, Ready stays True, but ``status`` reports Degraded."""
    client, path = story.joint.client, "/apis/rbac.authorization.k8s.io/v1/clusterroles/trimtab-history"
    healthy = story.ask("status")
    assert (healthy["degraded"], healthy["operator"]["running"]) == (False, True)
    assert {each["missingPermissions"] for each in healthy["resources"]} == {""}
    assert story.ask("doctor")["healthy"] is True

    role = client.request("GET", path)
    client.request("PUT", path, {**role, "rules": []})
    try:
        wait_for(lambda: story.ask("status")["degraded"], "the missing permissions to be reported", timeout=30)
        resources = [each for each in story.ask("status")["resources"] if each["state"] == "Degraded"]
        assert resources
        assert {each["ready"] for each in resources} == {"True"}
        checks = story.ask("doctor", status=1)["checks"]
        missing = {each["subject"]: each["message"] for each in checks if each["reason"] == "PermissionsMissing"}
        assert set(missing) == {f"{each['kind']}/{_key(each)}" for each in resources}
        assert all("historyrecords" in message for message in missing.values())
    finally:
        client.request("PUT", path, {**client.request("GET", path), "rules": role["rules"]})


def _key(resource: dict[str, Any]) -> str:
    return f"{resource['namespace']}/{resource['name']}" if resource["namespace"] else str(resource["name"])
