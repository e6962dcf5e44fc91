"""Installs the chart without images: its CRDs and RBAC objects, and the operator as a plain process.

The operator uses the chart's service account, so it has the same permissions as in a cluster.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import yaml

from trimtab.kube.api import NotFound, ServerError, TooManyRequests, Unreachable
from trimtab_local import LocalError
from trimtab_local.binaries import find, given_directory
from trimtab_local.client import Client
from trimtab_local.progress import Progress
from trimtab_local.supervisor import choose_ports
from trimtab_local.versions import DEFAULT_VERSION, HELM, OPERATOR

if TYPE_CHECKING:
    from trimtab_local.cluster import LocalCluster

CHART: Final = Path(__file__).resolve().parents[2] / "manifests" / "charts" / "trimtab"
NAMESPACE: Final = "trimtab-system"
RELEASE: Final = "trimtab"
_TOKEN_SECONDS: Final = 30 * 86_400
"""Validity of the operator's token, long enough for any local cluster."""
_READY_SECONDS: Final = 90.0
"""Deadline for the operator to become ready."""
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
"""The kinds of the chart that a process outside the cluster needs. Other kinds (Deployment, Service) need an image."""


class Target(Protocol):
    """A cluster in which to install the chart."""

    @property
    def client(self) -> Client:
        """Return a client with the admin's permissions."""
        ...

    def service_account_kubeconfig(self, namespace: str, name: str, *, path: Path, seconds: int = ...) -> Path:
        """Write a kubeconfig with a token of the service account, and return its path."""
        ...


