"""Indexes pods by their controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.kube.objects import TERMINAL_PHASES, Pod

OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a controller. The UID is not included, because cluster files may lack it."""


def owner_key(pod: Pod) -> OwnerKey | None:
    """Return the key of the pod's controller, or ``None`` for a bare pod."""
    controller = pod.controller
    return None if controller is None else (pod.namespace, controller.kind, controller.name)


_LOG: Final = 16_384
"""Maximum number of logged pods. If it is exceeded, all owners are checked again."""


class Owners:
    """Indexes the keys of pods by controller. An updated pod needs no change here, because only its key is stored.

    Args:
        pods: all pods by key, as a live view.
    """

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._all = pods
        self._pods: dict[OwnerKey, dict[str, None]] = {}
        self._colocated: set[OwnerKey] = set()
        self._changed: list[Pod] | None = None
        """The pods that changed since the last call of :meth:`with_colocated_pods`, or ``None`` if there were too many.
        """

    def __len__(self) -> int:
        return len(self._pods)

    def keys(self) -> list[OwnerKey]:
        """Return the controllers that own at least one pod, ordered by key."""
        return sorted(self._pods)

    def with_colocated_pods(self) -> list[OwnerKey]:
        """Return the controllers that have two or more pods on the same node, ordered by key.

        Terminal and terminating pods are ignored. Only owners whose pods have changed are checked again.
        """
        if self._changed is None:
            self._colocated = {owner for owner in self._pods if self._has_colocated_pods(owner)}
        else:
            for owner in {key for pod in self._changed if (key := owner_key(pod)) is not None}:
                if self._has_colocated_pods(owner):
                    self._colocated.add(owner)
                else:
                    self._colocated.discard(owner)
        self._changed = []
        return sorted(self._colocated)

    def pods(self, owner: OwnerKey) -> Iterable[str]:
        """Return the keys of a controller's pods, in no particular order."""
        return self._pods.get(owner, ())

    def add(self, key: str, pod: Pod) -> None:
        """Add a pod to its owner."""
        owner = owner_key(pod)
        if owner is not None:
            self._pods.setdefault(owner, {})[key] = None

    def discard(self, key: str, pod: Pod) -> None:
        """Remove a pod from its owner."""
        owner = owner_key(pod)
        if owner is None:
            return
        siblings = self._pods[owner]
        del siblings[key]
        if not siblings:
            del self._pods[owner]

    def note(self, pod: Pod) -> None:
        """Log that a pod was added, removed, moved or updated on its node, for :meth:`with_colocated_pods`."""
        if self._changed is not None:
            if len(self._changed) >= _LOG:
                self._changed = None
            else:
                self._changed.append(pod)

    def _has_colocated_pods(self, owner: OwnerKey) -> bool:
        seen = set()
        for key in self._pods.get(owner, ()):
            pod = self._all[key]
            node = pod.node
            if node and pod.deleted is None and pod.phase not in TERMINAL_PHASES:
                if node in seen:
                    return True
                seen.add(node)
        return False
