"""The CRD of PlacementAdmission on a real API server: it rejects what the decoder of files rejects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import placement_admissions
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
from tests.placement_admissions import placement_admission
from tests.strategies import examples
from trimtab.admission.report import configured_rules
from trimtab.api.base import status_patch
from trimtab.api.conditions import DEGRADED, READY, set_condition
from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import (
    MAX_LABELS,
    MAX_NAMESPACES,
    MAX_POOLS,
    MAX_REFUSALS,
    MAX_REPLICAS,
    MAX_TOLERATIONS,
    PlacementAdmissionStatus,
    RecentRefusal,
    ReplicaStatus,
    Result,
    RuleCount,
    RuleName,
)
from trimtab.kube.api import Invalid
from trimtab.kube.resources import PLACEMENT_ADMISSIONS
from trimtab_local.client import Client

OWN_PATH = PLACEMENT_ADMISSIONS.path("default")
NOW = datetime(2026, 11, 23, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def stored(client: Client) -> Iterator[dict[str, Any]]:
    """A PlacementAdmission with every field in the API server."""
    yield create(client, placement_admission(placement_admissions.EVERYTHING), dry_run=False)
    client.request("DELETE", OWN_PATH)


@pytest.mark.parametrize("spec", placement_admissions.ACCEPTED.values(), ids=placement_admissions.ACCEPTED)
def test_valid_admission_round_trips(client: Client, spec: str) -> None:
    manifest = placement_admission(spec)

    assert decode_placement_admission(create(client, manifest)).spec == decode_placement_admission(manifest).spec


def test_api_server_sets_the_defaults(client: Client) -> None:
    created = create(client, placement_admission(placement_admissions.ACCEPTED["rules with their defaults"]))

    spec = created["spec"]
    assert spec["mode"] == "Enforce"
    assert spec["podNodeConstraints"] == {"failurePolicy": "Fail"}
    assert spec["podNodeSelector"] == {
        "checkUpdates": True,
        "clusterDefaultNodeSelector": "",
        "exemptDaemonSetPods": False,
        "failurePolicy": "Fail",
    }
    assert spec["defaultTolerationSeconds"] == {
        "adjustApiServerDefaults": True,
        "apiServerDefaultSeconds": 300,
        "failurePolicy": "Ignore",
        "notReadyTolerationSeconds": 300,
        "unreachableTolerationSeconds": 300,
    }


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(
    ("spec", "expected"), placement_admissions.REJECTED.values(), ids=placement_admissions.REJECTED.keys()
)
def test_invalid_admission_is_rejected_for_every_field_validation_mode(
    client: Client, spec: str, expected: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as rejected:
        create(client, placement_admission(spec), validation=validation)

    for text in expected:
        assert text in rejected.value.message


def test_admission_without_a_spec_is_stored_and_decoded(client: Client) -> None:
    manifest = {key: value for key, value in placement_admission("{}").items() if key != "spec"}

    assert configured_rules(decode_placement_admission(create(client, manifest)).spec) == ()


def test_admission_of_another_name_is_rejected(client: Client) -> None:
    with pytest.raises(Invalid, match="must be default: there is one PlacementAdmission for the whole cluster"):
        create(client, placement_admission("{}", name="other"))


@pytest.mark.parametrize(
    "what", ["protected taints that are not checked", "two pools with one taint", "value with Exists", "unknown mode"]
)
def test_update_to_invalid_admission_is_rejected(client: Client, stored: dict[str, Any], what: str) -> None:
    spec, expected = placement_admissions.REJECTED[what]
    with pytest.raises(Invalid) as rejected:
        client.request("PUT", OWN_PATH, {**stored, "spec": msgspec.yaml.decode(spec)}, params={"dryRun": "All"})

    for text in expected:
        assert text in rejected.value.message


@pytest.mark.parametrize(
    ("spec", "field"), placement_admissions.UNKNOWN_FIELDS.values(), ids=placement_admissions.UNKNOWN_FIELDS.keys()
)
def test_unknown_field_is_rejected_with_strict_field_validation(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as rejected:
        create(client, placement_admission(spec))

    assert f'unknown field "{field}"' in rejected.value.message


def test_largest_spec_stays_within_the_cel_cost_limit(client: Client) -> None:
    names = [f"{'n' * 59}{number:04}" for number in range(MAX_NAMESPACES)]
    long = [f"{'a' * 200}.b/{'c' * 60}{number:03}" for number in range(MAX_LABELS)]
    taints = [{"key": key, "value": "v" * 63, "effect": "NoExecute"} for key in long]
    tolerations = [{**each, "tolerationSeconds": 2**31} for each in taints[:MAX_TOLERATIONS]]
    common = {"nodeLabel": {"key": long[0], "value": "v" * 63}}
    largest = {
        "exemptNamespaces": names,
        "podNodeConstraints": {
            "nodeSelectorLabelBlacklist": long,
            "additionalChecks": ["NodeAffinity", "Tolerations", "GatedPodUpdates", "EphemeralContainers", "DaemonSets"],
            "protectedTaints": taints,
        },
        "podNodeSelector": {"namespaceWhitelists": dict.fromkeys(names, f"a={'v' * 63},b={'v' * 63}")},
        "podTolerationRestriction": {"defaultTolerations": tolerations, "tolerationsWhitelist": tolerations},
        "extendedResourceToleration": {"ignoredResources": long},
        "dedicatedNodes": {
            "pools": [
                {"name": f"p{number}", "taint": taint, "groups": names[:MAX_LABELS], "namespaces": names, **common}
                for number, taint in enumerate(taints[:MAX_POOLS])
            ]
        },
        "specialHardware": {
            "classes": [
                {"name": f"c{number}", "taint": taint, "resources": long, **common}
                for number, taint in enumerate(taints[:MAX_POOLS])
            ]
        },
    }
    created = create(client, placement_admission(largest))
    assert len(created["spec"]["dedicatedNodes"]["pools"]) == MAX_POOLS

    created["spec"]["dedicatedNodes"]["pools"].append({"name": "more", "groups": ["a"], "taint": {"key": "more"}})
    with pytest.raises(Invalid, match=f"must have at most {MAX_POOLS} items"):
        create(client, placement_admission(created["spec"]))


def test_crd_installs_without_cost_warnings(client: Client) -> None:
    assert_crd_installs_without_cost_warnings(client, "PlacementAdmission")


_BASE = placement_admission(placement_admissions.EVERYTHING)
TEXTS = ["Fail", "Ignore", "Exists", "Equal", "NoExecute", "Warn", "a=b", "a", "A b", 0, -1, 300, 1e5]
KEYS = ["key", "value", "effect", "operator", "tolerationSeconds", "groups", "taint", "name", "pools", "mode", "x"]
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
    assert_same_verdict(client, mutated(mutation), decode_placement_admission)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_decoder_accepts_everything_the_api_server_stores(client: Client, mutation: Any) -> None:
    assert_decoder_accepts_what_is_stored(client, mutated(mutation), decode_placement_admission)


def full_status() -> PlacementAdmissionStatus:
    """A status of maximum size."""
    conditions: Any = ()
    for kind in (READY, DEGRADED):
        conditions = set_condition(
            conditions, kind, True, reason="AllWell", message="x" * 1024, now=1_795_176_000, generation=1
        )
    refusal = RecentRefusal(NOW, "PodNodeConstraints", "k" * 253, "n" * 253, "p" * 253, "m" * 1024)
    return PlacementAdmissionStatus(
        observed_generation=1,
        conditions=conditions,
        mutated=7,
        refused=2**40,
        counts=tuple(RuleCount(rule, result, 2**40) for rule in get_args(RuleName) for result in get_args(Result)),
        recent_refusals=(refusal,) * MAX_REFUSALS,
        replicas=tuple(ReplicaStatus(f"{'r' * 250}{number}", NOW, NOW) for number in range(MAX_REPLICAS)),
    )


def test_status_is_a_subresource_of_any_size(client: Client, stored: dict[str, Any]) -> None:
    status = full_status()
    body = {"spec": {"mode": "Enforce"}, "status": status_patch(status)}
    written = client.request("PATCH", f"{OWN_PATH}/status", body, content_type=MERGE)

    assert written["spec"] == stored["spec"]
    assert decode_placement_admission(written).status == status
    by_spec = client.request("PATCH", OWN_PATH, {"status": {"refused": 9}}, content_type=MERGE)
    assert by_spec["status"]["refused"] == 2**40


def test_printer_columns_show_the_totals_and_the_conditions(client: Client, stored: dict[str, Any]) -> None:
    del stored
    client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(full_status())}, content_type=MERGE)
    [shown] = table_rows(client, OWN_PATH)
    assert (shown["Name"], shown["Mode"], shown["Mutated"], shown["Refused"]) == ("default", "Warn", 7, 2**40)
    assert (shown["Ready"], shown["Degraded"]) == ("True", "True")
