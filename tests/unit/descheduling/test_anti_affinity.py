"""RemovePodsViolatingInterPodAntiAffinity: the fewest pods go, whoever states the rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, namespace, node, pod, selector
from tests.unit.descheduling.planning import ANTI_AFFINITY, kept, messages, moves, nodes, plan, web

ONLY = {ANTI_AFFINITY: {}}


def app(name: str, on: str, *against: str, key: str = HOSTNAME, **term: Any) -> PodBuilder:
    """A pod labelled app=<name> with a rule against each of the apps named."""
    builder = web(name, on, owner=name)
    for other in against:
        builder.anti_affinity(key, labelSelector=selector(app=other), **term)
    return builder


def apart(name: str, on: str, key: str = HOSTNAME) -> PodBuilder:
    """A pod that must not be with its siblings."""
    return web(name, on).anti_affinity(key)


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a"), app("c", "n1", "a")],
            [("a", "n1", "n2")],
            id="the documentation's example: podB and podC have rules against podA, which goes alone",
        ),
        pytest.param(
            # upstream evicts the three that state the rule
            [*nodes("n1", "n2"), app("p2", "n1"), *(app(name, "n1", "p2") for name in ("p1", "p3", "p4"))],
            [("p2", "n1", "n2")],
            id="three around one: the one goes",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1", "x", "y", "z"), *(app(name, "n1") for name in "xyz")],
            [("a", "n1", "n2")],
            id="one with rules against three: the one goes",
        ),
        pytest.param(
            [*nodes("n1", "n2", "n3"), apart("a", "n1"), apart("b", "n1"), apart("c", "n1")],
            [("a", "n1", "n2"), ("b", "n1", "n3")],
            id="three that must not be together: two go",
        ),
        pytest.param(
            [*nodes("n1", "n2"), apart("a", "n1"), apart("b", "n2")],
            [],
            id="apart already",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a").priority(10)],
            [("a", "n1", "n2")],
            id="of a pair the lower priority goes: the one that is picked",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").priority(10), app("b", "n1", "a")],
            [("b", "n1", "n2")],
            id="of a pair the lower priority goes: the one that states the rule",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").deleted(), app("b", "n1", "a")],
            [],
            id="a pod on its way out is no conflict",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").phase("Failed"), app("b", "n1", "a")],
            [],
            id="a pod that has ended is no conflict",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                pod("a", "blog").labels(app="a").owned_by("ReplicaSet", "a").on("n1"),
                app("b", "n1", "a"),
            ],
            [],
            id="a term without namespaces means the pod's own",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                pod("a", "blog").labels(app="a").owned_by("ReplicaSet", "a").on("n1"),
                app("b", "n1", "a", namespaces=["blog"]).priority(1),
            ],
            [("a", "n1", "n2")],
            id="a term with namespaces",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                namespace("blog").labels(team="x"),
                pod("a", "blog").labels(app="a").owned_by("ReplicaSet", "a").on("n1"),
                app("b", "n1", "a", namespaceSelector=selector(team="x")).priority(1),
            ],
            [("a", "n1", "n2")],
            id="a term with a namespace selector",
        ),
        pytest.param(
            [
                node("n1").zone("x"),
                node("n2").zone("x"),
                node("n3").zone("y"),
                apart("a", "n1", ZONE),
                apart("b", "n2", ZONE),
            ],
            [("a", "n1", "n3")],
            id="a zone's nodes are one domain, and another node of the zone is no way out",
        ),
        pytest.param(
            [node("n1"), node("n2"), apart("a", "n1", ZONE), apart("b", "n1", ZONE)],
            [],
            id="nodes without the topology label are no domain",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a"), app("c", "n2", "a")],
            [("b", "n1", "n2")],
            id="the pod that has a place goes",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").volume("emptyDir"), app("b", "n1", "a"), app("c", "n1", "a")],
            [("b", "n1", "n2"), ("c", "n1", "n2")],
            id="where the fewest must not go, the others go",
        ),
        pytest.param(
            [*nodes("n1"), node("n2").allocatable(pods=1), *(apart(name, "n1") for name in "abc")],
            [("a", "n1", "n2")],
            id="if not all conflicts can end, some do",
        ),
        pytest.param(
            [*nodes("n1", "n2"), *(app(f"p{i:02}", "n1", "hub") for i in range(40)), app("hub", "n1")],
            [("hub", "n1", "n2")],
            id="many around one: the one goes",
        ),
        pytest.param(
            # a - b - c - d in a row: b and c would do, as a and c, b and d; the first by order are spared last
            [*nodes("n1", "n2"), app("a", "n1", "b"), app("b", "n1", "c"), app("c", "n1", "d"), app("d", "n1")],
            [("a", "n1", "n2"), ("c", "n1", "n2")],
            id="of equally few the lesser go",
        ),
    ],
)
def test_the_fewest_pods_go_that_end_all_conflicts(things, expected):
    assert moves(plan(things, ONLY)) == expected


def test_a_clique_that_is_too_large_to_be_solved_exactly_is_parted_all_the_same():
    things = [*nodes(*(f"n{i:02}" for i in range(20))), *(apart(f"p{i:02}", "n00") for i in range(20))]
    result = plan(things, ONLY)
    assert len(result.actions) == 19
    assert len({action.target for action in result.actions}) == 19
    assert result.kept == ()


def test_pods_that_stay_in_conflict_are_named():
    things = [*nodes("n1", "n2"), app("a", "n1").volume("hostPath", path="/"), app("b", "n1", "a").cpu("3")]
    things += [web("full", "n2").cpu("2")]
    result = plan(things, ONLY)
    assert moves(result) == []
    assert kept(result) == {"a": "LocalStorage", "b": "NoPlace"}
    assert messages(result)["b"] == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod anti-affinity rules."
    )


def test_pods_whose_conflict_ends_are_not_named():
    """The protected pod stays, and nothing is wrong with it any more."""
    things = [*nodes("n1", "n2"), app("a", "n1").volume("emptyDir"), app("b", "n1", "a")]
    result = plan(things, ONLY)
    assert (moves(result), kept(result)) == ([("b", "n1", "n2")], {})


def test_pods_out_of_scope_are_conflicts_but_no_candidates():
    """Upstream does not see the pods of excluded namespaces, and leaves what they conflict with where it is."""
    other = pod("a", "blog").labels(app="a").owned_by("ReplicaSet", "a").on("n1")
    things = [*nodes("n1", "n2"), other, app("b", "n1", "a", namespaces=["blog"]).priority(100)]
    result = plan(things, ONLY, namespaces={"exclude": ["blog"]})
    assert (moves(result), kept(result)) == ([("b", "n1", "n2")], {})


def test_a_budget_makes_the_other_side_go():
    things = [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a"), app("c", "n1", "a")]
    things.append(budget().selecting(app="a").allowing(0))
    assert moves(plan(things, ONLY)) == [("b", "n1", "n2"), ("c", "n1", "n2")]


def test_the_message_names_the_others():
    things = [*nodes("n1", "n2"), app("a", "n1"), *(app(name, "n1", "a") for name in "bcdef")]
    [action] = plan(things, ONLY).actions
    assert action.reason == "InterPodAntiAffinityViolated"
    assert action.message == (
        "required anti-affinity forbids 5 pods in kubernetes.io/hostname=n1 together with this one: "
        "shop/b, shop/c, shop/d and 2 more"
    )


def test_a_limit_cuts_the_fewest_and_sends_no_others_in_their_stead():
    things = [*nodes("n1", "n2"), app("a", "n1"), *(app(name, "n1", "a") for name in "bcd")]
    things += [app("k", "n2"), *(app(name, "n2", "k") for name in "lmn")]
    result = plan(things, ONLY, limits={"perCycle": 1})
    assert (moves(result), kept(result)) == ([("a", "n1", "n2")], {"k": "LimitReached"})


def test_what_has_no_place_is_not_told_of_a_limit():
    things = [*nodes("n1", "n2"), apart("a", "n1"), apart("b", "n1"), apart("c", "n1")]
    result = plan(things, ONLY, limits={"perCycle": 1})
    assert (moves(result), kept(result)) == ([("a", "n1", "n2")], {"b": "NoPlace", "c": "NoPlace"})
