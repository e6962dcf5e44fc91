"""The decoder of files and a real API server accept and reject the same objects."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.fixtures.clusters import Cluster
from tests.strategies import examples
from tests.validity.objects import OBJECTS
from tests.validity.tables import Row, rows, steps
from trimtab.cluster.kinds import REQUIRED
from trimtab.kube.api import ApiError, Invalid
from trimtab.kube.errors import InputError
from trimtab.kube.resources import DAEMON_SETS, PRIORITY_CLASSES
from trimtab.kube.wire.files.reader import read_objects
from trimtab_local.client import Client

RESOURCES = {resource.kind: resource for resource in (*REQUIRED, DAEMON_SETS)}
FAULTS = [row for row in rows("faults") if not row.unasked]
SOUND = [row for row in rows("sound") if not row.unasked]


@pytest.fixture(scope="module", autouse=True)
def high(cluster: Cluster) -> Iterator[None]:
    """The priority class of the table's pod."""
    manifest = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    cluster.client.request("POST", PRIORITY_CLASSES.path(), manifest)
    yield
    cluster.client.request("DELETE", PRIORITY_CLASSES.path("high"))


def create(client: Client, namespace: str, manifest: dict[str, Any]) -> None:
    """Create the object as a dry run."""
    resource = RESOURCES[manifest["kind"]]
    where = namespace if resource.namespaced else ""
    if manifest["metadata"].get("namespace") == "shop":
        manifest["metadata"]["namespace"] = namespace
    client.request("POST", resource.path(namespace=where), manifest, params={"dryRun": "All"})


@pytest.mark.parametrize("kind", OBJECTS)
def test_base_objects_of_the_tables_are_valid(cluster: Cluster, namespace: str, kind: str) -> None:
    create(cluster.client, namespace, json.loads(json.dumps(OBJECTS[kind])))


def test_api_server_rejects_every_fault(cluster: Cluster, namespace: str) -> None:
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
    """The end of the path: the API server does not name the key of labels and selectors."""
    return [step for step in steps(row.named) if isinstance(step, str)][-2:]


def test_api_server_accepts_unusual_objects(cluster: Cluster, namespace: str) -> None:
    refused = []
    for row in SOUND:
        try:
            create(cluster.client, namespace, row.manifest)
        except ApiError as error:
            refused.append(f"{row.id}: {error}")
    assert not refused, "\n".join(refused)


def test_listed_objects_are_decoded(cluster: Cluster, namespace: str) -> None:
    """With defaults, the match label keys that it writes into selectors, and system objects."""
    path = RESOURCES["Pod"].path(namespace=namespace)
    manifests = [row.manifest for row in SOUND if row.kind == "Pod"]
    for number, manifest in enumerate(manifests):
        manifest["metadata"] |= {"name": f"pod-{number}", "namespace": namespace}
        manifest["spec"].pop("nodeName", None)  # pods of nodes and owners that are not there are deleted
        manifest["metadata"].pop("ownerReferences", None)
        cluster.client.request("POST", path, manifest)
    listed = [cluster.client.request("GET", resource.path()) for resource in REQUIRED]
    found = read_objects(io.BytesIO(b"\n".join(json.dumps(each).encode() for each in listed)))
    keys = {value.key for value in found.objects}
    assert keys >= {f"{namespace}/pod-{number}" for number in range(len(manifests))}
    assert keys >= {"system-node-critical", "kube-system"}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in children for inner in places(item, (*path, key)))]


# A null in a list is left out: the API server takes it for an empty text or object, we ask what is meant.
PLACES = [
    (kind, path)
    for kind, manifest in OBJECTS.items()
    for path in places(manifest)
    if path and path[0] not in ("kind", "apiVersion", *(() if kind == "Node" else ("status",)))
]
VALUES: list[Any] = [
    *(True, False, 0, 1, -1, 2.5, 100, 101, 65536, 2**31 - 1, 2**31, 2**63, 10**20, "x" * 64, "x" * 254, ""),
    *("a", "A", "a b", "a_b", "a.b", "a/b", "-a", "1", "0", "1.5", "100m", "-1", "1Ki", "1e3", "+1", "0x1"),
    *("Always", "Never", "In", "Exists", "Gt", "Equal", "NoExecute", "NoSchedule", "DoNotSchedule", "ScheduleAnyway"),
    *("Ignore", "UDP", "Pending", "Block", "ReadWriteMany", "ReadWriteOncePod", "metadata.name", "kubernetes.io/x"),
    *("topology.kubernetes.io/zone", [], {}, [{}], ["a"], ["a", "a"], ["A b"], {"a": "b"}, {"A/b c": "d"}),
    *({"cpu": "1"}, {"cpu": "-1"}, {"storage": "1"}, {"matchLabels": {"a": "b"}}, {"key": "a", "operator": "Exists"}),
]
KEYS = [
    *("operator", "values", "key", "effect", "value", "weight", "minDomains", "matchLabelKeys", "mismatchLabelKeys"),
    *("labelSelector", "namespaceSelector", "namespaces", "topologyKey", "hostNetwork", "hostPort", "protocol", "cpu"),
    *("requests", "limits", "example.com/x", "pods", "hugepages-2Mi", "restartPolicy", "tolerationSeconds", "overhead"),
    *("nodeTaintsPolicy", "resources", "schedulingGates", "priority", "storageClassName", "volumeMode", "allocatable"),
    *("capacity", "selector", "matchExpressions", "a b", "generation", "name"),
]


@settings(
    max_examples=examples(500), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much]
)
@given(
    place=st.sampled_from(PLACES),
    change=st.sampled_from(["set", "add", "drop"]),
    value=st.sampled_from(VALUES),
    key=st.sampled_from(KEYS),
)
def test_decoder_and_api_server_accept_the_same_objects(
    cluster: Cluster, namespace: str, place: tuple[str, tuple[Any, ...]], change: str, value: Any, key: str
) -> None:
    kind, path = place
    manifest = json.loads(json.dumps(OBJECTS[kind]))
    parent: Any = manifest
    for step in path[:-1]:
        parent = parent[step]
    inner = parent[path[-1]]
    if change == "set":
        parent[path[-1]] = value
    elif change == "drop":
        del parent[path[-1]]
    elif isinstance(inner, dict):
        inner[key] = value
    else:
        assume(isinstance(inner, list) and inner)
        inner.append(json.loads(json.dumps(inner[0])))
    assume(isinstance(manifest.get("metadata"), dict))
    try:
        read_objects(io.BytesIO(json.dumps(manifest).encode()))
    except InputError:
        with pytest.raises(ApiError):
            create(cluster.client, namespace, manifest)
