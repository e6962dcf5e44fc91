"""The CRD of DeschedulerPolicy on a real API server: it accepts valid policies and rejects invalid ones by itself."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from tests import policies
from tests.fixtures.crds import CRDS, VALIDATION, create
from tests.fixtures.crds import client as client
from trimtab.api.base import status_patch
from trimtab.api.conditions import READY, set_condition
from trimtab.api.crds import crd_documents
from trimtab.api.decode import decode_policy
from trimtab.api.descheduler_status import Count, DeschedulerStatus, KeptPod, LastRun
from trimtab.api.scalars import to_time
from trimtab.api.strategies import STRATEGIES
from trimtab.kube.api import Invalid
from trimtab.kube.resources import DESCHEDULER_POLICIES as POLICIES
from trimtab_local.client import Client

STRATEGY = ("spec.strategies", "unknown strategy", "RemoveDuplicates, LowNodeUtilization")
UNNAMED: dict[str, tuple[str, ...]] = {
    policies.REFUSED["an unknown strategy"][0]: (*STRATEGY, "1 given, of which known are []"),
    policies.REFUSED["an unknown strategy beside a good one"][0]: (
        *STRATEGY,
        '2 given, of which known are ["RemoveDuplicates"]',
    ),
    policies.REFUSED["params of another strategy"][0]: (
        "spec.strategies.RemoveDuplicates.params",
        "unknown parameter: 1 given, of which known are []; allowed are removeDuplicates",
    ),
    policies.REFUSED["pod affinity types of the opposite"][0]: (
        "spec.strategies.RemovePodsViolatingInterPodAffinity.params",
        "unknown parameter: 1 given, of which known are []; allowed are interPodAffinityType",
    ),
    policies.REFUSED["an unknown parameter"][0]: (
        "spec.strategies.RemovePodsViolatingNodeAffinity.params",
        "unknown parameter: 1 given, of which known are []; allowed are nodeAffinityType",
    ),
}
"""What the API server says of strategies and parameters that do not exist: CEL sees their number, not their names."""


def test_the_definition_is_established_and_structural(client: Client) -> None:
    for document in crd_documents():
        present = client.request("GET", f"{CRDS}/{document['metadata']['name']}")
        conditions = {item["type"]: item["status"] for item in present["status"]["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions
        names = present["status"]["acceptedNames"]
        assert names["categories"] == ["trimtab"]


@pytest.mark.parametrize("validation", VALIDATION)
def test_strategies_of_the_seed_are_accepted_unchanged(client: Client, validation: str) -> None:
    created = create(client, policies.manifest({"strategies": policies.seed_strategies()}), validation=validation)

    assert created["spec"]["strategies"] == policies.seed_strategies()
    assert created["spec"]["mode"] == "Simulate"
    assert (
        decode_policy(created).spec.strategies
        == decode_policy(policies.manifest({"strategies": policies.seed_strategies()})).spec.strategies
    )


@pytest.mark.parametrize("spec", policies.ACCEPTED.values(), ids=policies.ACCEPTED)
def test_valid_policy_round_trips(client: Client, spec: str) -> None:
    created = create(client, policies.manifest(spec))

    assert decode_policy(created).spec == decode_policy(policies.manifest(spec)).spec


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
@pytest.mark.parametrize(("spec", "words"), policies.REFUSED.values(), ids=policies.REFUSED)
def test_invalid_policy_is_rejected_for_every_field_validation_mode(
    client: Client, spec: str, words: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, policies.manifest(spec), validation=validation)

    for word in UNNAMED.get(spec, words):
        assert word in refused.value.message


@pytest.mark.parametrize(("spec", "field"), policies.UNKNOWN_FIELDS.values(), ids=policies.UNKNOWN_FIELDS)
def test_unknown_field_is_rejected_with_strict_field_validation(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, policies.manifest(spec))

    assert f'unknown field "{field}"' in refused.value.message


@pytest.fixture
def policy(client: Client) -> Any:
    """A policy in the API server."""
    created = create(client, policies.manifest({"strategies": policies.seed_strategies()}), dry_run=False)
    path = POLICIES.path(created["metadata"]["name"])
    yield created
    client.request("DELETE", path)


def test_status_is_shown_in_the_printer_columns(client: Client, policy: Any) -> None:
    name = policy["metadata"]["name"]
    now = time.time()
    conditions = set_condition((), READY, True, reason="CycleCompleted", message="ok", now=now, generation=1)
    status = DeschedulerStatus(
        observed_generation=1,
        conditions=conditions,
        last_run=LastRun(time=to_time(now - 5), completed=to_time(now), planned=3, kept=1, nodes=2, pods=9),
        next_run=to_time(now + 300),
        evicted=7,
        counts=(Count(strategy="RemoveDuplicates", reason="DuplicateOnNode", outcome="Planned", count=3),),
        kept=(KeptPod(namespace="a", pod="b", strategy="RemoveDuplicates", reason="NoPlace", message="0/2"),),
    )

    path = POLICIES.path(name, subresource="status")
    patch = {"status": status_patch(status)}
    written = client.request("PATCH", path, patch, content_type="application/merge-patch+json")

    assert msgspec.convert(written["status"], DeschedulerStatus) == status
    assert decode_policy(written).status == status


def test_status_patch_removes_entries(client: Client, policy: Any) -> None:
    path = POLICIES.path(policy["metadata"]["name"], subresource="status")
    for status in (DeschedulerStatus(next_run=to_time(0), evicted=1), DeschedulerStatus(evicted=2)):
        patch = {"status": status_patch(status)}
        written = client.request("PATCH", path, patch, content_type="application/merge-patch+json")

    assert "nextRun" not in written["status"]
    assert written["status"]["evicted"] == 2


def test_kubectl_explain_describes_every_spec_field(client: Client) -> None:
    document = client.request("GET", "/openapi/v3/apis/trimtab.dev/v1alpha1")
    schema = document["components"]["schemas"]["dev.trimtab.v1alpha1.DeschedulerPolicy"]

    fields = schema["properties"]["spec"]["properties"]
    assert all(field["description"] for field in fields.values())
    # `kubectl explain dp.spec.strategies.LowNodeUtilization.params` walks this document.
    strategies = fields["strategies"]["properties"]
    assert set(strategies) == set(STRATEGIES)
    params = strategies["LowNodeUtilization"]["properties"]["params"]
    assert strategies["LowNodeUtilization"]["description"].count("overutilized nodes")
    assert set(params["properties"]) == {
        "nodeResourceUtilizationThresholds",
        "metricsUtilization",
        "evictableNamespaces",
        "evictionLimits",
    }
    assert all(field["description"] for field in params["properties"].values())
