"""What is remembered has its say in plans: nothing is promised that will not come, and minimums are held."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node
from tests.unit.autoscaling.removing import LONG_AGO, flat, web, worker, workers
from tests.unit.autoscaling.scaling import NOW, group, several, waiting
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.node_removal import RemoveNode
from trimtab.api.plan import Plan, ScaleUp
from trimtab.autoscaling.memory import GroupRecord, OpenScaleUp, State, Trouble, remember, remembering
from trimtab.autoscaling.planner import Promises, plan
from trimtab.autoscaling.scale_up import Inputs
from trimtab.cluster.snapshot import Snapshot

A, B = "MachineSet/openshift-machine-api/a", "MachineSet/openshift-machine-api/b"


def planned(*parts: Any, state: State | None = None, **spec: Any) -> tuple[Plan, Promises]:
    """The plan of a pass of a new process, with what stands in the status."""
    snapshot = Snapshot([builder.build() for builder in flat(parts)])
    status = remember(state) if state is not None else ClusterAutoscalerStatus()
    inputs = Inputs(msgspec.convert(spec, ClusterAutoscalerSpec), NOW, status=status)
    return plan(snapshot, remembering(snapshot, inputs))


def grows(made: Plan) -> dict[str, tuple[int, int, str]]:
    return {
        each.group.rpartition("/")[2]: (each.from_, each.to, each.reason)
        for each in made.scaling or ()
        if isinstance(each, ScaleUp)
    }


def kept(made: Plan) -> dict[str, tuple[str, str]]:
    return {each.name: (each.reason, each.message) for each in made.kept}


def open_since(seconds: float, before: int, to: int, **more: Any) -> State:
    one = OpenScaleUp(before, to, NOW - seconds, NOW - seconds + 900, **more)
    return State(scale_ups={A: (one,)}, targets={A: to})


def test_pods_wait_for_nodes_that_are_on_their_way() -> None:
    made, _ = planned(group("a", size=1), waiting("web-1"), state=open_since(60, 0, 1))

    assert grows(made) == {}
    assert kept(made)["web-1"] == ("FitsOnUpcomingNode", f"a node that {A} is getting takes the pod")


def test_pods_of_nodes_that_did_not_come_in_time_are_planned_on_another_group_in_the_same_pass() -> None:
    made, _ = planned(group("a", size=1), group("b"), waiting("web-1"), state=open_since(900, 0, 1))

    assert grows(made) == {"b": (0, 1, "PendingPods")}


def test_pods_of_a_machine_that_failed_are_planned_on_another_group_in_the_same_pass() -> None:
    one = group("a", size=1)
    failed = one.machine("a-1").failed()

    made, _ = planned(one, failed, group("b"), waiting("web-1"), state=open_since(60, 0, 1))

    assert grows(made) == {"b": (0, 1, "PendingPods")}


def test_where_no_other_group_helps_pods_are_told_of_the_backoff() -> None:
    one = group("a", size=1)
    failed = one.machine("a-1").failed()

    made, _ = planned(one, failed, waiting("web-1"), state=open_since(60, 0, 1))

    reason, message = kept(made)["web-1"]
    assert reason == "GroupBacksOff"
    assert "(InsufficientResources: machine openshift-machine-api/a-1 failed (InsufficientResources)" in message
    assert "so nothing is asked of it until 2026-11-20T12:05:00Z" in message


def test_a_request_that_the_target_does_not_show_yet_counts() -> None:
    made, _ = planned(group("a"), waiting("web-1"), state=open_since(5, 0, 1, doubt=True))

    assert grows(made) == {}
    assert kept(made)["web-1"][0] == "FitsOnUpcomingNode"


def test_what_does_not_fit_there_waits_for_the_next_pass() -> None:
    made, _ = planned(group("a"), several(5, cpu="1"), state=open_since(5, 0, 1, doubt=True))

    assert grows(made) == {}
    assert sorted(reason for reason, _ in kept(made).values()) == ["FitsOnUpcomingNode"] * 4 + ["ScaleUpNotSeen"]


def test_limits_hold_even_if_nodes_come_that_nobody_waits_for() -> None:
    parts = (group("a", size=1), group("b"), waiting("web-1"))

    made, _ = planned(*parts, state=open_since(900, 0, 1), resourceLimits={"maxNodesTotal": 1})

    assert grows(made) == {}
    assert "b: the cluster has 1 nodes, and resourceLimits.maxNodesTotal allows 1 nodes" in kept(made)["web-1"][1]


def joining(of: Any, *, created: str, bare: bool = False) -> list[Any]:
    """A node that has joined and is not ready, and its machine; a bare one has not told what it has."""
    builder = node("new").not_ready(since=created).taint("node.kubernetes.io/not-ready")
    builder._manifest["metadata"]["creationTimestamp"] = created
    if bare:
        builder._manifest["status"].update(allocatable={}, capacity={})
    return [builder, of.machine("m-new").on("new")]


@pytest.mark.parametrize("bare", [False, True], ids=["says what it has", "does not say yet"])
def test_a_node_that_has_just_joined_takes_the_pods_that_it_is_for(bare: bool) -> None:
    one = group("a", size=1)
    made, _ = planned(one, joining(one, created="2026-11-20T11:59:00Z", bare=bare), waiting("web-1"))

    assert grows(made) == {}
    assert kept(made)["web-1"][0] == "FitsOnUpcomingNode"


def test_a_node_that_does_not_become_ready_in_time_promises_nothing() -> None:
    one = group("a", size=1)
    made, _ = planned(one, joining(one, created="2026-11-20T11:40:00Z"), waiting("web-1"))

    assert grows(made) == {"a": (1, 2, "PendingPods")}


def least(name: str, minimum: int, size: int = 0, **more: Any) -> Any:
    return group(name, size=size, **more).limits(minimum, 9)


class TestMinimum:
    def test_groups_are_raised_to_their_minimums_where_that_is_wished(self) -> None:
        parts = (least("a", 3, size=1), least("b", 2, size=2))

        assert grows(planned(*parts)[0]) == {}
        made, _ = planned(*parts, enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"a": (1, 3, "BelowMinimum")}
        [action] = made.scaling or ()
        assert action.message == "2 nodes up to its minimum of 3"

    def test_pods_have_places_there_before_more_is_asked_for(self) -> None:
        made, _ = planned(least("a", 2), several(6, cpu="1"), enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"a": (0, 2, "BelowMinimum")}
        assert {reason for reason, _ in kept(made).values()} == {"FitsOnUpcomingNode"}

    def test_what_pods_need_comes_on_top(self) -> None:
        made, _ = planned(least("a", 1), several(6, cpu="1"), enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"a": (0, 2, "PendingPods")}
        [action] = made.scaling or ()
        assert isinstance(action, ScaleUp)
        assert len(action.pods) == 2
        assert action.message == "1 node up to its minimum of 1; 1 node as its annotations say for 2 pods"

    @pytest.mark.parametrize(
        ("limits", "sizes", "reason"),
        [
            ({"maxNodesTotal": 2}, {"a": (0, 2, "BelowMinimum")}, "MaxNodesTotalReached"),
            ({"cores": {"min": 0, "max": 11}}, {"a": (0, 2, "BelowMinimum")}, "MaxCoresReached"),
            ({"memory": {"min": 0, "max": 16}}, {"a": (0, 1, "BelowMinimum")}, "MaxMemoryReached"),
            ({"maxNodesTotal": 4}, {"a": (0, 3, "BelowMinimum"), "b": (0, 1, "BelowMinimum")}, "MaxNodesTotalReached"),
        ],
        ids=["nodes", "cores", "memory", "the first by id has what is left"],
    )
    def test_limits_of_the_cluster_hold(self, limits: Any, sizes: Any, reason: str) -> None:
        made, _ = planned(least("a", 3), least("b", 3), enforceNodeGroupMinSize="Enabled", resourceLimits=limits)

        assert grows(made) == sizes
        assert kept(made)["b"][0] == reason
        assert "short of its minimum of 3" in kept(made)["b"][1]

    def test_a_group_that_backs_off_is_not_raised(self) -> None:
        state = State(groups={A: GroupRecord(1, NOW + 60, Trouble(NOW - 240, "ScaleRefused", "no"))})
        made, _ = planned(least("a", 3), state=state, enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {}
        assert kept(made)["a"][0] == "GroupBacksOff"

    def test_a_group_whose_nodes_nobody_knows_is_raised_unless_limits_count_what_they_have(self) -> None:
        unknown = group("a").limits(2, 9).annotations({"machine.openshift.io/vCPU": "?"})
        bare = _without_capacity(unknown)

        assert grows(planned(bare, enforceNodeGroupMinSize="Enabled")[0]) == {"a": (0, 2, "BelowMinimum")}
        limits = {"cores": {"min": 0, "max": 100}}
        made, _ = planned(bare, enforceNodeGroupMinSize="Enabled", resourceLimits=limits)
        assert grows(made) == {}

    def test_nothing_is_removed_by_the_plan_that_raises_a_group(self) -> None:
        idle = group("a", size=3)
        made, _ = planned(idle, workers(3, idle), least("b", 1), enforceNodeGroupMinSize="Enabled")

        assert grows(made) == {"b": (0, 1, "BelowMinimum")}
        assert not [each for each in made.scaling or () if isinstance(each, RemoveNode)]


def _without_capacity(builder: Any) -> Any:
    annotations = builder._manifest["metadata"]["annotations"]
    for key in [key for key in annotations if "capacity." in key or key.endswith(("/vCPU", "/memoryMb"))]:
        del annotations[key]
    return builder


def sick(number: int, of: Any, *, first: int = 1) -> list[Any]:
    """Nodes that have not been ready for long."""
    made = []
    for each in range(first, first + number):
        name = f"sick-{each}"
        builder = node(name).not_ready(since=LONG_AGO).taint("node.kubernetes.io/not-ready")
        builder._manifest["metadata"]["creationTimestamp"] = LONG_AGO
        made += [builder, of.machine(f"m-{name}").on(name)]
    return made


class TestUnwell:
    def test_an_unwell_cluster_is_left_as_it_is_and_forgets_nothing(self) -> None:
        one = group("a", size=7)
        parts = (one, workers(2, one), sick(5, one), several(9, cpu="1"))

        made, promises = planned(*parts)

        assert not made.scaling
        reasons = {reason for reason, _ in kept(made).values()}
        assert reasons == {"FitsOnNode", "ClusterUnhealthy"}
        assert kept(made)["n1"][1] == "5 of the 7 nodes of the cluster are not ready; 3, or 45%, may be"
        assert set(promises.removals.unneeded) == {"n1", "n2"}

    def test_an_unwell_group_is_left_as_it_is_and_others_are_not(self) -> None:
        one, other = group("a", size=6), group("b", size=9)
        well = workers(9, other)
        parts = (one, worker("w", one), sick(5, one), other, well, web("web-1", "n9"))

        made, promises = planned(*parts)

        removed = {each.node for each in made.scaling or () if isinstance(each, RemoveNode)}
        assert removed
        assert removed <= {f"n{each}" for each in range(1, 10)}
        reason, message = kept(made)["w"]
        assert (reason, message) == (
            "GroupUnhealthy",
            "MachineSet openshift-machine-api/a: 5 of the 6 nodes of the group are not ready; 3, or 45%, may be",
        )
        assert "w" in promises.removals.unneeded

    def test_an_unwell_group_does_not_grow(self) -> None:
        one, other = group("a", size=5), group("b", size=12, cpu="1")
        parts = (one, sick(5, one), other, workers(12, other), several(1, cpu="4"))

        full = [web(f"full-{each}", f"n{each}", cpu="3500m") for each in range(1, 13)]
        made, _ = planned(*parts, full)

        assert grows(made) == {}
        assert kept(made)["web-0"][0] == "GroupUnhealthy"
