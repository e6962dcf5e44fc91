"""RemovePodsViolatingTopologySpreadConstraint: which pods go, where to, and which stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, NodeBuilder, PodBuilder, budget, expression, node, pod, selector
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
            id="no more than it takes to hold maxSkew",
        ),
        pytest.param(
            [*zones(a="n1 n2", b="n3 n4"), *crowd("abcd", "n1")],
            [("a", "n1", "n3"), ("b", "n1", "n4")],
            id="zones are even whichever of their nodes run the pods",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), even("d", "n2").deleted(), even("e", "n2").phase("Failed")],
            [("a", "n1", "n2")],
            id="pods on their way out or at their end are not counted",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), even("d")],
            [("a", "n1", "n2")],
            id="nor are those without a node",
        ),
        pytest.param(
            # upstream counts evictable pods only, finds one in zone a, and does nothing
            [*zones(a="n1", b="n2"), even("a", "n1"), *(even(x, "n1").volume("emptyDir") for x in "bc")],
            [("a", "n1", "n2")],
            id="protected pods are counted, others go in their stead",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), *(pod(x, "shop").labels(app="web").on("n2") for x in "xy")],
            [],
            id="every pod that the selector picks is counted, whoever owns it",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *crowd("abc", "n1"), *(web(x, "n2", namespace="blog") for x in "xy")],
            [("a", "n1", "n2")],
            id="but none of another namespace",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *(web(x, "n1").spread(ZONE, when=SOFT) for x in "abc")],
            [],
            id="soft constraints are left alone unless asked for",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), node("n3"), *crowd("abc", "n1"), *crowd("de", "n3")],
            [("a", "n1", "n2")],
            id="a node without the label is no domain, and what runs there is not counted",
        ),
        pytest.param(
            [*zones(a="n1", b="n2"), *(web(x, "n1").spread(ZONE, labelSelector={}) for x in "abc")],
            [],
            id="an empty selector counts nobody",
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
def test_of_several_the_one_goes_that_is(pods, expected):
    assert moves(evened([*zones(a="n1", b="n2"), *pods])) == [(expected, "n1", "n2")]


def test_the_pod_goes_that_mends_two_constraints_at_once():
    """Zone a has too many pods, and n2 as well: the pod of n1 would mend the one only, though it is smaller."""
    things = [*zones(a="n1 n2", b="n3"), twice("a", "n1").cpu("1m"), twice("e", "n3")]
    things += [twice(x, "n2").cpu("1") for x in "bcd"]
    assert moves(evened(things)) == [("b", "n2", "n3")]


def test_zones_and_nodes_are_evened_out_together():
    """Six pods on the two nodes of one zone; the other zone's two take half of them, each its share."""
    things = [*zones(a="n1 n2", b="n3 n4"), *(twice(x, "n1") for x in "abc"), *(twice(x, "n2") for x in "def")]
    result = evened(things)
    assert moves(result) == [("a", "n1", "n3"), ("b", "n1", "n4"), ("d", "n2", "n3")]
    assert kept(result) == {}


def test_conflicting_zones_and_nodes_are_left_as_they_are_1219():
    """Even zones would take two pods on the only node of zone b, even nodes do not let them: whatever moves comes back.

    See kubernetes-sigs/descheduler #1219.
    """
    things = [*zones(a="n1 n2 n3 n4", b="n5"), *(twice(f"p{i}", f"n{i}", when=SOFT) for i in range(1, 6))]
    result = evened(things, SOFT)
    assert moves(result) == []
    assert set(kept(result).values()) == {"NoImprovement"}
    assert messages(result)["p1"] == (
        "topology.kubernetes.io/zone=a has 4 pods, 3 more than b with 1, where maxSkew is 1; "
        "0/5 nodes are available: 1 node(s) already ran the pod, "
        "4 node(s) were in a domain that the pod would leave no more even, by one of the constraints."
    )
    hard = [*zones(a="n1 n2 n3 n4", b="n5"), *(twice(f"p{i}", f"n{i}") for i in range(1, 6))]
    result = evened(hard)
    assert moves(result) == []
    assert set(kept(result).values()) == {"NoPlace"}


