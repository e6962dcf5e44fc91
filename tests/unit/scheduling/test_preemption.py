"""Preemption: victims, reprieve, budgets and the choice of the node, as in kube-scheduler v1.36."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import budget, node, pod
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.scheduling.preemption import (
    NO_VICTIMS,
    NOT_HELPFUL,
    POLICY_NEVER,
    TERMINATING,
    NoPreemption,
    Preemption,
    PreemptionPlanner,
)


def sized(name: str, cpu: str = "4") -> Any:
    return node(name).merge(status={"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "10"}})


def placed(name: str, on: str, cpu: str = "1", priority: int = 0, started: int = 0) -> Any:
    made = pod(name).on(on).cpu(cpu).priority(priority).labels(app=name)
    return made.merge(status={"startTime": f"2026-01-01T00:00:{started:02}Z"})


def high(cpu: str = "1", priority: int = 100) -> Any:
    return pod("preemptor").cpu(cpu).priority(priority)


def planner(*things: Any) -> PreemptionPlanner:
    snapshot = Snapshot([each.build() for each in things])
    return PreemptionPlanner(snapshot, Placer(snapshot))


def planned(candidate: Any, *things: Any) -> tuple[str, list[str]]:
    """The node and the names of the victims."""
    found = planner(*things).plan(candidate.build())
    assert isinstance(found, Preemption), found
    return found.node, [victim.name for victim in found.victims]


def refused(candidate: Any, *things: Any) -> str:
    found = planner(*things).plan(candidate.build())
    assert isinstance(found, NoPreemption), found
    return found.message


class TestVictims:
    def test_as_few_as_needed_and_the_least_important(self) -> None:
        pods = [placed("a", "n", "2", 10), placed("b", "n", "1", 5), placed("c", "n", "1", 1)]
        assert planned(high("1"), sized("n"), *pods) == ("n", ["c"])
        assert planned(high("2"), sized("n"), *pods) == ("n", ["b", "c"])

    def test_of_equal_priority_the_one_that_started_last_is_removed(self) -> None:
        pods = [placed("old", "n", "2", started=1), placed("new", "n", "2", started=9)]
        assert planned(high("2"), sized("n"), *pods) == ("n", ["new"])

    def test_pods_of_equal_or_higher_priority_stay(self) -> None:
        pods = [placed("a", "n", "4", 100)]
        assert refused(high("1"), sized("n"), *pods).endswith(f"1 {NO_VICTIMS}.")

    def test_large_pod_that_need_not_go_is_reprieved_before_a_small_one(self) -> None:
        pods = [placed("large", "n", "3", 2), placed("small", "n", "1", 1)]
        assert planned(high("1"), sized("n"), *pods) == ("n", ["small"])

    def test_pods_whose_budget_is_exhausted_are_reprieved_first(self) -> None:
        pods = [placed("guarded", "n", "2", 1), placed("free", "n", "2", 2)]
        guard = budget("guard").selecting(app="guarded").allowing(0)
        assert planned(high("2"), sized("n"), *pods, guard) == ("n", ["free"])

    def test_budget_is_violated_where_nothing_else_helps(self) -> None:
        guard = budget("guard").selecting(app="guarded").allowing(0)
        found = planner(sized("n"), placed("guarded", "n", "4"), guard).plan(high("1").build())
        assert isinstance(found, Preemption)
        assert found.violations == 1

    def test_anti_affinity_of_a_pod_of_lower_priority(self) -> None:
        rival = pod("rival").on("n").labels(app="web").anti_affinity().priority(1)
        candidate = pod("preemptor").labels(app="web").priority(100)
        assert planned(candidate, sized("n"), rival, placed("other", "n", "1")) == ("n", ["rival"])

    def test_host_port_of_a_pod_of_lower_priority(self) -> None:
        def with_port(made: Any) -> Any:
            return made.merge(spec={"containers": [{"name": "c", "ports": [{"hostPort": 80, "containerPort": 80}]}]})

        rival = with_port(pod("rival").on("n").priority(1))
        assert planned(with_port(pod("preemptor").priority(5)), sized("n"), rival) == ("n", ["rival"])

    def test_number_of_pods_on_the_node(self) -> None:
        pods = [placed(f"p{number}", "n", "100m", priority=number) for number in range(10)]
        assert planned(high("100m"), sized("n"), *pods) == ("n", ["p0"])


class TestNode:
    def test_fewest_violations_of_budgets(self) -> None:
        guard = budget("guard").selecting(app="guarded").allowing(0)
        pods = [placed("guarded", "a", "4", 0), placed("free", "b", "4", 50)]
        assert planned(high("4"), sized("a"), sized("b"), *pods, guard)[0] == "b"

    def test_lowest_highest_priority(self) -> None:
        pods = [placed("a", "a", "4", 2), placed("b1", "b", "2", 1), placed("b2", "b", "2", 1)]
        assert planned(high("4"), sized("a"), sized("b"), *pods)[0] == "b"

    def test_lowest_sum_of_priorities(self) -> None:
        pods = [
            placed("a1", "a", "2", 5),
            placed("a2", "a", "2", 4),
            placed("b1", "b", "2", 5),
            placed("b2", "b", "2", 1),
        ]
        assert planned(high("4"), sized("a"), sized("b"), *pods)[0] == "b"

    def test_fewest_victims(self) -> None:
        pods = [placed("a1", "a", "2", -1), placed("a2", "a", "2", -1), placed("b", "b", "4", -1)]
        assert planned(high("4"), sized("a"), sized("b"), *pods)[0] == "b"

    def test_latest_start(self) -> None:
        pods = [placed("a", "a", "4", started=1), placed("b", "b", "4", started=2)]
        assert planned(high("4"), sized("a"), sized("b"), *pods)[0] == "b"

    def test_tie_is_broken_by_the_uid_of_the_preemptor(self) -> None:
        pods = [placed("a", "a", "4"), placed("b", "b", "4")]
        for number in range(8):
            candidate = high("4").uid(f"uid-{number}")
            assert planned(candidate, sized("b"), sized("a"), *pods) == planned(
                candidate, sized("a"), sized("b"), *pods
            )
        assert {planned(high("4").uid(f"uid-{n}"), sized("a"), sized("b"), *pods)[0] for n in range(8)} == {"a", "b"}

    def test_nodes_that_fail_for_other_reasons_are_no_candidates(self) -> None:
        pods = [placed("a", "a", "4"), placed("b", "b", "4", 50)]
        assert planned(high("4"), sized("a").taint("x"), sized("b"), *pods)[0] == "b"
        message = refused(high("4"), sized("a").taint("x"), placed("a", "a", "4"))
        assert message == f"0/1 nodes are available: 1 {NOT_HELPFUL}."

    def test_node_that_is_too_small_is_not_helpful(self) -> None:
        message = refused(high("8"), sized("a"), placed("a", "a", "4"))
        assert message == f"0/1 nodes are available: 1 {NOT_HELPFUL}."

    def test_nodes_that_stay_too_small_without_pods_of_lower_priority_show_the_reasons_of_the_filter(self) -> None:
        higher, low = placed("higher", "a", "3", 500), placed("low", "a", "1")
        things = [sized("a"), higher, low, sized("b"), placed("equal", "b", "4", 100), sized("c", "1")]
        message = refused(high("2"), *things)
        assert message == f"0/3 nodes are available: 1 Insufficient cpu, 1 {NO_VICTIMS}, 1 {NOT_HELPFUL}."
        rival = placed("rival", "a", "2", 500).labels(app="web")
        candidate = high("2").labels(app="web").anti_affinity()
        assert refused(candidate, sized("a"), rival, placed("low", "a", "2")) == (
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
        )


class TestSearch:
    """Not all nodes are examined: at least 100, and 10 % of the nodes on which preemption may help."""

    @staticmethod
    def full(number: int, *, tainted: int = 0) -> tuple[Snapshot, list[Pod]]:
        """Return a snapshot of full nodes, and their pods in the order in which the nodes are examined."""
        nodes = [sized(f"n{each:04}").build() for each in range(number)]
        nodes += [sized(f"n{each:04}").taint("x").build() for each in range(number, number + tainted)]
        pods = [placed(f"low-{each:04}", f"n{each:04}", "4", 50).build() for each in range(number)]
        snapshot = Snapshot([*nodes, *pods])
        found = PreemptionPlanner(snapshot, Placer(snapshot)).plan(high("4").build())
        assert isinstance(found, Preemption)
        start = pods.index(found.victims[0])  # all nodes have the same rank
        return snapshot, [*pods[start:], *pods[:start]]

    @pytest.mark.parametrize(("number", "tainted", "examined"), [(60, 0, 60), (300, 0, 100), (1300, 700, 130)])
    def test_search_ends_after_enough_candidates(self, number: int, tainted: int, examined: int) -> None:
        snapshot, pods = self.full(number, tainted=tainted)
        cheap = placed("cheap", "n", "4", 1).build().spec
        for place, victim in ((examined - 1, examined - 1), (examined, 0)):
            with snapshot.fork():
                if place < number:
                    snapshot.put(replace(pods[place], spec=cheap))
                found = PreemptionPlanner(snapshot, Placer(snapshot)).plan(high("4").build())
            assert isinstance(found, Preemption)
            assert found.victims[0].key == pods[victim].key

    def test_search_goes_on_until_a_candidate_violates_no_budget(self) -> None:
        snapshot, pods = self.full(300)
        snapshot.put(budget().selecting(app="guarded").allowing(0).build())
        labels = placed("guarded", "n").build().labels
        for each in pods[:150]:
            snapshot.put(replace(each, labels=labels))
        found = PreemptionPlanner(snapshot, Placer(snapshot)).plan(high("4").build())
        assert isinstance(found, Preemption)
        assert (found.victims, found.violations) == ((pods[150],), 0)

    def test_room_that_victims_of_the_batch_leave_is_used_before_others_are_removed(self) -> None:
        snapshot, _ = self.full(300)
        made = PreemptionPlanner(snapshot, Placer(snapshot))
        victims = 0
        with snapshot.fork():
            for number in range(40):
                found = made.plan(high("1").uid(f"uid-{number}").merge(metadata={"name": f"high-{number}"}).build())
                assert isinstance(found, Preemption)
                victims += len(found.victims)
                made.reserve(found)
        assert victims == 10, "each victim leaves room for four preemptors"

    def test_cycles_start_at_different_nodes(self) -> None:
        nodes = [sized(f"n{each}") for each in range(100)]
        made = planner(*nodes, *(placed(f"low-{each}", f"n{each}", "1") for each in range(100)))
        found = []
        for each in range(100):
            made.start_cycle(BudgetLedger(made._snapshot))
            found.append(made.plan(high("4").uid(f"uid-{each}").build()))
        assert len({each.node for each in found if isinstance(each, Preemption)}) > 50

    def test_equal_preemptors_of_a_cycle_use_the_same_candidates(self, monkeypatch: pytest.MonkeyPatch) -> None:
        snapshot, _ = self.full(300)
        snapshot.put(budget("all").selecting().allowing(40).build())
        examined = count_examined(monkeypatch)
        made = PreemptionPlanner(snapshot, Placer(snapshot))
        with snapshot.fork():
            for number in range(30):
                found = made.plan(high("4").uid(f"uid-{number}").merge(metadata={"name": f"high-{number}"}).build())
                assert isinstance(found, Preemption)
                assert (len(found.victims), found.violations) == (1, 0)
                made.reserve(found)
        assert len(examined) <= 100 + 2 * 30, "each further preemptor examines few nodes"

    def test_changed_budget_concerns_only_the_nodes_of_its_pods(self, monkeypatch: pytest.MonkeyPatch) -> None:
        snapshot, pods = self.full(100)
        guard = budget("guard").selecting(app=pods[7].labels["app"]).allowing(1).build()
        snapshot.put(guard)
        examined = count_examined(monkeypatch)
        made = PreemptionPlanner(snapshot, Placer(snapshot))
        made.plan(high("4").build())
        for changed, nodes in (
            (replace(guard, disruptions_allowed=2), []),
            (replace(guard, disruptions_allowed=0), [pods[7].node]),
            (replace(guard, disruptions_allowed=0, disrupted_pods=(pods[7].name,)), [pods[7].node]),
            (guard, [pods[7].node]),
        ):
            examined.clear()
            snapshot.put(changed)
            made.start_cycle(BudgetLedger(snapshot))
            made.plan(high("4").build())
            assert examined == nodes


def count_examined(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of each node that a planner examines is added."""
    examined: list[str] = []
    examine = PreemptionPlanner._examine

    def counted(self: PreemptionPlanner, pod: Pod, slot: int) -> Any:
        examined.append(self._snapshot.nodes.node(slot).name)
        return examine(self, pod, slot)

    monkeypatch.setattr(PreemptionPlanner, "_examine", counted)
    return examined


