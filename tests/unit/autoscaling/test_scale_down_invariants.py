"""Invariants of scale-down plans for random clusters."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import HOSTNAME, budget, node
from tests.unit.autoscaling.scale_down_plans import NOW, group, unneeded, web
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_down import ScaleDownPlan, plan, recorded_unneeded
from trimtab.cluster.disruption_signals import as_draining
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject
from trimtab.placement.placer import Placer

APPS = ("a", "b", "c")
SINCE = ("2026-11-20T10:00:00Z", "2026-11-20T11:55:00Z", None)


@st.composite
def pods(draw: st.DrawFn, names: list[str]) -> list[Any]:
    """Pods of three applications with or without scheduling constraints."""
    built = []
    rules = {app: draw(st.sampled_from(("", "", "hosts", "zones", "zones-honor", "port"))) for app in APPS}
    for number in range(draw(st.integers(0, 12))):
        app = draw(st.sampled_from(APPS))
        made = web(f"{app}-{number}", draw(st.sampled_from(names)), draw(st.sampled_from(("100m", "1", "1500m"))))
        made.labels(app=app)
        if rules[app] == "hosts":
            made.anti_affinity(HOSTNAME)
        elif rules[app] == "zones":
            made.spread()
        elif rules[app] == "zones-honor":
            made.spread(nodeTaintsPolicy="Honor")
        elif rules[app] == "port":
            made.host_port(80)
        built.append(made)
    return built


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[KubeObject], ClusterAutoscalerSpec]:
    """Up to nine nodes in two groups or none, with pods of three applications and PDBs."""
    built: list[Any] = []
    sizes = [draw(st.integers(1, 4)) for _ in range(2)]
    names = []
    for letter, size in zip("xy", sizes, strict=True):
        of = group(letter, size=size, least=draw(st.integers(0, size)))
        built.append(of)
        for number in range(size):
            name = f"{letter}{number}"
            names.append(name)
            made = unneeded(node(name), draw(st.sampled_from(SINCE))).zone(draw(st.sampled_from("123")))
            if draw(st.integers(0, 9)) == 0:
                made.not_ready(since=SINCE[0])
            built += [made, of.machine(f"m-{name}").on(name)]
    if draw(st.booleans()):
        built.append(node("own").zone("1"))
        names.append("own")
    built += draw(pods(names))
    for app in APPS:
        if draw(st.booleans()):
            built.append(budget(app).selecting(app=app).allowing(draw(st.integers(0, 3))))
    least = draw(st.integers(0, 16))
    spec = msgspec.convert({"resourceLimits": {"cores": {"min": least, "max": 999}}}, ClusterAutoscalerSpec)
    return [builder.build() for builder in built], spec


def made_of(objects: list[KubeObject], spec: ClusterAutoscalerSpec) -> ScaleDownPlan:
    snapshot = Snapshot(objects)
    return plan(snapshot, build_groups(snapshot), spec, now=NOW)


@given(clusters())
def test_every_node_is_removed_or_has_a_reason(cluster: Any) -> None:
    made = made_of(*cluster)
    recorded = [action.node for action in made.actions] + [kept.name for kept in made.kept]
    assert sorted(recorded) == sorted(Snapshot(cluster[0]).nodes.slot_of)
    assert all(kept.reason and kept.message for kept in made.kept)


@given(clusters())
def test_pdbs_sizes_and_limits_hold(cluster: Any) -> None:
    objects, spec = cluster
    snapshot = Snapshot(objects)
    made = made_of(objects, spec)
    apps = Counter(move.pod.partition("/")[2][0] for action in made.actions for move in action.moves)
    for each in snapshot.budgets.values():
        assert apps[each.name] <= each.disruptions_allowed
    found = build_groups(snapshot)
    for id_, number in Counter(action.group for action in made.actions).items():
        assert found.by_id[id_].target - number >= found.by_id[id_].minimum
    assert spec.resource_limits.cores is not None
    if made.actions:
        assert 4 * (len(snapshot.nodes) - len(made.actions)) >= spec.resource_limits.cores.min


@given(clusters(), st.booleans())
def test_every_target_passes_all_filters_when_reevaluated(cluster: Any, draining: bool) -> None:
    """While the nodes drain, and as if they had been gone from the start."""
    objects, spec = cluster
    made = made_of(objects, spec)
    snapshot = Snapshot(objects)
    removed = {action.node for action in made.actions}
    with snapshot.fork():
        placer = Placer(snapshot)
        for action in made.actions:
            moved = [placer.unbind(snapshot.pods[move.pod]) for move in action.moves]
            assert not snapshot.pods_on(action.node)
            gone = snapshot.nodes.node(snapshot.nodes.slot_of[action.node])
            if draining:
                snapshot.put(as_draining(gone))
            else:
                snapshot.remove(gone)
            for pod, move in zip(moved, action.moves, strict=True):
                assert move.target not in removed
                slot = snapshot.nodes.slot_of[move.target]
                assert snapshot.nodes.node(slot).ready
                assert placer.feasible(pod)[slot]
                placer.reserve(pod, slot)


@given(clusters())
def test_every_removed_node_has_an_old_enough_record(cluster: Any) -> None:
    objects, spec = cluster
    snapshot = Snapshot(objects)
    nodes = [snapshot.nodes.node(slot) for slot in snapshot.nodes.slot_of.values()]
    records = recorded_unneeded(nodes, ClusterAutoscalerStatus())
    made = made_of(objects, spec)
    for action in made.actions:
        assert NOW - records[action.node] >= spec.scaling_down.unneeded_seconds
    bare = [
        replace(each, annotations=type(each.annotations)()) if hasattr(each, "images") else each for each in objects
    ]
    assert not made_of(bare, spec).actions


@given(clusters(), st.randoms(use_true_random=False))
def test_order_of_objects_does_not_matter(cluster: Any, chance: random.Random) -> None:
    objects, spec = cluster
    shuffled = list(objects)
    chance.shuffle(shuffled)
    assert msgspec.json.encode(made_of(shuffled, spec)) == msgspec.json.encode(made_of(objects, spec))


@given(clusters())
def test_snapshot_is_restored(cluster: Any) -> None:
    objects, spec = cluster
    snapshot = Snapshot(objects)
    before = dict(snapshot.pods), dict(snapshot.nodes.slot_of), snapshot.nodes.requested.tolist()
    plan(snapshot, build_groups(snapshot), spec, now=NOW)
    assert (snapshot.pods, snapshot.nodes.slot_of, snapshot.nodes.requested.tolist()) == before
