"""Measures the questions of administrators on a live cluster: served from the operator's memory, from a file, and cold.

``python benchmarks/serving.py --name CLUSTER [--json] [--times N] [--callers N] [--seconds S] [--skip PART]…``

The cluster is one of ``trimtab local up --for-load``, filled by ``trimtab local load``. The benchmark adds a namespace
in which the questions have answers, and installs the chart with the inspection API. It runs the operator as a process
with the permissions of the chart, twice: without and with the API.

``questions`` runs each command as a process of its own, from its start to the last byte of JSON: ``cold`` reads the
cluster from the API server, ``saved`` reads a file of ``trimtab snapshot``, and ``served`` asks the operator.
``callers`` sends requests to the inspection API from several connections, through the aggregation layer, and samples
the lag of the operator's event loop. ``memory`` is the operator's resident memory before and after.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from benchmarks.processes import cpu_seconds, memory_mb, settle  # noqa: E402
from trimtab.inspection.planning import UNCHANGED_SECONDS  # noqa: E402
from trimtab.kube.api import ApiError, Conflict, NotFound  # noqa: E402
from trimtab.kube.resources import (  # noqa: E402
    API_SERVICES,
    BUDGETS,
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    HISTORY_RECORDS,
    PODS,
    TAINT_MANAGERS,
    Resource,
)
from trimtab_local.client import Client  # noqa: E402
from trimtab_local.cluster import LocalCluster  # noqa: E402
from trimtab_local.install import NAMESPACE, OperatorProcess, apply, install, render, wait_for  # noqa: E402
from trimtab_local.loop_lag import loop_lags  # noqa: E402
from trimtab_local.machines import definitions  # noqa: E402

SHOP: Final = "bench-shop"
MACHINES: Final = "openshift-machine-api"
VALUE: Final = "inspectionApi.enabled=true"
SERVICE: Final = "trimtab-inspection"
API_SERVICE: Final = "v1alpha1.inspection.trimtab.dev"
PREFIX: Final = "/apis/inspection.trimtab.dev/v1alpha1"
PATIENCE: Final = 600.0

Manifest = dict[str, Any]
Result = dict[str, Any]


# --- the cluster ------------------------------------------------------------------------------------------------------


def policy() -> Manifest:
    """Return the DeschedulerPolicy, which evicts nothing."""
    spec = {"mode": "Simulate", "interval": "5m", "strategies": {"RemoveDuplicates": {"enabled": True}}}
    return _object(DESCHEDULER_POLICIES, "default", spec=spec)


def _object(resource: Resource, name: str, *, namespace: str = "", **fields: Any) -> Manifest:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}


def prepare(cluster: LocalCluster) -> None:
    """Install the chart, and create the objects that the questions are about, if they do not exist."""
    client = cluster.client
    definitions.install(client)
    install(cluster, VALUE)
    for manifest in render(VALUE):
        if manifest["kind"] == "Secret":
            apply(client, f"/api/v1/namespaces/{NAMESPACE}/secrets", manifest)
    for name in (SHOP, MACHINES):
        apply(client, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for app, replicas, cpu in (("web", 3, "100m"), ("db", 2, "100m"), ("big", 1, "64")):
        _create(client, f"/apis/apps/v1/namespaces/{SHOP}/replicasets", _replica_set(app, replicas, cpu))
    budget = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "db"}}}
    _create(client, BUDGETS.path(namespace=SHOP), _object(BUDGETS, "db", namespace=SHOP, spec=budget))
    scale_down = {"scaleDown": {"enabled": True, "unneededTime": "24h"}}
    _create(client, CLUSTER_AUTOSCALERS.path(), _object(CLUSTER_AUTOSCALERS, "default", spec=scale_down))
    _create(client, TAINT_MANAGERS.path(), _object(TAINT_MANAGERS, "default", spec={"mode": "Observe"}))
    _create(client, DESCHEDULER_POLICIES.path(), policy())
    evicted = {
        "time": "2026-11-20T10:00:00Z",
        "controller": "descheduler",
        "action": "Evict",
        "reason": "DuplicateOnNode",
        "result": "Succeeded",
        "policy": "default",
        "strategy": "RemoveDuplicates",
        "namespace": SHOP,
        "pod": "gone-1",
        "node": "node-1",
    }
    _create(client, HISTORY_RECORDS.path(), _object(HISTORY_RECORDS, "bench", spec={"entries": [evicted]}))
    _create(client, f"/apis/machine.openshift.io/v1beta1/namespaces/{MACHINES}/machinesets", _machine_set("workers"))
    wait_for(
        lambda: len(_running(client, "db")) == 2 and len(_running(client, "web")) == 3, "the pods", timeout=PATIENCE
    )


def _create(client: Client, path: str, manifest: Manifest) -> None:
    with suppress(Conflict):
        client.request("POST", path, manifest)


def _replica_set(app: str, replicas: int, cpu: str) -> Manifest:
    labels = {"app": app}
    container = {"name": "main", "image": "registry.example/app", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _machine_set(name: str) -> Manifest:
    """Return a MachineSet whose nodes would be too small for the pending pod, so that it stays empty."""
    prefix = "machine.openshift.io/cluster-api-autoscaler-node-group"
    annotations = {
        f"{prefix}-min-size": "0",
        f"{prefix}-max-size": "5",
        "machine.openshift.io/vCPU": "4",
        "machine.openshift.io/memoryMb": "16384",
    }
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"group": name}}, "template": {"spec": {}}},
    }


def _running(client: Client, app: str) -> list[Manifest]:
    found: list[Manifest] = client.request("GET", PODS.path(namespace=SHOP), params={"labelSelector": f"app={app}"})[
        "items"
    ]
    return [each for each in found if each["status"].get("phase") == "Running"]


# --- the commands -----------------------------------------------------------------------------------------------------


def commands(client: Client, directory: Path) -> dict[str, list[str]]:
    """Return the commands by the numbers of the questions of docs/tasks/answers.md that they answer."""
    web, node = _running(client, "web")[0], _running(client, "db")[0]["spec"]["nodeName"]
    [big] = client.request("GET", PODS.path(namespace=SHOP), params={"labelSelector": "app=big"})["items"]
    file = directory / "policy.json"
    file.write_text(json.dumps(policy()))
    return {
        "1, 6": ["explain", "pod", f"{SHOP}/{big['metadata']['name']}"],
        "2": ["explain", "pod", f"{SHOP}/gone-1"],
        "3, 4, 5": ["explain", "pod", f"{SHOP}/{web['metadata']['name']}"],
        "7, 8, 11": ["explain", "node", node, "--no-stats"],
        "9": ["explain", "nodegroup", f"{MACHINES}/workers"],
        "10": ["plan", "--policy", str(file)],
        "12": ["history", "--since", "12h"],
        "13, 15": ["plan"],
        "14": ["what-if", "--without", "topology.kubernetes.io/zone=zone-a"],
        "16": ["explain", "pdb"],
        "17": ["explain", "protections"],
        "18": ["diff", str(directory / "before.json")],
        "19, 20": ["status"],
    }


SERVED: Final = ("1, 6", "2", "3, 4, 5", "7, 8, 11", "9", "13, 15", "16", "17")
"""The questions that the operator answers."""
DIRECT: Final = "--direct"


def run(command: list[str], *, file: Path | None = None) -> Result:
    """Run a command, and return its elapsed time, its CPU seconds and its peak memory.

    Args:
        command: the command, without the output format.
        file: takes its output; ``None`` to discard it.

    Raises:
        SystemExit: the command failed.
    """
    full = [sys.executable, "-m", "trimtab", *command]
    with Path(file or os.devnull).open("wb") as output, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(full, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    if process.returncode:
        raise SystemExit(f"trimtab {' '.join(command)}: exit status {process.returncode}\n{text}")
    return {
        "seconds": round(seconds, 2),
        "cpu": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": usage.ru_maxrss // 1024,
        "fell_back": "reading the cluster" in text,
    }


def measure(asked: dict[str, list[str]], how: str, options: list[str], times: int) -> Iterator[Result]:
    """Run commands with further options, and yield the fastest run of each."""
    for numbers, command in asked.items():
        more = ["-o", "json", *(options[1:] if options[0] == "--cluster" and command[0] == "diff" else options)]
        if how == "cold" and numbers in SERVED:
            more.append(DIRECT)
        runs = [run([*command, *more]) for _ in range(times)]
        yield {
            "name": f"question {numbers}",
            "how": how,
            "command": _shown(command),
            **min(runs, key=lambda each: each["seconds"]),
            "first": runs[0]["seconds"],
            "fell_back": sum(each["fell_back"] for each in runs),
            "load": round(os.getloadavg()[0], 1),
        }


def _shown(command: list[str]) -> str:
    return " ".join(Path(each).name if each.startswith("/") else each for each in command)


# --- the operator -----------------------------------------------------------------------------------------------------


@contextmanager
def operating(cluster: LocalCluster, directory: Path, *arguments: str, name: str) -> Iterator[OperatorProcess]:
    """Run the operator until it is idle, and during the block."""
    process = OperatorProcess(cluster, directory, *arguments, name=name)
    process.start(ready=False)
    try:
        wait_for(process.ready, f"the operator (log: {process.log})", timeout=PATIENCE, alive=process.running)
        settle(process.pid)
        yield process
    finally:
        process.stop()


@contextmanager
def serving(cluster: LocalCluster, directory: Path) -> Iterator[OperatorProcess]:
    """Run the operator with the inspection API behind the aggregation layer."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE}, "spec": spec}
    apply(cluster.client, f"/api/v1/namespaces/{NAMESPACE}/services", service)
    arguments = (f"--inspection-api-listen=127.0.0.1:{port}", f"--inspection-api-service-port={port}")
    with operating(cluster, directory, *arguments, f"--inspection-api-service={SERVICE}", name="serving") as process:
        wait_for(lambda: _available(cluster.client), f"the APIService (log: {process.log})", timeout=PATIENCE)
        yield process


