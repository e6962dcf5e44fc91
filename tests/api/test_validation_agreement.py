"""What reading files refuses the real API server refuses too, and takes what reading files takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.clusters import Cluster
from tests.validity.objects import OBJECTS
from tests.validity.tables import Row, rows, steps
from trimtab.cluster.kinds import KINDS
from trimtab.kube.api import ApiError, Invalid
from trimtab.kube.resources import PRIORITY_CLASSES
from trimtab.local.client import Client

RESOURCES = {resource.kind: resource for resource in KINDS}
FAULTS = [row for row in rows("faults") if not row.unasked]
SOUND = [row for row in rows("sound") if not row.unasked]


@pytest.fixture(scope="module", autouse=True)
def high(cluster: Cluster) -> Iterator[None]:
    """The priority class that the table's pod has."""
    manifest = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    cluster.client.request("POST", PRIORITY_CLASSES.path(), manifest)
    yield
    cluster.client.request("DELETE", PRIORITY_CLASSES.path("high"))


def create(client: Client, namespace: str, manifest: dict[str, Any]) -> None:
    """Create the object in earnest but for the writing."""
    resource = RESOURCES[manifest["kind"]]
    where = namespace if resource.namespaced else ""
    if manifest["metadata"].get("namespace") == "shop":
        manifest["metadata"]["namespace"] = namespace
    client.request("POST", resource.path(namespace=where), manifest, params={"dryRun": "All"})


@pytest.mark.parametrize("kind", OBJECTS)
def test_the_tables_begin_with_good_objects(cluster: Cluster, namespace: str, kind: str) -> None:
    create(cluster.client, namespace, json.loads(json.dumps(OBJECTS[kind])))


def test_faults_are_faults_to_the_api_server(cluster: Cluster, namespace: str) -> None:
    taken = []
    for row in FAULTS:
        try:
            create(cluster.client, namespace, row.manifest)
        except Invalid as error:
            if not any(name in str(error) for name in (*named(row), "unable to parse", "cannot be handled")):
                taken.append(f"{row.id}: {row.named}: {error}")
        except ApiError as error:
            taken.append(f"{row.id}: {error!r}")
        else:
            taken.append(row.id)
    assert not taken, "\n".join(taken)


def named(row: Row) -> list[str]:
    """The end of the path: of labels and selectors the API server does not name the key."""
    return [step for step in steps(row.named) if isinstance(step, str)][-2:]


def test_what_is_odd_the_api_server_takes_too(cluster: Cluster, namespace: str) -> None:
    refused = []
    for row in SOUND:
        try:
            create(cluster.client, namespace, row.manifest)
        except ApiError as error:
            refused.append(f"{row.id}: {error}")
    assert not refused, "\n".join(refused)
