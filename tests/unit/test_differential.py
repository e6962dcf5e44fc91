"""The differential suite: random generation from a seed, comparison of verdicts, and shrinking of cases."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.builders import node, pod
from tests.differential import shrinking
from tests.differential.api_client import RESOURCES, key
from tests.differential.comparison import Difference, differences, scores_differ
from tests.differential.generator.applications import RULES, Applications
from tests.differential.generator.claims import CLAIM_UID, claim, claim_spec
from tests.differential.generator.cluster import FEATURES, RandomCluster
from tests.differential.generator.evolution import evolve
from tests.differential.generator.nodes import drained
from tests.differential.generator.rng import RandomSource
from tests.differential.kube_scheduler import Verdict
from tests.differential.report import Disagreement, Tally
from tests.differential.suite import on_node_only, reasons, without_nodes
from tests.differential.trimtab_placer import TrimtabPlacer, TrimtabVerdict
from tests.fixtures.golden import Golden
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.rules.taints import TO_BE_DELETED, UNSCHEDULABLE
from trimtab.kube.wire.decode import decode_object

POD = pod("pending").cpu("1").manifest()


def expected_verdict(node: str = "", message: str = "", **scores: dict[str, int]) -> Verdict:
    return Verdict(POD, None, node, message, scores)


def actual_verdict(message: str = "", **scores: dict[str, int]) -> TrimtabVerdict:
    return TrimtabVerdict(frozenset(scores), message, scores)


def test_the_same_seed_generates_the_same_cluster():
    for seed in range(20):
        one, other = RandomCluster(seed), RandomCluster(seed)
        assert one.objects == other.objects, seed
        assert [one.pending_pod(number) for number in range(5)] == [other.pending_pod(number) for number in range(5)], (
            seed
        )


def test_generated_objects_are_valid():
    for seed in range(20):
        cluster = RandomCluster(seed)
        assert len({key(manifest) for manifest in cluster.objects}) == len(cluster.objects), seed
        for manifest in (*cluster.objects, cluster.pending_pod(0)):
            assert manifest["kind"] in RESOURCES, seed
            assert decode_object(manifest) is not None or manifest["kind"] == "RuntimeClass", seed


def test_applications_are_generated_from_the_seed_alone():
    used = Counter()
    for seed in range(40):
        one, other = Applications(seed), Applications(seed)
        assert (one.objects, one.pods, one.leaving) == (other.objects, other.pods, other.leaving), seed
        manifests = [*one.objects, *one.pods]
        assert len({key(manifest) for manifest in manifests}) == len(manifests), seed
        for manifest in manifests:
            assert manifest["kind"] in RESOURCES, seed
            assert decode_object(manifest) is not None, seed
        used.update(rule for rules in one.rules_of.values() for rule in rules)
    assert used.keys() == {*RULES, "no rule"}


def test_a_drained_node_keeps_its_own_taints():
    found = drained(node("n1").taint("t", "v").manifest())
    assert found["spec"]["unschedulable"]
    assert [taint["key"] for taint in found["spec"]["taints"]] == ["t", UNSCHEDULABLE, TO_BE_DELETED]
    assert drained(found) == found


def test_excluded_subjects_are_not_generated():
    text = "".join(str(RandomCluster(seed, without=FEATURES).objects) for seed in range(20))
    for field in ("topologySpreadConstraints", "PersistentVolume", "ownerReferences", "restartPolicyRules"):
        assert field not in text


def test_objects_that_refer_to_a_recreated_object_are_recreated():
    bound = claim("data", "red", claim_spec("fast", "1Gi"))
    reference = {"namespace": "red", "name": "data", "uid": CLAIM_UID}
    volume = {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"claimRef": reference}}
    created_keys = [evolve(RandomSource(seed), [bound, volume], [bound, volume])[1].keys() for seed in range(50)]
    assert {frozenset(created) for created in created_keys} == {
        frozenset(),
        frozenset({"PersistentVolume/v"}),
        frozenset({"PersistentVolume/v", "PersistentVolumeClaim/red/data"}),
    }


AGREEING = {
    "one node fits": (expected_verdict("n1"), actual_verdict(n1={})),
    "highest-scored node": (expected_verdict("n1", n1={"A": 2}, n2={"A": 1}), actual_verdict(n1={"A": 2}, n2={"A": 1})),
    "one of two tied nodes": (
        expected_verdict("n2", n1={"A": 1}, n2={"A": 1}),
        actual_verdict(n1={"A": 1}, n2={"A": 1}),
    ),
    "kube-scheduler appends preemption": (
        expected_verdict(message="0/1 …: 1 x. preemption: …"),
        actual_verdict("0/1 …: 1 x."),
    ),
}


@pytest.mark.parametrize(("expected", "actual"), AGREEING.values(), ids=AGREEING)
def test_equivalent_results_are_no_difference(expected, actual):
    assert differences(expected, actual) == []


DIFFERING = {
    "fits only by kube-scheduler": (expected_verdict("n1", n1={}, n2={}), actual_verdict(n1={}), ["feasibility"]),
    "fits only by trimtab": (expected_verdict(message="0/1"), actual_verdict(n1={}), ["feasibility"]),
    "different reason": (expected_verdict(message="0/1 …: 1 x."), actual_verdict("0/1 …: 1 y."), ["reasons"]),
    "different choice": (
        expected_verdict("n1", n1={"A": 2}, n2={"A": 1}),
        actual_verdict(n1={"A": 1}, n2={"A": 2}),
        ["choice", "scores"],
    ),
    "missing plugin": (expected_verdict("n1", n1={"A": 2}, n2={"A": 2}), actual_verdict(n1={}, n2={}), ["scores"]),
    "different scores with equal totals": (
        expected_verdict("n1", n1={"A": 1, "B": 2}, n2={"A": 0, "B": 0}),
        actual_verdict(n1={"A": 2, "B": 1}, n2={"A": 0, "B": 0}),
        ["scores", "scores"],
    ),
}


@pytest.mark.parametrize(("expected", "actual", "kinds"), DIFFERING.values(), ids=DIFFERING)
def test_different_results_are_a_difference(expected, actual, kinds):
    assert [difference.kind for difference in differences(expected, actual)] == kinds


def test_choice_among_equal_nodes_is_not_counted():
    assert scores_differ(expected_verdict("n1", n1={"A": 2}, n2={"A": 1}))
    assert not scores_differ(expected_verdict("n1", n1={"A": 2, "B": 0}, n2={"A": 1, "B": 1}))


def test_pod_is_pinned_to_a_node_or_kept_away():
    actual = TrimtabPlacer(Snapshot([node("n1").build(), node("n2").build(), node("n3").build()]))
    assert actual.evaluate(on_node_only(POD, "n2")).fits == {"n2"}
    assert actual.evaluate(without_nodes(POD, ["n2", "n3"])).fits == {"n1"}


def test_messages_are_counted_without_numbers_and_names():
    message = "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/3 nodes …"
    assert reasons(message) == ["Insufficient cpu", "node(s) were unschedulable"]


def test_run_succeeds_if_all_choices_are_predicted():
    tally = Tally(ranked=100, in_top=95)
    assert tally.passed
    assert not Tally(ranked=100, in_top=94).passed
    tally.disagreements.append(Disagreement(1, [], POD, Difference("feasibility", "")))
    assert not tally.passed


def test_unreproducible_case_is_reported_unshrunk(monkeypatch, golden: Golden):
    monkeypatch.setattr(shrinking, "reproduce", lambda *_: None)
    case = Disagreement(7, [node("n1").manifest()], POD, Difference("feasibility", "they differ"))

    found = shrinking.shrink_case(None, case)

    assert (found.objects, found.pod) == (case.objects, case.pod)
    golden(found.difference.text)


def test_case_shrinks_to_the_relevant_objects(monkeypatch, golden: Golden):
    """The fake comparison disagrees if a node is cordoned and the pod requests cpu."""

    def reproduce(_environment, objects, manifest, before):
        cordoned = any(obj.get("spec", {}).get("unschedulable") for obj in objects)
        requests = manifest["spec"]["containers"][0].get("resources", {}).get("requests", {})
        return before if cordoned and "cpu" in requests else None

    monkeypatch.setattr(shrinking, "reproduce", reproduce)
    objects = [node(f"n{number}").labels(a="b").manifest() for number in range(9)]
    objects.append(node("cordoned").merge(spec={"unschedulable": True}).manifest())
    objects += [pod(f"bound-{number}").on("n1").manifest() for number in range(20)]
    requested = pod("pending").cpu("1").memory("1Gi").tolerates().manifest()

    found = shrinking.shrink_case(None, Disagreement(7, objects, requested, Difference("feasibility", "they differ")))

    assert [key(manifest) for manifest in found.objects] == ["Node/cordoned"]
    assert found.objects[0]["spec"] == {"unschedulable": True}
    assert found.pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert "tolerations" not in found.pod["spec"]
    golden("\n".join(line for line in found.render().splitlines() if line.startswith("#")))
