"""The kustomize base, made from the chart with its default values: there is one truth, and it is the chart."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tools.generate import CHART
from trimtab.api.crds import crd_files
from trimtab.local.binaries import find, given_directory
from trimtab.local.progress import Progress
from trimtab.local.versions import DEFAULT_VERSION, HELM

NAMESPACE: Final = "trimtab-system"
RELEASE: Final = "trimtab"
FILES: Final = {
    "serviceaccount.yaml": ("ServiceAccount",),
    "rbac.yaml": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "deployment.yaml": ("Deployment",),
    "service.yaml": ("Service",),
}
"""Which kinds go where."""

_HEADER: Final = "# Made from manifests/charts/trimtab by `make generate`: change that, not this file.\n"
_HELMS_OWN: Final = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def helm() -> Path:
    """The helm binary: of ``KUBEBUILDER_ASSETS`` where it is there, else built."""
    return find([HELM], given=given_directory(None), progress=Progress()).paths[HELM]


def render(*arguments: str, release: str = RELEASE, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """What ``helm template`` makes of the chart.

    Raises:
        subprocess.CalledProcessError: helm refuses; ``stderr`` says why.
    """
    command = [str(helm()), "template", release, str(CHART), "--namespace", namespace]
    command += ["--kube-version", DEFAULT_VERSION, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def base_files() -> dict[str, str]:
    """File name to content, the definitions and kustomization.yaml among them."""
    manifests = [_without_helm(document) for document in render("--set", "crds.install=false")]
    files = {"namespace.yaml": _dump([_namespace()]), **crd_files(installed=True)}
    for name, kinds in FILES.items():
        files[name] = _dump([document for document in manifests if document["kind"] in kinds])
    left = {document["kind"] for document in manifests} - {kind for kinds in FILES.values() for kind in kinds}
    if left:
        raise ValueError(f"no file of the base takes {', '.join(sorted(left))}")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(files),
    }
    return {"kustomization.yaml": _dump([kustomization]), **files}


def _namespace() -> dict[str, Any]:
    enforced = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    labels = {"app.kubernetes.io/name": RELEASE, **enforced}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels}}


def _without_helm(document: Any) -> Any:
    """The same without the labels that say that Helm manages it."""
    if isinstance(document, dict):
        return {key: _without_helm(value) for key, value in document.items() if key not in _HELMS_OWN}
    if isinstance(document, list):
        return [_without_helm(item) for item in document]
    return document


def _dump(documents: Sequence[dict[str, Any]]) -> str:
    return _HEADER + yaml.safe_dump_all(documents, sort_keys=False, width=120)
