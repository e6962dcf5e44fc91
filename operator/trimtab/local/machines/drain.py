"""Emptying a node before its machine goes, as the Machine API does: cordon, evict under disruption budgets, wait.

The Machine API drains whatever was drained before, by rules of its own: all pods but those of DaemonSets and static
ones, without a limit of time. A scaler that has drained the node finds nothing more to wait for.
"""

from __future__ import annotations

from typing import Any, Final

from trimtab.kube import verbs
from trimtab.kube.api import Api, NotFound, TooManyRequests
from trimtab.kube.eviction import evict
from trimtab.kube.resources import NODES, PODS

AGAIN: Final = 1.0
"""Seconds between two looks at pods that are still there."""

_MIRROR: Final = "kubernetes.io/config.mirror"


async def drained(api: Api, node: str) -> bool:
    """Ask for what is still on the node to go; whether nothing is left.

    Raises:
        ApiError: the API server refused for another cause than a budget.
        Unreachable: no answer came.
    """
    try:
        await verbs.merge_patch(api, NODES, node, {"spec": {"unschedulable": True}})
    except NotFound:
        return True
    found = await verbs.list_objects(api, PODS, field_selector=f"spec.nodeName={node}")
    left = [pod for pod in found.items if _goes(pod)]
    for pod in left:
        metadata = pod["metadata"]
        if "deletionTimestamp" in metadata:
            continue
        try:
            await evict(api, namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
        except TooManyRequests:
            continue  # an overloaded server; the next look asks again
    return not left


def _goes(pod: dict[str, Any]) -> bool:
    metadata = pod["metadata"]
    owners = metadata.get("ownerReferences") or ()
    daemon = any(owner.get("controller") and owner.get("kind") == "DaemonSet" for owner in owners)
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not (daemon or over or _MIRROR in (metadata.get("annotations") or {}))
