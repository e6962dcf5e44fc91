"""RemovePodsViolatingInterPodAntiAffinity: the fewest pods go, whoever states the rule."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, namespace, node, pod, selector
from tests.unit.descheduling.planning import (
    ANTI_AFFINITY,
    PREFERRED,
    REQUIRED,
    anti_affinity,
    kept,
    messages,
    moves,
    nodes,
    plan,
    utilization,
    web,
)

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


SOFT = anti_affinity(PREFERRED)
BOTH = anti_affinity(REQUIRED, PREFERRED)


def shy(name: str, on: str, of: str | None = None, weight: int = 10, key: str = HOSTNAME) -> PodBuilder:
    """A pod that would rather not be with those labelled ``of``, by default its likes."""
    if of is None:
        return web(name, on).anti_affinity(key, preferred=weight)
    return app(name, on).anti_affinity(key, preferred=weight, labelSelector=selector(app=of))


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1")],
            [("a", "n1", "n2")],
            id="of two that would rather be apart one goes",
        ),
        pytest.param([*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n2")], [], id="apart already"),
        pytest.param([*nodes("n1"), shy("a", "n1"), shy("b", "n1")], [], id="there is no other node"),
        pytest.param([*nodes("n1", "n2"), apart("a", "n1"), apart("b", "n1")], [], id="rules were not asked for"),
        pytest.param(
            [*nodes("n1", "n2"), *(shy(name, "n1") for name in "abcde")],
            [("a", "n1", "n2"), ("b", "n1", "n2")],
            id="five on two nodes become three and two",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("hub", "n1"), *(shy(name, "n1", "hub") for name in "abc")],
            [("hub", "n1", "n2")],
            id="three around one: the one goes, whoever states it",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("hub", "n1").priority(5), *(shy(name, "n1", "hub") for name in "abc")],
            [("a", "n1", "n2"), ("b", "n1", "n2"), ("c", "n1", "n2")],
            id="unless it matters more",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                shy("a", "n1", "x", 10),
                shy("b", "n1", "y", 90),
                app("x", "n1").priority(1),
                app("y", "n1").priority(1),
            ],
            [("b", "n1", "n2"), ("a", "n1", "n2")],
            id="the heavier first",
        ),
        pytest.param(
            [
                *nodes("n1", "n2", "n3"),
                shy("a", "n1"),
                shy("b", "n1"),
                shy("c", "n2"),
                web("full", "n3", owner="full").cpu("3"),
            ],
            [("a", "n1", "n3")],
            id="it goes where the least speaks against it, however full",
        ),
        pytest.param(
            [
                node("n1").zone("x"),
                node("n2").zone("x"),
                node("n3").zone("y"),
                shy("a", "n1", key=ZONE),
                shy("b", "n2", key=ZONE),
            ],
            [("a", "n1", "n3")],
            id="in one zone is together",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                shy("a", "n1", "x", 10),
                app("x", "n1").volume("emptyDir"),
                app("y", "n2"),
                shy("c", "n2", "a", 20),
            ],
            [],
            id="not to where it would weigh more on others",
        ),
        pytest.param(
            [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1").deleted()],
            [],
            id="what is on its way out does no harm",
        ),
        pytest.param(
            [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1").phase("Succeeded")],
            [],
            id="nor what has ended",
        ),
        pytest.param(
            [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1"), shy("c", "n2").deleted()],
            [("a", "n1", "n2")],
            id="wherever it is",
        ),
    ],
)
def test_pods_that_would_rather_be_apart_are_parted_if_that_helps(things, expected):
    assert moves(plan(things, SOFT)) == expected


def test_preferences_are_left_alone_unless_they_are_asked_for():
    things = [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1")]
    for strategies in (ONLY, anti_affinity(REQUIRED)):
        assert (moves(plan(things, strategies)), kept(plan(things, strategies))) == ([], {})


def test_what_must_part_goes_where_it_would_rather_be():
    things = [*nodes("n1", "n2", "n3"), app("a", "n1", "b").anti_affinity(preferred=5, labelSelector=selector(app="x"))]
    things += [app("b", "n1").priority(1), app("x", "n2"), web("full", "n3", owner="full").cpu("3")]
    assert moves(plan(things, BOTH)) == [("a", "n1", "n3")]


def test_pods_that_stay_together_against_their_wish_are_named():
    things = [
        *nodes("n1", "n2"),
        shy("a", "n1").volume("emptyDir"),
        shy("b", "n1").cpu("3"),
        app("full", "n2").cpu("2"),
    ]
    result = plan(things, SOFT)
    assert (moves(result), kept(result)) == ([], {"a": "LocalStorage", "b": "NoPlace"})
    result = plan([*nodes("n1", "n2"), *(shy(name, "n1") for name in "ab"), *(shy(name, "n2") for name in "cd")], SOFT)
    assert (moves(result), set(kept(result).values())) == ([], {"NoImprovement"})
    assert messages(result)["a"] == (
        "0/2 nodes are available: 1 node(s) already ran the pod, "
        "1 node(s) had a preferred anti-affinity weight of 20 or more."
    )


def test_the_message_has_the_weights():
    [action] = plan([*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1")], SOFT).actions
    assert action.reason == "InterPodAntiAffinityViolated"
    assert action.message == "preferred anti-affinity between this pod and others weighs 20 on n1; on n2 0"


def test_later_strategies_do_not_bring_them_together_again():
    balance = utilization({"cpu": 20}, {"cpu": 50})
    things = [
        *nodes("n1", "n2"),
        shy("a", "n1").cpu("1"),
        web("other", "n1", owner="other").cpu("1500m"),
        shy("b", "n2"),
    ]
    assert moves(plan(things, balance)) == [("a", "n1", "n2")]
    assert moves(plan(things, {**balance, **SOFT})) == [("other", "n1", "n2")]
