"""PodNodeConstraints on a real API server: which users may select the node of a pod, and by which means."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.placement_admission import (
    CRON_JOBS,
    DEPLOYMENT_CONFIGS,
    JOBS,
    POD_SECURITY_REVIEWS,
    POD_TEMPLATES,
    AdmissionCluster,
    pod,
    template_spec,
    workload,
)
from tests.fixtures.users import JSON_PATCH, STRATEGIC, User, denial
from tests.fixtures.waiting import eventually
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)

BY_NAME = "node selection by nodeName is prohibited by policy for your role"
BY_REGION = "node selection by label(s) [region] is prohibited by policy for your role"
BY_BOTH_LABELS = "node selection by label(s) [kubernetes.io/hostname region] is prohibited by policy for your role"
BY_NAME_AND_REGION = "node selection by nodeName and label(s) [region] is prohibited by policy for your role"

REGION = {"nodeSelector": {"region": "us-east"}}
RULE = {
    "nodeSelectorLabelBlacklist": ["kubernetes.io/hostname", "region"],
    "additionalChecks": ["NodeAffinity", "Tolerations", "GatedPodUpdates", "EphemeralContainers", "DaemonSets"],
    "protectedTaints": [
        {"key": "dedicated"},
        {"key": "gpu", "value": "a100", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unreachable"},
    ],
}
TEMPLATES = (
    POD_TEMPLATES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    JOBS,
    CRON_JOBS,
    DEPLOYMENT_CONFIGS,
    *POD_SECURITY_REVIEWS,
)
STAND_INS = (DEPLOYMENT_CONFIGS, *POD_SECURITY_REVIEWS)
"""Kinds of OpenShift. A custom resource has no strategic merge patch."""
by_kind = pytest.mark.parametrize("resource", TEMPLATES, ids=lambda each: each.kind)


@pytest.fixture(scope="module")
def tenant(admission_cluster: AdmissionCluster) -> str:
    """A namespace in which the rule applies."""
    admission_cluster.enforce(podNodeConstraints=RULE)
    return admission_cluster.namespace()


def node_affinity(*terms: dict[str, Any], preferred: bool = False) -> dict[str, Any]:
    """Return an affinity with these node selector terms."""
    if preferred:
        weighted = [{"weight": 1, "preference": term} for term in terms]
        return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


REGION_TERM = {"matchExpressions": [{"key": "region", "operator": "In", "values": ["us-east"]}]}
NAME_TERM = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
DISK_TERM = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}

PRINTED = [
    pytest.param({"nodeName": "node-1"}, BY_NAME, id="nodeName"),
    pytest.param({"nodeSelector": {"region": "us-east"}}, BY_REGION, id="label"),
    pytest.param({"nodeSelector": {"region": "us-east", "disk": "ssd"}}, BY_REGION, id="label and a permitted one"),
    pytest.param({"nodeSelector": {"region": "x", "kubernetes.io/hostname": "y"}}, BY_BOTH_LABELS, id="two labels"),
    pytest.param({"nodeName": "node-1", "nodeSelector": {"region": "x"}}, BY_NAME_AND_REGION, id="nodeName and label"),
]
ADDITIONAL = [
    pytest.param({"affinity": node_affinity(REGION_TERM)}, "region", id="required affinity"),
    pytest.param({"affinity": node_affinity(DISK_TERM, REGION_TERM)}, "region", id="required affinity, second term"),
    pytest.param({"affinity": node_affinity(REGION_TERM, preferred=True)}, "region", id="preferred affinity"),
    pytest.param({"affinity": node_affinity(NAME_TERM)}, "metadata.name", id="required field"),
    pytest.param({"affinity": node_affinity(NAME_TERM, preferred=True)}, "metadata.name", id="preferred field"),
    pytest.param(
        {"affinity": node_affinity({"matchExpressions": [{"key": "region", "operator": "Exists"}]})},
        "region",
        id="affinity without values",
    ),
    pytest.param(
        {
            "affinity": node_affinity(
                {"matchExpressions": [{"key": "region", "operator": "NotIn", "values": ["us-west"]}]}
            )
        },
        "region",
        id="affinity that excludes",
    ),
    pytest.param({"tolerations": [{"key": "dedicated", "value": "a"}]}, "dedicated", id="toleration"),
    pytest.param({"tolerations": [{"key": "dedicated", "operator": "Exists"}]}, "dedicated", id="toleration, Exists"),
    pytest.param(
        {"tolerations": [{"key": "dedicated", "value": "a", "effect": "NoSchedule"}]},
        "dedicated",
        id="toleration of one effect",
    ),
    pytest.param({"tolerations": [{"operator": "Exists"}]}, "dedicated", id="toleration of every taint"),
    pytest.param(
        {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, "dedicated", id="toleration of every key"
    ),
    pytest.param(
        {"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]},
        "gpu",
        id="toleration for seconds",
    ),
]
PERMITTED = [
    pytest.param({}, id="plain"),
    pytest.param({"nodeSelector": {"disk": "ssd"}}, id="another label"),
    pytest.param({"affinity": node_affinity(DISK_TERM)}, id="affinity for another label"),
    pytest.param({"tolerations": [{"key": "other", "operator": "Exists"}]}, id="toleration of another taint"),
    pytest.param({"tolerations": [{"key": "gpu", "value": "t4"}]}, id="toleration of another value"),
    pytest.param(
        {"tolerations": [{"key": "gpu", "value": "a100", "effect": "NoSchedule"}]}, id="toleration of another effect"
    ),
]


@pytest.mark.parametrize(("spec", "message"), PRINTED)
def test_pod_of_an_unprivileged_user_is_refused_with_the_message_of_the_plugin(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any], message: str
) -> None:
    with pytest.raises(Forbidden) as refused:
        admission_cluster.dev.create(PODS, pod(**spec), namespace=tenant)

    assert denial(refused.value) == message


@pytest.mark.parametrize(("spec", "names"), ADDITIONAL)
def test_further_ways_to_select_a_node_are_refused(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any], names: str
) -> None:
    with pytest.raises(Forbidden) as refused:
        admission_cluster.dev.create(PODS, pod(**spec), namespace=tenant)

    message = denial(refused.value)
    assert message.endswith("is prohibited by policy for your role")
    assert names in message


@pytest.mark.parametrize("spec", PERMITTED)
def test_pod_that_selects_no_restricted_node_is_unchanged(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any]
) -> None:
    made = admission_cluster.dev.create(PODS, pod(**spec), namespace=tenant, dry_run=True)

    assert {key: made.object["spec"].get(key) for key in ("nodeSelector", "affinity")} == {
        "nodeSelector": spec.get("nodeSelector"),
        "affinity": spec.get("affinity"),
    }
    assert made.warnings == ()


@pytest.mark.parametrize(("spec", "message"), [*PRINTED, *ADDITIONAL])
def test_users_who_may_bind_pods_are_not_restricted(
    admission_cluster: AdmissionCluster, tenant: str, spec: dict[str, Any], message: str
) -> None:
    del message
    for user in (admission_cluster.binder, admission_cluster.ops):
        made = user.create(PODS, pod(**spec), namespace=tenant, dry_run=True).object["spec"]
        assert {key: made.get(key) for key in spec if key != "tolerations"} == {
            key: value for key, value in spec.items() if key != "tolerations"
        }


@by_kind
def test_pod_templates_are_checked_when_they_are_created(
    admission_cluster: AdmissionCluster, tenant: str, resource: Resource
) -> None:
    cluster = admission_cluster
    for spec, message in (
        ({"nodeName": "node-1"}, BY_NAME),
        ({"nodeSelector": {"region": "us-east"}}, BY_REGION),
    ):
        with pytest.raises(Forbidden) as refused:
            cluster.dev.create(resource, workload(resource, **spec), namespace=tenant)
        assert denial(refused.value) == message
        cluster.binder.create(resource, workload(resource, **spec), namespace=tenant, dry_run=True)
    for spec in ({"affinity": node_affinity(NAME_TERM)}, {"tolerations": [{"operator": "Exists"}]}):
        with pytest.raises(Forbidden) as refused:
            cluster.dev.create(resource, workload(resource, **spec), namespace=tenant)
        assert denial(refused.value)
    cluster.dev.create(resource, workload(resource, nodeSelector={"disk": "ssd"}), namespace=tenant, dry_run=True)


@by_kind
def test_pod_templates_are_checked_when_they_are_updated(
    admission_cluster: AdmissionCluster, tenant: str, resource: Resource
) -> None:
    dev, name = admission_cluster.dev, f"up-{resource.plural}"
    # Templates of Jobs are immutable; they can only change while the Job is suspended.
    made = workload(resource, name)
    if resource == JOBS:
        made["spec"]["suspend"] = True
    else:
        template_spec(resource, made)["nodeSelector"] = {"disk": "none"}
    dev.create(resource, made, namespace=tenant)

    changed = admission_cluster.client.request("GET", resource.path(name, namespace=tenant))
    template_spec(resource, changed)["nodeSelector"] = {"region": "us-east"}
    with pytest.raises(Forbidden) as refused:
        dev.replace(resource, changed, namespace=tenant)
    assert denial(refused.value) == BY_REGION

    body = workload(resource, name, nodeSelector={"region": "us-east"})
    if resource == JOBS:
        body["spec"]["suspend"] = True
    with pytest.raises(Forbidden) as refused:
        dev.apply(resource, body, namespace=tenant)
    assert denial(refused.value) == BY_REGION

    with pytest.raises(Forbidden) as refused:
        dev.patch(resource, name, _only_the_template(body), namespace=tenant)
    assert denial(refused.value) == BY_REGION

    if resource not in STAND_INS:
        with pytest.raises(Forbidden) as refused:
            dev.patch(resource, name, _only_the_template(body), namespace=tenant, content_type=STRATEGIC)
        assert denial(refused.value) == BY_REGION

    where = "/template" if resource == POD_TEMPLATES else "/spec/template"
    where = "/spec/jobTemplate/spec/template" if resource == CRON_JOBS else where
    whole: Any = changed if resource == POD_TEMPLATES else changed["spec"]
    whole = whole["jobTemplate"]["spec"]["template"] if resource == CRON_JOBS else whole["template"]
    replace_all = [{"op": "replace", "path": where, "value": whole}]
    with pytest.raises(Forbidden) as refused:
        dev.patch(resource, name, replace_all, namespace=tenant, content_type=JSON_PATCH)
    assert denial(refused.value) == BY_REGION
    admission_cluster.binder.replace(resource, changed, namespace=tenant, dry_run=True)


def _only_the_template(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a patch that changes the node selector of a template, made from a whole manifest."""
    return {key: value for key, value in manifest.items() if key in ("spec", "template")}


