"""RemovePodsViolatingTopologySpreadConstraint: which pods go, where to, and which stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder, budget, expression, node, pod, selector
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import (
    DUPLICATES,
    kept,
    messages,
    moves,
    plan,
    topology_spread,
    utilization,
    web,
)
from trimtab.api.plan import Plan
from trimtab.descheduling.strategies.registry import IN_ORDER

SOFT = "ScheduleAnyway"
BOTH = ("DoNotSchedule", SOFT)


def zones(**names: str) -> list[NodeBuilder]:
    """Nodes by zone: ``zones(a="n1 n2", b="n3")``."""
    return [node(name).zone(zone) for zone, listed in names.items() for name in listed.split()]


def even(name: str, on: str = "", **fields: Any) -> PodBuilder:
    """A pod of ``web`` with a constraint over zones."""
    return web(name, on).spread(ZONE, **fields)


def crowd(names: str, on: str, **fields: Any) -> list[PodBuilder]:
    """Pods with a constraint over zones: ``crowd("abc", "n1")``."""
    return [even(name, on, **fields) for name in names]


def twice(name: str, on: str, **fields: Any) -> PodBuilder:
    """A pod of ``web`` with a constraint over zones and one over nodes."""
    return web(name, on).spread(ZONE, **fields).spread(HOSTNAME, **fields)


def evened(things: list[Any], *constraints: str, **spec: Any) -> Plan:
    return plan(things, topology_spread(*constraints), **spec)


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1")],
            [("a", "n1", "n2")],
            id="three and none: one moves",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("ab", "n1"), even("c", "n2")],
            [],
            id="two and one is even enough for a skew of one",
        ),
        pytest.param(
            [*zones(a="n1", b="n2", c="n3"), *crowd("abcde", "n1")],
            [("a", "n1", "n2"), ("b", "n1", "n3"), ("c", "n1", "n2")],
            id="the smallest zone gets the next pod",
        ),
        pytest.param(
            [*zones(a="n1", b="n2", c="n3"), *crowd("abcde", "n1"), *crowd("fghi", "n2")],
            [("a", "n1", "n3"), ("b", "n1", "n3"), ("f", "n2", "n3")],
            id="the largest zone gives the next pod",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abcdef", "n1", max_skew=3)],
            [("a", "n1", "n2"), ("b", "n1", "n2")],
            id="only as many moves as maxSkew requires",
        ),
        pytest.param(
            [*zones(a="n1 n2", b="n3 n4"), *crowd("abcd", "n1")],
            [("a", "n1", "n3"), ("b", "n1", "n4")],
            id="zones are even whichever of their nodes run the pods",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), even("d", "n2").deleted(), even("e", "n2").phase("Failed")],
            [("a", "n1", "n2")],
            id="terminating and terminated pods are not counted",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), even("d")],
            [("a", "n1", "n2")],
            id="pending pods are not counted",
        ),
        pytest.param(
            # upstream counts evictable pods only, finds one in zone a, and does nothing
            [*zones(a="n1", b="n2"), even("a", "n1"), *(even(x, "n1").volume("emptyDir") for x in "bc")],
            [("a", "n1", "n2")],
            id="protected pods are counted, and others are evicted instead",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), *(pod(x, "shop").labels(app="web").on("n2") for x in "xy")],
            [],
            id="selected pods of all owners are counted",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), *(web(x, "n2", namespace="blog") for x in "xy")],
            [("a", "n1", "n2")],
            id="pods of other namespaces are not counted",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *(web(x, "n1").spread(ZONE, when=SOFT) for x in "abc")],
            [],
            id="soft constraints are ignored by default",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), node("n3"), *crowd("abc", "n1"), *crowd("de", "n3")],
            [("a", "n1", "n2")],
            id="nodes without the label and their pods are not counted",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *(web(x, "n1").spread(ZONE, labelSelector={}) for x in "abc")],
            [],
            id="an empty selector counts no pod",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *(even(x, "n1").node_selector(disk="ssd") for x in "abc"), even("d", "n2")],
            [],
            id="only nodes that the pod's own selector allows are domains",
        ),
        pytest.param(
            [
                *zones(a="n1"),
                node("n2").zone("b").taint("example.com/reserved"),
                *crowd("abc", "n1", nodeTaintsPolicy="Honor"),
            ],
            [],
            id="with nodeTaintsPolicy Honor a tainted zone is no domain",
        ),
    ],
)
def test_pods_move_from_the_largest_domain_to_the_smallest_as_few_as_needed(things, expected):
    result = evened(things)
    assert moves(result) == expected
    assert set(kept(result).values()) <= {"LocalStorage"}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([even("a", "n1").priority(9), *crowd("bc", "n1")], "b", id="of the lowest priority"),
        pytest.param([even("a", "n1").cpu("2"), even("b", "n1"), even("c", "n1").cpu("1")], "b", id="BestEffort"),
        pytest.param([even("a", "n1").cpu("2"), *(even(x, "n1").cpu("1") for x in "bc")], "b", id="the smaller"),
        pytest.param(
            [even(x, "n1").created(f"2026-01-0{day}T00:00:00Z") for x, day in (("a", 1), ("b", 3), ("c", 2))],
            "b",
            id="the younger",
        ),
        pytest.param([even(x, "n1") for x in "cba"], "a", id="by name"),
    ],
)
def test_the_preferred_victim_is_evicted(pods, expected):
    assert moves(evened([*zones(a="n1", b="n2"), *pods])) == [(expected, "n1", "n2")]


def test_pod_improving_two_constraints_is_evicted_first():
    """Zone a has too many pods, and n2 as well: the pod of n1 would mend the one only, though it is smaller."""
    objects = [*zones(a="n1 n2", b="n3"), twice("a", "n1").cpu("1m"), twice("e", "n3")]
    objects += [twice(x, "n2").cpu("1") for x in "bcd"]
    assert moves(evened(objects)) == [("b", "n2", "n3")]


def test_zone_and_node_constraints_are_balanced_together():
    """Six pods on the two nodes of one zone; the other zone's two take half of them, each its share."""
    objects = [*zones(a="n1 n2", b="n3 n4"), *(twice(x, "n1") for x in "abc"), *(twice(x, "n2") for x in "def")]
    result = evened(objects)
    assert moves(result) == [("a", "n1", "n3"), ("b", "n1", "n4"), ("d", "n2", "n3")]
    assert kept(result) == {}


