"""Finds the selectors of services and controllers that match a pod, for legacy priorities.

Legacy priorities count the pods that match these selectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final, TypeAlias

from trimtab.cluster.node_table import SlotCounter
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import LabelSelector, Pod, ReplicaSet, ReplicationController, Service, StatefulSet
from trimtab.kube.rules.selectors import matches_labels

Selecting: TypeAlias = type[Service] | type[ReplicationController] | type[ReplicaSet] | type[StatefulSet]

ALL: Final[tuple[Selecting, ...]] = (Service, ReplicationController, ReplicaSet, StatefulSet)


class SelectorsOfPods:
    """Finds the selectors of services and controllers that match a pod.

    Args:
        snapshot: the cluster.
        kinds: the kinds of objects whose selectors are used.
    """

    _MOST: Final = 65_536

    def __init__(self, snapshot: Snapshot, kinds: tuple[Selecting, ...]) -> None:
        self._store = snapshot.objects
        self._kinds = kinds
        self._revision = -1
        self._of_namespace: dict[str, list[LabelSelector]] = {}
        self._known: dict[tuple[str, Labels], tuple[LabelSelector, ...]] = {}
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:  # noqa: ARG002 - the selectors are cheap to find again
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._known.clear()

    def of(self, pod: Pod) -> tuple[LabelSelector, ...]:
        """Return the selectors that match the pod, ordered by the kind and name of the objects that contain them."""
        revision = self._store.revision(*self._kinds)
        if revision != self._revision:
            self._read()
            self._revision = revision
        key = (pod.namespace, pod.labels)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= self._MOST:
                self._known.clear()
            selectors = self._of_namespace.get(pod.namespace, ())
            found = self._known[key] = tuple(each for each in selectors if matches_labels(each, pod.labels))
        return found

    def _read(self) -> None:
        self._known.clear()
        self._of_namespace.clear()
        for kind in self._kinds:
            objects: Mapping[str, Service | ReplicationController | ReplicaSet | StatefulSet] = self._store.of(kind)
            for _, obj in sorted(objects.items()):
                selector = obj.selector
                if selector is not None and not isinstance(selector, LabelSelector):
                    selector = LabelSelector(selector) if selector else None
                if selector is not None:
                    self._of_namespace.setdefault(obj.namespace, []).append(selector)


def selected_pods(snapshot: Snapshot, namespace: str, selectors: Sequence[LabelSelector]) -> SlotCounter | None:
    """Return a counter, per node, of the non-terminating pods in a namespace that match any of the selectors.

    The counter is updated as the snapshot changes. The result is ``None`` if there are no selectors.
    """
    return snapshot.affinity.staying_any(namespace, selectors) if selectors else None
