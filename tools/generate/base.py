"""Generates the kustomize base from the chart with its default values."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.generate import CHART
from trimtab.api.crds import crd_files
from trimtab_local.binaries import find, given_directory
from trimtab_local.progress import Progress
from trimtab_local.versions import DEFAULT_VERSION, HELM

NAMESPACE: Final = "trimtab-system"
RELEASE: Final = "trimtab"
FILES: Final = {
    "serviceaccount.yaml": ("ServiceAccount",),
    "rbac.yaml": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "admission-policies.yaml": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    "deployment.yaml": ("Deployment",),
    "service.yaml": ("Service",),
    "networkpolicy.yaml": ("NetworkPolicy",),
}
"""The file of each kind."""

_HEADER: Final = "# Made from manifests/charts/trimtab by `make generate`: change that, not this file.\n"
_HELMS_OWN: Final = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def helm() -> Path:
    """Return the helm binary from ``KUBEBUILDER_ASSETS``, or build it."""
    return find([HELM], given=given_directory(None), progress=Progress()).paths[HELM]


def render(*arguments: str, release: str = RELEASE, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """Return the output of ``helm template``.

    Raises:
        subprocess.CalledProcessError: helm failed; ``stderr`` has the error.
    """
    command = [str(helm()), "template", release, str(CHART), "--namespace", namespace]
    command += ["--kube-version", DEFAULT_VERSION, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def base_files() -> dict[str, str]:
    """Return the content by file name, including the CRDs and kustomization.yaml."""
    manifests = [without_helm(document) for document in render("--set", "crds.install=false")]
    files = {"namespace.yaml": dump([_namespace()]), **crd_files(by_default=True)}
    for name, kinds in FILES.items():
        files[name] = dump([document for document in manifests if document["kind"] in kinds])
    left = {document["kind"] for document in manifests} - {kind for kinds in FILES.values() for kind in kinds}
    if left:
        raise ValueError(f"no file of the base takes {', '.join(sorted(left))}")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
    }
    return {"kustomization.yaml": dump([kustomization]), **files}


def _namespace() -> dict[str, Any]:
    enforced = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    labels = {"app.kubernetes.io/name": RELEASE, **enforced}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def without_helm(document: Any) -> Any:
    """Return the document without the labels of objects that Helm manages."""
    if isinstance(document, dict):
        return {key: without_helm(value) for key, value in document.items() if key not in _HELMS_OWN}
    if isinstance(document, list):
        return [without_helm(item) for item in document]
    return document


def dump(documents: Sequence[dict[str, Any]]) -> str:
    """Return the documents as YAML, with a comment that says how they are generated."""
    return _HEADER + yaml.safe_dump_all(documents, sort_keys=False, width=120)
