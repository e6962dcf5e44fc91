"""PodNodeSelector on a real API server: the namespace's node selector, its conflicts and its whitelist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.placement_admission import AdmissionCluster, pod, workload
from tests.fixtures.users import denial
from tests.fixtures.waiting import eventually
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import DAEMON_SETS, DEPLOYMENTS, NAMESPACES, PODS
from trimtab_local.nodes import node

CONFLICT = "pod node label selector conflicts with its namespace node label selector"
PROJECT_CONFLICT = "pod node label selector conflicts with its project node label selector"
NOT_LISTED = "pod node label selector labels conflict with its namespace whitelist"

ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
OPENSHIFT = "openshift.io/node-selector"
PRINTED = "env=test,infra=fedora"

RULE = {
    "clusterDefaultNodeSelector": "k3=v3",
    "namespaceWhitelists": {
        "ns1": "region=west,env=test,infra=fedora,os=fedora",
        "listed": "region=west,k3=v3",
        "narrow": "region=west",
    },
}
"""The configuration that OpenShift's documentation prints, and two more whitelists."""


@pytest.fixture(scope="module")
def selecting(admission_cluster: AdmissionCluster) -> Iterator[AdmissionCluster]:
    """The cluster with the rule, and namespaces with and without an annotation; they are deleted afterwards."""
    cluster = admission_cluster
    cluster.enforce(podNodeSelector=RULE)
    namespaces: dict[str, dict[str, str]] = {
        "ns1": {ANNOTATION: PRINTED},
        "plain": {},
        "listed": {},
        "narrow": {},
        "empty": {ANNOTATION: ""},
        "openshift": {OPENSHIFT: "type=user-node,region=east"},
        "openshift-empty": {OPENSHIFT: ""},
        "both": {ANNOTATION: PRINTED, OPENSHIFT: "type=user-node"},
        "both-empty": {ANNOTATION: "", OPENSHIFT: "type=user-node"},
    }
    for name, selectors in namespaces.items():
        cluster.namespace(name, annotations=selectors)
    yield cluster
    for name in namespaces:
        cluster.client.request("DELETE", NAMESPACES.path(name))


def selector(cluster: AdmissionCluster, namespace: str, spec: dict[str, Any]) -> dict[str, str] | None:
    """Return the node selector that a pod of the tenant has after a dry-run creation."""
    made = cluster.dev.create(PODS, pod(**spec), namespace=namespace, dry_run=True).object
    found: dict[str, str] | None = made["spec"].get("nodeSelector")
    return found


def test_printed_example_merges_the_selectors_of_pod_and_namespace(selecting: AdmissionCluster) -> None:
    asked = {"nodeSelector": {"env": "test", "os": "fedora"}}

    assert selector(selecting, "ns1", asked) == {"env": "test", "infra": "fedora", "os": "fedora"}


def test_printed_example_with_another_value_is_refused(selecting: AdmissionCluster) -> None:
    with pytest.raises(Forbidden) as refused:
        selector(selecting, "ns1", {"nodeSelector": {"env": "production", "infra": "fedora", "os": "fedora"}})

    assert denial(refused.value) == CONFLICT


@pytest.mark.parametrize(
    ("namespace", "asked", "expected"),
    [
        pytest.param("ns1", None, {"env": "test", "infra": "fedora"}, id="namespace's own"),
        pytest.param("plain", None, {"k3": "v3"}, id="cluster's default"),
        pytest.param("plain", {"a": "b"}, {"a": "b", "k3": "v3"}, id="default and the pod's"),
        pytest.param("plain", {"k3": "v3"}, {"k3": "v3"}, id="default and the same"),
        pytest.param("listed", {"region": "west"}, {"region": "west", "k3": "v3"}, id="whitelist with the default"),
        pytest.param("empty", {"a": "b"}, {"a": "b"}, id="empty annotation"),
        pytest.param("empty", None, None, id="empty annotation, plain pod"),
        pytest.param("openshift", None, {"type": "user-node", "region": "east"}, id="OpenShift's annotation"),
        pytest.param("openshift-empty", None, None, id="OpenShift's empty annotation"),
        pytest.param("both", None, {"env": "test", "infra": "fedora"}, id="both annotations"),
        pytest.param("both-empty", None, None, id="both annotations, Kubernetes' empty"),
    ],
)
def test_node_selector_of_the_namespace_is_added(
    selecting: AdmissionCluster, namespace: str, asked: dict[str, str] | None, expected: dict[str, str] | None
) -> None:
    assert selector(selecting, namespace, {"nodeSelector": asked} if asked else {}) == expected


