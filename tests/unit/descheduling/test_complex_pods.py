"""Plans with pods beyond the limits of complexity: none is moved, and each says so."""

from __future__ import annotations

from tests.builders import node, pod, replica_set
from tests.unit.descheduling.planning import DUPLICATES, policy
from trimtab.api import reasons
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning import planner
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.limits import ComplexityLimits

NOW = 1_795_176_000.0


def duplicates(tolerations: int = 0, terms: int = 0) -> list[KubeObject]:
    found: list[KubeObject] = [*(node(f"n{number}").build() for number in range(3)), replica_set("big").build()]
    for number in range(4):
        manifest = pod(f"big-{number}").on("n0").ready().owned_by("ReplicaSet", "big").manifest()
        manifest["spec"]["tolerations"] = [{"key": f"k{each}", "operator": "Exists"} for each in range(tolerations)]
        preferred = [
            {
                "weight": 1,
                "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": f"x{each}"}}},
            }
            for each in range(terms)
        ]
        manifest["spec"]["affinity"] = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        decoded = decode_object(manifest)
        assert decoded is not None
        found.append(decoded)
    return found


def test_pods_within_complexity_limits_are_moved():
    made = planner.plan_evictions(Snapshot(duplicates(10, 2)), [policy({DUPLICATES: {}})], now=NOW)
    assert len(made.actions) == 2


def test_pod_too_complex_is_kept_with_that_reason():
    made = planner.plan_evictions(Snapshot(duplicates(200)), [policy({DUPLICATES: {}})], now=NOW)
    assert made.actions == ()
    assert {each.reason for each in made.kept} == {reasons.POD_TOO_COMPLEX}
    assert {"200 tolerations (at most 128)" in each.message for each in made.kept} == {True}


def test_pods_of_a_namespace_too_complex_are_kept_with_that_reason():
    snapshot = Snapshot(duplicates(0, 20), limits=ComplexityLimits(namespace_terms=10))
    made = planner.plan_evictions(snapshot, [policy({DUPLICATES: {}})], now=NOW)
    assert made.actions == ()
    assert {each.reason for each in made.kept} == {reasons.NAMESPACE_TOO_COMPLEX}
