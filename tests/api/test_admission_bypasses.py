"""Every known way around placement admission, tried on a real API server by users who may edit a namespace."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests.fixtures.admission import mutating_admission
from tests.fixtures.placement_admission import DEPLOYMENT_CONFIGS, AdmissionCluster, pod, workload
from tests.fixtures.users import APPLY, JSON_PATCH, MERGE, STRATEGIC, User, denial
from tests.fixtures.waiting import eventually, patiently
from trimtab.kube.api import ApiError, Forbidden, NotFound
from trimtab.kube.resources import DAEMON_SETS, DEPLOYMENTS, NAMESPACES, PODS

BY_NAME = "node selection by nodeName is prohibited by policy for your role"
BY_REGION = "node selection by label(s) [region] is prohibited by policy for your role"
BY_TOPOLOGY = "node selection by topology key(s) [region] is prohibited by policy for your role"
CONFLICT = "pod node label selector conflicts with its namespace node label selector"
SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"
REGION = {"nodeSelector": {"region": "us-east"}}
DEDICATED = {"key": "dedicated", "operator": "Exists"}

RULES: dict[str, Any] = {
    "podNodeConstraints": {
        "nodeSelectorLabelBlacklist": ["region"],
        "additionalChecks": [
            "NodeAffinity",
            "Tolerations",
            "GatedPodUpdates",
            "EphemeralContainers",
            "DaemonSets",
            "TopologyKeys",
        ],
        "protectedTaints": [{"key": "protected"}],
    },
    "podNodeSelector": {},
    "dedicatedNodes": {
        "pools": [{"name": "team-a", "groups": ["team-a"], "taint": {"key": "dedicated", "value": "team-a"}}]
    },
}


@pytest.fixture(scope="module")
def tenant(admission_cluster: AdmissionCluster) -> str:
    """A namespace with a node selector, in which the rules apply."""
    admission_cluster.enforce(**RULES)
    return admission_cluster.namespace(annotations={SELECTOR: "env=test"})


def refusal(user: User, manifest: dict[str, Any], namespace: str) -> str:
    """Create a pod that must be refused by a webhook, and return the message of the first rule that refuses it."""
    with pytest.raises(Forbidden) as refused:
        user.create(PODS, manifest, namespace=namespace)
    return denial(refused.value).split("; ")[0]


# Who asks


@pytest.mark.parametrize(
    "account", ["replicaset-controller", "daemon-set-controller", "job-controller", "kube-controller-manager"]
)
def test_service_account_of_the_tenant_that_is_named_like_a_controller_is_not_trusted(
    admission_cluster: AdmissionCluster, tenant: str, account: str
) -> None:
    cluster = admission_cluster
    cluster.bind(tenant, "edit", {"kind": "ServiceAccount", "name": account, "namespace": tenant})
    user = cluster.user(f"system:serviceaccount:{tenant}:{account}")
    eventually(lambda: _permitted(user, tenant), what="the RBAC rules")

    assert refusal(user, pod(**REGION), tenant) == BY_REGION
    assert refusal(user, pod(nodeName="node-1"), tenant) == BY_NAME
    assert refusal(user, pod(tolerations=[DEDICATED]), tenant)


def _permitted(user: User, namespace: str) -> bool:
    try:
        user.create(PODS, pod(), namespace=namespace, dry_run=True)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize("kind", ["ReplicaSet", "DaemonSet", "Job", "Node"])
def test_owner_reference_that_a_tenant_writes_exempts_no_pod(
    admission_cluster: AdmissionCluster, tenant: str, kind: str
) -> None:
    dev = admission_cluster.dev
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": secrets.token_hex(8), "controller": True}
    if kind == "Node":
        owner["apiVersion"] = "v1"
    for spec, message in ((REGION, BY_REGION), ({"nodeName": "node-1"}, BY_NAME)):
        manifest = pod(**spec)
        manifest["metadata"]["ownerReferences"] = [owner]
        assert refusal(dev, manifest, tenant) == message
    manifest = pod(tolerations=[DEDICATED])
    manifest["metadata"]["ownerReferences"] = [owner]
    assert refusal(dev, manifest, tenant)


def test_owner_reference_to_a_workload_of_the_group_exempts_no_pod(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    """The template of a Deployment of team-a tolerates the taint; a stranger's pod does not inherit that."""
    cluster = admission_cluster
    made = cluster.member.create(DEPLOYMENTS, workload(DEPLOYMENTS, "team"), namespace=tenant).object
    manifest = pod(tolerations=[DEDICATED], labels={"app": "team"})
    manifest["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "team",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
    ]

    assert refusal(cluster.dev, manifest, tenant)


