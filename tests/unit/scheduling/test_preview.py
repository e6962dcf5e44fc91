"""What `trimtab plan` reports for a SchedulerPolicy: bindings, preemptions, and pods that it would place elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from trimtab.api import reasons
from trimtab.api.base import ObjectMeta
from trimtab.api.plan import Bind, Kept, Preempt
from trimtab.api.scheduler_policy import SchedulerPolicy, SchedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.scheduling.preview import STRATEGY, SchedulingPlan, plan_scheduling


def policy(scheduler: str, **spec: Any) -> SchedulerPolicy:
    made = msgspec.convert({"schedulerName": scheduler, **spec}, SchedulerPolicySpec)
    return SchedulerPolicy(metadata=ObjectMeta(name=f"{scheduler}-policy"), spec=made)


PACKING = policy(
    "packing",
    profile={
        "scoringStrategy": {"type": "MostAllocated"},
        "scores": [{"name": "NodeResourcesBalancedAllocation", "weight": 0}],
    },
)
SPREADING = policy("spreading")


def sized(name: str) -> Any:
    return node(name).merge(status={"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}})


def of(scheduler: str, name: str, cpu: str = "1", priority: int = 0) -> Any:
    made = pod(name).cpu(cpu).priority(priority).labels(app=name)
    return made.merge(metadata={"uid": f"uid-{name}"}, spec={"schedulerName": scheduler})


def planned(*things: Any, policies: tuple[SchedulerPolicy, ...] = (PACKING, SPREADING)) -> SchedulingPlan:
    snapshot = Snapshot([each.build() for each in things])
    with snapshot.fork():
        return plan_scheduling(snapshot, policies)


def test_no_pod_of_the_schedulers_is_no_action() -> None:
    assert planned(sized("n1"), of("other", "p"), of("other", "q").on("n1")) == SchedulingPlan((), ())


def test_pending_pods_are_bound_by_priority_with_the_profile_of_their_policy(golden: Golden) -> None:
    busy = of("other", "busy").on("n1")
    plan = planned(sized("n1"), sized("n2"), busy, of("packing", "low"), of("spreading", "high", "2", 5))
    assert plan.kept == ()
    high, low = plan.actions
    assert high == Bind("spreading-policy", "shop", "high", "n2", reasons.SCHEDULED, high.message, "uid-high")
    assert low == Bind("packing-policy", "shop", "low", "n2", reasons.SCHEDULED, low.message, "uid-low")
    golden(f"{high.message}\n{low.message}")


def test_pod_that_fits_nowhere_is_kept_with_the_reason() -> None:
    plan = planned(sized("n1"), of("packing", "large", "9"))
    assert plan.actions == ()
    [kept] = plan.kept
    assert (kept.kind, kept.name, kept.strategy, kept.reason) == ("Pod", "large", STRATEGY, reasons.UNSCHEDULABLE)
    assert (kept.policy, kept.node) == ("packing-policy", "")
    assert kept.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_victims_are_preempted_and_the_preemptor_is_nominated(golden: Golden) -> None:
    victims = [of("other", "v1", "2").on("n1"), of("other", "v2", "2", 3).on("n1")]
    plan = planned(sized("n1"), *victims, of("packing", "urgent", "4", 9))
    assert len(plan.actions) == 2
    for name, action in zip(("v2", "v1"), plan.actions, strict=True):
        assert action == Preempt(
            "packing-policy",
            "shop",
            name,
            "n1",
            "shop/urgent",
            reasons.PREEMPTED,
            action.message,
            f"uid-{name}",
        )
        golden(action.message, name)
    [kept] = plan.kept
    assert (kept.name, kept.reason, kept.node) == ("urgent", reasons.NOMINATED, "n1")


def test_nominated_pod_is_planned_before_older_pods_of_its_priority() -> None:
    nominated = of("packing", "nominated", "4", 9).created("2026-01-01T00:00:09Z")
    nominated.merge(status={"nominatedNodeName": "n1"})
    older = of("packing", "older", "4", 9).created("2026-01-01T00:00:01Z")
    plan = planned(sized("n1"), nominated, older)
    [bind] = plan.actions
    assert isinstance(bind, Bind)
    assert (bind.pod, bind.node) == ("nominated", "n1")
    assert [each.name for each in plan.kept] == ["older"]

    plan = planned(sized("n1"), sized("n2"), of("other", "busy", "1", 20).on("n1"), nominated, older)
    [bind] = plan.actions
    assert isinstance(bind, Bind)
    assert (bind.pod, bind.node) == ("nominated", "n2"), "the nominated pod is also first if its node is taken"


@pytest.mark.parametrize(
    ("state", "scheduler"),
    [
        ({"metadata": {"deletionTimestamp": "2026-11-22T00:00:00Z"}}, "packing"),
        ({"status": {"phase": "Succeeded"}}, "packing"),
        ({}, "other"),
        ({"spec": {"nodeName": "removed"}}, "packing"),
    ],
)
def test_pods_that_the_policy_does_not_place_are_not_evaluated(state: dict[str, Any], scheduler: str) -> None:
    alone = of(scheduler, "alone").on("n1").merge(**state)
    leaving = of(scheduler, "leaving").merge(**{key: value for key, value in state.items() if key != "spec"})
    things = [sized("n1"), sized("n2"), of("other", "busy").on("n2"), alone]
    if state and "spec" not in state:
        things.append(leaving)
    assert planned(*things) == SchedulingPlan((), ())


def elsewhere(plan: SchedulingPlan) -> Kept:
    assert plan.actions == ()
    [kept] = plan.kept
    assert (kept.name, kept.reason, kept.policy) == ("web", reasons.OTHER_NODE_PREFERRED, "packing-policy")
    return kept


def test_running_pod_on_the_best_node_is_not_reported() -> None:
    busy = of("other", "busy").on("n1")
    assert planned(sized("n1"), sized("n2"), busy, of("packing", "web").on("n1")).kept == ()


def test_running_pod_is_reported_if_another_node_scores_higher() -> None:
    kept = elsewhere(planned(sized("n1"), sized("n2"), of("other", "busy").on("n2"), of("packing", "web").on("n1")))
    assert kept.node == "n1"
    higher, lower = (int(part.rsplit(" ", 1)[1]) for part in kept.message.split(", "))
    assert kept.message == f"n2 scores {higher}, n1 scores {lower}"
    assert higher > lower >= 0


def test_running_pod_whose_node_is_not_feasible_any_more_is_reported(golden: Golden) -> None:
    kept = elsewhere(planned(sized("n1").taint("maintenance"), sized("n2"), of("packing", "web").on("n1")))
    assert kept.node == "n1"
    golden(kept.message)


def test_running_pod_that_fits_nowhere_any_more_is_reported_with_the_reasons() -> None:
    kept = elsewhere(planned(sized("n1").taint("maintenance"), of("packing", "web").on("n1")))
    assert kept.message.startswith("0/1 nodes are available: 1 node(s) had untolerated taint(s).")


def test_evaluating_running_pods_moves_none_of_them() -> None:
    there = [of("packing", f"web-{number}").on(f"n{number}") for number in (1, 2)]
    snapshot = Snapshot([each.build() for each in (sized("n1"), sized("n2"), *there)])
    with snapshot.fork():
        plan_scheduling(snapshot, [PACKING])
        assert {key: each.node for key, each in snapshot.pods.items()} == {"shop/web-1": "n1", "shop/web-2": "n2"}