def test_the_fewest_go_that_mend_two_constraints_1032():
    """Four pods on one node: one by one upstream counts two for the zones, and again for the nodes.

    See kubernetes-sigs/descheduler #1032.
    """
    things = [*zones(a="n1 n2", b="n3 n4"), *(twice(x, "n1") for x in "abcd")]
    assert moves(evened(things)) == [("a", "n1", "n3"), ("b", "n1", "n4"), ("c", "n1", "n2")]


def test_even_nodes_are_not_had_at_the_price_of_a_hard_zone_1918():
    """Five nodes in one zone and two in each of two others, nine pods: even zones leave nodes of the first empty.

    See kubernetes-sigs/descheduler #1918, where the pods on the doubled nodes were evicted for ever.
    """
    things = zones(a="n1 n2 n3 n4 n5", b="m1 m2", c="l1 l2")
    on = ["n1", "n2", "m1", "m1", "m2", "l1", "l1", "l2", "n3"]
    things += [
        web(f"p{number}", name).spread(ZONE).spread(HOSTNAME, when=SOFT) for number, name in enumerate(on, start=1)
    ]
    result = evened(things, *BOTH)
    assert moves(result) == []
    assert set(kept(result).values()) == {"NoImprovement"}


def test_a_constraint_with_schedule_anyway_is_mended_on_request():
    things = [*zones(a="n1", b="n2"), *(even(x, "n1", when=SOFT) for x in "abc")]
    assert moves(evened(things, SOFT)) == [("a", "n1", "n2")]
    assert moves(evened(things, *BOTH)) == [("a", "n1", "n2")]


def test_hard_constraints_are_left_alone_where_only_soft_ones_are_asked_for():
    things = [*zones(a="n1", b="n2"), *crowd("abc", "n1")]
    assert moves(evened(things, SOFT)) == []


def test_a_soft_constraint_does_not_stand_in_the_way_of_a_hard_one():
    """Zones are hard, nodes soft: the only node of zone b gets more than its share."""
    things = zones(a="n1 n2 n3 n4", b="n5")
    things += [web(f"p{i}", f"n{i}").spread(ZONE).spread(HOSTNAME, when=SOFT) for i in range(1, 5)]
    assert moves(evened(things, *BOTH)) == [("p1", "n1", "n5"), ("p2", "n2", "n5")]


def test_of_the_smallest_zone_the_node_is_chosen_that_suits_the_soft_constraint():
    things = zones(a="n1", b="n2 n3")
    things += [web(x, "n1").spread(ZONE).spread(HOSTNAME, when=SOFT) for x in "abc"]
    things += [web("d", "n2").spread(ZONE).spread(HOSTNAME, when=SOFT)]
    things[1] = things[1].allocatable(cpu="8")
    assert moves(evened([*things, web("e", "n1").spread(ZONE)], *BOTH)) == [("a", "n1", "n3"), ("b", "n1", "n2")]


def test_the_smallest_domain_comes_before_the_roomiest_node():
    """The scheduler's scores would choose n2; it may, for maxSkew is 2, but another pod had to move then."""
    things = [node("n1").zone("a"), node("n2").zone("b").allocatable(cpu="64"), node("n3").zone("c")]
    things += [*crowd("abcde", "n1", max_skew=2), even("f", "n2", max_skew=2)]
    assert moves(evened(things)) == [("a", "n1", "n3"), ("b", "n1", "n2")]


def test_in_the_smallest_domain_the_node_comes_first_that_other_constraints_count_least_on():
    things = [node("n1").zone("a"), node("n2").zone("b").allocatable(cpu="64"), node("n3").zone("b")]
    things += [
        web(x, on).spread(ZONE).spread(HOSTNAME, max_skew=4) for x, on in zip("abcdf", ["n1"] * 4 + ["n2"], strict=True)
    ]
    assert moves(evened(things)) == [("a", "n1", "n3")]


def test_no_pod_goes_to_another_node_of_its_own_zone():
    """With soft constraints the scheduler would let it, and nothing would be gained."""
    things = [*zones(a="n1 n2"), node("n3").zone("b").allocatable(pods=0)]
    things += [even(x, "n1", when=SOFT) for x in "abc"]
    result = evened(things, SOFT)
    assert (moves(result), kept(result)) == ([], dict.fromkeys("abc", "NoImprovement"))


