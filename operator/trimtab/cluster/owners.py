"""Which pods belong to which controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.kube.objects import ENDED, Pod

OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a controller; its UID is left out, as cluster files may not have one."""


def owner_key(pod: Pod) -> OwnerKey | None:
    """The pod's controller as a key, ``None`` for a bare pod."""
    controller = pod.controller
    return None if controller is None else (pod.namespace, controller.kind, controller.name)


_LOG: Final = 16_384
"""Changed pods that are remembered; who has not looked for longer looks at all owners."""


class Owners:
    """Controllers and the keys of their pods: keys, so that a pod that changes changes nothing here.

    Args:
        pods: every pod by its key, as it is now.
    """

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._all = pods
        self._pods: dict[OwnerKey, dict[str, None]] = {}
        self._crowded: set[OwnerKey] = set()
        self._changed: list[Pod] | None = None
        """Pods that came, went or moved since crowded owners were asked for; ``None`` for too many to tell."""

    def __len__(self) -> int:
        return len(self._pods)

    def keys(self) -> list[OwnerKey]:
        """The controllers that own at least one pod, in the order of their keys."""
        return sorted(self._pods)

    def crowded(self) -> list[OwnerKey]:
        """The controllers two of whose pods are on one node, in the order of their keys.

        Pods that have ended or are being deleted don't count. Only owners whose pods have changed are counted anew.
        """
        if self._changed is None:
            self._crowded = {owner for owner in self._pods if self._is_crowded(owner)}
        else:
            for owner in {key for pod in self._changed if (key := owner_key(pod)) is not None}:
                if self._is_crowded(owner):
                    self._crowded.add(owner)
                else:
                    self._crowded.discard(owner)
        self._changed = []
        return sorted(self._crowded)

    def pods(self, owner: OwnerKey) -> Iterable[str]:
        """The keys of a controller's pods, in no particular order."""
        return self._pods.get(owner, ())

    def add(self, key: str, pod: Pod) -> None:
        """Take a pod in."""
        owner = owner_key(pod)
        if owner is not None:
            self._pods.setdefault(owner, {})[key] = None

    def discard(self, key: str, pod: Pod) -> None:
        """Let a pod go that was taken in."""
        owner = owner_key(pod)
        if owner is None:
            return
        siblings = self._pods[owner]
        del siblings[key]
        if not siblings:
            del self._pods[owner]

    def note(self, pod: Pod) -> None:
        """Take note that a pod came, went, moved, or counts otherwise where it is."""
        if self._changed is not None:
            if len(self._changed) >= _LOG:
                self._changed = None
            else:
                self._changed.append(pod)

    def _is_crowded(self, owner: OwnerKey) -> bool:
        seen = set()
        for key in self._pods.get(owner, ()):
            pod = self._all[key]
            node = pod.node
            if node and pod.deleted is None and pod.phase not in ENDED:
                if node in seen:
                    return True
                seen.add(node)
        return False