class TestEligibility:
    def test_preemption_policy_never(self) -> None:
        candidate = high("4").merge(spec={"preemptionPolicy": "Never"})
        assert refused(candidate, sized("n"), placed("a", "n", "4")) == POLICY_NEVER

    def test_victims_that_terminate_are_waited_for(self) -> None:
        candidate = high("4").merge(status={"nominatedNodeName": "n"})
        assert refused(candidate, sized("n"), placed("a", "n", "4").deleted()) == TERMINATING
        assert planned(candidate, sized("n"), placed("a", "n", "4")) == ("n", ["a"])

    def test_terminating_pods_that_make_too_little_room_are_not_waited_for(self) -> None:
        """For example, a pod that a user deleted, after a pod of higher priority has taken the place."""
        candidate = high("2").merge(status={"nominatedNodeName": "n"})
        deleted = placed("deleted", "n", "1").deleted()
        things = [sized("n"), sized("m"), placed("higher", "n", "3", 500), deleted, placed("low", "m", "4")]
        assert planned(candidate, *things) == ("m", ["low"])
        things = [sized("n"), placed("higher", "n", "2", 500), deleted, placed("low", "n", "1")]
        assert planned(candidate, *things) == ("n", ["low"])

    def test_terminating_pods_are_waited_for_if_filters_pass_once_they_have_ended(self) -> None:
        candidate = high().labels(app="web").anti_affinity().merge(status={"nominatedNodeName": "n"})
        rival, other = (placed(name, "n").labels(app=app) for name, app in (("rival", "web"), ("other", "db")))
        assert refused(candidate, sized("n"), rival.deleted(), other) == TERMINATING
        rival, other = (placed(name, "n").labels(app=app) for name, app in (("rival", "web"), ("other", "db")))
        assert planned(candidate, sized("n"), rival, other.deleted()) == ("n", ["rival"])

    def test_node_whose_pods_terminate_for_long_is_the_last_choice(self) -> None:
        day = placed("day", "a", "4").deleted().grace_period(86400)
        nodes = [sized("a"), sized("b")]
        assert planned(high("4"), *nodes, day, placed("low", "b", "4", 50)) == ("b", ["low"])
        assert planned(high("4"), *nodes, day) == ("a", [])
        part = [placed("day", "a", "2").deleted().grace_period(86400), placed("low", "a", "2")]
        assert planned(high("2"), sized("a"), *part) == ("a", ["low"])
        waiting = high("4").merge(status={"nominatedNodeName": "a"})
        assert refused(waiting, *nodes, day, placed("low", "b", "4", 50)) == TERMINATING

    def test_pods_that_terminate_already_are_no_victims(self) -> None:
        assert planned(high("4"), sized("n"), placed("a", "n", "4").deleted()) == ("n", [])
        pods = [placed("ending", "n", "2").deleted(), placed("b", "n", "2")]
        assert planned(high("2"), sized("n"), *pods) == ("n", [])
        assert planned(high("4"), sized("n"), *pods) == ("n", ["b"])

    def test_nominated_node_that_became_unusable_is_not_waited_for(self) -> None:
        candidate = high("4").merge(status={"nominatedNodeName": "n"})
        things = [sized("n").taint("x"), sized("m"), placed("a", "n", "4").deleted(), placed("b", "m", "4")]
        assert planned(candidate, *things) == ("m", ["b"])


