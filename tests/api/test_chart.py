"""The chart and the kustomize base: rendered by helm and kubectl, judged and installed by a real API server."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.generate import BASE, CHART
from tools.generate.__main__ import all_files, drifted
from tools.generate.base import base_files, helm, render

from examples.demo.install import wait_for
from tests.conftest import MakeCluster
from tests.fixtures.clusters import Cluster
from trimtab.api.crds import crd_documents
from trimtab.kube.api import ApiError, Forbidden
from trimtab.kube.resources import NODES, PODS
from trimtab.local.client import Client
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.nodes import node, reported

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/deschedulerpolicies.trimtab.dev"
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
NOT_SERVED = {"ServiceMonitor"}
"""Kinds of the Prometheus operator, which is not there."""

PLACES = {
    "Namespace": "/api/v1/namespaces",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
}


def dry_run(client: Client, manifest: dict[str, Any], *, namespace: str) -> dict[str, Any]:
    """Server-side apply that changes nothing and takes no unknown field."""
    metadata = manifest["metadata"]
    path = PLACES[manifest["kind"]].format(namespace=metadata.get("namespace", namespace))
    answer: dict[str, Any] = client.request(
        "PATCH",
        f"{path}/{metadata['name']}",
        manifest,
        params={"fieldManager": "test", "force": "true", "dryRun": "All", "fieldValidation": "Strict"},
        content_type="application/apply-patch+yaml",
    )
    return answer


@pytest.fixture
def restricted(cluster: Cluster, namespace: str) -> str:
    """A namespace that takes no pod beyond the restricted standard."""
    patch = {"metadata": {"labels": RESTRICTED}}
    path = f"/api/v1/namespaces/{namespace}"
    cluster.client.request("PATCH", path, patch, content_type="application/merge-patch+json")
    return namespace


def refusal(*arguments: str) -> str:
    """What helm says when it refuses."""
    with pytest.raises(subprocess.CalledProcessError) as refused:
        render(*arguments)
    return str(refused.value.stderr)


# ── Rendering ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_helm_finds_nothing_to_complain_of(values: Path) -> None:
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
        (["controllers.taintManager.rights=All"], ["taintManager", "rights", "EarlierOnly"]),
        (["controllers.taintManager.mode=Own"], ["taintManager", "mode"]),
        (["extraArgs[0]=--autoscaler-compatible-metrics"], ["extraArgs"]),
        (["replicas=2", "leaderElection.enabled=false"], ["leaderElection.enabled"]),
        (["metrics.serviceMonitor.enabled=true", "metrics.service.enabled=false"], ["metrics.service.enabled"]),
    ],
    ids=lambda given: ",".join(given) if isinstance(given, list) else "",
)
def test_values_that_cannot_be_meant_are_refused(values: list[str], words: list[str]) -> None:
    said = refusal(*(part for value in values for part in ("--set", value)))
    for word in words:
        assert word in said


def test_a_long_release_name_gives_names_that_fit() -> None:
    for manifest in render(release="a" * 53, namespace="ns"):
        if manifest["kind"] == "Service":
            assert len(manifest["metadata"]["name"]) <= 63
        for labels in (manifest["metadata"].get("labels") or {}).values():
            assert len(labels) <= 63


def test_a_build_number_in_the_version_is_no_problem_for_labels() -> None:
    labels = render()[0]["metadata"]["labels"]
    assert all("+" not in value for value in labels.values())


def test_without_a_lease_the_old_pod_ends_before_the_new_one_starts() -> None:
    [deployment] = [each for each in render("--set", "leaderElection.enabled=false") if each["kind"] == "Deployment"]
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert "--no-leader-elect" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


def test_the_operator_is_told_where_prometheus_is_and_its_volumes_are_mounted() -> None:
    values = str(CHART / "ci" / "everything-values.yaml")
    [deployment] = [each for each in render("--values", values) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    told = [argument for argument in pod["containers"][0]["args"] if "prometheus" in argument]
    assert told == [
        "--prometheus-url=https://prometheus.monitoring.svc:9091/prometheus",
        "--prometheus-token-file=/var/run/prometheus/token",
        "--prometheus-ca-file=/var/run/prometheus/ca.crt",
    ]
    assert [each["name"] for each in pod["volumes"]] == ["tmp", "prometheus"]
    assert [each["mountPath"] for each in pod["containers"][0]["volumeMounts"]] == ["/tmp", "/var/run/prometheus"]
    [bare] = [each for each in render() if each["kind"] == "Deployment"]
    assert not [each for each in bare["spec"]["template"]["spec"]["containers"][0]["args"] if "prometheus" in each]


def test_the_dashboard_is_there_on_request_as_grafanas_sidecar_looks_for_it() -> None:
    assert not [each for each in render() if each["kind"] == "ConfigMap"]
    [found] = [each for each in render("--set", "metrics.dashboard.enabled=true") if each["kind"] == "ConfigMap"]
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    dashboard = json.loads(found["data"]["trimtab.json"])
    assert dashboard == json.loads((CHART / "dashboards" / "trimtab.json").read_text(encoding="utf-8"))
    assert len(found["data"]["trimtab.json"]) < 1_000_000  # etcd takes no more


def test_definitions_stay_when_the_chart_goes_unless_told_otherwise() -> None:
    for keep in ("true", "false"):
        crds = [each for each in render("--set", f"crds.keep={keep}") if each["kind"] == "CustomResourceDefinition"]
        for crd in crds:
            annotations = crd["metadata"].get("annotations") or {}
            assert (annotations.get("helm.sh/resource-policy") == "keep") is (keep == "true")
        wanted = {document["metadata"]["name"]: document["spec"] for document in crd_documents(installed=True)}
        assert {crd["metadata"]["name"]: crd["spec"] for crd in crds} == wanted


@pytest.mark.parametrize("value", ["enabled=false", "installCRDs=false"])
def test_openshifts_definitions_are_left_alone_where_that_is_wanted(value: str) -> None:
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
def test_the_taint_managers_definition_can_be_left_out_and_the_rest_of_it_as_well(value: str) -> None:
    made = render("--set", f"controllers.taintManager.{value}")
    kinds = {each["spec"]["names"]["kind"] for each in made if each["kind"] == "CustomResourceDefinition"}
    assert kinds == {"DeschedulerPolicy", "DeschedulingRun", "ClusterAutoscaler", "MachineAutoscaler"}
    roles = {each["metadata"]["name"] for each in made if each["kind"].endswith("Role")}
    assert ("trimtab-taint-manager" in roles) is ("enabled" not in value)
    named = [each for each in made if "taintmanagers" in str(each)]
    assert bool(named) is ("enabled" not in value)
    [deployment] = [each for each in made if each["kind"] == "Deployment"]
    [runs] = [each for each in deployment["spec"]["template"]["spec"]["containers"][0]["args"] if "controllers" in each]
    assert runs.endswith(",tainting") is ("enabled" not in value)


WRITING = {
    "Observe": set(),
    "EarlierOnly": {"pods delete", "pods/eviction create", "pods/status patch", "nodes patch"},
    "Own": {"pods delete", "pods/eviction create", "pods/status patch", "nodes patch", "nodes/status patch"}
    | {"configmaps create", "configmaps patch"},
}
"""What a taint manager may write beside events, its own object and the lease, by its rights."""


@pytest.mark.parametrize("rights", WRITING)
def test_the_taint_manager_may_write_no_more_than_its_mode_needs(rights: str) -> None:
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


def test_the_kustomize_base_is_what_the_chart_gives() -> None:
    wanted = {BASE / name: text for name, text in base_files().items()}
    assert not drifted(wanted), "write it with: make generate"
    assert {path.name for path in BASE.iterdir()} == {path.name for path in wanted}


def test_nothing_that_is_generated_has_drifted() -> None:
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


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.name)
def test_the_pod_is_taken_where_the_restricted_standard_is_enforced(
    cluster: Cluster, restricted: str, values: Path
) -> None:
    [deployment] = [
        each for each in render("--values", str(values), namespace=restricted) if each["kind"] == "Deployment"
    ]
    template = deployment["spec"]["template"]
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
    """A cluster whose two nodes nobody has freed of their first taint."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("kind's kube-controller-manager sees to its nodes")
    cluster = make_cluster(Settings(node_lifecycle=False), nodes=0)
    for name in ("n0", "n1"):
        cluster.client.request("POST", NODES.path(), node(name, zone="z"))
    wait_for(lambda: all(map(reported, cluster.client.request("GET", NODES.path())["items"])), "ready nodes")
    return cluster


