"""Dedicated nodes and special hardware on a real API server: who gets the toleration, and who is refused it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.placement_admission import CRON_JOBS, JOBS, AdmissionCluster, pod, template_spec, workload
from tests.fixtures.users import STRATEGIC, denial
from tests.fixtures.waiting import eventually
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)

TAINT = {"key": "dedicated", "value": "groupName", "effect": "NoSchedule"}
TOLERATION = {"key": "dedicated", "operator": "Equal", "value": "groupName", "effect": "NoSchedule"}
LABEL_TERM = {"key": "dedicated", "operator": "In", "values": ["groupName"]}
GPU = {"nvidia.com/gpu": "1"}
DISK = {"key": "disktype", "operator": "Equal", "value": "ssd", "effect": "NoSchedule"}

POOLS = {
    "pools": [
        {"name": "team-a", "groups": ["team-a"], "namespaces": ["dedicated-ns"], "taint": TAINT},
        {
            "name": "batch",
            "namespaces": ["batch-ns"],
            "taint": {"key": "batch", "effect": "NoExecute"},
            "nodeLabel": {"key": "pool", "value": "batch"},
        },
    ]
}
ROBOTS = {"name": "robots", "taint": {"key": "robots", "value": "only"}}
CLASSES = {
    "classes": [
        {
            "name": "gpu",
            "resources": ["nvidia.com/gpu"],
            "taint": {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
            "nodeLabel": {"key": "accelerator", "value": "nvidia"},
            "exclusive": True,
        },
        {
            "name": "ssd",
            "podLabels": {"needs": "ssd"},
            "taint": {"key": "disktype", "value": "ssd", "effect": "NoSchedule"},
        },
    ]
}


@pytest.fixture(scope="module")
def tenant(admission_cluster: AdmissionCluster) -> str:
    """A namespace that belongs to no pool."""
    admission_cluster.enforce(dedicatedNodes=POOLS, specialHardware=CLASSES)
    for name in ("dedicated-ns", "batch-ns"):
        admission_cluster.namespace(name)
    return admission_cluster.namespace()


def own(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tolerations of a pod spec except the API server's."""
    return [
        each for each in spec.get("tolerations", ()) if not str(each.get("key", "")).startswith("node.kubernetes.io/")
    ]


def required(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the terms of the required node affinity."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", ()))


def test_pod_of_the_group_gets_the_toleration_and_the_affinity(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    spec = admission_cluster.member.create(PODS, pod(), namespace=tenant, dry_run=True).object["spec"]

    assert own(spec) == [TOLERATION]
    assert required(spec) == [{"matchExpressions": [LABEL_TERM]}]


def test_pod_of_the_namespace_gets_them_for_every_user(admission_cluster: AdmissionCluster, tenant: str) -> None:
    del tenant
    for user in (admission_cluster.dev, admission_cluster.binder, admission_cluster.ops):
        spec = user.create(PODS, pod(), namespace="dedicated-ns", dry_run=True).object["spec"]
        assert own(spec) == [TOLERATION]
        assert required(spec) == [{"matchExpressions": [LABEL_TERM]}]


def test_label_and_effect_of_the_pool_are_used(admission_cluster: AdmissionCluster, tenant: str) -> None:
    del tenant
    spec = admission_cluster.dev.create(PODS, pod(), namespace="batch-ns", dry_run=True).object["spec"]

    [toleration] = own(spec)
    assert toleration["key"] == "batch"
    assert toleration["effect"] == "NoExecute"
    assert "tolerationSeconds" not in toleration
    assert required(spec) == [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}]


