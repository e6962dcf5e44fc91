"""NodePressurePolicies from plain data: valid ones are decoded, invalid ones are reported by field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import node_pressure_policies
from tests.node_pressure_policies import node_pressure_policy
from tests.schemas import rule_messages
from trimtab.api.conditions import Condition
from trimtab.api.crds import DEFINITIONS, object_schema
from trimtab.api.decode import InvalidObject, decode_node_pressure_policy
from trimtab.api.descheduler_policy import Requirement
from trimtab.api.node_pressure_policy import (
    FORECAST_NEEDS_SOFT,
    GRACE_AT_MOST_A_WEEK,
    GRACE_NEEDS_SOFT,
    KNOWN_SIGNALS,
    MAX_NODES,
    MAX_UNREAD,
    RECLAIM_FORM,
    SIGNALS,
    SOFT_ABOVE_HARD,
    SOFT_NEEDS_GRACE,
    SOME_THRESHOLD,
    THRESHOLD_FORM,
    FailedPodCleanup,
    MemoryStall,
    NodePressurePolicyStatus,
    NodePressureStatus,
    SignalStatus,
    ThresholdValue,
    UnreadNode,
    parse_reclaim,
    parse_threshold,
)
from trimtab.api.scalars import DURATION_RULE
from trimtab.api.schema import FieldError, check
from trimtab.api.waiting_evictions import MAX_MESSAGE_BYTES, MAX_WAITING, WaitingEvictions

NOW = datetime(2026, 11, 23, tzinfo=UTC)
[DEFINITION] = [each for each in DEFINITIONS if each.kind == "NodePressurePolicy"]


def rejection(data: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as rejected:
        decode_node_pressure_policy(data, source="policy.yaml")
    return rejected.value


def test_all_fields_are_decoded() -> None:
    spec = decode_node_pressure_policy(node_pressure_policy(node_pressure_policies.EVERYTHING)).spec

    assert (spec.mode, spec.ranking, spec.taint_nodes, spec.delete_after) == ("Act", "QoS", False, "5m")
    assert spec.eviction_hard == {"memory.available": "1Gi", "nodefs.available": "12%", "pid.available": "500"}
    assert spec.soft_grace_seconds == {"memory.available": 90, "nodefs.available": 120, "imagefs.inodesFree": 0}
    assert (spec.eviction_max_pod_grace_period, spec.hard_eviction_max_pod_grace_period) == (60, 10)
    assert spec.memory_stall == MemoryStall(percent=12.5, window="avg10", grace_period="30s")
    assert spec.failed_pods == FailedPodCleanup(after="2h", keep_per_owner=3)
    assert spec.kubelet_eviction_hard == {"memory.available": "200Mi", "nodefs.available": "10%"}


@pytest.mark.parametrize("spec", node_pressure_policies.ACCEPTED.values(), ids=node_pressure_policies.ACCEPTED)
def test_valid_policy_is_decoded(spec: str) -> None:
    decode_node_pressure_policy(node_pressure_policy(spec))


@pytest.mark.parametrize(
    ("spec", "expected"), node_pressure_policies.REJECTED.values(), ids=node_pressure_policies.REJECTED.keys()
)
def test_invalid_policy_is_rejected_with_its_field(spec: str, expected: tuple[str, ...]) -> None:
    message = str(rejection(node_pressure_policy(spec)))

    assert message.startswith("policy.yaml: NodePressurePolicy/workers: spec")
    for text in expected:
        assert text in message


@pytest.mark.parametrize(
    ("spec", "field"), node_pressure_policies.UNKNOWN_FIELDS.values(), ids=node_pressure_policies.UNKNOWN_FIELDS.keys()
)
def test_unknown_field_is_rejected_by_name(spec: str, field: str) -> None:
    [error] = [each for each in rejection(node_pressure_policy(spec)).errors if each.field == field]

    assert error.message.startswith("unknown field")


def test_all_errors_are_reported_at_once() -> None:
    spec = (
        "{evictionSoft: {memory.available: 100Mi, pid.available: 10%}, evictionHard: {memory.available: 1Gi}, "
        "evictionSoftGracePeriod: {memory.available: 1m, nodefs.available: 1m}, monitoringInterval: 1s}"
    )

    assert [error.field for error in rejection(node_pressure_policy(spec)).errors] == [
        "spec.evictionSoftGracePeriod",
        "spec.evictionSoftGracePeriod[nodefs.available]",
        "spec.evictionSoft[memory.available]",
        "spec.monitoringInterval",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500Mi", ThresholdValue(quantity=500 * 2**20)),
        ("1.5Gi", ThresholdValue(quantity=3 * 2**29)),
        ("1k", ThresholdValue(quantity=1000)),
        ("1.5", ThresholdValue(quantity=2)),
        ("10%", ThresholdValue(share=0.1)),
        ("0.5%", ThresholdValue(share=0.005)),
        ("0%", None),
        ("0.0%", None),
        ("100%", None),
    ],
)
def test_threshold_is_parsed_as_by_the_kubelet(text: str, value: ThresholdValue | None) -> None:
    assert parse_threshold(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", ThresholdValue(quantity=0)),
        ("0Mi", ThresholdValue(quantity=0)),
        ("200Mi", ThresholdValue(quantity=200 * 2**20)),
        ("5%", ThresholdValue(share=0.05)),
        ("100%", ThresholdValue(share=1.0)),
    ],
)
def test_reclaim_is_parsed_as_by_the_kubelet(text: str, value: ThresholdValue) -> None:
    assert parse_reclaim(text) == value


@pytest.mark.parametrize(
    ("text", "capacity", "amount"), [("10%", 4096, 409), ("33.3%", 1000, 333), ("100Mi", 0, 100 * 2**20)]
)
def test_share_of_the_capacity_is_truncated(text: str, capacity: int, amount: int) -> None:
    value = parse_threshold(text)

    assert value is not None
    assert value.of(capacity) == amount


@pytest.mark.parametrize(
    "part", ["spec", "evictionHard", "evictionSoft", "evictionSoftGracePeriod", "memoryStall", "failedPods"]
)
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(SIGNALS) | st.text(max_size=9), inner)
        ),
        max_leaves=9,
    )
)
def test_random_documents_are_decoded_or_rejected(part: str, data: Any) -> None:
    errors: tuple[FieldError, ...] = ()
    try:
        decode_node_pressure_policy({**node_pressure_policy({}), "spec": data if part == "spec" else {part: data}})
    except InvalidObject as error:
        errors = error.errors
    assert all(each.field.startswith("spec") for each in errors)


def test_invalid_status_is_tolerated() -> None:
    manifest = node_pressure_policy("{memoryStall: {percent: 10}}")

    assert decode_node_pressure_policy({**manifest, "status": {"counts": 3}}).status == NodePressurePolicyStatus()


def test_every_schema_rule_also_applies_to_files() -> None:
    recorded = "\n".join(
        str(rejection(node_pressure_policy(spec))) for spec, _ in node_pressure_policies.REJECTED.values()
    )
    declared = rule_messages(object_schema(DEFINITION)["properties"]["spec"])

    assert declared >= {
        *(DURATION_RULE.message, FORECAST_NEEDS_SOFT, GRACE_AT_MOST_A_WEEK, GRACE_NEEDS_SOFT, KNOWN_SIGNALS),
        *(RECLAIM_FORM, SOFT_ABOVE_HARD, SOFT_NEEDS_GRACE, SOME_THRESHOLD, THRESHOLD_FORM),
    }
    # The rule about selectors is shared with DeschedulerPolicies, where files have a message of their own.
    assert {each for each in declared if each not in recorded} == {rule.message for rule in Requirement.cel}


def test_largest_status_fits_into_an_object() -> None:
    conditions = tuple(Condition(f"Type{number}", "True", "R" * 1024, "m" * 32768, NOW) for number in range(5))
    signals = (SignalStatus("s" * 64, 2**60, 2**60, True, NOW),) * (len(SIGNALS) * 2)
    pressed = NodePressureStatus(
        "n" * 253, ("MemoryPressure", "DiskPressure", "PIDPressure"), signals, "r" * 128, "m" * 1024
    )
    full = NodePressurePolicyStatus(
        conditions=conditions,
        nodes=(pressed,) * MAX_NODES,
        unread=(UnreadNode("n" * 253, "r" * 128, NOW, "m" * 1024),) * MAX_UNREAD,
        waiting_evictions=(WaitingEvictions("r" * 128, NOW, "w" * 512, 1, "m" * MAX_MESSAGE_BYTES),) * MAX_WAITING,
    )
    wire = msgspec.json.encode(full)

    assert check(msgspec.json.decode(wire), object_schema(DEFINITION)["properties"]["status"], path="status") == ()
    assert len(wire) < 1_000_000