def test_conflicting_zone_and_node_constraints_move_no_pod_1219(golden: Golden):
    """Even zones would take two pods on the only node of zone b, even nodes do not let them: whatever moves comes back.

    See kubernetes-sigs/descheduler #1219.
    """
    objects = [*zones(a="n1 n2 n3 n4", b="n5"), *(twice(f"p{i}", f"n{i}", when=SOFT) for i in range(1, 6))]
    result = evened(objects, SOFT)
    assert moves(result) == []
    assert set(kept(result).values()) == {"NoImprovement"}
    golden(messages(result)["p1"])
    hard = [*zones(a="n1 n2 n3 n4", b="n5"), *(twice(f"p{i}", f"n{i}") for i in range(1, 6))]
    result = evened(hard)
    assert moves(result) == []
    assert set(kept(result).values()) == {"NoPlace"}


def test_fewest_pods_are_moved_for_two_constraints_1032():
    """Four pods on one node: one by one upstream counts two for the zones, and again for the nodes.

    See kubernetes-sigs/descheduler #1032.
    """
    objects = [*zones(a="n1 n2", b="n3 n4"), *(twice(x, "n1") for x in "abcd")]
    assert moves(evened(objects)) == [("a", "n1", "n3"), ("b", "n1", "n4"), ("c", "n1", "n2")]