def test_tenant_cannot_make_its_namespace_exempt_with_labels(
    admission_cluster: AdmissionCluster,
) -> None:
    """Even an administrator of the namespace object: the API server sets the label that the selector compares."""
    cluster = admission_cluster
    name = cluster.namespace(
        labels={"kubernetes.io/metadata.name": "kube-system", "trimtab.dev/exempt": "true", "control-plane": "true"}
    )
    assert refusal(cluster.dev, pod(nodeName="node-1"), name) == BY_NAME
    for value in ("kube-system", "trimtab-system"):
        body = {"metadata": {"labels": {"kubernetes.io/metadata.name": value}}}
        cluster.client.request("PATCH", NAMESPACES.path(name), body, content_type=MERGE)
        assert refusal(cluster.dev, pod(nodeName="node-1"), name) == BY_NAME


def test_exempt_namespaces_are_those_of_the_policy(admission_cluster: AdmissionCluster) -> None:
    cluster = admission_cluster
    exempt, restricted = cluster.namespace(), cluster.namespace()
    cluster.enforce(**RULES, exemptNamespaces=[exempt])
    try:
        cluster.dev.create(PODS, pod(nodeName="node-1"), namespace=exempt, dry_run=True)
        assert refusal(cluster.dev, pod(nodeName="node-1"), restricted) == BY_NAME
    finally:
        cluster.enforce(**RULES)


# How a pod gets its node


