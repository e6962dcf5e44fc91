"""Plans that know what autoscalers, administrators and taints are about to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import NodeBuilder, PodBuilder, node
from tests.fixtures.golden import Golden
from tests.unit.cluster import worlds as small
from tests.unit.descheduling.planning import (
    DUPLICATES,
    NOW,
    UTILIZATION,
    ago,
    kept,
    life_time,
    messages,
    moves,
    node_taints,
    packing,
    plan,
    utilization,
    web,
)
from tests.unit.descheduling.test_invariants import policies
from trimtab.api.reasons import DESTINATION_UNNEEDED, DISRUPTION_UNDERWAY, NO_PLACE, TAINT_DEADLINE
from trimtab.cluster.disruption_signals import (
    MAINTENANCE_CONDITIONS,
    TAINT_DEADLINE_HORIZON,
    UNNEEDED_SINCE,
    pending_termination,
    removal_signal,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning import planner
from trimtab.descheduling.planning.context import StrategyContext
from trimtab.disruption.outcome import Refusal
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Taint

CPU = utilization({"cpu": 20}, {"cpu": 50})
CANDIDATE = "DeletionCandidateOfClusterAutoscaler"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"


def unneeded(name: str) -> NodeBuilder:
    return node(name).annotations({UNNEEDED_SINCE: ago(300)})


def candidate(name: str) -> NodeBuilder:
    return node(name).taint(CANDIDATE, str(int(NOW) - 300), "PreferNoSchedule")


def two_on(name: str) -> list[PodBuilder]:
    return [web("a", name), web("b", name)]


# --- destinations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", [unneeded, candidate], ids=["annotation", "taint"])
def test_unneeded_node_is_target_of_last_resort(marked: Callable[[str], NodeBuilder]) -> None:
    assert moves(plan([node("n1"), marked("n2"), node("n3"), *two_on("n1")], {DUPLICATES: {}})) == [("a", "n1", "n3")]


@pytest.mark.parametrize("marked", [unneeded, candidate], ids=["annotation", "taint"])
def test_unneeded_node_is_used_if_no_other_fits(marked: Callable[[str], NodeBuilder]) -> None:
    objects = [node("n1"), marked("n2"), node("n3").allocatable(pods=0), *two_on("n1")]
    assert moves(plan(objects, {DUPLICATES: {}})) == [("a", "n1", "n2")]


def test_unneeded_nodes_come_after_lower_ranks() -> None:
    objects = [node("n1"), unneeded("n2"), node("n3"), *(web(name, "n1") for name in "abcde"), web("f", "n3")]
    assert [target for _, _, target in moves(plan(objects, {DUPLICATES: {}}))] == ["n3", "n2", "n2"]


def test_a_cordoned_node_comes_last_for_pods_that_tolerate_it() -> None:
    pods = [each.tolerates("node.kubernetes.io/unschedulable") for each in two_on("n1")]
    assert moves(plan([node("n1"), node("n2").cordoned(), node("n3"), *pods], {DUPLICATES: {}})) == [("a", "n1", "n3")]
    assert moves(plan([node("n1"), node("n2").cordoned(), *pods], {DUPLICATES: {}})) == [("a", "n1", "n2")]


@pytest.mark.parametrize(
    ("key", "value"),
    [(TO_BE_DELETED, ""), ("karpenter.sh/disrupted", ""), ("karpenter.sh/disruption", "disrupting")],
)
def test_a_node_that_is_being_removed_is_never_a_destination(key: str, value: str) -> None:
    objects = [node("n1"), node("n2").taint(key, value), *(each.tolerates() for each in two_on("n1"))]
    found = plan(objects, {DUPLICATES: {}})
    assert moves(found) == []


@pytest.mark.parametrize("announced", sorted(MAINTENANCE_CONDITIONS))
@pytest.mark.parametrize(("status", "expected"), [("True", []), ("False", [("a", "n1", "n2")])])
def test_node_whose_maintenance_is_announced_is_no_destination(
    announced: str, status: str, expected: list[tuple[str, str, str]]
) -> None:
    objects = [node("n1"), node("n2").condition(announced, status), *two_on("n1")]
    assert moves(plan(objects, {DUPLICATES: {}})) == expected


def test_nodes_that_karpenter_drains_are_left_to_karpenter() -> None:
    objects = [node("n1").taint("karpenter.sh/disrupted").taint("other"), node("n2"), web("a", "n1")]
    assert moves(plan(objects, node_taints())) == []


def test_restarted_pod_leaves_unneeded_node() -> None:
    objects = [unneeded("n1"), node("n2").allocatable(cpu="2"), web("a", "n1").cpu("1").created(ago(1000))]
    assert moves(plan(objects, life_time(100))) == [("a", "n1", "n2")]


def test_emptied_nodes_merge_onto_nodes_that_stay() -> None:
    def big(builder: NodeBuilder) -> NodeBuilder:
        return builder.allocatable(cpu="10", pods=10)

    objects = [
        *(big(each) for each in (node("n1"), unneeded("n2"), node("n3"))),
        *(web(name, on, owner=name).cpu("1") for name, on in (("a", "n1"), ("b", "n2"), ("c", "n3"))),
    ]
    assert moves(plan(objects, packing({"cpu": 20}))) == [("a", "n1", "n3"), ("b", "n2", "n3")]


# --- LowNodeUtilization ---------------------------------------------------------------------------------------------


def busy(name: str, number: int = 7) -> list[Any]:
    return [node(name).allocatable(cpu="10", pods=20), *(web(f"p{i}", name, owner=f"p{i}").cpu("1") for i in range(7))]


@pytest.mark.parametrize("marked", [unneeded, candidate], ids=["annotation", "taint"])
def test_low_node_utilization_reports_unneeded_targets(
    marked: Callable[[str], NodeBuilder],
    golden: Golden,
) -> None:
    found = plan([*busy("n1"), marked("n2").allocatable(cpu="10", pods=20)], CPU)
    assert moves(found) == []
    assert kept(found)["n2"] == DESTINATION_UNNEEDED
    assert "cpu 0%, threshold 20%" in messages(found)["n2"]
    assert removal_signal(marked("n2").build()) in messages(found)["n2"]
    golden(messages(found)["n1"])


def test_low_node_utilization_fills_the_others() -> None:
    spare = [each.allocatable(cpu="10", pods=20) for each in (unneeded("n2"), node("n3"))]
    found = plan([*busy("n1"), *spare], CPU)
    assert moves(found) == [("p0", "n1", "n3"), ("p1", "n1", "n3")]
    assert kept(found)["n2"] == DESTINATION_UNNEEDED


def test_unneeded_nodes_are_not_reported_without_overutilization() -> None:
    found = plan([node("n1"), unneeded("n2"), web("a", "n1")], CPU)
    assert (found.actions, found.kept) == ((), ())


# --- deadlines ------------------------------------------------------------------------------------------------------


def doomed(name: str) -> NodeBuilder:
    return node(name).taint("maintenance", effect="NoExecute", added=ago(100))


@pytest.mark.parametrize(
    ("seconds", "moved"),
    [(300, False), (int(TAINT_DEADLINE_HORIZON) + 101, True), (None, True)],
    ids=["soon", "not soon", "without limit"],
)
def test_pod_with_expiring_toleration_is_not_moved(seconds: int | None, moved: bool) -> None:
    pods = [each.tolerates("maintenance", seconds=seconds) for each in two_on("n1")]
    found = plan([doomed("n1"), node("n2"), *pods], {DUPLICATES: {}})
    assert moves(found) == ([("a", "n1", "n2")] if moved else [])
    assert kept(found) == ({} if moved else {"a": TAINT_DEADLINE, "b": TAINT_DEADLINE})


def test_the_taint_manager_and_a_strategy_do_not_both_evict_from_a_tainted_node() -> None:
    objects = [doomed("n1").taint("other"), node("n2"), web("a", "n1").tolerates("maintenance", seconds=200)]
    assert kept(plan(objects, node_taints())) == {"a": TAINT_DEADLINE}


def test_temporarily_tolerated_node_is_no_target(golden: Golden) -> None:
    pods = [each.tolerates("maintenance", seconds=60) for each in two_on("n1")]
    found = plan([node("n1"), doomed("n2"), *pods], {DUPLICATES: {}})
    assert moves(found) == []
    assert kept(found) == {"a": NO_PLACE, "b": NO_PLACE}
    golden(messages(found)["a"])


def test_low_node_utilization_avoids_temporarily_tolerated_nodes() -> None:
    n1, *pods = busy("n1")
    pods = [each.tolerates("maintenance", seconds=60) for each in pods]
    spare = [each.allocatable(cpu="10", pods=20) for each in (doomed("n2"), node("n3"))]
    assert {target for _, _, target in moves(plan([n1, *spare, *pods], CPU))} == {"n3"}
    assert moves(plan([n1, spare[0], *pods], CPU)) == []


def test_pod_with_disruption_target_is_not_moved() -> None:
    a, b = two_on("n1")
    a.condition("DisruptionTarget", "True", reason="PreemptionByScheduler", since=ago(5))
    found = plan([node("n1"), node("n2"), a, b], {DUPLICATES: {}})
    assert moves(found) == [("b", "n1", "n2")]
    assert kept(found) == {"a": DISRUPTION_UNDERWAY}


# --- invariants -----------------------------------------------------------------------------------------------------

SIGNS: tuple[Callable[[Node], Node], ...] = (
    lambda each: each,
    lambda each: each,
    lambda each: replace(each, annotations=Labels({UNNEEDED_SINCE: ago(60)})),
    lambda each: replace(each, taints=(*each.taints, Taint(CANDIDATE, "PreferNoSchedule", "1"))),
    lambda each: replace(each, taints=(*each.taints, Taint(TO_BE_DELETED, "NoSchedule", "1"))),
    lambda each: replace(each, taints=(*each.taints, Taint("dedicated", "NoExecute", "", NOW - 5))),
    lambda each: replace(each, unschedulable=True),
)
worlds = partial(small.worlds, nodes_least=3, pods_least=8, pods_most=24)


@st.composite
def marked_worlds(draw: st.DrawFn) -> list[Any]:
    return [draw(st.sampled_from(SIGNS))(each) if isinstance(each, Node) else each for each in draw(worlds())]


@contextmanager
def every_search_watched() -> Iterator[None]:
    """Whenever a node is chosen that is about to be removed, no other one may take the pod."""
    find = StrategyContext.find_node

    def watched(self: StrategyContext, pod: Any, wish: Any, *more: Any) -> int | Refusal:
        found = find(self, pod, wish, *more)
        leaving = self.scope.being_removed
        if leaving is not None and not isinstance(found, Refusal) and leaving[found]:
            staying = find(self, pod, replace(wish, nodes=wish.nodes & ~leaving), *more)
            assert isinstance(staying, Refusal), "another node takes the pod"
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StrategyContext, "find_node", watched)
        yield


@given(marked_worlds(), policies())
def test_every_plan_respects_disruption_signals(world: list[Any], policy: Any) -> None:
    with every_search_watched():
        made = planner.plan_evictions(Snapshot(world), [policy], now=NOW)
    nodes = {each.name: each for each in world if isinstance(each, Node)}
    pods = {each.key: each for each in world if hasattr(each, "phase")}
    for action in made.actions:
        if not action.target:
            continue
        assert pending_termination(pods[action.key], nodes[action.node], now=NOW) is None
        target = nodes[action.target]
        assert not any(taint.key == TO_BE_DELETED for taint in target.taints)
        if target.name != action.node:
            assert not (action.strategy == UTILIZATION and removal_signal(target))
