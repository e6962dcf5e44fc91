"""Explanations of PodDisruptionBudgets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BudgetBuilder, PodBuilder, budget, eviction_request, machine_set, node, pod
from tests.fixtures.golden import Golden
from tests.unit.inspection.clusters import cluster_of, descheduler
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger, guarded
from trimtab.inspection.budget import explain_pdb, explain_pdbs
from trimtab.inspection.cluster import PolicySet


def web(name: str, on: str = "n1") -> PodBuilder:
    return pod(name).labels(app="web").on(on).cpu("500m").owned_by("ReplicaSet", "web").ready()


def pdb(name: str = "web") -> BudgetBuilder:
    return budget(name).selecting(app="web")


def codes(document: dict[str, Any]) -> list[str]:
    return [each["reason"] for each in document["remedies"]]


@pytest.mark.parametrize(
    ("made", "reason", "remedies"),
    [
        (pdb().allowing(1), "DisruptionsAllowed", []),
        (pdb().allowing(0), "AllPodsRequired", ["AddReplicas", "RelaxBudget"]),
        (pdb().allowing(0, healthy=2, expected=3), "UnhealthyPods", ["WaitForHealthyPods"]),
        (
            pdb().allowing(0, healthy=2, expected=3).disrupted("web-9"),
            "DisruptionsInProgress",
            ["WaitForHealthyPods"],
        ),
        (pdb().unobserved(), "BudgetStatusStale", ["CheckDisruptionController"]),
        (pdb().allowing(0, healthy=0, expected=0), "NoExpectedPods", ["CheckControllers"]),
        (budget("web").selecting(app="other"), "SelectsNoPods", []),
    ],
)
def test_reason_and_remedies(made: BudgetBuilder, reason: str, remedies: list[str]) -> None:
    document = explain_pdb(cluster_of(node("n1"), web("a"), made), "shop", "web")

    assert (document["pdb"], document["reason"], codes(document)) == ("shop/web", reason, remedies)


def test_numbers_are_those_of_the_status_and_differences_to_the_cluster_are_noted() -> None:
    cluster = cluster_of(node("n1"), web("a"), web("b").condition("Ready", "False"), pdb().allowing(1))
    document = explain_pdb(cluster, "shop", "web")

    numbers = ("disruptionsAllowed", "expectedPods", "currentHealthy", "desiredHealthy")
    assert [document[key] for key in numbers] == [1, 3, 3, 2]
    assert document["observed"] == {"pods": 2, "healthy": 1}
    assert len(document["notes"]) == 1
    assert [(each["pod"], each["healthy"], each["state"]) for each in document["pods"]] == [
        ("shop/a", True, "Ready"),
        ("shop/b", False, "NotReady"),
    ]


def test_eviction_requests_of_other_components_are_noted() -> None:
    requests = [eviction_request(pod="a"), eviction_request("old", pod="a").withdrawn(), eviction_request("b", pod="b")]
    cluster = cluster_of(node("n1"), web("a").uid("uid-a"), pdb().allowing(1, healthy=1, expected=1), *requests)
    [note] = explain_pdb(cluster, "shop", "web")["notes"]
    assert note == "EvictionRequest drain-web-1 of example.com/drainer asks for the eviction of pod a"


def test_unhealthy_pods_are_named_and_always_allow_is_a_remedy(golden: Golden) -> None:
    unhealthy = web("b").condition("Ready", "False")
    made = pdb().allowing(0, healthy=1, expected=3)
    document = explain_pdb(
        cluster_of(node("n1"), web("a"), unhealthy, made.merge(status={"desiredHealthy": 2})), "shop", "web"
    )

    assert codes(document) == ["WaitForHealthyPods", "AllowUnhealthyPods"]
    golden(document["remedies"][0]["message"])
    always = made.unhealthy_policy("AlwaysAllow")
    document = explain_pdb(cluster_of(node("n1"), web("a"), unhealthy, always), "shop", "web")
    assert codes(document) == ["WaitForHealthyPods"]
    assert [each["free"] for each in document["pods"]] == [False, True]


def test_overlapping_budgets_name_each_other() -> None:
    cluster = cluster_of(node("n1"), web("a"), web("b").labels(tier="x"), pdb(), budget("x").selecting(tier="x"))
    document = explain_pdb(cluster, "shop", "web")

    assert document["reason"] == "DisruptionsAllowed"
    assert document["overlapping"] == [{"pdb": "shop/x", "pods": ["shop/b"]}]
    assert [each["evictable"] for each in document["pods"]] == [True, False]
    document = explain_pdb(cluster, "shop", "x")
    assert (document["reason"], codes(document)) == ("OverlappingBudgets", ["ChangeSelector"])


def three_nodes(allowed: int) -> Any:
    group = machine_set().limits(1, 5).replicas(3)
    machines = [group.machine(f"workers-a-{number}").on(f"n{number}") for number in (1, 2, 3)]
    pods = [web("a", "n1"), web("b", "n1"), web("c", "n2")]
    nodes = [node(f"n{number}") for number in (1, 2, 3)]
    return cluster_of(
        group, *machines, *nodes, node("control-plane"), *pods, web("d", "control-plane"), pdb().allowing(allowed),
        autoscaler={"scaleDown": {"enabled": True}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("allowed", "blocked"),
    [(0, [("n1", ["shop/a", "shop/b"]), ("n2", ["shop/c"])]), (1, [("n1", ["shop/b"])]), (2, [])],
)
def test_nodes_whose_removal_needs_more_disruptions_are_blocked(allowed: int, blocked: Any) -> None:
    document = explain_pdb(three_nodes(allowed), "shop", "web")

    assert [(each["node"], each["pods"]) for each in document["blocksNodes"]] == blocked


def test_evictions_that_the_plan_keeps_because_of_the_budget_are_listed() -> None:
    policy = descheduler({"strategies": {"RemoveDuplicates": {}}})
    cluster = cluster_of(
        node("n1"), node("n2"), web("a"), web("b"), pdb().allowing(0, healthy=2, expected=2),
        policies=PolicySet(descheduler=(policy,)),
    )  # fmt: skip
    [held, *_] = explain_pdb(cluster, "shop", "web")["heldEvictions"]

    assert (held["policy"], held["strategy"], held["reason"]) == ("default", "RemoveDuplicates", "DisruptionBudget")
    assert held["pod"] in ("shop/a", "shop/b")


def test_table_contains_budgets_that_block_or_allow_nothing() -> None:
    cluster = cluster_of(
        node("n1"), web("a"), pod("db", "bank").labels(app="db").on("n1").ready(),
        pdb().allowing(1), budget("db", "bank").selecting(app="db").allowing(0), budget("idle").selecting(app="none"),
    )  # fmt: skip
    document = explain_pdbs(cluster)

    assert [(each["pdb"], each["reason"]) for each in document["budgets"]] == [("bank/db", "AllPodsRequired")]
    assert document["others"] == 2
    assert explain_pdbs(cluster, namespace="shop")["budgets"] == []


PODS = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["Running", "Pending", "Failed"]), st.booleans(), st.booleans()),
    max_size=6,
)


@given(
    pods=PODS,
    allowed=st.integers(0, 3),
    healthy=st.integers(0, 4),
    desired=st.integers(0, 4),
    stale=st.booleans(),
    always=st.booleans(),
    second=st.booleans(),
)
def test_evictable_pods_are_those_that_the_ledger_grants(
    pods: Any, allowed: int, healthy: int, desired: int, stale: bool, always: bool, second: bool
) -> None:
    """One after another, as the Eviction API would receive them."""
    made = [pdb().merge(status={"disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": desired})]
    if stale:
        made[0].unobserved()
    if always:
        made[0].unhealthy_policy("AlwaysAllow")
    if second:
        made.append(budget("x").selecting(tier="x"))
    builders = []
    for number, (ready, phase, leaving, tiered) in enumerate(pods):
        each = web(f"p{number}").phase(phase)
        if not ready:
            each.condition("Ready", "False")
        if leaving:
            each.deleted()
        builders.append(each.labels(tier="x") if tiered else each)
    document = explain_pdb(cluster_of(node("n1"), *made, *builders), "shop", "web")

    objects = [each.build() for each in (*made, *builders)]
    ledger = BudgetLedger(Snapshot(objects))
    granted = 0
    for each in sorted(objects[len(made) :], key=lambda each: each.key):
        if guarded(each) and ledger.refusal(each) is None:
            ledger.take(each)
            granted += 1
    assert document["evictable"] == granted
    if document["reason"] not in ("DisruptionsAllowed", "SelectsNoPods"):
        free = sum(each["free"] for each in document["pods"])
        assert document["evictable"] <= free