def test_tenant_cannot_bind_a_pod(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    gates = [{"name": "a.b/c"}]
    cluster.dev.create(PODS, pod("unbound", schedulingGates=gates), namespace=tenant)
    binding = {"metadata": {"name": "unbound"}, "target": {"kind": "Node", "name": "node-1"}}
    for path in (
        PODS.path("unbound", namespace=tenant, subresource="binding"),
        f"/api/v1/namespaces/{tenant}/bindings",
    ):
        with pytest.raises(Forbidden) as refused:
            cluster.dev.request("POST", path, {"apiVersion": "v1", "kind": "Binding", **binding})
        assert "cannot create resource" in refused.value.message


def test_generated_name_does_not_hide_the_node(admission_cluster: AdmissionCluster, tenant: str) -> None:
    manifest = pod(nodeName="node-1")
    manifest["metadata"] = {"generateName": "web-"}

    assert refusal(admission_cluster.dev, manifest, tenant) == BY_NAME


def test_node_name_of_an_existing_pod_cannot_be_set(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """The API server itself refuses it, whichever patch asks for it."""
    dev = admission_cluster.dev
    dev.create(PODS, pod("gated", schedulingGates=[{"name": "a.b/c"}]), namespace=tenant)
    body = {"spec": {"nodeName": "node-1"}}
    applied = {**pod("gated", nodeName="node-1", schedulingGates=[{"name": "a.b/c"}])}
    for content, content_type in (
        (body, MERGE),
        (body, STRATEGIC),
        ([{"op": "add", "path": "/spec/nodeName", "value": "node-1"}], JSON_PATCH),
    ):
        with pytest.raises(ApiError):
            dev.patch(PODS, "gated", content, namespace=tenant, content_type=content_type)
    with pytest.raises(ApiError):
        dev.apply(PODS, applied, namespace=tenant)


def test_gates_cannot_be_used_to_create_a_pod_first_and_place_it_later(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    dev = admission_cluster.dev
    gates = [{"name": "a.b/c"}]
    dev.create(PODS, pod("later", schedulingGates=gates), namespace=tenant)
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    for content, content_type in (
        ({"spec": REGION}, MERGE),
        ({"spec": REGION}, STRATEGIC),
        ([{"op": "add", "path": "/spec/nodeSelector/region", "value": "x"}], JSON_PATCH),
        ({"spec": {"affinity": affinity}}, MERGE),
        ({"spec": {"affinity": affinity, "schedulingGates": None}}, MERGE),
        (
            [
                {"op": "remove", "path": "/spec/schedulingGates"},
                {"op": "add", "path": "/spec/affinity", "value": affinity},
            ],
            JSON_PATCH,
        ),
    ):
        with pytest.raises(Forbidden) as refused:
            dev.patch(PODS, "later", content, namespace=tenant, content_type=content_type)
        assert denial(refused.value)
    applied = pod("later", schedulingGates=gates, **REGION)
    with pytest.raises(Forbidden) as refused:
        dev.apply(PODS, applied, namespace=tenant)
    assert denial(refused.value) == BY_REGION


def test_tolerations_cannot_be_added_to_an_existing_pod(admission_cluster: AdmissionCluster, tenant: str) -> None:
    dev = admission_cluster.dev
    made = dev.create(PODS, pod("plain"), namespace=tenant).object
    for toleration in (DEDICATED, {"operator": "Exists"}, {"key": "protected", "operator": "Exists"}):
        value = [*made["spec"]["tolerations"], toleration]
        for content, content_type in (
            ({"spec": {"tolerations": value}}, MERGE),
            ([{"op": "add", "path": "/spec/tolerations/-", "value": toleration}], JSON_PATCH),
            ([{"op": "replace", "path": "/spec/tolerations", "value": value}], JSON_PATCH),
        ):
            with pytest.raises(Forbidden) as refused:
                dev.patch(PODS, "plain", content, namespace=tenant, content_type=content_type)
            assert denial(refused.value)


# Which other pods a pod is near

NEAR: dict[str, Any] = {"topologyKey": "region", "labelSelector": {"matchLabels": {"app": "web"}}}
REQUIRED, PREFERRED = (f"{each}DuringSchedulingIgnoredDuringExecution" for each in ("required", "preferred"))
SPREAD = {"topologyKey": "region", "maxSkew": 1, "labelSelector": {}, "whenUnsatisfiable": "DoNotSchedule"}
TOPOLOGY = [
    pytest.param({"affinity": {"podAffinity": {REQUIRED: [NEAR]}}}, id="near"),
    pytest.param(
        {"affinity": {"podAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": NEAR}]}}}, id="rather near"
    ),
    pytest.param({"affinity": {"podAntiAffinity": {REQUIRED: [NEAR]}}}, id="apart"),
    pytest.param(
        {"affinity": {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": NEAR}]}}}, id="rather apart"
    ),
    pytest.param({"affinity": {"podAffinity": {REQUIRED: [{**NEAR, "topologyKey": "disk"}, NEAR]}}}, id="second term"),
    pytest.param({"affinity": {"podAffinity": {REQUIRED: [{**NEAR, "namespaceSelector": {}}]}}}, id="any namespace"),
    pytest.param({"topologySpreadConstraints": [SPREAD]}, id="spread"),
    pytest.param(
        {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]}, id="rather spread"
    ),
]


@pytest.mark.parametrize("spec", TOPOLOGY)
def test_topology_key_does_not_select_nodes(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any]
) -> None:
    cluster = admission_cluster
    assert refusal(cluster.dev, pod(**spec), tenant) == BY_TOPOLOGY
    assert refusal(cluster.dev, pod(schedulingGates=[{"name": "a.b/c"}], **spec), tenant) == BY_TOPOLOGY
    for resource in (DEPLOYMENTS, DAEMON_SETS):
        with pytest.raises(Forbidden) as refused:
            cluster.dev.create(resource, workload(resource, **spec), namespace=tenant)
        assert denial(refused.value) == BY_TOPOLOGY
    cluster.binder.create(PODS, pod(**spec), namespace=tenant, dry_run=True)


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
def test_topology_key_cannot_be_added_to_a_template(
    admission_cluster: AdmissionCluster, tenant: str, content_type: str
) -> None:
    dev, name = admission_cluster.dev, f"near-{secrets.token_hex(4)}"
    manifest = workload(DEPLOYMENTS, name)
    manifest["spec"]["replicas"] = 0
    dev.create(DEPLOYMENTS, manifest, namespace=tenant)
    for spec in ({"affinity": {"podAffinity": {REQUIRED: [NEAR]}}}, {"topologySpreadConstraints": [SPREAD]}):
        body = {"spec": {"template": {"spec": spec}}}
        with pytest.raises(Forbidden) as refused:
            dev.patch(DEPLOYMENTS, name, body, namespace=tenant, content_type=content_type)
        assert denial(refused.value) == BY_TOPOLOGY


