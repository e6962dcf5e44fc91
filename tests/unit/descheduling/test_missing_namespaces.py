"""Namespaces that a policy names and that do not exist."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.unit.descheduling.planning import DUPLICATES, NOW, built, policy, utilization
from trimtab.api import reasons
from trimtab.api.plan import Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.planning.missing_namespaces import missing_namespaces
from trimtab.descheduling.report.status import CycleResult, conditions_after
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.inspection.planning import joint_plan
from trimtab.kube.objects import Namespace


def cluster(*namespaces: str) -> Snapshot:
    things = [node("n1"), pod("web", namespace="shop").on("n1"), *(Namespace(name) for name in namespaces)]
    return Snapshot(built(things))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"namespaces": {"include": ["shop"]}}, []),
        ({"namespaces": {"include": ["shopp"]}}, [("namespaces.include", "shopp", "shop")]),
        ({"namespaces": {"include": ["shopp", "shop"]}}, [("namespaces.include", "shopp", "shop")]),
        ({"namespaces": {"exclude": ["kube-sytem"]}}, [("namespaces.exclude", "kube-sytem", "kube-system")]),
        ({"namespaces": {"exclude": ["elsewhere"]}}, [("namespaces.exclude", "elsewhere", "")]),
    ],
)
def test_missing_namespace_is_found_with_the_similar_one(spec: dict[str, Any], expected: list[tuple[str, ...]]) -> None:
    found = missing_namespaces(policy({DUPLICATES: {}}, **spec).spec, cluster("shop", "kube-system"))

    assert [msgspec.structs.astuple(each) for each in found] == expected


def test_namespaces_that_a_strategy_excludes_are_checked() -> None:
    strategies = utilization({"cpu": 20}, {"cpu": 50})
    strategies["LowNodeUtilization"]["params"]["evictableNamespaces"] = {"exclude": ["shoop"]}

    [found] = missing_namespaces(policy(strategies).spec, cluster("shop"))

    assert found.field == "strategies.LowNodeUtilization.params.evictableNamespaces.exclude"
    assert found.similar == "shop"


def test_nothing_is_missing_if_namespaces_are_unknown() -> None:
    assert missing_namespaces(policy({DUPLICATES: {}}, namespaces={"include": ["x"]}).spec, cluster()) == ()


def test_namespace_of_a_pod_exists() -> None:
    assert missing_namespaces(policy({DUPLICATES: {}}, namespaces={"include": ["shop"]}).spec, cluster("other")) == ()


@pytest.mark.parametrize(
    ("spec", "degraded"),
    [
        ({"namespaces": {"include": ["shopp"]}}, (True, reasons.NAMESPACE_NOT_FOUND)),
        ({"namespaces": {"exclude": ["shopp"]}}, (False, reasons.ALL_WELL)),
    ],
)
def test_policy_is_degraded_only_if_it_includes_a_missing_namespace(
    spec: dict[str, Any], degraded: tuple[bool, str]
) -> None:
    missing = missing_namespaces(policy({DUPLICATES: {}}, **spec).spec, cluster("shop"))
    result = CycleResult("Act", Plan(now=NOW), [], NOW, NOW, 1, 1, missing_namespaces=missing)

    [found] = [(each.status, each.reason) for each in conditions_after(result) if each.type == "Degraded"]

    assert found == degraded


def test_plan_names_the_policy_and_the_missing_namespace() -> None:
    policies = PolicySet(descheduler=(policy({DUPLICATES: {}}, name="web", namespaces={"include": ["shopp"]}),))

    document: Any = joint_plan(ClusterInput(snapshot=cluster("shop"), now=NOW, policies=policies)).document()

    [kept] = document["kept"]
    assert (kept["kind"], kept["name"], kept["policy"]) == ("Namespace", "shopp", "web")
    assert kept["reason"] == reasons.NAMESPACE_NOT_FOUND
