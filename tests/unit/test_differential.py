"""The differential suite itself: what it draws follows from the seed, what it compares, and how cases get small."""

from __future__ import annotations

import pytest

from tests.builders import node, pod
from tests.differential import shrinking
from tests.differential.comparison import Difference, decisive, differences
from tests.differential.generator.chance import Chance
from tests.differential.generator.claims import THE_CLAIM, claim, claim_spec
from tests.differential.generator.cluster import SUBJECTS, RandomCluster
from tests.differential.generator.evolution import evolve
from tests.differential.ours import Ours, Word
from tests.differential.report import Disagreement, Tally
from tests.differential.scheduler import Verdict
from tests.differential.server import RESOURCES, key
from tests.differential.suite import elsewhere, pinned, reasons
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.wire.decode import decode_object

POD = pod("asked").cpu("1").manifest()


def said(node: str = "", message: str = "", **scores: dict[str, int]) -> Verdict:
    return Verdict(POD, None, node, message, scores)


def word(message: str = "", **scores: dict[str, int]) -> Word:
    return Word(frozenset(scores), message, scores)


@pytest.mark.parametrize("seed", range(20))
def test_clusters_follow_from_their_seed(seed):
    one, other = RandomCluster(seed), RandomCluster(seed)
    assert one.objects == other.objects
    assert [one.asked(number) for number in range(5)] == [other.asked(number) for number in range(5)]


@pytest.mark.parametrize("seed", range(20))
def test_all_that_is_drawn_can_be_read(seed):
    cluster = RandomCluster(seed)
    assert len({key(manifest) for manifest in cluster.objects}) == len(cluster.objects)
    for manifest in (*cluster.objects, cluster.asked(0)):
        assert manifest["kind"] in RESOURCES
        assert decode_object(manifest) is not None or manifest["kind"] == "RuntimeClass"


def test_without_a_subject_nothing_of_it_is_drawn():
    text = "".join(str(RandomCluster(seed, without=SUBJECTS).objects) for seed in range(20))
    for trace in ("topologySpreadConstraints", "PersistentVolume", "ownerReferences", "restartPolicyRules"):
        assert trace not in text


def test_who_refers_to_an_object_that_is_made_anew_is_made_anew_as_well():
    bound = claim("data", "red", claim_spec("fast", "1Gi"))
    reference = {"namespace": "red", "name": "data", "uid": THE_CLAIM}
    volume = {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"claimRef": reference}}
    ways = [evolve(Chance(seed), [bound, volume], [bound, volume])[1].keys() for seed in range(50)]
    assert {frozenset(come) for come in ways} == {
        frozenset(),
        frozenset({"PersistentVolume/v"}),
        frozenset({"PersistentVolume/v", "PersistentVolumeClaim/red/data"}),
    }


AGREEING = {
    "both see one node": (said("n1"), word(n1={})),
    "the best of two": (said("n1", n1={"A": 2}, n2={"A": 1}), word(n1={"A": 2}, n2={"A": 1})),
    "either of two that are even": (said("n2", n1={"A": 1}, n2={"A": 1}), word(n1={"A": 1}, n2={"A": 1})),
    "nothing fits, and more is said": (said(message="0/1 …: 1 x. preemption: …"), word("0/1 …: 1 x.")),
}


@pytest.mark.parametrize(("theirs", "ours"), AGREEING.values(), ids=AGREEING)
def test_it_is_no_difference_that(theirs, ours):
    assert differences(theirs, ours) == []


DIFFERING = {
    "only they let it on a node": (said("n1", n1={}, n2={}), word(n1={}), ["feasibility"]),
    "only we let it on a node": (said(message="0/1"), word(n1={}), ["feasibility"]),
    "another reason": (said(message="0/1 …: 1 x."), word("0/1 …: 1 y."), ["reasons"]),
    "another choice": (said("n1", n1={"A": 2}, n2={"A": 1}), word(n1={"A": 1}, n2={"A": 2}), ["choice", "scores"]),
    "a score that we lack": (said("n1", n1={"A": 2}, n2={"A": 2}), word(n1={}, n2={}), ["scores"]),
    "scores that add up to the same": (
        said("n1", n1={"A": 1, "B": 2}, n2={"A": 0, "B": 0}),
        word(n1={"A": 2, "B": 1}, n2={"A": 0, "B": 0}),
        ["scores", "scores"],
    ),
}


@pytest.mark.parametrize(("theirs", "ours", "kinds"), DIFFERING.values(), ids=DIFFERING)
def test_it_is_a_difference_that(theirs, ours, kinds):
    assert [difference.kind for difference in differences(theirs, ours)] == kinds


def test_a_choice_among_equals_says_nothing():
    assert decisive(said("n1", n1={"A": 2}, n2={"A": 1}))
    assert not decisive(said("n1", n1={"A": 2, "B": 0}, n2={"A": 1, "B": 1}))


def test_a_pod_can_be_kept_to_one_node_and_away_from_some():
    ours = Ours(Snapshot([node("n1").build(), node("n2").build(), node("n3").build()]))
    assert ours.judge(pinned(POD, "n2")).fits == {"n2"}
    assert ours.judge(elsewhere(POD, ["n2", "n3"])).fits == {"n1"}


def test_what_was_met_is_counted_without_numbers_and_names():
    message = "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/3 nodes …"
    assert reasons(message) == ["Insufficient cpu", "node(s) were unschedulable"]


def test_a_run_passes_only_with_choices_foretold_and_no_other_verdict():
    tally = Tally(decisive=100, in_top=95)
    assert tally.passed
    assert not Tally(decisive=100, in_top=94).passed
    tally.disagreements.append(Disagreement(1, [], POD, Difference("feasibility", "")))
    assert not tally.passed


def test_a_case_that_does_not_show_again_is_told_as_it_was_met(monkeypatch):
    monkeypatch.setattr(shrinking, "again", lambda *_: None)
    case = Disagreement(7, [node("n1").manifest()], POD, Difference("feasibility", "they differ"))

    found = shrinking.shrunk(None, case)

    assert (found.objects, found.pod) == (case.objects, case.pod)
    assert found.difference.text == "they differ\n(It did not show again in a cluster made anew.)"


def test_a_case_shrinks_to_what_shows_it(monkeypatch):
    """Here both disagree wherever there is a cordoned node and the pod requests cpu."""

    def again(_world, objects, manifest, before):
        cordoned = any(obj.get("spec", {}).get("unschedulable") for obj in objects)
        requests = manifest["spec"]["containers"][0].get("resources", {}).get("requests", {})
        return before if cordoned and "cpu" in requests else None

    monkeypatch.setattr(shrinking, "again", again)
    objects = [node(f"n{number}").labels(a="b").manifest() for number in range(9)]
    objects.append(node("cordoned").merge(spec={"unschedulable": True}).manifest())
    objects += [pod(f"there-{number}").on("n1").manifest() for number in range(20)]
    asked = pod("asked").cpu("1").memory("1Gi").tolerates().manifest()

    found = shrinking.shrunk(None, Disagreement(7, objects, asked, Difference("feasibility", "they differ")))

    assert [key(manifest) for manifest in found.objects] == ["Node/cordoned"]
    assert found.objects[0]["spec"] == {"unschedulable": True}
    assert found.pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert "tolerations" not in found.pod["spec"]
    assert found.told().startswith("# feasibility, cluster of seed 7, 1 objects and the pod\n# they differ\n")