@pytest.mark.parametrize(
    ("namespace", "asked", "message"),
    [
        pytest.param("plain", {"k3": "other"}, CONFLICT, id="default"),
        pytest.param("openshift", {"region": "west"}, PROJECT_CONFLICT, id="OpenShift's annotation"),
        pytest.param("ns1", {"disk": "ssd"}, NOT_LISTED, id="key not listed"),
        pytest.param("ns1", {"region": "east"}, NOT_LISTED, id="value not listed"),
        pytest.param("narrow", None, NOT_LISTED, id="whitelist without the cluster's default"),
        pytest.param("narrow", {"region": "west"}, NOT_LISTED, id="whitelist without the default, listed pod"),
    ],
)
def test_conflicts_are_refused_for_every_user(
    selecting: AdmissionCluster, namespace: str, asked: dict[str, str] | None, message: str
) -> None:
    for user in (selecting.dev, selecting.binder, selecting.ops):
        with pytest.raises(Forbidden) as refused:
            user.create(PODS, pod(**({"nodeSelector": asked} if asked else {})), namespace=namespace)
        assert denial(refused.value) == message


def test_server_side_apply_and_every_form_of_creation_are_mutated(selecting: AdmissionCluster) -> None:
    dev = selecting.dev
    applied = dev.apply(PODS, pod("applied"), namespace="ns1").object
    again = dev.apply(PODS, pod("applied"), namespace="ns1").object
    generated = pod()
    generated["metadata"] = {"generateName": "web-"}
    made = dev.create(PODS, generated, namespace="ns1", dry_run=True).object
    stored = dev.create(PODS, pod("stored"), namespace="ns1").object

    for each in (applied, again, made, stored):
        assert each["spec"]["nodeSelector"] == {"env": "test", "infra": "fedora"}


def test_dry_run_of_a_refused_pod_is_refused_and_leaves_nothing(selecting: AdmissionCluster) -> None:
    with pytest.raises(Forbidden):
        selecting.dev.create(PODS, pod("never", nodeSelector={"env": "x"}), namespace="ns1", dry_run=True)
    selecting.dev.create(PODS, pod("never"), namespace="ns1", dry_run=True)

    names = [each["metadata"]["name"] for each in selecting.client.request("GET", PODS.path(namespace="ns1"))["items"]]
    assert "never" not in names


def test_gated_pod_cannot_leave_the_whitelist_in_an_update(selecting: AdmissionCluster) -> None:
    dev = selecting.dev
    dev.create(PODS, pod("gated", schedulingGates=[{"name": "a.b/c"}]), namespace="ns1")
    with pytest.raises(Forbidden) as refused:
        dev.patch(PODS, "gated", {"spec": {"nodeSelector": {"disk": "ssd"}}}, namespace="ns1")
    assert denial(refused.value) == NOT_LISTED
    # The API server would refuse to remove a pair, but the rule adds it again before.
    made = dev.patch(PODS, "gated", {"spec": {"nodeSelector": {"env": None}}}, namespace="ns1").object
    assert made["spec"]["nodeSelector"] == {"env": "test", "infra": "fedora"}
    with pytest.raises(Forbidden) as refused:
        dev.patch(PODS, "gated", {"spec": {"nodeSelector": {"env": "production"}}}, namespace="ns1")
    assert denial(refused.value) == CONFLICT

    made = dev.patch(PODS, "gated", {"spec": {"nodeSelector": {"os": "fedora"}}}, namespace="ns1").object
    assert made["spec"]["nodeSelector"] == {"env": "test", "infra": "fedora", "os": "fedora"}
    dev.patch(PODS, "gated", {"spec": {"schedulingGates": []}}, namespace="ns1")


def test_running_pod_of_an_older_selector_can_be_labelled(selecting: AdmissionCluster) -> None:
    """The selector of a namespace changes; its existing pods remain editable, since they cannot be changed."""
    cluster = selecting
    name = cluster.namespace(annotations={ANNOTATION: "env=old"})
    cluster.dev.create(PODS, pod("old"), namespace=name)
    cluster.annotate(name, {ANNOTATION: "env=new"})

    def applied() -> bool:
        made = cluster.dev.create(PODS, pod(), namespace=name, dry_run=True).object
        return bool(made["spec"]["nodeSelector"] == {"env": "new"})

    eventually(applied, what="the annotation to apply", seconds=10)
    made = cluster.dev.patch(PODS, "old", {"metadata": {"labels": {"a": "b"}}}, namespace=name).object
    assert made["spec"]["nodeSelector"] == {"env": "old"}


