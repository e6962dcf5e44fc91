"""Forecasts: what becomes of pods if nodes fail, are drained or added, or objects are applied."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import (
    HOSTNAME,
    ZONE,
    budget,
    daemon_set,
    expression,
    machine_set,
    node,
    pod,
    priority_class,
    pv,
    pvc,
    replica_set,
    selector,
    storage_class,
)
from tests.building import Builder
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.autoscaling.groups import Groups
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.inspection.forecast import what_if
from trimtab.inspection.scenario import Scenario, parse_addition, parse_selection, select_nodes
from trimtab.kube.errors import InputError

NOW = 1_795_176_000.0
NO_POLICIES = PolicySet()
AUTOSCALED = PolicySet(cluster_autoscaler=ClusterAutoscaler(spec=ClusterAutoscalerSpec()))


def forecast(
    *objects: Any,
    without: tuple[str, ...] = (),
    drain: tuple[str, ...] = (),
    add: tuple[str, ...] = (),
    apply: tuple[Any, ...] = (),
    policies: PolicySet = NO_POLICIES,
) -> dict[str, Any]:
    snapshot = Snapshot(each.build() for each in objects)
    before = dict(snapshot.pods)
    scenario = Scenario(
        without=tuple(map(parse_selection, without)),
        drain=tuple(map(parse_selection, drain)),
        add=dict(map(parse_addition, add)),
        apply=tuple(each.manifest() if isinstance(each, Builder) else each for each in apply),
    )
    document = what_if(ClusterInput(snapshot=snapshot, now=NOW, policies=policies), scenario)
    assert snapshot.pods == before
    return document


def web(name: str, on: str, owner: str = "web") -> Any:
    return pod(name).on(on).ready().cpu("1").labels(app=owner).owned_by("ReplicaSet", owner)


def moves(document: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["pod"], each["from"], each["to"]) for each in document["rescheduled"]]


def names(entries: list[dict[str, Any]]) -> list[str]:
    return [each["pod"] for each in entries]


def test_pods_of_a_failed_node_are_rescheduled() -> None:
    document = forecast(
        node("n1"), node("n2").allocatable(cpu="2"), node("n3"), web("a", "n1"), web("b", "n1"), without=("node/n1",)
    )

    assert document["kind"] == "Forecast"
    assert document["removed"] == ["node/n1"]
    assert moves(document) == [("shop/a", "n1", "n3"), ("shop/b", "n1", "n3")]
    assert document["pending"] == document["lost"] == document["scaleUp"] == document["budgets"] == []
    assert document["summary"]["rescheduled"] == 2


def test_zone_selects_all_its_nodes() -> None:
    document = forecast(
        node("n1").zone("a"),
        node("n2").zone("a"),
        node("n3").zone("b").allocatable(cpu="1"),
        web("a", "n1"),
        web("b", "n2"),
        without=("zone=a",),
    )

    assert document["removed"] == [f"{ZONE}=a"]
    assert moves(document) == [("shop/a", "n1", "n3")]
    [left] = document["pending"]
    assert (left["pod"], left["from"], left["reason"]) == ("shop/b", "n2", "Unschedulable")
    assert left["message"].startswith("0/1 nodes are available: 1 Insufficient cpu")


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (pod("p").on("n1"), "NoController"),
        (pod("p").on("n1").mirror(), "StaticPod"),
        (pod("p").on("n1").mirror().owned_by("Node", "n1"), "StaticPod"),
        (pod("p").on("n1").owned_by("ReplicaSet", "gone"), "ControllerNotFound"),
    ],
)
def test_pods_that_nothing_recreates_are_lost(lost: Any, reason: str) -> None:
    document = forecast(node("n1"), node("n2"), replica_set("other"), lost, without=("node/n1",))

    assert document["lost"] == [{"pod": "shop/p", "from": "n1", "reason": reason}]
    assert document["rescheduled"] == []


@pytest.mark.parametrize(
    "ended",
    [
        pod("p").on("n1").owned_by("DaemonSet", "agent"),
        pod("p").on("n1").phase("Succeeded").owned_by("Job", "batch"),
        pod("p").on("n1").deleted().owned_by("ReplicaSet", "web"),
    ],
)
def test_pods_that_end_with_their_node_are_neither_lost_nor_rescheduled(ended: Any) -> None:
    document = forecast(node("n1"), node("n2"), ended, without=("node/n1",))

    assert document["summary"]["endedWithNode"] == 1
    assert document["lost"] == document["rescheduled"] == document["pending"] == []


def test_stateful_pod_waits_for_its_local_volume() -> None:
    objects = (
        node("n1"),
        node("n2"),
        storage_class("local"),
        pv("disk").of_class("local").claimed_by("data").where(expression(HOSTNAME, "In", "n1")),
        pvc("data").of_class("local").bound_to("disk"),
        pod("db-0").on("n1").owned_by("StatefulSet", "db").claim("data"),
    )

    document = forecast(*objects, without=("node/n1",))

    assert names(document["pending"]) == ["shop/db-0"]
    assert "didn't match PersistentVolume's node affinity" in document["pending"][0]["message"]


def test_anti_affinity_counters_are_right_after_removal() -> None:
    def picky(name: str, on: str) -> Any:
        return web(name, on).anti_affinity()

    document = forecast(
        node("n1"), node("n2"), node("n3"), picky("a", "n1"), picky("b", "n2"), picky("c", "n3"), without=("node/n1",)
    )
    assert names(document["pending"]) == ["shop/a"]

    document = forecast(node("n1"), node("n2"), node("n3"), picky("a", "n1"), picky("b", "n2"), without=("node/n1",))
    assert moves(document) == [("shop/a", "n1", "n3")]


def test_pods_are_placed_by_priority_and_preempt_others() -> None:
    objects = (
        node("n1"),
        node("n2").allocatable(cpu="2"),
        web("low", "n2", "low").cpu("2").priority(0),
        web("high", "n1", "high").cpu("2").priority(1000),
    )

    document = forecast(*objects, without=("node/n1",))

    assert moves(document) == [("shop/high", "n1", "n2")]
    assert document["preempted"] == [{"pod": "shop/low", "node": "n2", "for": "shop/high"}]
    assert names(document["pending"]) == ["shop/low"]


def test_higher_priority_takes_the_last_slot() -> None:
    objects = (
        node("n1"),
        node("n2").allocatable(cpu="1"),
        web("a", "n1").priority(0),
        web("z", "n1", "important").priority(10),
    )
    document = forecast(*objects, without=("node/n1",))
    assert moves(document) == [("shop/z", "n1", "n2")]
    assert names(document["pending"]) == ["shop/a"]


def test_pod_with_affinity_is_tried_again_after_the_pod_it_needs() -> None:
    follower = pod("a").on("n1").cpu("1").priority(9).owned_by("ReplicaSet", "a")
    follower.affinity(labelSelector=selector(app="leader"))
    objects = (node("n1"), node("n2"), follower, web("leader", "n1", "leader").labels(app="leader"))

    document = forecast(*objects, without=("node/n1",))

    assert moves(document) == [("shop/a", "n1", "n2"), ("shop/leader", "n1", "n2")]


def test_budgets_are_violated_when_nodes_fail_and_hold_when_drained() -> None:
    objects = (
        node("n1"),
        node("n2"),
        web("a", "n1"),
        web("b", "n1"),
        budget("web").selecting(app="web").allowing(0),
    )

    failed = forecast(*objects, without=("node/n1",))
    assert failed["budgets"] == [
        {"pdb": "shop/web", "disruptionsAllowed": 0, "pods": 2, "violated": True, "blocked": []}
    ]
    assert failed["summary"]["rescheduled"] == 2

    drained = forecast(*objects, drain=("node/n1",))
    assert drained["budgets"] == [
        {"pdb": "shop/web", "disruptionsAllowed": 0, "pods": 0, "violated": False, "blocked": ["shop/a", "shop/b"]}
    ]
    assert names(drained["blocked"]) == ["shop/a", "shop/b"]
    assert drained["rescheduled"] == []


def test_drain_evicts_one_pod_after_another() -> None:
    objects = (
        node("n1"),
        node("n2").allocatable(cpu="1"),
        *(web(name, "n1") for name in "abc"),
        budget("web").selecting(app="web").allowing(1),
        pod("agent").on("n1").owned_by("DaemonSet", "agent"),
        pod("bare").on("n1"),
    )

    document = forecast(*objects, drain=("node/n1",))

    assert moves(document) == [("shop/a", "n1", "n2")]
    assert names(document["pending"]) == ["shop/b"]  # it uses up the budget, as its replacement does not run
    assert names(document["blocked"]) == ["shop/c"]
    assert names(document["lost"]) == ["shop/bare"]


def group(name: str = "workers", replicas: int = 1, maximum: int = 9) -> Any:
    return machine_set(name).replicas(replicas).limits(0, maximum).capacity(cpu="4", memory="16Gi")


def test_autoscaler_adds_nodes_for_pods_that_stay_pending() -> None:
    machines = group().annotations({"trimtab.dev/price": "0.25"})
    objects = (
        node("n1"),
        machines,
        machines.machine("m1").on("n1"),
        web("a", "n1"),
        pod("huge").on("n1").cpu("8").owned_by("ReplicaSet", "huge"),
    )

    document = forecast(*objects, without=("node/n1",), policies=AUTOSCALED)

    [scaled] = document["scaleUp"]
    assert (scaled["nodeGroup"], scaled["from"], scaled["to"]) == ("openshift-machine-api/workers", 1, 2)
    assert scaled["pods"] == ["shop/a"]
    assert scaled["hourlyCost"] == 0.25
    first, second = document["pending"]
    assert (first["pod"], first["nodeGroup"]) == ("shop/a", "openshift-machine-api/workers")
    assert (second["pod"], second["scaleUp"]["reason"]) == ("shop/huge", "NoGroupFits")
    assert document["summary"]["nodesAdded"] == 1


def test_groups_of_a_failed_zone_are_not_scaled_up() -> None:
    objects: list[Any] = []
    for zone in "ab":
        machines = group(f"workers-{zone}")
        objects += [node(zone).zone(zone), machines, machines.machine(f"m-{zone}").on(zone)]
    objects += [web(f"a{number}", "a") for number in range(4)]
    objects += [web(f"b{number}", "b") for number in range(4)]

    document = forecast(*objects, without=("zone=a",), policies=AUTOSCALED)

    assert [(each["nodeGroup"], each["from"], each["to"]) for each in document["scaleUp"]] == [
        ("openshift-machine-api/workers-b", 1, 2)
    ]

    document = forecast(*objects, without=("nodegroup/workers-a",), policies=AUTOSCALED)
    assert [each["nodeGroup"] for each in document["scaleUp"]] == ["openshift-machine-api/workers-b"]


def test_added_nodes_take_pending_pods_and_count_for_later_scale_up() -> None:
    waiting = [pod(f"p{number}").cpu("3").unschedulable().owned_by("ReplicaSet", "p") for number in range(3)]

    document = forecast(group(replicas=0), *waiting, add=("workers=2",), policies=AUTOSCALED)

    assert document["added"] == [{"nodeGroup": "openshift-machine-api/workers", "from": 0, "to": 2}]
    assert [(each["pod"], each["to"]) for each in document["scheduled"]] == [
        ("shop/p0", "new-1-of-workers"),
        ("shop/p1", "new-2-of-workers"),
    ]
    assert names(document["stillPending"]) == ["shop/p2"]
    assert [(each["from"], each["to"]) for each in document["scaleUp"]] == [(2, 3)]


def deployment(name: str = "web", replicas: int | None = 2, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": "registry.example/app:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **spec}},
        },
    }


def test_applied_deployment_starts_pods() -> None:
    document = forecast(node("n1").allocatable(cpu="1"), apply=(deployment(),))

    assert document["applied"] == ["Deployment/shop/web"]
    assert [(each["pod"], each["to"]) for each in document["scheduled"]] == [("shop/web-new-1", "n1")]
    assert names(document["pending"]) == ["shop/web-new-2"]


def running(name: str, on: str) -> Any:
    labels = {"app": "web", "pod-template-hash": "7f9d"}
    return pod(name).on(on).ready().cpu("1").labels(labels).owned_by("ReplicaSet", "web-7f9d")


def test_changed_replicas_move_no_running_pod() -> None:
    objects = (node("n1"), node("n2"), running("a", "n1"), running("b", "n1"))

    more = forecast(*objects, apply=(deployment(replicas=3),))
    assert names(more["scheduled"]) == ["shop/web-new-1"]
    assert more["rescheduled"] == []

    fewer = forecast(*objects, apply=(deployment(replicas=1),))
    assert fewer["deleted"] == ["shop/b"]
    assert fewer["scheduled"] == []


def test_changed_template_replaces_all_pods() -> None:
    objects = (node("n1"), node("n2").allocatable(cpu="8"), running("a", "n1"), running("b", "n1"))

    document = forecast(*objects, apply=(deployment(replicas=3, cpu="3"),))

    assert len(moves(document)) + len(document["scheduled"]) == 3
    assert {each["from"] for each in document["rescheduled"]} == {"n1"}
    assert document["deleted"] == []


def test_applied_stateful_set_gets_claims_and_daemon_set_a_pod_on_each_node() -> None:
    head = {"name": "db", "namespace": "shop"}
    template = deployment("db")["spec"]["template"]
    sts = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": head,
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
            "volumeClaimTemplates": [
                {"metadata": {"name": "data"}, "spec": {"storageClassName": "absent", "accessModes": ["ReadWriteOnce"]}}
            ],
        },
    }
    document = forecast(node("n1"), apply=(sts,))
    assert names(document["pending"]) == ["shop/db-0", "shop/db-1"]
    assert "unbound immediate PersistentVolumeClaims" in document["pending"][0]["message"]

    agent = daemon_set().of_pods(pod("agent").cpu("1"))
    document = forecast(node("n1"), node("n2"), node("gpu").taint("gpu"), apply=(agent,))
    assert [each["to"] for each in document["scheduled"]] == ["n1", "n2"]


def test_applied_priority_class_counts_for_pods_that_name_it() -> None:
    objects = (node("n1").allocatable(cpu="1"), web("low", "n1", "low"))
    document = forecast(
        *objects,
        apply=(deployment("vip", 1, priorityClassName="vip"), priority_class("vip", 100)),
    )
    assert [each["pod"] for each in document["preempted"]] == ["shop/low"]


def test_applied_budget_gets_the_status_that_its_controller_would_write() -> None:
    pdb = budget("web").selecting(app="web").manifest()
    pdb["spec"]["maxUnavailable"] = 1
    pdb.pop("status", None)
    objects = (node("n1"), node("n2"), web("a", "n1"), web("b", "n2"))

    document = forecast(*objects, apply=(pdb,), drain=("node/n1",))

    assert document["budgets"] == [
        {"pdb": "shop/web", "disruptionsAllowed": 1, "pods": 1, "violated": False, "blocked": []}
    ]


def test_pods_on_nodes_that_the_snapshot_lacks_are_counted() -> None:
    document = forecast(node("n1"), node("n2"), web("a", "lost"), web("b", "n1"), without=("node/n1",))

    assert document["podsWithoutNode"] == {"pods": 1, "nodes": ["lost"]}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("node/n1", "node/n1"),
        ("nodegroup/workers", "nodegroup/workers"),
        ("zone=a", f"{ZONE}=a"),
        ("pool=x", "pool=x"),
        ("example.com/pool=x", "example.com/pool=x"),
        ("node=x", "node=x"),
    ],
)
def test_selections(text: str, written: str) -> None:
    assert str(parse_selection(text)) == written


@pytest.mark.parametrize("text", ["", "n1", "node/", "=a", "nodegroup/"])
def test_selections_that_are_none(text: str) -> None:
    with pytest.raises(InputError):
        parse_selection(text)


@pytest.mark.parametrize(("text", "hint"), [("node/nn1", "n1"), ("zone=x", "a"), ("zzone=a", ""), ("nodegroup/x", "")])
def test_selections_of_nothing_name_what_there_is(text: str, hint: str) -> None:
    snapshot = Snapshot([node("n1").zone("a").build()])
    with pytest.raises(InputError) as error:
        select_nodes(snapshot, parse_selection(text), Groups())
    assert hint in str(error.value)


def test_node_that_is_removed_and_drained_is_refused() -> None:
    with pytest.raises(InputError, match="n1"):
        forecast(node("n1"), without=("node/n1",), drain=("node/n1",))
