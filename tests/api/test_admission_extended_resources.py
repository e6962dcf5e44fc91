"""ExtendedResourceToleration on a real API server: tolerations for requested extended resources."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.placement_admission import AdmissionCluster, workload
from tests.fixtures.pod_tolerations import NOT_READY, UNREACHABLE, exists, outage, same, tolerations
from tests.fixtures.waiting import eventually
from trimtab.kube.resources import DEPLOYMENTS, PODS


@pytest.fixture(scope="module")
def tenant(admission_cluster: AdmissionCluster) -> str:
    admission_cluster.enforce(extendedResourceToleration={"ignoredResources": ["example.com/ignored"]})
    return admission_cluster.namespace()


@pytest.mark.parametrize(
    ("containers", "init", "keys"),
    [
        pytest.param([{"cpu": "1"}], [], [], id="native resources"),
        pytest.param([{"nvidia.com/gpu": "1"}], [], ["nvidia.com/gpu"], id="one"),
        pytest.param([{}], [{"nvidia.com/gpu": "1"}], ["nvidia.com/gpu"], id="init container"),
        pytest.param(
            [{"nvidia.com/gpu": "1", "example.com/b": "1"}, {"example.com/a": "2", "nvidia.com/gpu": "1"}],
            [],
            ["example.com/a", "example.com/b", "nvidia.com/gpu"],
            id="several, sorted",
        ),
        pytest.param([{"hugepages-2Mi": "2Mi", "memory": "1Mi"}], [], [], id="huge pages"),
        pytest.param([{"example.com/ignored": "1"}], [], [], id="ignored"),
    ],
)
def test_toleration_is_added_for_each_extended_resource(
    admission_cluster: AdmissionCluster,
    tenant: str,
    containers: list[dict[str, str]],
    init: list[dict[str, str]],
    keys: list[str],
) -> None:
    def named(prefix: str, requests: list[dict[str, str]]) -> list[dict[str, Any]]:
        return [
            {"name": f"{prefix}{index}", "image": "none", "resources": {"requests": each, "limits": each}}
            for index, each in enumerate(requests)
        ]

    found = tolerations(admission_cluster, tenant, containers=named("c", containers), initContainers=named("i", init))
    assert [each for each in found if each["key"] not in (NOT_READY, UNREACHABLE)] == [exists(key) for key in keys]


def test_toleration_of_the_user_is_not_duplicated(admission_cluster: AdmissionCluster, tenant: str) -> None:
    gpu = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": gpu, "limits": gpu}}
    asked = exists("nvidia.com/gpu")

    found = tolerations(admission_cluster, tenant, containers=[container], tolerations=[asked])
    assert same(found, [asked, *outage()])


def test_pods_of_a_deployment_get_the_toleration(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    gpu = {"nvidia.com/gpu": "1"}
    container = {"name": "main", "image": "none", "resources": {"requests": gpu, "limits": gpu}}
    cluster.dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, containers=[container]), namespace=tenant)

    def pods() -> list[dict[str, Any]]:
        return list(cluster.client.request("GET", PODS.path(namespace=tenant))["items"])

    [made] = eventually(pods, what="the pod")
    assert exists("nvidia.com/gpu") in made["spec"]["tolerations"]
