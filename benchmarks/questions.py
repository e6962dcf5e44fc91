"""Measures the commands that answer the questions of administrators, each as a process of its own.

``python benchmarks/questions.py [--json] [--nodes N] [--pods N] [--times N]``

The cluster is the one of ``tests/fixtures/story.py``, in which each question has an answer, plus generated nodes and
pods, in a file. The time is that from the start of the process to the last byte of JSON, so it includes the start of
Python and reading the file. ``docs/tasks/answers.md`` lists the questions. Question 20 is about a live cluster, see
:mod:`benchmarks.serving`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT / "local"), str(ROOT)]

from tests.fixtures.story import CREATED, NOW, cluster, policies  # noqa: E402

OWNER_SIZE: Final = 20
"""Pods per generated ReplicaSet."""

Manifest = dict[str, Any]


def questions(directory: Path) -> dict[str, list[str]]:
    """Return the command of each question, without ``-o json``.

    Args:
        directory: of the files ``cluster.json``, ``before.json`` and ``policy.json``.
    """
    source = ["--cluster", str(directory / "cluster.json")]
    now = [*source, "--now", NOW]
    return {
        "1 Why is this pod pending?": ["explain", "pod", "shop/big-1", *now],
        "2 Why was it evicted?": ["explain", "pod", "shop/gone-1", *now],
        "3 Why was it not evicted?": ["explain", "pod", "shop/db-1", *now],
        "4 When will it be evicted?": ["explain", "pod", "shop/late-1", *now],
        "5 Where would it fit?": ["explain", "pod", "shop/web-1", *now],
        "6 What would make it fit?": ["explain", "pod", "shop/big-1", *now],
        "7 Why is this node not removed?": ["explain", "node", "a1", *now],
        "8 Which pods block its removal?": ["explain", "node", "b1", *now],
        "9 Why this node group?": ["explain", "nodegroup", "workers", *now],
        "10 What would this policy change?": ["plan", "--policy", str(directory / "policy.json"), *now],
        "11 Who cordoned it?": ["explain", "node", "b2", *now],
        "12 What did it do last night?": ["history", "--since", "2026-11-20T00:00:00Z", *source],
        "13 What is it about to do?": ["plan", *now],
        "14 What if this zone failed?": ["what-if", "--without", "zone=zone-a", *now],
        "15 How much would be saved?": ["plan", *now],
        "16 Which budgets block?": ["explain", "pdb", *now],
        "17 Which pods are never evicted?": ["explain", "protections", *now],
        "18 What changed since yesterday?": ["diff", str(directory / "before.json"), source[1]],
        "19 Is it healthy?": ["status", *source],
    }


def write_files(directory: Path, *, nodes: int, pods: int) -> None:
    """Write the cluster, the cluster before a node was added, and a policy."""
    story = cluster()
    items = [*story["items"], *_generated(nodes, pods)]
    (directory / "cluster.json").write_text(json.dumps({**story, "items": items}))
    before = [each for each in items if (each["kind"], each["metadata"]["name"]) != ("Node", "node-00000")]
    (directory / "before.json").write_text(json.dumps({**story, "items": before}))
    (directory / "policy.json").write_text(json.dumps(policies()[0]))


def _generated(nodes: int, pods: int) -> Iterator[Manifest]:
    """Yield nodes of 8 cpu in three zones, and pods of 150m, so that a node of 30 pods has no place for 3900m."""
    for number in range(nodes):
        yield _node(f"node-{number:05}", f"zone-{'abc'[number % 3]}")
    for owner in range(-(-pods // OWNER_SIZE)):
        yield _replica_set(f"app-{owner:05}")
    for number in range(pods):
        yield _pod(number, f"node-{number % nodes:05}")


def _node(name: str, zone: str) -> Manifest:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": NOW, "lastTransitionTime": CREATED}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": CREATED, "labels": labels},
        "spec": {"providerID": f"local://{name}"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _replica_set(app: str) -> Manifest:
    labels = {"app": app}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": app, "namespace": "shop", "uid": f"uid-{app}", "creationTimestamp": CREATED},
        "spec": {
            "replicas": OWNER_SIZE,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}},
        },
        "status": {"replicas": OWNER_SIZE},
    }


def _pod(number: int, node: str) -> Manifest:
    app = f"app-{number // OWNER_SIZE:05}"
    name = f"{app}-{number:06}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": f"uid-{app}", "controller": True}
    requests = {"cpu": "150m", "memory": "256Mi"}
    container = {"name": "main", "image": f"registry.example/{app}:1", "resources": {"requests": requests}}
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": CREATED} for kind in ("PodScheduled", "Ready")]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "creationTimestamp": CREATED,
            "labels": {"app": app},
            "ownerReferences": [owner],
        },
        "spec": {"schedulerName": "default-scheduler", "nodeName": node, "containers": [container]},
        "status": {"phase": "Running", "conditions": conditions, "startTime": CREATED},
    }


def measure(command: list[str], times: int) -> tuple[float, float]:
    """Return the medians of the seconds and of the CPU seconds of several runs of a command.

    Raises:
        SystemExit: with the command's error output, if it fails.
    """
    taken, cpu = [], []
    for _ in range(times):
        started, before = time.perf_counter(), _cpu_of_children()
        done = subprocess.run(
            [sys.executable, "-m", "trimtab", *command, "-o", "json"], capture_output=True, check=False, text=True
        )
        taken.append(time.perf_counter() - started)
        cpu.append(_cpu_of_children() - before)
        if done.returncode:
            raise SystemExit(f"trimtab {' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    return statistics.median(taken), statistics.median(cpu)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the time of each command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=1000, help="generated nodes (default: 1000)")
    parser.add_argument("--pods", type=int, help="generated pods (default: 30 per node)")
    parser.add_argument("--times", type=int, default=3, help="runs of each command, of which the median is printed")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    options = parser.parse_args()
    pods = 30 * options.nodes if options.pods is None else options.pods
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as name:
        directory = Path(name)
        write_files(directory, nodes=options.nodes, pods=pods)
        if not options.json:
            size = (directory / "cluster.json").stat().st_size / 1e6
            print(f"{options.nodes} nodes, {pods} pods, {size:.0f} MB; load {os.getloadavg()[0]:.1f}\n")
            print("| Question | Command | Seconds | CPU |\n|---|---|---|---|")
        for question, command in questions(directory).items():
            seconds, cpu = (round(each, 2) for each in measure(command, options.times))
            shown = " ".join(command).replace(f"{directory}/", "").partition(" --cluster")[0]
            result = {"name": question, "command": shown, "seconds": seconds, "cpu": cpu}
            print(json.dumps(result) if options.json else f"| {question} | `{shown}` | {seconds} | {cpu} |", flush=True)


if __name__ == "__main__":
    main()
