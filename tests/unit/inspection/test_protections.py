"""The list of pods that are never evicted."""

from __future__ import annotations

from typing import Any

from tests.builders import budget, node, pod
from tests.unit.inspection.clusters import cluster_of, descheduler
from trimtab.inspection.cluster import PolicySet
from trimtab.inspection.protections import explain_protections


def web(name: str, namespace: str = "shop") -> Any:
    return pod(name, namespace).labels(app=name).on("n1").owned_by("ReplicaSet", name).ready()


def groups(document: dict[str, Any], place: int = 0) -> dict[str, list[str]]:
    return {
        each["reason"]: [found["pod"] for found in each["pods"]] for each in document["controllers"][place]["groups"]
    }


def objects() -> list[Any]:
    return [
        node("n1"),
        web("a"),
        web("db"),
        web("two").labels(tier="x"),
        pod("bare").on("n1").ready(),
        web("logs").owned_by("DaemonSet", "logs"),
        pod("pending").owned_by("ReplicaSet", "pending"),
        web("stays").annotations({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
        budget("db").selecting(app="db").allowing(0),
        budget("two").selecting(app="two"),
        budget("x").selecting(tier="x"),
    ]


def test_pods_are_grouped_by_the_reason_why_they_are_never_evicted() -> None:
    document = explain_protections(cluster_of(*objects()))

    assert [each["controller"] for each in document["controllers"]] == ["default protections"]
    assert groups(document) == {
        "AllPodsRequired": ["shop/db"],
        "BarePod": ["shop/bare"],
        "DaemonSetPod": ["shop/logs"],
        "OverlappingBudgets": ["shop/two"],
    }
    assert (document["pods"], document["neverEvicted"]) == (6, 4)


def test_each_policy_and_scale_down_have_their_own_list() -> None:
    lenient = descheduler({"strategies": {"RemoveDuplicates": {}}}, name="a")
    strict = descheduler(
        {"strategies": {"RemoveDuplicates": {}}, "protections": {"extra": ["PodsWithoutPDB"]}}, name="b"
    )
    cluster = cluster_of(
        *objects(), policies=PolicySet(descheduler=(lenient, strict)), autoscaler={"scaleDown": {"enabled": True}}
    )
    document = explain_protections(cluster)

    names = [each["controller"] for each in document["controllers"]]
    assert names == ["DeschedulerPolicy a", "DeschedulerPolicy b", "scale-down"]
    assert "shop/a" not in groups(document, 0).get("NoDisruptionBudget", [])
    assert groups(document, 2) == {
        "AllPodsRequired": ["shop/db"],
        "NotReplicated": ["shop/bare"],
        "NotSafeToEvictAnnotation": ["shop/stays"],
        "OverlappingBudgets": ["shop/two"],
    }
    assert document["neverEvicted"] == 3


def test_a_budget_that_may_allow_disruptions_later_does_not_count() -> None:
    waiting = budget("db").selecting(app="db").allowing(0, healthy=2, expected=3)
    document = explain_protections(cluster_of(node("n1"), web("db"), waiting.merge(status={"desiredHealthy": 2})))

    assert groups(document) == {}


def test_namespace_limits_the_list() -> None:
    cluster = cluster_of(node("n1"), pod("bare").on("n1"), pod("bare", "bank").on("n1"))
    assert groups(explain_protections(cluster, namespace="bank")) == {"BarePod": ["bank/bare"]}