def test_existing_affinity_is_kept_and_every_term_is_restricted(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    """Terms are alternatives, so the pool's label has to be in each of them."""
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    zones.append({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]})
    weighted = [{"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}}]
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones},
            "preferredDuringSchedulingIgnoredDuringExecution": weighted,
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]
        },
    }
    made = admission_cluster.member.create(PODS, pod(affinity=affinity), namespace=tenant, dry_run=True).object["spec"]

    found = required(made)
    assert [LABEL_TERM in term["matchExpressions"] for term in found] == [True, True, True]
    assert [{key: [each for each in value if each != LABEL_TERM] for key, value in term.items()} for term in found] == [
        zones[0],
        zones[1],
        {**zones[2], "matchExpressions": []},
    ]
    assert made["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] == weighted
    assert made["affinity"]["podAntiAffinity"] == affinity["podAntiAffinity"]


def test_mutation_is_idempotent(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """A pod that already has what the rules add is stored as it is."""
    member = admission_cluster.member
    plain = pod(automountServiceAccountToken=False)
    once = member.create(PODS, plain, namespace=tenant, dry_run=True).object["spec"]
    plain["spec"] |= {"tolerations": once["tolerations"], "affinity": once["affinity"]}
    twice = member.create(PODS, plain, namespace=tenant, dry_run=True).object["spec"]

    assert twice == once
    gated = pod("applied", schedulingGates=[{"name": "example.com/wait"}])
    first = member.apply(PODS, gated, namespace=tenant).object
    second = member.apply(PODS, gated, namespace=tenant).object
    assert second["spec"] == first["spec"]


STRANGERS = [
    pytest.param([TOLERATION], id="the toleration itself"),
    pytest.param([{"key": "dedicated", "operator": "Exists"}], id="Exists"),
    pytest.param([{"key": "dedicated", "value": "groupName"}], id="every effect"),
    pytest.param([{"operator": "Exists"}], id="every taint"),
    pytest.param([{"operator": "Exists", "effect": "NoSchedule"}], id="every key"),
    pytest.param([{"key": "batch", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}], id="seconds"),
    pytest.param([{"key": "batch", "operator": "Exists"}], id="another pool"),
    pytest.param([{"key": "nvidia.com/gpu", "operator": "Exists"}], id="exclusive hardware"),
]
OTHERS = [
    pytest.param([{**TOLERATION, "value": "other"}], id="another value"),
    pytest.param([{**TOLERATION, "effect": "PreferNoSchedule"}], id="another effect"),
    pytest.param([DISK], id="hardware that is not exclusive"),
]


@pytest.mark.parametrize("tolerations", STRANGERS)
def test_pod_that_belongs_to_no_pool_is_refused_the_toleration(
    admission_cluster: AdmissionCluster, tenant: str, tolerations: list[dict[str, Any]]
) -> None:
    for user in (admission_cluster.dev, admission_cluster.binder, admission_cluster.ops):
        with pytest.raises(Forbidden) as refused:
            user.create(PODS, pod(tolerations=tolerations), namespace=tenant)
        assert denial(refused.value)


@pytest.mark.parametrize("tolerations", OTHERS)
def test_toleration_that_matches_no_reserved_taint_is_permitted(
    admission_cluster: AdmissionCluster, tenant: str, tolerations: list[dict[str, Any]]
) -> None:
    spec = admission_cluster.dev.create(PODS, pod(tolerations=tolerations), namespace=tenant, dry_run=True).object[
        "spec"
    ]

    assert own(spec) == tolerations


def test_node_name_that_would_bypass_the_taint_is_refused(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """The scheduler, which checks the taints, does not see pods with a nodeName."""
    cluster = admission_cluster
    with pytest.raises(Forbidden) as refused:
        cluster.dev.create(PODS, pod(nodeName="node-1"), namespace=tenant)
    assert "spec.nodeName" in denial(refused.value)
    cluster.binder.create(PODS, pod(nodeName="node-1"), namespace=tenant, dry_run=True)


@pytest.mark.parametrize(
    "resource", [DEPLOYMENTS, STATEFUL_SETS, JOBS, CRON_JOBS, DAEMON_SETS], ids=lambda each: each.kind
)
def test_templates_of_strangers_are_refused_and_those_of_the_group_changed(
    admission_cluster: AdmissionCluster, tenant: str, resource: Resource
) -> None:
    cluster = admission_cluster
    with pytest.raises(Forbidden) as refused:
        cluster.dev.create(resource, workload(resource, tolerations=[TOLERATION]), namespace=tenant)
    assert denial(refused.value)

    made = cluster.member.create(resource, workload(resource), namespace=tenant, dry_run=True).object
    spec = template_spec(resource, made)
    assert own(spec) == [TOLERATION]
    assert required(spec) == [{"matchExpressions": [LABEL_TERM]}]


@pytest.mark.parametrize(
    "resource",
    [DEPLOYMENTS, REPLICA_SETS, REPLICATION_CONTROLLERS, STATEFUL_SETS, JOBS],
    ids=lambda each: each.kind,
)
def test_workload_of_the_group_gets_pods_in_the_pool(
    admission_cluster: AdmissionCluster, tenant: str, resource: Resource
) -> None:
    """A controller creates the pods; they belong to the pool because of their template."""
    cluster, name = admission_cluster, resource.plural
    cluster.member.create(resource, workload(resource, f"team-{name}"), namespace=tenant)
    cluster.dev.create(resource, workload(resource, f"other-{name}"), namespace=tenant)

    def spec(prefix: str) -> dict[str, Any]:
        found = cluster.client.request("GET", PODS.path(namespace=tenant))["items"]
        return next((each["spec"] for each in found if each["metadata"]["name"].startswith(prefix)), {})

    eventually(lambda: spec(f"team-{name}") and spec(f"other-{name}"), what="the pods of both")
    assert own(spec(f"team-{name}")) == [TOLERATION]
    assert required(spec(f"team-{name}")) == [{"matchExpressions": [LABEL_TERM]}]
    assert own(spec(f"other-{name}")) == []


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS, CRON_JOBS], ids=lambda each: each.kind)
def test_template_that_is_applied_again_starts_no_rollout(
    admission_cluster: AdmissionCluster, tenant: str, resource: Resource
) -> None:
    """Server-side apply removes what the rules added, because the manifest lacks it; the rules add the same again."""
    member, manifest = admission_cluster.member, workload(resource, "applied")
    first = member.apply(resource, manifest, namespace=tenant).object
    assert own(template_spec(resource, first)) == [TOLERATION]
    for _ in range(2):
        again = member.apply(resource, manifest, namespace=tenant).object
        assert again["metadata"]["generation"] == first["metadata"]["generation"]
        assert again["spec"] == first["spec"]

    change = {"metadata": {"annotations": {"a": "b"}}}
    patched = member.patch(resource, "applied", change, namespace=tenant, content_type=STRATEGIC).object
    assert patched["spec"] == first["spec"]


def test_cron_job_of_the_group_gets_jobs_in_the_pool(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """kubectl create job --from copies the template as the user; the controller copies it as itself."""
    cluster = admission_cluster
    made = cluster.member.create(CRON_JOBS, workload(CRON_JOBS, "nightly"), namespace=tenant).object
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "nightly-1"}, **made["spec"]["jobTemplate"]}
    job["metadata"] = {"name": "nightly-1"}
    with pytest.raises(Forbidden) as refused:
        cluster.dev.create(JOBS, job, namespace=tenant)
    assert denial(refused.value)
    controller = cluster.user("system:serviceaccount:kube-system:cronjob-controller")
    spec = template_spec(JOBS, controller.create(JOBS, job, namespace=tenant, dry_run=True).object)
    assert own(spec) == [TOLERATION]


