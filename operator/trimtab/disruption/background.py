"""Evictions that somebody else carries out in the background: the protocol of KubeVirt and KEP-1397.

A virtual machine is not ended and made anew, it is migrated. So a webhook answers the eviction of its pod with 429 and
words that say so (:data:`trimtab.kube.eviction.TAKEN_OVER`): no refusal, the eviction has begun. From then on the pod
is on its way out, which its annotation :data:`IN_PROGRESS` says, until it is gone; or until the annotation is taken
off, when the migration failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.api.eviction_memory import Memory
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod

REQUEST_EVICT_ONLY: Final = "descheduler.alpha.kubernetes.io/request-evict-only"
"""The annotation of pods whose eviction is only a request: who moves them takes it over. Its value does not matter."""

IN_PROGRESS: Final = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""The annotation of pods that are being moved in the background; likewise."""

LONGEST: Final = 600.0
"""Seconds that an eviction in the background may take, as far as nothing at the pod says that it goes on."""


def underway(pod: Pod) -> bool:
    """Whether the pod says that it is being moved in the background. One that has ended has been."""
    return IN_PROGRESS in pod.annotations and not pod.terminal and pod.deleted is None


def leaving(snapshot: Snapshot, memories: Iterable[Memory] = (), *, now: float) -> list[Pod]:
    """The pods that are moved in the background, by ``namespace/name``: those that say so, and those just taken over.

    Args:
        snapshot: the picture.
        memories: of the policies: they know which evictions were taken over before the pods say so.
        now: seconds since the epoch.
    """
    pods: Mapping[str, Pod] = snapshot.pods
    marked = [pod for pod in pods.values() if IN_PROGRESS in pod.annotations]  # of 150,000: no call for each
    found = {pod.key: pod for pod in marked if underway(pod)}
    for memory in memories:
        for watched in memory.watched:
            key = f"{watched.namespace}/{watched.pod}"
            pod = pods.get(key) if watched.background and now - watched.time.timestamp() < LONGEST else None
            if pod is not None and pod.uid == watched.uid and not pod.terminal and pod.deleted is None:
                found[key] = pod
    return [found[key] for key in sorted(found)]
