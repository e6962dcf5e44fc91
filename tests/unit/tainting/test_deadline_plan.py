"""The plan of what taints do to pods: when each goes, because of which taint and toleration, and why others stay."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from tests.taint_managers import taint_manager
from tests.unit.tainting.deadlines import START, bears, node, pod, standing, taint
from trimtab.api.decode import decode_taint_manager
from trimtab.api.plan import Plan
from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Pod, Toleration
from trimtab.tainting.deadlines import PodsOnTaints, plan_deletions, toleration_in_words

NOW = START + 100
MAINTENANCE = taint("example.com/maintenance", "disk", added=0)


def plan(*objects: Node | Pod, spec: str = "{}", now: float = NOW) -> PodsOnTaints:
    manager: TaintManagerSpec = decode_taint_manager(taint_manager(spec)).spec
    return plan_deletions(Snapshot(objects), manager, now=now)


def test_a_pod_that_is_tolerated_for_a_while_goes_then_and_the_plan_says_why() -> None:
    (found,) = plan(node(MAINTENANCE), pod(bears("example.com/maintenance", 3600, value="disk"))).deletions

    assert msgspec.to_builtins(found) == {
        "action": "Delete",
        "namespace": "shop",
        "pod": "web",
        "node": "n1",
        "uid": "uid-web",
        "due": "2027-01-15T09:00:00Z",
        "reason": "NoExecuteTaint",
        "message": "taint example.com/maintenance=disk:NoExecute since 2027-01-15T08:00:00Z, tolerated by "
        "example.com/maintenance=disk:NoExecute for 3600s",
        "taint": {"key": "example.com/maintenance", "value": "disk", "effect": "NoExecute"},
        "toleration": {
            "key": "example.com/maintenance",
            "operator": "Equal",
            "value": "disk",
            "effect": "NoExecute",
            "tolerationSeconds": 3600,
        },
    }


def test_a_pod_that_does_not_tolerate_goes_now() -> None:
    (found,) = plan(node(taint()), pod()).deletions

    assert found.due == "2027-01-15T08:01:40Z"
    assert found.message == "taint a:NoExecute since 2027-01-15T08:00:00Z; no toleration matches"
    assert found.toleration is None


def test_part_of_a_second_is_never_told_too_early() -> None:
    (found,) = plan(node(taint(added=0.5)), pod(bears("a", 200))).deletions

    assert found.due == "2027-01-15T08:03:21Z"


def test_a_pod_that_came_later_is_told_since_when_it_counts() -> None:
    (found,) = plan(node(taint()), pod(bears("a", 200), started=60)).deletions

    assert found.due == "2027-01-15T08:04:20Z"
    assert "since 2027-01-15T08:01:00Z" in found.message


def test_the_first_to_go_stands_first_and_those_of_one_time_by_their_names() -> None:
    found = plan(
        node(taint()),
        pod(bears("a", 900), name="late"),
        pod(bears("a", 50), name="overdue"),
        pod(name="at-once"),
        pod(bears("a", 300), name="soon"),
    )

    assert [each.pod for each in found.deletions] == ["at-once", "overdue", "soon", "late"]


KEPT = {
    "tolerates it for ever": (pod(bears("a")), "ToleratesTaints", "tolerates a:NoExecute for ever"),
    "has ended": (replace(pod(), phase="Failed"), "Terminal", "the pod has ended"),
    "is going": (replace(pod(), deleted=START), "Terminating", "the pod is being deleted already"),
    "is a mirror pod": (
        replace(pod(), annotations=Labels({"kubernetes.io/config.mirror": "x"})),
        "MirrorPod",
        "the kubelet would make it anew",
    ),
}


@pytest.mark.parametrize(("one", "reason", "message"), KEPT.values(), ids=KEPT)
def test_each_other_pod_of_a_tainted_node_is_kept_with_its_reason(one: Pod, reason: str, message: str) -> None:
    found = plan(node(taint()), one)
    (kept,) = found.kept

    assert not found.deletions
    assert (kept.kind, kept.namespace, kept.name, kept.node) == ("Pod", "shop", "web", "n1")
    assert (kept.policy, kept.strategy) == ("default", "TaintManager")
    assert (kept.reason, kept.message) == (reason, message)


def test_pods_of_nodes_without_such_taints_are_not_in_the_plan() -> None:
    found = plan(node(taint(effect="NoSchedule")), node(name="n2"), pod(), pod(on="n2", name="b"), pod(on="", name="c"))

    assert found == PodsOnTaints((), ())


def test_how_a_pod_goes_is_what_the_taint_that_ends_its_time_is_said_to_do() -> None:
    spec = "{taints: [{key: a, policy: Evict}, {key: b, policy: Delete}]}"
    found = plan(
        node(taint("a")),
        node(taint("b"), name="n2"),
        node(taint("c"), name="n3"),
        node(taint("a"), taint("b"), name="n4"),
        *(pod(bears("a", 9), bears("b", 5), on=f"n{number}", name=f"p{number}") for number in range(1, 5)),
        spec=spec,
    )

    assert {each.pod: each.how for each in found.deletions} == {
        "p1": "Evict",
        "p2": "Delete",
        "p3": "Delete",
        "p4": "Delete",
    }


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [("{}", 30), ("{tolerationMatching: First}", 300)],
    ids=["by default the fewest seconds", "upstream's the first"],
)
def test_the_rule_of_the_taint_manager_is_followed(spec: str, seconds: int) -> None:
    (found,) = plan(node(taint()), pod(bears("a", 300), bears("a", 30)), spec=spec, now=START).deletions

    assert found.toleration is not None
    assert found.toleration.seconds == seconds


def test_what_is_known_of_a_taint_without_a_time_is_what_counts() -> None:
    objects = [node(taint(added=None)), pod(bears("a", 60))]
    known = {"n1": standing(taint(added=None), seen=10)}

    (fresh,) = plan_deletions(Snapshot(objects), TaintManagerSpec(), now=NOW).deletions
    (remembered,) = plan_deletions(Snapshot(objects), TaintManagerSpec(), now=NOW, known=known).deletions
    assert (fresh.due, remembered.due) == ("2027-01-15T08:02:40Z", "2027-01-15T08:01:40Z")


def test_the_plan_is_the_same_in_whatever_order_things_are_read() -> None:
    objects: list[Node | Pod] = [
        *(node(taint("a"), taint("b", added=number), name=f"n{number}") for number in range(6)),
        *(
            pod(bears("b", number), bears("a", 40), on=f"n{number % 7}", name=f"p{number}", started=number % 3)
            for number in range(60)
        ),
        *(pod(bears(""), on=f"n{number}", name=f"stays{number}") for number in range(6)),
    ]
    first = plan(*objects)
    for seed in range(5):
        assert plan(*random.Random(seed).sample(objects, len(objects))) == first
    assert len(first.deletions) + len(first.kept) == sum(int(each.node) < 6 for each in _places(objects))


def _places(objects: list[Node | Pod]) -> list[Pod]:
    return [replace(each, node=each.node.removeprefix("n")) for each in objects if isinstance(each, Pod)]


def test_a_plan_with_deletions_is_a_document_that_counts_them() -> None:
    found = plan(node(taint()), pod())
    document = Plan(now=NOW, deletions=found.deletions, kept=found.kept).document()

    assert document["summary"] == {"Delete": 1, "Evict": 0, "kept": 0}
    assert Plan(now=NOW, deletions=()).summary() == {"Delete": 0, "Evict": 0, "kept": 0}
    assert "Delete" not in Plan(now=NOW).summary()


@pytest.mark.parametrize(
    ("toleration", "text"),
    [
        (bears("a", 300), "a:NoExecute for 300s"),
        (bears("a"), "a:NoExecute for ever"),
        (bears("a", 5, value="v", effect=""), "a=v:* for 5s"),
        (bears("", -3), "*:NoExecute for 0s"),
        (Toleration("a", "", "", "NoExecute"), "a=:NoExecute for ever"),
        (Toleration("a", "Gt", "5", "NoExecute", 1), "a=5:NoExecute (Gt) for 1s"),
        (None, ""),
    ],
)
def test_a_toleration_in_words(toleration: Toleration | None, text: str) -> None:
    assert toleration_in_words(toleration) == text