def test_soft_node_constraint_does_not_worsen_hard_zone_constraint_1918():
    """Five nodes in one zone and two in each of two others, nine pods: even zones leave nodes of the first empty.

    See kubernetes-sigs/descheduler #1918, where the pods on the doubled nodes were evicted for ever.
    """
    objects = zones(a="n1 n2 n3 n4 n5", b="m1 m2", c="l1 l2")
    on = ["n1", "n2", "m1", "m1", "m2", "l1", "l1", "l2", "n3"]
    objects += [
        web(f"p{number}", name).spread(ZONE).spread(HOSTNAME, when=SOFT) for number, name in enumerate(on, start=1)
    ]
    result = evened(objects, *BOTH)
    assert moves(result) == []
    assert set(kept(result).values()) == {"NoImprovement"}


def test_schedule_anyway_is_balanced_if_enabled():
    objects = [*zones(a="n1", b="n2"), *(even(x, "n1", when=SOFT) for x in "abc")]
    assert moves(evened(objects, SOFT)) == [("a", "n1", "n2")]
    assert moves(evened(objects, *BOTH)) == [("a", "n1", "n2")]


def test_hard_constraints_are_ignored_if_only_soft_enabled():
    objects = [*zones(a="n1", b="n2"), *crowd("abc", "n1")]
    assert moves(evened(objects, SOFT)) == []


def test_soft_constraint_does_not_block_hard_one():
    """Zones are hard, nodes soft: the only node of zone b gets more than its share."""
    objects = zones(a="n1 n2 n3 n4", b="n5")
    objects += [web(f"p{i}", f"n{i}").spread(ZONE).spread(HOSTNAME, when=SOFT) for i in range(1, 5)]
    assert moves(evened(objects, *BOTH)) == [("p1", "n1", "n5"), ("p2", "n2", "n5")]


def test_node_in_smallest_zone_respects_soft_constraint():
    objects = zones(a="n1", b="n2 n3")
    objects += [web(x, "n1").spread(ZONE).spread(HOSTNAME, when=SOFT) for x in "abc"]
    objects += [web("d", "n2").spread(ZONE).spread(HOSTNAME, when=SOFT)]
    objects[1] = objects[1].allocatable(cpu="8")
    assert moves(evened([*objects, web("e", "n1").spread(ZONE)], *BOTH)) == [("a", "n1", "n3"), ("b", "n1", "n2")]


def test_smallest_domain_beats_most_free_capacity():
    """The scheduler's scores would choose n2; it may, for maxSkew is 2, but another pod had to move then."""
    objects = [node("n1").zone("a"), node("n2").zone("b").allocatable(cpu="64"), node("n3").zone("c")]
    objects += [*crowd("abcde", "n1", max_skew=2), even("f", "n2", max_skew=2)]
    assert moves(evened(objects)) == [("a", "n1", "n3"), ("b", "n1", "n2")]


def test_ties_prefer_nodes_with_fewest_pods_of_other_constraints():
    objects = [node("n1").zone("a"), node("n2").zone("b").allocatable(cpu="64"), node("n3").zone("b")]
    objects += [
        web(x, on).spread(ZONE).spread(HOSTNAME, max_skew=4) for x, on in zip("abcdf", ["n1"] * 4 + ["n2"], strict=True)
    ]
    assert moves(evened(objects)) == [("a", "n1", "n3")]


def test_pods_are_not_moved_within_their_zone():
    """With soft constraints the scheduler would let it, and nothing would be gained."""
    objects = [*zones(a="n1 n2"), node("n3").zone("b").allocatable(pods=0)]
    objects += [even(x, "n1", when=SOFT) for x in "abc"]
    result = evened(objects, SOFT)
    assert (moves(result), kept(result)) == ([], dict.fromkeys("abc", "NoImprovement"))


def test_soft_constraint_never_worsens_hard_constraint_of_other_pods():
    """Pods of two owners share a label: what evens out the one would leave the other's zones uneven."""
    shared = selector(tier="front")
    objects = zones(a="n1", b="n2")
    objects += [
        web(x, "n1", owner="one").labels(tier="front").spread(ZONE, when=SOFT, labelSelector=selector(app="one"))
        for x in "abc"
    ]
    objects += [web(x, "n2", owner="two").labels(tier="front").spread(ZONE, labelSelector=shared) for x in "defg"]
    result = evened(objects, SOFT)
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("abc", "NoImprovement")