def test_a_hard_constraint_of_others_is_not_worsened_for_a_soft_one():
    """Pods of two owners share a label: what evens out the one would leave the other's zones uneven."""
    shared = selector(tier="front")
    things = zones(a="n1", b="n2")
    things += [
        web(x, "n1", owner="one").labels(tier="front").spread(ZONE, when=SOFT, labelSelector=selector(app="one"))
        for x in "abc"
    ]
    things += [web(x, "n2", owner="two").labels(tier="front").spread(ZONE, labelSelector=shared) for x in "defg"]
    result = evened(things, SOFT)
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("abc", "NoImprovement")


def test_replica_sets_with_one_selector_are_evened_out_together():
    """During a rollout the old and the new ReplicaSet's pods are counted by one constraint, and either's may go."""
    things = zones(a="n1", b="n2")
    old = [web(x, "n1", owner="old").labels(app="web").spread(ZONE) for x in "ab"]
    new = [web(x, "n1", owner="new").labels(app="web").spread(ZONE).cpu("1") for x in "cd"]
    assert moves(evened([*things, *old, *new])) == [("a", "n1", "n2"), ("b", "n1", "n2")]


def test_with_match_label_keys_each_revision_is_evened_out_by_itself():
    things = zones(a="n1", b="n2")
    things += [even(x, "n1", matchLabelKeys=["revision"]).labels(revision="1") for x in "abc"]
    things += [even(x, "n2", matchLabelKeys=["revision"]).labels(revision="2") for x in "def"]
    assert moves(evened(things)) == [("a", "n1", "n2"), ("d", "n2", "n1")]


def test_pods_that_state_no_constraint_are_counted_but_never_moved():
    """They would be free to come back; upstream evicts them (kubernetes-sigs/descheduler #1167)."""
    things = [*zones(a="n1", b="n2"), *(web(x, "n1") for x in "abc"), even("d", "n1")]
    result = evened(things)
    assert (moves(result), kept(result)) == ([("d", "n1", "n2")], {})
    result = evened(
        [*zones(a="n1", b="n2"), *(web(x, "n1") for x in "abc"), even("d", "n2", labelSelector=selector(app="web"))]
    )
    assert (moves(result), kept(result)) == ([], {})


def test_min_domains_that_are_not_there_count_as_empty():
    things = [*zones(a="n1", b="n2"), *crowd("abc", "n1", minDomains=2)]
    assert moves(evened(things)) == [("a", "n1", "n2")]
    result = evened([*zones(a="n1", b="n2"), *crowd("abc", "n1", minDomains=3), even("d", "n2", minDomains=3)])
    assert moves(result) == []
    assert kept(result) == dict.fromkeys("abc", "NoPlace")
    assert messages(result)["a"] == (
        "topology.kubernetes.io/zone=a has 3 pods, 3 more than 0, for there are 2 of minDomains 3 domains, where "
        "maxSkew is 1; 0/2 nodes are available: 2 node(s) didn't match pod topology spread constraints."
    )


def test_where_the_smallest_domain_is_full_the_next_one_takes_the_pod():
    things = [node("n1").zone("a"), node("n2").zone("b").allocatable(pods=0), node("n3").zone("c")]
    result = evened([*things, *crowd("abcd", "n1", max_skew=2)])
    assert moves(result) == [("a", "n1", "n3"), ("b", "n1", "n3")]
    assert kept(result) == {}


def test_full_domains_keep_the_pods_with_the_numbers():
    things = [node("n1").zone("a"), node("n2").zone("b").allocatable(pods=1), *crowd("abcd", "n1")]
    result = evened(things)
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == dict.fromkeys("bcd", "NoPlace")
    assert messages(result)["b"] == (
        "topology.kubernetes.io/zone=a has 3 pods, 2 more than b with 1, where maxSkew is 1; 0/2 nodes are available: "
        "1 Too many pods, 1 node(s) didn't match pod topology spread constraints."
    )


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
def test_no_pod_is_evicted_for_a_domain_that_does_not_take_it(other, pods):
    things = [node("n1").zone("a"), other, *pods, web("db", "n1", owner="db")]
    result = evened(things)
    assert moves(result) == []
    assert set(kept(result)) == {"a", "b", "c"}
    assert set(kept(result).values()) <= {"NoPlace", "NoImprovement"}