def test_debugger_of_a_tenant_cannot_enter_a_pod_that_an_administrator_placed_by_topology(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster, gates = admission_cluster, [{"name": "a.b/c"}]
    placed = pod("near", schedulingGates=gates, affinity={"podAffinity": {REQUIRED: [NEAR]}})
    cluster.binder.create(PODS, placed, namespace=tenant)
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}}
    with pytest.raises(Forbidden) as refused:
        cluster.dev.patch(
            PODS, "near", body, namespace=tenant, subresource="ephemeralcontainers", content_type=STRATEGIC
        )
    assert denial(refused.value).endswith(BY_TOPOLOGY)


# What a second mutating webhook does afterwards


@pytest.mark.parametrize("name", ["aaa-first", "zzz-last"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param([{"op": "add", "path": "/spec/tolerations/-", "value": DEDICATED}], "", id="toleration"),
        pytest.param(
            [{"op": "replace", "path": "/spec/nodeSelector", "value": {"env": "production"}}], CONFLICT, id="conflict"
        ),
        pytest.param([{"op": "add", "path": "/spec/nodeSelector", "value": {"region": "x"}}], BY_REGION, id="label"),
        pytest.param([{"op": "add", "path": "/spec/nodeName", "value": "node-1"}], BY_NAME, id="nodeName"),
        pytest.param(
            [{"op": "add", "path": "/spec/topologySpreadConstraints", "value": [SPREAD]}], BY_TOPOLOGY, id="topology"
        ),
    ],
)
def test_change_of_another_mutating_webhook_is_refused(
    admission_cluster: AdmissionCluster, tenant: str, name: str, change: list[dict[str, Any]], expected: str
) -> None:
    cluster = admission_cluster
    manifest = pod(labels={"mutate": "yes"}, nodeSelector={"env": "test"})
    with mutating_admission(cluster.client, ca=cluster.cluster.ca, name=name, patch=change, namespace=tenant):
        eventually(lambda: _refused(cluster.dev, manifest, tenant), what="the other webhook to act", seconds=10)
        message = refusal(cluster.dev, manifest, tenant)
    assert message == expected or not expected


def _refused(user: User, manifest: dict[str, Any], namespace: str) -> bool:
    try:
        user.create(PODS, manifest, namespace=namespace, dry_run=True)
    except Forbidden:
        return True
    return False


