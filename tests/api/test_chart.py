"""The chart and the kustomize base: rendered by helm and kubectl, validated and installed on a real API server."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.generate import BASE, BUNDLE, CHART
from tools.generate.__main__ import all_files, drifted
from tools.generate.base import base_files, helm, render

from tests.conftest import MakeCluster
from tests.fixtures.clusters import Cluster, require_local_cluster
from tests.fixtures.waiting import patiently, wait_for
from trimtab.api.crds import crd_documents
from trimtab.api.reasons import PREEMPTION_BY_SCHEDULER
from trimtab.cli.run import run
from trimtab.cluster.disruption_signals import DISRUPTION_TARGET
from trimtab.cluster.kinds import KINDS
from trimtab.kube.api import ApiError, Forbidden
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import NODES, PODS
from trimtab.kube.rules.taints import NO_EXECUTE, NO_SCHEDULE
from trimtab.kube.wire.projection.annotations import SELECTED_NODE
from trimtab.pressure.state import ANNOTATION as STATE_ANNOTATION
from trimtab.pressure.state import CONDITION_TYPES, TAINT_KEYS
from trimtab.scheduling.report import POD_SCHEDULED
from trimtab.scheduling.volumes import BOUND_BY_CONTROLLER
from trimtab.tainting.deadlines import SINCE_ANNOTATION
from trimtab.tainting.lifecycle.node_health import MARKED, READY, UNKNOWN
from trimtab.tainting.lifecycle.planner import NO_EXECUTE_KEYS, NO_SCHEDULE_KEYS
from trimtab.tainting.lifecycle.record import NAME as RECORD
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.nodes import node, reported

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
HOST_NETWORK = CHART / "ci" / "host-network-values.yaml"
"""The only values that the restricted Pod Security standard forbids."""

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deschedulerpolicies.trimtab.dev"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
NOT_SERVED = {"PrometheusRule", "ServiceMonitor"}
"""Kinds of the Prometheus operator, which is not there."""

PLACES = {
    "Namespace": "/api/v1/namespaces",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "Secret": "/api/v1/namespaces/{namespace}/secrets",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
}


def dry_run(client: Client, manifest: dict[str, Any], *, namespace: str) -> dict[str, Any]:
    """A server-side apply as a dry run, which rejects unknown fields."""
    metadata = manifest["metadata"]
    path = PLACES[manifest["kind"]].format(namespace=metadata.get("namespace", namespace))
    response: dict[str, Any] = client.request(
        "PATCH",
        f"{path}/{metadata['name']}",
        manifest,
        params={"fieldManager": "test", "force": "true", "dryRun": "All", "fieldValidation": "Strict"},
        content_type="application/apply-patch+yaml",
    )
    return response


@pytest.fixture
def restricted(cluster: Cluster, namespace: str) -> str:
    """A namespace that enforces the restricted Pod Security standard."""
    patch = {"metadata": {"labels": RESTRICTED}}
    path = f"/api/v1/namespaces/{namespace}"
    cluster.client.request("PATCH", path, patch, content_type="application/merge-patch+json")
    return namespace


def refusal(*arguments: str) -> str:
    """The error message of helm."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(*arguments)
    return str(refused.value.stderr)


# ── Rendering ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_helm_lint_passes(values: Path) -> None:
    subprocess.run([helm(), "lint", "--strict", "--values", values, CHART], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["replica=2"], ["replica"]),
        (["image.tagg=1"], ["image", "tagg"]),
        (["metrics.serviceMonitor.every=1m"], ["serviceMonitor", "every"]),
        (["replicas=two"], ["replicas", "integer"]),
        (["replicas=-1"], ["replicas", "minimum"]),
        (["image.digest=latest"], ["image", "digest"]),
        (["image.tag=v1 beta"], ["image", "tag"]),
        (["resources.limits.memory=1 Gi"], ["resources", "limits", "memory"]),
        (["resources.limits.memory=-1"], ["resources", "limits", "memory"]),
        (["image.pullPolicy=Sometimes"], ["pullPolicy"]),
        (["log.level=verbose"], ["log", "level"]),
        (["crds.keep=maybe"], ["crds", "keep"]),
        (["tolerations.key=x"], ["tolerations", "array"]),
        (["nodeSelector[0]=x"], ["nodeSelector"]),
        (["resources.request.cpu=1"], ["resources", "request"]),
        (["podSecurityContext.privileged=true"], ["podSecurityContext", "privileged"]),
        (["podSecurityContext.runAsUser=0"], ["runAsUser", "minimum"]),
        (["terminationGracePeriodSeconds=5"], ["terminationGracePeriodSeconds"]),
        (["podDisruptionBudget.maxUnavailable=half"], ["maxUnavailable"]),
        (["extraArgs[0]=--identity=one"], ["extraArgs"]),
        (["extraArgs[0]=--no-leader-elect"], ["extraArgs"]),
        (["extraArgs[0]=--prometheus-url=http://p"], ["extraArgs"]),
        (["prometheus.url=prometheus:9090"], ["prometheus", "url"]),
        (["prometheus.url=https://me:secret@p"], ["prometheus", "url"]),
        (["prometheus.tokenFile=token", "prometheus.url=https://p"], ["prometheus", "tokenFile"]),
        (["prometheus.caFile=/ca.crt"], ["need prometheus.url"]),
        (["prometheus.tokenFile=/token", "prometheus.url=http://p"], ["must not travel unencrypted"]),
        (["controllers.autoscaler.enabled=true"], ["controllers", "autoscaler"]),
        (
            [
                "controllers.descheduler.enabled=false",
                "controllers.clusterAutoscaler.enabled=false",
                "controllers.taintManager.enabled=false",
            ],
            ["enable at least one"],
        ),
        (["controllers.clusterAutoscaler.installCrds=false"], ["clusterAutoscaler", "installCrds"]),
        (["deployments=Separate"], ["deployments", "PerController"]),
        (
            ["deployments=PerController", "controllers.descheduler.serviceAccountName=trimtab-taint-manager"],
            ["trimtab-taint-manager is named twice"],
        ),
        (["admissionPolicies.mode=Audit"], ["admissionPolicies", "mode"]),
        (["controllers.taintManager.rights=All"], ["taintManager", "rights", "EvictPods"]),
        (["controllers.taintManager.mode=TaintAndEvict"], ["taintManager", "mode"]),
        (["extraArgs[0]=--autoscaler-compatible-metrics"], ["extraArgs"]),
        (["extraArgs[0]=--machine-mark-delay=1s"], ["extraArgs"]),
        (["extraArgs[0]=--max-inactivity=1s"], ["extraArgs"]),
        (["extraArgs[0]=--shutdown-timeout=1s"], ["extraArgs"]),
        (["health.maxInactivity=often"], ["health", "maxInactivity"]),
        (["extraArgs[0]=--plan-deadline=1s"], ["extraArgs"]),
        (["planning.deadline=soon"], ["deadline"]),
        (["planning.deadline=0s"], ["deadline"]),
        (["planning.deadline=10m"], ["planning.deadline", "health.maxInactivity"]),
        (["planning.deadline=1m1s", "health.maxInactivity=60s"], ["planning.deadline", "health.maxInactivity"]),
        (["controllers.clusterAutoscaler.machineMarkDelay=soon"], ["machineMarkDelay"]),
        (["replicas=2", "leaderElection.enabled=false"], ["leaderElection.enabled"]),
        (["metrics.serviceMonitor.enabled=true", "metrics.service.enabled=false"], ["metrics.service.enabled"]),
        (["controllers.pressure.kubelet.access=Token"], ["access", "Proxy"]),
        (["controllers.pressure.kubelet.port=10250"], ["kubelet", "port"]),
        (["controllers.pressure.kubelet.caFile=ca.crt"], ["caFile"]),
        (["extraArgs[0]=--kubelet-access=Proxy"], ["extraArgs"]),
        (["extraArgs[0]=--kubelet-insecure-skip-tls-verify"], ["extraArgs"]),
        (
            ["controllers.pressure.kubelet.caFile=/ca.crt", "controllers.pressure.kubelet.caConfigMap=ca"],
            ["caFile or caConfigMap"],
        ),
        (
            ["controllers.pressure.kubelet.caFile=/ca.crt", "controllers.pressure.kubelet.insecureSkipTlsVerify=true"],
            ["insecureSkipTlsVerify"],
        ),
        (
            ["controllers.pressure.kubelet.access=Proxy", "controllers.pressure.kubelet.insecureSkipTlsVerify=true"],
            ["access: Proxy"],
        ),
        (
            ["controllers.pressure.enabled=true", "serviceAccount.name=trimtab-kubelet-stats"],
            ["trimtab-kubelet-stats", "another one"],
        ),
        (["networkPolicy.kubelets.cidrs[0]=nodes"], ["networkPolicy", "kubelets"]),
        (["admission.rules=3"], ["admission", "rules"]),
        (["admission.port=443"], ["admission", "port"]),
        (["admission.enabled=true", "admission.port=8080"], ["admission", "must differ"]),
        (["admission.hostPort=true"], ["admission", "hostPort"]),
        (["admission.certificate.secretName=a b"], ["secretName"]),
        (["admission.extraArgs[0]=--webhook-service=other"], ["extraArgs"]),
        (["admission.enabled=true", "admission.serviceAccountName=trimtab"], ["account of their own"]),
        (
            [
                *("deployments=PerController", "admission.enabled=true"),
                "admission.serviceAccountName=trimtab-descheduler",
            ],
            ["account of their own"],
        ),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, list) else "",
)
def test_contradictory_values_are_rejected(values: list[str], words: list[str]) -> None:
    said = refusal(*(part for value in values for part in ("--set", value)))
    for word in words:
        assert word in said


