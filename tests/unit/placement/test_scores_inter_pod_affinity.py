"""InterPodAffinity's score: preferred terms of the pod and of those around a node."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import HOSTNAME, ZONE, expression, namespace, node, pod, selector
from tests.unit.cluster.worlds import Maker, makers, worlds
from tests.unit.placement.scoring import built, points
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import as_incoming, bind
from trimtab.kube.objects import Node, Pod
from trimtab.placement.scores.inter_pod_affinity import InterPodAffinity

WEB = {"labelSelector": selector(app="web")}


def in_zones() -> list[Any]:
    """Two nodes in zone a, one in zone b, one in none."""
    return [node("n1").zone("a"), node("n2").zone("a"), node("n3").zone("b"), node("n4")]


def app(name: str, on: str, *, ns: str = "shop", kind: str = "web") -> Any:
    return pod(name, ns).labels(app=kind).on(on)


def hosts(*numbers: int) -> list[Any]:
    """So many web pods on n1, n2 and so on."""
    return [app(f"w{host}-{each}", f"n{host}") for host, number in enumerate(numbers, 1) for each in range(number)]


NEAR_WEB = pod("p").affinity(ZONE, preferred=10, **WEB)
BY_HOST = pod("p").affinity(HOSTNAME, preferred=3, **WEB)
CASES: list[Any] = [
    pytest.param([], pod("p"), "", [0, 0, 0, 0], id="no preference at all"),
    pytest.param(hosts(1), NEAR_WEB, "", [100, 100, 0, 0], id="near a pod that it likes"),
    pytest.param(hosts(1), pod("p").anti_affinity(ZONE, preferred=10, **WEB), "", [0, 0, 100, 100], id="not near"),
    pytest.param(hosts(0, 0, 0, 1), NEAR_WEB, "", [0, 0, 0, 0], id="no zone, no neighbours"),
    pytest.param(hosts(0, 1, 3), BY_HOST, "", [0, 33, 100, 0], id="rounded down"),
    pytest.param(hosts(0, 29, 100), BY_HOST, "", [0, 28, 100, 0], id="29 of 100 is 28, as in floating point"),
    pytest.param(hosts(1, 3, 5), BY_HOST, "n1 n2 n3", [0, 50, 100], id="between lowest and highest"),
    pytest.param(hosts(2, 2, 2), BY_HOST, "n1 n2 n3", [0, 0, 0], id="all alike"),
    pytest.param(hosts(2, 2, 9), BY_HOST, "n1 n2", [0, 0], id="alike where it may go"),
    pytest.param(
        hosts(1, 0, 1),
        pod("p").affinity(ZONE, preferred=5, **WEB).anti_affinity(ZONE, preferred=5, **WEB),
        "",
        [0, 0, 0, 0],
        id="for and against",
    ),
    pytest.param(
        [app("w", "n1"), app("d", "n2", kind="db")],
        pod("p")
        .affinity(ZONE, preferred=4, **WEB)
        .anti_affinity(HOSTNAME, preferred=1, labelSelector=selector(app="db")),
        "",
        [100, 75, 0, 0],
        id="two terms by two topologies",
    ),
    pytest.param(
        hosts(1), pod("p", "blog").affinity(ZONE, preferred=10, **WEB), "", [0, 0, 0, 0], id="another namespace"
    ),
    pytest.param(
        hosts(1),
        pod("p", "blog").affinity(ZONE, preferred=10, namespaces=["shop"], **WEB),
        "",
        [100, 100, 0, 0],
        id="a namespace named",
    ),
    pytest.param(
        hosts(1),
        pod("p").affinity(ZONE, preferred=10, namespaceSelector={"matchLabels": {"team": "x"}}, **WEB),
        "",
        [0, 0, 0, 0],
        id="a namespace not selected",
    ),
    pytest.param(
        hosts(1),
        pod("p").affinity(
            ZONE, preferred=10, namespaceSelector={"matchExpressions": [expression("team", "NotIn", "y")]}, **WEB
        ),
        "",
        [100, 100, 0, 0],
        id="a selector that no labels satisfy selects every namespace",
    ),
    # what the pods there state
    pytest.param(
        [app("w", "n1").affinity(ZONE, preferred=7, labelSelector=selector(app="api"))],
        pod("p").labels(app="api"),
        "",
        [100, 100, 0, 0],
        id="liked by a pod there",
    ),
    pytest.param(
        [app("w", "n1").anti_affinity(ZONE, preferred=7, labelSelector=selector(app="api"))],
        pod("p").labels(app="api"),
        "",
        [0, 0, 100, 100],
        id="disliked by a pod there",
    ),
    pytest.param(
        [app("w", "n1").affinity(ZONE, preferred=7, labelSelector=selector(app="api"))],
        pod("p").labels(app="db"),
        "",
        [0, 0, 0, 0],
        id="another one is liked",
    ),
    pytest.param(
        [app("w", "n1").affinity(HOSTNAME, **WEB), app("v", "n3").affinity(HOSTNAME, preferred=4)],
        pod("p").labels(app="web"),
        "",
        [25, 0, 100, 0],
        id="what a pod there requires weighs 1",
    ),
    pytest.param(
        [app("w", "n1").anti_affinity(HOSTNAME, **WEB)],
        pod("p").labels(app="web"),
        "",
        [0, 0, 0, 0],
        id="required anti-affinity is no matter of scores",
    ),
    pytest.param(
        [app("w", "n1")],
        pod("p").affinity(HOSTNAME, **WEB),
        "",
        [0, 0, 0, 0],
        id="what the pod itself requires neither",
    ),
    pytest.param(
        [
            app("w", "n1").affinity(
                ZONE, preferred=7, namespaceSelector={"matchExpressions": [expression("team", "Exists")]}
            )
        ],
        pod("p", "blog").labels(app="web"),
        "",
        [100, 100, 0, 0],
        id="a namespace whose labels a pod there selects",
    ),
    pytest.param([app("w", "n1").deleted()], NEAR_WEB, "", [100, 100, 0, 0], id="a pod that is leaving still counts"),
    pytest.param([app("w", "n1").phase("Succeeded")], NEAR_WEB, "", [0, 0, 0, 0], id="a pod that has ended does not"),
    pytest.param([app("w", "n9")], NEAR_WEB, "", [0, 0, 0, 0], id="a node that is gone"),
]


@pytest.mark.parametrize(("there", "candidate", "among", "expected"), CASES)
def test_preferences_count_by_weight_and_number(there, candidate, among, expected):
    snapshot = built([*in_zones(), namespace("shop").labels(team="y"), namespace("blog").labels(team="x"), *there])
    assert list(points(InterPodAffinity(snapshot), snapshot, candidate, among).values()) == expected


def test_a_plain_pod_in_a_plain_cluster_does_not_build_the_index():
    snapshot = built([*in_zones(), *hosts(2, 1)])
    assert InterPodAffinity(snapshot).scores(pod("p").build(), snapshot.nodes.used) == 0
    assert snapshot._tally._affinity is None


def test_a_pod_that_moves_is_seen():
    snapshot = built([*in_zones(), *hosts(1)])
    score = InterPodAffinity(snapshot)
    assert points(score, snapshot, NEAR_WEB) == {"n1": 100, "n2": 100, "n3": 0, "n4": 0}
    with snapshot.fork():
        snapshot.move(snapshot.pods["shop/w1-0"], "n3")
        assert points(score, snapshot, NEAR_WEB) == {"n1": 0, "n2": 0, "n3": 100, "n4": 0}
    assert points(score, snapshot, NEAR_WEB) == {"n1": 100, "n2": 100, "n3": 0, "n4": 0}


def raw(snapshot: Snapshot, candidate: Pod, host: Node) -> int:
    """The sum for one node, pod by pod and term by term, as the plugin is written."""
    total = 0
    for other in snapshot.pods.values():
        there = snapshot.nodes.get(other.node) if other.node else None
        if there is None or other.terminal:
            continue
        mine, theirs = candidate.spec.affinity, other.spec.affinity
        told = [(as_incoming(bind(each.term, candidate.namespace)), each.weight, other) for each in mine.pod_preferred]
        told += [
            (as_incoming(bind(each.term, candidate.namespace)), -each.weight, other) for each in mine.anti_preferred
        ]
        told += [(bind(term, other.namespace), 1, candidate) for term in theirs.pod_required]
        told += [(bind(each.term, other.namespace), each.weight, candidate) for each in theirs.pod_preferred]
        told += [(bind(each.term, other.namespace), -each.weight, candidate) for each in theirs.anti_preferred]
        for term, weight, picked in told:
            value = there.labels.get(term.topology_key)
            labels = snapshot.namespace_labels(picked.namespace)
            if value is not None and host.labels.get(term.topology_key) == value:
                total += weight * term.matches(picked.namespace, picked.labels, labels)
    return total


def expected(snapshot: Snapshot, candidate: Pod, names: list[str]) -> dict[str, int]:
    return scaled({name: raw(snapshot, candidate, snapshot.nodes.get(name)) for name in names})


def scaled(sums: dict[str, int]) -> dict[str, int]:
    low, high = min(sums.values()), max(sums.values())
    return {
        name: int(100.0 * (float(each - low) / float(high - low))) if high > low else 0 for name, each in sums.items()
    }


@given(worlds(), makers.map(lambda make: Maker.pod(make, "candidate", None, ("",))), st.data())
def test_scores_are_those_of_judging_pod_by_pod(world, candidate, data):
    snapshot = Snapshot(world)
    score = InterPodAffinity(snapshot)
    names = sorted(data.draw(st.sets(st.sampled_from(sorted(snapshot.nodes.slot_of)), min_size=1)))
    for _ in range(3):
        assert points(score, snapshot, candidate, " ".join(names)) == expected(snapshot, candidate, names)
        if not snapshot.pods:
            break
        moving = snapshot.pods[data.draw(st.sampled_from(sorted(snapshot.pods)))]
        snapshot.move(moving, data.draw(st.sampled_from(sorted(snapshot.nodes.slot_of))))


def test_counters_over_many_domains_stay_right_while_pods_and_nodes_come_and_go():
    """From some hundreds of domains on, counters keep arrays; they must follow every change."""
    chance = np.random.default_rng(4)
    snapshot = built([node(f"n{number:03}") for number in range(300)])
    for number in range(300):
        snapshot.put(app(f"w{number}", f"n{number:03}").build())
    score, candidate = InterPodAffinity(snapshot), BY_HOST.build()
    for step in range(30):
        names = sorted(snapshot.nodes.slot_of)
        assert points(score, snapshot, candidate) == scaled({name: len(snapshot.pods_on(name)) for name in names})
        if step % 5 == 4:
            snapshot.put(node(f"m{step}").build())
            snapshot.put(app(f"v{step}", f"m{step}").build())
        if step % 7 == 6:
            snapshot.remove(snapshot.nodes.get(names[int(chance.integers(len(names)))]))
        keys = sorted(snapshot.pods)
        moving = snapshot.pods[keys[int(chance.integers(len(keys)))]]
        if step % 2:
            snapshot.remove(moving)
        else:
            snapshot.move(moving, names[int(chance.integers(5))])