@pytest.mark.parametrize("name", ["aaa-first", "zzz-last"])
def test_selector_that_another_webhook_removes_is_added_again(
    admission_cluster: AdmissionCluster, tenant: str, name: str
) -> None:
    """Re-invocation restores it; where it does not, the validating webhook refuses the pod."""
    cluster = admission_cluster
    change = [
        {"op": "add", "path": "/metadata/annotations", "value": {"seen": "yes"}},
        {"op": "add", "path": "/spec/nodeSelector", "value": {}},
    ]
    with mutating_admission(cluster.client, ca=cluster.cluster.ca, name=name, patch=change, namespace=tenant):

        def created() -> dict[str, Any]:
            made = cluster.dev.create(PODS, pod(), namespace=tenant, dry_run=True).object
            return made if "seen" in made["metadata"].get("annotations", {}) else {}

        made = eventually(created, what="the other webhook to act", seconds=10)
    assert made["spec"]["nodeSelector"] == {"env": "test"}


# What the JSON looks like


def test_null_lists_and_maps_are_empty_ones(admission_cluster: AdmissionCluster, tenant: str) -> None:
    dev = admission_cluster.dev
    nothing = dict.fromkeys(("nodeSelector", "affinity", "tolerations", "schedulingGates", "initContainers"))
    spec = dev.create(PODS, pod(**nothing), namespace=tenant, dry_run=True).object["spec"]
    assert spec["nodeSelector"] == {"env": "test"}
    empty = {"nodeAffinity": None, "podAffinity": None}
    dev.create(PODS, pod(affinity=empty, nodeSelector={}, tolerations=[]), namespace=tenant, dry_run=True)

    config = workload(DEPLOYMENT_CONFIGS, **nothing)
    dev.create(DEPLOYMENT_CONFIGS, config, namespace=tenant, dry_run=True)
    config["spec"]["template"]["spec"]["affinity"] = empty
    dev.create(DEPLOYMENT_CONFIGS, config, namespace=tenant, dry_run=True)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"nodeName": 5}, id="number for a name"),
        pytest.param({"nodeName": ["node-1"]}, id="list for a name"),
        pytest.param({"nodeSelector": [{"region": "x"}]}, id="list for a map"),
        pytest.param({"nodeSelector": "region=x"}, id="text for a map"),
        pytest.param({"nodeSelector": {"region": None}}, id="null value"),
        pytest.param({"nodeSelector": {"region": {"deep": 1}}}, id="map for a value"),
        pytest.param({"tolerations": {"key": "dedicated"}}, id="map for a list"),
        pytest.param({"tolerations": ["dedicated"]}, id="text for a toleration"),
        pytest.param({"tolerations": [{"key": "protected", "tolerationSeconds": "5"}]}, id="text for seconds"),
        pytest.param({"tolerations": [{"key": "protected", "tolerationSeconds": 1e300}]}, id="huge seconds"),
        pytest.param({"affinity": "none"}, id="text for an affinity"),
        pytest.param({"affinity": {"nodeAffinity": []}}, id="list for an affinity"),
    ],
)
def test_object_of_a_custom_resource_with_wrong_types_is_refused(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any]
) -> None:
    """The API server checks the types of its own kinds; a DeploymentConfig may arrive with any."""
    with pytest.raises(Forbidden) as refused:
        admission_cluster.dev.create(DEPLOYMENT_CONFIGS, workload(DEPLOYMENT_CONFIGS, **spec), namespace=tenant)

    assert denial(refused.value)


@pytest.mark.parametrize(
    "template", ["text", 5, ["list"], {"spec": "text"}, {"spec": []}, {"metadata": 5, "spec": REGION}]
)
def test_template_of_a_custom_resource_with_a_wrong_type_is_refused(
    admission_cluster: AdmissionCluster, tenant: str, template: Any
) -> None:
    config = workload(DEPLOYMENT_CONFIGS)
    config["spec"]["template"] = template
    with pytest.raises(Forbidden) as refused:
        admission_cluster.dev.create(DEPLOYMENT_CONFIGS, config, namespace=tenant)

    assert denial(refused.value)


