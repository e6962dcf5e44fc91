"""A real API server accepts the files of examples/dedicated-nodes and examples/special-hardware."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from tests.api.test_machine_autoscalers import CRDS
from tests.api.test_machine_autoscalers import served as served
from tests.fixtures.clusters import ADMISSION_POLICIES, NO_ADMISSION_POLICIES, require_kubernetes
from tests.fixtures.waiting import eventually
from tests.taint_examples import DEDICATED, HARDWARE, documents
from trimtab.api.crds import crd_documents
from trimtab.kube.api import ApiError, Conflict, Forbidden, Invalid, NotFound
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DEPLOYMENTS,
    MACHINE_AUTOSCALERS,
    MACHINE_SETS,
    NAMESPACES,
    PLACEMENT_ADMISSIONS,
    PODS,
    Resource,
)
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster

ADMISSION = "admissionregistration.k8s.io"


def policy(plural: str, kind: str) -> Resource:
    return Resource(ADMISSION, "v1", plural, kind, namespaced=False)


POLICIES = {
    each.kind: each
    for each in (
        policy("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
        policy("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"),
        policy("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
        policy("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"),
    )
}
KINDS = (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS, MACHINE_SETS, DEPLOYMENTS, NAMESPACES, PLACEMENT_ADMISSIONS)
RESOURCES = {each.kind: each for each in KINDS} | POLICIES
ALL = [
    pytest.param(each, id=f"{folder.name}: {each['kind']} {each['metadata']['name']}")
    for folder in (DEDICATED, HARDWARE)
    for each in documents(folder)
]


@pytest.fixture(scope="module")
def admission_served(machine_cluster: LocalCluster) -> None:
    """Create the CRD of PlacementAdmissions and wait until they are served."""
    client = machine_cluster.client
    for document in crd_documents():
        if document["spec"]["names"]["kind"] == PLACEMENT_ADMISSIONS.kind:
            with suppress(Conflict):
                client.request("POST", CRDS, document)
    eventually(lambda: _serves(client, PLACEMENT_ADMISSIONS.path()), what="they are served")


def _serves(client: Client, path: str) -> bool:
    try:
        return bool(client.request("GET", path))
    except ApiError:  # not found, or its storage is not ready yet
        return False


@pytest.mark.parametrize("manifest", ALL)
@pytest.mark.usefixtures("served", "admission_served")
def test_api_server_accepts_every_example(machine_cluster: LocalCluster, manifest: dict[str, Any]) -> None:
    resource = RESOURCES[manifest["kind"]]
    manifest = manifest | {"metadata": dict(manifest["metadata"])}
    if resource is DEPLOYMENTS:  # its namespace is in the same file
        manifest["metadata"]["namespace"] = "default"
    if manifest["kind"].startswith("Mutating"):
        require_kubernetes(machine_cluster.client, ADMISSION_POLICIES, NO_ADMISSION_POLICIES)
    path = resource.path(namespace=manifest["metadata"].get("namespace", ""))
    params = {"dryRun": "All", "fieldValidation": "Strict"}
    assert machine_cluster.client.request("POST", path, manifest, params=params)


@pytest.fixture(scope="module")
def admitting(machine_cluster: LocalCluster) -> Iterator[tuple[Client, str, str]]:
    """The admission policies in force, a namespace of team-a, and another one."""
    client, mark = machine_cluster.client, secrets.token_hex(4)
    require_kubernetes(client, ADMISSION_POLICIES, NO_ADMISSION_POLICIES)
    with ExitStack() as made:
        yield client, *_admitting(client, mark, made)


def _admitting(client: Client, mark: str, made: ExitStack) -> tuple[str, str]:
    team, nobody = f"team-{mark}", f"nobody-{mark}"
    for name, labels in ((team, {"dedicated": "team-a"}), (nobody, {})):
        client.request("POST", NAMESPACES.path(), {"metadata": {"name": name, "labels": labels}})
        made.callback(client.request, "DELETE", NAMESPACES.path(name))
        eventually(lambda name=name: _there(client, name), what="the default service account")
    for each in documents(DEDICATED / "admission.yaml"):
        resource = POLICIES[each["kind"]]
        client.request("POST", resource.path(), each)
        made.callback(client.request, "DELETE", resource.path(each["metadata"]["name"]))
    eventually(lambda: "dedicated" in create(client, team)["spec"].get("nodeSelector", {}), what="pods are changed")
    eventually(lambda: _refused(client, nobody), what="pods are judged")
    return team, nobody


def _there(client: Client, namespace: str) -> bool:
    try:
        return bool(client.request("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    except NotFound:
        return False


def _refused(client: Client, namespace: str) -> bool:
    try:
        create(client, namespace, tolerations=[OWN])
    except ApiError:
        return True
    return False


OWN = {"key": "dedicated", "operator": "Equal", "value": "team-a", "effect": "NoSchedule"}
OTHERS = OWN | {"value": "team-b"}
OTHER = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}
EVERY_VALUE = {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}
EVERYTHING = {"operator": "Exists"}
EVERY_NO_EXECUTE = {"operator": "Exists", "effect": "NoExecute"}


def create(client: Client, namespace: str, *, owner: str = "", **spec: Any) -> dict[str, Any]:
    """The pod that a dry run creates."""
    metadata: dict[str, Any] = {"generateName": "web-"}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "agent", "uid": "1", "controller": True}
        metadata["ownerReferences"] = [reference]
    manifest = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "none"}], **spec}}
    return client.request("POST", PODS.path(namespace=namespace), manifest, params={"dryRun": "All"})


def given(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """The pod's tolerations without the default ones of Kubernetes."""
    return [each for each in pod["spec"].get("tolerations", ()) if not each.get("key", "").startswith("node.kube")]


