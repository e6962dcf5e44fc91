"""The runs themselves: Kubernetes' e2e binary against a local control plane of either side."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from tools.conformance.results import KUBERNETES, TRIMTAB, Result, read_report
from trimtab.kube.resources import Resource
from trimtab_local import LocalError
from trimtab_local.binaries import Builder, given_directory
from trimtab_local.cluster import LocalCluster, await_nodes
from trimtab_local.components import DEFAULT_COMPONENTS, Settings
from trimtab_local.install import OperatorProcess, install, wait_for
from trimtab_local.nodes import numbered
from trimtab_local.progress import Progress, Task
from trimtab_local.versions import DEFAULT_VERSION, SCHEDULER, Build

BINARY: Final = "kubernetes-e2e"
NODES: Final = 4
"""Three zones, one of them with two nodes."""
_NODE_NAMES: Final = frozenset(manifest["metadata"]["name"] for manifest in numbered(NODES))

_BUILD: Final = Build(module="module", package=".", version=DEFAULT_VERSION)

SETTINGS: Final = Settings()
"""Kubernetes' side: all components as they are."""
REPLACED: Final = replace(
    SETTINGS,
    components=tuple(component for component in DEFAULT_COMPONENTS if component != SCHEDULER),
    node_lifecycle=False,
)
"""Our side: no kube-scheduler, and kube-controller-manager without the controllers of taints."""

CHART_VALUES: Final = (
    "controllers.descheduler.enabled=false",
    "controllers.clusterAutoscaler.enabled=false",
    "controllers.scheduler.enabled=true",
    "controllers.taintManager.enabled=true",
    "controllers.taintManager.rights=TaintAndEvict",
)
CONTROLLERS: Final = "scheduler,tainting"
OBJECTS: Final[tuple[tuple[Resource, dict[str, Any]], ...]] = (
    (
        Resource("trimtab.dev", "v1alpha1", "schedulerpolicies", "SchedulerPolicy", namespaced=False),
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "SchedulerPolicy",
            "metadata": {"name": "default-scheduler"},
            "spec": {"schedulerName": "default-scheduler"},
        },
    ),
    (
        Resource("trimtab.dev", "v1alpha1", "taintmanagers", "TaintManager", namespaced=False),
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "TaintManager",
            "metadata": {"name": "default"},
            "spec": {"mode": "TaintAndEvict"},
        },
    ),
)


def binary(progress: Progress) -> Path:
    """Return the e2e binary: from ``KUBEBUILDER_ASSETS``, from the cache, or built, which takes some minutes once.

    Raises:
        LocalError: it cannot be built.
    """
    given = given_directory(None)
    if given is not None and os.access(given / BINARY, os.X_OK):
        return given / BINARY
    builder = Builder(progress=progress, builds={BINARY: _BUILD}, modules=Path(__file__).parent)
    return builder.ensure([BINARY])[BINARY]


def file_name(group: str) -> str:
    """Return the stem of the names of a group's reports and logs."""
    return group.replace(" ", "-")


@contextlib.contextmanager
def cluster_of(side: str, group: str, directory: Path, progress: Progress) -> Iterator[LocalCluster]:
    """Run a new cluster of the side for a group of specs while the block runs, on our side with trimtab in it.

    Args:
        side: one of :data:`tools.conformance.results.SIDES`.
        group: one of :data:`tools.conformance.results.GROUPS`.
        directory: the directory for the log of trimtab.
        progress: receives the steps.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trimtab-conformance-") as state:
        cluster = LocalCluster(f"conformance-{os.getpid()}", directory=Path(state) / "cluster", progress=progress)
        try:
            cluster.up(SETTINGS if side == KUBERNETES else REPLACED, nodes=NODES, die_with_parent=True)
            with contextlib.ExitStack() as stack:
                if side == TRIMTAB:
                    stack.enter_context(_operator(cluster, directory, name=f"{file_name(group)}-operator"))
                _create_system_pods(cluster)
                yield cluster
        finally:
            cluster.down()


def system_pods() -> dict[str, Any]:
    """Return a DaemonSet whose pods play the system pods of the nodes.

    Many specs wait up to a minute until each node runs kube-proxy, fluentd-elasticsearch and node-problem-detector,
    which they recognize by the names of the pods. The name of this DaemonSet contains all three.
    """
    labels = {"app": "system-pods"}
    spec = {
        "priorityClassName": "system-node-critical",
        "tolerations": [{"operator": "Exists"}],
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "none"}],
    }
    return {
        "metadata": {"name": "kube-proxy-fluentd-elasticsearch-node-problem-detector"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }


def _create_system_pods(cluster: LocalCluster) -> None:
    path = Resource("apps", "v1", "daemonsets", "DaemonSet").path(namespace="kube-system")
    created = cluster.client.request("POST", path, system_pods())["metadata"]["name"]

    def ready() -> bool:
        return cluster.client.request("GET", f"{path}/{created}")["status"]["numberReady"] == NODES

    wait_for(ready, "the system pods to be ready")


@contextlib.contextmanager
def _operator(cluster: LocalCluster, directory: Path, *, name: str) -> Iterator[None]:
    """Trimtab as the chart installs it, with the chart's permissions, until the block ends."""
    install(cluster, *CHART_VALUES)
    for resource, manifest in OBJECTS:
        cluster.client.request("POST", resource.path(), manifest)
    process = OperatorProcess(cluster, directory, "--controllers", CONTROLLERS, name=name)
    process.start()
    try:
        await_nodes(cluster.client, _NODE_NAMES)
        yield
    finally:
        process.stop()


def run_group(
    executable: Path, cluster: LocalCluster, group: str, *, focus: str, directory: Path, progress: Progress
) -> dict[str, Result]:
    """Run a group's specs and return their results by name.

    Args:
        executable: the e2e binary.
        cluster: to run them in.
        group: one of :data:`tools.conformance.results.GROUPS`.
        focus: a regular expression that the names of the specs must match as well; ``""`` for all.
        directory: the directory for Ginkgo's JSON and JUnit reports and the output.
        progress: receives the output's last lines.

    Raises:
        LocalError: the binary ended without a report.
    """
    directory.mkdir(parents=True, exist_ok=True)
    name = file_name(group)
    report, log = directory / f"{name}.json", directory / f"{name}.log"
    report.unlink(missing_ok=True)
    command = [
        str(executable),
        f"--kubeconfig={cluster.kubeconfig}",
        "--provider=skeleton",
        f"--num-nodes={NODES}",
        f"--e2e-output-dir={directory}",
        "--ginkgo.v",
        "--ginkgo.no-color",
        "--ginkgo.seed=1",
        rf"--ginkgo.focus=\[sig-[a-z]+\] {re.escape(group)}.*{focus}",
        f"--ginkgo.json-report={report}",
        f"--ginkgo.junit-report={directory / f'{name}.xml'}",
    ]
    with (
        progress.task(group) as task,
        log.open("wb") as output,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=directory
        ) as process,
    ):
        try:
            _await(process, log, task)
        except BaseException:
            process.terminate()  # Ginkgo cleans up and writes its report
            raise
    if not report.exists():
        raise LocalError(f"{executable} ended with status {process.returncode} and no report; its output: {log}")
    return read_report(report.read_bytes(), group)


_DONE: Final = re.compile(r"^• |^S \[SKIPPED\]|^• \[FAILED\]", re.MULTILINE)


def _await(process: subprocess.Popen[bytes], log: Path, task: Task) -> None:
    while process.poll() is None:
        time.sleep(0.5)
        done = len(_DONE.findall(log.read_text("utf-8", errors="replace")))
        task.tick(f"{done} specs done")
