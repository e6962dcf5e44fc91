"""Whatever the cluster: what is told is true, costs no less than it was thought to, and leaves no trace."""

from __future__ import annotations

from itertools import islice

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cluster.worlds import Maker, fingerprint, makers, worlds
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import KubeObject, Pod
from trimtab.placement.explanation import explanation
from trimtab.placement.placer import Placer
from trimtab.placement.remedies.framework import NEVER, Case
from trimtab.placement.remedies.search import Cure, cures, plan_for, worth_a_try

candidates = st.builds(Maker.pod, makers, st.just("candidate"), st.none(), st.just(("",)))


def changed(world: list[KubeObject], pod: Pod, cure: Cure) -> tuple[list[KubeObject], Pod]:
    """The world with the steps taken, and the pod."""
    there = {(type(each), each.key): each for each in world}
    for step in cure.steps:
        for gone in step.removes:
            there.pop((type(gone), gone.key), None)
        there |= {(type(each), each.key): each for each in step.puts}
        pod = step.pod or pod
    return list(there.values()), pod


@settings(max_examples=150)
@given(worlds(), candidates)
def test_what_is_told_makes_the_pod_fit_when_all_is_built_anew(world, pod):
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    if placer.feasible(pod).any():
        return
    before = fingerprint(snapshot)
    with snapshot.fork():
        found = list(islice(cures(placer, pod), 3))
    assert fingerprint(snapshot) == before
    assert [cure.cost for cure in found] == sorted(cure.cost for cure in found)
    for cure in found:
        assert cure.steps
        anew, asked = changed(world, pod, cure)
        there = Snapshot(anew)
        assert Placer(there).feasible(asked)[there.nodes.slot_of[cure.node]], cure.document()


@settings(max_examples=100)
@given(worlds(), candidates)
def test_no_node_costs_less_than_its_bound_and_none_is_cheaper_than_what_is_told(world, pod):
    snapshot = Snapshot(world)
    placer = Placer(snapshot)
    if placer.feasible(pod).any() or placer.refusal(pod) is not None:
        return
    with snapshot.fork():
        case = Case(placer, pod)
        found = next(cures(placer, pod), None)
        bounds = {name: bound for bound, name in worth_a_try(case)}
        for name in sorted(snapshot.nodes.slot_of):
            steps = plan_for(case, name, NEVER)
            if steps is not None and name in bounds:
                cost = sum(step.cost for step in steps)
                assert cost >= bounds[name] - 1e-9, steps
                assert found is not None
                assert found.cost <= cost + 1e-9


@settings(max_examples=100)
@given(worlds(nodes_least=1, pods_least=1), st.data())
def test_the_document_says_what_the_placer_says_and_leaves_the_snapshot_as_it_was(world, data):
    snapshot = Snapshot(world)
    pod = snapshot.pods[data.draw(st.sampled_from(sorted(snapshot.pods)))]
    before = fingerprint(snapshot)
    placer = Placer(snapshot)
    document = explanation(placer, pod)
    assert fingerprint(snapshot) == before
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    with snapshot.fork():
        lifted = placer.lift(pod)
        verdicts, message = placer.verdicts(lifted), placer.why_not(lifted)
        likely = [snapshot.nodes.node(int(slot)).name for slot in placer.scorer.best(lifted, placer.feasible(lifted))]
    assert document["message"] == message
    assert document["fits"] == [verdict.node for verdict in verdicts if verdict.fits]
    assert document["likely"] == likely
    for told, verdict in zip(document["nodes"], verdicts, strict=True):
        assert (told["node"], told["fits"], tuple(told["reasons"])) == (verdict.node, verdict.fits, verdict.reasons)
        if verdict.fits:
            points = dict(told["score"])
            assert points.pop("total") == sum(points.values())
        else:
            assert "score" not in told
    best = max((told["score"]["total"] for told in document["nodes"] if told["fits"]), default=None)
    assert document["likely"] == [
        told["node"] for told in document["nodes"] if told["fits"] and told["score"]["total"] == best
    ]
    assert (document["remedy"] is None) or not document["fits"]
