"""Plans respect the state of earlier iterations: upcoming nodes, backoff, health and minimum sizes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_down_plans import LONG_AGO, flat, web, worker, workers
from tests.unit.autoscaling.scale_up_helpers import NOW, group, pending_pod, pending_pods
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import Plan, RemoveNode, ScaleUp
from trimtab.autoscaling.cluster_state import (
    AutoscalerState,
    GroupError,
    GroupRecord,
    OpenScaleUp,
    inputs_from_status,
    status_with_state,
)
from trimtab.autoscaling.planner import PlanReservations, plan
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.snapshot import Snapshot

A, B = "MachineSet/openshift-machine-api/a", "MachineSet/openshift-machine-api/b"


def planned(*parts: Any, state: AutoscalerState | None = None, **spec: Any) -> tuple[Plan, PlanReservations]:
    """The plan of a new process, with the state from the status."""
    snapshot = Snapshot([builder.build() for builder in flat(parts)])
    status = status_with_state(state) if state is not None else ClusterAutoscalerStatus()
    inputs = PlanInputs(msgspec.convert(spec, ClusterAutoscalerSpec), NOW, status=status)
    return plan(snapshot, inputs_from_status(snapshot, inputs))


def grows(made: Plan) -> dict[str, tuple[int, int, str]]:
    return {
        each.group.rpartition("/")[2]: (each.from_, each.to, each.reason)
        for each in made.scaling or ()
        if isinstance(each, ScaleUp)
    }


def kept(made: Plan) -> dict[str, tuple[str, str]]:
    return {each.name: (each.reason, each.message) for each in made.kept}


def open_since(seconds: float, before: int, to: int, **more: Any) -> AutoscalerState:
    one = OpenScaleUp(before, to, NOW - seconds, NOW - seconds + 900, **more)
    return AutoscalerState(scale_ups={A: (one,)}, targets={A: to})


def test_pods_wait_for_upcoming_nodes(golden: Golden) -> None:
    made, _ = planned(group("a", size=1), pending_pod("web-1"), state=open_since(60, 0, 1))

    assert grows(made) == {}
    assert kept(made)["web-1"][0] == "FitsOnUpcomingNode"
    golden(kept(made)["web-1"][1])


def test_pods_of_late_nodes_are_planned_on_another_group_in_the_same_iteration() -> None:
    made, _ = planned(group("a", size=1), group("b"), pending_pod("web-1"), state=open_since(900, 0, 1))

    assert grows(made) == {"b": (0, 1, "PendingPods")}


def test_pods_of_a_failed_machine_are_planned_on_another_group_in_the_same_iteration() -> None:
    one = group("a", size=1)
    failed = one.machine("a-1").failed()

    made, _ = planned(one, failed, group("b"), pending_pod("web-1"), state=open_since(60, 0, 1))

    assert grows(made) == {"b": (0, 1, "PendingPods")}


def test_backoff_is_reported_if_no_other_group_fits(golden: Golden) -> None:
    one = group("a", size=1)
    failed = one.machine("a-1").failed()

    made, _ = planned(one, failed, pending_pod("web-1"), state=open_since(60, 0, 1))

    reason, message = kept(made)["web-1"]
    assert reason == "GroupBacksOff"
    golden(message)
    golden(message, "2")


def test_request_that_the_target_does_not_show_counts() -> None:
    made, _ = planned(group("a"), pending_pod("web-1"), state=open_since(5, 0, 1, doubt=True))

    assert grows(made) == {}
    assert kept(made)["web-1"][0] == "FitsOnUpcomingNode"


def test_pods_that_do_not_fit_wait_for_the_next_iteration() -> None:
    made, _ = planned(group("a"), pending_pods(5, cpu="1"), state=open_since(5, 0, 1, doubt=True))

    assert grows(made) == {}
    assert sorted(reason for reason, _ in kept(made).values()) == ["FitsOnUpcomingNode"] * 4 + ["ScaleUpNotSeen"]


def test_limits_hold_even_if_given_up_nodes_join(golden: Golden) -> None:
    parts = (group("a", size=1), group("b"), pending_pod("web-1"))

    made, _ = planned(*parts, state=open_since(900, 0, 1), resourceLimits={"maxNodesTotal": 1})

    assert grows(made) == {}
    golden(kept(made)["web-1"][1])


def joining(of: Any, *, created: str, bare: bool = False) -> list[Any]:
    """A node that has joined and is not ready, and its machine; a bare node has reported no capacity."""
    builder = node("new").not_ready(since=created).taint("node.kubernetes.io/not-ready")
    builder._manifest["metadata"]["creationTimestamp"] = created
    if bare:
        builder._manifest["status"].update(allocatable={}, capacity={})
    return [builder, of.machine("m-new").on("new")]


@pytest.mark.parametrize("bare", [False, True], ids=["capacity reported", "capacity not reported yet"])
def test_joined_node_takes_its_pods(bare: bool) -> None:
    one = group("a", size=1)
    made, _ = planned(one, joining(one, created="2026-11-20T11:59:00Z", bare=bare), pending_pod("web-1"))

    assert grows(made) == {}
    assert kept(made)["web-1"][0] == "FitsOnUpcomingNode"


def unlinked(of: Any) -> list[Any]:
    """A node that has joined and is not ready, and its machine, which its API has not linked to the node yet."""
    builder, _ = joining(of, created="2026-11-20T11:59:00Z")
    return [builder.provider_id("x://1"), of.machine("m-new").provider_id("x://1")]


@pytest.mark.parametrize("linked", [False, True])
def test_joined_node_counts_once_toward_the_limits(linked: bool) -> None:
    one = group("a", size=2)
    new = joining(one, created="2026-11-20T11:59:00Z") if linked else unlinked(one)
    parts = (one, worker("n1", one), new, pending_pods(3, cpu="3"))

    made, _ = planned(*parts, resourceLimits={"maxNodesTotal": 3})

    assert grows(made) == {"a": (2, 3, "PendingPods")}


def test_limits_hold_even_if_given_up_nodes_join_next_to_an_unlinked_one() -> None:
    one = group("a", size=2)
    state = AutoscalerState(groups={A: GroupRecord(given_up=1)}, targets={A: 2})

    made, _ = planned(one, unlinked(one), pending_pods(2, cpu="3"), state=state, resourceLimits={"maxNodesTotal": 2})

    assert grows(made) == {}
    assert sorted(kept(made)[name][0] for name in ("web-0", "web-1")) == [
        "FitsOnUpcomingNode",
        "MaxNodesTotalReached",
    ]


def test_node_that_is_not_ready_in_time_takes_no_pods() -> None:
    one = group("a", size=1)
    made, _ = planned(one, joining(one, created="2026-11-20T11:40:00Z"), pending_pod("web-1"))

    assert grows(made) == {"a": (1, 2, "PendingPods")}


def least(name: str, minimum: int, size: int = 0, **more: Any) -> Any:
    return group(name, size=size, **more).limits(minimum, 9)


class TestMinimum:
    def test_groups_are_raised_to_their_minimum_if_enabled(self, golden: Golden) -> None:
        parts = (least("a", 3, size=1), least("b", 2, size=2))

        assert grows(planned(*parts)[0]) == {}
        made, _ = planned(*parts, enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"a": (1, 3, "BelowMinimum")}
        [action] = made.scaling or ()
        golden(action.message)

    def test_pods_are_placed_on_those_nodes_first(self) -> None:
        made, _ = planned(least("a", 2), pending_pods(6, cpu="1"), enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"a": (0, 2, "BelowMinimum")}
        assert {reason for reason, _ in kept(made).values()} == {"FitsOnUpcomingNode"}

    def test_nodes_for_pods_are_added_on_top(self, golden: Golden) -> None:
        made, _ = planned(least("a", 1), pending_pods(6, cpu="1"), enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"a": (0, 2, "PendingPods")}
        [action] = made.scaling or ()
        assert isinstance(action, ScaleUp)
        assert len(action.pods) == 2
        golden(action.message)

    @pytest.mark.parametrize(
        ("limits", "sizes", "reason"),
        [
            ({"maxNodesTotal": 2}, {"a": (0, 2, "BelowMinimum")}, "MaxNodesTotalReached"),
            ({"cores": {"min": 0, "max": 11}}, {"a": (0, 2, "BelowMinimum")}, "MaxCoresReached"),
            ({"memory": {"min": 0, "max": 16}}, {"a": (0, 1, "BelowMinimum")}, "MaxMemoryReached"),
            ({"maxNodesTotal": 4}, {"a": (0, 3, "BelowMinimum"), "b": (0, 1, "BelowMinimum")}, "MaxNodesTotalReached"),
        ],
        ids=["nodes", "cores", "memory", "the first group by id"],
    )
    def test_cluster_limits_are_respected(self, limits: Any, sizes: Any, reason: str, golden: Golden) -> None:
        made, _ = planned(least("a", 3), least("b", 3), enforceNodeGroupMinSize="Enabled", resourceLimits=limits)

        assert grows(made) == sizes
        assert kept(made)["b"][0] == reason
        golden(kept(made)["b"][1])

    def test_group_in_backoff_is_not_raised(self) -> None:
        state = AutoscalerState(groups={A: GroupRecord(1, NOW + 60, GroupError(NOW - 240, "ScaleRefused", "no"))})
        made, _ = planned(least("a", 3), state=state, enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {}
        assert kept(made)["a"][0] == "GroupBacksOff"

    def test_group_without_template_is_raised_unless_limits_count_its_resources(self) -> None:
        unknown = group("a").limits(2, 9).annotations({"machine.openshift.io/vCPU": "?"})
        bare = _without_capacity(unknown)

        assert grows(planned(bare, enforceNodeGroupMinSize="Enabled")[0]) == {"a": (0, 2, "BelowMinimum")}
        limits = {"cores": {"min": 0, "max": 100}}
        made, _ = planned(bare, enforceNodeGroupMinSize="Enabled", resourceLimits=limits)
        assert grows(made) == {}

    def test_plan_that_raises_a_group_removes_no_node(self) -> None:
        idle = group("a", size=3)
        made, _ = planned(idle, workers(3, idle), least("b", 1), enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"b": (0, 1, "BelowMinimum")}
        assert not [each for each in made.scaling or () if isinstance(each, RemoveNode)]


@pytest.mark.parametrize("reason", ["ScaleUnreachable", "ScaleTimedOut", "ScaleRefused"])
def test_backoff_after_a_failed_scale_up_does_not_pause_scale_down(reason: str) -> None:
    state = AutoscalerState(groups={A: GroupRecord(2, NOW + 600, GroupError(NOW - 60, reason, "HTTP status 503"))})
    one = group("a", size=3)

    made, _ = planned(one, workers(3, one), web("web-1", "n1"), state=state)

    assert {each.node for each in made.scaling or () if isinstance(each, RemoveNode)}
    assert "GroupUnhealthy" not in {reason for reason, _ in kept(made).values()}


def _without_capacity(builder: Any) -> Any:
    annotations = builder._manifest["metadata"]["annotations"]
    for key in [key for key in annotations if "capacity." in key or key.endswith(("/vCPU", "/memoryMb"))]:
        del annotations[key]
    return builder


def sick(number: int, of: Any, *, first: int = 1) -> list[Any]:
    """Nodes that have been unready for a long time."""
    made = []
    for each in range(first, first + number):
        name = f"sick-{each}"
        builder = node(name).not_ready(since=LONG_AGO).taint("node.kubernetes.io/not-ready")
        builder._manifest["metadata"]["creationTimestamp"] = LONG_AGO
        made += [builder, of.machine(f"m-{name}").on(name)]
    return made


class TestUnhealthy:
    def test_unhealthy_cluster_is_not_scaled_and_keeps_its_state(self, golden: Golden) -> None:
        one = group("a", size=7)
        parts = (one, workers(2, one), sick(5, one), pending_pods(9, cpu="1"))

        made, promises = planned(*parts)

        assert not made.scaling
        reasons = {reason for reason, _ in kept(made).values()}
        assert reasons == {"FitsOnNode", "ClusterUnhealthy"}
        golden(kept(made)["n1"][1])
        assert set(promises.removals.unneeded) == {"n1", "n2"}

    def test_unhealthy_group_is_not_scaled_and_others_are(self, golden: Golden) -> None:
        one, other = group("a", size=6), group("b", size=9)
        well = workers(9, other)
        parts = (one, worker("w", one), sick(5, one), other, well, web("web-1", "n9"))

        made, promises = planned(*parts)

        removed = {each.node for each in made.scaling or () if isinstance(each, RemoveNode)}
        assert removed
        assert removed <= {f"n{each}" for each in range(1, 10)}
        reason, message = kept(made)["w"]
        assert reason == "GroupUnhealthy"
        golden(message)
        assert "w" in promises.removals.unneeded

    def test_unhealthy_group_is_not_scaled_up(self) -> None:
        one, other = group("a", size=5), group("b", size=12, cpu="1")
        parts = (one, sick(5, one), other, workers(12, other), pending_pods(1, cpu="4"))

        full = [web(f"full-{each}", f"n{each}", cpu="3500m") for each in range(1, 13)]
        made, _ = planned(*parts, full)

        assert grows(made) == {}
        assert kept(made)["web-0"][0] == "GroupUnhealthy"
