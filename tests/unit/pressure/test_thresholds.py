"""Compiling thresholds. The cases of the kubelet are those of its ``helpers_test.go`` (v1.36), outcome by outcome.

Not applicable: ``TestAddContainerFsThresholds``, because a policy has exactly the thresholds that it contains;
``TestCompareThresholdValue``, because thresholds are compared by their keys.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.golden import Golden
from trimtab.api.node_pressure_policy import MemoryStall, NodePressurePolicySpec, ThresholdValue
from trimtab.kube.rules.quantity import amount
from trimtab.pressure.thresholds import MEMORY_STALL, ThresholdComparison, kubelet_thresholds, thresholds_of


def value(text: str) -> ThresholdValue:
    if text.endswith("%"):
        return ThresholdValue(share=float(text[:-1]) / 100)
    return ThresholdValue(quantity=amount(text))


def spec(
    hard: dict[str, str] | None = None,
    soft: dict[str, str] | None = None,
    grace: dict[str, str] | None = None,
    reclaim: dict[str, str] | None = None,
    **more: Any,
) -> NodePressurePolicySpec:
    return NodePressurePolicySpec(
        eviction_hard=hard or {},
        eviction_soft=soft or {},
        eviction_soft_grace_period=grace or {},
        eviction_minimum_reclaim=reclaim or {},
        **more,
    )


def compiled(policy: NodePressurePolicySpec) -> list[tuple[str, ThresholdValue, int, ThresholdValue]]:
    return [(each.key, each.value, each.grace, each.minimum_reclaim) for each in thresholds_of(policy)]


NONE = ThresholdValue(quantity=0)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param(spec(), [], id="no values"),
        pytest.param(
            spec(
                {"memory.available": "150Mi"},
                {"memory.available": "300Mi"},
                {"memory.available": "30s"},
                {"memory.available": "0"},
            ),
            [
                ("hard/memory.available", value("150Mi"), 0, NONE),
                ("soft/memory.available", value("300Mi"), 30, NONE),
            ],
            id="all memory eviction values",
        ),
        pytest.param(
            spec(
                {"memory.available": "10%"},
                {"memory.available": "30%"},
                {"memory.available": "30s"},
                {"memory.available": "5%"},
            ),
            [
                ("hard/memory.available", value("10%"), 0, value("5%")),
                ("soft/memory.available", value("30%"), 30, value("5%")),
            ],
            id="all memory eviction values in percentages",
        ),
        pytest.param(
            spec(
                {"imagefs.available": "150Mi", "nodefs.available": "100Mi"},
                {"imagefs.available": "300Mi", "nodefs.available": "200Mi"},
                {"imagefs.available": "30s", "nodefs.available": "30s"},
                {"imagefs.available": "2Gi", "nodefs.available": "1Gi"},
            ),
            [
                ("hard/nodefs.available", value("100Mi"), 0, value("1Gi")),
                ("hard/imagefs.available", value("150Mi"), 0, value("2Gi")),
                ("soft/nodefs.available", value("200Mi"), 30, value("1Gi")),
                ("soft/imagefs.available", value("300Mi"), 30, value("2Gi")),
            ],
            id="disk eviction values",
        ),
        pytest.param(
            spec(
                {"imagefs.available": "15%", "nodefs.available": "10.5%"},
                {"imagefs.available": "30%", "nodefs.available": "20.5%"},
                {"imagefs.available": "30s", "nodefs.available": "30s"},
                {"imagefs.available": "10%", "nodefs.available": "5%"},
            ),
            [
                ("hard/nodefs.available", value("10.5%"), 0, value("5%")),
                ("hard/imagefs.available", value("15%"), 0, value("10%")),
                ("soft/nodefs.available", value("20.5%"), 30, value("5%")),
                ("soft/imagefs.available", value("30%"), 30, value("10%")),
            ],
            id="disk eviction values in percentages",
        ),
        pytest.param(
            spec(
                {"imagefs.inodesFree": "150Mi", "nodefs.inodesFree": "100Mi"},
                {"imagefs.inodesFree": "300Mi", "nodefs.inodesFree": "200Mi"},
                {"imagefs.inodesFree": "30s", "nodefs.inodesFree": "30s"},
                {"imagefs.inodesFree": "2Gi", "nodefs.inodesFree": "1Gi"},
            ),
            [
                ("hard/nodefs.inodesFree", value("100Mi"), 0, value("1Gi")),
                ("hard/imagefs.inodesFree", value("150Mi"), 0, value("2Gi")),
                ("soft/nodefs.inodesFree", value("200Mi"), 30, value("1Gi")),
                ("soft/imagefs.inodesFree", value("300Mi"), 30, value("2Gi")),
            ],
            id="inode eviction values",
        ),
        pytest.param(spec({"memory.available": "0%"}, {"memory.available": "0%"}), [], id="disable via 0%"),
        pytest.param(spec({"memory.available": "100%"}, {"memory.available": "100%"}), [], id="disable via 100%"),
    ],
)
def test_thresholds_are_those_of_the_kubelet(policy: NodePressurePolicySpec, expected: list[object]) -> None:
    assert compiled(policy) == expected


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(spec({"mem.available": "150Mi"}), id="invalid-signal"),
        pytest.param(spec({"memory.available": "150Mi", "invalid.foo": "150Mi"}), id="valid-and-invalid-signal"),
        pytest.param(spec(reclaim={"mem.available": "300Mi"}), id="min-reclaim-invalid-signal"),
        pytest.param(spec({"memory.available": "-150Mi"}), id="hard-signal-negative"),
        pytest.param(spec({"memory.available": "-15%"}), id="hard-signal-negative-percentage"),
        pytest.param(spec({"memory.available": "150%"}), id="hard-signal-percentage-greater-than-100%"),
        pytest.param(spec(soft={"memory.available": "-150Mi"}), id="soft-signal-negative"),
        pytest.param(spec(soft={"memory.available": "150Mi"}), id="soft-no-grace-period"),
        pytest.param(
            spec(soft={"memory.available": "150Mi"}, grace={"memory.available": "-30s"}),
            id="soft-negative-grace-period",
        ),
        pytest.param(
            spec(soft={"memory.available": "150Mi"}, grace={"memory.available": "30mins"}),
            id="soft-invalid-grace-period",
        ),
        pytest.param(
            spec(soft={"memory.available": "150Mi"}, grace={"mem.available": "30s"}),
            id="soft-grace-period-invalid-signal",
        ),
        pytest.param(spec(reclaim={"memory.available": "-300Mi"}), id="negative-reclaim"),
        pytest.param(spec(reclaim={"memory.available": ""}), id="min-reclaim-empty-value"),
        pytest.param(spec(reclaim={"memory.available": "-15%"}), id="min-reclaim-negative-percentage"),
        pytest.param(spec(reclaim={"memory.available": "10..5%"}), id="min-reclaim-invalid-percentage"),
        pytest.param(spec({"memory.available": ""}), id="hard-signal-empty-eviction-value"),
        pytest.param(spec({"memory.available": "10..5%"}), id="hard-signal-invalid-float-percentage"),
        pytest.param(spec({"memory.available": "foo%"}), id="TestParsePercentage foo%"),
        pytest.param(spec({"memory.available": "12%345"}), id="TestParsePercentage 12%345"),
        pytest.param(spec({"memory.available": "blah"}), id="TestParsePercentage blah"),
    ],
)
def test_what_the_kubelet_rejects_is_rejected(policy: NodePressurePolicySpec) -> None:
    with pytest.raises(ValueError, match=r".+"):
        thresholds_of(policy)


def test_hard_thresholds_and_those_of_the_memory_come_first() -> None:
    """``TestSortByEvictionPriority`` requires memory first among equals; the kubelet does not order by hardness."""
    soft = dict.fromkeys(("pid.available", "nodefs.available", "memory.available"), "10%")
    policy = spec(
        dict.fromkeys(("pid.available", "nodefs.available", "allocatableMemory.available"), "5%"),
        soft,
        dict.fromkeys(soft, "1m"),
        memory_stall=MemoryStall(percent=10.0),
    )
    assert [each.key for each in thresholds_of(policy)] == [
        "hard/allocatableMemory.available",
        "hard/nodefs.available",
        "hard/pid.available",
        "soft/memory.available",
        f"soft/{MEMORY_STALL}",
        "soft/nodefs.available",
        "soft/pid.available",
    ]


def test_memory_stall_is_a_soft_threshold() -> None:
    (stall,) = thresholds_of(spec(memory_stall=MemoryStall(percent=12.5, window="avg10", grace_period="45s")))
    assert (stall.signal, stall.hard, stall.value.share, stall.grace, stall.window) == (
        MEMORY_STALL,
        False,
        0.125,
        45,
        "avg10",
    )
    assert stall.condition == "MemoryPressure"


def test_kubelet_thresholds_default_to_those_of_the_kubelet() -> None:
    """Its hard threshold of the memory is also that of the memory of all pods (``TestAddAllocatableThresholds``)."""
    assert {each.signal: each.value for each in kubelet_thresholds(spec())} == {
        "memory.available": value("100Mi"),
        "allocatableMemory.available": value("100Mi"),
        "nodefs.available": value("10%"),
        "nodefs.inodesFree": value("5%"),
        "imagefs.available": value("15%"),
        "imagefs.inodesFree": value("5%"),
    }
    own = spec(kubelet_eviction_hard={"memory.available": "500Mi", "allocatableMemory.available": "1Gi"})
    assert {each.signal: each.value for each in kubelet_thresholds(own)} == {
        "memory.available": value("500Mi"),
        "allocatableMemory.available": value("1Gi"),
    }


@pytest.mark.parametrize(
    ("hard", "kubelet", "capacity", "warned"),
    [
        pytest.param("1Gi", "500Mi", None, False, id="above"),
        pytest.param("500Mi", "500Mi", None, True, id="equal"),
        pytest.param("100Mi", "500Mi", None, True, id="below"),
        pytest.param("5%", "10%", None, True, id="percentage below"),
        pytest.param("10%", "10%", None, True, id="percentage equal"),
        pytest.param("11%", "10%", None, False, id="percentage above"),
        pytest.param("5%", "500Mi", None, False, id="unknown without the capacity"),
        pytest.param("5%", "500Mi", "8Gi", True, id="percentage below, with the capacity"),
        pytest.param("5%", "500Mi", "16Gi", False, id="percentage above, with the capacity"),
    ],
)
def test_thresholds_that_are_not_above_those_of_the_kubelet_are_warned_about(
    hard: str, kubelet: str, capacity: str | None, warned: bool, golden: Golden
) -> None:
    policy = spec({"memory.available": hard}, kubelet_eviction_hard={"memory.available": kubelet})
    found = ThresholdComparison(policy).warnings(None if capacity is None else {"memory.available": amount(capacity)})
    assert [each.threshold.key for each in found] == ["hard/memory.available"] * warned
    for each in found:
        golden(each.message)


def test_signals_without_a_threshold_of_the_kubelet_are_not_warned_about(golden: Golden) -> None:
    policy = spec({"pid.available": "1%", "allocatableMemory.available": "50Mi"})
    (found,) = ThresholdComparison(policy).warnings()
    assert found.threshold.signal == "allocatableMemory.available"
    golden(found.message)
