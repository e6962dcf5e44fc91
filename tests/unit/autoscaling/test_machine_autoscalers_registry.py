"""The registry of MachineAutoscalers, with events and lists in any order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.autoscalers import TARGET, machine_autoscaler
from tests.fixtures.golden import Golden
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalerRegistry
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey

WORKERS = TargetKey("machine.openshift.io", "MachineSet", "default/workers-a")


def body(
    name: str = "a",
    *,
    version: int = 1,
    uid: str = "",
    low: int = 1,
    high: int = 3,
    deleting: bool = False,
    **more: Any,
) -> dict[str, Any]:
    found = machine_autoscaler(f"{{minReplicas: {low}, maxReplicas: {high}, {TARGET}}}", name=name)
    found["metadata"] |= {"uid": uid or f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    if deleting:
        found["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    return found | more


def names(registry: MachineAutoscalerRegistry) -> list[str]:
    return [each.metadata.name for each in registry.all]


def test_all_valid_objects_are_listed_by_name(golden: Golden) -> None:
    registry = MachineAutoscalerRegistry()
    for each in (body("b"), body("a"), body("c", low=4)):
        registry.observe(each)

    assert names(registry) == ["a", "b"]
    assert [each.key for each in registry.claiming(WORKERS)] == ["default/a", "default/b"]
    [(key, problem)] = registry.invalid.items()
    assert key == "default/c"
    golden(str(problem))


def test_older_version_is_ignored() -> None:
    registry = MachineAutoscalerRegistry()
    registry.observe(body(version=10, high=9))
    registry.observe(body(version=9, high=3))

    assert registry.all[0].spec.max_replicas == 9


def test_recreated_object_replaces_the_old_one() -> None:
    registry = MachineAutoscalerRegistry()
    registry.observe(body(version=10, uid="old", high=9))
    registry.observe(body(version=2, uid="new", high=3))
    registry.remove("default/a", uid="old")

    assert registry.all[0].metadata.uid == "new"
    registry.remove("default/a", uid="new")
    assert registry.all == ()
    assert registry.claiming(WORKERS) == ()


def test_list_removes_missing_but_not_newer_objects() -> None:
    registry = MachineAutoscalerRegistry()
    registry.observe(body("gone", version=5))
    registry.observe(body("newer", version=12))

    assert registry.replace([body("there", version=7)], resource_version="10") == ("default/gone",)
    assert names(registry) == ["newer", "there"]


def test_object_being_deleted_claims_no_target() -> None:
    registry = MachineAutoscalerRegistry()
    entry = registry.observe(body(deleting=True))

    assert entry.deleting
    assert entry.claim is None
    assert registry.claiming(WORKERS) == ()
    assert registry.all[0].metadata.deletion_timestamp is not None


def test_status_change_is_not_announced() -> None:
    woken = []
    registry = MachineAutoscalerRegistry(lambda: woken.append(1))
    registry.observe(body(version=1))
    registry.observe(body(version=2, status={"observedGeneration": 1}))
    assert len(woken) == 1
    registry.observe(body(version=3, high=9))
    assert len(woken) == 2
    registry.observe(body(version=4, low=10))  # invalid: ignored
    assert len(woken) == 3


@pytest.mark.parametrize(
    "status",
    [None, {}, {"conditions": "all well"}, {"lastTargetRef": {"kind": 3}}, "fine", {"replicas": -1, "more": [1]}],
    ids=str,
)
def test_invalid_status_counts_as_empty(status: Any) -> None:
    registry = MachineAutoscalerRegistry()
    for low in (1, 9):
        entry = registry.observe(body(uid=str(low), low=low, status=status))
        assert entry.status.last_target_ref is None
        assert entry.status.conditions == ()


@pytest.mark.parametrize("spec", [None, [], "x", {"scaleTargetRef": None}, {"minReplicas": "1"}], ids=str)
def test_invalid_spec_does_not_raise(spec: Any) -> None:
    registry = MachineAutoscalerRegistry()
    registry.observe(body("good"))
    entry = registry.observe(body("bad") | {"spec": spec})

    assert entry.problem is not None
    assert names(registry) == ["good"]
