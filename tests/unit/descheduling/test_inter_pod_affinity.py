"""RemovePodsViolatingInterPodAffinity: who follows whom, and who stays for the sake of others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, node, selector
from tests.unit.descheduling.planning import (
    DUPLICATES,
    PREFERRED,
    REQUIRED,
    affinity,
    anti_affinity,
    kept,
    messages,
    moves,
    nodes,
    plan,
    utilization,
    web,
)

HARD = affinity()
SOFT = affinity(PREFERRED)
BOTH = affinity(REQUIRED, PREFERRED)


def app(name: str, on: str, wants: str | None = None, key: str = HOSTNAME, weight: int | None = None) -> PodBuilder:
    """A pod labelled with its name, with an owner of its own, that wants to be with those labelled ``wants``."""
    found = web(name, on, owner=name)
    return found if wants is None else found.affinity(key, preferred=weight, labelSelector=selector(app=wants))


def of(name: str, label: str, on: str) -> PodBuilder:
    """A pod of the owner ``label``."""
    return web(name, on, owner=label)


def zoned(*places: tuple[str, str]) -> list[Any]:
    return [node(name).zone(zone) for name, zone in places]


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n2")],
            [("web", "n1", "n2")],
            id="a pod follows the one that it must be with",
        ),
        pytest.param([*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n1")], [], id="together already"),
        pytest.param([*nodes("n1", "n2"), app("web", "n1", "cache")], [], id="nobody is there to follow"),
        pytest.param(
            [*zoned(("n1", "x"), ("n2", "x"), ("n3", "y")), app("web", "n1", "cache", ZONE), app("cache", "n2")],
            [],
            id="in one zone is together, if the zone is asked for",
        ),
        pytest.param(
            [*zoned(("n1", "x"), ("n2", "y"), ("n3", "y")), app("web", "n1", "cache", ZONE), app("cache", "n2")],
            [("web", "n1", "n3")],
            id="any node of the zone will do, the emptiest is best",
        ),
        pytest.param(
            [node("n1"), node("n2").zone("x"), app("web", "n1", "cache", ZONE), app("cache", "n2")],
            [("web", "n1", "n2")],
            id="a node without the topology label is nowhere",
        ),
        pytest.param(
            [*nodes("n1", "n2"), web("a", "n1").affinity(), web("b", "n2").affinity(), web("c", "n2").affinity()],
            [("a", "n1", "n2")],
            id="one that is alone joins the others of its kind",
        ),
        pytest.param(
            [
                *nodes("n1", "n2", "n3"),
                *(web(name, on).affinity() for name, on in zip("abc", ("n1", "n2", "n3"), strict=True)),
            ],
            [("a", "n1", "n2"), ("c", "n3", "n2")],
            id="three that are alone are brought together by two moves",
        ),
        pytest.param([*nodes("n1", "n2"), web("a", "n1").affinity()], [], id="the first of its kind may be anywhere"),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1", "b"), app("b", "n2", "a")],
            [("a", "n1", "n2")],
            id="of two that want each other one goes, the lesser",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1", "b").priority(10), app("b", "n2", "a")],
            [("b", "n2", "n1")],
            id="the lesser by priority",
        ),
        pytest.param(
            [
                *nodes("n1", "n2", "n3"),
                app("web", "n1", "cache").affinity(labelSelector=selector(tier="db")),
                app("cache", "n2"),
                web("both", "n3", owner="cache").labels(tier="db"),
            ],
            [("web", "n1", "n3")],
            id="several terms must be met by the same pods",
        ),
        pytest.param(
            [*nodes("n1", "n2", "n3"), app("web", "n1", "cache"), app("cache", "n2").deleted(), of("c", "cache", "n3")],
            [("web", "n1", "n3")],
            id="nobody follows a pod that is on its way out",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n1").deleted(), of("c", "cache", "n2")],
            [],
            id="but stays with it until it is gone",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache"),
                app("cache", "n1").phase("Succeeded"),
                of("c", "cache", "n2"),
            ],
            [("web", "n1", "n2")],
            id="one that has ended is nobody",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache", weight=100), app("cache", "n2")],
            [],
            id="a preference is no rule",
        ),
    ],
)
def test_pods_follow_those_that_they_must_be_with(things, expected):
    assert moves(plan(things, HARD)) == expected


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache", weight=10), app("cache", "n2")],
            [("web", "n1", "n2")],
            id="a pod follows the one that it would rather be with",
        ),
        pytest.param(
            [
                *nodes("n1", "n2", "n3"),
                app("web", "n1", "cache", weight=10),
                app("cache", "n2"),
                of("c1", "cache", "n3"),
                of("c2", "cache", "n3"),
            ],
            [("web", "n1", "n3")],
            id="it goes where most are, as the scheduler counts them",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache", weight=10),
                of("c0", "cache", "n1"),
                of("c1", "cache", "n2"),
                of("c2", "cache", "n2"),
            ],
            [],
            id="one is enough: it does not follow the crowd",
        ),
        pytest.param(
            # the scheduler counts 3 times 20 on n1 and would send it back
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache", weight=50).affinity(preferred=20, labelSelector=selector(app="log")),
                app("cache", "n2"),
                *(of(f"l{number}", "log", "n1") for number in range(3)),
            ],
            [],
            id="nor where the scheduler finds less",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache", weight=50).affinity(preferred=20, labelSelector=selector(app="log")),
                app("cache", "n2"),
                app("log", "n1"),
            ],
            [("web", "n1", "n2")],
            id="the heavier preference counts",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache", weight=10), app("cache", "n2").deleted()],
            [],
            id="nobody follows a pod that is on its way out",
        ),
        pytest.param(
            # b finds web on n1, and would miss as much as web would gain
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache", weight=10),
                app("b", "n1", "web", weight=10),
                app("cache", "n2"),
            ],
            [],
            id="nobody leaves another one alone for no more than that",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache", weight=11),
                app("b", "n1", "web", weight=10),
                app("cache", "n2"),
            ],
            [("web", "n1", "n2"), ("b", "n1", "n2")],
            id="if it gains more it goes, and the other one follows",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n2")],
            [],
            id="rules are not looked at where they were not asked for",
        ),
    ],
)
def test_pods_follow_those_that_they_would_rather_be_with(things, expected):
    assert moves(plan(things, SOFT)) == expected


def test_a_rule_comes_before_preferences_and_these_choose_between_places():
    things = [*nodes("n1", "n2", "n3"), app("cache", "n2"), of("c", "cache", "n3"), app("log", "n3").cpu("3")]
    things.append(app("web", "n1", "cache").affinity(preferred=1, labelSelector=selector(app="log")))
    assert moves(plan(things, BOTH)) == [("web", "n1", "n3")]


def test_nobody_takes_from_another_one_what_it_must_have():
    """a must be with web, web with cache: were web to go, a would be as badly off as web is now."""
    things = [
        *nodes("n1", "n2"),
        app("a", "n1", "web").volume("emptyDir"),
        app("web", "n1", "cache"),
        app("cache", "n2"),
    ]
    result = plan(things, HARD)
    assert (moves(result), kept(result)) == ([], {"web": "NoImprovement"})
    assert messages(result)["web"] == ("1 pods without their required pod affinity with the pod on n1, 1 with it on n2")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda pod: pod.volume("emptyDir"), "LocalStorage", id="protected"),
        pytest.param(lambda pod: pod.cpu("5"), "NoPlace", id="no room"),
        pytest.param(lambda pod: pod.node_selector(disk="ssd"), "NoPlace", id="no node"),
    ],
)
def test_pods_that_stay_are_named_with_the_reason(change, reason):
    things = [*nodes("n1", "n2"), change(app("web", "n1", "cache")), app("cache", "n2")]
    result = plan(things, HARD)
    assert (moves(result), kept(result)) == ([], {"web": reason})


def test_a_pod_with_nobody_to_follow_is_named():
    result = plan([*nodes("n1", "n2"), app("web", "n1", "cache")], HARD)
    assert kept(result) == {"web": "NoPlace"}
    assert messages(result)["web"] == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."


def test_budgets_and_limits_hold():
    things = [
        *nodes("n1", "n2"),
        app("cache", "n2"),
        *(of(name, "web", "n1").affinity(labelSelector=selector(app="cache")) for name in "abc"),
    ]
    result = plan([*things, budget().selecting(app="web").allowing(1)], HARD)
    assert (moves(result), kept(result)) == ([("a", "n1", "n2")], dict.fromkeys("bc", "DisruptionBudget"))
    result = plan(things, HARD, limits={"perNode": 2})
    assert kept(result) == {"c": "LimitReached"}


def test_pods_out_of_scope_stay_and_are_followed_all_the_same():
    blog = web("cache", "n2", owner="cache", namespace="blog")
    follower = web("web", "n1").affinity(namespaces=["blog"], labelSelector=selector(app="cache"))
    things = [*nodes("n1", "n2"), blog, follower]
    assert moves(plan(things, HARD, namespaces={"include": ["shop"]})) == [("web", "n1", "n2")]
    assert moves(plan(things, HARD, namespaces={"include": ["blog"]})) == []


def test_messages_have_what_was_compared():
    [action] = plan([*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n2")], HARD).actions
    assert action.reason == "InterPodAffinityViolated"
    assert action.message == "the pod's required pod affinity does not hold on n1; on n2 it does"
    [action] = plan([*nodes("n1", "n2"), app("web", "n1", "cache", weight=10), app("cache", "n2")], SOFT).actions
    assert action.message == "what the pod's preferred pod affinity asks for weighs 0 on n1; on n2 10"


def test_what_must_part_is_parted_first_and_followed():
    """The foe makes cache go, and web goes with it."""
    things = [
        *nodes("n1", "n2"),
        app("web", "n1", "cache").priority(1),
        app("cache", "n1"),
        app("foe", "n1").priority(1),
    ]
    things[-1].anti_affinity(labelSelector=selector(app="cache"))
    result = plan(things, {**anti_affinity(), **HARD})
    assert moves(result) == [("cache", "n1", "n2"), ("web", "n1", "n2")]


def test_later_strategies_do_not_part_pods_again():
    """Balance would take cache away from web, duplicates one of two caches, which is as well."""
    balance = utilization({"cpu": 20}, {"cpu": 50})
    things = [
        *nodes("n1", "n2"),
        app("web", "n1", "cache").volume("emptyDir"),
        app("cache", "n1").cpu("1"),
        app("big", "n1").cpu("2"),
    ]
    assert moves(plan(things, balance)) == [("cache", "n1", "n2")]
    result = plan(things, {**balance, **HARD})
    assert moves(result) == [("big", "n1", "n2")]
    assert kept(result) == {"web": "IrrelevantResource", "cache": "NoImprovement"}
    assert "1 node(s) parted pods that pod affinity wants together" in messages(result)["cache"]
    things = [*nodes("n1", "n2"), app("web", "n1", "cache", weight=5), of("c1", "cache", "n1"), of("c2", "cache", "n1")]
    assert moves(plan(things, {DUPLICATES: {}, **SOFT})) == [("c1", "n1", "n2")]