def test_with_the_values_for_mode_own_it_comes_up_where_it_has_to_free_the_nodes_itself(untended: LocalCluster) -> None:
    client = untended.client
    client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "trimtab-system"}})
    for release, values in (("plain", "default-values.yaml"), ("own", "own-values.yaml")):
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
    """Helm against the test's cluster, as its admin."""

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
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=self._environment, timeout=150)
        return done.stdout


@pytest.fixture
def helm_in(cluster: Cluster, restricted: str, tmp_path: Path) -> Iterator[Helm]:
    """Helm, and nothing of ours left of what it installed but the definitions."""
    run = Helm(cluster.kubeconfig, restricted, tmp_path)
    yield run
    for release in run("list", "--short", "--all").split():
        run("uninstall", release)


def test_it_installs_upgrades_and_goes_and_leaves_the_policies(cluster: Cluster, helm_in: Helm) -> None:
    client = cluster.client
    release = f"t{secrets.token_hex(3)}"
    deployment = f"/apis/apps/v1/namespaces/{helm_in.namespace}/deployments/{release}-trimtab"
    waiting = ["--wait", "--timeout", "120s"]

    notes = helm_in("install", release, str(CHART), "--take-ownership", *waiting)
    assert f"rollout status deployment/{release}-trimtab" in notes
    assert client.request("GET", deployment)["status"]["readyReplicas"] == 1

    helm_in("upgrade", release, str(CHART), "--set", "replicas=2,podDisruptionBudget.enabled=true", *waiting)
    assert client.request("GET", deployment)["status"]["readyReplicas"] == 2
    client.request("GET", f"/apis/policy/v1/namespaces/{helm_in.namespace}/poddisruptionbudgets/{release}-trimtab")

    before = client.request("GET", CRD)["metadata"]["uid"]
    helm_in("uninstall", release, "--wait", "--timeout", "120s")
    assert client.request("GET", CRD)["metadata"]["uid"] == before, "the definition, and the policies with it, stayed"
    with pytest.raises(ApiError):
        client.request("GET", deployment)


def test_a_second_release_is_refused_until_the_definitions_are_handed_over(
    cluster: Cluster, helm_in: Helm, tmp_path: Path
) -> None:
    first, second = f"a{secrets.token_hex(3)}", f"b{secrets.token_hex(3)}"
    helm_in("install", first, str(CHART), "--take-ownership", "--set", "replicas=0")
    helm_in("uninstall", first)

    with pytest.raises(subprocess.CalledProcessError) as refused:
        helm_in("install", second, str(CHART), "--set", "replicas=0")
    assert "invalid ownership metadata" in refused.value.stderr
    assert "CustomResourceDefinition" in refused.value.stderr

    helm_in("install", second, str(CHART), "--set", "replicas=0", "--take-ownership")
