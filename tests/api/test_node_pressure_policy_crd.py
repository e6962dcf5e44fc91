"""The CRD of NodePressurePolicy on a real API server: it rejects what the decoder of files rejects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import node_pressure_policies
from tests.fixtures.crds import (
    MERGE,
    assert_crd_installs_without_cost_warnings,
    assert_decoder_accepts_what_is_stored,
    assert_same_verdict,
    create,
    table_rows,
)
from tests.fixtures.crds import client as client
from tests.mutations import VALUES, mutate, paths
from tests.node_pressure_policies import node_pressure_policy
from tests.strategies import examples
from trimtab.api.base import status_patch
from trimtab.api.conditions import CONFLICTING, DEGRADED, READY, set_condition
from trimtab.api.decode import decode_node_pressure_policy
from trimtab.api.node_pressure_policy import (
    MAX_NODES,
    MAX_UNREAD,
    SIGNALS,
    NodePressurePolicyStatus,
    NodePressureStatus,
    PressureCounts,
    SignalStatus,
    UnreadNode,
)
from trimtab.kube.api import Invalid
from trimtab.kube.resources import NODE_PRESSURE_POLICIES
from trimtab_local.client import Client

OWN_PATH = NODE_PRESSURE_POLICIES.path("workers")
NOW = datetime(2026, 11, 23, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def stored(client: Client) -> Iterator[dict[str, Any]]:
    """A NodePressurePolicy with every field in the API server."""
    yield create(client, node_pressure_policy(node_pressure_policies.EVERYTHING), dry_run=False)
    client.request("DELETE", OWN_PATH)


@pytest.mark.parametrize("spec", node_pressure_policies.ACCEPTED.values(), ids=node_pressure_policies.ACCEPTED)
def test_valid_policy_round_trips(client: Client, spec: str) -> None:
    manifest = node_pressure_policy(spec)

    assert decode_node_pressure_policy(create(client, manifest)).spec == decode_node_pressure_policy(manifest).spec


def test_api_server_sets_the_defaults(client: Client) -> None:
    spec = {"evictionHard": {"memory.available": "1Gi"}, "memoryStall": {"percent": 10}, "failedPods": {}}

    assert create(client, node_pressure_policy(spec))["spec"] == {
        "mode": "Simulate",
        "evictionHard": {"memory.available": "1Gi"},
        "hardEvictionMaxPodGracePeriod": 1,
        "evictionPressureTransitionPeriod": "5m",
        "monitoringInterval": "10s",
        "memoryStall": {"percent": 10, "window": "avg60", "gracePeriod": "1m"},
        "ranking": "UsagePriority",
        "taintNodes": True,
        "failedPods": {"after": "1h", "keepPerOwner": 1},
    }


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(
    ("spec", "expected"), node_pressure_policies.REJECTED.values(), ids=node_pressure_policies.REJECTED.keys()
)
def test_invalid_policy_is_rejected_for_every_field_validation_mode(
    client: Client, spec: str, expected: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as rejected:
        create(client, node_pressure_policy(spec), validation=validation)

    for text in expected:
        assert text in rejected.value.message


@pytest.mark.parametrize("what", ["equal quantities", "soft threshold without a grace period", "threshold 0"])
def test_update_to_invalid_policy_is_rejected(client: Client, stored: dict[str, Any], what: str) -> None:
    spec, expected = node_pressure_policies.REJECTED[what]
    with pytest.raises(Invalid) as rejected:
        client.request("PUT", OWN_PATH, {**stored, "spec": msgspec.yaml.decode(spec)}, params={"dryRun": "All"})

    for text in expected:
        assert text in rejected.value.message


@pytest.mark.parametrize(
    ("spec", "field"), node_pressure_policies.UNKNOWN_FIELDS.values(), ids=node_pressure_policies.UNKNOWN_FIELDS.keys()
)
def test_unknown_field_is_rejected_with_strict_field_validation(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as rejected:
        create(client, node_pressure_policy(spec))

    assert f'unknown field "{field}"' in rejected.value.message


def test_largest_spec_stays_within_the_cel_cost_limit(client: Client) -> None:
    label = f"{'a' * 200}.b/{'c' * 63}"
    largest = {
        "nodeSelector": {
            "matchLabels": {f"{label[:-3]}{number:03}": "v" * 63 for number in range(32)},
            "matchExpressions": [{"key": label, "operator": "In", "values": ["v" * 63] * 64}] * 32,
        },
        "evictionHard": dict.fromkeys(SIGNALS, "000000000000000512.001Gi"),
        "evictionSoft": dict.fromkeys(SIGNALS, "00000000000000000513.001Gi"),
        "evictionSoftGracePeriod": dict.fromkeys(SIGNALS, "000000001h000000001m000000001s"),
        "evictionMinimumReclaim": dict.fromkeys(SIGNALS, "00000000000000000005.123456789%"),
        "kubeletEvictionHard": dict.fromkeys(SIGNALS, "00000000000000000005.123456789%"),
    }
    assert len(create(client, node_pressure_policy(largest))["spec"]["evictionSoft"]) == len(SIGNALS)

    largest["evictionHard"]["another"] = "1Gi"
    with pytest.raises(Invalid, match=f"must have at most {len(SIGNALS)} items"):
        create(client, node_pressure_policy(largest))


def test_crd_installs_without_cost_warnings(client: Client) -> None:
    assert_crd_installs_without_cost_warnings(client, "NodePressurePolicy")


_BASE = node_pressure_policy(node_pressure_policies.EVERYTHING)
# Only the decoder checks whether the values of a selector are valid label values.
del _BASE["spec"]["nodeSelector"]
TEXTS = ["10%", "12.5%", "0%", "100%", "1Gi", "1.5Gi", "1536Mi", "0", "1e9", "90s", "Simulate", "avg300", 0.5, 600]
KEYS = [*SIGNALS[:4], "memory.free", "percent", "after", "evictionForecast", "memoryStall", "x"]
MUTATION = st.tuples(
    st.sampled_from(paths(_BASE["spec"])[1:]),
    st.sampled_from([*VALUES, *TEXTS]),
    st.sampled_from(["set", "add", "drop"]),
    st.sampled_from(KEYS),
)


def mutated(mutation: Any) -> dict[str, Any]:
    path, value, change, key = mutation
    manifest = copy.deepcopy(_BASE)
    mutate(manifest["spec"], path, value, change, key)
    return manifest


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_decoder_and_api_server_accept_the_same_objects(client: Client, mutation: Any) -> None:
    assert_same_verdict(client, mutated(mutation), decode_node_pressure_policy)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_decoder_accepts_everything_the_api_server_stores(client: Client, mutation: Any) -> None:
    assert_decoder_accepts_what_is_stored(client, mutated(mutation), decode_node_pressure_policy)


VALUE = st.one_of(
    st.builds("{}{}".format, st.integers(0, 2000), st.sampled_from(["", "k", "Ki", "Mi", "G", "Gi", "Ti", "Pi", "%"])),
    st.builds(
        "{:.{}f}{}".format,
        st.floats(0, 1100),
        st.integers(1, 4),
        st.sampled_from(["", "k", "Ki", "M", "Mi", "Gi", "T", "Ti", "%"]),
    ),
    st.text("0123456789.%+-eEGMKi ", min_size=1, max_size=8),
)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(soft=VALUE, hard=VALUE, reclaim=VALUE)
def test_decoder_and_api_server_compare_thresholds_alike(client: Client, soft: str, hard: str, reclaim: str) -> None:
    spec = {
        "evictionSoft": {"memory.available": soft},
        "evictionSoftGracePeriod": {"memory.available": "1m"},
        "evictionHard": {"memory.available": hard},
        "evictionMinimumReclaim": {"memory.available": reclaim},
    }
    assert_same_verdict(client, node_pressure_policy(spec), decode_node_pressure_policy)


def full_status() -> NodePressurePolicyStatus:
    """A status of maximum size."""
    conditions: Any = ()
    for kind in (READY, DEGRADED, CONFLICTING):
        conditions = set_condition(
            conditions, kind, True, reason="AllWell", message="x" * 1024, now=1_795_176_000, generation=1
        )
    signals = tuple(
        SignalStatus(signal, 2**50, 2**50, hard, NOW)
        for signal in (*SIGNALS[:-1], "memory.psi.full")
        for hard in (True, False)
    )
    return NodePressurePolicyStatus(
        observed_generation=1,
        conditions=conditions,
        counts=PressureCounts(
            nodes=5000, read=4990, from_metrics=7, under_pressure=60, evicted=2**40, deleted=3, cleaned_up=9
        ),
        nodes=tuple(
            NodePressureStatus(
                f"{'n' * 250}{number}", ("MemoryPressure", "PIDPressure"), signals, "Evicting", "m" * 999
            )
            for number in range(MAX_NODES)
        ),
        nodes_omitted=10,
        unread=(UnreadNode("u" * 253, "StatsUnreachable", NOW, "m" * 1024),) * MAX_UNREAD,
        unread_omitted=1,
    )


def test_status_is_a_subresource_of_any_size(client: Client, stored: dict[str, Any]) -> None:
    status = full_status()
    body = {"spec": {"mode": "Simulate"}, "status": status_patch(status)}
    written = client.request("PATCH", f"{OWN_PATH}/status", body, content_type=MERGE)

    assert written["spec"] == stored["spec"]
    assert decode_node_pressure_policy(written).status == status
    by_spec = client.request("PATCH", OWN_PATH, {"status": {"nodesOmitted": 9}}, content_type=MERGE)
    assert by_spec["status"]["nodesOmitted"] == 10


@pytest.mark.usefixtures("stored")
def test_printer_columns_show_the_mode_and_the_counts(client: Client) -> None:
    client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(full_status())}, content_type=MERGE)
    [shown] = table_rows(client, OWN_PATH)

    names = ["Name", "Mode", "State", "Ready", "Degraded", "PermissionsMissing", "Nodes", "Pressure", "Evicted"]
    assert list(shown) == [*names, "Age"]
    assert [shown[name] for name in ("Name", "Mode", "Ready", "Nodes", "Pressure", "Evicted")] == [
        "workers",
        "Act",
        "True",
        5000,
        60,
        2**40,
    ]
