"""Checks the cluster through the API server only: a table of nodes, and the violations on them.

It shares no code with trimtab's planner, so that the check is independent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from examples.demo.scene import CAPACITY, NAMESPACE, NODES
from trimtab.kube.rules.quantity import cpu_millis
from trimtab_local.client import Client

TARGET: Final = 50.0
PROTECTED: Final = {"scratch", "guarded", "bare"}


@dataclass(frozen=True)
class View:
    """The running pods of the demo's namespace, without terminating ones, and the labels of the nodes."""

    pods: tuple[dict[str, Any], ...]
    labels: dict[str, dict[str, str]]

    @classmethod
    def take(cls, client: Client) -> View:
        """Read the current state."""
        pods = client.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        nodes = client.request("GET", "/api/v1/nodes")["items"]
        return cls(
            pods=tuple(pod for pod in pods if not pod["metadata"].get("deletionTimestamp")),
            labels={node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes},
        )

    def on(self, node: str) -> list[dict[str, Any]]:
        """Return the pods on a node."""
        return [pod for pod in self.pods if pod["spec"].get("nodeName") == node]

    def cpu(self, node: str) -> float:
        """Return the requested cpu in percent of allocatable."""
        requests = (
            container["resources"]["requests"]["cpu"]
            for pod in self.on(node)
            for container in pod["spec"]["containers"]
        )
        return 100.0 * sum(cpu_millis(request) for request in requests) / cpu_millis(CAPACITY["cpu"])

    @property
    def settled(self) -> bool:
        """Return whether every pod is running."""
        return all(pod["status"].get("phase") == "Running" for pod in self.pods)

    def protected(self) -> dict[str, tuple[str, str]]:
        """Return node and UID of each pod that must not be evicted, by name."""
        return {
            pod["metadata"]["name"]: (pod["spec"].get("nodeName", ""), pod["metadata"]["uid"])
            for pod in self.pods
            if _app(pod) in PROTECTED
        }

    def violations(self) -> list[str]:
        """Return one line per violation that may be resolved, beginning with the node."""
        found = []
        for node in NODES:
            found += [f"{node}: {problem}" for problem in self._problems(node)]
        return found

    def _problems(self, node: str) -> list[str]:
        movable = [pod for pod in self.on(node) if _app(pod) not in PROTECTED]
        problems = [
            f"{number} pods of {app}" for app, number in sorted(Counter(map(_app, movable)).items()) if number > 1
        ]
        if self.cpu(node) > TARGET:
            problems.append(f"cpu {self.cpu(node):.0f}% > {TARGET:.0f}%")
        if any(_noisy(pod) for pod in movable) and any(_app(pod).startswith("quiet") for pod in movable):
            problems.append("a noisy pod next to quiet ones")
        if any(_app(pod) == "database" for pod in movable) and self.labels[node].get("disk") != "ssd":
            problems.append("database without its ssd")
        return problems


def _app(pod: dict[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get("app", pod["metadata"]["name"]))


def _noisy(pod: dict[str, Any]) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("noisy") == "yes")


def table(before: View, after: View) -> str:
    """Format the state before and after, with one row per node."""
    rows = [("NODE", "PODS", "CPU", "WRONG BEFORE", "PODS", "CPU", "WRONG AFTER")]
    for node in NODES:
        row = [node]
        for view in (before, after):
            problems = ", ".join(line.partition(": ")[2] for line in view.violations() if line.startswith(f"{node}: "))
            row += [str(len(view.on(node))), f"{view.cpu(node):.0f}%", problems or "-"]
        rows.append(tuple(row))  # type: ignore[arg-type]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
