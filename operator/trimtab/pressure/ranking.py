"""Ranks the pods of a node for eviction.

``UsagePriority`` is the kubelet's order (k8s.io/kubernetes v1.36 ``pkg/kubelet/eviction/helpers.go``):

| signal | order |
|---|---|
| memory | usage above the request, lower priority, larger usage minus request |
| disk | the same, with the usage of the file system and the request of ephemeral-storage |
| inodes | the same, with a request of 0: inodes cannot be requested |
| PIDs | lower priority, more processes |

The kubelet subtracts the request of ephemeral-storage, in bytes, from the number of inodes. Therefore it evicts a pod
without a request before a pod that uses more inodes. Here, the number of inodes decides.

``QoS`` is the order of OpenShift 3 (documentation of 3.11, "Eviction of Pods"): BestEffort, Burstable, Guaranteed.
Within a class, pods that use more memory than they request come first, by the difference, then the others by usage.
Disk and inodes are BestEffort resources: within a class, the usage decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api.node_pressure_policy import (
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    QOS,
    Ranking,
)
from trimtab.kube.objects import Pod
from trimtab.kube.rules.quantity import format_rounded
from trimtab.pressure.measurement import PodUsage

MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
INODES: Final = "inodes"
PIDS: Final = "pids"

_RESOURCES: Final = {
    NODEFS_AVAILABLE: EPHEMERAL_STORAGE,
    IMAGEFS_AVAILABLE: EPHEMERAL_STORAGE,
    CONTAINERFS_AVAILABLE: EPHEMERAL_STORAGE,
    NODEFS_INODES_FREE: INODES,
    IMAGEFS_INODES_FREE: INODES,
    CONTAINERFS_INODES_FREE: INODES,
    PID_AVAILABLE: PIDS,
}
_ON_NODEFS: Final = frozenset({NODEFS_AVAILABLE, NODEFS_INODES_FREE})
_ON_IMAGEFS: Final = frozenset({IMAGEFS_AVAILABLE, IMAGEFS_INODES_FREE})
_QOS_ORDER: Final = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


class RankedPod(Struct, frozen=True):
    """A pod in eviction order.

    Attributes:
        pod: the pod.
        usage: its usage of the starved resource, in bytes, inodes or processes; ``None`` if it is unknown.
        request: its request for the resource in the same unit; 0 if the resource cannot be requested.
        message: why the pod has its place in the order.
    """

    pod: Pod
    usage: int | None
    request: int
    message: str

    @property
    def exceeds_request(self) -> bool:
        """Return whether the pod uses more than it requests."""
        return self.usage is not None and self.usage > self.request


def resource_of(signal: str) -> str:
    """Return the resource that runs low: ``memory``, ``ephemeral-storage``, ``inodes`` or ``pids``."""
    return _RESOURCES.get(signal, MEMORY)


def rank(
    pods: Sequence[Pod],
    usage: Mapping[str, PodUsage],
    signal: str,
    *,
    ranking: Ranking,
    dedicated_image_fs: bool,
    split_image_fs: bool = False,
) -> list[RankedPod]:
    """Return the pods in the order in which they are evicted. Pods of equal rank are sorted by namespace and name.

    Args:
        pods: the pods, in any order.
        usage: their usage by ``namespace/name``. Pods without usage, or with that of another UID, come first, as in the
            kubelet.
        signal: the eviction signal whose threshold is due.
        ranking: the order.
        dedicated_image_fs: whether images are on another file system than volumes and logs.
        split_image_fs: whether writable layers are on that of volumes and logs nevertheless.
    """
    resource = resource_of(signal)
    found = []
    for pod in pods:
        used = usage.get(pod.key)
        known = used is not None and (used.uid in {"", pod.uid} or not pod.uid)  # "": metrics.k8s.io
        amount = usage_of(used, signal, dedicated_image_fs, split_image_fs) if used is not None and known else None
        request = pod.spec.requests.get(resource, 0) if resource in {MEMORY, EPHEMERAL_STORAGE} else 0
        found.append(RankedPod(pod, amount, request, _sentence(pod, amount, request, resource, ranking)))
    return sorted(found, key=_by_qos(resource) if ranking == QOS else _by_priority(resource))


def usage_of(usage: PodUsage, signal: str, dedicated_image_fs: bool, split_image_fs: bool = False) -> int:
    """Return a pod's usage of the resource of a signal. A missing value counts as 0, as in the kubelet.

    Without a dedicated file system for images, all of a pod's files are on the one that runs low. With a split one, a
    pod has no files among the images (``buildSignalToRankFunc``).
    """
    resource = resource_of(signal)
    if resource == MEMORY:
        return usage.memory or 0
    if resource == PIDS:
        return usage.processes or 0
    if resource == INODES:
        volumes, layers = (usage.logs_inodes, usage.local_volumes_inodes), (usage.root_inodes,)
    else:
        volumes, layers = (usage.logs, usage.local_volumes), (usage.root,)
    if not dedicated_image_fs:
        return sum(part or 0 for part in (*volumes, *layers))
    if split_image_fs:
        return 0 if signal in _ON_IMAGEFS else sum(part or 0 for part in (*volumes, *layers))
    return sum(part or 0 for part in (volumes if signal in _ON_NODEFS else layers))


_Key = Callable[[RankedPod], tuple[int | bool | str, ...]]


def _by_priority(resource: str) -> _Key:
    def key(each: RankedPod) -> tuple[int | bool | str, ...]:
        usage = each.usage or 0
        if resource == PIDS:
            return (each.pod.priority, each.usage is not None, -usage, each.pod.key)
        return (
            each.usage is not None,
            not each.exceeds_request,
            each.pod.priority,
            each.request - usage,
            each.pod.key,
        )

    return key


def _by_qos(resource: str) -> _Key:
    def key(each: RankedPod) -> tuple[int | bool | str, ...]:
        usage = each.usage or 0
        relative = resource == MEMORY and each.exceeds_request
        return (
            _QOS_ORDER.get(each.pod.spec.qos, 0),
            each.usage is not None,
            resource == MEMORY and not relative,
            each.request - usage if relative else -usage,
            each.pod.key,
        )

    return key


def _sentence(pod: Pod, usage: int | None, request: int, resource: str, ranking: Ranking) -> str:
    place = f"its QoS class is {pod.spec.qos}" if ranking == QOS else f"its priority is {pod.priority}"
    if usage is None:
        return f"its usage is unknown; {place}"
    amount = _shown(resource, usage)
    if resource in {INODES, PIDS}:
        return f"uses {amount}; {place}"
    if usage > request:
        over = _shown(resource, usage - request)
        return f"uses {amount}, {over} more than its request of {_shown(resource, request)}; {place}"
    return f"uses {amount}, not more than its request of {_shown(resource, request)}; {place}"


def _shown(resource: str, amount: int) -> str:
    if resource == INODES:
        return f"{amount} inodes"
    if resource == PIDS:
        return f"{amount} processes"
    return format_rounded(resource, amount)
