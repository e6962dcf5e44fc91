"""Topology spread constraints as values: which there are, how far they are violated, and what a move does to them."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, node, pod, selector
from tests.unit.descheduling.planning import built, web
from tests.unit.descheduling.test_spread_balancer_invariants import worlds
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.spread_balancer import SpreadConstraintIndex, StatedConstraint
from trimtab.kube.objects import KubeObject, Pod
from trimtab.placement.topology_spread import SpreadRules


def spreads_of(snapshot: Snapshot, *, soft: bool = True) -> SpreadConstraintIndex:
    pods = [each for each in snapshot.pods.values() if each.deleted is None]
    return SpreadConstraintIndex(snapshot, SpreadRules(snapshot), pods, soft=soft)


def counted(spreads: SpreadConstraintIndex, snapshot: Snapshot) -> list[tuple[StatedConstraint, Pod]]:
    """Every placed pod with every constraint that counts it."""
    return [
        (constraint, each)
        for each in snapshot.pods.values()
        if not each.terminal and each.deleted is None and snapshot.slot(each) is not None
        for constraint in spreads.counting(each)
    ]


def skew(spreads: SpreadConstraintIndex, constraint: StatedConstraint) -> int:
    state = spreads.state_of(constraint)
    counts = state.domains.of_eligible(state.counts)
    return int(counts.max()) - state.smallest if len(counts) else 0


@settings(max_examples=30)
@given(worlds())
def test_move_effect_describes_a_move(world: list[KubeObject]) -> None:
    """Compared with the counts after each single move, whichever pod and node."""
    snapshot = Snapshot(world)
    spreads = spreads_of(snapshot)
    for constraint, each in counted(spreads, snapshot):
        before = spreads.state_of(constraint).excess
        allowed = max(skew(spreads, constraint), constraint.max_skew)
        effect = spreads.move_effect(constraint, each)
        for slot in snapshot.nodes.slot_of.values():
            with snapshot.fork():
                snapshot.move(each, snapshot.nodes.node(slot).name)
                assert effect.change[slot] == spreads.state_of(constraint).excess - before
                if effect.harmless[slot]:
                    assert skew(spreads, constraint) <= allowed
                if effect.counted[slot]:
                    state = spreads.state_of(constraint)
                    assert effect.counts[slot] == state.counts[state.domains.counted_domain_of_slot[slot]] - 1
        assert effect.harmless[snapshot.nodes.slot_of[each.node]], "to stay is no harm"


@settings(max_examples=20)
@given(worlds())
def test_move_effect_is_the_same_for_unbound_pod(world: list[KubeObject]) -> None:
    snapshot = Snapshot(world)
    spreads = spreads_of(snapshot)
    for constraint, each in counted(spreads, snapshot):
        placed = spreads.move_effect(constraint, each)
        with snapshot.fork():
            snapshot.remove(each)
            lifted = spreads.move_effect(constraint, each)
        for name in placed.__struct_fields__:
            assert getattr(placed, name).tolist() == getattr(lifted, name).tolist()


@settings(max_examples=30)
@given(worlds(), st.integers(0, 2**16))
def test_constraint_order_depends_only_on_names(world: list[KubeObject], seed: int) -> None:
    shuffled = list(world)
    random.Random(seed).shuffle(shuffled)
    one, other = (spreads_of(Snapshot(objects)) for objects in (world, shuffled))
    assert [each.place for each in one.constraints] == [each.place for each in other.constraints]
    assert [each.rule.constraint for each in one.constraints] == [each.rule.constraint for each in other.constraints]


def found(*things: object, soft: bool = True) -> list[tuple[str, bool, int]]:
    """Each constraint of a cluster: the first pod that states it, whether it is hard, and its excess."""
    snapshot = Snapshot(built([node("n1").zone("a"), node("n2").zone("b"), *things]))
    spreads = spreads_of(snapshot, soft=soft)
    return [(each.place[0], each.hard, spreads.state_of(each).excess) for each in spreads.constraints]


def test_equal_constraints_are_shared() -> None:
    old = [web(name, "n1", owner="old").labels(app="web").spread(ZONE) for name in "ab"]
    new = [web(name, "n1", owner="new").labels(app="web").cpu("1").spread(ZONE) for name in "cd"]
    assert found(*old, *new) == [("shop/a", True, 3)]


def test_different_nodes_skew_or_severity_is_another_constraint() -> None:
    pods = [
        web("a", "n1").spread(ZONE),
        web("b", "n1").spread(ZONE, max_skew=2),
        web("c", "n1").spread(ZONE, when="ScheduleAnyway"),
        web("d", "n1").spread(ZONE).node_selector(disk="ssd"),
        web("e", "n1").spread(ZONE, minDomains=2),
        web("f", "n1").spread(HOSTNAME),
    ]
    assert found(*pods) == [
        ("shop/a", True, 5),
        ("shop/b", True, 4),
        ("shop/c", False, 5),
        ("shop/d", True, 0),
        ("shop/e", True, 5),
        ("shop/f", True, 5),
    ]
    assert ("shop/c", False, 5) not in found(*pods, soft=False)


def test_constraint_with_empty_selector_is_ignored() -> None:
    assert found(web("a", "n1").spread(ZONE, labelSelector={})) == []


def test_pending_and_terminated_pods_state_no_constraint() -> None:
    assert found(web("a").spread(ZONE), web("b", "n1").spread(ZONE).phase("Succeeded")) == []
    assert found(web("a", "gone").spread(ZONE)) == []


def test_a_constraint_counts_pods_of_its_namespace_by_its_selector() -> None:
    either = selector()
    either["matchExpressions"] = [{"key": "app", "operator": "In", "values": ["web", "db"]}]
    stating = web("a", "n1").spread(ZONE, labelSelector=either)
    others = [web("b", "n1", owner="db"), web("c", "n1", namespace="blog"), pod("d", "shop").labels(app="x").on("n1")]
    snapshot = Snapshot(built([node("n1").zone("a"), stating, *others]))
    spreads = spreads_of(snapshot)
    assert {each.name for _, each in counted(spreads, snapshot)} == {"a", "b"}