def _available(client: Client) -> bool:
    try:
        conditions = client.request("GET", API_SERVICES.path(API_SERVICE)).get("status", {}).get("conditions", [])
    except NotFound:
        return False
    return any(each["type"] == "Available" and each["status"] == "True" for each in conditions)


def call(cluster: LocalCluster, process: OperatorProcess, *, callers: int, seconds: float) -> Result:
    """Ask for explanations of pods and nodes from several connections, and return the latencies and the lag."""
    client, paths = cluster.client, _paths(cluster.client)
    begin = loop_lags(process)
    time.sleep(seconds / 2)
    quiet = loop_lags(process) - begin
    taken: list[float] = []
    refused: list[int] = []
    ends = time.monotonic() + seconds

    def ask(own: Iterator[str]) -> None:
        for path in own:
            if time.monotonic() >= ends:
                return
            began = time.perf_counter()
            try:
                client.request("GET", path, timeout=60)
                taken.append(time.perf_counter() - began)
            except ApiError as error:
                refused.append(error.status)
                time.sleep(1.0)

    before = cpu_seconds(process.pid)
    threads = [
        threading.Thread(target=ask, args=(itertools.cycle(paths[number::callers]),)) for number in range(callers)
    ]
    for each in threads:
        each.start()
    began = loop_lags(process)
    for each in threads:
        each.join()
    busy = loop_lags(process) - began
    taken.sort()
    return {
        "name": "callers",
        "callers": callers,
        "seconds": seconds,
        "answers": len(taken),
        "refused": len(refused),
        "p50_ms": _milliseconds(taken, 0.5),
        "p99_ms": _milliseconds(taken, 0.99),
        "lag_quiet_p99_ms": round(1000 * quiet.quantile(0.99), 1),
        "lag_busy_p50_ms": round(1000 * busy.quantile(0.5), 1),
        "lag_busy_p99_ms": round(1000 * busy.quantile(0.99), 1),
        "operator_cpu": round(cpu_seconds(process.pid) - before, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def _paths(client: Client) -> list[str]:
    pods = client.request("GET", "/api/v1/pods", params={"limit": "200"})["items"]
    nodes = client.request("GET", "/api/v1/nodes", params={"limit": "40"})["items"]
    of_pods = [
        f"{PREFIX}/namespaces/{each['metadata']['namespace']}/pods/{each['metadata']['name']}/explanation"
        for each in pods
    ]
    return of_pods + [f"{PREFIX}/nodes/{each['metadata']['name']}/explanation" for each in nodes]


def _milliseconds(values: list[float], share: float) -> float | None:
    return round(1000 * values[min(len(values) - 1, int(len(values) * share))], 1) if values else None


def request_seconds(client: Client, path: str) -> list[float]:
    """Return the seconds of several requests for a document, the first one with a new joint plan."""
    found = []
    for _ in range(3):
        began = time.perf_counter()
        client.request("GET", f"{PREFIX}/{path}", timeout=60)
        found.append(round(time.perf_counter() - began, 3))
    return found


# --- the benchmark ----------------------------------------------------------------------------------------------------


def results(options: argparse.Namespace, directory: Path) -> Iterator[Result]:
    """Measure, and yield the results."""
    cluster = LocalCluster(options.name)
    prepare(cluster)
    client, kubeconfig = cluster.client, f"--kubeconfig={cluster.kubeconfig}"
    asked = commands(client, directory)
    if "served" not in options.skip:
        yield from _served(cluster, directory, asked, options)
    if "plain" not in options.skip:
        with operating(cluster, directory, name="plain") as process:
            yield {"name": "memory without the API", "idle_mb": memory_mb(process.pid, "VmRSS")}
    if "cold" not in options.skip:
        live = {numbers: command for numbers, command in asked.items() if command[0] != "diff"}
        yield from measure(live, "cold", [kubeconfig], options.times)
    if "saved" not in options.skip:
        file = directory / "before.json"
        yield {"name": "snapshot", **run(["snapshot", kubeconfig], file=file)}
        yield from measure(asked, "saved", ["--cluster", str(file)], options.times)


def _served(
    cluster: LocalCluster, directory: Path, asked: dict[str, list[str]], options: argparse.Namespace
) -> Iterator[Result]:
    """Measure what the operator answers, and its memory."""
    client, kubeconfig = cluster.client, f"--kubeconfig={cluster.kubeconfig}"
    with serving(cluster, directory) as process:
        before = memory_mb(process.pid, "VmRSS")
        web, node = asked["3, 4, 5"][2].partition("/")[2], asked["7, 8, 11"][2]
        for path in (f"namespaces/{SHOP}/pods/{web}/explanation", f"nodes/{node}/explanation"):
            used = cpu_seconds(process.pid)
            taken = request_seconds(client, path)
            name = f"request {path.split('/')[-3]}"
            yield {"name": name, "seconds": taken, "operator_cpu": round(cpu_seconds(process.pid) - used, 2)}
            time.sleep(UNCHANGED_SECONDS)  # until the plan is too old
        served = {numbers: command for numbers, command in asked.items() if numbers in SERVED}
        yield from measure(served, "served", [kubeconfig], max(2, options.times))
        after_questions = memory_mb(process.pid, "VmRSS")
        yield call(cluster, process, callers=options.callers, seconds=options.seconds)
        after_callers = memory_mb(process.pid, "VmRSS")
        time.sleep(75)  # the operator returns free memory to the kernel every 30 seconds
        yield {
            "name": "memory with the API",
            "idle_mb": before,
            "after_questions_mb": after_questions,
            "after_callers_mb": after_callers,
            "a_minute_later_mb": memory_mb(process.pid, "VmRSS"),
            "peak_mb": memory_mb(process.pid, "VmHWM"),
        }


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--name", required=True, help="the local cluster")
    parser.add_argument("--times", type=int, default=1, help="runs of each command, of which the fastest is printed")
    parser.add_argument("--callers", type=int, default=10, help="concurrent connections (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long they ask (default: %(default)s)")
    parser.add_argument("--skip", action="append", default=[], choices=["served", "plain", "cold", "saved"])
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    show: Callable[[Result], str] = json.dumps if options.json else _format
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        for each in results(options, Path(name)):
            print(show(each), flush=True)


def _format(result: Result) -> str:
    return " | ".join(str(value) if key == "name" else f"{key} {value}" for key, value in result.items())


if __name__ == "__main__":
    main()
