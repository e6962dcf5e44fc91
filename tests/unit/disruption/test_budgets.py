"""What the Eviction API would say, foretold."""

from __future__ import annotations

import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import BudgetBuilder, PodBuilder, budget, pod
from tests.fixtures.golden import Golden
from trimtab.api.reasons import DISRUPTION_BUDGET
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import MAX_DISRUPTED_PODS, BudgetLedger
from trimtab.kube.objects import LabelSelector, PodDisruptionBudget


def web(name: str = "web-1") -> PodBuilder:
    return pod(name, namespace="shop").labels(app="web").on("n1").ready()


def pdb(name: str = "web") -> BudgetBuilder:
    return budget(name, namespace="shop").selecting(app="web")


def ledger(*budgets: PodDisruptionBudget) -> BudgetLedger:
    return BudgetLedger(Snapshot(budgets))


def not_ready(name: str = "web-1") -> PodBuilder:
    return web(name).condition("Ready", "False")


@pytest.mark.parametrize(
    ("asked", "budgets"),
    [
        pytest.param(web(), [], id="no budget"),
        pytest.param(web(), [pdb()], id="one left"),
        pytest.param(web(), [pdb("db").selecting(app="db").allowing(0)], id="another's budget"),
        pytest.param(web(), [budget("web", namespace="bank").selecting(app="web").allowing(0)], id="another namespace"),
        pytest.param(web().phase("Pending"), [pdb().allowing(0)], id="pending"),
        pytest.param(web().phase("Failed"), [pdb().allowing(0)], id="failed"),
        pytest.param(web().deleted(), [pdb().allowing(0)], id="terminating"),
        pytest.param(not_ready(), [pdb().allowing(0, healthy=3)], id="not ready, the budget is healthy"),
        pytest.param(
            not_ready(), [pdb().allowing(0, healthy=3).unhealthy_policy("IfHealthyBudget")], id="the same by name"
        ),
        pytest.param(
            not_ready(),
            [
                pdb()
                .merge(status={"currentHealthy": 1, "desiredHealthy": 2, "disruptionsAllowed": 0})
                .unhealthy_policy("AlwaysAllow")
            ],
            id="not ready, always allowed",
        ),
        pytest.param(not_ready(), [pdb().unobserved().unhealthy_policy("AlwaysAllow")], id="stale, but always allowed"),
    ],
)
def test_ledger_grants_eviction(asked, budgets):
    assert ledger(*(each.build() for each in budgets)).refusal(asked.build()) is None


@pytest.mark.parametrize(
    ("asked", "budgets", "words"),
    [
        pytest.param(
            web(),
            [pdb().allowing(0)],
            "PodDisruptionBudget web allows no disruption (3 of 3 pods healthy, 3 needed)",
            id="none allowed",
        ),
        pytest.param(web(), [pdb().allowing(-1)], "allows no disruption", id="negative"),
        pytest.param(web(), [pdb().unobserved()], "is stale (generation 1, the spec has 2)", id="stale status"),
        pytest.param(
            not_ready(), [pdb().unobserved()], "is stale (generation 1, the spec has 2)", id="not ready but stale"
        ),
        pytest.param(web(), [pdb("b"), pdb("a")], "2 PodDisruptionBudgets select the pod (a, b)", id="two budgets"),
        pytest.param(
            web(), [pdb().disrupted("web-1")], "has already counted the pod as disrupted", id="evicted already"
        ),
        pytest.param(
            web(),
            [pdb().disrupted(*(f"p-{number}" for number in range(MAX_DISRUPTED_PODS + 1)))],
            "2001 disruptions of PodDisruptionBudget web await",
            id="too many unconfirmed",
        ),
        pytest.param(
            not_ready(),
            [pdb().merge(status={"currentHealthy": 1, "desiredHealthy": 2, "disruptionsAllowed": 0})],
            "1 of 3 pods healthy, 2 needed",
            id="not ready, the budget is not healthy",
        ),
        pytest.param(
            not_ready(),
            [pdb().merge(status={"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0})],
            "allows no disruption",
            id="not ready, and the budget requires no healthy pod",
        ),
    ],
)
def test_ledger_refuses_eviction_as_the_api_server_would(asked, budgets, words):
    refusal = ledger(*(each.build() for each in budgets)).refusal(asked.build())
    assert refusal is not None
    assert refusal.reason == DISRUPTION_BUDGET
    assert words in refusal.message


def test_empty_selector_matches_all_and_nil_selector_matches_none():
    nothing = PodDisruptionBudget(namespace="shop", name="nil", selector=None)
    everything = PodDisruptionBudget(namespace="shop", name="all", selector=LabelSelector())
    assert ledger(nothing, everything).matching(web().build()) == (everything,)


def test_taken_disruptions_are_not_available_again(golden: Golden):
    book = ledger(pdb().allowing(1).build())
    book.take(web("web-1").build())
    refusal = book.refusal(web("web-2").build())
    assert refusal is not None
    golden(refusal.message)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(web().phase("Pending"), id="pending"),
        pytest.param(not_ready(), id="not ready"),
        pytest.param(web("gone"), id="counted by the controller already"),
    ],
)
def test_evictions_without_cost_take_no_disruption(asked):
    book = ledger(pdb().disrupted("gone").build())
    book.take(asked.build())
    assert book.refusal(web("web-2").build()) is None


@pytest.mark.parametrize("phase", ["", "Running", "Unknown"])
def test_pod_without_ready_condition_counts_as_healthy(phase):
    requested = msgspec.structs.replace(web().build(), phase=phase, ready=False)
    assert ledger(pdb().allowing(0).build()).refusal(requested) is not None


@given(
    allowed=st.lists(st.integers(-1, 5), min_size=1, max_size=4),
    asked=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40),
)
def test_budget_never_grants_more_than_allowed(allowed, asked):
    apps = [f"app-{number}" for number in range(len(allowed))]
    budgets = [
        budget(app, namespace="shop").selecting(app=app).allowing(number).build()
        for app, number in zip(apps, allowed, strict=True)
    ]
    book = BudgetLedger(Snapshot(budgets))
    granted = dict.fromkeys(apps, 0)
    for number, (which, healthy) in enumerate(asked):
        app = apps[which % len(apps)]
        builder = pod(f"p-{number}", namespace="shop").labels(app=app).on("n1").ready()
        judged = (builder if healthy else builder.condition("Ready", "False")).build()
        if book.refusal(judged) is None:
            book.take(judged)
            granted[app] += healthy
    for app, number in zip(apps, allowed, strict=True):
        assert granted[app] <= max(0, number)


def test_labels_of_deleted_pods_are_not_kept() -> None:
    snapshot = Snapshot([pdb().build()])
    book = BudgetLedger(snapshot)
    labels = web().build().labels
    alone = sys.getrefcount(labels)
    book.matching(msgspec.structs.replace(web().build(), labels=labels))
    assert sys.getrefcount(labels) > alone
    snapshot.forget_removed()
    assert sys.getrefcount(labels) == alone
