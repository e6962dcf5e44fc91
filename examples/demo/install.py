"""What `helm install` would do, without images: the chart's CRDs and RBAC, and the operator as a plain process.

The operator logs in as the chart's service account, so what it may not do there it cannot do here either.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from trimtab.kube.api import NotFound, TooManyRequests
from trimtab.local.binaries import find, given_directory
from trimtab.local.client import Client
from trimtab.local.progress import Progress
from trimtab.local.versions import DEFAULT_VERSION, HELM

CHART: Final = Path(__file__).resolve().parents[2] / "manifests" / "charts" / "trimtab"
NAMESPACE: Final = "trimtab-system"
RELEASE: Final = "trimtab"
INSTALLED: Final = {
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", False),
    "ServiceAccount": ("/api/v1/namespaces/{namespace}/serviceaccounts", True),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1/clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", False),
    "Role": ("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", True),
    "ValidatingAdmissionPolicy": ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
        False,
    ),
}
"""The kinds of the chart that a process outside the cluster needs; the rest (Deployment, Service) needs an image."""


class Target(Protocol):
    """A cluster to install into."""

    @property
    def client(self) -> Client:
        """With the admin's rights."""
        ...

    def service_account_kubeconfig(self, namespace: str, name: str, *, path: Path, seconds: int = ...) -> Path:
        """A kubeconfig that acts as a service account."""
        ...


def render(*values: str, progress: Progress | None = None) -> list[dict[str, Any]]:
    """The chart's manifests as `helm template` prints them, with ``--set`` values."""
    helm = find([HELM], given=given_directory(None), progress=progress or Progress()).paths[HELM]
    command = [str(helm), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", DEFAULT_VERSION]
    command += [part for value in values for part in ("--set", value)]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [document for document in yaml.safe_load_all(rendered) if document]


def apply(client: Client, path: str, manifest: dict[str, Any]) -> None:
    """Server-side apply of one manifest into the collection at ``path``."""
    client.request(
        "PATCH",
        f"{path}/{manifest['metadata']['name']}",
        manifest,
        params={"fieldManager": "demo", "force": "true"},
        content_type="application/apply-patch+yaml",
    )


def install(target: Target, *values: str, progress: Progress | None = None) -> None:
    """Install the chart's CRDs, service account and rights, with ``--set`` values, and wait until all is served."""
    client = target.client
    apply(client, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for manifest in render(*values, progress=progress):
        place = INSTALLED.get(manifest["kind"])
        if place is not None:
            apply(client, place[0].format(namespace=manifest["metadata"].get("namespace", "")), manifest)
    wait_for(lambda: _served(client), "the API server to serve our kinds")


def _served(client: Client) -> bool:
    wanted = ("deschedulerpolicies", "deschedulingruns")
    try:
        resources = client.request("GET", "/apis/trimtab.dev/v1alpha1")["resources"]
        if not set(wanted) <= {resource["name"] for resource in resources}:
            return False
        for plural in wanted:
            client.request("GET", f"/apis/trimtab.dev/v1alpha1/{plural}")
    # A new group is not served at once, and its storage is at first "(re)initializing".
    except (NotFound, TooManyRequests):
        return False
    return True


class OperatorProcess:
    """`trimtab run` as a child process, logged in as the chart's service account.

    Args:
        target: the cluster.
        directory: where its kubeconfig and its log go.
        arguments: further arguments of `trimtab run`.
    """

    def __init__(self, target: Target, directory: Path, *arguments: str, name: str = "operator") -> None:
        self.log = directory / f"{name}.log"
        self.kubeconfig = target.service_account_kubeconfig(NAMESPACE, RELEASE, path=directory / f"{name}.kubeconfig")
        self._arguments = arguments
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, ready: bool = True) -> None:
        """Start it and, unless told otherwise, wait until its picture of the cluster is complete."""
        command = [sys.executable, "-m", "trimtab", "run", f"--kubeconfig={self.kubeconfig}"]
        command += [f"--lease-namespace={NAMESPACE}", f"--listen=127.0.0.1:{self.port}", *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if ready:
            wait_for(self.ready, f"the operator to be ready (its log: {self.log})", alive=self.running)

    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def ready(self) -> bool:
        """Whether /readyz says so."""
        return self.get("/readyz") is not None

    def get(self, path: str) -> str | None:
        """The body of a probe or of /metrics, ``None`` where it does not answer with 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None

    def stop(self, how: signal.Signals = signal.SIGTERM, *, timeout: float = 40.0) -> int:
        """Send a signal and wait for the end; its exit status (negative: the signal that ended it)."""
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


@contextmanager
def operator(target: Target, directory: Path, *arguments: str) -> Iterator[OperatorProcess]:
    """The operator while the block runs."""
    process = OperatorProcess(target, directory, *arguments)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def wait_for(
    condition: Any, what: str, *, timeout: float = 90.0, alive: Any = lambda: True, interval: float = 0.25
) -> None:
    """Poll until the condition holds.

    Raises:
        TimeoutError: it did not in time, or what should bring it about has died.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if not alive():
            raise TimeoutError(f"died while waiting for {what}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}")
        time.sleep(interval)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
