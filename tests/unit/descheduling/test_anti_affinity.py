"""Required and preferred anti-affinity between pods, and the fewest pods that end all conflicts."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, namespace, node, pod, selector
from tests.fixtures.golden import Golden
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
from trimtab.descheduling.planning.anti_affinity_conflicts import bits, minimum_vertex_cover

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
            id="the documentation's example: podB and podC have terms against podA, which is evicted",
        ),
        pytest.param(
            # upstream evicts the three that state the rule
            [*nodes("n1", "n2"), app("p2", "n1"), *(app(name, "n1", "p2") for name in ("p1", "p3", "p4"))],
            [("p2", "n1", "n2")],
            id="three terms against one pod: that pod is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1", "x", "y", "z"), *(app(name, "n1") for name in "xyz")],
            [("a", "n1", "n2")],
            id="one pod with terms against three: that pod is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2", "n3"), apart("a", "n1"), apart("b", "n1"), apart("c", "n1")],
            [("a", "n1", "n2"), ("b", "n1", "n3")],
            id="three pods with mutual terms: two are evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), apart("a", "n1"), apart("b", "n2")],
            [],
            id="pods are on different nodes",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a").priority(10)],
            [("a", "n1", "n2")],
            id="the selected pod of a pair has lower priority and is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").priority(10), app("b", "n1", "a")],
            [("b", "n1", "n2")],
            id="the pod with the term has lower priority and is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").deleted(), app("b", "n1", "a")],
            [],
            id="a terminating pod does not conflict",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").phase("Failed"), app("b", "n1", "a")],
            [],
            id="a terminated pod does not conflict",
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
            [("b", "n1", "n2")],
            id="a term with namespaces does not evict the pod of another namespace",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                namespace("blog").labels(team="x"),
                pod("a", "blog").labels(app="a").owned_by("ReplicaSet", "a").on("n1"),
                app("b", "n1", "a", namespaceSelector=selector(team="x")).priority(1),
            ],
            [("b", "n1", "n2")],
            id="a term with a namespace selector does not evict the pod of another namespace",
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
            id="another node of the same zone does not resolve a conflict by zone",
        ),
        pytest.param(
            [node("n1"), node("n2"), apart("a", "n1", ZONE), apart("b", "n1", ZONE)],
            [],
            id="nodes without the topology label are no domain",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a"), app("c", "n2", "a")],
            [("b", "n1", "n2")],
            id="the pod that fits on another node is evicted",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1").volume("emptyDir"), app("b", "n1", "a"), app("c", "n1", "a")],
            [("b", "n1", "n2"), ("c", "n1", "n2")],
            id="if the smallest set is protected, the other pods are evicted",
        ),
        pytest.param(
            [*nodes("n1"), node("n2").allocatable(pods=1), *(apart(name, "n1") for name in "abc")],
            [("a", "n1", "n2")],
            id="some conflicts are resolved if not all can be",
        ),
        pytest.param(
            [*nodes("n1", "n2"), *(app(f"p{i:02}", "n1", "hub") for i in range(40)), app("hub", "n1")],
            [("hub", "n1", "n2")],
            id="many terms against one pod: that pod is evicted",
        ),
        pytest.param(
            # a - b - c - d in a row: b and c would do, as a and c, b and d; the first by order are spared last
            [*nodes("n1", "n2"), app("a", "n1", "b"), app("b", "n1", "c"), app("c", "n1", "d"), app("d", "n1")],
            [("a", "n1", "n2"), ("c", "n1", "n2")],
            id="of equally small sets, the one with lower priority is evicted",
        ),
    ],
)
def test_fewest_pods_resolving_all_conflicts_are_evicted(things, expected):
    assert moves(plan(things, ONLY)) == expected


def test_large_clique_is_resolved_greedily():
    objects = [*nodes(*(f"n{i:02}" for i in range(20))), *(apart(f"p{i:02}", "n00") for i in range(20))]
    result = plan(objects, ONLY)
    assert len(result.actions) == 19
    assert len({action.target for action in result.actions}) == 19
    assert result.kept == ()


def test_pods_still_in_conflict_are_reported(golden: Golden):
    objects = [*nodes("n1", "n2"), app("a", "n1").volume("hostPath", path="/"), app("b", "n1", "a").cpu("3")]
    objects += [web("full", "n2").cpu("2")]
    result = plan(objects, ONLY)
    assert moves(result) == []
    assert kept(result) == {"a": "LocalStorage", "b": "NoPlace"}
    golden(messages(result)["b"])


def test_pods_without_remaining_conflict_are_not_reported():
    """The protected pod stays, and nothing is wrong with it any more."""
    objects = [*nodes("n1", "n2"), app("a", "n1").volume("emptyDir"), app("b", "n1", "a")]
    result = plan(objects, ONLY)
    assert (moves(result), kept(result)) == ([("b", "n1", "n2")], {})


def test_pods_out_of_scope_are_conflicts_but_no_candidates():
    """Upstream does not see the pods of excluded namespaces, and leaves what they conflict with where it is."""
    other = pod("a", "blog").labels(app="a").owned_by("ReplicaSet", "a").on("n1")
    objects = [*nodes("n1", "n2"), other, app("b", "n1", "a", namespaces=["blog"]).priority(100)]
    result = plan(objects, ONLY, namespaces={"exclude": ["blog"]})
    assert (moves(result), kept(result)) == ([("b", "n1", "n2")], {})


def test_pdb_on_one_pod_evicts_the_other():
    objects = [*nodes("n1", "n2"), app("a", "n1"), app("b", "n1", "a"), app("c", "n1", "a")]
    objects.append(budget().selecting(app="a").allowing(0))
    assert moves(plan(objects, ONLY)) == [("b", "n1", "n2"), ("c", "n1", "n2")]


def test_message_lists_conflicting_pods(golden: Golden):
    objects = [*nodes("n1", "n2"), app("a", "n1"), *(app(name, "n1", "a") for name in "bcdef")]
    [action] = plan(objects, ONLY).actions
    assert action.reason == "InterPodAntiAffinityViolated"
    golden(action.message)


def test_limit_evicts_no_substitutes():
    objects = [*nodes("n1", "n2"), app("a", "n1"), *(app(name, "n1", "a") for name in "bcd")]
    objects += [app("k", "n2"), *(app(name, "n2", "k") for name in "lmn")]
    result = plan(objects, ONLY, limits={"perCycle": 1})
    assert (moves(result), kept(result)) == ([("a", "n1", "n2")], {"k": "LimitReached"})


def test_pod_without_target_is_not_reported_as_limited():
    objects = [*nodes("n1", "n2"), apart("a", "n1"), apart("b", "n1"), apart("c", "n1")]
    result = plan(objects, ONLY, limits={"perCycle": 1})
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
            id="one of two pods with preferred anti-affinity is evicted",
        ),
        pytest.param([*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n2")], [], id="pods are on different nodes"),
        pytest.param([*nodes("n1"), shy("a", "n1"), shy("b", "n1")], [], id="there is no other node"),
        pytest.param(
            [*nodes("n1", "n2"), apart("a", "n1"), apart("b", "n1")], [], id="preferred terms are not configured"
        ),
        pytest.param(
            [*nodes("n1", "n2"), *(shy(name, "n1") for name in "abcde")],
            [("a", "n1", "n2"), ("b", "n1", "n2")],
            id="five on two nodes become three and two",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("hub", "n1"), *(shy(name, "n1", "hub") for name in "abc")],
            [("hub", "n1", "n2")],
            id="three preferred terms with one pod: that pod is evicted",
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
            id="the target has the lowest anti-affinity weight regardless of its utilization",
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
            id="pods in one zone conflict by zone",
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
            id="terminating pods do not count",
        ),
        pytest.param(
            [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1").phase("Succeeded")],
            [],
            id="terminated pods do not count",
        ),
        pytest.param(
            [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1"), shy("c", "n2").deleted()],
            [("a", "n1", "n2")],
            id="wherever it is",
        ),
    ],
)
def test_preferred_anti_affinity_is_improved(things, expected):
    assert moves(plan(things, SOFT)) == expected


def test_preferences_are_ignored_by_default():
    objects = [*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1")]
    for strategies in (ONLY, anti_affinity(REQUIRED)):
        assert (moves(plan(objects, strategies)), kept(plan(objects, strategies))) == ([], {})


def test_required_moves_respect_preferences():
    objects = [
        *nodes("n1", "n2", "n3"),
        app("a", "n1", "b").anti_affinity(preferred=5, labelSelector=selector(app="x")),
    ]
    objects += [app("b", "n1").priority(1), app("x", "n2"), web("full", "n3", owner="full").cpu("3")]
    assert moves(plan(objects, BOTH)) == [("a", "n1", "n3")]


def test_unimproved_preferences_are_reported(golden: Golden):
    objects = [
        *nodes("n1", "n2"),
        shy("a", "n1").volume("emptyDir"),
        shy("b", "n1").cpu("3"),
        app("full", "n2").cpu("2"),
    ]
    result = plan(objects, SOFT)
    assert (moves(result), kept(result)) == ([], {"a": "LocalStorage", "b": "NoPlace"})
    result = plan([*nodes("n1", "n2"), *(shy(name, "n1") for name in "ab"), *(shy(name, "n2") for name in "cd")], SOFT)
    assert (moves(result), set(kept(result).values())) == ([], {"NoImprovement"})
    golden(messages(result)["a"])


def test_message_has_weights(golden: Golden):
    [action] = plan([*nodes("n1", "n2"), shy("a", "n1"), shy("b", "n1")], SOFT).actions
    assert action.reason == "InterPodAntiAffinityViolated"
    golden(action.message)


def test_later_strategies_do_not_increase_weight():
    balance = utilization({"cpu": 20}, {"cpu": 50})
    objects = [
        *nodes("n1", "n2"),
        shy("a", "n1").cpu("1"),
        web("other", "n1", owner="other").cpu("1500m"),
        shy("b", "n2"),
    ]
    assert moves(plan(objects, balance)) == [("a", "n1", "n2")]
    assert moves(plan(objects, {**balance, **SOFT})) == [("other", "n1", "n2")]


def graph(number: int, edges: list[tuple[int, int]]) -> list[int]:
    adjacency = [0] * number
    for one, other in edges:
        adjacency[one] |= 1 << other
        adjacency[other] |= 1 << one
    return adjacency


def by_trying(number: int, edges: list[tuple[int, int]], must: int) -> int:
    """The lowest number among the smallest covers that hold ``must``."""
    for size in range(number + 1):
        covers = [sum(1 << vertex for vertex in chosen) for chosen in combinations(range(number), size)]
        good = [
            cover
            for cover in covers
            if cover & must == must and all(cover >> one & 1 or cover >> other & 1 for one, other in edges)
        ]
        if good:
            return min(good)
    raise AssertionError("all vertices are a cover")


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]], int]:
    number = draw(st.integers(0, 8))
    pairs = list(combinations(range(number), 2))
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return number, edges, draw(st.integers(0, (1 << number) - 1)) if draw(st.booleans()) else 0


@given(graphs())
def test_cover_is_minimal(drawn):
    number, edges, must = drawn
    assert minimum_vertex_cover(graph(number, edges), must) == by_trying(number, edges, must)


@pytest.mark.parametrize(
    ("number", "edges", "expected"),
    [
        pytest.param(0, [], [], id="nothing"),
        pytest.param(3, [], [], id="no edges"),
        pytest.param(2, [(0, 1)], [0], id="one edge: the first"),
        pytest.param(4, [(0, 3), (1, 3), (2, 3)], [3], id="a star: its middle"),
        pytest.param(3, [(0, 1), (1, 2), (0, 2)], [0, 1], id="a triangle: all except the last"),
        pytest.param(4, [(0, 1), (1, 2), (2, 3)], [0, 2], id="a path"),
        pytest.param(16, list(combinations(range(16), 2)), list(range(15)), id="sixteen, each with each"),
        pytest.param(16, [(i, i + 8) for i in range(8)], list(range(8)), id="eight pairs"),
    ],
)
def test_minimum_cover_of_known_graphs(number, edges, expected):
    assert list(bits(minimum_vertex_cover(graph(number, edges)))) == expected