def test_names_of_a_long_release_name_are_truncated() -> None:
    for manifest in render(release="a" * 53, namespace="ns"):
        if manifest["kind"] == "Service":
            assert len(manifest["metadata"]["name"]) <= 63
        for labels in (manifest["metadata"].get("labels") or {}).values():
            assert len(labels) <= 63


def test_version_with_build_metadata_gives_valid_labels() -> None:
    labels = render()[0]["metadata"]["labels"]
    assert all("+" not in value for value in labels.values())


def test_without_leader_election_the_deployment_uses_recreate() -> None:
    [deployment] = [each for each in render("--set", "leaderElection.enabled=false") if each["kind"] == "Deployment"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert "--no-leader-elect" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_prometheus_values_set_flags_and_volumes() -> None:
    values = str(CHART / "ci" / "everything-values.yaml")
    deployments = [each for each in render("--values", values) if each["kind"] == "Deployment"]
    [deployment] = [each for each in deployments if each["metadata"]["name"].endswith("-descheduler")]
    others = [each for each in deployments if each is not deployment]
    assert "prometheus-" not in str([each["spec"]["template"]["spec"]["containers"][0]["args"] for each in others])
    pod = deployment["spec"]["template"]["spec"]
    arguments = [argument for argument in pod["containers"][0]["args"] if "prometheus" in argument]
    assert arguments == [
        "--prometheus-url=https://prometheus.monitoring.svc:9091/prometheus",
        "--prometheus-token-file=/var/run/prometheus/token",
        "--prometheus-ca-file=/var/run/prometheus/ca.crt",
    ]
    assert [each["name"] for each in pod["volumes"]] == ["tmp", "metrics-tls", "prometheus"]
    assert [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]] == [
        "/tmp",
        "/var/run/trimtab/metrics-tls",
        "/var/run/prometheus",
    ]
    [bare] = [each for each in render() if each["kind"] == "Deployment"]
    assert not [each for each in bare["spec"]["template"]["spec"]["containers"][0]["args"] if "prometheus" in each]


