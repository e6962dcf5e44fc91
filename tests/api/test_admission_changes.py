"""Changes of the PlacementAdmission apply without a restart of the role, and an invalid one changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from tests.fixtures.placement_admission import ADMISSION, DEFINITIONS, MUTATING, VALIDATING, AdmissionCluster, pod
from tests.fixtures.users import denial
from tests.fixtures.waiting import eventually
from trimtab.kube.api import Forbidden, Invalid
from trimtab.kube.resources import PLACEMENT_ADMISSIONS, PODS, Resource
from trimtab_local.client import Client

BY_NAME = "node selection by nodeName is prohibited by policy for your role"


@pytest.fixture
def tenant(admission_cluster: AdmissionCluster) -> str:
    admission_cluster.enforce(podNodeConstraints={})
    return admission_cluster.namespace()


def refused(cluster: AdmissionCluster, namespace: str, **spec: Any) -> str:
    """Return the message with which a tenant's pod is refused; empty if it is admitted."""
    try:
        cluster.dev.create(PODS, pod(**spec), namespace=namespace, dry_run=True)
    except Forbidden as error:
        return denial(error)
    return ""


def test_new_rule_applies_and_a_removed_one_ends(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    assert refused(cluster, tenant, nodeName="node-1") == BY_NAME
    assert refused(cluster, tenant, nodeSelector={"region": "x"}) == ""

    cluster.enforce(podNodeConstraints={"nodeSelectorLabelBlacklist": ["region"]})
    assert "region" in refused(cluster, tenant, nodeSelector={"region": "x"})

    cluster.enforce(extendedResourceToleration={})
    assert refused(cluster, tenant, nodeName="node-1") == ""


def test_webhooks_exist_only_for_the_rules_that_are_set(admission_cluster: AdmissionCluster, tenant: str) -> None:
    del tenant
    cluster = admission_cluster
    cluster.write(podNodeConstraints={})

    eventually(
        lambda: not of_rules(cluster, MUTATING) and of_rules(cluster, VALIDATING) == ["Fail"],
        what="one webhook",
        seconds=20,
    )
    cluster.write(podNodeConstraints={"failurePolicy": "Ignore"}, defaultTolerationSeconds={})
    eventually(
        lambda: of_rules(cluster, MUTATING) == of_rules(cluster, VALIDATING) == ["Ignore"],
        what="webhooks with the other failure policy",
        seconds=20,
    )


def of_rules(cluster: AdmissionCluster, resource: Resource) -> list[str]:
    """Return the failure policies of the webhooks, except that of trimtab's own resources, which always exists."""
    return [each["failurePolicy"] for each in cluster.webhooks(resource) if not each["name"].startswith("resources.")]


def test_namespaces_that_a_platform_exempts_stay_exempt(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """As the admissions enforcer of AKS does it: it adds a requirement to every webhook, and checks it again."""
    cluster, added = admission_cluster, {"key": "control-plane", "operator": "DoesNotExist"}
    theirs = cluster.namespace(labels={"control-plane": "true"})

    def enforce_on_platform() -> None:
        found = cluster.client.request("GET", VALIDATING.path(ADMISSION))
        for each in found["webhooks"]:
            selector = each["namespaceSelector"].setdefault("matchExpressions", [])
            if added not in selector:
                selector.append(added)
        cluster.client.request("PUT", VALIDATING.path(ADMISSION), found)

    enforce_on_platform()
    eventually(lambda: refused(cluster, theirs, nodeName="node-1") == "", what="the exemption to apply")
    assert refused(cluster, tenant, nodeName="node-1") == BY_NAME
    version = cluster.client.request("GET", VALIDATING.path(ADMISSION))["metadata"]["resourceVersion"]
    time.sleep(5)
    assert cluster.client.request("GET", VALIDATING.path(ADMISSION))["metadata"]["resourceVersion"] == version
    assert cluster.condition("Ready")["status"] == "True"

    # A change of the rules replaces trimtab's own requirement only.
    exempt = cluster.namespace()
    cluster.enforce(podNodeConstraints={}, exemptNamespaces=[exempt])
    assert [refused(cluster, each, nodeName="node-1") for each in (tenant, exempt, theirs)] == [BY_NAME, "", ""]
    cluster.enforce(podNodeConstraints={})
    eventually(lambda: refused(cluster, exempt, nodeName="node-1") == BY_NAME, what="the rules to apply")
    assert refused(cluster, theirs, nodeName="node-1") == ""
    found = cluster.client.request("GET", VALIDATING.path(ADMISSION))
    cluster.client.request("PUT", VALIDATING.path(ADMISSION), {**found, "webhooks": []})
    eventually(lambda: refused(cluster, theirs, nodeName="node-1") == BY_NAME, what="the webhooks of trimtab alone")


def test_deletion_unregisters_the_webhooks_and_recreation_restores_them(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    cluster.client.request("DELETE", PLACEMENT_ADMISSIONS.path("default"))
    eventually(
        lambda: not of_rules(cluster, MUTATING) and not of_rules(cluster, VALIDATING), what="no webhooks", seconds=20
    )
    assert [each["failurePolicy"] for each in cluster.webhooks(VALIDATING)] == ["Ignore"]
    eventually(lambda: refused(cluster, tenant, nodeName="node-1") == "", what="no rule to apply", seconds=10)

    cluster.enforce(podNodeConstraints={})
    assert refused(cluster, tenant, nodeName="node-1") == BY_NAME


@pytest.mark.parametrize(
    "spec",
    [
        {"podNodeSelector": {"clusterDefaultNodeSelector": "k3"}},
        {"podNodeConstraints": {"protectedTaints": [{"key": "a"}]}},
        {"dedicatedNodes": {"pools": []}},
        {"dedicatedNodes": {"pools": [{"name": "a", "taint": {"key": "a"}}]}},
        {"mode": "Audit"},
    ],
    ids=["selector", "taints without their check", "no pool", "pool of no subject", "mode"],
)
def test_api_server_refuses_an_invalid_spec_and_the_last_valid_one_stays(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        admission_cluster.write(**spec)

    assert refused(admission_cluster, tenant, nodeName="node-1") == BY_NAME


@contextmanager
def older_definition(client: Client) -> Iterator[None]:
    """Replace the CRD with one that validates nothing, as if it were much older than the role, while the block runs."""
    path = DEFINITIONS.path(PLACEMENT_ADMISSIONS.name)

    def install(versions: list[dict[str, Any]]) -> None:
        present = client.request("GET", path)
        present["spec"]["versions"] = versions
        client.request("PUT", path, present)

    versions = client.request("GET", path)["spec"]["versions"]
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    install([{**each, "schema": anything} for each in versions])
    try:
        yield
    finally:
        install(versions)


def test_spec_that_only_the_role_refuses_is_reported_and_the_last_valid_one_stays(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    with older_definition(cluster.client):

        def written() -> int:
            with suppress(Invalid):  # until the API server uses the other definition
                made = cluster.write(podNodeSelector={"clusterDefaultNodeSelector": "no selector"})
                return int(made["metadata"]["generation"])
            return 0

        generation = eventually(written, what="the API server to accept the spec", seconds=20)

        def reported() -> dict[str, Any]:
            found = cluster.condition("Ready")
            return found if found["status"] == "False" and found["observedGeneration"] == generation else {}

        condition = eventually(reported, what="a condition that names the error", seconds=30)
        assert "clusterDefaultNodeSelector" in condition["message"]
        for _ in range(5):
            assert refused(cluster, tenant, nodeName="node-1") == BY_NAME

    cluster.enforce(podNodeConstraints={"nodeSelectorLabelBlacklist": ["region"]})
    eventually(lambda: cluster.condition("Ready").get("status") == "True", what="Ready", seconds=30)
    assert "region" in refused(cluster, tenant, nodeSelector={"region": "x"})


def test_warn_mode_refuses_and_changes_nothing(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    cluster.write(
        mode="Warn",
        podNodeConstraints={},
        podNodeSelector={"clusterDefaultNodeSelector": "k3=v3"},
        extendedResourceToleration={},
    )

    def warned() -> tuple[str, ...]:
        try:
            made = cluster.dev.create(PODS, pod(nodeName="node-1"), namespace=tenant, dry_run=True)
        except Forbidden:
            return ()
        assert made.object["spec"]["nodeName"] == "node-1"
        return made.warnings if "nodeSelector" not in made.object["spec"] else ()

    warnings = eventually(warned, what="a warning instead of a refusal", seconds=20)
    assert any(BY_NAME in warning for warning in warnings)


def test_status_counts_requests_by_rule_and_result(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster

    def counts() -> dict[tuple[str, str], int]:
        found = cluster.policy().get("status", {}).get("counts", ())
        return {(each["rule"], each["result"]): each["count"] for each in found}

    def recent() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = cluster.policy().get("status", {}).get("recentRefusals", [])
        return [each for each in found if each["namespace"] == tenant]

    before = counts().get(("PodNodeConstraints", "Refused"), 0)
    for index in range(3):
        with pytest.raises(Forbidden):
            cluster.dev.create(PODS, pod(f"no-{index}", nodeName="node-1"), namespace=tenant)
    eventually(
        lambda: counts().get(("PodNodeConstraints", "Refused"), 0) >= before + 3 and len(recent()) == 3,
        what="three more refusals",
        seconds=60,
    )
    found = recent()
    assert {each["name"] for each in found} == {"no-0", "no-1", "no-2"}
    assert {(each["kind"], each["rule"], each["message"]) for each in found} == {("Pod", "PodNodeConstraints", BY_NAME)}
    assert cluster.policy()["status"]["observedGeneration"] == cluster.policy()["metadata"]["generation"]
    assert cluster.condition("Ready")["status"] == "True"