@pytest.mark.parametrize("template", [None, {}, {"spec": None}])
def test_custom_resource_without_a_template_is_admitted(
    admission_cluster: AdmissionCluster, tenant: str, template: Any
) -> None:
    config = workload(DEPLOYMENT_CONFIGS)
    config["spec"]["template"] = template

    admission_cluster.dev.create(DEPLOYMENT_CONFIGS, config, namespace=tenant, dry_run=True)


@pytest.mark.parametrize("depth", [500, 5000])
def test_deeply_nested_object_is_refused(admission_cluster: AdmissionCluster, tenant: str, depth: int) -> None:
    """If the webhook cannot decode the object, it fails, and the API server applies the failure policy Fail."""
    config = workload(DEPLOYMENT_CONFIGS, nodeName="node-1")
    config["spec"]["unknown"] = "DEEP"
    body = msgspec.json.encode(config).replace(b'"DEEP"', b"[" * depth + b"]" * depth)
    with pytest.raises(ApiError) as refused:
        admission_cluster.dev.request("POST", DEPLOYMENT_CONFIGS.path(namespace=tenant), body)
    assert BY_NAME in refused.value.message or "-fail.placement.trimtab.dev" in refused.value.message


def test_large_objects_are_decided_like_small_ones(admission_cluster: AdmissionCluster, tenant: str) -> None:
    dev = admission_cluster.dev
    filler = "x" * 250_000
    large = pod("large", containers=[{"name": "main", "image": "none", "args": [filler] * 4}])
    large["metadata"]["annotations"] = {"filler": "x" * 200_000}
    spec = dev.create(PODS, large, namespace=tenant).object["spec"]
    assert spec["nodeSelector"] == {"env": "test"}
    dev.patch(PODS, "large", {"metadata": {"labels": {"a": "b"}}}, namespace=tenant)
    dev.patch(
        PODS,
        "large",
        {"spec": {"containers": [{"name": "main", "image": "other"}]}},
        namespace=tenant,
        content_type=STRATEGIC,
    )

    large["spec"]["nodeName"] = "node-1"
    large["metadata"]["name"] = "large-2"
    assert refusal(dev, large, tenant) == BY_NAME
    many = workload(
        DEPLOYMENTS,
        "many",
        containers=[{"name": "main", "image": "none", "env": [{"name": f"e{i}", "value": "v"} for i in range(4_000)]}],
    )
    dev.create(DEPLOYMENTS, {**many, "spec": {**many["spec"], "replicas": 0}}, namespace=tenant)
    dev.patch(DEPLOYMENTS, "many", {"spec": {"minReadySeconds": 1}}, namespace=tenant)
    with pytest.raises(Forbidden) as refused:
        dev.patch(DEPLOYMENTS, "many", {"spec": {"template": {"spec": REGION}}}, namespace=tenant)
    assert denial(refused.value) == BY_REGION


@pytest.mark.parametrize("position", ["first", "last"])
def test_one_of_many_tolerations_is_found(admission_cluster: AdmissionCluster, tenant: str, position: str) -> None:
    dev = admission_cluster.dev
    harmless = [{"key": f"harmless/{index}", "operator": "Exists"} for index in range(250)]
    dev.create(PODS, pod(tolerations=harmless), namespace=tenant, dry_run=True)
    order = [DEDICATED, *harmless] if position == "first" else [*harmless, DEDICATED]

    assert "dedicated" in refusal(dev, pod(tolerations=order), tenant)


