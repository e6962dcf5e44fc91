"""The bundle for OLM: what `operator-sdk bundle validate` requires, and the same permissions as the kustomize base."""

from __future__ import annotations

import base64
import json
import re
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from tools.generate import BASE, BUNDLE
from tools.generate.base import NAMESPACE

from trimtab import __version__
from trimtab.api.crds import DEFINITIONS, crd_documents
from trimtab.api.decode import decode_policy, decode_taint_manager

MANIFESTS: dict[str, Any] = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (BUNDLE / "manifests").iterdir()
}
CSV = MANIFESTS["trimtab.clusterserviceversion.yaml"]
ANNOTATIONS = yaml.safe_load((BUNDLE / "metadata" / "annotations.yaml").read_text(encoding="utf-8"))["annotations"]
INSTALL = CSV["spec"]["install"]["spec"]
DECODERS = {"DeschedulerPolicy": decode_policy, "TaintManager": decode_taint_manager}
NODE_LEASES = "kube-node-lease"

SUPPORTED = {"ClusterRole", "ClusterServiceVersion", "CustomResourceDefinition", "Service"}
"""Kinds in the bundle. OLM v0 refuses a bundle with kinds that it does not know, such as ValidatingAdmissionPolicy."""


def of_kind(kind: str) -> list[Any]:
    return [each for each in MANIFESTS.values() if each["kind"] == kind]


def base(name: str) -> list[Any]:
    return list(yaml.safe_load_all((BASE / name).read_text(encoding="utf-8")))


def rules(permissions: list[Any]) -> set[str]:
    return {json.dumps(rule, sort_keys=True) for each in permissions for rule in each["rules"]}


def test_bundle_contains_only_kinds_that_olm_installs() -> None:
    assert {each["kind"] for each in MANIFESTS.values()} == SUPPORTED


def test_owned_crds_are_those_of_the_bundle() -> None:
    owned = CSV["spec"]["customresourcedefinitions"]["owned"]
    crds = {each["metadata"]["name"]: each for each in of_kind("CustomResourceDefinition")}
    assert {each["name"] for each in owned} == set(crds)
    for each in owned:
        assert crds[each["name"]]["spec"]["names"]["kind"] == each["kind"]
        assert each["version"] in [version["name"] for version in crds[each["name"]]["spec"]["versions"]]
        assert each["displayName"]
        assert each["description"]
    by_name = {each["metadata"]["name"]: each for each in crd_documents()}
    assert all(by_name[name] == each for name, each in crds.items())


def test_no_crd_belongs_to_the_platform() -> None:
    platforms = {each.name for each in DEFINITIONS if each.group != "trimtab.dev"}
    assert platforms
    assert not platforms & {each["metadata"]["name"] for each in of_kind("CustomResourceDefinition")}


def test_examples_are_valid_and_cover_what_users_create() -> None:
    annotations = CSV["metadata"]["annotations"]
    examples = json.loads(annotations["alm-examples"])
    internal = set(json.loads(annotations["operators.operatorframework.io/internal-objects"]))
    owned = {each["kind"]: each["name"] for each in CSV["spec"]["customresourcedefinitions"]["owned"]}
    assert {owned[each["kind"]] for each in examples} | internal == set(owned.values())
    for each in examples:
        assert DECODERS[each["kind"]](each)


def test_service_account_gets_the_permissions_of_the_base_without_the_autoscalers() -> None:
    [deployment] = INSTALL["deployments"]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    for kind in ("permissions", "clusterPermissions"):
        assert [each["serviceAccountName"] for each in INSTALL[kind]] == [account]
    documents = base("rbac.yaml")
    bound = {
        (each["roleRef"]["kind"], each["roleRef"]["name"]) for each in documents if each["kind"].endswith("RoleBinding")
    }
    granted: dict[bool, set[str]] = {True: set(), False: set()}
    for each in documents:
        metadata = each["metadata"]
        if (each["kind"], metadata["name"]) in bound and not metadata["name"].startswith("trimtab-cluster-autoscaler"):
            granted[metadata.get("namespace") == NAMESPACE] |= rules([each])
    assert rules(INSTALL["permissions"]) == granted[True]
    assert rules(INSTALL["clusterPermissions"]) == granted[False]


def rights(role: Any) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_roles_for_users_are_those_of_the_base_without_the_autoscalers_kinds() -> None:
    documents = base("rbac.yaml")
    bound = {each["roleRef"]["name"] for each in documents if each["kind"] == "ClusterRoleBinding"}
    wanted = {each["metadata"]["name"]: each for each in documents if each["kind"] == "ClusterRole"}
    found = {each["metadata"]["name"]: each for each in of_kind("ClusterRole")}
    assert set(found) == set(wanted) - bound
    for name, role in found.items():
        missing = rights(wanted[name]) - rights(role)
        assert rights(role) <= rights(wanted[name])
        assert {group for group, _, _ in missing} <= {"autoscaling.openshift.io"}, name


def test_deployment_is_that_of_the_base_without_the_autoscaler_and_fixed_users() -> None:
    [deployment] = INSTALL["deployments"]
    [wanted] = base("deployment.yaml")
    pod = wanted["spec"]["template"]["spec"]
    arguments = pod["containers"][0]["args"]
    pod["containers"][0]["args"] = [
        each.replace("descheduler,autoscaler,tainting", "descheduler,tainting")
        for each in arguments
        if not each.startswith("--machine-mark-delay=")
    ]
    del pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert deployment["spec"] == wanted["spec"]
    assert deployment["name"] == wanted["metadata"]["name"]


def test_version_and_images_agree() -> None:
    spec = CSV["spec"]
    assert CSV["metadata"]["name"] == f"trimtab.v{__version__}"
    assert spec["version"] == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", spec["minKubeVersion"])
    [deployment] = INSTALL["deployments"]
    images = [each["image"] for each in deployment["spec"]["template"]["spec"]["containers"]]
    assert [each["image"] for each in spec["relatedImages"]] == images
    assert [CSV["metadata"]["annotations"]["containerImage"]] == images


def test_icon_is_an_image_of_its_media_type() -> None:
    [icon] = CSV["spec"]["icon"]
    assert icon["mediatype"] == "image/svg+xml"
    root = ET.fromstring(base64.b64decode(icon["base64data"], validate=True))
    assert root.tag.endswith("svg")


def test_only_the_install_mode_of_cluster_scoped_resources_is_supported() -> None:
    modes = {each["type"]: each["supported"] for each in CSV["spec"]["installModes"]}
    assert modes == {"OwnNamespace": False, "SingleNamespace": False, "MultiNamespace": False, "AllNamespaces": True}


def test_metadata_names_the_folders_and_equals_the_labels_of_the_image() -> None:
    prefix = "operators.operatorframework.io.bundle"
    for folder in ("manifests", "metadata"):
        assert (BUNDLE / ANNOTATIONS[f"{prefix}.{folder}.v1"]).is_dir()
    text = (BUNDLE / "bundle.Dockerfile").read_text(encoding="utf-8")
    assert dict(re.findall(r"^LABEL (\S+)=(\S+)$", text, re.MULTILINE)) == ANNOTATIONS
    assert ANNOTATIONS[f"{prefix}.channel.default.v1"] in ANNOTATIONS[f"{prefix}.channels.v1"].split(",")


@pytest.mark.parametrize("field", ["displayName", "description", "provider", "maintainers", "links", "keywords"])
def test_fields_that_the_catalog_shows_are_set(field: str) -> None:
    assert CSV["spec"][field]
