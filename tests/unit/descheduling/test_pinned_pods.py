"""Pods whose controller's template sets ``nodeName``: evicting one changes nothing, since it returns to its node."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import HOSTNAME, node, pod, replica_set, selector
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import (
    DUPLICATES,
    affinity,
    ago,
    anti_affinity,
    kept,
    life_time,
    messages,
    moves,
    node_affinity,
    node_taints,
    nodes,
    packing,
    plan,
    topology_spread,
    utilization,
    web,
)
from trimtab.api import reasons

PERCENT = {"cpu": 50.0}


def app(name: str = "a", on: str = "n1") -> Any:
    return web(name, on).cpu("1")


def conflicting() -> Any:
    return app().anti_affinity(HOSTNAME, labelSelector=selector(app="other"))


WORLDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "duplicates": ([*nodes("n1", "n2"), app("a"), app("b")], {DUPLICATES: {}}),
    "low utilization": (
        [*nodes("n1", "n2"), app("a"), app("b"), app("c")],
        utilization({"cpu": 20.0}, PERCENT),
    ),
    "high utilization": (
        [*nodes("n1", "n2"), app("a"), web("x", "n2", owner="other").cpu("2500m")],
        packing(PERCENT),
    ),
    "anti-affinity": (
        [*nodes("n1", "n2"), conflicting(), web("x", "n1", owner="other").priority(1)],
        anti_affinity(),
    ),
    "affinity": (
        [
            *nodes("n1", "n2"),
            app().affinity(HOSTNAME, labelSelector=selector(app="other")),
            web("x", "n2", owner="other"),
        ],
        affinity(),
    ),
    "node affinity": ([node("n1"), node("n2").labels(disk="ssd"), app().node_selector(disk="ssd")], node_affinity()),
    "node taints": ([node("n1").taint("reserved"), node("n2"), app()], node_taints()),
    "topology spread": (
        [*nodes("n1", "n2"), *(app(name).spread(HOSTNAME) for name in "abc")],
        topology_spread(),
    ),
}


def naming(node_name: str) -> Any:
    """The ReplicaSet of the pods, whose template sets ``nodeName``."""
    made = replica_set("web", "shop").of_pods(pod().labels(app="web").cpu("1"))
    return made.merge(spec={"template": {"spec": {"nodeName": node_name}}})


@pytest.mark.parametrize("world", WORLDS)
def test_pod_that_returns_to_its_node_is_no_victim(world: str) -> None:
    objects, strategy = WORLDS[world]
    evicted = {name for name, *_ in moves(plan(objects, strategy))}
    assert evicted & set("abc")

    result = plan([*objects, naming("n1")], strategy)

    assert not {name for name, *_ in moves(result)} & set("abc")
    assert {kept(result)[name] for name in set(kept(result)) & set("abc")} <= {
        reasons.NO_PLACE,
        reasons.REPLACEMENT_LARGER,
        reasons.NOT_ENOUGH_NODES,
    }


def test_reason_names_the_node(golden: Golden) -> None:
    objects, strategy = WORLDS["node taints"]
    result = plan([*objects, naming("n1")], strategy)

    assert kept(result) == {"a": reasons.REPLACEMENT_LARGER}
    golden(messages(result)["a"])


def test_node_of_a_changed_template_is_the_only_target() -> None:
    objects, strategy = WORLDS["node taints"]
    third = node("n3")

    assert moves(plan([*objects, third, naming("n3")], strategy)) == [("a", "n1", "n3")]
    assert moves(plan([*objects, third, naming("gone")], strategy)) == []


def test_pod_may_be_restarted_on_its_node() -> None:
    """PodLifeTime restarts pods, and needs no other node."""
    old = app().created(ago(7200.0))

    assert moves(plan([*nodes("n1", "n2"), old, naming("n1")], life_time(3600))) == [("a", "n1", "n1")]
