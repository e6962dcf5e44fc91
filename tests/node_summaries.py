"""Summaries of kubelets (``/stats/summary``), for tests of what reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GI = 1024**3
MI = 1024**2
MEASURED = "2026-11-20T11:59:55Z"


def summary(
    node: str,
    available: int,
    pods: Mapping[str, int] | None = None,
    *,
    capacity: int = 10 * GI,
    measured: str = MEASURED,
    **more: Any,
) -> dict[str, Any]:
    """The summary of a node.

    Args:
        node: the name of the node.
        available: available memory in bytes.
        pods: working set in bytes of each pod, by ``namespace/name``; each has a container ``main``.
        capacity: memory capacity in bytes.
        measured: when the kubelet measured it.
        more: further fields of the node, such as ``fs`` and ``rlimit``.
    """
    memory = {"time": measured, "availableBytes": available, "workingSetBytes": capacity - available}
    entries = []
    for key, used in (pods or {}).items():
        namespace, _, name = key.partition("/")
        of_pod = {"time": measured, "workingSetBytes": used, "rssBytes": used}
        entries.append(
            {
                "podRef": {"name": name, "namespace": namespace, "uid": f"pod-{namespace}-{name}"},
                "memory": of_pod,
                "containers": [{"name": "main", "memory": of_pod}],
            }
        )
    return {"node": {"nodeName": node, "memory": memory, **more}, "pods": entries}
