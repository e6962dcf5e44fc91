"""Selects the annotations that trimtab stores.

Most annotations belong to other programs (checksums, last-applied configurations) and are a few kilobytes each. trimtab
stores only annotations that it reads itself, or that planners must respect because a related project defines them (the
upstream descheduler, cluster-autoscaler, the ReplicaSet controller, the machine APIs). Snapshot files contain no
others. If a new rule needs another key, add it here.
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
    "pressure.trimtab.dev/state",
    "openshift.io/node-selector",
)
MEANINGFUL: Final = PREFIXES + KEYS
"""Prefixes of the annotation keys that are stored."""

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
OLDER_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
REVISION: Final = "deployment.kubernetes.io/revision"
_DECODED: Final = frozenset({BIND_COMPLETED, SELECTED_NODE, OLDER_STORAGE_CLASS, MIGRATED_PLUGINS, REVISION})
"""Annotations that are read while volumes, claims, CSINodes and ReplicaSets are decoded, but not stored as they are."""


def meaningful(annotations: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return only those of the annotations that trimtab stores.

    :data:`KEYS` are also matched as prefixes, because ``str.startswith`` with a single tuple is the cheapest test, and
    a longer key with such a prefix does no harm.
    """
    return {key: value for key, value in annotations if key.startswith(MEANINGFUL)}


def is_read(key: str) -> bool:
    """Return whether trimtab reads annotations with this key from objects of any kind."""
    return key.startswith(MEANINGFUL) or key in _DECODED
