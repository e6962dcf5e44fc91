"""The plan of a scheduling cycle."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, budget, expression, node, pod, pv, pvc, selector, storage_class
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT, MOST_ALLOCATED
from trimtab.scheduling.batch_preemptions import MAX_FAILURES, BatchPreemptions
from trimtab.scheduling.cycle import PlanError, plan_batch
from trimtab.scheduling.planner import Bind, CyclePlanner, Decision, Reject
from trimtab.scheduling.reservations import Reservations


def sized(name: str, cpu: str = "4") -> Any:
    return node(name).merge(status={"allocatable": {"cpu": cpu, "memory": "32Gi", "pods": "110"}})


def pending(name: str, cpu: str = "1", priority: int = 0, scheduler: str = "trimtab", nominated: str = "") -> Any:
    made = pod(name).cpu(cpu).priority(priority).merge(spec={"schedulerName": scheduler})
    return made.merge(status={"nominatedNodeName": nominated}) if nominated else made


def running(name: str, on: str, cpu: str = "1", priority: int = 0) -> Any:
    return pod(name).on(on).cpu(cpu).priority(priority)


def planned(
    batch: list[Any], *things: Any, nominated: tuple[Any, ...] = (), victims: tuple[Any, ...] = ()
) -> list[Decision]:
    snapshot = Snapshot([each.build() for each in things])
    placers = {"trimtab": Placer(snapshot, DEFAULT), "packing": Placer(snapshot, MOST_ALLOCATED)}
    with snapshot.fork():
        planner = CyclePlanner(snapshot, placers)
        built = [[each.build() for each in part] for part in (batch, nominated, victims)]
        decisions = planner.plan(*built)
    assert len(snapshot.pods) == sum(each.manifest()["kind"] == "Pod" for each in things), "the fork undoes everything"
    return decisions


def nodes_of(decisions: list[Decision]) -> list[str]:
    return [each.node if isinstance(each, Bind) else "" for each in decisions]


def test_each_pod_finds_the_places_of_those_before_it_taken() -> None:
    decisions = planned([pending(f"p{number}", "2") for number in range(5)], sized("a"), sized("b"))
    assert sorted(nodes_of(decisions)) == ["", "a", "a", "b", "b"]
    assert nodes_of(decisions)[-1] == ""


def test_profiles_share_the_places() -> None:
    busy = running("there", "a", "2")
    batch = [pending("spread", "1"), pending("packed", "1", scheduler="packing")]
    assert nodes_of(planned(batch, sized("a"), sized("b"), busy)) == ["b", "a"]


def test_scheduler_without_a_placer_is_an_error() -> None:
    with pytest.raises(KeyError):
        planned([pending("p", scheduler="other")], sized("a"))


def test_rejected_pod_says_why_and_which_filters_rejected_it() -> None:
    tainted = sized("b").taint("x")
    [found] = planned([pending("p", "8")], sized("a"), tainted)
    assert isinstance(found, Reject)
    assert found.rejected_by == {"NodeResourcesFit", "TaintToleration"}
    assert found.message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s). "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )


def test_gated_pod_is_rejected_by_its_gates_alone() -> None:
    [found] = planned([pending("p").merge(spec={"schedulingGates": [{"name": "wait"}]})], sized("a"))
    assert isinstance(found, Reject)
    assert found.rejected_by == {"SchedulingGates"}


def test_pods_of_one_class_preempt_different_victims() -> None:
    there = [running(f"low-{number}", "ab"[number % 2], "2") for number in range(4)]
    decisions = planned([pending(f"high-{number}", "2", 9) for number in range(5)], sized("a"), sized("b"), *there)
    victims = [
        victim.name
        for each in decisions
        if isinstance(each, Reject) and each.preemption is not None
        for victim in each.preemption.victims
    ]
    assert sorted(victims) == ["low-0", "low-1", "low-2", "low-3"]
    assert isinstance(decisions[-1], Reject)
    assert decisions[-1].preemption is None


def test_place_of_a_nominated_pod_is_kept_from_pods_of_its_priority_or_below() -> None:
    waiting = pending("waiting", "4", 5, nominated="a")
    assert nodes_of(planned([pending("p", "1", 5)], sized("a"), nominated=(waiting,))) == [""]
    assert nodes_of(planned([pending("p", "1", 6)], sized("a"), nominated=(waiting,))) == ["a"]


def test_nominated_pod_takes_its_node_although_another_scores_higher() -> None:
    busy = running("there", "a", "1")
    assert nodes_of(planned([pending("p", "1", 5, nominated="a")], sized("a"), sized("b"), busy)) == ["a"]
    assert nodes_of(planned([pending("p", "4", 5, nominated="a")], sized("a"), sized("b"), busy)) == ["b"]


def test_nominated_pod_that_is_being_bound_elsewhere_reserves_nothing() -> None:
    bound = running("waiting", "b", "4", 5)
    waiting = pending("waiting", "4", 5, nominated="a")
    decisions = planned([pending("p", "1", 5)], sized("a"), sized("b"), bound, nominated=(waiting,))
    assert nodes_of(decisions) == ["a"]
    decisions = planned(
        [pending("p", "4", 5), pending("q", "4", 5)], sized("a"), sized("b"), bound, nominated=(waiting,)
    )
    assert nodes_of(decisions) == ["a", ""], "the node on which it is assumed is full"


def test_nominated_pod_whose_victims_terminate_keeps_its_place_within_the_batch() -> None:
    ending = running("ending", "a", "2", 0).deleted()
    waiting = pending("waiting", "4", 5, nominated="a")
    decisions = planned([waiting, pending("p", "1", 5)], sized("a"), ending)
    assert nodes_of(decisions) == ["", ""]
    assert [isinstance(each, Reject) and each.clears_nomination for each in decisions] == [False, True]


def test_nomination_is_cleared_when_no_victim_helps_any_more() -> None:
    busy = running("there", "a", "4", 9)
    [decision] = planned([pending("p", "1", 5, nominated="a")], sized("a"), busy)
    assert isinstance(decision, Reject)
    assert decision.clears_nomination


def test_victims_of_preemptions_in_progress_are_not_selected_again() -> None:
    one, two = running("one", "a", "2", 0), running("two", "a", "2", 0)
    first = pending("first", "2", 9, nominated="a")
    [decision] = planned([pending("second", "2", 9)], sized("a"), one, two, nominated=(first,), victims=(two,))
    assert isinstance(decision, Reject)
    assert decision.preemption is not None
    assert [each.name for each in decision.preemption.victims] == ["one"]


def test_room_of_victims_is_not_bound_before_they_have_ended() -> None:
    large = running("large", "a", "4")
    decisions = planned([pending("high", "2", 9), pending("next", "2", 9), pending("low", "1", 0)], sized("a"), large)
    assert nodes_of(decisions) == ["", "", ""]
    preemptions = [each.preemption for each in decisions if isinstance(each, Reject)]
    assert [each and (each.node, [victim.name for victim in each.victims]) for each in preemptions] == [
        ("a", ["large"]),
        ("a", []),
        None,
    ]


cycles = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4), st.integers(0, 3)),
    min_size=2,
    max_size=4,
)


@settings(deadline=None)
@given(cycles)
def test_planner_that_is_kept_between_cycles_plans_as_a_new_one(rounds: list[Any]) -> None:
    there = [running(f"low-{number}", f"n{number % 3}", "1", number % 2).labels(app="web") for number in range(8)]
    snapshot = Snapshot([each.build() for each in (*(sized(f"n{number}") for number in range(3)), *there)])
    kept = CyclePlanner(snapshot, {"trimtab": Placer(snapshot, DEFAULT)})
    for turn, (wanted, change) in enumerate(rounds):
        batch = [pending(f"p{turn}-{n}", str(cpu), level).build() for n, (cpu, level) in enumerate(wanted)]
        batch.sort(key=lambda each: -each.priority)
        with snapshot.fork():
            decisions = kept.plan(batch)
        with snapshot.fork():
            assert decisions == CyclePlanner(snapshot, {"trimtab": Placer(snapshot, DEFAULT)}).plan(batch)
        for each in decisions:
            if isinstance(each, Bind):
                snapshot.put(msgspec.structs.replace(each.pod, node=each.node))
            elif each.preemption is not None:
                for victim in each.preemption.victims:
                    snapshot.put(msgspec.structs.replace(snapshot.pods[victim.key], deleted=1.0))
        left = [each for each in snapshot.pods.values() if each.node and each.deleted is None]
        if change == 1:
            snapshot.put(budget().selecting(app="web").allowing(turn).build())
        elif change == 2 and left:
            snapshot.put(msgspec.structs.replace(left[0], started=float(turn)))
        elif change == 3:
            for each in [pod for pod in snapshot.pods.values() if pod.deleted is not None]:
                snapshot.remove(each)
            snapshot.forget_removed()


def test_pods_of_one_class_that_wait_for_their_victims_share_the_reasons() -> None:
    victims = [running(f"low-{on}", on, "4").deleted() for on in "ab"]
    batch = [pending(f"high-{on}", "2", 9, nominated=on) for on in "ab"]
    decisions = planned(batch, sized("a"), sized("b"), *victims)
    assert all(isinstance(each, Reject) and each.preemption is None for each in decisions)
    assert {each.rejected_by for each in decisions if isinstance(each, Reject)} == {frozenset({"NodeResourcesFit"})}
    assert len({each.message for each in decisions if isinstance(each, Reject)}) == 1
    assert not any(each.clears_nomination for each in decisions if isinstance(each, Reject))


def preempted(decisions: list[Decision]) -> list[tuple[str, list[str]] | None]:
    """The node and the victims of each pod that preempts others."""
    found = [each.preemption if isinstance(each, Reject) else None for each in decisions]
    return [each and (each.node, [victim.name for victim in each.victims]) for each in found]


@pytest.mark.parametrize("order", [("small", "large"), ("large", "small")])
def test_nominated_pods_of_one_batch_do_not_use_the_capacity_of_each_other(order: tuple[str, str]) -> None:
    """The victim of the small pod still terminates on its node; the one of the large pod has ended."""
    there = [running("k1", "n1", "2", 50), running("k2", "n2", "3", 50), running("ending", "n2", "1").deleted()]
    things = [sized("n1"), sized("n2"), sized("n3"), *there, running("spared", "n3", "4", 1)]
    pods = {"small": pending("small", "1", 50, nominated="n2"), "large": pending("large", "2", 50, nominated="n1")}
    decisions = planned([pods[name] for name in order], *things)
    assert dict(zip(order, nodes_of(decisions), strict=True)) == {"small": "", "large": "n1"}
    assert preempted(decisions) == [None, None]


def test_nominated_pod_of_lower_priority_in_the_batch_reserves_nothing_from_higher_ones() -> None:
    batch = [pending("high", "3", 9), pending("low", "2", 5, nominated="a")]
    assert nodes_of(planned(batch, sized("a"))) == ["a", ""]


def test_reserved_volume_of_a_nominated_pod_is_released_for_its_own_decision() -> None:
    things = [storage_class("local"), pvc("data").of_class("local"), pv("disk").of_class("local").on("a")]
    waiting = pending("waiting", "1", 5, nominated="a").claim("data")
    decisions = planned([pending("other", "1", 5), waiting], sized("a"), *things)
    assert nodes_of(decisions) == ["a", "a"]
    bind = decisions[1]
    assert isinstance(bind, Bind)
    assert [each.old.key for each in bind.reserved] == ["disk"]


def test_pod_must_also_fit_without_the_nominated_pod_that_it_has_affinity_to() -> None:
    ending = running("ending", "a", "2").deleted()
    database = pending("database", "1", 9, nominated="a").labels(app="database")
    web = pending("web", "1", 5).labels(app="web").affinity(labelSelector=selector(app="database"))
    [decision] = planned([web], sized("a"), ending, nominated=(database,))
    assert isinstance(decision, Reject)
    assert decision.rejected_by == {"InterPodAffinity"}
    assert decision.preemption is None
    assert decision.message.startswith("0/1 nodes are available: 1 node(s) didn't match pod affinity rules.")
    low = running("low", "a", "3", 1)
    assert preempted(planned([web], sized("a"), low, nominated=(database,))) == [None], "it would be in vain"
    assert nodes_of(planned([web], sized("a"), ending, running("there", "a", "1").labels(app="database"))) == ["a"]
    assert nodes_of(planned([database, web], sized("a"))) == ["a", "a"], "a pod that was just bound counts"


def test_pod_must_also_fit_without_the_nominated_pods_that_balance_its_spread() -> None:
    zones = [sized(f"n{zone}", "2").labels({ZONE: zone}) for zone in "ab"]
    there = [running("one", "na", "1", 9).labels(app="web"), running("ending", "nb", "2").deleted()]
    nominated = pending("two", "2", 9, nominated="nb").labels(app="web")
    web = pending("web", "1", 5).labels(app="web").spread()
    [decision] = planned([web], *zones, *there, nominated=(nominated,))
    assert isinstance(decision, Reject)
    assert decision.rejected_by == {"NodeResourcesFit", "PodTopologySpread"}
    assert decision.preemption is None


def test_budgets_count_the_victims_of_preemptions_in_progress() -> None:
    guard = budget("guard").selecting(tier="guarded").allowing(1)
    low = [running(f"low-{number}", f"n{number}", "4").labels(tier="guarded") for number in range(2)]
    things = [sized("n0"), sized("n1"), sized("n2"), *low, running("free", "n2", "4", 5), guard]
    first = pending("first", "4", 9, nominated="n0")
    decisions = planned([pending("second", "4", 9)], *things, nominated=(first,), victims=(low[0],))
    assert preempted(decisions) == [("n2", ["free"])]
    counted = guard.merge(status={"disruptedPods": {"low-0": "2026-01-01T00:00:00Z"}})
    decisions = planned([pending("second", "4", 9)], *things, counted, nominated=(first,), victims=(low[0],))
    assert preempted(decisions) == [("n1", ["low-1"])], "the status of the budget already counts the first victim"


def test_pods_without_uids_do_not_share_a_reservation() -> None:
    """As in a cluster file without UIDs."""
    batch = [pending(name, "4", 9).uid("") for name in ("one", "two")]
    low = [running(f"low-{on}", on, "4") for on in "ab"]
    decisions = planned(batch, sized("a"), sized("b"), *low)
    assert sorted(found for found in preempted(decisions) if found) == [("a", ["low-a"]), ("b", ["low-b"])]


def count_puts(monkeypatch: pytest.MonkeyPatch, prefix: str) -> list[str]:
    """Return a list to which the name of each pod that a snapshot stores is added, if it has this prefix."""
    stored: list[str] = []
    put_pod = Snapshot._put_pod

    def counted(self: Snapshot, pod: Pod) -> None:
        if pod.name.startswith(prefix):
            stored.append(pod.name)
        put_pod(self, pod)

    monkeypatch.setattr(Snapshot, "_put_pod", counted)
    return stored


def test_nominated_pods_are_not_suspended_for_pods_that_they_cannot_help(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [sized(f"n{number}", "40").labels({ZONE: "a"}) for number in range(10)]
    databases = tuple(
        pending(f"database-{each}", "1", 9, nominated=f"n{each % 10}").labels(app="database") for each in range(40)
    )
    kinds: tuple[Any, ...] = (
        lambda web: web.spread(),
        lambda web: web.anti_affinity(),
        lambda web: web.affinity(labelSelector=selector(app="web")),
    )
    batch = [kinds[each % 3](pending(f"web-{each}", "1", 5).labels(app="web")) for each in range(9)]
    there = [node.build() for node in (*nodes, running("web-there", "n0").labels(app="web"))]
    snapshot = Snapshot([*there, *(each.build() for each in (*batch, *databases))])
    planner = CyclePlanner(snapshot, {"trimtab": Placer(snapshot, DEFAULT)})
    with snapshot.fork():
        stored = count_puts(monkeypatch, "database")
        decisions = planner.plan([each.build() for each in batch], [each.build() for each in databases])
        assert len(stored) == 40, "each is placed on its node once"
    assert all(nodes_of(decisions))


def test_nominated_pods_are_suspended_once_for_all_candidates_of_a_preemptor(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [sized(f"n{number}").labels({ZONE: "a"}) for number in range(30)]
    low = [running(f"low-{number}", f"n{number}", "4", 1) for number in range(30)]
    nominated = tuple(
        pending(f"nominated-{each}", "100m", 9, nominated=f"n{each}").labels(app="web") for each in range(20)
    )
    web = pending("web", "2", 9).labels(app="web").spread()
    stored = count_puts(monkeypatch, "nominated")
    [found] = preempted(planned([web], *nodes, *low, nominated=nominated))
    assert found is not None
    assert len(stored) <= 3 * 20, "they are reserved, suspended and reserved again"


def test_bind_reserves_a_claim_that_was_reserved_only_for_a_nominated_pod() -> None:
    things = [storage_class("local"), pvc("data").of_class("local"), pv("disk").of_class("local").on("a")]
    waiting = pending("waiting", "1", 5, nominated="a").claim("data")
    decisions = planned([pending("other", "1", 5).claim("data"), waiting], sized("a"), *things)
    assert nodes_of(decisions) == ["a", "a"]
    reserved = [[each.old.key for each in bind.reserved] for bind in decisions if isinstance(bind, Bind)]
    assert reserved == [["disk"], []]


def test_pod_must_also_fit_without_the_volumes_that_are_reserved_for_a_nominated_pod() -> None:
    """Without the reservation, the shared claim takes the small volume, and no volume is left for the second claim."""
    local = storage_class("local", "kubernetes.io/no-provisioner")
    small = pv("small").capacity("5Gi").of_class("local").on("b").labels(disk="ssd")
    large = pv("large").capacity("10Gi").of_class("local").where(expression(HOSTNAME, "In", "a", "b"))
    shared = pvc("shared").of_class("local").request("2Gi")
    second = pvc("second").of_class("local").request("3Gi").selecting(disk="ssd")
    waiting = pending("waiting", "1", 9, nominated="a").claim("shared")
    nodes = [sized(name).labels({HOSTNAME: name}) for name in "ab"]
    batch = [pending("other", "1", 5).claim("shared").claim("second")]
    [decision] = planned(batch, *nodes, local, small, large, shared, second, nominated=(waiting,))
    assert isinstance(decision, Reject)
    assert decision.rejected_by == {"VolumeBinding"}


_TEMPLATES: tuple[Any, ...] = (
    lambda made: made,
    lambda made: made.spread(),
    lambda made: made.anti_affinity(),
    lambda made: made.affinity(ZONE, labelSelector=selector(app="web")),
    lambda made: made.host_port(80),
)


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.sampled_from(("web", "db")), st.sampled_from(_TEMPLATES), st.integers(0, 5), st.booleans()),
        max_size=8,
    )
)
def test_reservations_that_stay_do_not_change_where_a_pod_fits(pods: list[Any]) -> None:
    """Only the reservations that may help the pod are suspended; the result is the same as if all were."""
    nodes = [sized(f"n{number}", "3").labels({ZONE: "abc"[number % 3]}).build() for number in range(6)]
    there, nominated = [], []
    for number, (app, template, slot, waits) in enumerate(pods):
        made = template(pending(f"p{number}", "1", 9).labels(app=app))
        (nominated if waits else there).append((made if waits else made.on(f"n{slot}")).build())
    snapshot = Snapshot([*nodes, *there, *nominated])
    placer = Placer(snapshot, DEFAULT)
    slots = [slot for _, _, slot, waits in pods if waits]
    for number, template in enumerate(_TEMPLATES):
        candidate = template(pending(f"candidate-{number}", "1", 5).labels(app="web")).build()
        expected = placer.feasible(candidate)
        with snapshot.fork():
            reservations = Reservations(snapshot)
            for pod_, slot in zip(nominated, slots, strict=True):
                reservations.add(pod_, placer, snapshot.nodes.slot_of[f"n{slot}"])
            expected &= placer.feasible(candidate)
            assert reservations.feasible(candidate, placer).tolist() == expected.tolist()


def preemptions(decisions: list[Decision]) -> dict[str, tuple[str, list[str]]]:
    """The node and the victims of each preemptor."""
    return {
        each.pod.name: (each.preemption.node, sorted(victim.name for victim in each.preemption.victims))
        for each in decisions
        if isinstance(each, Reject) and each.preemption is not None
    }


class TestExchange:
    """Preemptors of one batch and priority do not keep each other from the only nodes that help them."""

    def test_small_preemptor_leaves_the_only_large_victim_to_a_large_one(self) -> None:
        things = [sized("n1"), sized("n2"), running("a", "n1", "4"), running("b", "n2", "1", 1)]
        batch = [pending("small", "1", 9), pending("large", "4", 9)]
        found = planned(batch, *things, running("other", "n2", "3", 100))
        assert preemptions(found) == {"small": ("n2", ["b"]), "large": ("n1", ["a"])}
        assert [each.pod.name for each in found] == ["small", "large"]
        assert not any(isinstance(each, Reject) and each.clears_nomination for each in found)

    def test_all_preemptors_of_a_node_move_together(self) -> None:
        things = [sized("n1"), running("a", "n1", "4")]
        for each in range(3):
            things += [sized(f"m{each}"), running(f"b{each}", f"m{each}", "1", 1)]
            things.append(running(f"other{each}", f"m{each}", "3", 100))
        batch = [pending(f"small{each}", "1", 9) for each in range(3)]
        found = preemptions(planned([*batch, pending("large", "4", 9)], *things))
        assert found["large"] == ("n1", ["a"])
        assert sorted(found[f"small{each}"] for each in range(3)) == [(f"m{each}", [f"b{each}"]) for each in range(3)]

    @pytest.mark.parametrize(("small", "large"), [(9, 8), (9, 10)])
    def test_preemptors_of_other_priorities_are_not_moved(self, small: int, large: int) -> None:
        things = [sized("n1"), sized("n2"), running("a", "n1", "4"), running("b", "n2", "1", 1)]
        batch = sorted(
            [pending("small", "1", small), pending("large", "4", large)], key=lambda each: -each.build().priority
        )
        found = preemptions(planned(batch, *things, running("other", "n2", "3", 100)))
        expected = {"small": ("n1", ["a"])} if small > large else {"large": ("n1", ["a"]), "small": ("n2", ["b"])}
        assert found == expected

    def test_nothing_changes_if_an_earlier_preemptor_would_stay_pending(self) -> None:
        things = [sized("n1"), running("a", "n1", "4")]
        assert preemptions(planned([pending("small", "1", 9), pending("large", "4", 9)], *things)) == {
            "small": ("n1", ["a"])
        }

    def test_budgets_count_only_the_victims_that_stay_chosen(self) -> None:
        guard = budget("guard").selecting(tier="guarded").allowing(2)
        a, b = (running(*each).labels(tier="guarded") for each in (("a", "n1", "4"), ("c", "n3", "1", 5)))
        things = [sized("n1"), sized("n2"), sized("n3"), a, running("b", "n2", "1", 1), b, guard]
        things += [running("x", "n2", "3", 100), running("y", "n3", "3", 100)]
        batch = [pending("small", "1", 9), pending("large", "4", 9), pending("third", "1", 9)]
        found = planned(batch, *things)
        assert preemptions(found) == {"small": ("n2", ["b"]), "large": ("n1", ["a"]), "third": ("n3", ["c"])}
        chosen = [each.preemption for each in found if isinstance(each, Reject)]
        assert [each and each.violations for each in chosen] == [0, 0, 0], "the victim of the small pod is one no more"

    def test_no_preemptor_violates_a_budget_for_another_one(self) -> None:
        things = [sized("n1"), sized("n2"), running("a", "n1", "4"), running("other", "n2", "3", 100)]
        things += [running("b", "n2", "1", 1).labels(tier="guarded")]
        things.append(budget("guard").selecting(tier="guarded").allowing(0))
        found = planned([pending("small", "1", 9), pending("large", "4", 9)], *things)
        assert preemptions(found) == {"small": ("n1", ["a"])}

    def test_message_of_a_moved_pod_has_no_clause_about_preemption(self) -> None:
        things = [sized("n1"), sized("n2"), running("a", "n1", "4"), running("b", "n2", "1", 1)]
        batch = [pending("small", "1", 9), pending("large", "4", 9)]
        found = planned(batch, *things, running("other", "n2", "3", 100))
        assert [" preemption: " in each.message for each in found if isinstance(each, Reject)] == [False, False]

    def test_anti_affinity_of_a_preemptor_is_an_obstacle_for_the_exchange(self) -> None:
        things = [sized("n1"), sized("n2"), running("a", "n1", "4"), running("b", "n2", "1", 1)]
        things.append(running("other", "n2", "3", 100).labels(app="web"))
        batch = [pending("small", "1", 9).labels(app="web").anti_affinity(), pending("large", "4", 9)]
        assert preemptions(planned(batch, *things)) == {"small": ("n1", ["a"])}

    def test_error_names_the_pod_for_which_preemptors_were_moved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BatchPreemptions, "_exchange", None)
        snapshot = Snapshot([sized("n").build(), running("a", "n", "4").build()])
        batch = [
            pending(name, cpu, priority).build()
            for name, cpu, priority in (("small", "1", 9), ("large", "4", 9), ("low", "1", 0))
        ]
        planner = CyclePlanner(snapshot, {"trimtab": Placer(snapshot, DEFAULT)})
        with pytest.raises(PlanError) as error:
            plan_batch(snapshot, planner, batch, [], seconds=60.0)
        assert error.value.number == 1
        assert len(plan_batch(snapshot, planner, batch, [], seconds=0.0)) == 1

    def test_pods_alike_are_not_exchanged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(BatchPreemptions, "_exchange", None)
        things = [each for n in range(5) for each in (sized(f"n{n}"), running(f"low{n}", f"n{n}", "4"))]
        snapshot = Snapshot([each.build() for each in things])
        first = pending("p0", "4", 9).build()
        batch = [msgspec.structs.replace(first, name=f"p{each}", uid=f"u{each}") for each in range(50)]
        with snapshot.fork():
            assert len(preemptions(CyclePlanner(snapshot, {"trimtab": Placer(snapshot, DEFAULT)}).plan(batch))) == 5

    def test_failed_exchanges_are_few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tried = []
        exchange = BatchPreemptions._exchange

        def counted(self: BatchPreemptions, *arguments: Any) -> Any:
            tried.append(arguments)
            return exchange(self, *arguments)

        monkeypatch.setattr(BatchPreemptions, "_exchange", counted)
        things = [each for n in range(200) for each in (sized(f"n{n}"), running(f"low{n}", f"n{n}", "4"))]
        small = [pending(f"small{n}", "3", 9) for n in range(200)]
        large = [pending(f"large{n}", f"{3100 + n}m", 9) for n in range(200)]
        assert len(preemptions(planned([*small, *large], *things))) == 200
        assert 0 < len(tried) <= MAX_FAILURES


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(1, 6), st.integers(8, 9)), min_size=1, max_size=8),
)
def test_exchange_serves_no_fewer_preemptors_and_leaves_none_that_it_would_serve(
    lows: list[tuple[int, int]], wanted: list[tuple[int, int]]
) -> None:
    """Each node is full of one pod, whose size is that of the node."""
    things = [
        each
        for n, (size, priority) in enumerate(lows)
        for each in (sized(f"n{n}", str(size)), running(f"low{n}", f"n{n}", str(size), priority))
    ]
    batch = [pending(f"p{n}", str(size), priority) for n, (size, priority) in enumerate(wanted)]
    batch.sort(key=lambda each: -each.build().priority)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CyclePlanner, "_exchange_nodes", lambda _: ())
        one_by_one = preemptions(planned(batch, *things))
    found = preemptions(planned(batch, *things))
    sizes = {f"p{n}": size for n, (size, _) in enumerate(wanted)}
    priorities = {f"p{n}": priority for n, (_, priority) in enumerate(wanted)}

    # Of the highest priority, at least as many are nominated. Those of the other one get what is left.
    assert {name for name in one_by_one if priorities[name] == 9} <= found.keys()
    # Each victim makes room for the preemptors on its node, and is removed once.
    room = {f"n{n}": size for n, (size, _) in enumerate(lows)}
    for name, (node_name, _) in found.items():
        room[node_name] -= sizes[name]
    assert min(room.values()) >= 0
    victims = sorted(victim for _, chosen in found.values() for victim in chosen)
    assert victims == sorted({f"low{node_name[1:]}" for node_name, _ in found.values()})
    # No pending pod could take the node of a preemptor of its priority that fits elsewhere.
    for name in sizes.keys() - found.keys():
        for other, (node_name, _) in found.items():
            if priorities[other] != priorities[name] or room[node_name] + sizes[other] < sizes[name]:
                continue
            left = {**room, node_name: room[node_name] + sizes[other] - sizes[name]}
            assert max(left.values()) < sizes[other], (name, other)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4), st.integers(0, 3), st.booleans()), max_size=9),
    st.lists(st.tuples(st.integers(1, 4), st.integers(8, 9), st.booleans()), min_size=1, max_size=6),
    st.integers(0, 2),
)
def test_exchange_takes_nothing_from_others_and_a_failed_one_changes_nothing(
    lows: list[tuple[int, int, int, bool]], wanted: list[tuple[int, int, bool]], allowed: int
) -> None:
    """Nodes with several pods, a budget, and preemptors with anti-affinity to each other."""
    things = [sized(f"n{n}", "6") for n in range(3)] + [budget("guard").selecting(tier="guarded").allowing(allowed)]
    for n, (on, size, priority, guarded) in enumerate(lows):
        low = running(f"low{n}", f"n{on}", str(size), priority)
        things.append(low.labels(tier="guarded") if guarded else low)
    batch = [
        pending(f"p{n}", str(size), priority).labels(app="web").anti_affinity()
        if anti
        else pending(f"p{n}", str(size), priority)
        for n, (size, priority, anti) in enumerate(wanted)
    ]
    batch.sort(key=lambda each: -each.build().priority)
    exchange = BatchPreemptions._exchange

    def state(batch: BatchPreemptions, own: Any) -> Any:
        tentative = {at: list(found) for at, found in batch._by_slot.items() if found}
        bound = {key: each for key, each in own._snapshot.pods.items() if each.node}
        return bound, dict(own._ledger._left), dict(own._reservations._by_key), tentative

    def checked(self: BatchPreemptions, pod: Pod, slot: int, stuck: set[Any]) -> Any:
        own = self._planner_of(pod)
        before = state(self, own)
        changed = exchange(self, pod, slot, stuck)
        after = state(self, own)
        assert changed or after == before
        return changed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CyclePlanner, "_exchange_nodes", lambda _: ())
        one_by_one = planned(batch, *things)
        patch.undo()
        patch.setattr(BatchPreemptions, "_exchange", checked)
        decisions = planned(batch, *things)
    assert [each.pod.name for each in decisions] == [each.build().name for each in batch]

    def served(found: list[Decision]) -> set[str]:
        placed = {each.pod.name for each in found if isinstance(each, Bind) and each.pod.priority == 9}
        return placed | {name for name in preemptions(found) if name in highest}

    highest = {f"p{n}" for n, (_, priority, _) in enumerate(wanted) if priority == 9}
    assert served(one_by_one) <= served(decisions)
    removed = [victim for _, victims in preemptions(decisions).values() for victim in victims]
    assert len(removed) == len(set(removed))
    snapshot = Snapshot([each.build() for each in things])
    for victim in removed:
        snapshot.remove(snapshot.pods[f"shop/{victim}"])
    placer = Placer(snapshot, DEFAULT)
    on = {name: at for name, (at, _) in preemptions(decisions).items()}
    on |= {each.pod.name: each.node for each in decisions if isinstance(each, Bind)}
    for each in decisions:
        if each.pod.name in on:
            slot = snapshot.nodes.slot_of[on[each.pod.name]]
            assert placer.feasible(each.pod)[slot], "all preemptors fit once the victims have ended"
            placer.reserve(each.pod, slot)