def render(
    *values: str, files: Sequence[Path] = (), version: str = DEFAULT_VERSION, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Return the chart's manifests as `helm template` prints them.

    Args:
        values: settings as ``key=value`` (helm's ``--set``).
        files: files with values (helm's ``--values``).
        version: the Kubernetes version of the cluster.
        progress: receives the steps of building helm.

    Raises:
        LocalError: the chart is not here, or helm reports an error in the values.
    """
    if not CHART.is_dir():
        raise LocalError(f"there is no chart at {CHART}; run this from a clone of trimtab's repository")
    helm = find([HELM], given=given_directory(None), progress=progress or Progress()).paths[HELM]
    command = [str(helm), "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--kube-version", version]
    command += [part for value in values for part in ("--set", value)]
    command += [f"--values={file}" for file in files]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise LocalError(f"helm template failed: {done.stderr.strip()}")
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def apply(client: Client, path: str, manifest: dict[str, Any]) -> None:
    """Create or update a manifest in the collection at ``path`` by server-side apply."""
    client.request(
        "PATCH",
        f"{path}/{manifest['metadata']['name']}",
        manifest,
        params={"fieldManager": "trimtab-local", "force": "true"},
        content_type="application/apply-patch+yaml",
    )


def install(target: Target, *values: str, files: Sequence[Path] = (), progress: Progress | None = None) -> None:
    """Install the chart's CRDs, service account and RBAC objects, and wait until the API server serves the CRDs."""
    client = target.client
    apply(client, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    version = client.request("GET", "/version")["gitVersion"]
    for manifest in render(*values, files=files, version=version, progress=progress):
        place = INSTALLED.get(manifest["kind"])
        if place is not None:
            apply(client, place[0].format(namespace=manifest["metadata"].get("namespace", "")), manifest)
    wait_for(lambda: _served(client), "the API server to serve our kinds")


def start_operator(cluster: LocalCluster, *arguments: str) -> Path:
    """Start the operator as a process of the cluster, with the permissions of the chart's service account.

    Args:
        cluster: the cluster, in which the chart is installed.
        arguments: further arguments of `trimtab run`.

    Returns:
        The path of its log.

    Raises:
        LocalError: the operator did not become ready.
    """
    kubeconfig = cluster.service_account_kubeconfig(
        NAMESPACE, RELEASE, path=cluster.layout.kubeconfig(OPERATOR), seconds=_TOKEN_SECONDS
    )
    return cluster.start_operator(kubeconfig, f"--lease-namespace={NAMESPACE}", *arguments)


def _served(client: Client) -> bool:
    wanted = ("deschedulerpolicies", "deschedulingruns")
    try:
        resources = client.request("GET", "/apis/trimtab.dev/v1alpha1")["resources"]
        if not set(wanted) <= {resource["name"] for resource in resources}:
            return False
        for plural in wanted:
            client.request("GET", f"/apis/trimtab.dev/v1alpha1/{plural}")
    # A new group is not served at once, and its storage is at first "(re)initializing".
    except (NotFound, TooManyRequests, ServerError, Unreachable):
        return False
    return True


class OperatorProcess:
    """`trimtab run` as a child process, logged in as the chart's service account.

    Args:
        target: the cluster.
        directory: the directory of its kubeconfig and its log.
        arguments: further arguments of `trimtab run`.
        name: the name of its log and its kubeconfig.
        account: the service account. The default is the one that all controllers share.

    Attributes:
        patience: multiplies the deadlines of starts and stops, for slow machines.
    """

    patience: float = 1.0

    def __init__(
        self, target: Target, directory: Path, *arguments: str, name: str = "operator", account: str = RELEASE
    ) -> None:
        self.log = directory / f"{name}.log"
        self.kubeconfig = target.service_account_kubeconfig(NAMESPACE, account, path=directory / f"{name}.kubeconfig")
        self._arguments = arguments
        self.port = choose_ports([OPERATOR])[OPERATOR]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id."""
        assert self._process is not None
        return self._process.pid

    def start(self, *, ready: bool = True) -> None:
        """Start the process and, if ``ready``, wait until its caches have synced.

        Raises:
            TimeoutError: the process did not become ready in time, or it ended. It does not run any more.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if not ready:
            return
        timeout = _READY_SECONDS * self.patience
        try:
            wait_for(self.ready, f"the operator to be ready (its log: {self.log})", timeout=timeout, alive=self.running)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def _command(self, *program: str) -> list[str]:
        """Return the command line; ``program`` replaces `trimtab` as the entry point."""
        run = ["run", f"--kubeconfig={self.kubeconfig}", f"--lease-namespace={NAMESPACE}"]
        listen = f"--listen=127.0.0.1:{self.port}"
        return [*(program or (sys.executable, "-m", "trimtab")), *run, listen, *self._arguments]

    def running(self) -> bool:
        """Return whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def ready(self) -> bool:
        """Return whether /readyz responds with success."""
        return self.get("/readyz") is not None

    def get(self, path: str) -> str | None:
        """Return the body of a probe or of /metrics, or ``None`` if the response is not 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return None

    def stop(self, how: signal.Signals = signal.SIGTERM, *, timeout: float = 40.0) -> int:
        """Send a signal and wait until the process ends, ``timeout`` seconds multiplied by ``patience``.

        Return its exit status; if negative, the signal that ended it.

        Raises:
            subprocess.TimeoutExpired: the process did not end in time. It was killed.
        """
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, how)
        try:
            return self._process.wait(timeout * self.patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


@contextmanager
def operator(target: Target, directory: Path, *arguments: str) -> Iterator[OperatorProcess]:
    """Run the operator during the block."""
    process = OperatorProcess(target, directory, *arguments)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def wait_for(
    condition: Any, what: str, *, timeout: float = 90.0, alive: Any = lambda: True, interval: float = 0.25
) -> None:
    """Poll until the condition is true.

    Raises:
        TimeoutError: the condition was not true in time, or the process that should make it true has ended.
    """
    deadline = time.monotonic() + timeout
    while not condition():
        if not alive():
            raise TimeoutError(f"died while waiting for {what}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout:.0f} s for {what}")
        time.sleep(interval)