def test_replica_sets_sharing_a_selector_are_balanced_together():
    """During a rollout the old and the new ReplicaSet's pods are counted by one constraint, and either's may go."""
    objects = zones(a="n1", b="n2")
    old = [web(x, "n1", owner="old").labels(app="web").spread(ZONE) for x in "ab"]
    new = [web(x, "n1", owner="new").labels(app="web").spread(ZONE).cpu("1") for x in "cd"]
    assert moves(evened([*objects, *old, *new])) == [("a", "n1", "n2"), ("b", "n1", "n2")]


def test_match_label_keys_balance_each_revision_separately():
    objects = zones(a="n1", b="n2")
    objects += [even(x, "n1", matchLabelKeys=["revision"]).labels(revision="1") for x in "abc"]
    objects += [even(x, "n2", matchLabelKeys=["revision"]).labels(revision="2") for x in "def"]
    assert moves(evened(objects)) == [("a", "n1", "n2"), ("d", "n2", "n1")]


def test_pods_without_constraint_are_counted_but_not_moved():
    """They would be free to come back; upstream evicts them (kubernetes-sigs/descheduler #1167)."""
    objects = [*zones(a="n1", b="n2"), *(web(x, "n1") for x in "abc"), even("d", "n1")]
    result = evened(objects)
    assert (moves(result), kept(result)) == ([("d", "n1", "n2")], {})
    result = evened(
        [*zones(a="n1", b="n2"), *(web(x, "n1") for x in "abc"), even("d", "n2", labelSelector=selector(app="web"))]
    )
    assert (moves(result), kept(result)) == ([], {})


def test_missing_min_domains_count_as_empty(golden: Golden):
    objects = [*zones(a="n1", b="n2"), *crowd("abc", "n1", minDomains=2)]
    assert moves(evened(objects)) == [("a", "n1", "n2")]
    result = evened([*zones(a="n1", b="n2"), *crowd("abc", "n1", minDomains=3), even("d", "n2", minDomains=3)])
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("abc", "NoPlace")
    golden(messages(result)["a"])


def test_next_smallest_domain_is_used_if_smallest_is_full():
    objects = [node("n1").zone("a"), node("n2").zone("b").allocatable(pods=0), node("n3").zone("c")]
    result = evened([*objects, *crowd("abcd", "n1", max_skew=2)])
    assert moves(result) == [("a", "n1", "n3"), ("b", "n1", "n3")]
    assert kept(result) == {}


def test_full_domains_keep_pods_with_counts(golden: Golden):
    objects = [node("n1").zone("a"), node("n2").zone("b").allocatable(pods=1), *crowd("abcd", "n1")]
    result = evened(objects)
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == dict.fromkeys("bcd", "NoPlace")
    golden(messages(result)["b"])


@pytest.mark.parametrize(
    ("other", "pods"),
    [
        pytest.param(node("n2").zone("b").taint("example.com/reserved"), crowd("abc", "n1"), id="a taint"),
        pytest.param(node("n2").zone("b").cordoned(), crowd("abc", "n1"), id="a cordon"),
        pytest.param(node("n2").zone("b").not_ready(), crowd("abc", "n1"), id="a node that is not ready"),
        pytest.param(
            node("n2").zone("b"),
            [even(x, "n1").affinity(ZONE, labelSelector=selector(app="db")) for x in "abc"],
            id="pod affinity",
        ),
        pytest.param(
            node("n2").zone("b"),
            [even(x, "n1", nodeAffinityPolicy="Ignore").node_affinity(expression(ZONE, "In", "a")) for x in "abc"],
            id="node affinity that the constraint ignores",
        ),
    ],
)
def test_no_pod_is_evicted_for_an_infeasible_domain(other, pods):
    objects = [node("n1").zone("a"), other, *pods, web("db", "n1", owner="db")]
    result = evened(objects)
    assert moves(result) == []
    assert set(kept(result)) == {"a", "b", "c"}
    assert set(kept(result).values()) <= {"NoPlace", "NoImprovement"}


