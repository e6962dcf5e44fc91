"""Which annotations a MachineAutoscaler's target gets and loses: pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.autoscalers import machine_autoscaler
from tests.builders import machine_set
from trimtab.api.decode import decode_machine_autoscaler
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.machine_autoscalers.annotations import patches, released, told, wanted
from trimtab.autoscaling.machine_autoscalers.capacity import COPIES, NAMES, copies, recorded, without_copies
from trimtab.kube.objects import AnyMachineSet

CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"
OLD = {"cpu": "vCPU", "memory": "memoryMb", "gpu-count": "GPU", "maxPods": "maxPods"}


def said(**amounts: str) -> dict[str, str]:
    """As the machine controllers write it."""
    return {f"machine.openshift.io/{name}": text for name, text in amounts.items()}


def capacity(**amounts: str | None) -> dict[str, Any]:
    return {f"{CAPACITY}/{name.replace('_', '-')}": text for name, text in amounts.items()}


def after(annotations: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged = {**annotations, **changes}
    return {key: text for key, text in merged.items() if text is not None}


@pytest.mark.parametrize(
    ("annotations", "changes"),
    [
        pytest.param({}, {}, id="nothing is said"),
        pytest.param(
            said(vCPU="4", memoryMb="16384", maxPods="250"),
            {**capacity(cpu="4", memory="16384Mi", maxPods="250"), COPIES: "cpu=4,memory=16384Mi,maxPods=250"},
            id="all that is missing",
        ),
        pytest.param(
            said(GPU="2"),
            {**capacity(gpu_count="2", gpu_type="nvidia.com/gpu"), COPIES: "gpu-count=2,gpu-type=nvidia.com/gpu"},
            id="GPUs with their kind",
        ),
        pytest.param(said(GPU="0", vCPU="0"), {}, id="none of it"),
        pytest.param(said(GPU="1") | capacity(gpu_count="4", gpu_type="amd.com/gpu"), {}, id="GPUs said otherwise"),
        pytest.param(
            said(vCPU="8") | capacity(cpu="4") | {COPIES: "cpu=4"},
            {**capacity(cpu="8"), COPIES: "cpu=8"},
            id="machines have become larger",
        ),
        pytest.param(said(vCPU="8") | capacity(cpu="4"), {}, id="somebody said otherwise"),
        pytest.param(
            said(vCPU="8") | capacity(cpu="6") | {COPIES: "cpu=4"},
            {COPIES: None},
            id="somebody has said otherwise since",
        ),
        pytest.param(
            said(vCPU="8") | {COPIES: "cpu=8"},
            capacity(cpu="8"),
            id="somebody has removed the copy and not the original",
        ),
        pytest.param(
            capacity(cpu="4") | {COPIES: "cpu=4"}, {**capacity(cpu=None), COPIES: None}, id="the original is gone"
        ),
        pytest.param(capacity(cpu="4"), {}, id="only the new one"),
        pytest.param(said(vCPU="many", memoryMb="16Gi", maxPods="-1"), {}, id="no numbers"),
        pytest.param(said(vCPU="4") | capacity(cpu="4") | {COPIES: "cpu=4"}, {}, id="all is as it should be"),
        pytest.param(
            said(vCPU="4") | {COPIES: "nonsense,,="}, {**capacity(cpu="4"), COPIES: "cpu=4"}, id="a spoilt record"
        ),
        pytest.param(said(vCPU="4") | capacity(cpu=""), {**capacity(cpu="4"), COPIES: "cpu=4"}, id="an empty one"),
    ],
)
def test_capacities_are_copied(annotations: dict[str, str], changes: dict[str, str | None]) -> None:
    assert copies(annotations) == changes


@pytest.mark.parametrize(
    ("annotations", "record"),
    [
        (said(vCPU="4") | capacity(cpu="4"), "cpu=4"),
        (said(memoryMb="16384") | capacity(memory="16Gi"), "memory=16Gi"),
        (said(vCPU="4") | capacity(cpu="3"), None),
        (said(memoryMb="16384") | capacity(memory="a lot"), None),
    ],
    ids=["the same", "the same in other words", "another", "no amount"],
)
def test_copies_of_openshifts_operator_are_taken_over(annotations: dict[str, str], record: str | None) -> None:
    assert copies(annotations, adopt=True) == ({COPIES: record} if record else {})
    assert copies(annotations) == {}


TEXTS = st.sampled_from(["1", "4", "4096", "16384Mi", "nvidia.com/gpu", "0", "", "x"])
ANNOTATIONS = st.dictionaries(
    st.sampled_from(
        [*(f"{CAPACITY}/{name}" for name in NAMES), *(f"machine.openshift.io/{name}" for name in OLD.values())]
    ),
    TEXTS,
)
RECORDS = st.dictionaries(st.sampled_from(NAMES), TEXTS).map(
    lambda found: ",".join(f"{name}={text}" for name, text in found.items())
)


@given(annotations=ANNOTATIONS, record=RECORDS, adopt=st.booleans())
def test_copying_once_is_enough_and_touches_nothing_of_others(
    annotations: dict[str, str], record: str, adopt: bool
) -> None:
    annotations = annotations | ({COPIES: record} if record else {})
    changes = copies(annotations, adopt=adopt)
    now = after(annotations, changes)

    assert copies(now) == {}
    ours = recorded(annotations)
    for name in NAMES:
        key = f"{CAPACITY}/{name}"
        if annotations.get(key) and ours.get(name) != annotations[key]:
            assert now[key] == annotations[key]
    assert {key: text for key, text in now.items() if not key.startswith(CAPACITY) and key != COPIES} == {
        key: text for key, text in annotations.items() if not key.startswith(CAPACITY) and key != COPIES
    }


@given(annotations=ANNOTATIONS)
def test_taking_copies_away_leaves_what_was_there_before(annotations: dict[str, str]) -> None:
    annotations = {key: text for key, text in annotations.items() if text}
    now = after(annotations, copies(annotations))

    assert after(now, without_copies(now)) == annotations


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
def test_what_was_wanted_and_is_released_leaves_what_was_there_before(
    annotations: dict[str, str], low: int, high: int
) -> None:
    annotations = {key: text for key, text in annotations.items() if text}
    now = after(annotations, wanted(source(annotations), autoscaler(low, high)))

    assert wanted(source(now), autoscaler(low, high)) == {}
    assert after(now, released(source(now), "default/workers-a")) == annotations
    assert released(source(now), "default/other") == {}


def test_a_patch_tests_all_that_it_changes() -> None:
    found = source({**LIMITS, "machine.openshift.io/vCPU": "4"})

    [patch] = patches(found, {"a/b": "1", "machine.openshift.io/vCPU": None})

    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": found.uid},
        {"op": "test", "path": "/metadata/annotations/a~1b", "value": None},
        {"op": "add", "path": "/metadata/annotations/a~1b", "value": "1"},
        {"op": "test", "path": "/metadata/annotations/machine.openshift.io~1vCPU", "value": "4"},
        {"op": "remove", "path": "/metadata/annotations/machine.openshift.io~1vCPU"},
    ]


def test_an_object_without_annotations_gets_some_only_if_it_has_none_indeed() -> None:
    first, second = patches(source({}), {"a": "1"})

    assert first[1:] == [
        {"op": "test", "path": "/metadata/annotations", "value": None},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "1"}},
    ]
    assert second[-1] == {"op": "add", "path": "/metadata/annotations/a", "value": "1"}


def test_changes_are_told_with_what_was_there_before() -> None:
    changes = {"b": None, "a": "2", "c": "3", COPIES: "cpu=4"}
    assert told(source({}), changes) == "a=2, b removed, c=3"
    key = "machine.openshift.io/vCPU"
    assert told(source({key: "1"}), {key: "2"}) == f"{key}=2 (was 1)"
