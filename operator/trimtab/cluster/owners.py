"""Which pods belong to which controller."""

from __future__ import annotations

from trimtab.kube.objects import Pod

OwnerKey = tuple[str, str, str]
"""Namespace, kind and name of a controller; its UID is left out, as cluster files may not have one."""


def owner_key(pod: Pod) -> OwnerKey | None:
    """The pod's controller as a key, ``None`` for a bare pod."""
    controller = pod.controller
    return None if controller is None else (pod.namespace, controller.kind, controller.name)


class Owners:
    """Controllers and the keys of their pods: keys, so that a pod that changes changes nothing here."""

    def __init__(self) -> None:
        self._pods: dict[OwnerKey, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def keys(self) -> list[OwnerKey]:
        """The controllers that own at least one pod, in the order of their keys."""
        return sorted(self._pods)

    def pods(self, owner: OwnerKey) -> list[str]:
        """The keys of a controller's pods, in their order."""
        return sorted(self._pods.get(owner, ()))

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