def test_exhausted_pdb_keeps_all_pods():
    objects = [*zones(a="n1", b="n2"), *crowd("abc", "n1"), budget().selecting(app="web").allowing(0)]
    result = evened(objects)
    assert (moves(result), kept(result)) == ([], dict.fromkeys("abc", "DisruptionBudget"))


def test_limit_reports_only_pods_it_keeps():
    objects = [*zones(a="n1", b="n2", c="n3"), *crowd("abcdef", "n1")]
    assert len(moves(evened(objects))) == 4
    result = evened(objects, limits={"perCycle": 2})
    assert moves(result) == [("a", "n1", "n2"), ("b", "n1", "n3")]
    assert kept(result) == {"c": "LimitReached", "d": "LimitReached"}


def test_message_has_compared_values(golden: Golden):
    action = evened([*zones(a="n1", b="n2"), *crowd("abc", "n1")]).actions[0]
    assert action.reason == "TopologySpreadViolated"
    golden(action.message)


def test_unselected_nodes_count_as_domains_only(golden: Golden):
    """The scheduler does not know of policies: what is in zone c counts, though nothing may go there."""
    objects = zones(a="n1", b="n2", c="n3")
    objects = [objects[0].labels(pool="x"), objects[1].labels(pool="x"), objects[2]]
    result = evened([*objects, *crowd("abcd", "n1")], nodeSelector={"matchLabels": {"pool": "x"}})
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == dict.fromkeys("bcd", "NoPlace")
    golden(messages(result)["b"])


def test_topology_balance_node_fit_has_no_effect():
    objects = [node("n1").zone("a"), node("n2").zone("b").allocatable(pods=0), *crowd("abc", "n1")]
    strategy = topology_spread()
    for value in (True, False):
        next(iter(strategy.values()))["params"] = {"topologyBalanceNodeFit": value}
        assert kept(plan(objects, strategy)) == dict.fromkeys("abc", "NoPlace")


@pytest.mark.parametrize("own", [True, False], ids=["states the constraint", "is only counted"])
def test_later_strategies_do_not_increase_skew(own):
    """Low use of n2 alone would bring it more pods, until its zone had all of them."""
    balance = utilization({"cpu": 20}, {"cpu": 30})
    objects = [*zones(a="n1", b="n2"), web("anchor", "n1", owner="db").volume("emptyDir").cpu("500m")]
    objects += [even(x, "n1").cpu("10m") for x in "ab"] + [even(x, "n2").cpu("10m") for x in "cdef"]
    objects += [(even("big", "n1") if own else web("big", "n1")).cpu("1")]
    assert [name for name, _, _ in moves(plan(objects, balance))] == ([] if own else ["big"])
    result = plan(objects, balance | topology_spread())
    assert moves(result) == []
    text = "node(s) were in a domain with too many pods of a topology spread constraint"
    assert own or text in messages(result)["big"]


def test_duplicates_are_spread_within_the_constraint():
    objects = zones(a="n1", b="n2 n3 n4")
    objects += [even("a", "n1"), even("b", "n1"), even("c", "n2"), even("d", "n2")]
    result = plan(objects, topology_spread() | {DUPLICATES: {}})
    assert moves(result) == [("c", "n2", "n3")]


def test_taints_and_node_affinity_come_before_and_duplicates_after():
    order = [kind.NAME.removeprefix("RemovePodsViolating") for kind in IN_ORDER]
    wanted = ["NodeTaints", "NodeAffinity", "InterPodAntiAffinity", "TopologySpreadConstraint", "RemoveDuplicates"]
    assert [name for name in order if name in wanted] == wanted