def test_group_of_service_accounts_is_a_group(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    name = cluster.namespace()
    cluster.bind(tenant, "edit", {"kind": "Group", "name": f"system:serviceaccounts:{name}"})
    pools = {"pools": [*POOLS["pools"], {**ROBOTS, "groups": [f"system:serviceaccounts:{name}"]}]}
    cluster.enforce(dedicatedNodes=pools, specialHardware=CLASSES)
    robot = cluster.user(f"system:serviceaccount:{name}:deployer")

    def created() -> dict[str, Any]:
        try:
            return robot.create(PODS, pod(), namespace=tenant, dry_run=True).object["spec"]
        except Forbidden:  # until the RBAC rules apply
            return {}

    assert [each["key"] for each in own(eventually(created, what="the pod", seconds=10))] == ["robots"]
    cluster.enforce(dedicatedNodes=POOLS, specialHardware=CLASSES)


def test_stranger_cannot_run_code_in_a_pod_of_the_group(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    cluster.member.create(PODS, pod("theirs", schedulingGates=[{"name": "example.com/wait"}]), namespace=tenant)
    debugger = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "evil"}]}}
    image = {"spec": {"containers": [{"name": "main", "image": "evil"}]}}
    for body, subresource in ((debugger, "ephemeralcontainers"), (image, "")):
        options = {"namespace": tenant, "subresource": subresource, "content_type": STRATEGIC}
        with pytest.raises(Forbidden) as refused:
            cluster.dev.patch(PODS, "theirs", body, **options)
        assert "team-a" in denial(refused.value)
        cluster.member.patch(PODS, "theirs", body, **options)
    cluster.dev.patch(PODS, "theirs", {"metadata": {"labels": {"a": "b"}}}, namespace=tenant)