def test_update_of_a_workload_that_an_administrator_placed_is_not_refused_for_other_changes(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    """A tenant can scale and annotate a Deployment whose template only its administrator may write."""
    cluster = admission_cluster
    cluster.binder.create(
        DEPLOYMENTS, workload(DEPLOYMENTS, "placed", nodeSelector={"region": "us-east"}), namespace=tenant
    )

    cluster.dev.patch(DEPLOYMENTS, "placed", {"spec": {"replicas": 0}}, namespace=tenant, subresource="scale")
    cluster.dev.patch(DEPLOYMENTS, "placed", {"metadata": {"annotations": {"a": "b"}}}, namespace=tenant)


@by_kind
def test_update_that_keeps_the_template_is_admitted_without_warnings(
    admission_cluster: AdmissionCluster, tenant: str, resource: Resource
) -> None:
    cluster, name = admission_cluster, f"same-{resource.plural}"
    cluster.binder.create(resource, workload(resource, name, **REGION), namespace=tenant)
    change = {"spec": {"minReadySeconds": 1}}
    if resource == POD_TEMPLATES:
        change = {"metadata": {"labels": {"a": "b"}}}
    elif resource in (JOBS, CRON_JOBS):
        change = {"spec": {"suspend": True}}

    made = cluster.dev.patch(resource, name, change, namespace=tenant)
    assert template_spec(resource, made.object)["nodeSelector"] == {"region": "us-east"}
    assert made.warnings == ()


def test_node_selector_and_tolerations_of_a_runtime_class_count_as_the_users(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    """The API server's plugin RuntimeClass merges them into the pod before it calls webhooks."""
    cluster, path = admission_cluster, "/apis/node.k8s.io/v1/runtimeclasses"
    restricted = {"nodeSelector": {"region": "us-east"}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}
    for name, scheduling in (("regional", restricted), ("fast", {"nodeSelector": {"disk": "ssd"}})):
        runtime_class = {"metadata": {"name": name}, "handler": "runc", "scheduling": scheduling}
        cluster.client.request("POST", path, runtime_class)

    def merged(user: User, name: str) -> dict[str, Any]:
        made = user.create(PODS, pod(runtimeClassName=name), namespace=tenant, dry_run=True).object["spec"]
        found: dict[str, Any] = made["nodeSelector"]
        return found

    try:
        with pytest.raises(Forbidden) as refused:
            merged(cluster.dev, "regional")
        by_label, by_toleration = denial(refused.value).split("; ")
        assert by_label == BY_REGION
        assert "dedicated" in by_toleration
        assert merged(cluster.binder, "regional") == {"region": "us-east"}
        assert merged(cluster.dev, "fast") == {"disk": "ssd"}
    finally:
        for name in ("regional", "fast"):
            cluster.client.request("DELETE", f"{path}/{name}")


def test_controller_needs_the_permission_as_well(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """As in OpenShift, the user who creates the pods is asked, too. The author of the template gets a warning."""
    cluster = admission_cluster
    made = cluster.binder.create(REPLICA_SETS, workload(REPLICA_SETS, "alone", **REGION), namespace=tenant)
    assert any("controllers" in warning and "pods/binding" in warning for warning in made.warnings)

    def failure() -> str:
        found = cluster.client.request("GET", REPLICA_SETS.path("alone", namespace=tenant))
        conditions = found["status"].get("conditions", ())
        return next((each["message"] for each in conditions if each["type"] == "ReplicaFailure"), "")

    assert eventually(failure, what="the refusal of the pod", seconds=20).endswith(BY_REGION)


def test_controllers_with_the_permission_create_pods_from_templates(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    name = cluster.namespace()
    for controller in ("deployment", "replicaset", "replication", "statefulset", "job"):
        account = {"kind": "ServiceAccount", "name": f"{controller}-controller", "namespace": "kube-system"}
        cluster.bind(name, "pods-binding", account)
    names = {}
    for resource in (REPLICATION_CONTROLLERS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, JOBS):
        names[resource.kind] = f"by-{resource.plural}"
        cluster.binder.create(resource, workload(resource, names[resource.kind], **REGION), namespace=name)

    def created() -> dict[str, str]:
        pods = cluster.client.request("GET", PODS.path(namespace=name))["items"]
        return {
            kind: each["spec"]["nodeSelector"]["region"]
            for kind, prefix in names.items()
            for each in pods
            if each["metadata"]["name"].startswith(prefix)
        }

    eventually(lambda: set(created()) == set(names), what="the pods of every controller", seconds=30)
    assert set(created().values()) == {"us-east"}


def test_daemon_set_controller_creates_a_pod_for_each_node(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    cluster.dev.create(DAEMON_SETS, workload(DAEMON_SETS, "agent"), namespace=tenant)

    def pods() -> list[dict[str, Any]]:
        found = cluster.client.request("GET", PODS.path(namespace=tenant), params={"labelSelector": "app=agent"})
        return list(found["items"])

    nodes = {each["metadata"]["name"] for each in cluster.client.request("GET", NODES.path())["items"]}
    assert nodes
    eventually(lambda: {each["spec"].get("nodeName") for each in pods()} == nodes, what="a pod on each node")
    terms = pods()[0]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["key"] == "metadata.name"
    cluster.client.request("DELETE", DAEMON_SETS.path("agent", namespace=tenant))


def test_group_and_service_account_with_the_permission_are_not_restricted(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    account = f"system:serviceaccount:{tenant}:deployer"
    robot, clerk = cluster.user(account), cluster.user("clerk", groups=["placers"])
    for role in ("edit", "pods-binding"):
        cluster.bind(tenant, role, {"kind": "ServiceAccount", "name": "deployer", "namespace": tenant})
        cluster.bind(tenant, role, {"kind": "Group", "name": "placers"})

    def admitted(user: User) -> bool:
        try:
            user.create(PODS, pod(nodeSelector={"region": "us-east"}), namespace=tenant, dry_run=True)
        except Forbidden:
            return False
        return True

    eventually(lambda: admitted(robot) and admitted(clerk), what="the permission to apply", seconds=20)
    stranger = cluster.user("clerk", groups=[])
    cluster.bind(tenant, "edit", {"kind": "User", "name": "clerk"})
    assert not admitted(stranger)


def test_permission_to_bind_one_pod_by_name_is_enough_for_that_pod(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    """OpenShift's plugin asks for pods/binding of the pod's name, so a Role can list resourceNames."""
    cluster = admission_cluster
    role = {
        "metadata": {"name": "bind-one"},
        "rules": [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"], "resourceNames": ["one"]}],
    }
    cluster.client.request("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant}/roles", role)
    binding = {
        "metadata": {"name": "bind-one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bind-one"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "solo"}],
    }
    cluster.client.request("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{tenant}/rolebindings", binding)
    cluster.bind(tenant, "edit", {"kind": "User", "name": "solo"})
    solo = cluster.user("solo")

    def admitted(name: str) -> bool:
        try:
            solo.create(PODS, pod(name, nodeName="node-1"), namespace=tenant, dry_run=True)
        except Forbidden:
            return False
        return True

    eventually(lambda: admitted("one"), what="the permission to apply", seconds=20)
    assert not admitted("two")


def test_gated_pod_cannot_be_moved_to_restricted_nodes_later(admission_cluster: AdmissionCluster, tenant: str) -> None:
    cluster = admission_cluster
    gates = [{"name": "example.com/wait"}]
    cluster.dev.create(PODS, pod("gated", schedulingGates=gates), namespace=tenant)
    region = {"spec": {"nodeSelector": {"region": "us-east"}}}
    named = {"spec": {"affinity": node_affinity(NAME_TERM)}}
    for body in (region, named, {"spec": {"affinity": node_affinity(REGION_TERM)}}):
        with pytest.raises(Forbidden) as refused:
            cluster.dev.patch(PODS, "gated", body, namespace=tenant)
        assert denial(refused.value).endswith("is prohibited by policy for your role")
        cluster.binder.patch(PODS, "gated", body, namespace=tenant, dry_run=True)
    with pytest.raises(Forbidden):  # the gate is removed in the same update
        cluster.dev.patch(PODS, "gated", {"spec": {"schedulingGates": [], **region["spec"]}}, namespace=tenant)

    cluster.dev.patch(PODS, "gated", {"spec": {"nodeSelector": {"disk": "ssd"}}}, namespace=tenant)
    cluster.dev.patch(PODS, "gated", {"metadata": {"labels": {"a": "b"}}}, namespace=tenant)
    cluster.dev.patch(PODS, "gated", {"spec": {"schedulingGates": []}}, namespace=tenant)


def test_toleration_cannot_be_added_to_an_existing_pod(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """The API server permits further tolerations in an update of a pod, so the check Tolerations concerns them."""
    cluster = admission_cluster
    made = cluster.dev.create(PODS, pod("tolerant", schedulingGates=[{"name": "a.b/c"}]), namespace=tenant).object
    made["spec"]["tolerations"].append({"key": "dedicated", "operator": "Exists"})
    with pytest.raises(Forbidden) as refused:
        cluster.dev.replace(PODS, made, namespace=tenant)
    assert "dedicated" in denial(refused.value)
    cluster.binder.replace(PODS, made, namespace=tenant)

    # The pod of the administrator remains usable for the tenant.
    cluster.dev.patch(PODS, "tolerant", {"metadata": {"labels": {"a": "b"}}}, namespace=tenant)


def test_ephemeral_containers_are_refused_in_pods_that_the_user_could_not_create(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    debugger = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}}
    gates = [{"name": "example.com/wait"}]
    cluster.binder.create(
        PODS, pod("theirs", nodeSelector={"region": "us-east"}, schedulingGates=gates), namespace=tenant
    )
    cluster.dev.create(PODS, pod("mine", schedulingGates=gates), namespace=tenant)

    with pytest.raises(Forbidden) as refused:
        cluster.dev.patch(
            PODS, "theirs", debugger, namespace=tenant, subresource="ephemeralcontainers", content_type=STRATEGIC
        )
    assert denial(refused.value).endswith("is prohibited by policy for your role")
    for user, name in ((cluster.dev, "mine"), (cluster.binder, "theirs")):
        made = user.patch(
            PODS, name, debugger, namespace=tenant, subresource="ephemeralcontainers", content_type=STRATEGIC
        ).object
        assert [each["name"] for each in made["spec"]["ephemeralContainers"]] == ["debug"]


def test_ephemeral_container_is_permitted_in_a_pod_that_the_scheduler_bound(
    admission_cluster: AdmissionCluster, tenant: str
) -> None:
    cluster = admission_cluster
    cluster.dev.create(PODS, pod("bound"), namespace=tenant)
    path = PODS.path("bound", namespace=tenant)
    eventually(lambda: cluster.client.request("GET", path)["spec"].get("nodeName"), what="the binding")

    cluster.dev.patch(
        PODS,
        "bound",
        {"spec": {"ephemeralContainers": [{"name": "debug", "image": "none"}]}},
        namespace=tenant,
        subresource="ephemeralcontainers",
        content_type=STRATEGIC,
    )
    cluster.dev.patch(PODS, "bound", {"metadata": {"labels": {"a": "b"}}}, namespace=tenant)


def test_empty_blacklist_restricts_the_node_name_only(admission_cluster: AdmissionCluster, tenant: str) -> None:
    admission_cluster.enforce(podNodeConstraints={})
    try:
        dev = admission_cluster.dev
        with pytest.raises(Forbidden) as refused:
            dev.create(PODS, pod(nodeName="node-1"), namespace=tenant)
        assert denial(refused.value) == BY_NAME
        for spec in ({"nodeSelector": {"region": "x"}}, {"affinity": node_affinity(NAME_TERM)}):
            dev.create(PODS, pod(**spec), namespace=tenant, dry_run=True)
        for spec in ({"tolerations": [{"operator": "Exists"}]}, {"nodeSelector": {"region": "x"}}):
            dev.create(DEPLOYMENTS, workload(DEPLOYMENTS, **spec), namespace=tenant, dry_run=True)
        # Without the check DaemonSets, the kind is ignored, as by OpenShift's plugin.
        dev.create(DAEMON_SETS, workload(DAEMON_SETS, nodeName="node-1"), namespace=tenant, dry_run=True)
    finally:
        admission_cluster.enforce(podNodeConstraints=RULE)


def test_nodes_and_their_mirror_pods_are_not_restricted(admission_cluster: AdmissionCluster, tenant: str) -> None:
    """A kubelet reports its static pods as mirror pods, whose nodeName is its own."""
    cluster = admission_cluster
    manifest = pod("static-node-1", nodeName="node-1")
    manifest["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "abc"}
    owner = cluster.client.request("GET", NODES.path("node-1"))["metadata"]["uid"]
    manifest["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": owner, "controller": True}
    ]
    kubelet = cluster.user("system:node:node-1", groups=["system:nodes"])
    cluster.bind(tenant, "edit", {"kind": "User", "name": "system:node:node-1"})

    def reported() -> bool:
        try:
            kubelet.create(PODS, manifest, namespace=tenant, dry_run=True)
        except Forbidden:  # until the RBAC rules apply
            return False
        return True

    eventually(reported, what="the mirror pod", seconds=10)

    with pytest.raises(Forbidden) as refused:
        cluster.dev.create(PODS, manifest, namespace=tenant)
    assert denial(refused.value) == BY_NAME
