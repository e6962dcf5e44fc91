"""Cordons of admins and of the operator, aborted removals, and templates of new nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.e2e.conftest import Start
from tests.fixtures.audit import pods_lost
from tests.fixtures.autoscaling import (
    CAPACITY,
    CORDONED_BY,
    SAFE_TO_EVICT,
    SCALE_DOWN_DISABLED,
    SHORT,
    TO_BE_DELETED,
    Fleet,
    marks,
)
from tests.fixtures.machine_sets import MERGE
from trimtab.kube.resources import DAEMON_SETS, NODES


def going(fleet: Fleet) -> set[str]:
    """The nodes that are being removed."""
    return {name for name, each in fleet.leftovers().items() if TO_BE_DELETED in each}


def cordoned_by_us(fleet: Fleet) -> set[str]:
    """The nodes that are being removed and that the operator has cordoned."""
    ours = {TO_BE_DELETED, "unschedulable", CORDONED_BY}
    return {name for name, each in fleet.leftovers().items() if ours <= set(each)}


def test_aborted_removal_keeps_the_admins_cordon(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", replicas=2)
    fleet.deploy("web", 2, cpu="500m")
    fleet.until(lambda: len(fleet.where("web")) == 2, "a pod runs on each node")
    cordoned, _ = sorted(fleet.nodes("a"))
    fleet.cordon(cordoned)
    fleet.autoscale()
    operate(slow_removals=True)
    fleet.until(lambda: going(fleet) == {cordoned}, "the node goes, for its pod has a place on the other")

    fleet.annotate_pods("web", {SAFE_TO_EVICT: "false"})

    fleet.until(lambda: not going(fleet), "the removal is taken back")
    assert "unschedulable" in marks(fleet.all_nodes()[cordoned])
    assert CORDONED_BY not in marks(fleet.all_nodes()[cordoned])
    fleet.until(lambda: fleet.kept().get(cordoned, {}).get("reason") == "BlockedByPod", "the status says who keeps it")
    assert fleet.kept()[cordoned]["blockingPod"].startswith(f"{fleet.pods_namespace}/web-")
    assert fleet.size("a") == 2
    assert not fleet.audit.ours("pods/eviction", granted=True)


def test_aborted_removal_removes_our_cordon_and_taint(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", replicas=2)
    fleet.deploy("web", 2, cpu="500m")
    fleet.until(lambda: len(fleet.where("web")) == 2, "a pod runs on each node")
    fleet.autoscale()
    operate(slow_removals=True)
    fleet.until(lambda: cordoned_by_us(fleet), "a node goes, and is cordoned")

    fleet.annotate_pods("web", {SAFE_TO_EVICT: "false"})

    fleet.until(lambda: not fleet.leftovers(), "nothing of ours stays on any node")
    assert fleet.size("a") == 2
    assert not fleet.audit.ours("pods/eviction", granted=True)
    assert not fleet.marked_machines()


def test_pending_pods_abort_the_removal_of_a_node(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", replicas=2, maximum=2)
    fleet.deploy("web", 2, cpu="500m")
    fleet.until(lambda: len(fleet.where("web")) == 2, "a pod runs on each node")
    fleet.autoscale()
    operate(slow_removals=True)
    fleet.until(lambda: going(fleet), "a node goes")

    fleet.deploy("load", 4, cpu="1500m")  # two a node, beside a pod of web

    fleet.until_running("load", 4)
    assert fleet.size("a") == 2
    fleet.until(lambda: not fleet.leftovers(), "nothing of ours stays on any node")
    assert not fleet.audit.scales("a")


def test_unremovable_nodes_report_their_blocker(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", replicas=4)
    fleet.deploy("web", 3, cpu="500m")
    fleet.until(lambda: len(fleet.where("web")) == 3, "three nodes have a pod")
    disabled = next(iter(set(fleet.nodes("a")) - set(fleet.where("web"))))
    annotation = {"metadata": {"annotations": {SCALE_DOWN_DISABLED: "true"}}}
    fleet.client.request("PATCH", NODES.path(disabled), annotation, content_type=MERGE)
    fleet.budget("web", minAvailable=3)
    fleet.autoscale()
    operate()

    fleet.until(lambda: len(fleet.kept()) == 4, "each node has its reason")

    reasons = {name: each["reason"] for name, each in fleet.kept().items()}
    assert reasons.pop(disabled) == "ScaleDownDisabledAnnotation"
    assert set(reasons.values()) == {"BlockedByPod"}
    assert all(fleet.kept()[name]["blockingPod"] for name in reasons)
    fleet.iterate_twice()
    assert fleet.size("a") == 4


def test_capacity_annotations_scale_a_group_up_from_zero(fleet: Fleet, operate: Start) -> None:
    taint = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    fleet.group("plain", cpu="4")
    fleet.group("batch", cpu="8", memory="32Gi", labels={"disk": "fast"}, taints=[taint])
    fleet.autoscale()
    operate()

    fleet.deploy(
        "fast",
        5,
        nodeSelector={"disk": "fast"},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
    )

    fleet.until_running("fast", 5)
    assert fleet.sizes("plain", "batch") == {"plain": 0, "batch": 1}


def ready_long_since(fleet: Fleet) -> None:
    """Let all nodes report that they have been ready for an hour: only such nodes are learned from."""
    then = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, live in fleet.all_nodes().items():
        conditions = [{**each, "lastTransitionTime": then} for each in live["status"]["conditions"]]
        path = NODES.path(name, subresource="status")
        fleet.client.request("PATCH", path, {"status": {"conditions": conditions}}, content_type=MERGE)


def test_learned_node_template_survives_a_restart(fleet: Fleet, operate: Start) -> None:
    """The only source of the template is a former node that was ready for some time."""
    fleet.group("a", replicas=1, cpu="8", memory="32Gi", labels={"disk": "fast"}, capacity=False)
    ready_long_since(fleet)
    fleet.autoscale()
    first = operate()
    fleet.until_sizes(a=0)
    first.stop()
    operate()

    fleet.deploy("web", 1, nodeSelector={"disk": "fast"})

    fleet.until(lambda: fleet.size("a") == 1, "the set grows")
    fleet.until(lambda: fleet.nodes("a"), "a node comes")


def test_daemon_set_overhead_counts_once_a_pod_ran(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", cpu="4")
    fleet.autoscale()
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}]
    daemon = {
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": containers}},
        },
    }
    fleet.client.request("POST", DAEMON_SETS.path(namespace=fleet.pods_namespace), daemon)
    operate()

    # An agent that has never run anywhere may be one that a quota refuses: it counts from its first pod on.
    fleet.deploy("web", 1)
    fleet.until_running("web", 1)
    fleet.until_running("agent", 1)
    fleet.resize("web", 4)  # two would fit a node of 3500m, but for the agent

    fleet.until_running("web", 4)
    assert fleet.audit.scales("a") == [1, 4]
    fleet.resize("web", 0)
    fleet.until_sizes(a=0)  # the agents keep no node
    assert not pods_lost_of_web(fleet)


def pods_lost_of_web(fleet: Fleet) -> list[str]:
    return [each for each in pods_lost(fleet.audit, fleet.pods_namespace) if "/web-" in each]


def test_node_with_a_startup_taint_counts_as_upcoming(fleet: Fleet, operate: Start) -> None:
    """The kubelet adds the taint: the machine controller would restore a taint of the template."""
    fleet.group("a", cpu="4", annotations={f"{CAPACITY}/taints": "example.com/starting:NoSchedule"})
    fleet.autoscale(startupTaints=["example.com/starting"], scaleDown={**SHORT, "unneededTime": "1m"})
    operate()
    fleet.deploy("web", 2)
    fleet.until_sizes(a=1)
    fleet.until(lambda: fleet.group_status("a").get("upcoming") == 1, "the status counts it as on its way")
    fleet.iterate_twice()
    assert fleet.size("a") == 1, "its pods wait for it, and for no other"

    [node] = fleet.nodes("a").values()
    left = [each for each in node["spec"].get("taints", ()) if each["key"] != "example.com/starting"]
    path = NODES.path(node["metadata"]["name"])
    fleet.client.request("PATCH", path, {"spec": {"taints": left or None}}, content_type=MERGE)

    fleet.until_running("web", 2)
    assert fleet.audit.scales("a") == [1]
