"""Explanations of custom resources."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.builders import budget, node, pod
from tests.unit.autoscaling.scale_up_helpers import group, pending_pods
from tests.unit.inspection.clusters import cluster_of, descheduler
from trimtab.api.history_record import HistoryEntry
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.inspection.node import explain_node
from trimtab.inspection.policy import explain_policy, policy_names

SINCE = "2026-11-20T11:00:00Z"


def duplicates(number: int) -> list[Any]:
    return [
        pod(f"web-{each}").labels(app="web").on("n1").cpu("100m").owned_by("ReplicaSet", "web").ready()
        for each in range(number)
    ]


def cluster(*more: Any, spec: dict[str, Any] | None = None, **status: Any) -> ClusterInput:
    wanted = {"strategies": {"RemoveDuplicates": {}}, "mode": "Act", **(spec or {})}
    policy = descheduler(wanted, status=status)
    return cluster_of(
        node("n1"), node("n2"), *duplicates(4), *more,
        policies=PolicySet(descheduler=(policy,)), autoscaler={},
    )  # fmt: skip


def test_planned_actions_and_kept_candidates_are_counted() -> None:
    document = explain_policy(cluster(), "DeschedulerPolicy", "default")

    assert document["planned"] == [
        {"action": "Evict", "strategy": "RemoveDuplicates", "reason": "DuplicateOnNode", "count": 2}
    ]
    assert len(document["actions"]) == 2
    assert (document["actionsOmitted"], document["heldBackBy"]) == (0, [])


def test_budget_keeps_candidates_and_is_marked_as_waiting() -> None:
    made = cluster(budget("web").selecting(app="web").allowing(0, healthy=4, expected=4))
    document = explain_policy(made, "DeschedulerPolicy", "default")

    assert document["planned"] == []
    kept = {each["reason"]: each for each in document["kept"]}
    assert kept["DisruptionBudget"]["waits"]
    assert kept["DisruptionBudget"]["examples"][0]["kind"] == "Pod"


@pytest.mark.parametrize(
    ("spec", "status", "held"),
    [
        ({"mode": "Simulate"}, {}, ["Simulate"]),
        ({"suspend": True}, {}, ["Suspended"]),
        ({"windows": [{"schedule": "0 22 * * *", "duration": "2h"}]}, {}, ["OutsideWindows"]),
        (
            {},
            {
                "conditions": [
                    {
                        "type": "PermissionsMissing", "status": "True", "reason": "PermissionsMissing",
                        "message": "pods/eviction: create", "lastTransitionTime": SINCE,
                    }
                ]
            },
            ["PermissionsMissing"],
        ),
        (
            {},
            {"waitingEvictions": [{"reason": "WaitingForBudget", "since": SINCE, "count": 1}]},
            ["WaitingForBudget"],
        ),
    ],
)  # fmt: skip
def test_what_holds_a_policy_back(spec: Any, status: Any, held: list[str]) -> None:
    document = explain_policy(cluster(spec=spec, **status), "DeschedulerPolicy", "default")

    assert [each["reason"] for each in document["heldBackBy"]] == held
    assert document["planned"][0]["count"] == 2, "the plan ignores what holds it back"


def test_autoscaler_has_only_actions_on_nodes() -> None:
    made = cluster(group("a"), *(each.cpu("8") for each in pending_pods(2)))
    document = explain_policy(made, "ClusterAutoscaler", "default")

    assert {each["action"] for each in document["planned"]} <= {"ScaleUp", "RemoveNode"}
    assert {each["strategy"] for each in document["kept"]} <= {"ScaleUp", "ScaleDown"}
    assert policy_names(made) == [("DeschedulerPolicy", "default"), ("ClusterAutoscaler", "default")]


def test_node_lists_what_the_policies_would_move_from_it() -> None:
    document = explain_node(cluster(), "n1")

    assert [(each["by"], each["strategy"], each["target"]) for each in document["wouldMove"]] == [
        ("DeschedulerPolicy default", "RemoveDuplicates", "n2")
    ] * 2
    assert explain_node(cluster(), "n2")["wouldMove"] == []


def test_node_lists_its_last_recorded_actions() -> None:
    def entry(minute: int, name: str) -> HistoryEntry:
        return HistoryEntry(
            time=datetime(2026, 11, 20, 11, minute, tzinfo=UTC), controller="descheduler", action="Evict",
            reason="DuplicateOnNode", namespace="shop", pod=f"web-{minute}", node=name,
        )  # fmt: skip

    made = msgspec.structs.replace(cluster(), history=(entry(1, "n1"), entry(2, "n2"), entry(3, "n1")))
    assert [each["object"] for each in explain_node(made, "n1")["history"]] == ["shop/web-3", "shop/web-1"]