class TestBatch:
    def test_no_pod_is_a_victim_twice_and_no_victim_is_in_vain(self) -> None:
        nodes = [sized(f"n{number}") for number in range(3)]
        pods = [placed(f"p{number}{each}", f"n{number}", "2") for number in range(3) for each in range(2)]
        made = planner(*nodes, *pods)
        victims: list[str] = []
        with made._snapshot.fork():
            for number in range(6):
                found = made.plan(pod(f"high-{number}").cpu("2").priority(9).build())
                assert isinstance(found, Preemption)
                victims += [each.name for each in found.victims]
                made.reserve(found)
            assert isinstance(made.plan(pod("last").cpu("2").priority(9).build()), NoPreemption)
        assert sorted(victims) == sorted(each.build().name for each in pods)

    def test_allowance_of_a_budget_is_used_up_by_the_batch(self) -> None:
        guard = budget("guard").selecting(tier="guarded").allowing(1)
        pods = [placed(f"g{n}", f"n{n}", "4").labels(tier="guarded") for n in range(2)]
        made = planner(sized("n0"), sized("n1"), sized("n2"), *pods, placed("free", "n2", "4", 50), guard)
        with made._snapshot.fork():
            nodes = []
            for number in range(3):
                found = made.plan(pod(f"high-{number}").cpu("4").priority(99).build())
                assert isinstance(found, Preemption)
                made.reserve(found)
                nodes.append((found.node, found.violations))
        assert nodes == [("n0", 0), ("n2", 0), ("n1", 1)]