def test_a_budget_that_allows_nothing_keeps_all():
    things = [*zones(a="n1", b="n2"), *crowd("abc", "n1"), budget().selecting(app="web").allowing(0)]
    result = evened(things)
    assert (moves(result), kept(result)) == ([], dict.fromkeys("abc", "DisruptionBudget"))


def test_what_a_limit_cuts_is_named_and_no_more():
    things = [*zones(a="n1", b="n2", c="n3"), *crowd("abcdef", "n1")]
    assert len(moves(evened(things))) == 4
    result = evened(things, limits={"perCycle": 2})
    assert moves(result) == [("a", "n1", "n2"), ("b", "n1", "n3")]
    assert kept(result) == {"c": "LimitReached", "d": "LimitReached"}


def test_the_message_has_the_numbers():
    action = evened([*zones(a="n1", b="n2"), *crowd("abc", "n1")]).actions[0]
    assert action.reason == "TopologySpreadViolated"
    assert action.message == (
        "topology.kubernetes.io/zone=a has 3 pods, 3 more than b with 0, where maxSkew is 1; b has 0"
    )


def test_all_nodes_are_domains_but_only_those_of_the_policy_give_and_take():
    """The scheduler does not know of policies: what is in zone c counts, though nothing may go there."""
    things = zones(a="n1", b="n2", c="n3")
    things = [things[0].labels(pool="x"), things[1].labels(pool="x"), things[2]]
    result = evened([*things, *crowd("abcd", "n1")], nodeSelector={"matchLabels": {"pool": "x"}})
    assert moves(result) == [("a", "n1", "n2")]
    assert kept(result) == dict.fromkeys("bcd", "NoPlace")
    assert messages(result)["b"] == (
        "topology.kubernetes.io/zone=a has 3 pods, 3 more than c with 0, where maxSkew is 1; 0/3 nodes are available: "
        "1 node(s) were not selected by the policy, 2 node(s) didn't match pod topology spread constraints."
    )


def test_topology_balance_node_fit_is_taken_and_changes_nothing():
    things = [node("n1").zone("a"), node("n2").zone("b").allocatable(pods=0), *crowd("abc", "n1")]
    strategy = topology_spread()
    for value in (True, False):
        next(iter(strategy.values()))["params"] = {"topologyBalanceNodeFit": value}
        assert kept(plan(things, strategy)) == dict.fromkeys("abc", "NoPlace")


@pytest.mark.parametrize("own", [True, False], ids=["states the constraint", "is only counted"])
def test_no_later_strategy_makes_domains_uneven_again(own):
    """Low use of n2 alone would bring it more pods, until its zone had all of them."""
    balance = utilization({"cpu": 20}, {"cpu": 30})
    things = [*zones(a="n1", b="n2"), web("anchor", "n1", owner="db").volume("emptyDir").cpu("500m")]
    things += [even(x, "n1").cpu("10m") for x in "ab"] + [even(x, "n2").cpu("10m") for x in "cdef"]
    things += [(even("big", "n1") if own else web("big", "n1")).cpu("1")]
    assert [name for name, _, _ in moves(plan(things, balance))] == ([] if own else ["big"])
    result = plan(things, balance | topology_spread())
    assert moves(result) == []
    text = "node(s) were in a domain with too many pods of a topology spread constraint"
    assert own or text in messages(result)["big"]


def test_duplicates_are_spread_within_what_the_constraint_allows():
    things = zones(a="n1", b="n2 n3 n4")
    things += [even("a", "n1"), even("b", "n1"), even("c", "n2"), even("d", "n2")]
    result = plan(things, topology_spread() | {DUPLICATES: {}})
    assert moves(result) == [("c", "n2", "n3")]


def test_taints_and_node_affinity_come_before_and_duplicates_after():
    order = [kind.NAME.removeprefix("RemovePodsViolating") for kind in IN_ORDER]
    wanted = ["NodeTaints", "NodeAffinity", "InterPodAntiAffinity", "TopologySpreadConstraint", "RemoveDuplicates"]
    assert [name for name in order if name in wanted] == wanted
