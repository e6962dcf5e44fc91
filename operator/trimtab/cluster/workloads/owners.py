"""Indexes pods by their controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from trimtab.kube.objects import TERMINAL_PHASES, OwnerReference, Pod


class OwnerKey(NamedTuple):
    """The identity of a controller.

    Attributes:
        namespace: the namespace of the controller and its pods.
        kind: the kind, with its API group unless that is one of Kubernetes
            (:attr:`~trimtab.kube.objects.OwnerReference.qualified_kind`).
        name: the name.
        uid: the UID; ``""`` if it is unknown, as in some cluster files, or if a controller that was created again under
            the same name is the same for the purpose.
    """

    namespace: str
    kind: str
    name: str
    uid: str = ""

    @property
    def plain_kind(self) -> str:
        """Return the kind without an API group, for rules that apply to all controllers of a kind's name."""
        return self.kind.partition(".")[0]

    @property
    def without_uid(self) -> OwnerKey:
        """Return the identity by name, which a controller that is created again keeps."""
        return OwnerKey(self.namespace, self.kind, self.name) if self.uid else self

    def __str__(self) -> str:
        """Return ``Kind namespace/name``."""
        return f"{self.kind} {self.namespace}/{self.name}"


def owner_key(pod: Pod) -> OwnerKey | None:
    """Return the key of the pod's controller, with its UID, or ``None`` for a bare pod."""
    controller = pod.controller
    if controller is None:
        return None
    return OwnerKey(pod.namespace, controller.qualified_kind, controller.name, controller.uid)


def owns(owner: OwnerKey, pod: Pod) -> bool:
    """Return whether the pod's controller is this one. UIDs are compared if both are known."""
    found = owner_key(pod)
    return found is not None and found[:3] == owner[:3] and (not found.uid or not owner.uid or found.uid == owner.uid)


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
        self._uids: dict[tuple[str, str, str], set[str]] = {}
        """The known UIDs by namespace, kind and name of the owner. Usually there is one."""
        self._latest: tuple[Sequence[OwnerReference], str, OwnerKey | None] = ((), "", None)
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
        """Return the keys of a controller's pods, in no particular order.

        These include pods of a controller with the same name whose UID is unknown, or all of them if the UID of
        ``owner`` is.
        """
        uids = self._uids.get(owner[:3], ())
        wanted = [uid for uid in uids if not uid or not owner.uid or uid == owner.uid]
        if len(wanted) == 1:
            return self._pods[OwnerKey(*owner[:3], wanted[0])]
        return chain.from_iterable(self._pods[OwnerKey(*owner[:3], uid)] for uid in sorted(wanted))

    def add(self, key: str, pod: Pod) -> None:
        """Add a pod to its owner."""
        owners, namespace, owner = self._latest
        if pod.owners is not owners or pod.namespace != namespace:  # lists are sorted, so siblings follow each other
            owner = owner_key(pod)
            self._latest = pod.owners, pod.namespace, owner
        if owner is None:
            return
        siblings = self._pods.get(owner)
        if siblings is None:
            siblings = self._pods[owner] = {}
            self._uids.setdefault(owner[:3], set()).add(owner.uid)
        siblings[key] = None

    def discard(self, key: str, pod: Pod) -> None:
        """Remove a pod from its owner."""
        owner = owner_key(pod)
        if owner is None:
            return
        siblings = self._pods[owner]
        del siblings[key]
        if not siblings:
            del self._pods[owner]
            uids = self._uids[owner[:3]]
            uids.discard(owner.uid)
            if not uids:
                del self._uids[owner[:3]]

    def note(self, pod: Pod) -> None:
        """Log that a pod was added, removed, moved or updated on its node, for :meth:`with_colocated_pods`."""
        if self._changed is not None:
            if len(self._changed) >= _LOG:
                self._changed = None
            else:
                self._changed.append(pod)

    def _has_colocated_pods(self, owner: OwnerKey) -> bool:
        seen = set()
        for key in self.pods(owner):
            pod = self._all[key]
            node = pod.node
            if node and pod.deleted is None and pod.phase not in TERMINAL_PHASES:
                if node in seen:
                    return True
                seen.add(node)
        return False
