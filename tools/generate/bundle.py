"""Generates the bundle for the Operator Lifecycle Manager (OLM) from the chart, for OpenShift and OperatorHub.

The bundle contains the descheduler and the taint manager in mode ``Observe``. The cluster autoscaler is not in it,
because on OpenShift the CRDs of ClusterAutoscaler and MachineAutoscaler belong to the platform. OLM v0 cannot install
ValidatingAdmissionPolicies, so the installation page says how to apply those of the kustomize base. The bundle has no
``webhookdefinitions``: the operator registers the webhooks of a PlacementAdmission itself, and the bundle does not run
the admission webhooks.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

import trimtab
from tools.generate import CHART, ROOT
from tools.generate.base import NAMESPACE, RELEASE, dump, render, without_helm
from trimtab.api.crds import DEFINITIONS, crd_document

Document = dict[str, Any]

VALUES: Final = (
    "crds.install=false",
    "controllers.clusterAutoscaler.enabled=false",
    # OpenShift assigns users and groups, and OLM's Namespace is not created by the chart.
    "podSecurityContext.runAsUser=null",
    "podSecurityContext.runAsGroup=null",
    # Kinds that OLM does not install.
    "admissionPolicies.enabled=false",
    "networkPolicy.enabled=false",
)
"""What differs from the chart's default values."""

KINDS: Final = ("DeschedulerPolicy", "DeschedulingRun", "HistoryRecord", "TaintManager")
"""The custom resources of the bundle."""

WRITTEN_BY_OPERATOR: Final = ("DeschedulingRun", "HistoryRecord")
"""Custom resources that users do not create."""

EXAMPLES: Final = ("examples/policies/report-only.yaml", "examples/tainting/observe.yaml")
CHANNEL: Final = "alpha"
REPOSITORY: Final = "https://github.com/trimtab-dev/trimtab"

_DESCRIPTION: Final = """\
trimtab evicts pods that run on the wrong nodes, so that they are rescheduled, and reports when the taint manager would
delete pods on tainted nodes. It plans before it acts, respects PodDisruptionBudgets, and explains each decision.

Installing trimtab evicts nothing. Pods are evicted only by a DeschedulerPolicy in mode `Act` or `Approve`.

The bundle contains the descheduler, and the taint manager in mode `Observe`. For the cluster autoscaler, the scheduler,
the node-pressure controller, the admission webhooks or other permissions, install the Helm chart.
"""


def bundle_files() -> dict[str, str]:
    """Return the content of each file of the bundle by its path in the bundle's folder."""
    documents = render("--set", ",".join(VALUES))
    manifests = {"trimtab.clusterserviceversion.yaml": cluster_service_version(documents)}
    for definition in DEFINITIONS:
        if definition.kind in KINDS:
            manifests[definition.file_name] = crd_document(definition)
    for document in _of_users(documents):
        manifests[f"{document['metadata']['name']}.{document['kind'].lower()}.yaml"] = document
    return {
        **{f"manifests/{name}": dump([document]) for name, document in manifests.items()},
        "metadata/annotations.yaml": dump([{"annotations": _annotations()}]),
        "bundle.Dockerfile": _dockerfile(),
    }


