"""PodTolerationRestriction on a real API server: default tolerations and whitelists."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.placement_admission import AdmissionCluster, pod
from tests.fixtures.pod_tolerations import NOT_READY, Tolerations, exists, outage, same, tolerations
from tests.fixtures.users import denial
from tests.fixtures.waiting import eventually
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import PODS

PRESSURE = "node.kubernetes.io/memory-pressure"

DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"

CONFLICT_CLUSTER = (
    "pod tolerations (possibly merged with namespace default tolerations) conflict with its cluster whitelist"
)
CONFLICT_NAMESPACE = (
    "pod tolerations (possibly merged with namespace default tolerations) conflict with its namespace whitelist"
)

RESTRICTION = {
    "defaultTolerations": [{"key": "default", "operator": "Exists", "effect": "NoSchedule"}],
    "tolerationsWhitelist": [
        {"key": "default", "operator": "Exists"},
        {"key": "disk", "operator": "Equal", "value": "ssd", "effect": "NoSchedule"},
        {"key": "short", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
    ],
}
"""Default tolerations and a whitelist of the cluster."""


@pytest.fixture(scope="module")
def tenant(admission_cluster: AdmissionCluster) -> str:
    admission_cluster.enforce(podTolerationRestriction=RESTRICTION)
    return admission_cluster.namespace()


@pytest.fixture(scope="module")
def annotated(admission_cluster: AdmissionCluster, tenant: str) -> str:
    """A namespace with its own default tolerations and its own whitelist."""
    own = [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]
    listed = [{"key": "team", "operator": "Exists"}, {"key": "more", "operator": "Exists"}]
    return admission_cluster.namespace(annotations={DEFAULTS: json.dumps(own), WHITELIST: json.dumps(listed)})


@pytest.mark.parametrize(
    ("asked", "added"),
    [
        pytest.param([], [exists("default")], id="none"),
        pytest.param([exists("default")], [], id="the default itself"),
        pytest.param([{"key": "default", "operator": "Exists"}], [], id="a superset of the default"),
        pytest.param(
            [{"key": "disk", "operator": "Equal", "value": "ssd", "effect": "NoSchedule"}],
            [exists("default")],
            id="a listed value",
        ),
        pytest.param(
            [exists("short", "NoExecute", tolerationSeconds=60)], [exists("default")], id="the listed seconds"
        ),
        pytest.param([exists("short", "NoExecute", tolerationSeconds=5)], [exists("default")], id="fewer seconds"),
    ],
)
def test_defaults_of_the_cluster_are_merged(
    admission_cluster: AdmissionCluster, tenant: str, asked: Tolerations, added: Tolerations
) -> None:
    assert same(tolerations(admission_cluster, tenant, tolerations=asked), [*asked, *added, *outage()])


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([exists("other")], id="key not listed"),
        pytest.param([{"key": "disk", "operator": "Equal", "value": "hdd", "effect": "NoSchedule"}], id="value"),
        pytest.param([exists("disk")], id="Exists where a value is listed"),
        pytest.param([{"key": "disk", "operator": "Equal", "value": "ssd"}], id="every effect"),
        pytest.param([exists("short", "NoExecute", tolerationSeconds=61)], id="more seconds"),
        pytest.param([exists("short", "NoExecute")], id="without an end"),
        pytest.param([{"operator": "Exists"}], id="every taint"),
        pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], id="every key"),
        pytest.param(outage(301, 300), id="longer than the API server's default"),
    ],
)
def test_toleration_that_is_not_listed_is_refused_with_the_message_of_the_plugin(
    admission_cluster: AdmissionCluster, tenant: str, asked: Tolerations
) -> None:
    for user in (admission_cluster.dev, admission_cluster.binder, admission_cluster.ops):
        with pytest.raises(Forbidden) as refused:
            user.create(PODS, pod(tolerations=asked), namespace=tenant)
        assert denial(refused.value) == CONFLICT_CLUSTER


def test_lists_of_the_namespace_replace_those_of_the_cluster(
    admission_cluster: AdmissionCluster, annotated: str
) -> None:
    team = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    assert same(tolerations(admission_cluster, annotated), [team, *outage()])
    assert same(
        tolerations(admission_cluster, annotated, tolerations=[exists("more")]), [exists("more"), team, *outage()]
    )
    with pytest.raises(Forbidden) as refused:
        tolerations(admission_cluster, annotated, tolerations=[exists("default")])
    assert denial(refused.value) == CONFLICT_NAMESPACE


def test_empty_annotations_mean_empty_lists(admission_cluster: AdmissionCluster, tenant: str) -> None:
    name = admission_cluster.namespace(annotations={DEFAULTS: "", WHITELIST: ""})

    assert same(tolerations(admission_cluster, name, tolerations=[exists("other")]), [exists("other"), *outage()])


@pytest.mark.parametrize("text", ["{", '{"key": "a"}', "[1]", '[{"key": 5}]', "null x", "[" * 5000, '"a"'])
@pytest.mark.parametrize("key", [DEFAULTS, WHITELIST])
def test_annotation_that_is_no_list_of_tolerations_refuses_pods(
    admission_cluster: AdmissionCluster, tenant: str, key: str, text: str
) -> None:
    name = admission_cluster.namespace(annotations={key: text})

    with pytest.raises(Forbidden) as refused:
        tolerations(admission_cluster, name)
    assert key in denial(refused.value)


def test_pod_with_resource_requests_tolerates_memory_pressure(admission_cluster: AdmissionCluster, tenant: str) -> None:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    found = tolerations(admission_cluster, tenant, containers=[container])

    assert same(found, [exists(PRESSURE), exists("default"), *outage()])


def test_toleration_cannot_be_added_in_an_update(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    made = cluster.dev.create(PODS, pod("updated", schedulingGates=[{"name": "a.b/c"}]), namespace=tenant).object
    made["spec"]["tolerations"].append(exists("other"))
    with pytest.raises(Forbidden) as refused:
        cluster.dev.replace(PODS, made, namespace=tenant)
    assert denial(refused.value) == CONFLICT_CLUSTER

    # An update may also extend the seconds of a toleration.
    made["spec"]["tolerations"].pop()
    for each in made["spec"]["tolerations"]:
        if each["key"] == NOT_READY:
            each["tolerationSeconds"] = 100_000
    with pytest.raises(Forbidden) as refused:
        cluster.dev.replace(PODS, made, namespace=tenant)
    assert denial(refused.value) == CONFLICT_CLUSTER


def test_pod_of_an_older_whitelist_can_still_be_labelled(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    listed = [{"key": "old", "operator": "Exists"}]
    name = cluster.namespace(annotations={WHITELIST: json.dumps(listed), DEFAULTS: ""})
    cluster.dev.create(PODS, pod("older", tolerations=[exists("old")]), namespace=name)
    cluster.annotate(name, {WHITELIST: json.dumps([{"key": "new", "operator": "Exists"}])})

    def refuses() -> bool:
        try:
            tolerations(cluster, name, tolerations=[exists("old")])
        except Forbidden:
            return True
        return False

    eventually(refuses, what="the annotation to apply", seconds=10)
    cluster.dev.patch(PODS, "older", {"metadata": {"labels": {"a": "b"}}}, namespace=name)


def test_whitelist_without_the_defaults_of_kube_apiserver(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """The in-tree plugin refuses every pod then, which allowApiServerDefaults: false reproduces."""
    admission_cluster.enforce(podTolerationRestriction={**RESTRICTION, "allowApiServerDefaults": False})
    with pytest.raises(Forbidden) as refused:
        tolerations(admission_cluster, tenant)
    assert denial(refused.value) == CONFLICT_CLUSTER
