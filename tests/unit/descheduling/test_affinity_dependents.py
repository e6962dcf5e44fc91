"""Moved pods that lean on others: who would be left alone, and how many of them a move has to look at."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.builders import ZONE, node, pod
from tests.fixtures.golden import Golden
from tests.unit.descheduling.planning import built
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.affinity_dependents import AffinityDependents
from trimtab.disruption.outcome import Refusal
from trimtab.placement.placer import Placer

NUMBER = 40


@pytest.fixture
def cluster() -> Snapshot:
    """In each of two zones a node; on the first of them pairs of pods, each asking for its like in the zone."""
    objects = [node("n1").zone("x"), node("n2").zone("y")]
    for number in range(NUMBER):
        for half in "ab":
            one = pod(f"{half}{number:02}", "default").labels(app=f"app-{number}").on("n1")
            objects.append(one.affinity(ZONE, app=f"app-{number}"))
    return Snapshot(built(objects))


def slot(snapshot: Snapshot, name: str) -> int:
    return snapshot.nodes.slot_of[name]


def test_pod_that_moved_pod_depends_on_is_kept(cluster, golden: Golden):
    leaning = AffinityDependents(Placer(cluster))
    leaning.add(cluster.pods["default/a07"])
    leaning.add(cluster.pods["default/a03"])
    refused = leaning.reserve(cluster.pods["default/b03"], slot(cluster, "n2"))
    assert isinstance(refused, Refusal)
    golden(refused.message)
    assert cluster.pods["default/b03"].node == "n1"


def test_removed_dependents_block_no_move(cluster):
    leaning = AffinityDependents(Placer(cluster))
    leaning.add(cluster.pods["default/a07"])
    leaning.add(cluster.pods["default/a03"])
    leaning.cut(1)
    assert len(leaning) == 1
    moved = leaning.reserve(cluster.pods["default/b03"], slot(cluster, "n2"))
    assert not isinstance(moved, Refusal)
    assert isinstance(leaning.reserve(cluster.pods["default/b07"], slot(cluster, "n2")), Refusal)


def test_only_dependents_of_the_pod_are_checked(cluster, monkeypatch):
    """Else a cluster in which every pod states pod affinity would cost the square of its moves."""
    placer = Placer(cluster)
    leaning = AffinityDependents(placer)
    judged = []
    feasible = placer.feasible

    def counting(one):
        judged.append(one.key)
        return feasible(one)

    monkeypatch.setattr(placer, "feasible", counting)
    for number in range(NUMBER):
        leaning.add(cluster.pods[f"default/a{number:02}"])
    for number in range(NUMBER):
        refused = leaning.reserve(cluster.pods[f"default/b{number:02}"], slot(cluster, "n2"))
        assert isinstance(refused, Refusal)
    assert judged == [f"default/a{number:02}" for number in range(NUMBER)]


def test_equal_dependents_on_one_node_are_checked_once(monkeypatch):
    like = pod("x", "default").labels(app="web").affinity(ZONE, app="web").build()
    objects = [node("n1").zone("x"), node("n2").zone("x")]
    objects += [
        pod(f"p{number}", "default").labels(app="web").on("n1").affinity(ZONE, app="web") for number in range(20)
    ]
    shared = Snapshot(built(objects))
    for one in list(shared.pods.values()):
        shared.put(replace(one, spec=like.spec, labels=like.labels))
    placer = Placer(shared)
    leaning = AffinityDependents(placer)
    judged = []
    feasible = placer.feasible
    monkeypatch.setattr(placer, "feasible", lambda one: judged.append(one.key) or feasible(one))
    for number in range(19):
        leaning.add(shared.pods[f"default/p{number}"])
    moved = leaning.reserve(shared.pods["default/p19"], shared.nodes.slot_of["n2"])
    assert not isinstance(moved, Refusal)
    assert judged == ["default/p0"]
