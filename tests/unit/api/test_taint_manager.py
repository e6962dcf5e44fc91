"""TaintManagers from plain data: valid ones are decoded, invalid ones are reported by field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import taint_managers
from tests.taint_managers import taint_manager
from trimtab.api.crds import DEFINITIONS, object_schema
from trimtab.api.decode import TAINT_MANAGER, InvalidObject, decode_taint_manager, find_former_values
from trimtab.api.schema import FieldError, check
from trimtab.api.taint_manager import (
    MAX_DEADLINES,
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    NextDeadline,
    RefusedPod,
    StuckNode,
    TaintManagerSpec,
    TaintManagerStatus,
    ZoneStatus,
)

LONG = "x" * 253
TIME = datetime(2026, 11, 20, 12, tzinfo=UTC)


def refusal(data: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as refused:
        decode_taint_manager(data, source="taints.yaml")
    return refused.value


@pytest.mark.parametrize("spec", [None, "{}"], ids=["no spec", "an empty one"])
def test_defaults_equal_upstream_and_do_nothing(spec: str | None) -> None:
    read = decode_taint_manager(taint_manager(spec)).spec
    lifecycle = read.node_lifecycle

    assert read.mode == "Observe"
    assert (lifecycle.monitor_period_seconds, lifecycle.monitor_grace_seconds, lifecycle.startup_grace_seconds) == (
        5,
        50,
        60,
    )
    assert (lifecycle.node_eviction_rate, lifecycle.secondary_node_eviction_rate) == (0.1, 0.01)
    assert (lifecycle.large_cluster_size_threshold, lifecycle.unhealthy_zone_threshold) == (50, 0.55)
    assert lifecycle.full_disruption_rate == 0.1
    assert read.default_tolerations.default_not_ready_toleration_seconds is None
    assert read.user_taint_rates.total is None
    assert read.toleration_matching == "All"


def test_all_fields_are_decoded() -> None:
    read = decode_taint_manager(taint_manager(taint_managers.EVERYTHING)).spec

    assert read.mode == "TaintAndEvict"
    assert [policy.maximum_wait_seconds for policy in read.taints] == [1800, 0, 600]
    assert (read.user_taint_rates.total, read.user_taint_rates.per_namespace) == (50, 0.5)
    assert read.node_lifecycle.full_disruption_rate == 0.05
    assert read.default_tolerations.default_unreachable_toleration_seconds == 0
    assert read.toleration_matching == "First"


def test_zero_secondary_rate_is_kept() -> None:
    held = decode_taint_manager(taint_manager("{nodeLifecycle: {fullDisruptionEvictionRate: 0}}")).spec

    assert held.node_lifecycle.full_disruption_rate == 0


def test_policy_and_maximum_wait_of_a_taint_key() -> None:
    found = decode_taint_manager(taint_manager(taint_managers.EVERYTHING)).spec

    assert {each.key: (each.policy, each.maximum_wait_seconds) for each in found.taints} == {
        "example.com/maintenance": ("Evict", 1800),
        "plain": ("Evict", 600),
        "node.kubernetes.io/out-of-service": ("Delete", 0),
    }


@pytest.mark.parametrize("spec", taint_managers.ACCEPTED.values(), ids=taint_managers.ACCEPTED)
def test_valid_taint_manager_is_decoded(spec: str) -> None:
    decode_taint_manager(taint_manager(spec))


@pytest.mark.parametrize(("former", "current"), taint_managers.FORMER_MODES.items())
def test_former_mode_is_accepted_and_its_current_name_reported(former: str, current: str) -> None:
    stored = taint_manager({"mode": former})

    assert decode_taint_manager(stored).spec.mode == current
    (found,) = find_former_values(stored, TAINT_MANAGER)
    assert found.field == "spec.mode"
    assert {former, current} <= set(found.message.split())
    assert not find_former_values(taint_manager({"mode": current}), TAINT_MANAGER)


@pytest.mark.parametrize(("spec", "words"), taint_managers.REFUSED.values(), ids=taint_managers.REFUSED)
def test_invalid_taint_manager_is_rejected_with_its_field(spec: str, words: tuple[str, ...]) -> None:
    message = str(refusal(taint_manager(spec)))

    assert message.startswith("taints.yaml: TaintManager/default: spec.")
    for word in words:
        assert word in message


@pytest.mark.parametrize(("spec", "field"), taint_managers.UNKNOWN_FIELDS.values(), ids=taint_managers.UNKNOWN_FIELDS)
def test_an_unknown_field_is_refused_by_its_name(spec: str, field: str) -> None:
    (error,) = [each for each in refusal(taint_manager(spec)).errors if each.field == field]

    assert error.message.startswith("unknown field")


@pytest.mark.parametrize("name", ["cluster", "Default", ""])
def test_there_is_one_taint_manager_and_its_name_is_default(name: str) -> None:
    (error,) = refusal(taint_manager("{}", name=name)).errors

    assert error.field == "metadata.name"


def test_all_errors_are_reported_at_once() -> None:
    spec = (
        "{taints: [{key: a, policy: Delete, maximumWait: 9d}], "
        "nodeLifecycle: {nodeMonitorPeriod: often, nodeStartupGracePeriod: 0s}}"
    )

    assert [error.field for error in refusal(taint_manager(spec)).errors] == [
        "spec.taints[0].maximumWait",
        "spec.taints[0].maximumWait",
        "spec.nodeLifecycle.nodeMonitorPeriod",
        "spec.nodeLifecycle.nodeStartupGracePeriod",
    ]


@pytest.mark.parametrize("part", ["spec", "taints", "nodeLifecycle", "userTaintRates", "defaultTolerations"])
@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=9,
    )
)
def test_random_documents_are_decoded_or_rejected(part: str, data: Any) -> None:
    errors: tuple[FieldError, ...] = ()
    manifest = {**taint_manager(), "spec": data if part == "spec" else {part: data}}
    try:
        decode_taint_manager(manifest)
    except InvalidObject as error:
        errors = error.errors
    assert all(each.field.startswith("spec") for each in errors)


def test_invalid_status_is_tolerated() -> None:
    assert decode_taint_manager({**taint_manager(), "status": {"zones": 3}}).status == TaintManagerStatus()


def test_every_schema_rule_also_applies_to_files() -> None:
    (definition,) = [each for each in DEFINITIONS if each.kind == "TaintManager"]
    schema = object_schema(definition)
    spec = schema["properties"]["spec"]["properties"]
    messages = {
        rule["message"]
        for part in (schema, spec["taints"]["items"], spec["nodeLifecycle"])
        for rule in part["x-kubernetes-validations"]
    }

    recorded = [
        str(refusal(each))
        for each in (
            taint_manager("{}", name="other"),
            taint_manager(taint_managers.REFUSED["maximumWait with Delete"][0]),
            taint_manager(taint_managers.REFUSED["grace period shorter than monitor period"][0]),
        )
    ]
    assert len(messages) == len(recorded)
    assert all(any(message in text for text in recorded) for message in messages)


def test_largest_status_fits_into_an_object() -> None:
    full = TaintManagerStatus(
        zones=tuple(ZoneStatus(f"{number:0160}", "FullDisruption") for number in range(MAX_ZONES)),
        next_deadlines=tuple(NextDeadline(LONG, LONG, LONG, TIME, "t" * 400, "o" * 512) for _ in range(MAX_DEADLINES)),
        refused=tuple(RefusedPod(LONG, LONG, LONG, TIME, 9, "m" * 1024) for _ in range(MAX_REFUSED)),
        stuck_nodes=tuple(StuckNode(LONG, 9, "m" * 1024) for _ in range(MAX_STUCK)),
    )
    (definition,) = [each for each in DEFINITIONS if each.kind == "TaintManager"]
    wire = msgspec.json.encode(full)

    assert len(wire) < 300_000
    assert not check(msgspec.json.decode(wire), object_schema(definition)["properties"]["status"])
    assert msgspec.json.decode(wire, type=TaintManagerStatus) == full


def test_the_names_of_the_node_lifecycle_are_those_of_upstreams_flags() -> None:
    flags = (
        "node-monitor-period node-monitor-grace-period node-startup-grace-period node-eviction-rate "
        "secondary-node-eviction-rate large-cluster-size-threshold unhealthy-zone-threshold"
    )
    camel = {"".join([head, *map(str.title, rest)]) for head, *rest in (flag.split("-") for flag in flags.split())}
    (definition,) = [each for each in DEFINITIONS if each.kind == "TaintManager"]
    fields = object_schema(definition)["properties"]["spec"]["properties"]["nodeLifecycle"]["properties"]

    assert set(fields) - camel == {"fullDisruptionEvictionRate"}
    assert camel <= set(fields)
    assert TaintManagerSpec().node_lifecycle.full_disruption_eviction_rate is None
