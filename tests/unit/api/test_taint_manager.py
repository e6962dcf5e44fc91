"""TaintManagers from plain data: what is good is typed, what is not is told by field."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import taint_managers
from tests.taint_managers import taint_manager
from trimtab.api.check import FieldError, check
from trimtab.api.crds import DEFINITIONS, crd_documents, object_schema
from trimtab.api.decode import InvalidObject, decode_taint_manager
from trimtab.api.taint_manager import TaintManagerSpec
from trimtab.api.taint_manager_status import (
    MAX_DEADLINES,
    MAX_REFUSED,
    MAX_STUCK,
    MAX_ZONES,
    NextDeadline,
    RefusedPod,
    StuckNode,
    TaintManagerStatus,
    ZoneStatus,
)
from trimtab.kube.resources import TAINT_MANAGERS

LONG = "x" * 253
TIME = datetime(2026, 11, 20, 12, tzinfo=UTC)


def refusal(data: Any) -> InvalidObject:
    with pytest.raises(InvalidObject) as refused:
        decode_taint_manager(data, source="taints.yaml")
    return refused.value


@pytest.mark.parametrize("spec", [None, "{}"], ids=["no spec", "an empty one"])
def test_what_is_left_out_is_as_upstream_has_it_and_does_nothing(spec: str | None) -> None:
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


def test_all_that_can_be_said_is_read() -> None:
    read = decode_taint_manager(taint_manager(taint_managers.EVERYTHING)).spec

    assert read.mode == "Own"
    assert [policy.maximum_wait_seconds for policy in read.taints] == [1800, 0, 600]
    assert (read.user_taint_rates.total, read.user_taint_rates.per_namespace) == (50, 0.5)
    assert read.node_lifecycle.full_disruption_rate == 0.05
    assert read.default_tolerations.default_unreachable_toleration_seconds == 0
    assert read.toleration_matching == "First"


def test_a_rate_of_0_for_zones_that_are_down_is_not_taken_for_none() -> None:
    held = decode_taint_manager(taint_manager("{nodeLifecycle: {fullDisruptionEvictionRate: 0}}")).spec

    assert held.node_lifecycle.full_disruption_rate == 0


def test_a_key_has_its_policy_and_waits_as_long_as_it_says_or_ten_minutes() -> None:
    found = decode_taint_manager(taint_manager(taint_managers.EVERYTHING)).spec

    assert {each.key: (each.policy, each.maximum_wait_seconds) for each in found.taints} == {
        "example.com/maintenance": ("Evict", 1800),
        "plain": ("Evict", 600),
        "node.kubernetes.io/out-of-service": ("Delete", 0),
    }


@pytest.mark.parametrize("spec", taint_managers.ACCEPTED.values(), ids=taint_managers.ACCEPTED)
def test_a_good_taint_manager_is_read(spec: str) -> None:
    decode_taint_manager(taint_manager(spec))


@pytest.mark.parametrize(("spec", "words"), taint_managers.REFUSED.values(), ids=taint_managers.REFUSED)
def test_a_bad_taint_manager_is_refused_with_its_field(spec: str, words: tuple[str, ...]) -> None:
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


def test_everything_that_is_wrong_is_told_at_once() -> None:
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
def test_whatever_a_file_holds_is_read_or_refused_and_never_worse(part: str, data: Any) -> None:
    errors: tuple[FieldError, ...] = ()
    manifest = {**taint_manager(), "spec": data if part == "spec" else {part: data}}
    try:
        decode_taint_manager(manifest)
    except InvalidObject as error:
        errors = error.errors
    assert all(each.field.startswith("spec") for each in errors)


def test_a_status_that_cannot_be_understood_is_no_reason_to_refuse() -> None:
    assert decode_taint_manager({**taint_manager(), "status": {"zones": 3}}).status == TaintManagerStatus()


def test_the_definition_is_cluster_scoped_with_columns_that_tell_when_the_next_pod_goes() -> None:
    (document,) = [each["spec"] for each in crd_documents() if each["spec"]["names"]["kind"] == "TaintManager"]
    (version,) = document["versions"]

    assert (document["group"], version["name"]) == (TAINT_MANAGERS.group, TAINT_MANAGERS.version)
    assert (document["names"]["plural"], document["names"]["shortNames"]) == (TAINT_MANAGERS.plural, ["tm"])
    assert document["scope"] == "Cluster"
    assert [column["name"] for column in version["additionalPrinterColumns"]] == [
        "Mode",
        "Tainted",
        "Deadlines",
        "Next",
        "Ready",
        "Age",
    ]


def test_every_rule_of_the_schema_is_one_that_reading_a_file_applies_as_well() -> None:
    (definition,) = [each for each in DEFINITIONS if each.kind == "TaintManager"]
    schema = object_schema(definition)
    spec = schema["properties"]["spec"]["properties"]
    messages = {
        rule["message"]
        for part in (schema, spec["taints"]["items"], spec["nodeLifecycle"])
        for rule in part["x-kubernetes-validations"]
    }

    told = [
        str(refusal(each))
        for each in (
            taint_manager("{}", name="other"),
            taint_manager(taint_managers.REFUSED["a wait with Delete"][0]),
            taint_manager(taint_managers.REFUSED["a grace period that is not longer"][0]),
        )
    ]
    assert len(messages) == len(told)
    assert all(any(message in text for text in told) for message in messages)


def test_the_fullest_status_fits_into_an_object_and_its_schema() -> None:
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
