"""Drainability: each rule, and which rule wins."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.builders import budget, pod, replica_set
from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_down_plans import NOW, flat
from trimtab.api import reasons
from trimtab.autoscaling.scale_down.drainability import IN_ORDER, DrainContext, DrainOutcome, judge, judge_template
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


def context(*others: Any, local_storage_blocks: bool = True) -> DrainContext:
    snapshot = Snapshot([builder.build() for builder in flat(others)])
    return DrainContext(snapshot, BudgetLedger(snapshot), NOW, local_storage_blocks=local_storage_blocks)


def owned(name: str = "web-1", namespace: str = "shop") -> Any:
    return pod(name, namespace).on("n1").labels(app="web").owned_by("ReplicaSet", "web")


def guard(allowed: int, namespace: str = "shop") -> Any:
    return budget(namespace=namespace).selecting(app="web").allowing(allowed)


CASES: dict[str, tuple[Any, list[Any], str, str]] = {
    "a pod of a ReplicaSet goes": (owned(), [], "Drain", ""),
    "a mirror pod is skipped": (pod("etcd").on("n1").mirror(), [], "Skip", ""),
    "a pod that should have ended long ago is skipped": (
        pod("old").on("n1").grace_period(10).deleted("2026-11-20T11:59:00Z"),
        [],
        "Skip",
        "",
    ),
    "a bare pod that is just ending keeps the node": (
        pod("old").on("n1").grace_period(60).deleted("2026-11-20T11:59:00Z"),
        [],
        "Block",
        "NotReplicated",
    ),
    "a pod whose ReplicaSet is gone keeps the node": (owned(), [replica_set("other")], "Block", "ControllerNotFound"),
    "a pod whose ReplicaSet is there goes": (owned(), [replica_set("web")], "Drain", ""),
    "ReplicaSets of other namespaces say nothing": (owned(), [replica_set("other", "bank")], "Drain", ""),
    "a pod of a DaemonSet goes with its node": (
        pod("agent", "kube-system").on("n1").owned_by("DaemonSet", "agent").volume("hostPath", path="/"),
        [],
        "Drain",
        "",
    ),
    "safe-to-evict true beats all that follows": (
        pod("db", "kube-system").on("n1").annotations({SAFE: "true"}).volume("emptyDir"),
        [],
        "Drain",
        "",
    ),
    "but not a controller that is gone": (
        owned().annotations({SAFE: "true"}),
        [replica_set("other")],
        "Block",
        "ControllerNotFound",
    ),
    "a pod that has ended goes": (pod("once").on("n1").phase("Succeeded"), [], "Drain", ""),
    "on-completion makes the node wait": (
        pod("job").on("n1").annotations({SAFE: "on-completion"}),
        [],
        "Wait",
        "BlockedByOnCompletionPod",
    ),
    "a bare pod keeps the node": (pod("bare").on("n1"), [], "Block", "NotReplicated"),
    "so does one of a controller that nothing is known of": (
        pod("own").on("n1").owned_by("Machinery", "own", api_version="example.com/v1"),
        [],
        "Block",
        "NotReplicated",
    ),
    "a pod of a Job goes": (pod("job").on("n1").owned_by("Job", "nightly"), [], "Drain", ""),
    "a pod of a StatefulSet goes": (pod("db-0").on("n1").owned_by("StatefulSet", "db"), [], "Drain", ""),
    "a pod of kube-system without a budget keeps the node": (
        owned(namespace="kube-system").created("2020-01-01T00:00:00Z"),
        [],
        "Block",
        "UnmovableKubeSystemPod",
    ),
    "a pod of kube-system with a budget goes": (
        owned(namespace="kube-system"),
        [guard(1, "kube-system")],
        "Drain",
        "",
    ),
    "safe-to-evict false keeps the node": (
        owned().annotations({SAFE: "false"}),
        [],
        "Block",
        "NotSafeToEvictAnnotation",
    ),
    "any other word says nothing": (owned().annotations({SAFE: "maybe"}), [], "Drain", ""),
    "an emptyDir keeps the node": (owned().volume("emptyDir"), [], "Block", "LocalStorageRequested"),
    "so does a hostPath": (owned().volume("hostPath", path="/x"), [], "Block", "LocalStorageRequested"),
    "memory keeps nothing": (owned().volume("emptyDir", medium="Memory"), [], "Drain", ""),
    "volumes that are all listed keep nothing": (
        owned().volume("emptyDir").volume("hostPath", path="/x").annotations({VOLUMES: "volume-0, volume-1"}),
        [],
        "Drain",
        "",
    ),
    "one that is not listed does": (
        owned().volume("emptyDir").volume("emptyDir").annotations({VOLUMES: "volume-0"}),
        [],
        "Block",
        "LocalStorageRequested",
    ),
    "a budget that allows a disruption lets it go": (owned(), [guard(1)], "Drain", ""),
    "a budget that allows none keeps the node": (owned(), [guard(0)], "Block", "NotEnoughPdb"),
    "of two reasons the earlier rule's is told": (
        owned().annotations({SAFE: "false"}).volume("emptyDir"),
        [guard(0)],
        "Block",
        "NotSafeToEvictAnnotation",
    ),
}


@pytest.mark.parametrize(("builder", "others", "outcome", "reason"), CASES.values(), ids=CASES)
def test_first_applicable_rule_wins(builder: Any, others: list[Any], outcome: str, reason: str) -> None:
    verdict = judge(builder.build(), context(others))
    assert (str(verdict.outcome), verdict.reason) == (outcome, reason)
    assert bool(verdict.message) == bool(reason)


@pytest.mark.parametrize("builder", [owned().volume("emptyDir"), owned().volume("hostPath", path="/x")])
def test_local_storage_does_not_block_if_disabled(builder: Any) -> None:
    assert judge(builder.build(), context(local_storage_blocks=False)).outcome is DrainOutcome.DRAIN


def test_rules_are_upstreams_and_two_more() -> None:
    names = [rule.name for rule in IN_ORDER]
    assert len(names) == len(set(names)) == 14
    assert {"Complexity", "PodGroup"} <= set(names)


def test_pod_of_a_pod_group_blocks_the_removal() -> None:
    member = pod("worker-1").owned_by("Job", "train").merge(spec={"schedulingGroup": {"podGroupName": "train"}})
    assert judge(member.build(), context()).reason == reasons.POD_GROUPS_STAY


def test_too_complex_pod_blocks_the_removal() -> None:
    plain = pod("big").owned_by("ReplicaSet", "web").build()
    complex_pod = replace(plain, spec=replace(plain.spec, complexity="8,000 affinity terms (at most 64)"))
    verdicts = [rule.check(complex_pod, None) for rule in IN_ORDER if rule.name == "Complexity"]  # type: ignore[arg-type]
    assert [verdict.reason for verdict in verdicts if verdict is not None] == [reasons.POD_TOO_COMPLEX]


@pytest.mark.parametrize(("builder", "others", "outcome", "reason"), CASES.values(), ids=CASES)
def test_template_rules_give_the_same_verdict_for_each_pod(
    builder: Any, others: list[Any], outcome: str, reason: str
) -> None:
    made = builder.build()
    if made.terminal or made.deleted is not None or reason == "NotEnoughPdb":
        return
    verdict = judge_template(made, context(others))
    assert (str(verdict.outcome), verdict.reason) == (outcome, reason)


def test_messages_name_volumes_and_pdb_numbers(golden: Golden) -> None:
    volumes = judge(owned().volume("emptyDir").build(), context())
    golden(volumes.message)
    budgets = judge(owned().build(), context(guard(0)))
    golden(budgets.message, "2")