def brute_force(snapshot: Snapshot, candidate: Pod) -> set[str]:
    """The nodes on which the pod fits once all pods of lower priority are gone."""
    found = set()
    for name in snapshot.nodes.slot_of:
        with snapshot.fork():
            lower = [each for each in snapshot.pods_on(name) if each.priority < candidate.priority]
            for each in lower:
                snapshot.remove(each)
            fits = Placer(snapshot).feasible(candidate)[snapshot.nodes.slot_of[name]]
        if fits and lower:
            found.add(name)
    return found


pods_on_nodes = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 3), st.booleans(), st.integers(0, 9)), max_size=10
)


@settings(deadline=None)
@given(pods_on_nodes, st.integers(1, 4), st.booleans())
def test_plan_is_minimal_and_leaves_room_for_the_pod(
    things: list[tuple[int, int, int, bool, int]], cpu: int, anti: bool
) -> None:
    nodes = [sized(f"n{number}").build() for number in range(4)]
    pods = [
        placed(f"p{number}", f"n{on}", str(size), priority, started).labels(app="web" if web else "other").build()
        for number, (on, size, priority, web, started) in enumerate(things)
    ]
    snapshot = Snapshot([*nodes, *pods])
    builder = pod("preemptor").cpu(str(cpu)).priority(2).labels(app="web")
    candidate = (builder.anti_affinity() if anti else builder).build()
    placer = Placer(snapshot)
    found = PreemptionPlanner(snapshot, placer).plan(candidate)
    possible = brute_force(snapshot, candidate)
    if isinstance(found, NoPreemption):
        assert not possible
        return
    assert found.node in possible
    assert all(victim.priority < candidate.priority for victim in found.victims)
    with snapshot.fork():
        for victim in found.victims:
            snapshot.remove(victim)
        assert placer.feasible(candidate)[found.slot]
        for victim in found.victims:
            snapshot.put(victim)
            assert not placer.feasible(candidate)[found.slot], "the victim need not have gone"
            snapshot.remove(victim)


