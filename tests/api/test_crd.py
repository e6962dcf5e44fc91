"""The definition of DeschedulerPolicy on the real API server: it is taken, and it refuses what it should by itself."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from tests import policies
from tests.fixtures.clusters import Cluster
from trimtab.api.conditions import READY, set_condition
from trimtab.api.crds import crd_documents
from trimtab.api.decode import decode_policy
from trimtab.api.descheduler_status import Count, DeschedulerStatus, KeptPod, LastRun, status_patch
from trimtab.api.scalars import to_time
from trimtab.kube.api import ApiError, Conflict, Invalid
from trimtab.kube.resources import DESCHEDULER_POLICIES as POLICIES
from trimtab.local.client import Client

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
VALIDATION = ("Strict", "Warn", "Ignore")


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Client:
    """A client of a cluster that knows our kinds."""
    for document in crd_documents():
        name = document["metadata"]["name"]
        try:
            cluster.client.request("POST", CRDS, document)
        except Conflict:  # another test's cluster has it already: bring it up to date
            present = cluster.client.request("GET", f"{CRDS}/{name}")
            document["metadata"]["resourceVersion"] = present["metadata"]["resourceVersion"]
            cluster.client.request("PUT", f"{CRDS}/{name}", document)
    _wait_until_served(cluster.client)
    return cluster.client


def _wait_until_served(client: Client) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            client.request("GET", POLICIES.path())
            return
        except ApiError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def create(client: Client, spec: Any, *, validation: str = "Strict", dry_run: bool = True) -> Any:
    params = {"fieldValidation": validation} | ({"dryRun": "All"} if dry_run else {})
    return client.request("POST", POLICIES.path(), policies.manifest(spec), params=params)


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
def test_the_seeds_strategies_are_taken_unchanged(client: Client, validation: str) -> None:
    created = create(client, {"strategies": policies.seed_strategies()}, validation=validation)

    assert created["spec"]["strategies"] == policies.seed_strategies()
    assert created["spec"]["mode"] == "Simulate"
    assert (
        decode_policy(created).spec.strategies
        == decode_policy(policies.manifest({"strategies": policies.seed_strategies()})).spec.strategies
    )


@pytest.mark.parametrize("spec", policies.ACCEPTED.values(), ids=policies.ACCEPTED)
def test_a_good_policy_is_taken_and_reads_back_the_same(client: Client, spec: str) -> None:
    created = create(client, spec)

    assert decode_policy(created).spec == decode_policy(policies.manifest(spec)).spec


@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
@pytest.mark.parametrize(("spec", "words"), policies.REFUSED.values(), ids=policies.REFUSED)
def test_a_bad_policy_is_refused_whatever_validation_the_client_asks_for(
    client: Client, spec: str, words: tuple[str, ...], validation: str
) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, spec, validation=validation)

    message = refused.value.message.replace("strategies[", "strategies.").replace("].params", ".params")
    for word in words:
        assert word in message


@pytest.mark.parametrize(("spec", "field"), policies.UNKNOWN_FIELDS.values(), ids=policies.UNKNOWN_FIELDS)
def test_an_unknown_field_is_named_to_a_client_that_asks_for_strictness(client: Client, spec: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        create(client, spec)

    assert f'unknown field "{field}"' in refused.value.message


@pytest.fixture
def policy(client: Client) -> Any:
    """A policy that is really there."""
    created = create(client, {"strategies": policies.seed_strategies()}, dry_run=False)
    path = POLICIES.path(created["metadata"]["name"])
    yield created
    client.request("DELETE", path)


def test_a_status_is_taken_and_shown_in_the_columns(client: Client, policy: Any) -> None:
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


def test_a_status_loses_what_is_no_longer_there(client: Client, policy: Any) -> None:
    path = POLICIES.path(policy["metadata"]["name"], subresource="status")
    for status in (DeschedulerStatus(next_run=to_time(0), evicted=1), DeschedulerStatus(evicted=2)):
        patch = {"status": status_patch(status)}
        written = client.request("PATCH", path, patch, content_type="application/merge-patch+json")

    assert "nextRun" not in written["status"]
    assert written["status"]["evicted"] == 2


def test_every_field_of_the_spec_is_explained(client: Client) -> None:
    document = client.request("GET", "/openapi/v3/apis/trimtab.dev/v1alpha1")
    schema = document["components"]["schemas"]["dev.trimtab.v1alpha1.DeschedulerPolicy"]

    assert all(field["description"] for field in schema["properties"]["spec"]["properties"].values())