def cluster_service_version(documents: Iterable[Document]) -> Document:
    """Return the ClusterServiceVersion for the rendered chart.

    Raises:
        ValueError: the chart has an object for which the bundle has no place.
    """
    documents = list(documents)
    known = {"Deployment", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Service"}
    if left := {each["kind"] for each in documents} - known:
        raise ValueError(f"the bundle has no place for {', '.join(sorted(left))}")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    version = trimtab.__version__
    [deployment] = [each for each in documents if each["kind"] == "Deployment"]
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    local, everywhere = _permissions(documents)
    examples = [yaml.safe_load((ROOT / path).read_text(encoding="utf-8")) for path in EXAMPLES]
    internal = [each.name for each in DEFINITIONS if each.kind in WRITTEN_BY_OPERATOR]
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{RELEASE}.v{version}",
            "namespace": "placeholder",
            "annotations": {
                "alm-examples": json.dumps(examples, indent=2),
                "capabilities": "Deep Insights",
                "categories": "Monitoring",
                "containerImage": image,
                "description": "Evicts pods from the wrong nodes, by policies and after a plan that explains why.",
                "operatorframework.io/suggested-namespace": NAMESPACE,
                "operators.operatorframework.io/internal-objects": json.dumps(internal),
                "repository": REPOSITORY,
                "support": "trimtab maintainers",
            },
        },
        "spec": {
            "displayName": "trimtab",
            "description": _DESCRIPTION,
            "version": version,
            "maturity": "alpha",
            "minKubeVersion": chart["kubeVersion"].removeprefix(">=").removesuffix("-0"),
            "provider": {"name": "The trimtab developers", "url": "https://github.com/trimtab-dev"},
            # OperatorHub requires an address; security reports go through GitHub (SECURITY.md).
            "maintainers": [
                {"name": each["name"], "email": "trimtab-dev@users.noreply.github.com"} for each in chart["maintainers"]
            ],
            "keywords": chart["keywords"],
            "links": [
                {"name": "Documentation", "url": f"{REPOSITORY}/tree/main/docs"},
                {"name": "Source", "url": REPOSITORY},
            ],
            "icon": [
                {
                    "base64data": base64.b64encode(Path(__file__).with_name("icon.svg").read_bytes()).decode(),
                    "mediatype": "image/svg+xml",
                }
            ],
            "installModes": [
                {"type": each, "supported": each == "AllNamespaces"}
                for each in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": _owned(chart)},
            "relatedImages": [{"name": RELEASE, "image": image}],
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": everywhere,
                    "permissions": local,
                    "deployments": [
                        {
                            "name": deployment["metadata"]["name"],
                            "label": without_helm(deployment["metadata"]["labels"]),
                            "spec": without_helm(deployment["spec"]),
                        }
                    ],
                },
            },
        },
    }


def _owned(chart: Mapping[str, Any]) -> list[Document]:
    described = {each["name"]: each for each in yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])}
    return [
        {
            "name": each.name,
            "version": each.version,
            "kind": each.kind,
            "displayName": described[each.name]["displayName"],
            "description": described[each.name]["description"],
        }
        for each in DEFINITIONS
        if each.kind in KINDS
    ]


def _permissions(documents: Iterable[Document]) -> tuple[list[Document], list[Document]]:
    """Return the rules in the operator's namespace, and in all namespaces, by service account.

    A ClusterServiceVersion cannot grant permissions in another namespace. A Role of the chart in kube-node-lease
    therefore becomes a cluster-wide permission with the same rules.
    """
    documents = list(documents)
    roles = {_key(each): each["rules"] for each in documents if each["kind"] in ("ClusterRole", "Role")}
    rules: dict[bool, dict[str, list[Document]]] = {True: {}, False: {}}
    for binding in documents:
        if not binding["kind"].endswith("RoleBinding"):
            continue
        reference, namespace = binding["roleRef"], binding["metadata"].get("namespace", "")
        key = (reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"])
        for subject in binding["subjects"]:
            rules[namespace == NAMESPACE].setdefault(subject["name"], []).extend(roles[key])
    local, everywhere = (
        [{"serviceAccountName": name, "rules": found} for name, found in sorted(rules[own].items())]
        for own in (True, False)
    )
    return local, everywhere


def _key(document: Document) -> tuple[str, str, str]:
    return document["kind"], document["metadata"].get("namespace", ""), document["metadata"]["name"]


def _of_users(documents: Iterable[Document]) -> Iterable[Document]:
    """Yield the objects that OLM installs next to the operator: roles for users, and the Service of the metrics."""
    documents = list(documents)
    bound = {each["roleRef"]["name"] for each in documents if each["kind"] == "ClusterRoleBinding"}
    for each in documents:
        if each["kind"] == "Service" or (each["kind"] == "ClusterRole" and each["metadata"]["name"] not in bound):
            metadata = {key: value for key, value in each["metadata"].items() if key != "namespace"}
            yield without_helm({**each, "metadata": metadata})


def _annotations() -> dict[str, str]:
    bundle, channels = "operators.operatorframework.io.bundle", "operators.operatorframework.io.bundle.channels.v1"
    return {
        f"{bundle}.mediatype.v1": "registry+v1",
        f"{bundle}.manifests.v1": "manifests/",
        f"{bundle}.metadata.v1": "metadata/",
        f"{bundle}.package.v1": RELEASE,
        channels: CHANNEL,
        f"{bundle}.channel.default.v1": CHANNEL,
    }


def _dockerfile() -> str:
    labels = "".join(f"LABEL {key}={value}\n" for key, value in _annotations().items())
    return (
        "# Made from manifests/charts/trimtab by `make generate`: change that, not this file.\n"
        f"FROM scratch\n{labels}COPY manifests /manifests/\nCOPY metadata /metadata/\n"
    )