def test_pods_of_a_team_get_toleration_and_node_selector(admitting: tuple[Client, str, str]) -> None:
    client, team, nobody = admitting

    for requested, tolerations in (([], [OWN]), ([OTHER], [OTHER, OWN]), ([OWN], [OWN])):
        pod = create(client, team, tolerations=requested, nodeSelector={"disk": "ssd"})
        assert sorted(given(pod), key=str) == sorted(tolerations, key=str)
        assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "dedicated": "team-a"}
    plain, agent = create(client, nobody), create(client, team, owner="DaemonSet")
    for pod in (plain, agent):
        assert given(pod) == []
        assert "nodeSelector" not in pod["spec"]


@pytest.mark.parametrize("toleration", [OWN, OTHERS, EVERY_VALUE, EVERYTHING], ids=["one", "another", "any", "all"])
def test_toleration_is_rejected_in_other_namespaces(
    admitting: tuple[Client, str, str], toleration: dict[str, str]
) -> None:
    client, team, nobody = admitting

    with pytest.raises((Forbidden, Invalid), match="only pods of a namespace labelled"):
        create(client, nobody, tolerations=[toleration])
    if toleration is not OWN:
        with pytest.raises((Forbidden, Invalid), match="only pods of a namespace labelled"):
            create(client, team, tolerations=[toleration])
    assert given(create(client, nobody, owner="DaemonSet", tolerations=[toleration])) == [toleration]


@pytest.mark.parametrize("toleration", [OTHER, EVERY_NO_EXECUTE], ids=["of another key", "of NoExecute"])
def test_tolerations_of_other_taints_are_kept(admitting: tuple[Client, str, str], toleration: dict[str, str]) -> None:
    client, _, nobody = admitting
    assert given(create(client, nobody, tolerations=[toleration])) == [toleration]


def test_toleration_seconds_without_no_execute_are_rejected(machine_cluster: LocalCluster) -> None:
    """OpenShift's documentation of special hardware shows such a toleration."""
    eventually(lambda: _there(machine_cluster.client, "default"), what="the default service account")
    toleration = {"key": "disktype", "value": "ssd", "operator": "Equal", "effect": "NoSchedule"}

    with pytest.raises(Invalid, match="effect must be 'NoExecute' when `tolerationSeconds` is set"):
        create(machine_cluster.client, "default", tolerations=[toleration | {"tolerationSeconds": 3600}])
