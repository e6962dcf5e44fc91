"""TaintToleration's score: taints that speak against a node without forbidding it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import node, pod
from tests.unit.placement.scoring import built, points
from trimtab.placement.scores.taint_toleration import TaintToleration

SOFT = "PreferNoSchedule"


def tainted(name: str, *keys: str, effect: str = SOFT) -> Any:
    made = node(name)
    for key in keys:
        made.taint(key, "x", effect=effect)
    return made


ONE_TO_THREE = [tainted("n1", "a"), tainted("n2", "a", "b"), tainted("n3", "a", "b", "c")]
CASES: list[Any] = [
    pytest.param([node("n1"), node("n2")], pod(), "", [100, 100], id="without taints all are equal"),
    pytest.param([tainted("n1", "a"), tainted("n2", "a", "b"), node("n3")], pod(), "", [50, 0, 100], id="half as many"),
    pytest.param(ONE_TO_THREE, pod(), "", [67, 34, 0], id="rounded down before it is turned round"),
    pytest.param(ONE_TO_THREE, pod(), "n1 n2", [50, 0], id="the worst of those to choose from is 0"),
    pytest.param(ONE_TO_THREE, pod(), "n3", [0], id="a node alone"),
    pytest.param([tainted("n1", "a"), tainted("n2", "b")], pod().tolerates("a"), "", [100, 0], id="tolerated"),
    pytest.param(ONE_TO_THREE, pod().tolerates("a", effect=SOFT), "", [100, 50, 0], id="tolerated with this effect"),
    pytest.param(
        ONE_TO_THREE, pod().tolerates("a", effect="NoSchedule"), "", [67, 34, 0], id="tolerated with another effect"
    ),
    pytest.param(ONE_TO_THREE, pod().tolerates("a", "y"), "", [67, 34, 0], id="tolerated with another value"),
    pytest.param(ONE_TO_THREE, pod().tolerates(), "", [100, 100, 100], id="all tolerated"),
    pytest.param(
        [tainted("n1", "a", effect="NoSchedule"), tainted("n2", "b")], pod(), "", [100, 0], id="hard taints don't count"
    ),
    pytest.param(
        [tainted("n1", "a"), node("n2").taint("a", "x", SOFT).taint("a", "y", SOFT)],
        pod(),
        "",
        [50, 0],
        id="two values",
    ),
]


@pytest.mark.parametrize(("nodes", "candidate", "among", "expected"), CASES)
def test_fewer_untolerated_soft_taints_are_better(nodes, candidate, among, expected):
    snapshot = built(nodes)
    assert list(points(TaintToleration(snapshot), snapshot, candidate, among).values()) == expected


def test_a_taint_that_comes_is_seen():
    snapshot = built([node("n1"), node("n2")])
    score = TaintToleration(snapshot)
    assert points(score, snapshot, pod()) == {"n1": 100, "n2": 100}
    snapshot.put(tainted("n2", "a").build())
    assert points(score, snapshot, pod()) == {"n1": 100, "n2": 0}
    snapshot.remove(snapshot.nodes.get("n2"))
    assert points(score, snapshot, pod()) == {"n1": 100}
