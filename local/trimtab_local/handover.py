"""Hands the nodes and pods of a kwok process that has ended over to a new one.

What can go wrong, and what happens then:

- kwok manages only nodes whose Lease it holds, and each process is another holder. So the Leases of the old process are
  deleted before the new process starts. Otherwise it would wait until they expire.
- kwok lists Leases from the API server's cache. If the cache still shows a deleted Lease, kwok tries again only after a
  quarter of the Lease's duration. So the deletion ends when the cache shows it.
- kwok lists the pods of a node once, after it created the node's Lease. If its watch does not show the Lease yet, kwok
  ignores the pods until they change. So the pods that still wait are changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from trimtab.kube.api import Conflict, NotFound
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import LEASES, NODES, PODS
from trimtab.kube.verbs import MERGE_PATCH
from trimtab_local.client import Client
from trimtab_local.nodes import SILENT

REPLAYED: Final = "local.trimtab.dev/replayed"
"""Annotation that is changed so that kwok receives an event of a pod."""

LEASES_PATH: Final = LEASES.path(namespace=NODE_LEASES)
"""Path of the nodes' Leases."""

_POLL: Final = 0.1
_RELEASE_PATIENCE: Final = 10.0
"""Seconds to wait until no Lease is left. Another client than kwok may renew some of them."""

_HOLD_PATIENCE: Final = 30.0
"""Seconds to wait until kwok holds all Leases. Its flags may exclude nodes."""

_REPLAYS: Final = 10
_REPLAY_INTERVAL: Final = 0.5
"""Seconds before each change of a pod."""

_PAGE: Final = 1000


def release_nodes(client: Client) -> None:
    """Delete the Leases of all nodes, so that a new kwok process manages the nodes at once."""
    client.request("DELETE", LEASES_PATH, timeout=120)
    _wait(lambda: not _names(client, LEASES_PATH), _RELEASE_PATIENCE)


def replay_pods(client: Client) -> None:
    """Change the pods that wait for a new kwok process, so that it acts on them.

    Args:
        client: a client of a cluster whose kwok process started after :func:`release_nodes`.
    """
    _wait(lambda: _names(client, NODES.path(), f"!{SILENT}") <= _names(client, LEASES_PATH), _HOLD_PATIENCE)
    waiting = _waiting_pods(client)
    for attempt in range(_REPLAYS):
        if not waiting:
            return
        time.sleep(_REPLAY_INTERVAL)
        waiting = [pod for pod in waiting if _replay(client, pod, attempt)]


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(_POLL)


def _names(client: Client, path: str, selector: str = "") -> set[str]:
    """Return the names of the objects in the API server's cache."""
    params = {"resourceVersion": "0", "labelSelector": selector}
    listed = client.request("GET", path, params=params, timeout=120)
    return {each["metadata"]["name"] for each in listed["items"]}


def _waiting_pods(client: Client) -> list[dict[str, Any]]:
    """Return the pods on nodes that kwok manages that have not started or are terminating."""
    managed = _names(client, NODES.path(), f"!{SILENT}")
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        params = {"limit": str(_PAGE), "continue": token}
        page = client.request("GET", PODS.path(), params=params, timeout=120)
        found += [pod for pod in page["items"] if pod["spec"].get("nodeName") in managed and _waits(pod)]
        token = page["metadata"].get("continue", "")
        if not token:
            return found


def _waits(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in pod["metadata"] or pod.get("status", {}).get("phase") == "Pending"


def _replay(client: Client, pod: Mapping[str, Any], attempt: int) -> bool:
    """Change an annotation of a pod, and return whether the pod still waits."""
    metadata = pod["metadata"]
    path = PODS.path(metadata["name"], namespace=metadata["namespace"])
    patch = {"metadata": {"uid": metadata["uid"], "annotations": {REPLAYED: str(attempt)}}}
    try:
        return _waits(client.request("PATCH", path, patch, content_type=MERGE_PATCH))
    except (Conflict, NotFound):  # it terminated
        return False