def test_pod_with_thousands_of_tolerations_is_refused_at_once(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """Comparing them with each other would occupy the webhook for minutes."""
    many = [{"key": f"harmless/{index}", "operator": "Exists"} for index in range(10_000)]
    began = time.monotonic()
    message = refusal(admission_cluster.dev, pod(tolerations=many), tenant)

    assert message == "pods must not have more than 256 tolerations"
    assert time.monotonic() - began < patiently(15)


def test_one_of_a_thousand_affinity_terms_is_found(admission_cluster: AdmissionCluster, tenant: str) -> None:
    dev = admission_cluster.dev
    terms: list[dict[str, Any]] = [
        {"matchExpressions": [{"key": "disk", "operator": "In", "values": [f"d{index}"]}]} for index in range(1000)
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    dev.create(PODS, pod(affinity=affinity), namespace=tenant, dry_run=True)
    terms.append({"matchExpressions": [{"key": "region", "operator": "In", "values": ["x"]}]})

    assert refusal(dev, pod(affinity=affinity), tenant).endswith("is prohibited by policy for your role")


# Other ways to write an object


def test_every_patch_type_of_a_template_is_checked(admission_cluster: AdmissionCluster, tenant: str) -> None:
    dev = admission_cluster.dev
    made = dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, "patched"), namespace=tenant).object
    whole = {**made["spec"]["template"], "spec": {**made["spec"]["template"]["spec"], **REGION}}
    patch = {"spec": {"template": {"spec": REGION}}}
    for content, content_type in (
        (patch, MERGE),
        (patch, STRATEGIC),
        ([{"op": "add", "path": "/spec/template/spec/nodeSelector", "value": {"region": "x"}}], JSON_PATCH),
        ([{"op": "replace", "path": "/spec/template", "value": whole}], JSON_PATCH),
        ([{"op": "replace", "path": "/spec", "value": {**made["spec"], "template": whole}}], JSON_PATCH),
    ):
        with pytest.raises(Forbidden) as refused:
            dev.patch(DEPLOYMENTS, "patched", content, namespace=tenant, content_type=content_type)
        assert denial(refused.value) == BY_REGION
    with pytest.raises(Forbidden):
        dev.request(
            "PATCH",
            DEPLOYMENTS.path("patched", namespace=tenant),
            workload(DEPLOYMENTS, "patched", **REGION),
            params={"fieldManager": "x", "force": "true"},
            content_type=APPLY,
        )


def test_template_is_checked_when_a_paused_or_empty_workload_is_created(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    manifest = workload(DEPLOYMENTS, **REGION)
    manifest["spec"] |= {"replicas": 0, "paused": True}
    with pytest.raises(Forbidden) as refused:
        admission_cluster.dev.create(DEPLOYMENTS, manifest, namespace=tenant)

    assert denial(refused.value) == BY_REGION


def test_older_api_versions_are_checked_too(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """The API server converts them for the webhook (matchPolicy Equivalent)."""
    config = workload(DEPLOYMENT_CONFIGS, **REGION) | {"apiVersion": "apps.openshift.io/v1beta1"}
    path = f"/apis/apps.openshift.io/v1beta1/namespaces/{tenant}/deploymentconfigs"
    with pytest.raises(Forbidden) as refused:
        admission_cluster.dev.request("POST", path, config)

    assert denial(refused.value) == BY_REGION


@pytest.fixture
def agent(admission_cluster: AdmissionCluster, tenant: str) -> Iterator[dict[str, Any]]:
    """A DaemonSet that an administrator wrote and whose pods tolerate everything."""
    made = admission_cluster.binder.create(
        DAEMON_SETS, workload(DAEMON_SETS, "agent", tolerations=[{"operator": "Exists"}]), namespace=tenant
    ).object
    yield made
    with suppress(NotFound):
        admission_cluster.client.request("DELETE", DAEMON_SETS.path("agent", namespace=tenant))


def test_tenant_cannot_run_its_image_through_a_daemon_set_of_an_administrator(
    admission_cluster: AdmissionCluster, tenant: str, agent: dict[str, Any]
) -> None:
    dev = admission_cluster.dev
    body = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "evil"}]}}}}
    with pytest.raises(Forbidden) as refused:
        dev.patch(DAEMON_SETS, "agent", body, namespace=tenant, content_type=STRATEGIC)
    assert denial(refused.value)
    dev.patch(DAEMON_SETS, "agent", {"metadata": {"annotations": {"a": "b"}}}, namespace=tenant)
    del agent
