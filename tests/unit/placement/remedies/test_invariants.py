"""In any cluster, a suggested remedy helps, costs no less than its estimate, and leaves the snapshot unchanged."""

from __future__ import annotations

from itertools import islice

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import examples
from tests.unit.cluster.worlds import Maker, fingerprint, makers, worlds
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, Pod
from trimtab.placement.explanation import explanation
from trimtab.placement.placer import Placer
from trimtab.placement.remedies.interface import IMPOSSIBLE, RemedyCase
from trimtab.placement.remedies.search import RemedyPlan, candidate_nodes, find_remedy_plans, plan_for

candidates = st.builds(Maker.pod, makers, st.just("candidate"), st.none(), st.just(("",)))


def changed(world: list[KubeObject], pod: Pod, plan: RemedyPlan) -> tuple[list[KubeObject], Pod]:
    """The world with the steps taken, and the pod."""
    there = {(type(each), each.key): each for each in world}
    for step in plan.steps:
        for deleted in step.removes:
            there.pop((type(deleted), deleted.key), None)
        there |= {(type(each), each.key): each for each in step.puts}
        pod = step.pod or pod
    return list(there.values()), pod


@settings(max_examples=examples(150))
@given(worlds(), candidates)
def test_suggested_changes_make_the_pod_fit_in_a_new_snapshot(world, pod):
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    if placer.feasible(pod).any():
        return
    before = fingerprint(snapshot)
    with snapshot.fork():
        found = list(islice(find_remedy_plans(placer, pod), 3))
    assert fingerprint(snapshot) == before
    assert [plan.cost for plan in found] == sorted(plan.cost for plan in found)
    for plan in found:
        assert plan.steps
        rebuilt, requested = changed(world, pod, plan)
        there = Snapshot(rebuilt)
        assert Placer(there).feasible(requested)[there.nodes.slot_of[plan.node]], plan.document()


@settings(max_examples=examples(100))
@given(worlds(), candidates)
def test_costs_respect_lower_bounds_and_the_cheapest_plan_is_found(world, pod):
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    if placer.feasible(pod).any() or placer.refusal(pod) is not None:
        return
    with snapshot.fork():
        case = RemedyCase(placer, pod)
        found = next(find_remedy_plans(placer, pod), None)
        bounds = {name: bound for bound, name in candidate_nodes(case)}
        for name in sorted(snapshot.nodes.slot_of):
            steps = plan_for(case, name, IMPOSSIBLE)
            if steps is not None and name in bounds:
                cost = sum(step.cost for step in steps)
                assert cost >= bounds[name] - 1e-9, steps
                assert found is not None
                assert found.cost <= cost + 1e-9


@settings(max_examples=examples(100))
@given(worlds(nodes_least=1, pods_least=1), st.data())
def test_document_matches_the_placer_and_leaves_the_snapshot_unchanged(world, data):
    snapshot = Snapshot(world)
    pod = snapshot.pods[data.draw(st.sampled_from(sorted(snapshot.pods)))]
    before = fingerprint(snapshot)
    placer = Placer(snapshot)
    document = explanation(placer, pod)
    assert fingerprint(snapshot) == before
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    with snapshot.fork():
        lifted = placer.unbind(pod)
        verdicts, message = placer.node_verdicts(lifted), placer.unschedulable_message(lifted)
        likely = [snapshot.nodes.node(int(slot)).name for slot in placer.scorer.best(lifted, placer.feasible(lifted))]
    assert document["message"] == message
    assert document["fits"] == [verdict.node for verdict in verdicts if verdict.fits]
    assert document["likely"] == likely
    for recorded, verdict in zip(document["nodes"], verdicts, strict=True):
        assert (recorded["node"], recorded["fits"], tuple(recorded["reasons"])) == (
            verdict.node,
            verdict.fits,
            verdict.reasons,
        )
        if verdict.fits:
            points = dict(recorded["score"])
            assert points.pop("total") == sum(points.values())
        else:
            assert "score" not in recorded
    best = max((recorded["score"]["total"] for recorded in document["nodes"] if recorded["fits"]), default=None)
    assert document["likely"] == [
        recorded["node"] for recorded in document["nodes"] if recorded["fits"] and recorded["score"]["total"] == best
    ]
    assert (document["remedy"] is None) or not document["fits"]
