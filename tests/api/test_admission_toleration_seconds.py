"""DefaultTolerationSeconds on a real API server, whose own plugin of that name runs before the webhooks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.placement_admission import AdmissionCluster, pod, workload
from tests.fixtures.pod_tolerations import NOT_READY, UNREACHABLE, Tolerations, exists, outage, same, tolerations
from tests.fixtures.waiting import eventually
from trimtab.kube.resources import DAEMON_SETS, PODS


@pytest.fixture(scope="module")
def tenant(admission_cluster: AdmissionCluster) -> str:
    admission_cluster.enforce(
        defaultTolerationSeconds={"notReadyTolerationSeconds": 30, "unreachableTolerationSeconds": 60}
    )
    return admission_cluster.namespace()


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param([], outage(30, 60), id="none"),
        pytest.param(
            [exists(NOT_READY, "NoExecute", tolerationSeconds=5)], outage(5, 60), id="the user's own for one taint"
        ),
        pytest.param(outage(5, 6), outage(5, 6), id="the user's own for both"),
        pytest.param(
            [exists(NOT_READY, "NoExecute"), exists(UNREACHABLE, "NoExecute")],
            [exists(NOT_READY, "NoExecute"), exists(UNREACHABLE, "NoExecute")],
            id="without an end",
        ),
        pytest.param([{"operator": "Exists"}], [{"operator": "Exists"}], id="every taint"),
        pytest.param(
            [{"operator": "Exists", "effect": "NoExecute"}],
            [{"operator": "Exists", "effect": "NoExecute"}],
            id="every NoExecute taint",
        ),
        pytest.param(
            [{"operator": "Exists", "effect": "NoSchedule"}],
            [{"operator": "Exists", "effect": "NoSchedule"}, *outage(30, 60)],
            id="every NoSchedule taint",
        ),
        pytest.param(
            [{"key": NOT_READY, "operator": "Equal", "value": "x", "effect": "NoExecute"}],
            [{"key": NOT_READY, "operator": "Equal", "value": "x", "effect": "NoExecute"}, outage(30, 60)[1]],
            id="operator and value are not examined",
        ),
    ],
)
def test_seconds_of_kube_apiserver_are_adjusted_and_the_users_kept(
    admission_cluster: AdmissionCluster, tenant: str, asked: Tolerations, expected: Tolerations
) -> None:
    assert same(tolerations(admission_cluster, tenant, tolerations=asked), expected)


def test_update_of_a_pod_keeps_its_tolerations(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """The webhook must not shorten tolerations of a pod that exists: an update may only add or extend."""
    cluster = admission_cluster
    made = cluster.dev.create(PODS, pod("kept", schedulingGates=[{"name": "a.b/c"}]), namespace=tenant).object
    assert same(made["spec"]["tolerations"], outage(30, 60))
    body = {"metadata": {"labels": {"a": "b"}}}
    changed = cluster.dev.patch(PODS, "kept", body, namespace=tenant).object
    assert same(changed["spec"]["tolerations"], outage(30, 60))

    changed["spec"]["tolerations"].append(exists("other"))
    again = cluster.dev.replace(PODS, changed, namespace=tenant).object
    assert same(again["spec"]["tolerations"], [*outage(30, 60), exists("other")])


def test_pod_from_before_the_rule_stays_editable(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    name = cluster.namespace()
    cluster.enforce(exemptNamespaces=[name])
    cluster.dev.create(PODS, pod("older"), namespace=name)
    cluster.enforce(defaultTolerationSeconds={"notReadyTolerationSeconds": 30, "unreachableTolerationSeconds": 60})
    changed = cluster.dev.patch(PODS, "older", {"metadata": {"labels": {"a": "b"}}}, namespace=name).object
    assert {each["key"] for each in changed["spec"]["tolerations"]} == {NOT_READY, UNREACHABLE}


def test_daemon_set_pods_keep_the_infinite_tolerations_of_their_controller(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    cluster.dev.create(DAEMON_SETS, workload(DAEMON_SETS, "agent"), namespace=tenant)

    def pods() -> list[dict[str, Any]]:
        params = {"labelSelector": "app=agent"}
        return list(cluster.client.request("GET", PODS.path(namespace=tenant), params=params)["items"])

    for each in eventually(pods, what="the DaemonSet's pods"):
        seconds = {toleration["key"]: toleration.get("tolerationSeconds") for toleration in each["spec"]["tolerations"]}
        assert (seconds[NOT_READY], seconds[UNREACHABLE]) == (None, None)
    cluster.client.request("DELETE", DAEMON_SETS.path("agent", namespace=tenant))


def test_without_adjustment_the_defaults_of_kube_apiserver_stay(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    rule = {"notReadyTolerationSeconds": 30, "unreachableTolerationSeconds": 60, "adjustApiServerDefaults": False}
    admission_cluster.enforce(defaultTolerationSeconds=rule)

    assert same(tolerations(admission_cluster, tenant), outage())
