"""Pods that are too complex: neither moved nor placed, but counted where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from trimtab.api import reasons
from trimtab.cluster.complexity import PodComplexity
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    Affinity,
    LabelRequirement,
    LabelSelector,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    PreferredNodeTerm,
    TopologySpread,
    WeightedPodTerm,
)
from trimtab.kube.wire.decode import decode_object
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.limits import DEFAULT_LIMITS, ComplexityLimits
from trimtab.placement.explanation import explanation
from trimtab.placement.placer import Placer

GPU = "zz.example.com/gpu"
ANYWHERE = TopologySpread(1, "zone", "ScheduleAnyway", LabelSelector())


def complex_pod(name: str, where: str = "") -> Pod:
    manifest = pod(name).on(where).manifest() if where else pod(name).manifest()
    amounts = {f"x.io/r{number}": "1" for number in range(1_000)} | {GPU: "1"}
    manifest["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "1", **amounts}}}]
    found = decode_object(manifest)
    assert isinstance(found, Pod)
    return found


def with_terms(name: str, number: int, *, namespace: str = "shop", first: int = 0) -> Pod:
    terms = tuple(
        PodAffinityTerm("zone", LabelSelector(Labels({"app": f"a{each}"}))) for each in range(first, first + number)
    )
    spec = PodSpec(affinity=Affinity(anti_required=terms))
    return Pod(namespace, name, f"uid-{name}", spec=spec)


def test_pod_above_complexity_limits_is_rejected_with_a_reason(golden: Golden):
    snapshot = Snapshot([node("n1").build(), complex_pod("big")])
    placer, big = Placer(snapshot), snapshot.pods["shop/big"]
    assert not placer.feasible(big).any()
    assert not placer.eligible(big).any()
    message = explanation(placer, big)["message"]
    assert reasons.POD_TOO_COMPLEX in message
    golden(message)
    assert snapshot.complexity.refusal(big)[0] == reasons.POD_TOO_COMPLEX
    assert snapshot.complexity.numbers() == {reasons.POD_TOO_COMPLEX: 1, reasons.NAMESPACE_TOO_COMPLEX: 0}


def test_pod_above_complexity_limits_counts_with_all_its_requests():
    snapshot = Snapshot([node("n1").build(), complex_pod("big", "n1")])
    there = snapshot.nodes.node(0)
    for amounts in ({**there.allocatable, GPU: 2}, {**there.allocatable, GPU: 2, "x.io/r999": 5}):
        snapshot.put(msgspec.structs.replace(there, allocatable=type(there.allocatable)(amounts)))
    axis = snapshot.nodes.axis
    assert snapshot.nodes.requested[0, axis.column[GPU]] == 1
    assert snapshot.nodes.requested[0, axis.column["x.io/r999"]] == 1
    assert snapshot.nodes.requested[0, axis.column["cpu"]] == 1000
    snapshot.remove(snapshot.pods["shop/big"])
    assert not snapshot.nodes.requested.any()
    assert snapshot.complexity.numbers()[reasons.POD_TOO_COMPLEX] == 0


@pytest.mark.parametrize("backwards", [False, True])
def test_namespace_complexity_is_independent_of_pod_order(backwards):
    pods = [with_terms(f"p{number}", 10, first=10 * number) for number in range(3)]
    plain, other = Pod("shop", "plain", "uid-plain"), with_terms("other", 10, namespace="bank")
    objects = [node("n1").build(), plain, other, *(reversed(pods) if backwards else pods)]
    snapshot = Snapshot(objects, limits=ComplexityLimits(namespace_terms=25))
    placer = Placer(snapshot)
    for each in pods:
        assert snapshot.complexity.refusal(each)[0] == reasons.NAMESPACE_TOO_COMPLEX
        assert not placer.feasible(each).any()
        assert not placer.ignores_other_pods(each)
    for each in (plain, other):
        assert snapshot.complexity.refusal(each) is None
        assert placer.feasible(each).any()
    assert snapshot.complexity.numbers()[reasons.NAMESPACE_TOO_COMPLEX] == 3
    snapshot.remove(pods[0])
    assert placer.feasible(pods[1]).any()


def with_node_selectors(name: str) -> Pod:
    expression = LabelRequirement("pool", "In", tuple(f"{name}-{number}" for number in range(5)))
    preferred = PreferredNodeTerm(1, NodeSelectorTerm((expression,)))
    required = NodeSelector((NodeSelectorTerm((expression,)),))
    affinity = Affinity(node=NodeAffinity(required, (preferred,)))
    spec = PodSpec(affinity=affinity, node_selector=Labels({"os": name}), topology_spread=(ANYWHERE,))
    return Pod("shop", name, f"uid-{name}", spec=spec)


def with_namespace_selectors(name: str) -> Pod:
    everything = LabelSelector(Labels({"app": name}), (LabelRequirement("x", "Exists"),))
    term = PodAffinityTerm("zone", everything, ("a", "b"), everything)
    affinity = Affinity(pod_preferred=(WeightedPodTerm(1, term),), anti_required=(term,), pod_required=(term,))
    return Pod("shop", name, f"uid-{name}", spec=PodSpec(affinity=affinity))


def annotated(name: str) -> Pod:
    return Pod("shop", name, f"uid-{name}", annotations=Labels({"trimtab.dev/notes": f"{name:>83}"}))


def large(name: str) -> Pod:
    return Pod("shop", name, f"uid-{name}", spec=PodSpec(kibibytes=50, scheduler_name=name))


@pytest.mark.parametrize(
    ("make", "limits", "amount"),
    [
        (with_node_selectors, {"namespace_selector_values": 13}, "26 values in selectors (at most 13)"),
        (with_namespace_selectors, {"namespace_selector_values": 18}, "36 values in selectors (at most 18)"),
        (annotated, {"namespace_annotation_bytes": 100}, "200 bytes of annotations (at most 100)"),
        (large, {"namespace_spec_bytes": 51_200}, "102,400 bytes of large specs (at most 51,200)"),
    ],
)
def test_namespace_exceeds_each_limit(make: Callable[[str], Pod], limits: dict[str, int], amount: str):
    """Pods that do not contribute to the exceeded sum, and other namespaces, are not affected."""
    first, second = make("first"), make("second")
    other, plain = msgspec.structs.replace(first, namespace="bank"), Pod("shop", "plain", "uid-plain")
    snapshot = Snapshot([node("n1").build(), plain, other, first], limits=ComplexityLimits(**limits))
    placer = Placer(snapshot)
    assert snapshot.complexity.refusal(first) is None
    with snapshot.fork():
        snapshot.put(second)
        for each in (first, second):
            reason, message = snapshot.complexity.refusal(each)
            assert reason == reasons.NAMESPACE_TOO_COMPLEX
            assert amount in message
            assert placer.refusal(each) is not None
        for each in (plain, other):
            assert snapshot.complexity.refusal(each) is None
            assert placer.refusal(each) is None
        assert snapshot.complexity.numbers()[reasons.NAMESPACE_TOO_COMPLEX] == 2
    assert snapshot.complexity.refusal(first) is None
    assert snapshot.complexity.numbers()[reasons.NAMESPACE_TOO_COMPLEX] == 0


def test_changed_annotations_are_counted_also_if_the_pod_moves():
    few, many = annotated("pod"), msgspec.structs.replace(annotated("pod"), annotations=Labels({"a": "x" * 150}))
    snapshot = Snapshot([node("n1").build(), few], limits=ComplexityLimits(namespace_annotation_bytes=100))
    with snapshot.fork():
        for _ in range(50):  # undone in one operation, because many pods only move
            snapshot.put(msgspec.structs.replace(many, node="n1"))
            snapshot.put(many)
        assert snapshot.complexity.refusal(many) is not None
    assert snapshot.complexity.refusal(few) is None
    snapshot.put(many)
    assert snapshot.complexity.refusal(many) is not None
    snapshot.remove(many)
    assert not snapshot.complexity._namespaces


def test_replicas_count_once_and_forks_restore_the_count():
    template = with_terms("p", 10)
    replicas = [msgspec.structs.replace(template, name=f"p{number}", uid=f"u{number}") for number in range(50)]
    snapshot = Snapshot([node("n1").build(), *replicas], limits=ComplexityLimits(namespace_terms=15))
    assert snapshot.complexity.refusal(replicas[0]) is None
    with snapshot.fork():
        snapshot.put(with_terms("more", 10, first=100))
        snapshot.move(replicas[0], "n1")
        assert snapshot.complexity.refusal(replicas[0]) is not None
    assert snapshot.complexity.refusal(replicas[0]) is None
    for each in replicas:
        snapshot.remove(each)
    assert not snapshot.complexity._namespaces
    assert not snapshot.complexity._namespaces


def pinned_to(node: str) -> NodeSelector:
    """The required node affinity that the DaemonSet controller gives a pod."""
    return NodeSelector((NodeSelectorTerm(match_fields=(LabelRequirement("metadata.name", "In", (node,)),)),))


def daemon_pods(daemon_sets: int, nodes: int) -> Iterator[Pod]:
    arch = NodeSelectorTerm((LabelRequirement("kubernetes.io/arch", "In", ("amd64", "arm64")),))
    preferred = (PreferredNodeTerm(1, arch),)
    for daemon_set in range(daemon_sets):
        selector = Labels({"kubernetes.io/os": "linux", "daemon-set": str(daemon_set)})
        for number in range(nodes):
            affinity = Affinity(node=NodeAffinity(pinned_to(f"n{number}"), preferred))
            spec = PodSpec(node_selector=selector, affinity=affinity)
            yield Pod("kube-system", f"d{daemon_set}-{number}", f"uid-{daemon_set}-{number}", spec=spec)


def test_daemon_set_pod_counts_one_value_for_its_node():
    pods = list(daemon_pods(10, 5_000))
    expected = 10 * 5_000 + 10 * 2 + 3  # names, node selectors, preferred node affinity
    complexity = PodComplexity(ComplexityLimits(namespace_selector_values=expected - 1))
    for each in pods:
        complexity.count(each, 1)
    assert f"{expected:,} values in selectors" in complexity.refusal(pods[0])[1]
    complexity.count(pods[-1], -1)
    assert complexity.refusal(pods[0]) is None
    assert 3 * expected < DEFAULT_LIMITS.namespace_selector_values
    for each in pods[:-1]:
        complexity.count(each, -1)
    assert not complexity._namespaces


def test_decoded_daemon_set_pods_share_what_counts_once():
    interner = Interner()

    def decoded(on: str) -> Any:
        manifest = pod(f"d-{on}").manifest()
        manifest["spec"]["nodeSelector"] = {"kubernetes.io/os": "linux"}
        preference = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}
        name = {"key": "metadata.name", "operator": "In", "values": [on]}
        manifest["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [name]}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": preference}],
            }
        }
        return decode_object(manifest, interner=interner)

    first, second = decoded("n1"), decoded("n2")
    assert first.spec is not second.spec
    complexity = PodComplexity(ComplexityLimits(namespace_selector_values=5))
    complexity.count(first, 1)
    complexity.count(second, 1)
    assert complexity.refusal(first) is None  # two names, one label, one expression with one value
    complexity.count(decoded("n3"), 1)
    assert complexity.refusal(first) is not None


def test_pod_affinity_and_spread_of_a_daemon_set_count_once():
    interner = Interner()

    def decoded(number: int) -> Any:
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
        name = {"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}
        manifest = pod(f"d-{number}").manifest()
        manifest["spec"]["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [name]}]}
            },
            **{
                kind: {
                    "requiredDuringSchedulingIgnoredDuringExecution": [term],
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
                }
                for kind in ("podAffinity", "podAntiAffinity")
            },
        }
        spread = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", **term}
        manifest["spec"]["topologySpreadConstraints"] = [spread]
        return decode_object(manifest, interner=interner)

    pods = [decoded(number) for number in range(100)]
    complexity = PodComplexity(ComplexityLimits(namespace_terms=5, namespace_selector_values=105))
    for each in pods:
        complexity.count(each, 1)
    assert complexity.refusal(pods[0]) is None  # 5 terms with one value each, and 100 names
    complexity.count(decoded(100), 1)
    assert "106 values in selectors" in complexity.refusal(pods[0])[1]
    for each in [*pods, decoded(100)]:
        complexity.count(each, -1)
    assert not complexity._namespaces


def test_node_names_and_owners_do_not_hide_other_required_values():
    """A tenant may write a DaemonSet as the owner, and the name of a different node into each pod."""
    expression = LabelRequirement("pool", "In", tuple(f"p{number}" for number in range(9)))
    complexity = PodComplexity(ComplexityLimits(namespace_selector_values=100))
    for number in range(10):
        terms = tuple(
            msgspec.structs.replace(each, match_expressions=(expression,)) for each in pinned_to(f"n{number}").terms
        )
        made = pod(f"p{number}", "tenant").owned_by("DaemonSet", "d").build()
        spec = msgspec.structs.replace(made.spec, affinity=Affinity(node=NodeAffinity(NodeSelector(terms))))
        made = msgspec.structs.replace(made, spec=spec)
        complexity.count(made, 1)
    assert "110 values in selectors" in complexity.refusal(made)[1]


def test_terminal_pods_do_not_count():
    """A namespace of pipelines keeps thousands of completed pods, each of which names a node group of its own."""
    done = [with_terms(f"p{number}", 10, first=10 * number) for number in range(3)]
    ended = [msgspec.structs.replace(each, phase="Succeeded") for each in done]
    fresh = with_terms("fresh", 10, first=100)
    snapshot = Snapshot([node("n1").build(), *ended, fresh], limits=ComplexityLimits(namespace_terms=25))
    assert snapshot.complexity.refusal(fresh) is None
    for each in done:
        snapshot.put(each)
    assert snapshot.complexity.refusal(fresh)[0] == reasons.NAMESPACE_TOO_COMPLEX
    with snapshot.fork():
        for each in ended:
            snapshot.put(each)
        assert snapshot.complexity.refusal(fresh) is None
        snapshot.remove(ended[0])
    assert snapshot.complexity.refusal(fresh)[0] == reasons.NAMESPACE_TOO_COMPLEX
    for each in ended:
        snapshot.put(each)
        snapshot.remove(each)
    assert snapshot.complexity.refusal(fresh) is None
    snapshot.remove(fresh)
    assert not snapshot.complexity._namespaces
    assert snapshot.complexity.numbers() == {reasons.POD_TOO_COMPLEX: 0, reasons.NAMESPACE_TOO_COMPLEX: 0}