def test_candidates_are_kept_only_for_existing_preemptors() -> None:
    nodes = [sized(f"n{number}", cpu="1").build() for number in range(5)]
    snapshot = Snapshot([*nodes, *(placed(f"p{number}", f"n{number}").build() for number in range(5))])
    planner = PreemptionPlanner(snapshot, Placer(snapshot))
    staying, gone = (high(priority=priority).build() for priority in (1, 2))
    snapshot.put(staying)
    for each in (staying, gone):
        assert isinstance(planner.plan(each), Preemption)
    snapshot.remove(snapshot.pods["shop/p3"])

    snapshot.forget_removed()

    [kept] = planner._kept.values()
    found = [each.name for candidate in kept.by_slot.values() for each in candidate.ended]  # type: ignore[union-attr]
    assert sorted(found) == ["p0", "p1", "p2", "p4"]


@pytest.mark.parametrize("anti", [False, True])
def test_planner_that_is_kept_plans_as_a_new_one(anti: bool) -> None:
    nodes = [sized(f"n{number}").build() for number in range(5)]
    pods = [placed(f"p{number}", f"n{number % 5}", "1", number % 3, number).build() for number in range(20)]
    snapshot = Snapshot([*nodes, *pods])
    placer = Placer(snapshot)
    kept = PreemptionPlanner(snapshot, placer)
    with snapshot.fork():
        for number in range(8):
            builder = pod(f"high-{number}").cpu("1").priority(5).labels(app="web")
            candidate = (builder.anti_affinity() if anti else builder).build()
            found = kept.plan(candidate)
            assert found == PreemptionPlanner(snapshot, Placer(snapshot)).plan(candidate)
            if isinstance(found, Preemption):
                kept.reserve(found)
