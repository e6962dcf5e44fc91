"""What holds of every plan that evens pods out, whatever the cluster and the constraints."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import ZONE, node
from tests.strategies import examples
from tests.unit.cluster import worlds as small
from tests.unit.descheduling.planning import NOW, moves, plan, policy, topology_spread, web
from tests.unit.descheduling.test_invariants import after
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning import planner
from trimtab.descheduling.planning.spread_balancer import SpreadConstraintIndex
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Affinity, KubeObject, LabelSelector, Pod, PodSpec, TopologySpread
from trimtab.placement.topology_spread import SpreadRules

CONSTRAINTS = st.sampled_from([("DoNotSchedule",), ("ScheduleAnyway",), ("DoNotSchedule", "ScheduleAnyway")])


class Maker(small.Maker):
    """Most pods are of one app in one namespace and state constraints; otherwise few would count anybody."""

    def spread(self) -> TopologySpread:
        selector = LabelSelector(Labels({"app": self.pick("a", "a", "b")}))
        return msgspec.structs.replace(super().spread(), selector=selector)

    def spec(self) -> PodSpec:
        spreads = tuple(self.spread() for _ in range(self.pick(0, 1, 1, 2, 2)))
        affinity = Affinity() if self.one_in(2) else super().spec().affinity
        return msgspec.structs.replace(super().spec(), topology_spread=spreads, affinity=affinity)

    def pod(self, name: str, spec: PodSpec | None = None, on: tuple[str, ...] = small.NODE_NAMES) -> Pod:
        made = super().pod(name, spec, on)
        if self.one_in(4):
            return made
        return msgspec.structs.replace(made, namespace="shop", labels=Labels({"app": "a"}))


@st.composite
def worlds(draw: st.DrawFn) -> list[KubeObject]:
    """Three to five nodes of which the first is the fullest, one to three templates, no budget."""
    make = Maker(draw(st.integers(0, 2**32 - 1)))
    names = small.NODE_NAMES[: draw(st.integers(3, 5))]
    shared = [make.spec() for _ in range(draw(st.integers(1, 3)))]
    pods = [make.pod(f"p{i:02}", make.pick(*shared), ("n1", "n1", *names)) for i in range(draw(st.integers(6, 24)))]
    return [*(make.node(name) for name in names), make.namespace(), *pods]


def skews(world: list[KubeObject]) -> dict[tuple[object, ...], tuple[bool, int, int]]:
    """Each constraint of a world: whether it is hard, its skew counted from scratch, its maxSkew."""
    snapshot = Snapshot(world)
    pods = [each for each in world if isinstance(each, Pod) and each.deleted is None]
    spreads = SpreadConstraintIndex(snapshot, SpreadRules(snapshot), pods, soft=True)
    found: dict[tuple[object, ...], tuple[bool, int, int]] = {}
    for each in spreads.constraints:
        state = spreads.state_of(each)
        counts = state.domains.of_eligible(state.counts)
        skew = int(counts.max()) - state.smallest if len(counts) else 0
        found[each.place] = each.hard, skew, each.max_skew
    return found


@settings(max_examples=examples(200))
@given(worlds(), CONSTRAINTS)
def test_moves_never_violate_a_hard_constraint(world, constraints):
    done = planner.plan_evictions(Snapshot(world), [policy(topology_spread(*constraints))], now=NOW)
    before, now = skews(world), skews(after(world, done))
    assert set(before) == set(now)
    for place, (hard, skew, allowed) in before.items():
        if hard or "DoNotSchedule" not in constraints:
            assert now[place][1] <= max(skew, allowed)


@settings(max_examples=examples(200))
@given(worlds(), CONSTRAINTS)
def test_balanced_cluster_needs_no_further_move(world, constraints):
    policies = [policy(topology_spread(*constraints))]
    done = planner.plan_evictions(Snapshot(world), policies, now=NOW)
    assert moves(planner.plan_evictions(Snapshot(after(world, done)), policies, now=NOW)) == []


@given(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)), st.integers(1, 3))
def test_fewest_pods_are_moved_to_satisfy_constraint(counts, max_skew):
    zones = ("a", "b", "c")
    objects: list[Any] = [node(f"n-{zone}").zone(zone) for zone in zones]
    objects += [
        web(f"{zone}{number}", f"n-{zone}").spread(ZONE, max_skew=max_skew)
        for zone, count in zip(zones, counts, strict=True)
        for number in range(count)
    ]
    assert len(moves(plan(objects, topology_spread()))) == fewest(counts, max_skew)


def fewest(counts: tuple[int, ...], max_skew: int) -> int:
    """How many pods must leave their domains at least, by trying all ways to share them out."""
    total = sum(counts)
    shares = (share for share in product(range(total + 1), repeat=len(counts)) if sum(share) == total)
    return min(
        sum(max(0, have - want) for have, want in zip(counts, share, strict=True))
        for share in shares
        if max(share) - min(share) <= max_skew
    )