def test_priority_expander_namespace_sets_a_flag_and_a_role() -> None:
    def roles(*arguments: str) -> list[tuple[str, str]]:
        found = [each for each in render(*arguments) if each["metadata"]["name"].endswith("-priority-expander")]
        return [(each["kind"], each["metadata"]["namespace"]) for each in found]

    assert roles() == []
    setting = ("--set", "expander.priority.namespace=openshift-machine-api")
    assert sorted(roles(*setting)) == [("Role", "openshift-machine-api"), ("RoleBinding", "openshift-machine-api")]
    [deployment] = [each for each in render(*setting) if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--priority-expander-namespace=openshift-machine-api" in arguments


def test_dashboard_config_map_has_the_label_of_grafanas_sidecar() -> None:
    assert not [each for each in render() if each["kind"] == "ConfigMap"]
    [found] = [each for each in render("--set", "metrics.dashboard.enabled=true") if each["kind"] == "ConfigMap"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads(found["data"]["trimtab.json"])
    assert dashboard == json.loads((CHART / "dashboards" / "trimtab.json").read_text(encoding="utf-8"))
    assert len(found["data"]["trimtab.json"]) < 1_000_000  # etcd takes no more


READERS = ("trimtab-view", "trimtab-edit", "trimtab-admin", "trimtab-cli", "trimtab-cli-node-stats")
"""ClusterRoles for people, which name the kinds of controllers that are off as well."""


def roles_of_the_operator(made: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The ClusterRoles that are for the operator and not for people."""
    return [each for each in made if each["kind"] == "ClusterRole" and each["metadata"]["name"] not in READERS]


def test_crds_are_kept_on_uninstall_by_default() -> None:
    for keep in ("true", "false"):
        crds = [each for each in render("--set", f"crds.keep={keep}") if each["kind"] == "CustomResourceDefinition"]
        for crd in crds:
            annotations = crd["metadata"].get("annotations") or {}
            assert (annotations.get("helm.sh/resource-policy") == "keep") is (keep == "true")
        wanted = {document["metadata"]["name"]: document["spec"] for document in crd_documents(by_default=True)}
        assert {crd["metadata"]["name"]: crd["spec"] for crd in crds} == wanted


@pytest.mark.parametrize("value", ["enabled=false", "installCRDs=false"])
def test_openshift_crds_can_be_excluded(value: str) -> None:
    made = render("--set", f"controllers.clusterAutoscaler.{value}")
    groups = {each["spec"]["group"] for each in made if each["kind"] == "CustomResourceDefinition"}
    assert groups == {"trimtab.dev"}
    [deployment] = [each for each in made if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    runs = f"--controllers=descheduler,{'' if 'enabled' in value else 'autoscaler,'}tainting"
    assert runs in arguments
    roles = {each["metadata"]["name"] for each in made if each["kind"] == "ClusterRole"}
    assert ("trimtab-cluster-autoscaler" in roles) is ("enabled" not in value)


@pytest.mark.parametrize("value", ["enabled=false", "installCRDs=false"])
def test_taint_manager_crd_and_its_rbac_can_be_excluded(value: str) -> None:
    made = render("--set", f"controllers.taintManager.{value}")
    kinds = {each["spec"]["names"]["kind"] for each in made if each["kind"] == "CustomResourceDefinition"}
    assert kinds == {"DeschedulerPolicy", "DeschedulingRun", "HistoryRecord", "ClusterAutoscaler", "MachineAutoscaler"}
    roles = {each["metadata"]["name"] for each in made if each["kind"].endswith("Role")}
    assert ("trimtab-taint-manager" in roles) is ("enabled" not in value)
    named = [each for each in made if "taintmanagers" in str(each) and each["metadata"]["name"] not in READERS]
    assert bool(named) is ("enabled" not in value)
    [deployment] = [each for each in made if each["kind"] == "Deployment"]
    [runs] = [each for each in deployment["spec"]["template"]["spec"]["containers"][0]["args"] if "controllers" in each]
    assert runs.endswith(",tainting") is ("enabled" not in value)


WRITING = {
    "Observe": set(),
    "EvictPods": {"pods delete", "pods/eviction create", "pods/status patch", "nodes patch"},
    "TaintAndEvict": {"pods delete", "pods/eviction create", "pods/status patch", "nodes patch", "nodes/status patch"}
    | {"configmaps create", "configmaps patch"},
}
"""What a taint manager may write beside events, its own object and the lease, by its rights."""


@pytest.mark.parametrize("rights", WRITING)
def test_taint_manager_rbac_grants_only_what_its_mode_needs(rights: str) -> None:
    roles = [
        each
        for each in render("--set", f"controllers.taintManager.rights={rights}")
        if each["kind"] in ("ClusterRole", "Role") and "taint-manager" in each["metadata"]["name"]
    ]
    written = {
        f"{resource} {verb}"
        for role in roles
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch") and resource not in ("events", "taintmanagers", "taintmanagers/status")
    }
    assert written == WRITING[rights]


def test_taint_manager_rbac_equals_the_requests_of_the_code() -> None:
    made = {
        (each["kind"], each["metadata"]["name"].removeprefix("trimtab-")): each
        for each in render("--set", "controllers.taintManager.rights=TaintAndEvict")
        if each["kind"] in ("ClusterRole", "Role")
    }
    observing = {"nodes list", "nodes watch", "pods list", "pods watch", "events create", "events patch"}
    acting = {"nodes get", "nodes patch", "nodes/status patch"}
    acting |= {"pods get", "pods delete", "pods/eviction create", "pods/status patch"}
    assert granted(made["ClusterRole", "taint-manager"]) == observing | acting
    assert granted(made["ClusterRole", "taint-manager-status"]) == status_rules("taintmanagers")
    leases = made["Role", "taint-manager"]
    assert granted(leases) == {"leases get", "leases list", "leases watch"}
    assert leases["metadata"]["namespace"] == NODE_LEASES
    record = made["Role", "taint-manager-record"]
    bound = {tuple(rule["verbs"]): rule.get("resourceNames") for rule in record["rules"]}
    assert granted(record) == {"configmaps create", "configmaps get", "configmaps patch"}
    assert bound == {("create",): None, ("get", "patch"): [RECORD]}


SCHEDULER = "controllers.scheduler.enabled=true"


@pytest.mark.parametrize("values", [(), (SCHEDULER,), (SCHEDULER, "controllers.scheduler.installCRDs=false")])
def test_scheduler_is_off_by_default(values: tuple[str, ...]) -> None:
    made = render(*(part for value in values for part in ("--set", value)))
    kinds = {each["spec"]["names"]["kind"] for each in made if each["kind"] == "CustomResourceDefinition"}
    assert ("SchedulerPolicy" in kinds) is (values == (SCHEDULER,))
    roles = {each["metadata"]["name"] for each in made if each["kind"].endswith("Role")}
    assert ("trimtab-scheduler" in roles) is bool(values)
    [deployment] = [each for each in made if each["kind"] == "Deployment"]
    [runs] = [each for each in deployment["spec"]["template"]["spec"]["containers"][0]["args"] if "controllers" in each]
    assert runs.endswith(",scheduler") is bool(values)


def test_scheduler_rbac_equals_the_requests_of_the_code() -> None:
    roles = {each["metadata"]["name"]: each for each in render("--set", SCHEDULER) if each["kind"] == "ClusterRole"}
    snapshot = {f"{each.plural} {verb}" for each in KINDS for verb in ("list", "watch")}
    acting = {"pods/binding create", "pods/status patch", "pods get", "pods delete", "pods/eviction create"}
    acting |= {"events create", "events patch"}
    acting |= {
        f"{kind} {verb}" for kind in ("persistentvolumes", "persistentvolumeclaims") for verb in ("get", "patch")
    }
    assert granted(roles["trimtab-scheduler"]) == snapshot | acting
    assert granted(roles["trimtab-scheduler-status"]) == status_rules("schedulerpolicies")


def test_admission_policies_permit_the_schedulers_writes() -> None:
    policies = admission(SCHEDULER, "deployments=PerController")
    account = "trimtab-scheduler"
    [_, conditions] = checks(policies["trimtab-pod-status"], account)
    assert quoted(conditions) == {DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER, POD_SCHEDULED, "False", ""}
    assert permitted(policies["trimtab-volumes"], "annotations", account) == {BOUND_BY_CONTROLLER}
    assert permitted(policies["trimtab-claims"], "annotations", account) == {SELECTED_NODE}


PRESSURE = "controllers.pressure.enabled=true"
PROXY = "controllers.pressure.kubelet.access=Proxy"


def of_pressure(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the chart with the node-pressure controller, by kind and name."""
    made = render(*(part for value in (PRESSURE, *values) for part in ("--set", value)))
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def operator_container(made: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    container: dict[str, Any] = made["Deployment", "trimtab"]["spec"]["template"]["spec"]["containers"][0]
    return container


@pytest.mark.parametrize("values", [(), (PRESSURE,), (PRESSURE, "controllers.pressure.installCRDs=false")])
def test_node_pressure_is_off_by_default(values: tuple[str, ...]) -> None:
    made = render(*(part for value in values for part in ("--set", value)))
    kinds = {each["spec"]["names"]["kind"] for each in made if each["kind"] == "CustomResourceDefinition"}
    assert ("NodePressurePolicy" in kinds) is (values == (PRESSURE,))
    names = {each["metadata"]["name"] for each in made}
    assert ("trimtab-pressure" in names) is bool(values)
    assert ("trimtab-kubelet-stats" in names) is bool(values)
    assert ("nodepressurepolicies" in str(roles_of_the_operator(made))) is bool(values)
    [deployment] = [each for each in made if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    [runs] = [each for each in arguments if "controllers" in each]
    assert runs.endswith(",pressure") is bool(values)
    assert any("kubelet" in each for each in arguments) is bool(values)


def test_node_pressure_rbac_equals_the_requests_of_the_code() -> None:
    acting = {f"nodes {verb}" for verb in ("get", "list", "watch", "patch")} | {"nodes/status patch"}
    acting |= {f"pods {verb}" for verb in ("get", "list", "watch", "delete")}
    acting |= {"pods/eviction create", "pods/status patch"}
    acting |= {"events create", "events patch", "nodes list", "pods list"}
    made = of_pressure()
    assert granted(made["ClusterRole", "trimtab-pressure-status"]) == status_rules("nodepressurepolicies")
    assert granted(made["ClusterRole", "trimtab-pressure"]) == acting
    assert granted(of_pressure(PROXY)["ClusterRole", "trimtab-pressure"]) == acting | {"nodes/proxy get"}
    [metrics] = [
        rule for rule in made["ClusterRole", "trimtab-pressure"]["rules"] if rule["apiGroups"] == ["metrics.k8s.io"]
    ]
    assert (metrics["resources"], metrics["verbs"]) == (["nodes", "pods"], ["list"])


def test_kubelets_receive_tokens_that_only_read_statistics() -> None:
    made = of_pressure()
    account = {"kind": "ServiceAccount", "name": "trimtab-kubelet-stats", "namespace": "trimtab-system"}
    assert granted(made["ClusterRole", "trimtab-kubelet-stats"]) == {"nodes/stats get"}
    assert made["ClusterRoleBinding", "trimtab-kubelet-stats"]["subjects"] == [account]
    [rule] = made["Role", "trimtab-kubelet-stats"]["rules"]
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (
        ["serviceaccounts/token"],
        ["trimtab-kubelet-stats"],
        ["create"],
    )
    assert [each["name"] for each in made["RoleBinding", "trimtab-kubelet-stats"]["subjects"]] == ["trimtab"]
    assert made["ServiceAccount", "trimtab-kubelet-stats"]["automountServiceAccountToken"] is False
    bound = [
        name for (kind, name), each in made.items() if kind.endswith("RoleBinding") and account in each["subjects"]
    ]
    assert bound == ["trimtab-kubelet-stats"]
    assert "--kubelet-stats-service-account=trimtab-kubelet-stats" in operator_container(made)["args"]


def test_proxy_access_is_an_opt_in_that_needs_no_token() -> None:
    assert "nodes/proxy" not in str(roles_of_the_operator(of_pressure().values()))
    made = of_pressure(PROXY)
    assert not [name for _, name in made if "kubelet-stats" in name]
    assert [each for each in operator_container(made)["args"] if "kubelet" in each] == ["--kubelet-access=Proxy"]


@pytest.mark.live
@pytest.mark.parametrize(
    ("values", "flags"),
    [
        ((), []),
        (("kubelet.caFile=/certs/ca.crt",), ["--kubelet-ca-file=/certs/ca.crt"]),
        (("kubelet.caConfigMap=kubelet-ca",), ["--kubelet-ca-file=/var/run/trimtab/kubelet-ca/ca.crt"]),
        (("kubelet.insecureSkipTlsVerify=true",), ["--kubelet-insecure-skip-tls-verify"]),
    ],
)
def test_certificates_of_kubelets_are_verified_unless_disabled(values: tuple[str, ...], flags: list[str]) -> None:
    made = of_pressure(*(f"controllers.pressure.{value}" for value in values))
    common = {"--kubelet-access=Direct", "--kubelet-stats-service-account=trimtab-kubelet-stats"}
    container = operator_container(made)
    assert [each for each in container["args"] if "kubelet" in each and each not in common] == flags
    pod = made["Deployment", "trimtab"]["spec"]["template"]["spec"]
    volumes = {each["name"]: each.get("configMap", {}).get("name") for each in pod["volumes"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    mounted = any("caConfigMap" in value for value in values)
    assert volumes.get("kubelet-ca") == ("kubelet-ca" if mounted else None)
    assert mounts.get("kubelet-ca") == ("/var/run/trimtab/kubelet-ca" if mounted else None)


@pytest.mark.live
def test_network_policy_permits_connections_to_kubelets_only_if_they_are_read_directly() -> None:
    def ports(*values: str) -> list[tuple[list[int], Any]]:
        rules = of_pressure(*values)["NetworkPolicy", "trimtab"]["spec"]["egress"]
        found = [([port["port"] for port in rule["ports"]], rule.get("to")) for rule in rules]
        return [each for each in found if 10250 in each[0]]

    assert ports() == [([10250], None)]
    assert ports("networkPolicy.kubelets.cidrs={192.0.2.0/24}") == [([10250], [{"ipBlock": {"cidr": "192.0.2.0/24"}}])]
    assert ports(PROXY) == []
    [plain] = [each for each in render() if each["kind"] == "NetworkPolicy"]
    assert "10250" not in str(plain)
    webhooks = of_pressure("admission.enabled=true")["NetworkPolicy", "trimtab-admission"]
    assert "10250" not in str(webhooks["spec"]["egress"])


def test_admission_policies_permit_the_node_pressure_controllers_writes() -> None:
    policies = admission(PRESSURE, "deployments=PerController")
    account = "trimtab-pressure"
    taints = {f"{key}:{NO_SCHEDULE}" for key in TAINT_KEYS.values()}
    assert permitted(policies["trimtab-nodes"], "taints", account) == taints
    assert permitted(policies["trimtab-nodes"], "annotations", account) == {STATE_ANNOTATION}
    [_, conditions] = checks(policies["trimtab-node-status"], account)
    assert quoted(conditions) == set(CONDITION_TYPES.values())
    [_, conditions] = checks(policies["trimtab-pod-status"], account)
    assert quoted(conditions) == {DISRUPTION_TARGET, "DeletionByNodePressure", ""}
    together = admission(PRESSURE, "controllers.taintManager.rights=TaintAndEvict")
    [_, conditions] = checks(together["trimtab-node-status"])
    assert quoted(conditions) == {*MARKED, UNKNOWN, *CONDITION_TYPES.values()}
    assert permitted(together["trimtab-nodes"], "taints") > taints


ADMISSION = "admission.enabled=true"


@pytest.mark.parametrize("values", [(), (ADMISSION,), (ADMISSION, "admission.installCRDs=false")])
def test_admission_webhooks_are_off_by_default(values: tuple[str, ...]) -> None:
    made = render(*(part for value in values for part in ("--set", value)))
    kinds = {each["spec"]["names"]["kind"] for each in made if each["kind"] == "CustomResourceDefinition"}
    assert ("PlacementAdmission" in kinds) is (values == (ADMISSION,))
    names = {each["metadata"]["name"] for each in made if each["kind"] == "Deployment"}
    assert names == ({"trimtab", "trimtab-admission"} if values else {"trimtab"})
    assert ("placementadmissions" in str(roles_of_the_operator(made))) is bool(values)
    assert any(each["kind"].endswith("WebhookConfiguration") for each in made) is bool(values)


def of_admission(*values: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the admission webhooks, by kind and name."""
    made = render(*(part for value in (ADMISSION, *values) for part in ("--set", value)))
    named = {(each["kind"], each["metadata"]["name"]): each for each in made}
    return {(kind, name): each for (kind, name), each in named.items() if name.startswith("trimtab-admission")}


def test_admission_webhooks_survive_the_loss_and_the_drain_of_a_node() -> None:
    made = of_admission()
    deployment = made["Deployment", "trimtab-admission"]["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    pod = deployment["template"]["spec"]
    assert pod["priorityClassName"] == "system-cluster-critical"
    [term] = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    selector = deployment["selector"]
    assert term["podAffinityTerm"]["labelSelector"] == selector
    assert made["PodDisruptionBudget", "trimtab-admission"]["spec"]["selector"] == selector
    assert made["PodDisruptionBudget", "trimtab-admission"]["spec"]["maxUnavailable"] == 1
    assert selector["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()


def test_admission_pods_in_the_network_of_nodes_need_their_own_ports_and_no_spare_node() -> None:
    made = of_admission("admission.hostNetwork=true", "admission.probesPort=18081", "admission.metricsPort=18080")
    deployment = made["Deployment", "trimtab-admission"]["spec"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    pod = deployment["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    [container] = pod["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"webhook": 9443, "probes": 18081, "metrics": 18080}
    assert {"--listen=:18081", "--metrics-listen=:18080"} <= set(container["args"])
    assert "hostNetwork" not in of_admission()["Deployment", "trimtab-admission"]["spec"]["template"]["spec"]


def test_admission_pods_match_no_selector_of_the_controllers() -> None:
    made = render("--set", f"{ADMISSION},podDisruptionBudget.enabled=true")
    [labels] = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in made
        if each["kind"] == "Deployment" and each["metadata"]["name"] == "trimtab-admission"
    ]
    kinds = ("Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service")
    matching = set()
    for each in made:
        spec = each.get("spec", {})
        selector = spec.get("selector") or spec.get("podSelector") or {}
        if each["kind"] in kinds and selector.get("matchLabels", selector).items() <= labels.items():
            matching.add((each["kind"], each["metadata"]["name"]))
    assert matching == {(kind, "trimtab-admission") for kind in kinds} | {("Service", "trimtab-admission-metrics")}


def test_api_server_reaches_the_webhook_port_through_service_and_network_policy() -> None:
    made = of_admission("networkPolicy.webhooks.cidrs={192.0.2.0/28}", "metrics.serviceMonitor.enabled=true")
    container = made["Deployment", "trimtab-admission"]["spec"]["template"]["spec"]["containers"][0]
    assert {each["name"]: each["containerPort"] for each in container["ports"]}["webhook"] == 9443
    assert "--webhook-listen=:9443" in container["args"]
    [port] = made["Service", "trimtab-admission"]["spec"]["ports"]
    assert (port["port"], port["targetPort"]) == (443, "webhook")
    [metrics] = made["Service", "trimtab-admission-metrics"]["spec"]["ports"]
    assert (metrics["name"], metrics["targetPort"]) == ("metrics", "metrics")
    ingress = made["NetworkPolicy", "trimtab-admission"]["spec"]["ingress"]
    [opened] = [each for each in ingress if each["ports"] == [{"port": "webhook"}]]
    assert opened["from"] == [{"ipBlock": {"cidr": "192.0.2.0/28"}}]
    [anywhere] = [
        each
        for each in of_admission()["NetworkPolicy", "trimtab-admission"]["spec"]["ingress"]
        if each["ports"] == [{"port": "webhook"}]
    ]
    assert "from" not in anywhere
    controllers = next(each for each in render("--set", ADMISSION) if each["kind"] == "NetworkPolicy")
    assert "webhook" not in str(controllers["spec"])


def test_arguments_of_the_pods_are_options_of_the_command() -> None:
    options = {option for each in run.params for option in (*each.opts, *each.secondary_opts)}
    for deployment in render("--values", str(CHART / "ci" / "everything-values.yaml")):
        if deployment["kind"] == "Deployment":
            command, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
            assert command == "run"
            assert {each.partition("=")[0] for each in arguments} <= options


def test_webhook_configurations_and_secret_are_created_empty() -> None:
    made = of_admission()
    for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        assert set(made[kind, "trimtab-admission"]) == {"apiVersion", "kind", "metadata"}
    secret = made["Secret", "trimtab-admission-certificate"]
    assert set(secret) == {"apiVersion", "kind", "metadata", "type"}


def test_admission_rbac_is_limited_to_its_own_objects() -> None:
    made = of_admission()
    compared = ("priorityclasses", "deschedulerpolicies", "schedulerpolicies", "clusterautoscalers")
    configurations = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    assert granted(made["ClusterRole", "trimtab-admission"]) == {
        *(f"namespaces {verb}" for verb in ("get", "list", "watch")),
        *(f"{kind} {verb}" for kind in configurations for verb in ("list", "watch", "patch")),
        *(f"{kind} list" for kind in (*compared, "machineautoscalers", "nodepressurepolicies", "daemonsets")),
        "subjectaccessreviews create",
    }
    reading = {f"placementadmissions {verb}" for verb in ("get", "list", "watch")}
    assert granted(made["ClusterRole", "trimtab-admission-status"]) == reading | {"placementadmissions/status patch"}
    [registering] = [
        rule
        for rule in made["ClusterRole", "trimtab-admission"]["rules"]
        if rule["apiGroups"] == ["admissionregistration.k8s.io"]
    ]
    assert registering["resourceNames"] == ["trimtab-admission"]
    [secret] = made["Role", "trimtab-admission"]["rules"]
    assert (secret["resources"], secret["resourceNames"]) == (["secrets"], ["trimtab-admission-certificate"])
    assert secret["verbs"] == ["list", "watch", "patch"]
    assert granted(made["Role", "trimtab-admission-events"]) == {"events create", "events patch"}
    assert made["Role", "trimtab-admission-events"]["metadata"]["namespace"] == "default"
    for kind, name in made:
        if kind.endswith("RoleBinding"):
            assert [each["name"] for each in made[kind, name]["subjects"]] == ["trimtab-admission"]


def test_certificate_of_another_owner_is_only_read() -> None:
    made = of_admission("admission.certificate.secretName=webhook-tls")
    assert not [name for kind, name in made if kind == "Secret"]
    [rule] = made["Role", "trimtab-admission"]["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["webhook-tls"], ["list", "watch"])
    arguments = made["Deployment", "trimtab-admission"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {"--webhook-secret=webhook-tls", "--no-webhook-issue-certificates"} <= set(arguments)


def admission(*values: str) -> dict[str, dict[str, Any]]:
    """The specs of the admission policies, by name."""
    made = render(*(part for value in values for part in ("--set", value)))
    return {each["metadata"]["name"]: each["spec"] for each in made if each["kind"] == "ValidatingAdmissionPolicy"}


def checks(policy: dict[str, Any], account: str = "trimtab") -> list[str]:
    """The expressions that requests of a service account must fulfil."""
    split = (each["expression"].split("')) || ", 1) for each in policy["validations"])
    return [check for accounts, check in split if account in re.findall(r"':([^']*)", accounts)]


def permitted(policy: dict[str, Any], what: str, account: str = "trimtab") -> set[str]:
    """The keys that an admission policy permits, as the message of its validation lists them."""
    lists = {
        strings
        for each in policy["validations"]
        if f"these {what}" in each.get("messageExpression", "")
        for strings in re.findall(r"\(\[(.*)\]\)", each["messageExpression"])
    }
    [found] = [strings for strings in lists if any(f"([{strings}])" in check for check in checks(policy, account))]
    return quoted(found)


def quoted(text: str) -> set[str]:
    return set(re.findall(r"'([^']*)'", text))


def test_admission_policies_permit_the_taint_managers_writes() -> None:
    policies = admission("controllers.taintManager.rights=TaintAndEvict", "controllers.clusterAutoscaler.enabled=false")
    taints = {f"{key}:{NO_SCHEDULE}" for key in NO_SCHEDULE_KEYS} | {f"{key}:{NO_EXECUTE}" for key in NO_EXECUTE_KEYS}
    assert permitted(policies["trimtab-nodes"], "taints") == taints
    assert permitted(policies["trimtab-nodes"], "annotations") == {SINCE_ANNOTATION}
    [_, conditions] = checks(policies["trimtab-node-status"])
    assert quoted(conditions) == {*MARKED, UNKNOWN}
    [_, conditions] = checks(policies["trimtab-pod-status"])
    assert quoted(conditions) == {DISRUPTION_TARGET, READY, "False"}
    earlier = admission("controllers.taintManager.rights=EvictPods", "controllers.clusterAutoscaler.enabled=false")
    assert permitted(earlier["trimtab-nodes"], "taints") == set()
    assert permitted(earlier["trimtab-nodes"], "annotations") == {SINCE_ANNOTATION}
    [_, conditions] = checks(earlier["trimtab-pod-status"])
    assert quoted(conditions) == {DISRUPTION_TARGET}


COMMON = {"creation", "events", "policies"}


@pytest.mark.live
@pytest.mark.parametrize(
    ("values", "policies"),
    [
        ([], COMMON | {"runs", "nodes", "node-groups", "machines"}),
        (["controllers.clusterAutoscaler.enabled=false"], COMMON | {"runs"}),
        (["cloudProvider.kwok.enabled=true"], COMMON | {"runs", "nodes", "simulated-nodes", "node-groups", "machines"}),
        (
            ["controllers.taintManager.rights=EvictPods"],
            COMMON | {"runs", "nodes", "node-groups", "machines", "pod-status", "pod-deletion"},
        ),
        (
            ["controllers.taintManager.rights=TaintAndEvict"],
            COMMON | {"runs", "nodes", "node-groups", "machines", "pod-status", "pod-deletion", "node-status"},
        ),
        (
            ["controllers.scheduler.enabled=true"],
            COMMON | {"runs", "nodes", "node-groups", "machines", "pod-status", "pod-deletion", "volumes", "claims"},
        ),
        (
            [PRESSURE],
            COMMON | {"runs", "nodes", "node-groups", "machines", "node-status", "pod-status", "pod-deletion"},
        ),
        (["controllers.taintManager.rights=TaintAndEvict", "admissionPolicies.enabled=false"], set()),
        # Service accounts and roles that are managed elsewhere are limited all the same.
        (["rbac.create=false", "serviceAccount.create=false"], COMMON | {"runs", "nodes", "node-groups", "machines"}),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, list) else "",
)
def test_every_wide_permission_has_an_admission_policy(values: list[str], policies: set[str]) -> None:
    assert {name.removeprefix("trimtab-") for name in admission(*values)} == policies


PER_CONTROLLER = ("deployments=PerController", "controllers.taintManager.rights=TaintAndEvict", SCHEDULER, PRESSURE)


def test_split_controllers_get_separate_deployments_accounts_and_leases() -> None:
    made = render("--set", ",".join((*PER_CONTROLLER, "podDisruptionBudget.enabled=true")))
    components = {"descheduler": "descheduler", "autoscaler": "cluster-autoscaler", "tainting": "taint-manager"}
    components |= {"scheduler": "scheduler", "pressure": "pressure"}
    names = {f"trimtab-{each}" for each in components.values()}
    deployments = {each["metadata"]["name"]: each["spec"] for each in made if each["kind"] == "Deployment"}
    assert set(deployments) == names
    accounts = {each["metadata"]["name"] for each in made if each["kind"] == "ServiceAccount"}
    assert accounts == names | {"trimtab-kubelet-stats"}
    for controller, component in components.items():
        found = deployments[f"trimtab-{component}"]
        pod = found["template"]["spec"]
        assert pod["serviceAccountName"] == f"trimtab-{component}"
        arguments = pod["containers"][0]["args"]
        assert f"--controllers={controller}" in arguments
        assert f"--lease-name=trimtab-{component}" in arguments
        assert ("--machine-mark-delay=15s" in arguments) is (controller == "autoscaler")
        assert ("--kubelet-access=Direct" in arguments) is (controller == "pressure")
        selector = found["selector"]["matchLabels"]
        assert selector["app.kubernetes.io/component"] == component
        assert selector.items() <= found["template"]["metadata"]["labels"].items()
        [service] = [each["spec"]["selector"] for each in made if each["kind"] == "Service"]
        assert service.items() <= selector.items()
    budgets = [each for each in made if each["kind"] == "PodDisruptionBudget"]
    selectors = {each["metadata"]["name"]: each["spec"]["selector"] for each in budgets}
    assert selectors == {name: each["selector"] for name, each in deployments.items()}


def test_split_service_account_is_bound_only_to_its_roles() -> None:
    made = render("--set", ",".join(PER_CONTROLLER))
    bound: dict[str, set[str]] = {}
    for each in made:
        if each["kind"].endswith("RoleBinding"):
            for subject in each["subjects"]:
                bound.setdefault(subject["name"], set()).add(each["roleRef"]["name"])
    assert bound == {
        "trimtab-descheduler": {
            "trimtab-acting",
            "trimtab-history",
            "trimtab-descheduler",
            "trimtab-descheduler-status",
            "trimtab-descheduler-lease",
        },
        "trimtab-cluster-autoscaler": {
            "trimtab-acting",
            "trimtab-history",
            "trimtab-cluster-autoscaler",
            "trimtab-cluster-autoscaler-status",
            "trimtab-cluster-autoscaler-lease",
        },
        "trimtab-taint-manager": {
            "trimtab-taint-manager",
            "trimtab-taint-manager-record",
            "trimtab-taint-manager-status",
            "trimtab-acting",
            "trimtab-history",
            "trimtab-taint-manager-lease",
        },
        "trimtab-scheduler": {
            "trimtab-acting",
            "trimtab-history",
            "trimtab-scheduler",
            "trimtab-scheduler-status",
            "trimtab-scheduler-lease",
        },
        "trimtab-pressure": {
            "trimtab-acting",
            "trimtab-history",
            "trimtab-pressure",
            "trimtab-pressure-status",
            "trimtab-pressure-lease",
            "trimtab-kubelet-stats",
        },
        "trimtab-kubelet-stats": {"trimtab-kubelet-stats"},
    }
    accounts = bound.keys() - {"trimtab-kubelet-stats"}
    assert lease_names(made, "update") == {name: [name, f"{name}-acting"] for name in accounts}
    assert lease_names(made, "watch") == {name: [name] for name in accounts}


def test_only_candidates_of_leader_election_may_watch_its_lease() -> None:
    assert lease_names(render(), "watch") == {"trimtab": ["trimtab"]}
    assert lease_names(render("--set", "leaderElection.enabled=false"), "watch") == {}


def lease_names(manifests: list[dict[str, Any]], verb: str) -> dict[str, list[str]]:
    """The names of the Leases for which the role of each deployment has a verb."""
    return {
        role["metadata"]["name"].removesuffix("-lease"): rule["resourceNames"]
        for role in manifests
        if role["kind"] == "Role" and role["metadata"]["name"].endswith("-lease")
        for rule in role["rules"]
        if verb in rule["verbs"]
    }


def test_admission_policies_read_few_entries_that_tenants_write() -> None:
    """Otherwise a pod with 35,000 owner references costs the API server seconds, and cannot be deleted."""
    policies = admission("controllers.taintManager.rights=TaintAndEvict", SCHEDULER, PRESSURE)
    bounded = {
        name.removeprefix("trimtab-"): set(re.findall(r"\?(\w+)\.orValue\(..\)\)?\.size\(\) (<=|>) 1000 ", denied))
        for name, spec in policies.items()
        for denied in [spec["matchConditions"][1]["expression"]]
    }
    annotated = ("claims", "machines", "node-groups", "nodes", "volumes")
    assert {name: found for name, found in bounded.items() if found} == {
        **{name: {("annotations", "<=")} for name in annotated},
        "pod-deletion": {("ownerReferences", ">"), ("tolerations", ">")},
    }


def test_split_admission_policies_permit_only_the_controllers_writes() -> None:
    policies = admission(*PER_CONTROLLER)
    by_account: dict[str, set[str]] = {}
    for name, spec in policies.items():
        [operator, denied] = (each["expression"] for each in spec["matchConditions"])
        accounts = re.findall(r"'system:serviceaccount:trimtab-system:([^']*)'", operator)
        for account in accounts:
            by_account.setdefault(account, set()).add(name.removeprefix("trimtab-"))
            assert f"!({' && '.join(checks(spec, account))})" in denied
    assert by_account == {
        "trimtab-descheduler": COMMON | {"runs"},
        "trimtab-cluster-autoscaler": COMMON | {"nodes", "node-groups", "machines"},
        "trimtab-taint-manager": COMMON | {"nodes", "node-status", "pod-status", "pod-deletion"},
        "trimtab-scheduler": COMMON | {"pod-status", "pod-deletion", "volumes", "claims"},
        "trimtab-pressure": COMMON | {"nodes", "node-status", "pod-status", "pod-deletion"},
    }
    nodes, autoscaler, taint_manager = policies["trimtab-nodes"], "trimtab-cluster-autoscaler", "trimtab-taint-manager"
    for what in ("annotations", "taints"):
        assert not permitted(nodes, what, autoscaler) & permitted(nodes, what, taint_manager)
    uncordoned = [each for each in checks(nodes, taint_manager) if "unschedulable ==" in each]
    assert len(uncordoned) == 1
    assert not [each for each in checks(nodes, autoscaler) if "unschedulable ==" in each]


def status_rules(plural: str) -> set[str]:
    """What a role for statuses grants on one kind."""
    return {f"{plural} list", f"{plural} watch", f"{plural} patch", f"{plural}/status patch"}


def granted(role: dict[str, Any]) -> set[str]:
    return {f"{resource} {verb}" for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


@pytest.mark.live
@pytest.mark.parametrize(
    ("taint_manager", "deletes", "evicts"),
    [
        ("rights=TaintAndEvict", {"taint-manager"}, {"cluster-autoscaler", "descheduler", "taint-manager"}),
        ("rights=EvictPods", {"taint-manager"}, {"cluster-autoscaler", "descheduler", "taint-manager"}),
        ("rights=Observe", set(), {"cluster-autoscaler", "descheduler"}),
        ("enabled=false", set(), {"cluster-autoscaler", "descheduler"}),
    ],
)
def test_eviction_limits_change_no_rbac_and_by_default_only_the_taint_manager_deletes_pods(
    taint_manager: str, deletes: set[str], evicts: set[str]
) -> None:
    names = {
        "evictionsPerMinute": "evictions-per-minute",
        "evictionsPerMinutePerNamespace": "evictions-per-minute-per-namespace",
        "evictionsPerMinutePerNode": "evictions-per-minute-per-node",
        "evictionsPerMinutePerOwner": "evictions-per-minute-per-owner",
        "maxConcurrentEvictions": "max-concurrent-evictions",
        "maxConcurrentEvictionsPerNamespace": "max-concurrent-evictions-per-namespace",
        "maxConcurrentEvictionsPerNode": "max-concurrent-evictions-per-node",
        "maxConcurrentEvictionsPerOwner": "max-concurrent-evictions-per-owner",
    }
    limits = ",".join(f"disruption.limits.{name}={number}" for number, name in enumerate(names, start=1))
    plain = render("--set", f"controllers.taintManager.{taint_manager}")
    limited = render("--set", f"controllers.taintManager.{taint_manager},{limits}")
    [deployment] = [each for each in limited if each["kind"] == "Deployment"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [each for each in arguments if "evictions" in each] == [
        f"--{flag}={number}" for number, flag in enumerate(names.values(), start=1)
    ]
    roles = [each for each in limited if each["kind"] in ("ClusterRole", "Role")]
    assert roles == [each for each in plain if each["kind"] in ("ClusterRole", "Role")]
    may: dict[str, set[str]] = {}  # a ClusterRole and a Role of one name are of one controller
    for role in roles:
        may.setdefault(role["metadata"]["name"].removeprefix("trimtab-"), set()).update(granted(role))
    assert {name for name, rights in may.items() if "pods delete" in rights} == deletes
    assert {name for name, rights in may.items() if "pods/eviction create" in rights} == evicts
    assert not any(right in ("pods *", "* *", "* delete") for rights in may.values() for right in rights)


def test_kustomize_base_equals_the_rendered_chart() -> None:
    wanted = {BASE / name: text for name, text in base_files().items()}
    assert not drifted(wanted), "write it with: make generate"
    assert {path.name for path in BASE.iterdir()} == {path.name for path in wanted}


def test_generated_manifests_are_up_to_date() -> None:
    assert not drifted(all_files()), "write it with: make generate"


def test_kubectl_builds_the_base() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here")
    built = subprocess.run([kubectl, "kustomize", BASE], check=True, capture_output=True, text=True).stdout
    names = {(each["kind"], each["metadata"]["name"]) for each in yaml.safe_load_all(built)}
    assert names == {(each["kind"], each["metadata"]["name"]) for each in _base()}


# ── The API server's word ───────────────────────────────────────────────────────────────────────────────────────────


def _base() -> list[dict[str, Any]]:
    texts = [(BASE / name).read_text(encoding="utf-8") for name in base_files() if name != "kustomization.yaml"]
    return [document for text in texts for document in yaml.safe_load_all(text)]


@pytest.mark.live
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_every_manifest_is_valid(cluster: Cluster, restricted: str, values: Path) -> None:
    manifests = render("--values", str(values), namespace=restricted)
    for manifest in manifests:
        if manifest["kind"] not in NOT_SERVED:
            dry_run(cluster.client, manifest, namespace=restricted)
    assert {manifest["kind"] for manifest in manifests} <= set(PLACES) | NOT_SERVED


def test_every_manifest_of_the_base_is_valid(cluster: Cluster, restricted: str) -> None:
    for manifest in _base():
        if manifest["metadata"].get("namespace"):
            manifest["metadata"]["namespace"] = restricted
        dry_run(cluster.client, manifest, namespace=restricted)


def test_deployment_and_permissions_of_the_bundle_are_valid(cluster: Cluster, restricted: str) -> None:
    text = (BUNDLE / "manifests" / "trimtab.clusterserviceversion.yaml").read_text(encoding="utf-8")
    install = yaml.safe_load(text)["spec"]["install"]["spec"]
    [deployment] = install["deployments"]
    manifests = [{"apiVersion": "apps/v1", "kind": "Deployment", "spec": deployment["spec"]}]
    for kind, permissions in (("ClusterRole", "clusterPermissions"), ("Role", "permissions")):
        [granted] = install[permissions]
        manifests.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "rules": granted["rules"]})
    for each in manifests:
        dry_run(cluster.client, {**each, "metadata": {"name": deployment["name"]}}, namespace=restricted)
    taken_where_restricted(cluster, restricted, deployment["spec"]["template"])


@pytest.mark.live
@pytest.mark.parametrize("values", [each for each in VALUES if each != HOST_NETWORK], ids=lambda path: path.name)
def test_pod_passes_the_restricted_pod_security_standard(cluster: Cluster, restricted: str, values: Path) -> None:
    manifests = render("--values", str(values), namespace=restricted)
    templates = [each["spec"]["template"] for each in manifests if each["kind"] == "Deployment"]
    for template in templates:
        taken_where_restricted(cluster, restricted, template)


def taken_where_restricted(cluster: Cluster, restricted: str, template: dict[str, Any]) -> None:
    pods = f"/api/v1/namespaces/{restricted}/pods"
    account = template["spec"]["serviceAccountName"]
    cluster.client.request("POST", f"/api/v1/namespaces/{restricted}/serviceaccounts", {"metadata": {"name": account}})
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template["metadata"], "name": "trimtab"}
    strict = {"dryRun": "All", "fieldValidation": "Strict"}
    cluster.client.request("POST", pods, pod, params=strict)

    pod["spec"] = {**pod["spec"], "hostNetwork": True}
    with pytest.raises(Forbidden, match="violates PodSecurity"):
        cluster.client.request("POST", pods, pod, params=strict)


@pytest.fixture
def untended(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster without node lifecycle, whose two nodes keep the API server's not-ready taint."""
    require_local_cluster(request, "kind's kube-controller-manager manages its nodes")
    cluster = make_cluster(Settings(node_lifecycle=False), nodes=0)
    for name in ("n0", "n1"):
        cluster.client.request("POST", NODES.path(), node(name, zone="z"))
    wait_for(lambda: all(map(reported, cluster.client.request("GET", NODES.path())["items"])), "ready nodes")
    return cluster


@pytest.mark.live
def test_operator_pod_tolerates_the_taints_that_it_removes_itself(untended: LocalCluster) -> None:
    client = untended.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "trimtab-system"}})
    for release, values in (("plain", "default-values.yaml"), ("own", "taint-and-evict-values.yaml")):
        for manifest in render("--values", str(CHART / "ci" / values), release=release):
            if manifest["kind"] in ("ServiceAccount", "Deployment"):
                client.request("POST", PLACES[manifest["kind"]].format(namespace="trimtab-system"), manifest)

    def places(release: str) -> list[str]:
        params = {"labelSelector": f"app.kubernetes.io/instance={release}"}
        found = client.request("GET", PODS.path(namespace="trimtab-system"), params=params)["items"]
        return sorted(each["spec"].get("nodeName", "") for each in found)

    wait_for(lambda: places("own") == ["n0", "n1"], "a replica on each node")
    assert places("plain") == [""], "one that tolerates nothing waits for whoever frees the nodes"


# ── Installing, upgrading, uninstalling ─────────────────────────────────────────────────────────────────────────────


class Helm:
    """Runs helm against the test's cluster with the admin's permissions."""

    def __init__(self, kubeconfig: Path, namespace: str, home: Path) -> None:
        self._kubeconfig = kubeconfig
        self.namespace = namespace
        # HOME is where the discovery cache goes; without one it would be the working directory.
        self._environment = {
            name: str(home) for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }

    def __call__(self, *arguments: str, namespace: str = "") -> str:
        command = [str(helm()), *arguments, "--kubeconfig", str(self._kubeconfig)]
        command += ["--namespace", namespace or self.namespace]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=self._environment, timeout=patiently(150)
        )
        return done.stdout


@pytest.fixture
def helm_in(cluster: Cluster, restricted: str, tmp_path: Path) -> Iterator[Helm]:
    """Helm; everything that it installs is deleted afterwards, but for the CRDs."""
    run = Helm(cluster.kubeconfig, restricted, tmp_path)
    yield run
    for release in run("list", "--short", "--all").split():
        run("uninstall", release)


def test_uninstall_after_upgrade_keeps_policies(cluster: Cluster, helm_in: Helm) -> None:
    client = cluster.client
    release = f"t{secrets.token_hex(3)}"
    deployment = f"/apis/apps/v1/namespaces/{helm_in.namespace}/deployments/{release}-trimtab"
    waiting = ["--wait", "--timeout", f"{patiently(120):.0f}s"]

    notes = helm_in("install", release, str(CHART), "--take-ownership", *waiting)
    assert f"rollout status deployment/{release}-trimtab" in notes
    assert client.request("GET", deployment)["status"]["readyReplicas"] == 1

    helm_in("upgrade", release, str(CHART), "--set", "replicas=2,podDisruptionBudget.enabled=true", *waiting)
    assert client.request("GET", deployment)["status"]["readyReplicas"] == 2
    client.request("GET", f"/apis/policy/v1/namespaces/{helm_in.namespace}/poddisruptionbudgets/{release}-trimtab")

    before = client.request("GET", CRD)["metadata"]["uid"]
    helm_in("uninstall", release, *waiting)
    assert client.request("GET", CRD)["metadata"]["uid"] == before, "the definition, and the policies with it, stayed"
    with pytest.raises(ApiError):
        client.request("GET", deployment)


def test_upgrade_keeps_the_webhooks_and_certificates_that_the_operator_wrote(
    cluster: Cluster, helm_in: Helm, tmp_path: Path
) -> None:
    client = cluster.client
    release = f"w{secrets.token_hex(3)}"
    name = f"{release}-trimtab-admission"
    values = ["--set", f"replicas=0,{ADMISSION},admission.replicas=0"]
    helm_in("install", release, str(CHART), "--take-ownership", *values)

    configuration = f"{PLACES['ValidatingWebhookConfiguration']}/{name}"
    secret = f"{PLACES['Secret'].format(namespace=helm_in.namespace)}/{name}-certificate"
    webhook = {
        "name": "validate.fail.trimtab.dev",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["x"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    registered = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
    apply = {"params": {"fieldManager": "trimtab", "force": "true"}, "content_type": "application/apply-patch+yaml"}
    client.request("PATCH", configuration, registered, **apply)
    merge = "application/merge-patch+json"
    client.request("PATCH", secret, {"data": {"tls.crt": "eA=="}}, content_type=merge)

    def kept() -> tuple[list[str], dict[str, str]]:
        webhooks = client.request("GET", configuration).get("webhooks", [])
        return [each["name"] for each in webhooks], client.request("GET", secret).get("data", {})

    assert kept() == (["validate.fail.trimtab.dev"], {"tls.crt": "eA=="})
    later = tmp_path / "later"
    shutil.copytree(CHART, later)
    chart = (later / "Chart.yaml").read_text(encoding="utf-8")
    (later / "Chart.yaml").write_text(re.sub(r"(?m)^(version|appVersion): .*$", r"\1: 9.9.9", chart), encoding="utf-8")
    helm_in("upgrade", release, str(later), *values)
    labels = client.request("GET", configuration)["metadata"]["labels"]
    assert labels["app.kubernetes.io/version"] == "9.9.9"
    assert kept() == (["validate.fail.trimtab.dev"], {"tls.crt": "eA=="})

    kubectl = shutil.which("kubectl")
    if kubectl is not None:
        manifests = tmp_path / "manifests.yaml"
        made = render(*values, release=release, namespace=helm_in.namespace)
        manifests.write_text(yaml.safe_dump_all([each for each in made if each["metadata"]["name"].startswith(name)]))
        for arguments in ([], ["--server-side", "--force-conflicts"]):
            command = [kubectl, "--kubeconfig", str(cluster.kubeconfig), "apply", "-f", str(manifests), *arguments]
            subprocess.run(command, check=True, capture_output=True)
            assert kept() == (["validate.fail.trimtab.dev"], {"tls.crt": "eA=="})

    helm_in("uninstall", release, "--wait")
    for path in (configuration, secret):
        with pytest.raises(ApiError):
            client.request("GET", path)


@pytest.mark.live
def test_second_release_fails_until_crds_are_adopted(cluster: Cluster, helm_in: Helm, tmp_path: Path) -> None:
    first, second = f"a{secrets.token_hex(3)}", f"b{secrets.token_hex(3)}"
    helm_in("install", first, str(CHART), "--take-ownership", "--set", "replicas=0")
    helm_in("uninstall", first)

    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm_in("install", second, str(CHART), "--set", "replicas=0")
    assert "invalid ownership metadata" in refused.value.stderr
    assert "CustomResourceDefinition" in refused.value.stderr

    helm_in("install", second, str(CHART), "--set", "replicas=0", "--take-ownership")
