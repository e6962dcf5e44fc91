"""The MachineAutoscalers that are known, whoever tells of them and in whatever order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.autoscalers import TARGET, machine_autoscaler
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalers
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


def names(registry: MachineAutoscalers) -> list[str]:
    return [each.metadata.name for each in registry.all]


def test_all_are_there_by_name_without_the_bad_ones() -> None:
    registry = MachineAutoscalers()
    for each in (body("b"), body("a"), body("c", low=4)):
        registry.observe(each)

    assert names(registry) == ["a", "b"]
    assert [each.key for each in registry.wanting(WORKERS)] == ["default/a", "default/b"]
    [(key, problem)] = registry.invalid.items()
    assert key == "default/c"
    assert "spec.maxReplicas: must be at least minReplicas: 3 is less than 4" in str(problem)


def test_an_older_state_that_comes_late_changes_nothing() -> None:
    registry = MachineAutoscalers()
    registry.observe(body(version=10, high=9))
    registry.observe(body(version=9, high=3))

    assert registry.all[0].spec.max_replicas == 9


def test_one_of_the_same_name_is_another_one() -> None:
    registry = MachineAutoscalers()
    registry.observe(body(version=10, uid="old", high=9))
    registry.observe(body(version=2, uid="new", high=3))
    registry.forget("default/a", uid="old")

    assert registry.all[0].metadata.uid == "new"
    registry.forget("default/a", uid="new")
    assert registry.all == ()
    assert registry.wanting(WORKERS) == ()


def test_a_list_takes_out_what_is_gone_and_not_what_is_newer() -> None:
    registry = MachineAutoscalers()
    registry.observe(body("gone", version=5))
    registry.observe(body("newer", version=12))

    assert registry.replace([body("there", version=7)], resource_version="10") == ("default/gone",)
    assert names(registry) == ["newer", "there"]


def test_one_that_is_being_deleted_wants_nothing_any_more_and_says_so() -> None:
    registry = MachineAutoscalers()
    entry = registry.observe(body(deleting=True))

    assert entry.deleting
    assert entry.claim is None
    assert registry.wanting(WORKERS) == ()
    assert registry.all[0].metadata.deletion_timestamp is not None


def test_a_change_of_its_status_wakes_nobody() -> None:
    woken = []
    registry = MachineAutoscalers(lambda: woken.append(1))
    registry.observe(body(version=1))
    registry.observe(body(version=2, status={"observedGeneration": 1}))
    assert len(woken) == 1
    registry.observe(body(version=3, high=9))
    assert len(woken) == 2
    registry.observe(body(version=4, low=10))  # bad: it is as if there were none
    assert len(woken) == 3


@pytest.mark.parametrize(
    "status",
    [None, {}, {"conditions": "all well"}, {"lastTargetRef": {"kind": 3}}, "fine", {"replicas": -1, "more": [1]}],
    ids=str,
)
def test_a_status_that_cannot_be_read_counts_as_none(status: Any) -> None:
    registry = MachineAutoscalers()
    for low in (1, 9):
        entry = registry.observe(body(uid=str(low), low=low, status=status))
        assert entry.status.last_target_ref is None
        assert entry.status.conditions == ()


@pytest.mark.parametrize("spec", [None, [], "x", {"scaleTargetRef": None}, {"minReplicas": "1"}], ids=str)
def test_no_spec_however_bad_raises(spec: Any) -> None:
    registry = MachineAutoscalers()
    registry.observe(body("good"))
    entry = registry.observe(body("bad") | {"spec": spec})

    assert entry.problem is not None
    assert names(registry) == ["good"]
