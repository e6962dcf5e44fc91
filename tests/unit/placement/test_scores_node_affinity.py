"""NodeAffinity's score: the weights of preferences that a node meets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import expression, node, pod
from tests.unit.placement.scoring import built, points
from trimtab.placement.scores.node_affinity import NodeAffinity

NODES = [
    node("n1").labels(disk="ssd", gen="7"),
    node("n2").labels(disk="hdd", gen="8"),
    node("n3").labels(disk="ssd", gen="9"),
    node("n4"),
]
SSD = expression("disk", "In", "ssd")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def preferring(weight: int, **term: Any) -> Any:
    return pod().merge(spec={"affinity": {"nodeAffinity": {PREFERRED: [{"weight": weight, "preference": term}]}}})


CASES: list[Any] = [
    pytest.param(pod(), "", [0, 0, 0, 0], id="no preference"),
    pytest.param(pod().prefers_nodes(5, SSD), "", [100, 0, 100, 0], id="the weight of one preference is nothing"),
    pytest.param(
        pod().prefers_nodes(10, SSD).prefers_nodes(30, expression("gen", "Gt", "7")),
        "",
        [25, 75, 100, 0],
        id="weights add",
    ),
    pytest.param(
        pod().prefers_nodes(1, SSD).prefers_nodes(2, expression("gen", "Gt", "8")),
        "",
        [33, 0, 100, 0],
        id="rounded down",
    ),
    pytest.param(
        pod().prefers_nodes(1, SSD).prefers_nodes(2, expression("gen", "Gt", "8")),
        "n1 n2",
        [100, 0],
        id="the best of those to choose from is 100",
    ),
    pytest.param(pod().prefers_nodes(5, SSD), "n2 n4", [0, 0], id="nobody meets it"),
    pytest.param(pod().prefers_nodes(5, SSD, expression("gen", "Lt", "8")), "", [100, 0, 0, 0], id="both or nothing"),
    pytest.param(
        pod().prefers_nodes(5, expression("disk", "NotIn", "ssd")), "", [0, 100, 0, 100], id="absent is not in"
    ),
    pytest.param(preferring(5), "", [0, 0, 0, 0], id="an empty term"),
    pytest.param(
        preferring(5, matchFields=[expression("metadata.name", "In", "n4")]), "", [0, 0, 0, 100], id="by the name"
    ),
    pytest.param(
        pod().prefers_nodes(9, expression("gen", "Gt", "x")).prefers_nodes(1, SSD),
        "",
        [100, 0, 100, 0],
        id="what cannot be evaluated",
    ),
    pytest.param(
        pod().node_selector(disk="ssd").node_affinity(SSD), "", [0, 0, 0, 0], id="what is required says nothing"
    ),
]


@pytest.mark.parametrize(("candidate", "among", "expected"), CASES)
def test_preferences_count_by_their_weights(candidate, among, expected):
    snapshot = built(NODES)
    assert list(points(NodeAffinity(snapshot), snapshot, candidate, among).values()) == expected


def test_a_label_that_changes_is_seen():
    snapshot = built(NODES)
    score, candidate = NodeAffinity(snapshot), pod().prefers_nodes(5, SSD)
    points(score, snapshot, candidate)
    snapshot.put(node("n1").labels(disk="hdd").build())
    snapshot.put(node("n2").labels(disk="ssd").build())
    assert points(score, snapshot, candidate) == {"n1": 0, "n2": 100, "n3": 100, "n4": 0}
