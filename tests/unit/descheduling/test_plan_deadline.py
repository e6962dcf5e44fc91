"""The descheduler's plan when its time runs short: other namespaces are served, and what is skipped is reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, node, pod
from tests.fakes.slow_namespace import SlowNamespace
from tests.unit.descheduling.planning import DUPLICATES, anti_affinity, built, nodes, policy, web
from trimtab.api import reasons
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning import planner
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

NOW = 1_795_176_000.0
LATE = reasons.PLAN_DEADLINE_EXCEEDED


def plan(things: list[Any], strategies: dict[str, Any], budget: PlanBudget) -> Plan:
    return planner.plan_evictions(Snapshot(built(things)), [policy(strategies)], now=NOW, budget=budget)


def duplicates(number: int) -> list[Any]:
    """Pairs of pods of one owner on one node: in namespace ``tenant`` many, whose names come first, in ``shop`` two."""
    owners = [f"a{each}" for each in range(number)]
    pairs = [web(f"{owner}-{twin}", "n1", owner=owner, namespace="tenant") for owner in owners for twin in "xy"]
    return [*nodes("n1", "n2"), *pairs, web("z-1", "n1", owner="z"), web("z-2", "n1", owner="z")]


def test_other_namespaces_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    made = plan(duplicates(30), {DUPLICATES: {}}, PlanBudget(10.0, time))
    assert {action.namespace for action in made.actions} == {"tenant", "shop"}
    late = [each for each in made.kept if each.reason == LATE]
    assert late
    assert {each.namespace for each in late} == {"tenant"}
    assert time.now <= 10.0 + 2.0


def test_no_pod_is_evaluated_after_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    budget = PlanBudget(10.0, time)
    time.now = 11.0
    made = plan(duplicates(30), {DUPLICATES: {}}, budget)
    assert made.actions == ()
    assert time.judged.total() == 0
    assert {each.reason for each in made.kept} == {LATE}


def test_deadline_evicts_no_substitutes(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    budget = PlanBudget(10.0, time)
    apart = {"labelSelector": {"matchLabels": {"app": "web"}}}
    pods = [pod(name, "tenant").labels(app="web").on("n1").owned_by("ReplicaSet", name).ready() for name in ("h", "h2")]
    pods[0].anti_affinity(HOSTNAME, **apart)
    objects = [*nodes("n1", "n2"), node("n3"), *pods]
    assert len(plan(objects, anti_affinity(), UNLIMITED).actions) == 1
    with budget.charged("tenant"):
        time.now = 6.0
    made = plan(objects, anti_affinity(), budget)
    assert made.actions == ()
    assert LATE in {each.reason for each in made.kept}


def test_unreached_deadline_has_no_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    strategies = {DUPLICATES: {}, **anti_affinity()}
    assert plan(duplicates(9), strategies, PlanBudget(1e6, time)) == plan(duplicates(9), strategies, UNLIMITED)
