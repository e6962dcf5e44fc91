"""Planning with a deadline serves other namespaces and reports skipped pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fakes.slow_namespace import SlowNamespace
from tests.unit.autoscaling import scale_down_plans, scale_up_helpers
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_down import ScaleDownPlan
from trimtab.autoscaling.scale_down import plan as plan_scale_down
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

LATE = reasons.PLAN_DEADLINE_EXCEEDED
FULL = node("full").allocatable(cpu="100m", memory="1Gi")


def plan_scale_up(*builders: Any, budget: PlanBudget) -> ScaleUpPlan:
    snapshot = Snapshot([builder.build() for builder in builders])
    return scale_up(snapshot, PlanInputs(ClusterAutoscalerSpec(), scale_up_helpers.NOW, budget=budget))


def hostile(number: int, *, together: bool = False) -> list[Any]:
    """Pending pods, each in a class of its own, of higher priority than all others."""
    made = []
    for each in range(number):
        builder = pod(f"{'t' if together else 'h'}-{each}", "tenant").cpu(f"{each + 1}m").priority(1000).unschedulable()
        if together:
            builder.labels(app="h").affinity("zone", labelSelector={"matchLabels": {"app": "h"}})
        made.append(builder)
    return made


def others() -> list[Any]:
    return [pod(f"pay-{each}", "bank").labels(app="pay").cpu("1").unschedulable() for each in range(8)]


@pytest.mark.parametrize("together", [False, True])
def test_other_namespaces_get_their_nodes(monkeypatch: pytest.MonkeyPatch, *, together: bool) -> None:
    time = SlowNamespace(monkeypatch)
    builders = [scale_up_helpers.group(most=40), FULL, *hostile(30, together=together), *others()]
    made = plan_scale_up(*builders, budget=PlanBudget(20.0, time))
    helped = {key for action in made.actions for key in action.pods}
    assert helped >= {f"bank/pay-{each}" for each in range(8)}
    late = [each for each in made.kept if each.reason == LATE]
    assert late
    assert {each.namespace for each in late} == {"tenant"}
    assert len(helped) + len(made.kept) == 38
    assert time.now <= 20.0 + 3.0


def test_many_pods_of_equal_priority_leave_time_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch, seconds=0.05)
    builders = [scale_up_helpers.group(most=400), FULL, *hostile(400), *others()]
    made = plan_scale_up(*builders, budget=PlanBudget(10.0, time))
    assert {key for action in made.actions for key in action.pods} >= {f"bank/pay-{each}" for each in range(8)}


def test_pod_that_was_not_evaluated_gets_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pod may fit on a node that was not evaluated in time."""
    time = SlowNamespace(monkeypatch, seconds=100.0)
    first = pod("first", "tenant").cpu("1").priority(9).unschedulable()
    second = pod("second", "tenant").cpu("2").unschedulable()
    made = plan_scale_up(scale_up_helpers.group(), node("free"), first, second, budget=PlanBudget(10.0, time))
    assert scale_up_helpers.reasons(made) == {"first": reasons.FITS_ON_NODE, "second": LATE}
    assert made.actions == ()


def test_unreached_deadline_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    builders = [scale_up_helpers.group(most=40), FULL, *hostile(30), *hostile(3, together=True), *others()]
    assert plan_scale_up(*builders, budget=PlanBudget(1e6, time)) == plan_scale_up(*builders, budget=UNLIMITED)


def down(budget: PlanBudget, *parts: Any) -> ScaleDownPlan:
    snapshot = Snapshot([builder.build() for builder in scale_down_plans.flat(parts)])
    spec = msgspec.convert({"scaleDown": {"enabled": True}}, ClusterAutoscalerSpec)
    return plan_scale_down(snapshot, build_groups(snapshot), spec, now=scale_down_plans.NOW, budget=budget)


def nodes_with_hostile_pods() -> list[Any]:
    of = scale_down_plans.group(size=9)
    hostile_pods = [
        pod(f"h-{each}", "tenant")
        .on(f"n{each}")
        .cpu("100m")
        .labels(app="h", number=str(each))
        .node_selector(pool="none")
        .owned_by("ReplicaSet", "h")
        .anti_affinity("kubernetes.io/hostname", labelSelector={"matchLabels": {"app": "h"}})
        .ready()
        for each in range(1, 9)
    ]
    return [of, scale_down_plans.workers(9, of), node("spare"), hostile_pods, scale_down_plans.web("web", "n9")]


def test_nodes_without_expensive_pods_are_removed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    made = down(PlanBudget(4.0, time), nodes_with_hostile_pods())
    assert "n9" in {action.node for action in made.actions}
    late = {each.name for each in made.kept if each.reason == LATE}
    assert late
    assert late <= set(made.unneeded)  # what was recorded of them stays


def test_no_node_is_removed_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    budget = PlanBudget(1.0, time)
    time.now = 2.0
    made = down(budget, nodes_with_hostile_pods())
    assert made.actions == ()
    assert set(scale_down_plans.kept_reasons(made).values()) == {LATE, reasons.NOT_AUTOSCALED}
    assert len(made.unneeded) == 9


def test_scale_down_with_an_unreached_deadline_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    time = SlowNamespace(monkeypatch)
    assert down(PlanBudget(1e6, time), nodes_with_hostile_pods()) == down(UNLIMITED, nodes_with_hostile_pods())
