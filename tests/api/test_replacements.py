"""What a real API server and its controllers do to resized pods, and which replacements are expected of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from examples.demo.workloads import deployment
from tests.builders import vertical_pod_autoscaler
from tests.fixtures.clusters import Cluster
from tests.fixtures.custom_resources import DEFINITIONS, serve, served
from tests.fixtures.waiting import wait_for
from trimtab.cluster.loader import load
from trimtab.cluster.workloads.replacements import Replacements
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Pod
from trimtab.kube.resources import DEPLOYMENTS, PODS, VERTICAL_POD_AUTOSCALERS

STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def recommended(cluster: Cluster) -> Iterator[None]:
    """The API server serves VerticalPodAutoscalers."""
    serve(cluster.client, VERTICAL_POD_AUTOSCALERS)
    yield
    cluster.client.request("DELETE", f"{DEFINITIONS}/{VERTICAL_POD_AUTOSCALERS.name}")
    wait_for(lambda: not served(cluster.client, VERTICAL_POD_AUTOSCALERS.path()), "the definition to be gone")


async def expected(api: Transport, namespace: str) -> tuple[Pod, Pod]:
    """Return the only pod of the namespace and its replacement, as a plan would read them now."""
    snapshot = await load(api)
    [pod] = [each for each in snapshot.pods.values() if each.namespace == namespace]
    return pod, Replacements(snapshot).of(pod)


async def test_resized_pod_leaves_a_replacement_of_the_template(
    cluster: Cluster, namespace: str, api: Transport, recommended: None
) -> None:
    client, pods = cluster.client, PODS.path(namespace=namespace)
    client.request("POST", DEPLOYMENTS.path(namespace=namespace), deployment("web", namespace=namespace, cpu="300m"))

    def bound() -> list[Any]:
        return [each for each in client.request("GET", pods)["items"] if each["spec"].get("nodeName")]

    wait_for(lambda: len(bound()) == 1, "the pod to be bound")
    pod, replacement = await expected(api, namespace)
    assert pod.generation == 1
    assert replacement.spec is pod.spec

    # The API server refuses to resize running pods whose kubelet reports no resources, as the simulated one.
    wait_for(lambda: bound()[0]["status"].get("containerStatuses"), "the containers to run")
    [made] = bound()
    statuses = [{**each, "resources": {"requests": {"cpu": "300m"}}} for each in made["status"]["containerStatuses"]]
    path = f"{pods}/{made['metadata']['name']}/status"
    client.request("PATCH", path, {"status": {"containerStatuses": statuses}}, content_type=STRATEGIC)
    container = {"name": made["spec"]["containers"][0]["name"], "resources": {"requests": {"cpu": "100m"}}}
    path = f"{pods}/{made['metadata']['name']}/resize"
    client.request("PATCH", path, {"spec": {"containers": [container]}}, content_type=STRATEGIC)
    pod, replacement = await expected(api, namespace)
    assert pod.generation == 2
    assert (pod.spec.containers[0].requests["cpu"], replacement.spec.requests["cpu"]) == (100, 300)

    recommends = vertical_pod_autoscaler("web", namespace).manifest()
    recommends["metadata"].pop("uid")
    client.request("POST", VERTICAL_POD_AUTOSCALERS.path(namespace=namespace), recommends)
    pod, replacement = await expected(api, namespace)
    assert replacement.spec.requests["cpu"] == 100