@pytest.mark.parametrize(
    "annotation", ["env", "env=a,", "env!=a", "env in (a)", "env=a b", "=", "a=b=c", "x" * 70 + "=a"]
)
def test_invalid_annotation_refuses_pods(selecting: AdmissionCluster, annotation: str) -> None:
    """An annotation that cannot be read must not open the namespace to every node."""
    name = selecting.namespace(annotations={ANNOTATION: annotation})

    with pytest.raises(Forbidden) as refused:
        selecting.dev.create(PODS, pod(), namespace=name)
    assert ANNOTATION in denial(refused.value)
    selecting.client.request("DELETE", NAMESPACES.path(name))


def test_controllers_pods_get_the_selector_and_templates_stay_as_written(selecting: AdmissionCluster) -> None:
    cluster = selecting
    made = cluster.dev.create(DEPLOYMENTS, workload(DEPLOYMENTS), namespace="ns1").object
    assert "nodeSelector" not in made["spec"]["template"]["spec"]

    def pods() -> list[dict[str, Any]]:
        params = {"labelSelector": "app=web"}
        return list(cluster.client.request("GET", PODS.path(namespace="ns1"), params=params)["items"])

    [created] = eventually(pods, what="the pod of the Deployment")
    assert created["spec"]["nodeSelector"] == {"env": "test", "infra": "fedora"}


def test_daemon_set_that_the_selector_would_strand_gets_a_warning(selecting: AdmissionCluster) -> None:
    made = selecting.dev.create(DAEMON_SETS, workload(DAEMON_SETS), namespace="ns1", dry_run=True)
    assert any("DaemonSet" in warning for warning in made.warnings)

    fits = workload(DAEMON_SETS, nodeSelector={"env": "test", "infra": "fedora"})
    assert selecting.dev.create(DAEMON_SETS, fits, namespace="ns1", dry_run=True).warnings == ()
    assert selecting.dev.create(DAEMON_SETS, workload(DAEMON_SETS), namespace="empty", dry_run=True).warnings == ()


def test_exempt_daemon_set_pods_are_those_of_the_controller_only(selecting: AdmissionCluster) -> None:
    cluster = selecting
    cluster.enforce(podNodeSelector={**RULE, "exemptDaemonSetPods": True})
    try:
        cluster.client.request("POST", "/api/v1/nodes", node("far", zone="z", labels={"env": "production"}))
        made = cluster.dev.create(DAEMON_SETS, workload(DAEMON_SETS, "agent"), namespace="ns1")
        assert made.warnings == ()

        def pods() -> list[dict[str, Any]]:
            params = {"labelSelector": "app=agent"}
            return list(cluster.client.request("GET", PODS.path(namespace="ns1"), params=params)["items"])

        found = eventually(pods, what="the pods of the DaemonSet")
        assert {"nodeSelector" in each["spec"] for each in found} == {False}

        # A tenant writes an owner reference to that DaemonSet: the pod is still a tenant's.
        forged = pod("forged", nodeSelector={"env": "production"})
        forged["metadata"]["ownerReferences"] = found[0]["metadata"]["ownerReferences"]
        with pytest.raises(Forbidden) as refused:
            cluster.dev.create(PODS, forged, namespace="ns1")
        assert denial(refused.value) == CONFLICT
        del forged["spec"]["nodeSelector"]
        mine = cluster.dev.create(PODS, forged, namespace="ns1", dry_run=True).object
        assert mine["spec"]["nodeSelector"] == {"env": "test", "infra": "fedora"}
    finally:
        cluster.client.request("DELETE", DAEMON_SETS.path("agent", namespace="ns1"))
        cluster.client.request("DELETE", "/api/v1/nodes/far")
        cluster.enforce(podNodeSelector=RULE)


def test_change_of_an_annotation_applies_without_a_restart(selecting: AdmissionCluster) -> None:
    cluster = selecting
    name = cluster.namespace()
    assert selector(cluster, name, {}) == {"k3": "v3"}
    for change, expected in (
        ({ANNOTATION: "a=b"}, {"a": "b"}),
        ({ANNOTATION: "", OPENSHIFT: "c=d"}, None),
        ({ANNOTATION: None}, {"c": "d"}),
        ({OPENSHIFT: None}, {"k3": "v3"}),
    ):
        cluster.annotate(name, change)
        eventually(
            lambda expected=expected: selector(cluster, name, {}) == expected,
            what="the annotation to apply",
            seconds=10,
        )
