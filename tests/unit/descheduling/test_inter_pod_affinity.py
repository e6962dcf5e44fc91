"""RemovePodsViolatingInterPodAffinity: who follows whom, and who stays for the sake of others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, ZONE, PodBuilder, budget, node, selector
from tests.fixtures.golden import Golden
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
            id="a pod moves to the pod of its required affinity",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n1")], [], id="affinity is satisfied"
        ),
        pytest.param([*nodes("n1", "n2"), app("web", "n1", "cache")], [], id="no pod matches the affinity"),
        pytest.param(
            [*zoned(("n1", "x"), ("n2", "x"), ("n3", "y")), app("web", "n1", "cache", ZONE), app("cache", "n2")],
            [],
            id="pods in one zone satisfy affinity by zone",
        ),
        pytest.param(
            [*zoned(("n1", "x"), ("n2", "y"), ("n3", "y")), app("web", "n1", "cache", ZONE), app("cache", "n2")],
            [("web", "n1", "n3")],
            id="the emptiest node of the zone is the target",
        ),
        pytest.param(
            [node("n1"), node("n2").zone("x"), app("web", "n1", "cache", ZONE), app("cache", "n2")],
            [("web", "n1", "n2")],
            id="a node without the topology label is in no domain",
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
            id="three separate pods are joined by two moves",
        ),
        pytest.param([*nodes("n1", "n2"), web("a", "n1").affinity()], [], id="the first of its kind may be anywhere"),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1", "b"), app("b", "n2", "a")],
            [("a", "n1", "n2")],
            id="of two pods with mutual affinity, the one with lower priority moves",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("a", "n1", "b").priority(10), app("b", "n2", "a")],
            [("b", "n2", "n1")],
            id="the pod of lower priority moves",
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
            id="no pod moves to a terminating pod",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n1").deleted(), of("c", "cache", "n2")],
            [],
            id="a pod stays with a terminating pod until it is deleted",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache"),
                app("cache", "n1").phase("Succeeded"),
                of("c", "cache", "n2"),
            ],
            [("web", "n1", "n2")],
            id="a terminated pod does not match",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache", weight=100), app("cache", "n2")],
            [],
            id="a preference is no rule",
        ),
    ],
)
def test_required_pod_affinity_is_restored(things, expected):
    assert moves(plan(things, HARD)) == expected


@pytest.mark.parametrize(
    ("things", "expected"),
    [
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache", weight=10), app("cache", "n2")],
            [("web", "n1", "n2")],
            id="a pod moves to the pod of its preferred affinity",
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
            id="the target has the most matching pods, as in the scheduler",
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
            id="one matching pod satisfies the preference",
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
            id="no move to a node that the scheduler scores lower",
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
            id="no pod moves to a terminating pod",
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
            id="no move that costs another pod as much as it gains",
        ),
        pytest.param(
            [
                *nodes("n1", "n2"),
                app("web", "n1", "cache", weight=11),
                app("b", "n1", "web", weight=10),
                app("cache", "n2"),
            ],
            [("web", "n1", "n2"), ("b", "n1", "n2")],
            id="a pod that gains more moves, and the other pod follows",
        ),
        pytest.param(
            [*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n2")],
            [],
            id="preferred terms are ignored if not configured",
        ),
    ],
)
def test_preferred_pod_affinity_is_improved(things, expected):
    assert moves(plan(things, SOFT)) == expected


def test_required_affinity_is_handled_before_preferred():
    objects = [*nodes("n1", "n2", "n3"), app("cache", "n2"), of("c", "cache", "n3"), app("log", "n3").cpu("3")]
    objects.append(app("web", "n1", "cache").affinity(preferred=1, labelSelector=selector(app="log")))
    assert moves(plan(objects, BOTH)) == [("web", "n1", "n3")]


def test_moves_do_not_break_affinity_of_other_pods(golden: Golden):
    """a must be with web, web with cache: were web to go, a would be as badly off as web is now."""
    objects = [
        *nodes("n1", "n2"),
        app("a", "n1", "web").volume("emptyDir"),
        app("web", "n1", "cache"),
        app("cache", "n2"),
    ]
    result = plan(objects, HARD)
    assert (moves(result), kept(result)) == ([], {"web": "NoImprovement"})
    golden(messages(result)["web"])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param(lambda pod: pod.volume("emptyDir"), "LocalStorage", id="protected"),
        pytest.param(lambda pod: pod.cpu("5"), "NoPlace", id="no room"),
        pytest.param(lambda pod: pod.node_selector(disk="ssd"), "NoPlace", id="no node"),
    ],
)
def test_kept_pods_have_a_reason(change, reason):
    objects = [*nodes("n1", "n2"), change(app("web", "n1", "cache")), app("cache", "n2")]
    result = plan(objects, HARD)
    assert (moves(result), kept(result)) == ([], {"web": reason})


def test_pod_without_affinity_match_is_reported(golden: Golden):
    result = plan([*nodes("n1", "n2"), app("web", "n1", "cache")], HARD)
    assert kept(result) == {"web": "NoPlace"}
    golden(messages(result)["web"])


def test_pdbs_and_limits_are_respected():
    objects = [
        *nodes("n1", "n2"),
        app("cache", "n2"),
        *(of(name, "web", "n1").affinity(labelSelector=selector(app="cache")) for name in "abc"),
    ]
    result = plan([*objects, budget().selecting(app="web").allowing(1)], HARD)
    assert (moves(result), kept(result)) == ([("a", "n1", "n2")], dict.fromkeys("bc", "DisruptionBudget"))
    result = plan(objects, HARD, limits={"perNode": 2})
    assert kept(result) == {"c": "LimitReached"}


def test_pods_out_of_scope_still_match_affinity():
    blog = web("cache", "n2", owner="cache", namespace="blog")
    follower = web("web", "n1").affinity(namespaces=["blog"], labelSelector=selector(app="cache"))
    objects = [*nodes("n1", "n2"), blog, follower]
    assert moves(plan(objects, HARD, namespaces={"include": ["shop"]})) == [("web", "n1", "n2")]
    assert moves(plan(objects, HARD, namespaces={"include": ["blog"]})) == []


def test_messages_have_compared_weights(golden: Golden):
    [action] = plan([*nodes("n1", "n2"), app("web", "n1", "cache"), app("cache", "n2")], HARD).actions
    assert action.reason == "InterPodAffinityViolated"
    golden(action.message)
    [action] = plan([*nodes("n1", "n2"), app("web", "n1", "cache", weight=10), app("cache", "n2")], SOFT).actions
    golden(action.message, "2")


def test_anti_affinity_is_resolved_before_affinity():
    """The foe makes cache go, and web goes with it."""
    objects = [
        *nodes("n1", "n2"),
        app("web", "n1", "cache").priority(1),
        app("cache", "n1"),
        app("foe", "n1").priority(1),
    ]
    objects[-1].anti_affinity(labelSelector=selector(app="cache"))
    result = plan(objects, {**anti_affinity(), **HARD})
    assert moves(result) == [("cache", "n1", "n2"), ("web", "n1", "n2")]


def test_later_strategies_do_not_break_affinity(golden: Golden):
    """Balance would take cache away from web, duplicates one of two caches, which is as well."""
    balance = utilization({"cpu": 20}, {"cpu": 50})
    objects = [
        *nodes("n1", "n2"),
        app("web", "n1", "cache").volume("emptyDir"),
        app("cache", "n1").cpu("1"),
        app("big", "n1").cpu("2"),
    ]
    assert moves(plan(objects, balance)) == [("cache", "n1", "n2")]
    result = plan(objects, {**balance, **HARD})
    assert moves(result) == [("big", "n1", "n2")]
    assert kept(result) == {"web": "IrrelevantResource", "cache": "NoImprovement"}
    golden(messages(result)["cache"])
    objects = [
        *nodes("n1", "n2"),
        app("web", "n1", "cache", weight=5),
        of("c1", "cache", "n1"),
        of("c2", "cache", "n1"),
    ]
    assert moves(plan(objects, {DUPLICATES: {}, **SOFT})) == [("c1", "n1", "n2")]
