"""Which annotations are worth keeping.

A pod's annotations are mostly other programs' notes (checksums, last-applied configurations) of a few kilobytes each.
Kept are those that trimtab reads, or that a peer (the upstream descheduler, cluster-autoscaler, the ReplicaSet
controller, the machine API) gives a meaning that a planner has to respect. A rule that needs another key adds it here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PREFIXES: Final = (
    "trimtab.dev/",
    "descheduler.alpha.kubernetes.io/",
    "scheduler.alpha.kubernetes.io/",
    "cluster-autoscaler.kubernetes.io/",
    "capacity.cluster-autoscaler.kubernetes.io/",
    "cluster-autoscaler.kwok.nodegroup/",
    "delay-deletion.cluster-autoscaler.kubernetes.io/",
    "autoscaling.openshift.io/",
    "cluster.x-k8s.io/",
    "machine.openshift.io/",
)
KEYS: Final = (
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
    "controller.kubernetes.io/pod-deletion-cost",
)
MEANINGFUL: Final = PREFIXES + KEYS
"""What the key of an annotation begins with that is kept."""


def meaningful(annotations: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return only the annotations that somebody reads.

    :data:`KEYS` are matched as prefixes too: ``str.startswith`` with one tuple is the cheapest test there is, and a
    longer key with one of them as its beginning does no harm.
    """
    return {key: value for key, value in annotations if key.startswith(MEANINGFUL)}
