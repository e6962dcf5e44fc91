"""Explanations of node groups."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.builders import machine_set, node, pod
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import group, pending_pod, pending_pods
from tests.unit.inspection.clusters import cluster_of
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.node_group import explain_node_group, explain_node_groups, node_group_ids

PRICE = "trimtab.dev/price"


def id_of(name: str) -> str:
    return f"MachineSet/openshift-machine-api/{name}"


def with_status(cluster: ClusterInput, status: dict[str, Any]) -> ClusterInput:
    autoscaler = cluster.policies.cluster_autoscaler
    assert autoscaler is not None
    found = msgspec.structs.replace(autoscaler, status=msgspec.convert(status, ClusterAutoscalerStatus))
    policies = msgspec.structs.replace(cluster.policies, cluster_autoscaler=found)
    return msgspec.structs.replace(cluster, policies=policies)


def test_chosen_and_rejected_groups_say_by_how_much(golden: Golden) -> None:
    cluster = cluster_of(
        group("large", cpu="8"), group("small", cpu="2", memory="8Gi"), *pending_pods(4), autoscaler={}
    )
    small, large = explain_node_group(cluster, id_of("small")), explain_node_group(cluster, id_of("large"))

    assert small["scaleUp"]["to"] == 2
    assert [each["verdict"] for each in small["choices"]] == ["Chosen"]
    assert large["scaleUp"] is None
    (rejected,) = large["choices"]
    assert (rejected["verdict"], rejected["by"]) == ("Rejected", "LeastWaste")
    assert rejected["chosen"] == "openshift-machine-api/small"
    golden(rejected["measure"], "rejected")
    golden(rejected["chosenMeasure"], "chosen")


def test_pending_pods_that_fit_and_that_do_not() -> None:
    cluster = cluster_of(
        group("a", cpu="4"), pending_pod("fits"), pending_pod("large", cpu="5"), pod("new").cpu("1"), autoscaler={}
    )
    pods = explain_node_group(cluster, id_of("a"))["pendingPods"]

    assert pods["fits"] == ["shop/fits"]
    assert pods["doesNotFit"] == [{"reasons": ["Insufficient cpu"], "pods": ["shop/large"]}]
    assert [(each["pod"], each["reason"]) for each in pods["notConsidered"]] == [("shop/new", "NotUnschedulable")]


def test_maximum_is_the_limit_although_pods_would_fit() -> None:
    full = machine_set("a").limits(0, 1).replicas(1)
    cluster = cluster_of(
        full, full.machine("a-1").on("n1"), node("n1"), pod("w").cpu("4").on("n1"), pending_pod("p"), autoscaler={}
    )
    document = explain_node_group(cluster, id_of("a"))

    assert document["limit"]["reason"] == "MaxSizeReached"
    assert document["pendingPods"]["fits"] == ["shop/p"]
    assert (document["size"], document["registered"], document["ready"], document["maximum"]) == (1, 1, 1, 1)
    assert (document["template"]["origin"], document["template"]["node"]) == ("Learned", "n1")


def test_backoff_has_its_end_and_reason() -> None:
    status = {
        "nodeGroups": [
            {
                "id": id_of("a"),
                "failures": 2,
                "backoffUntil": "2026-11-20T12:05:00Z",
                "lastError": {"time": "2026-11-20T11:55:00Z", "reason": "ScaleRefused", "message": "quota"},
            }
        ]
    }
    document = explain_node_group(with_status(cluster_of(group("a"), autoscaler={}), status), id_of("a"))

    assert document["backoff"] == {
        "until": "2026-11-20T12:05:00Z",
        "failures": 2,
        "reason": "ScaleRefused",
        "message": "quota",
    }
    assert document["limit"]["reason"] == "GroupBacksOff"


def test_nodes_say_why_they_are_not_removed_and_machines_why_they_have_none() -> None:
    made = machine_set("a").limits(0, 5).replicas(3)
    cluster = cluster_of(
        made, made.machine("a-1").on("n1"), made.machine("a-2").on("n2"), made.machine("a-3"), node("n1"), node("n2"),
        pod("bare").on("n1").cpu("1"), autoscaler={"scaleDown": {"enabled": True, "unneededTime": "5m"}},
    )  # fmt: skip
    document = explain_node_group(cluster, id_of("a"))

    nodes = {each["node"]: each for each in document["nodes"]}
    assert (nodes["n1"]["reason"], nodes["n1"]["blockedBy"]) == ("BlockedByPod", "shop/bare")
    assert nodes["n2"]["reason"] in ("NotUnneededLongEnough", "DelayAfterAdd")
    assert [each["machine"] for each in document["notRegistered"]] == ["openshift-machine-api/a-3"]
    assert document["upcoming"] == 1
    assert document["limitsFrom"]["kind"] == "MachineSet"


def test_machine_whose_node_does_not_confirm_it_names_the_node(golden: Golden) -> None:
    made = machine_set("a").limits(0, 5).replicas(1)
    unlinked = made.machine("a-1").provider_id("x://1")
    document = explain_node_group(
        cluster_of(made, unlinked, node("n1").provider_id("x://1"), autoscaler={}), id_of("a")
    )

    [machine] = document["notRegistered"]
    assert (machine["machine"], machine["state"]) == ("openshift-machine-api/a-1", "Unconfirmed")
    assert (document["registered"], document["upcoming"]) == (0, 0)
    golden(machine["message"])


def test_prices_are_in_the_document_only_if_there_are_any() -> None:
    cluster = cluster_of(group("a", size=2).annotations({PRICE: "0.25"}), group("b"), autoscaler={})

    document = explain_node_group(cluster, id_of("a"))
    assert (document["nodeHourlyCost"], document["hourlyCost"]) == (0.25, 0.5)
    assert "nodeHourlyCost" not in explain_node_group(cluster, id_of("b"))


def test_table_lists_all_groups_those_that_cannot_be_scaled_up_first() -> None:
    cluster = cluster_of(group("a"), group("b", most=0), autoscaler={})
    document = explain_node_groups(cluster)

    assert [(each["nodeGroup"], (each["limit"] or {}).get("reason")) for each in document["nodeGroups"]] == [
        ("openshift-machine-api/b", "MaxSizeReached"),
        ("openshift-machine-api/a", None),
    ]
    assert node_group_ids(cluster) == {id_of("a"): "openshift-machine-api/a", id_of("b"): "openshift-machine-api/b"}


def test_without_an_autoscaler_the_answer_says_so(golden: Golden) -> None:
    golden(explain_node_group(cluster_of(group("a")), id_of("a"))["message"])
