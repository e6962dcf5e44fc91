"""The CRD of SchedulerPolicy on a real API server: it rejects what the decoder of files rejects."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import scheduler_policies
from tests.fixtures.crds import (
    APPLY,
    MERGE,
    assert_crd_installs_without_cost_warnings,
    assert_decoder_accepts_what_is_stored,
    assert_same_verdict,
    create,
    table_rows,
    without_indexes,
)
from tests.fixtures.crds import client as client
from tests.mutations import VALUES, mutate, paths
from tests.scheduler_policies import scheduler_policy
from tests.strategies import examples
from trimtab.api.base import status_patch
from trimtab.api.conditions import CONFLICTING, DEGRADED, PROGRESSING, READY, set_condition
from trimtab.api.decode import decode_scheduler_policy
from trimtab.api.scheduler_policy import (
    MAX_REASONS,
    MAX_RULES,
    MAX_SHAPE,
    QueueCounts,
    SchedulerPolicyStatus,
    SchedulingCounts,
    UnschedulableReason,
)
from trimtab.kube.api import Invalid, ServerError
from trimtab.kube.resources import SCHEDULER_POLICIES
from trimtab_local.client import Client

OWN_PATH = SCHEDULER_POLICIES.path("test")


@pytest.fixture
def legacy(client: Client) -> Iterator[dict[str, Any]]:
    """A SchedulerPolicy with a legacy Policy in the API server."""
    yield create(client, scheduler_policy(scheduler_policies.LEGACY), dry_run=False)
    client.request("DELETE", OWN_PATH)


@pytest.mark.parametrize("spec", scheduler_policies.ACCEPTED.values(), ids=scheduler_policies.ACCEPTED)
def test_valid_policy_round_trips(client: Client, spec: str) -> None:
    manifest = scheduler_policy(spec)

    assert decode_scheduler_policy(create(client, manifest)).spec == decode_scheduler_policy(manifest).spec


@pytest.mark.parametrize("validation", ["Strict", "Ignore", ""])
@pytest.mark.parametrize(
    ("spec", "expected"), scheduler_policies.REJECTED.values(), ids=scheduler_policies.REJECTED.keys()
)
def test_invalid_policy_is_rejected_for_every_field_validation_mode(
    client: Client, spec: str, expected: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as rejected:
        create(client, scheduler_policy(spec), validation=validation)

    assert expected[0] in rejected.value.message


@pytest.mark.parametrize(
    "what",
    [
        "two forms",
        "unknown predicate",
        "predicate with an empty argument",
        "unknown priority",
        "weight above the maximum",
        "priority with two arguments",
        "descending points",
        "unknown filter plugin",
        "unknown score plugin",
        "strategy without its shape",
    ],
)
def test_rejection_names_the_value_and_the_allowed_ones(client: Client, what: str) -> None:
    spec, expected = scheduler_policies.REJECTED[what]
    with pytest.raises(Invalid) as rejected:
        create(client, scheduler_policy(spec))

    for text in expected:
        assert text in rejected.value.message


def test_update_to_invalid_policy_is_rejected(client: Client, legacy: dict[str, Any]) -> None:
    wrong = []
    for what, (text, expected) in scheduler_policies.REJECTED.items():
        spec = msgspec.yaml.decode(text)
        requests: dict[str, tuple[str, Any, str]] = {
            "PUT": ("PUT", {**legacy, "spec": spec}, "application/json"),
            "apply": ("PATCH", scheduler_policy(spec), APPLY),
        }
        for how, (method, body, content_type) in requests.items():
            params = {"dryRun": "All"}
            if content_type == APPLY:
                params |= {"fieldManager": "user", "force": "true", "fieldValidation": "Ignore"}
            try:
                stored = client.request(method, OWN_PATH, body, content_type=content_type, params=params)
            except (Invalid, ServerError) as error:
                # The API server cannot merge a list map whose items lack the key or have it twice.
                unmerged = how == "apply" and "failed to create typed patch object" in error.message
                # Apply adds to the stored object, which has another form.
                merged = how == "apply" and "at most one of" in error.message
                if without_indexes(expected[0]) not in without_indexes(error.message) and not unmerged and not merged:
                    wrong.append(f"{what} by {how}: {error.message}")
            else:
                if how == "PUT":
                    wrong.append(f"{what} by {how} is accepted")
                else:
                    decode_scheduler_policy(stored)  # apply has added the stored name or argument
    assert not wrong


@pytest.mark.parametrize(
    ("spec", "field"), scheduler_policies.UNKNOWN_FIELDS.values(), ids=scheduler_policies.UNKNOWN_FIELDS.keys()
)
def test_unknown_field_is_rejected_with_strict_field_validation(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as rejected:
        create(client, scheduler_policy(spec))

    assert f'unknown field "{field}"' in rejected.value.message


def test_unknown_argument_is_rejected_without_field_validation(client: Client) -> None:
    """The API server prunes it, so that the argument is empty."""
    spec = "{schedulerName: s, policy: {predicates: [{name: Region, argument: {service: {labels: [region]}}}]}}"
    with pytest.raises(Invalid, match="exactly one of serviceAffinity and labelsPresence"):
        create(client, scheduler_policy(spec), validation="")


def test_largest_spec_stays_within_the_cel_cost_limit(client: Client) -> None:
    shape = [{"utilization": number, "score": 1} for number in range(MAX_SHAPE)]
    argument = {"requestedToCapacityRatioArguments": {"shape": shape}}
    largest = {
        "schedulerName": "s" * 253,
        "policy": {
            "predicates": [
                {"name": f"{'P' * 120}{number}", "argument": {"serviceAffinity": {"labels": ["l" * 63] * 16}}}
                for number in range(MAX_RULES)
            ],
            "priorities": [
                {"name": f"{'P' * 120}{number}", "weight": 1, "argument": argument} for number in range(MAX_RULES)
            ],
        },
    }
    created = create(client, scheduler_policy(largest))
    assert len(created["spec"]["policy"]["priorities"]) == MAX_RULES

    created["spec"]["policy"]["predicates"].append({"name": "HostName"})
    with pytest.raises(Invalid, match=f"must have at most {MAX_RULES} items"):
        create(client, scheduler_policy(created["spec"]))


def test_crd_installs_without_cost_warnings(client: Client) -> None:
    assert_crd_installs_without_cost_warnings(client, "SchedulerPolicy")


BASES = [
    (manifest, path)
    for manifest in (scheduler_policy(scheduler_policies.LEGACY), scheduler_policy(scheduler_policies.MODERN))
    for path in paths(manifest["spec"])[1:]
]
TEXTS = ["HostName", "hostname", "EqualPriority", "ImageLocality", "MostAllocated", "DefaultProvider", "a b", 100, 1e5]
KEYS = ["name", "weight", "argument", "labels", "label", "shape", "provider", "policy", "profile", "x"]
MUTATION = st.tuples(
    st.sampled_from(BASES),
    st.sampled_from([*VALUES, *TEXTS]),
    st.sampled_from(["set", "add", "drop"]),
    st.sampled_from(KEYS),
)


def mutated(mutation: Any) -> dict[str, Any]:
    (manifest, path), value, change, key = mutation
    manifest = copy.deepcopy(manifest)
    mutate(manifest["spec"], path, value, change, key)
    return manifest


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(250), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_decoder_and_api_server_accept_the_same_objects(client: Client, mutation: Any) -> None:
    assert_same_verdict(client, mutated(mutation), decode_scheduler_policy)


@pytest.mark.usefixtures("client")
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mutation=MUTATION)
def test_decoder_accepts_everything_the_api_server_stores(client: Client, mutation: Any) -> None:
    assert_decoder_accepts_what_is_stored(client, mutated(mutation), decode_scheduler_policy)


def full_status() -> SchedulerPolicyStatus:
    """A status of maximum size."""
    conditions: Any = ()
    for kind in (READY, PROGRESSING, DEGRADED, CONFLICTING):
        conditions = set_condition(
            conditions, kind, True, reason="AllWell", message="x" * 1024, now=1_795_176_000, generation=1
        )
    return SchedulerPolicyStatus(
        observed_generation=1,
        conditions=conditions,
        queue=QueueCounts(active=5, backoff=4, unschedulable=150_000, gated=1),
        counts=SchedulingCounts(scheduled=2**40, preempted=3, binding_failures=1),
        unschedulable=tuple(
            UnschedulableReason(message="m" * 1024, pods=number, example="n" * 317) for number in range(MAX_REASONS)
        ),
    )


def test_status_is_a_subresource_of_any_size(client: Client, legacy: dict[str, Any]) -> None:
    status = full_status()
    body = {"spec": {"schedulerName": "other"}, "status": status_patch(status)}
    written = client.request("PATCH", f"{OWN_PATH}/status", body, content_type=MERGE)

    assert written["spec"] == legacy["spec"]
    assert decode_scheduler_policy(written).status == status
    by_spec = client.request("PATCH", OWN_PATH, {"status": {"queue": {"active": 9}}}, content_type=MERGE)
    assert by_spec["status"]["queue"]["active"] == 5


def test_printer_columns_show_the_queue_and_the_conditions(client: Client, legacy: dict[str, Any]) -> None:
    del legacy
    client.request("PATCH", f"{OWN_PATH}/status", {"status": status_patch(full_status())}, content_type=MERGE)
    [shown] = table_rows(client, OWN_PATH)
    assert (shown["Name"], shown["Scheduler"], shown["Unschedulable"]) == ("test", "legacy", 150_000)
    assert (shown["Ready"], shown["Conflicting"]) == ("True", "True")
