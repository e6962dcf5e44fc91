"""What is written of nodes that are not heard of, and of the pods on nodes that are not ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import rfc3339
from trimtab.kube.objects import ENDED, Node, Pod
from trimtab.tainting.conditions import MARKED, UNKNOWN, ready_status
from trimtab.tainting.health.judging import Judgement

_STOPPED: Final = "Kubelet stopped posting node status."
_NEVER: Final = "Kubelet never posted node status."
"""Upstream's own words: people and alerts look for them."""


class MarkUnknown(Struct, frozen=True):
    """A node's conditions become Unknown.

    Attributes:
        node: its name.
        uid: of the node that is meant.
        operations: a JSON patch for the status subresource; it is refused where the node has been written to since.
        reason: one of :mod:`trimtab.api.reasons`.
        message: the numbers compared.
    """

    node: str
    uid: str
    operations: tuple[Mapping[str, Any], ...]
    reason: str
    message: str


class MarkPodNotReady(Struct, frozen=True, gc=False):
    """A pod on a node that is not ready is not ready either: endpoints leave it out from then on.

    Attributes:
        namespace: of the pod.
        pod: its name.
        uid: of the pod that is meant.
        resource_version: it was planned on; a kubelet that has spoken since makes the write a conflict.
        node: where it is.
        since: when it stopped being ready, in seconds since the epoch.
    """

    namespace: str
    pod: str
    uid: str
    resource_version: str
    node: str
    since: float

    @property
    def body(self) -> dict[str, Any]:
        """A strategic merge patch for the status subresource; conditions are merged by their type."""
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": rfc3339(self.since)}
        return {
            "metadata": {"uid": self.uid, "resourceVersion": self.resource_version},
            "status": {"conditions": [condition]},
        }


def mark_unknown(node: Node, judgement: Judgement, *, now: float) -> MarkUnknown | None:
    """What is to be written of a node that is Unknown; ``None`` where it stands there.

    Args:
        node: as it is.
        judgement: of its life.
        now: seconds since the epoch.
    """
    places = {condition.type: place for place, condition in enumerate(node.conditions)}
    operations: list[dict[str, Any]] = []
    added: list[dict[str, Any]] = []
    for kind in MARKED:
        place = places.get(kind)
        if place is None:
            added.append(_new(node, kind, now))
        elif node.conditions[place].status != UNKNOWN:
            path = f"/status/conditions/{place}"
            operations += [
                {"op": "add", "path": f"{path}/{field}", "value": value}
                for field, value in _said(reasons.NODE_STATUS_UNKNOWN, _STOPPED, now).items()
            ]
    if added and not node.conditions:
        operations += [{"op": "add", "path": "/status/conditions", "value": added}]
    else:
        operations += [{"op": "add", "path": "/status/conditions/-", "value": each} for each in added]
    if not operations:
        return None
    reason = reasons.NODE_STATUS_NEVER_UPDATED if ready_status(node) is None else reasons.NODE_STATUS_UNKNOWN
    return MarkUnknown(
        node=node.name,
        uid=node.uid,
        operations=(
            {"op": "test", "path": "/metadata/uid", "value": node.uid},
            {"op": "test", "path": "/metadata/resourceVersion", "value": node.resource_version},
            *operations,
        ),
        reason=reason,
        message=f"silent for {judgement.silent:.0f}s, may be for {judgement.grace:.0f}s",
    )


def _said(reason: str, message: str, now: float) -> dict[str, str]:
    return {"status": UNKNOWN, "reason": reason, "message": message, "lastTransitionTime": rfc3339(now)}


def _new(node: Node, kind: str, now: float) -> dict[str, str]:
    """A condition that was never there; its heartbeat is the node's creation, as upstream has it."""
    heartbeat = rfc3339(now if node.created is None else node.created)
    return {"type": kind, "lastHeartbeatTime": heartbeat, **_said(reasons.NODE_STATUS_NEVER_UPDATED, _NEVER, now)}


def pods_not_ready(node: str, pods: Iterable[Pod], *, since: float, now: float) -> list[MarkPodNotReady]:
    """The pods on a node that is not ready which still say that they are.

    Those that became ready after the node stopped being so are the word of its kubelet, which lives: they are left.
    By the times in the objects and not by having seen the change: it holds in a later process and for pods that
    come late, which upstream looks after apart.

    Args:
        node: its name; its Ready condition is not True.
        pods: on it.
        since: when it stopped being ready, in seconds since the epoch.
        now: the same of now.
    """
    return [
        MarkPodNotReady(pod.namespace, pod.name, pod.uid, pod.resource_version, node, now)
        for pod in pods
        if pod.ready and pod.phase not in ENDED and (pod.ready_since is None or pod.ready_since <= since)
    ]