def test_tenant_cannot_change_the_teams_deployment_into_a_door(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    """A stranger who may edit the namespace updates the template of a workload of the group."""
    cluster = admission_cluster
    cluster.member.create(DEPLOYMENTS, workload(DEPLOYMENTS, "door"), namespace=tenant)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "evil"}]}}}}
    with pytest.raises(Forbidden) as refused:
        cluster.dev.patch(DEPLOYMENTS, "door", image, namespace=tenant)
    assert denial(refused.value)

    cluster.dev.patch(DEPLOYMENTS, "door", {"spec": {"replicas": 2}}, namespace=tenant, subresource="scale")
    cluster.member.patch(DEPLOYMENTS, "door", image, namespace=tenant)


def test_daemon_set_may_tolerate_the_taint_if_its_user_may_bind(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    manifest = workload(DAEMON_SETS, "agent", tolerations=[{"operator": "Exists"}])
    with pytest.raises(Forbidden) as refused:
        cluster.dev.create(DAEMON_SETS, manifest, namespace=tenant)
    assert denial(refused.value)

    cluster.binder.create(DAEMON_SETS, manifest, namespace=tenant)

    def pods() -> list[dict[str, Any]]:
        params = {"labelSelector": "app=agent"}
        return list(cluster.client.request("GET", PODS.path(namespace=tenant), params=params)["items"])

    assert {"operator": "Exists"} in eventually(pods, what="the DaemonSet's pods")[0]["spec"]["tolerations"]
    cluster.client.request("DELETE", DAEMON_SETS.path("agent", namespace=tenant))


@pytest.mark.parametrize("where", ["containers", "initContainers"])
def test_pod_that_requests_the_hardware_gets_its_toleration(
    admission_cluster: AdmissionCluster, tenant: str, where: str
) -> None:
    container = {"name": "gpu", "image": "none", "resources": {"requests": GPU, "limits": GPU}}
    spec = admission_cluster.dev.create(
        PODS,
        pod(**{"containers": [{"name": "main", "image": "none"}], where: [container]}),
        namespace=tenant,
        dry_run=True,
    ).object["spec"]

    [toleration] = own(spec)
    assert (toleration["key"], toleration["effect"]) == ("nvidia.com/gpu", "NoSchedule")
    assert required(spec) == [{"matchExpressions": [{"key": "accelerator", "operator": "In", "values": ["nvidia"]}]}]


def test_pod_with_the_label_gets_the_toleration_without_affinity(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    spec = admission_cluster.dev.create(PODS, pod(labels={"needs": "ssd"}), namespace=tenant, dry_run=True).object[
        "spec"
    ]

    assert own(spec) == [DISK]
    assert "affinity" not in spec


def test_pod_of_the_group_with_hardware_gets_both(admission_cluster: AdmissionCluster, tenant: str) -> None:
    container = {"name": "gpu", "image": "none", "resources": {"requests": GPU, "limits": GPU}}
    spec = admission_cluster.member.create(PODS, pod(containers=[container]), namespace=tenant, dry_run=True).object[
        "spec"
    ]

    assert {each["key"] for each in own(spec)} == {"dedicated", "nvidia.com/gpu"}
    [term] = required(spec)
    assert {each["key"] for each in term["matchExpressions"]} == {"dedicated", "accelerator"}
