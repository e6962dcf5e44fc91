"""The annotations that a MachineAutoscaler's target gets and loses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.autoscalers import machine_autoscaler
from tests.builders import machine_set
from trimtab.api.decode import decode_machine_autoscaler
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.machine_autoscalers.annotations import (
    CAPACITY_NAMES,
    COPIES,
    capacity_changes,
    describe_changes,
    patches_of,
    recorded_copies,
    release_changes,
    removed_copies,
    target_changes,
)
from trimtab.kube.objects import AnyMachineSet

CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
OLD = {"cpu": "vCPU", "memory": "memoryMb", "gpu-count": "GPU", "maxPods": "maxPods"}


def reported(**amounts: str) -> dict[str, str]:
    """In the format of the machine controllers."""
    return {f"machine.openshift.io/{name}": text for name, text in amounts.items()}


def capacity(**amounts: str | None) -> dict[str, Any]:
    return {f"{CAPACITY}/{name.replace('_', '-')}": text for name, text in amounts.items()}


def after(annotations: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged = {**annotations, **changes}
    return {key: text for key, text in merged.items() if text is not None}


@pytest.mark.parametrize(
    ("annotations", "changes"),
    [
        pytest.param({}, {}, id="nothing reported"),
        pytest.param(
            reported(vCPU="4", memoryMb="16384", maxPods="250"),
            {**capacity(cpu="4", memory="16384Mi", maxPods="250"), COPIES: "cpu=4,memory=16384Mi,maxPods=250"},
            id="all missing",
        ),
        pytest.param(
            reported(GPU="2"),
            {**capacity(gpu_count="2", gpu_type="nvidia.com/gpu"), COPIES: "gpu-count=2,gpu-type=nvidia.com/gpu"},
            id="GPUs with type",
        ),
        pytest.param(reported(GPU="0", vCPU="0"), {}, id="zero"),
        pytest.param(reported(GPU="1") | capacity(gpu_count="4", gpu_type="amd.com/gpu"), {}, id="other GPUs set"),
        pytest.param(
            reported(vCPU="8") | capacity(cpu="4") | {COPIES: "cpu=4"},
            {**capacity(cpu="8"), COPIES: "cpu=8"},
            id="larger machines",
        ),
        pytest.param(reported(vCPU="8") | capacity(cpu="4"), {}, id="manual value"),
        pytest.param(
            reported(vCPU="8") | capacity(cpu="6") | {COPIES: "cpu=4"},
            {COPIES: None},
            id="later manual value",
        ),
        pytest.param(
            reported(vCPU="8") | {COPIES: "cpu=8"},
            capacity(cpu="8"),
            id="copy removed",
        ),
        pytest.param(capacity(cpu="4") | {COPIES: "cpu=4"}, {**capacity(cpu=None), COPIES: None}, id="source removed"),
        pytest.param(capacity(cpu="4"), {}, id="only new value"),
        pytest.param(reported(vCPU="many", memoryMb="16Gi", maxPods="-1"), {}, id="invalid numbers"),
        pytest.param(reported(vCPU="4") | capacity(cpu="4") | {COPIES: "cpu=4"}, {}, id="up to date"),
        pytest.param(
            reported(vCPU="4") | {COPIES: "nonsense,,="},
            {**capacity(cpu="4"), COPIES: "cpu=4"},
            id="invalid record",
        ),
        pytest.param(reported(vCPU="4") | capacity(cpu=""), {**capacity(cpu="4"), COPIES: "cpu=4"}, id="empty record"),
    ],
)
def test_capacity_annotations_are_copied(annotations: dict[str, str], changes: dict[str, str | None]) -> None:
    assert capacity_changes(annotations) == changes


@pytest.mark.parametrize(
    ("annotations", "record"),
    [
        (reported(vCPU="4") | capacity(cpu="4"), "cpu=4"),
        (reported(memoryMb="16384") | capacity(memory="16Gi"), "memory=16Gi"),
        (reported(vCPU="4") | capacity(cpu="3"), None),
        (reported(memoryMb="16384") | capacity(memory="a lot"), None),
    ],
    ids=["equal", "equal amount", "different", "invalid"],
)
def test_copies_of_openshifts_operator_are_adopted(annotations: dict[str, str], record: str | None) -> None:
    assert capacity_changes(annotations, adopt=True) == ({COPIES: record} if record else {})
    assert capacity_changes(annotations) == {}


TEXTS = st.sampled_from(["1", "4", "4096", "16384Mi", "nvidia.com/gpu", "0", "", "x"])
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [*(f"{CAPACITY}/{name}" for name in CAPACITY_NAMES), *(f"machine.openshift.io/{name}" for name in OLD.values())]
    ),
    TEXTS,
)
RECORDS = st.dictionaries(st.sampled_from(CAPACITY_NAMES), TEXTS).map(
    lambda found: ",".join(f"{name}={text}" for name, text in found.items())
)


@given(annotations=ANNOTATIONS, record=RECORDS, adopt=st.booleans())
def test_copying_is_idempotent_and_keeps_other_annotations(
    annotations: dict[str, str], record: str, adopt: bool
) -> None:
    annotations = annotations | ({COPIES: record} if record else {})
    changes = capacity_changes(annotations, adopt=adopt)
    now = after(annotations, changes)

    assert capacity_changes(now) == {}
    ours = recorded_copies(annotations)
    for name in CAPACITY_NAMES:
        key = f"{CAPACITY}/{name}"
        if annotations.get(key) and ours.get(name) != annotations[key]:
            assert now[key] == annotations[key]
    assert {key: text for key, text in now.items() if not key.startswith(CAPACITY) and key != COPIES} == {
        key: text for key, text in annotations.items() if not key.startswith(CAPACITY) and key != COPIES
    }


@given(annotations=ANNOTATIONS)
def test_removing_copies_restores_the_annotations(annotations: dict[str, str]) -> None:
    annotations = {key: text for key, text in annotations.items() if text}
    now = after(annotations, capacity_changes(annotations))

    assert after(now, removed_copies(now)) == annotations


def autoscaler(low: int = 1, high: int = 5) -> MachineAutoscaler:
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "workers-a"}
    spec = {"minReplicas": low, "maxReplicas": high, "scaleTargetRef": target}
    return decode_machine_autoscaler(machine_autoscaler(spec))


def source(annotations: dict[str, str]) -> AnyMachineSet:
    return machine_set(namespace="default").annotations(annotations).build()


LIMITS = {
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "1",
    "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "5",
    "autoscaling.openshift.io/machineautoscaler": "default/workers-a",
}


@given(annotations=ANNOTATIONS, low=st.integers(0, 3), high=st.integers(3, 9))
def test_release_restores_the_annotations(annotations: dict[str, str], low: int, high: int) -> None:
    annotations = {key: text for key, text in annotations.items() if text}
    now = after(annotations, target_changes(source(annotations), autoscaler(low, high)))

    assert target_changes(source(now), autoscaler(low, high)) == {}
    assert after(now, release_changes(source(now), "default/workers-a")) == annotations
    assert release_changes(source(now), "default/other") == {}


def test_patch_tests_all_changed_annotations() -> None:
    found = source({**LIMITS, "machine.openshift.io/vCPU": "4"})

    [patch] = patches_of(found, {"a/b": "1", "machine.openshift.io/vCPU": None})

    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": found.uid},
        {"op": "test", "path": "/metadata/annotations/a~1b", "value": None},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"},
        {"op": "test", "path": "/metadata/annotations/machine.openshift.io~1vCPU", "value": "4"},
        {"op": "remove", "path": "/metadata/annotations/machine.openshift.io~1vCPU"},
    ]


def test_first_annotations_are_added_only_if_there_are_none() -> None:
    first, second = patches_of(source({}), {"a": "1"})

    assert first[1:] == [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}},
    ]
    assert second[-1] == {"op": "add", "path": "/metadata/annotations/a", "value": "1"}


def test_description_has_the_previous_values() -> None:
    changes = {"b": None, "a": "2", "c": "3", COPIES: "cpu=4"}
    assert describe_changes(source({}), changes) == "a=2, b removed, c=3"
    key = "machine.openshift.io/vCPU"
    assert describe_changes(source({key: "1"}), {key: "2"}) == f"{key}=2 (was 1)"
