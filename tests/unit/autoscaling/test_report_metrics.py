"""The autoscaler's metrics, trimtab's own and upstream's, with a bounded number of series."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.unit.autoscaling.iteration_reports import (
    NOW,
    full_size,
    group,
    grown,
    id_of,
    in_trouble,
    kept_node,
    kept_pod,
    plan,
    removal,
    removed,
    report,
    scale_up,
    waiting,
)
from tests.unit.autoscaling.scale_down_plans import group as machine_set
from tests.unit.autoscaling.scale_down_plans import planned, workers
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.plan import Plan
from trimtab.autoscaling.actuation.removal import RemovalResult
from trimtab.autoscaling.cluster_state.readiness import ClusterHealth, Readiness
from trimtab.autoscaling.cluster_state.state import AutoscalerState, GroupFinding
from trimtab.autoscaling.groups import GroupMachine, MachineState, ObjectProblem
from trimtab.autoscaling.providers.outcome import ScaleFailure
from trimtab.autoscaling.report.iteration_report import IterationReport
from trimtab.autoscaling.report.metrics import AutoscalerMetrics, CompatibleMetrics
from trimtab.autoscaling.report.status import group_statuses
from trimtab.autoscaling.report.status_config_map import upstream_status

OURS, THEIRS = "trimtab_autoscaler_", "cluster_autoscaler_"


class Counted:
    """Both sets of metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.ours = AutoscalerMetrics(self.registry)
        self.theirs = CompatibleMetrics(self.registry)

    def observe(self, made: IterationReport, **spec: Any) -> None:
        self.ours.observe(made)
        self.theirs.observe(made, msgspec.convert(spec, ClusterAutoscalerSpec))

    def __call__(self, name: str) -> dict[tuple[str, ...], float]:
        """The samples by the values of their labels, in the order of the labels' names."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name
        }


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.mark.parametrize(
    ("more", "result", "well"),
    [
        pytest.param({}, "Completed", 1, id="completed"),
        pytest.param({"error": "boom"}, "IterationFailed", 1, id="failed"),
        pytest.param({"health": ClusterHealth(cluster="ill")}, "ClusterUnhealthy", 0, id="unhealthy"),
    ],
)
def test_iterations_are_counted_by_result(counted: Counted, more: dict[str, Any], result: str, well: int) -> None:
    counted.observe(report(group(), phases={"plan": 0.2, "Dreaming": 1.0}, **more))
    assert counted(f"{OURS}passes_total") == {("Act", result): 1}
    assert counted(f"{OURS}pass_seconds_sum") == {(): 0.25}
    assert counted(f"{OURS}plan_seconds_count") == {("plan",): 1, ("Other",): 1}
    assert counted(f"{OURS}cluster_healthy") == {(): well}
    assert counted(f"{OURS}last_iteration_timestamp_seconds") == {(): NOW + 0.25}
    assert counted(f"{THEIRS}cluster_safe_to_autoscale") == {(): float(result == "Completed")}


def test_failed_iteration_keeps_the_last_values(counted: Counted) -> None:
    counted.observe(report(group(), plan=plan(kept=(kept_pod("shop/a"), kept_node("a-0")))))
    observed = {
        name: counted(name)
        for name in (
            f"{OURS}pending_pods",
            f"{OURS}kept_nodes",
            f"{OURS}group_target_nodes",
            f"{THEIRS}nodes_count",
            f"{THEIRS}cluster_cpu_current_cores",
        )
    }
    assert all(observed.values())
    counted.observe(report(finished=NOW + 9, error="boom"))
    assert {name: counted(name) for name in observed} == observed
    assert counted(f"{THEIRS}last_activity") == {
        ("main",): NOW + 9,
        ("scaleUp",): NOW + 0.25,
        ("scaleDown",): NOW + 0.25,
    }
    assert counted(f"{THEIRS}errors_total") == {("internalError",): 1}


def test_pods_and_nodes_are_counted_by_reason(counted: Counted) -> None:
    kept = (
        kept_pod("shop/a"),
        kept_pod("shop/b", "FitsOnNode"),
        kept_pod("shop/c", "NotUnschedulable"),
        kept_node("a-0", "DelayAfterAdd"),
        kept_node("a-1", "SomebodyElsesCode"),
    )
    counted.observe(
        report(
            group(),
            plan=plan(scale_up(pods=("shop/x", "shop/y")), kept=kept),
            readiness={"a-0": Readiness.READY, "a-1": Readiness.STARTING},
            state=AutoscalerState(unneeded={"a-0": NOW}),
            removals={"a-1": removal("a-1")},
            problems=[ObjectProblem("MachineAutoscaler", "m", "x", "TargetNotFound", "")],
        )
    )
    assert counted(f"{OURS}pending_pods") == {
        ("PendingPods",): 2,
        ("MaxSizeReached",): 1,
        ("FitsOnNode",): 1,
        ("NotUnschedulable",): 1,
    }
    assert counted(f"{OURS}nodes") == {("Ready",): 1, ("Unready",): 0, ("Starting",): 1, ("Going",): 0}
    assert counted(f"{OURS}kept_nodes") == {("DelayAfterAdd",): 1, ("Other",): 1}
    assert (counted(f"{OURS}unneeded_nodes"), counted(f"{OURS}removing_nodes")) == ({(): 1}, {(): 1})
    assert counted(f"{OURS}invalid_objects") == {("TargetNotFound",): 1}
    assert counted(f"{THEIRS}unschedulable_pods_count") == {("unschedulable",): 4}
    assert counted(f"{THEIRS}unremovable_nodes_count") == {("DelayAfterAdd",): 1, ("Other",): 1}
    assert counted(f"{THEIRS}scale_down_in_cooldown") == {(): 1}
    assert counted(f"{THEIRS}nodes_count")["ready",] == 1
    assert counted(f"{THEIRS}nodes_count")["notStarted",] == 1


def test_series_of_deleted_groups_are_removed(counted: Counted) -> None:
    memory = AutoscalerState(groups={id_of("a"): in_trouble()})
    health = ClusterHealth(groups={id_of("b"): "ill"})
    counted.observe(report(group("a", most=7), group("b", target=5), state=memory, health=health))
    a, b = (id_of("a"),), (id_of("b"),)
    for name, values in {
        "min_nodes": {a: 0, b: 0},
        "max_nodes": {a: 7, b: 9},
        "target_nodes": {a: 2, b: 5},
        "ready_nodes": {a: 2, b: 2},
        "backoff": {a: 1, b: 0},
        "healthy": {a: 1, b: 0},
    }.items():
        assert counted(f"{OURS}group_{name}") == values
    assert counted(f"{THEIRS}node_group_target_count") == {a: 2, b: 5}
    assert counted(f"{THEIRS}node_group_backoff_status") == {(*a, "Other"): 1}

    counted.observe(report(group("b")))
    assert counted(f"{OURS}group_target_nodes") == {b: 2}
    assert counted(f"{OURS}group_backoff") == {b: 0}
    assert counted(f"{THEIRS}node_group_backoff_status") == {}
    assert counted(f"{OURS}groups") == {(): 1}


def test_scale_ups_and_pending_times_are_counted(counted: Counted) -> None:
    action = scale_up(before=2, after=5, pods=("shop/a", "shop/b", "shop/c"))
    counted.observe(
        report(
            group(),
            scale_up_outcomes=[
                grown(action, at=NOW + 0.5, calls=2),
                grown(scale_up(), failure=ScaleFailure.TIMED_OUT, calls=3),
            ],
            pending_pods={**waiting("shop/a", since=NOW - 1), **waiting("shop/b", since=None)},
            findings=[
                GroupFinding(id_of("a"), reasons.SCALE_UP_TIMED_OUT, "", 1, failure=True),
                GroupFinding(id_of("a"), reasons.SCALE_UP_COMPLETED, "", 1),
            ],
        )
    )
    assert counted(f"{OURS}scaled_up_nodes_total") == {("PendingPods",): 3}
    assert counted(f"{OURS}failed_scale_ups_total") == {("ScaleTimedOut",): 1, ("ScaleUpTimedOut",): 1}
    assert counted(f"{OURS}scaling_requests_total") == {("up",): 5}
    assert counted(f"{OURS}pending_to_request_seconds_sum") == {(): 1.5}
    assert counted(f"{OURS}pending_to_request_seconds_count") == {(): 1}
    assert counted(f"{THEIRS}scaled_up_nodes_total") == {(): 3}
    assert counted(f"{THEIRS}failed_scale_ups_total") == {("apiCallError",): 1, ("timeout",): 1}


def test_removals_are_counted_by_result(counted: Counted) -> None:
    counted.observe(
        report(
            group(),
            removal_outcomes=[
                removed(why="Empty", calls=1.5, evicted={"shop/a": "1", "shop/b": "2"}),
                removed("a-1", result=RemovalResult.FAILED, reason="NotEnoughPdb", calls=4.0, evicted={"shop/c": "3"}),
            ],
        )
    )
    assert counted(f"{OURS}scaled_down_nodes_total") == {("Empty",): 1}
    assert counted(f"{OURS}failed_scale_downs_total") == {("NotEnoughPdb", "Failed"): 1}
    assert counted(f"{OURS}evicted_pods_total") == {(): 3}
    assert counted(f"{OURS}scaling_requests_total") == {("down",): 5.5}
    assert counted(f"{OURS}removal_seconds_sum") == {(): 40}
    assert counted(f"{THEIRS}scaled_down_nodes_total") == {("empty",): 1}


def test_cluster_limits_have_upstreams_units(counted: Counted) -> None:
    counted.observe(report(group()), resourceLimits={"maxNodesTotal": 24, "memory": {"min": 4, "max": 256}})
    assert counted(f"{THEIRS}max_nodes_count") == {(): 24}
    assert counted(f"{THEIRS}cluster_cpu_current_cores") == {(): 8}
    assert counted(f"{THEIRS}cpu_limits_cores") == {("minimum",): 0, ("maximum",): 320_000}
    assert counted(f"{THEIRS}memory_limits_bytes") == {("minimum",): 4 << 30, ("maximum",): 256 << 30}


@pytest.mark.parametrize(
    ("reason", "label"),
    [("MaxCoresReached", "CpuResourceLimit"), ("MaxMemoryReached", "MemoryResourceLimit")],
)
def test_skipped_scale_up_is_counted_once_per_iteration(counted: Counted, reason: str, label: str) -> None:
    made = report(group(), plan=plan(kept=(kept_pod("shop/a", reason), kept_pod("shop/b", reason))))
    for _ in range(2):
        counted.observe(made)
    skipped = counted(f"{THEIRS}skipped_scale_events_count")
    assert skipped.pop(("up", label)) == 2
    assert list(skipped.values()) == [0, 0, 0]


@pytest.mark.parametrize(
    ("limits", "label"),
    [
        ({"cores": {"min": 7, "max": 99}}, "CpuResourceLimit"),
        ({"memory": {"min": 31, "max": 99}}, "MemoryResourceLimit"),
        ({"gpus": [{"type": "nvidia.com/gpu", "min": 5, "max": 9}]}, None),
    ],
    ids=["cores", "memory", "gpus"],
)
def test_skipped_scale_down_is_counted_from_the_planner_message(
    counted: Counted, limits: dict[str, Any], label: str | None
) -> None:
    of = machine_set(size=2)
    pairs = workers(2, of)
    for made, _ in pairs:
        made.allocatable({"nvidia.com/gpu": 2})
    kept = planned(of, pairs, resourceLimits=limits).kept
    assert "MinimalResourceLimitExceeded" in {each.reason for each in kept}
    counted.observe(report(group(), plan=Plan(now=NOW, kept=kept, scaling=())))
    skipped = counted(f"{THEIRS}skipped_scale_events_count")
    assert {labels: number for labels, number in skipped.items() if number} == ({("down", label): 1} if label else {})


def test_metrics_of_openshifts_alerts_exist(counted: Counted) -> None:
    counted.observe(report(group(), plan=plan(kept=(kept_pod("shop/a", "MaxCoresReached"),))))
    text = generate_latest(counted.registry).decode()
    for series in (
        'cluster_autoscaler_unschedulable_pods_count{type="unschedulable"} 1.0',
        "cluster_autoscaler_cluster_safe_to_autoscale 1.0",
        'cluster_autoscaler_skipped_scale_events_count{direction="up",reason="CpuResourceLimit"} 1.0',
    ):
        assert f"\n{series}\n" in text


def test_number_of_series_is_bounded(counted: Counted) -> None:
    made = full_size(number=520, words="x")
    counted.observe(made)
    samples = [sample for family in counted.registry.collect() for sample in family.samples]
    assert len(samples) < 500 * 12 + 500
    labels = {value for sample in samples for value in sample.labels.values()}
    assert labels.isdisjoint({*made.groups.of_node, *made.pending_pods})
    assert len(counted(f"{OURS}group_target_nodes")) == 500


def test_upcoming_nodes_are_the_same_in_status_config_map_and_metrics(counted: Counted) -> None:
    """One machine has no node, the node of another starts, and that of a third starts and is not linked to it yet."""
    machines = (
        GroupMachine("m", "1", MachineState.RUNNING, node="n1"),
        GroupMachine("m", "2", MachineState.RUNNING, node="n2"),
        GroupMachine("m", "3", MachineState.UNCONFIRMED, unconfirmed_node="n3"),
        GroupMachine("m", "4", MachineState.PENDING),
    )
    states = {"n1": Readiness.READY, "n2": Readiness.STARTING, "n3": Readiness.STARTING, "other": Readiness.READY}
    made = report(group(target=4, machines=machines), readiness=states)
    counted.observe(made)
    ((status,), _) = group_statuses(made, budget=100_000)
    document = upstream_status(made, None)
    (of_group,) = document.node_groups
    assert document.cluster_wide is not None

    ours = counted(f"{THEIRS}nodes_count")
    counts = [document.cluster_wide.health.node_counts, of_group.health.node_counts]
    assert status.upcoming == 3
    assert [each.unregistered + each.registered.not_started for each in counts] == [3, 3]
    assert ours["unregistered",] + ours["notStarted",] == 3
