"""The plan of what taints do to pods: when each goes, because of which taint and toleration, and why others stay."""

from __future__ import annotations

import random

import msgspec
import pytest
from msgspec.structs import replace

from tests.fixtures.golden import Golden
from tests.taint_managers import taint_manager
from tests.unit.tainting.deadlines import START, bears, node, observed, pod, taint
from trimtab.api.decode import decode_taint_manager
from trimtab.api.plan import Plan
from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import Node, Pod, Toleration
from trimtab.tainting.deadlines import describe_toleration
from trimtab.tainting.preview import TaintPlan, plan_deletions

NOW = START + 100
MAINTENANCE = taint("example.com/maintenance", "disk", added=0)


def plan(*objects: Node | Pod, spec: str = "{}", now: float = NOW) -> TaintPlan:
    manager: TaintManagerSpec = decode_taint_manager(taint_manager(spec)).spec
    return plan_deletions(Snapshot(objects), manager, now=now)


def test_pod_with_toleration_seconds_is_planned_at_its_deadline(golden: Golden) -> None:
    (found,) = plan(node(MAINTENANCE), pod(bears("example.com/maintenance", 3600, value="disk"))).deletions

    document = msgspec.to_builtins(found)
    golden(document.pop("message"))
    assert document == {
        "action": "Delete",
        "namespace": "shop",
        "pod": "web",
        "node": "n1",
        "uid": "uid-web",
        "due": "2027-01-15T09:00:00Z",
        "reason": "NoExecuteTaint",
        "taint": {"key": "example.com/maintenance", "value": "disk", "effect": "NoExecute"},
        "toleration": {
            "key": "example.com/maintenance",
            "operator": "Equal",
            "value": "disk",
            "effect": "NoExecute",
            "tolerationSeconds": 3600,
        },
    }


def test_pod_without_toleration_is_planned_now(golden: Golden) -> None:
    (found,) = plan(node(taint()), pod()).deletions

    assert found.due == "2027-01-15T08:01:40Z"
    golden(found.message)
    assert found.toleration is None


def test_deadlines_are_rounded_up() -> None:
    (found,) = plan(node(taint(added=0.5)), pod(bears("a", 200))).deletions

    assert found.due == "2027-01-15T08:03:21Z"


def test_plan_names_when_the_taint_counts_for_a_later_pod() -> None:
    (found,) = plan(node(taint()), pod(bears("a", 200), started=60)).deletions

    assert found.due == "2027-01-15T08:04:20Z"
    assert "since 2027-01-15T08:01:00Z" in found.message


def test_deletions_are_sorted_by_deadline_and_name() -> None:
    found = plan(
        node(taint()),
        pod(bears("a", 900), name="late"),
        pod(bears("a", 50), name="overdue"),
        pod(name="at-once"),
        pod(bears("a", 300), name="soon"),
    )

    assert [each.pod for each in found.deletions] == ["at-once", "overdue", "soon", "late"]


KEPT = {
    "tolerates it for ever": (pod(bears("a")), "ToleratesTaints", "tolerates a:NoExecute forever"),
    "has ended": (replace(pod(), phase="Failed"), "Terminal", "the pod is terminal"),
    "is going": (replace(pod(), deleted=START), "Terminating", "the pod is already being deleted"),
    "is a mirror pod": (
        replace(pod(), annotations=Labels({"kubernetes.io/config.mirror": "x"})),
        "MirrorPod",
        "mirror pod: the kubelet would recreate it",
    ),
}


@pytest.mark.parametrize(("one", "reason", "message"), KEPT.values(), ids=KEPT)
def test_other_pods_of_tainted_nodes_are_kept_with_reason(one: Pod, reason: str, message: str) -> None:
    found = plan(node(taint()), one)
    (kept,) = found.kept

    assert not found.deletions
    assert (kept.kind, kept.namespace, kept.name, kept.node) == ("Pod", "shop", "web", "n1")
    assert (kept.policy, kept.strategy) == ("default", "TaintManager")
    assert (kept.reason, kept.message) == (reason, message)


def test_pods_of_untainted_nodes_are_not_planned() -> None:
    found = plan(node(taint(effect="NoSchedule")), node(name="n2"), pod(), pod(on="n2", name="b"), pod(on="", name="c"))

    assert found == TaintPlan(None, (), ())


def test_policy_of_the_deciding_taint_applies() -> None:
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
def test_plan_uses_toleration_matching_of_the_spec(spec: str, seconds: int) -> None:
    (found,) = plan(node(taint()), pod(bears("a", 300), bears("a", 30)), spec=spec, now=START).deletions

    assert found.toleration is not None
    assert found.toleration.seconds == seconds


def test_known_time_of_taint_without_time_added_counts() -> None:
    objects = [node(taint(added=None)), pod(bears("a", 60))]
    known = {"n1": observed(taint(added=None), seen=10)}

    (fresh,) = plan_deletions(Snapshot(objects), TaintManagerSpec(), now=NOW).deletions
    (remembered,) = plan_deletions(Snapshot(objects), TaintManagerSpec(), now=NOW, known=known).deletions
    assert (fresh.due, remembered.due) == ("2027-01-15T08:02:40Z", "2027-01-15T08:01:40Z")


def test_plan_does_not_depend_on_object_order() -> None:
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


def test_plan_document_counts_deletions() -> None:
    found = plan(node(taint()), pod())
    document = Plan(now=NOW, deletions=found.deletions, kept=found.kept).document()

    assert document["summary"] == {"Delete": 1, "Evict": 0, "kept": 0}
    assert Plan(now=NOW, deletions=()).summary() == {"Delete": 0, "Evict": 0, "kept": 0}
    assert "Delete" not in Plan(now=NOW).summary()


@pytest.mark.parametrize(
    ("toleration", "text"),
    [
        (bears("a", 300), "a:NoExecute for 300s"),
        (bears("a"), "a:NoExecute forever"),
        (bears("a", 5, value="v", effect=""), "a=v:* for 5s"),
        (bears("", -3), "*:NoExecute for 0s"),
        (Toleration("a", "", "", "NoExecute"), "a=:NoExecute forever"),
        (Toleration("a", "Gt", "5", "NoExecute", 1), "a=5:NoExecute (Gt) for 1s"),
        (None, ""),
    ],
)
def test_toleration_is_formatted(toleration: Toleration | None, text: str) -> None:
    assert describe_toleration(toleration) == text
