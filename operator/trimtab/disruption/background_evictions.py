"""Detects evictions that another component carries out in the background, using the protocol of KubeVirt and KEP-1397.

KubeVirt migrates a virtual machine instead of deleting and recreating it. Its webhook answers the eviction of the pod
with 429 and the message :data:`~trimtab.disruption.evictor.eviction_api.TAKEN_OVER`. This is not a refusal: it means
that the migration has started. The pod has the annotation :data:`IN_PROGRESS` until it is deleted, or until the
migration fails and the annotation is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from trimtab.api.descheduler_status import EvictionMemory
from trimtab.kube.objects import Pod

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

REQUEST_EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
"""Annotation on pods whose evictions another component, such as KubeVirt, carries out. The value is ignored."""

IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""Annotation on pods that are being evicted in the background. The value is ignored."""

BACKGROUND_TIMEOUT: Final = 600.0
"""Seconds after which a background eviction is treated as failed if the pod does not have :data:`IN_PROGRESS`."""


def is_evicted_in_background(pod: Pod) -> bool:
    """Return whether the pod's annotation shows that a background eviction is in progress.

    Terminal and terminating pods are already evicted, so the result is false for them.
    """
    return IN_PROGRESS in pod.annotations and not pod.terminal and pod.deleted is None


def pods_evicted_in_background(snapshot: Snapshot, memories: Iterable[EvictionMemory] = (), *, now: float) -> list[Pod]:
    """Return the pods that are being evicted in the background, sorted by ``namespace/name``.

    Args:
        snapshot: the cluster state.
        memories: the policies' eviction memories. They also contain evictions that a webhook has accepted but that are
            not yet shown by an annotation on the pod.
        now: seconds since the epoch.
    """
    pods: Mapping[str, Pod] = snapshot.pods
    marked = [pod for pod in pods.values() if IN_PROGRESS in pod.annotations]  # 150,000 pods: a call per pod is slow
    found = {pod.key: pod for pod in marked if is_evicted_in_background(pod)}
    for memory in memories:
        for watched in memory.watched:
            key = f"{watched.namespace}/{watched.pod}"
            pod = pods.get(key) if watched.background and now - watched.time.timestamp() < BACKGROUND_TIMEOUT else None
            if pod is not None and pod.uid == watched.uid and not pod.terminal and pod.deleted is None:
                found[key] = pod
    return [found[key] for key in sorted(found)]
