"""Whether an owner has recovered from the last eviction, so that its next pod may go.

Two sources say so. The book knows what trimtab did: how many pods ran before, and which one was evicted. What the pods
themselves show needs no memory, and so also holds right after a restart: a pod of the owner that no node runs yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from trimtab.cluster.owners import OwnerKey
from trimtab.disruption.protections.starting_pod import START_GRACE
from trimtab.kube.objects import Pod

REMEMBERED: Final = 900.0
"""Seconds after which an eviction is no longer held against its owner: it may have been scaled down since, and then
never has as many pods again. What its pods show is still looked at."""

_SWEEP_FROM: Final = 1000
"""Owners remembered below which forgetting the old ones is not worth its while."""


class Strength(Struct, frozen=True):
    """How many pods an owner has: ``alive`` have not ended and are not going, ``ready`` of them are Ready."""

    alive: int
    ready: int


def strength(pods: Iterable[Pod], *, without: str = "") -> Strength:
    """Count an owner's pods, leaving out the one of this UID."""
    alive = [pod for pod in pods if not pod.terminal and pod.deleted is None and not (without and pod.uid == without)]
    return Strength(alive=len(alive), ready=sum(pod.ready for pod in alive))


@dataclass(slots=True)
class _Entry:
    uid: str
    pod: str
    before: Strength
    since: float
    granted: bool = False


class OwnerBook:
    """Which owners miss a pod because of us. One for all policies: they may share owners."""

    def __init__(self) -> None:
        self._open: dict[OwnerKey, _Entry] = {}
        self._sweep_at = _SWEEP_FROM

    def __len__(self) -> int:
        return len(self._open)

    def open(self, owner: OwnerKey, victim: Pod, pods: Sequence[Pod], *, now: float) -> None:
        """Note that a pod's eviction is being asked for.

        Args:
            owner: the pod's controller.
            victim: the pod.
            pods: the owner's pods at this moment, the victim among them.
            now: seconds on a monotonic clock.
        """
        if len(self._open) >= self._sweep_at:  # owners that never lose a second pod would stay for ever
            self._open = {key: entry for key, entry in self._open.items() if now - entry.since <= REMEMBERED}
            self._sweep_at = max(_SWEEP_FROM, 2 * len(self._open))
        self._open[owner] = _Entry(uid=victim.uid, pod=victim.name, before=strength(pods), since=now)

    def grant(self, owner: OwnerKey, *, now: float) -> None:
        """Note that the eviction was granted: from now on the owner is a pod short."""
        entry = self._open.get(owner)
        if entry is not None:
            entry.granted = True
            entry.since = now

    def close(self, owner: OwnerKey, uid: str) -> None:
        """Note that the pod of this UID was not evicted after all."""
        entry = self._open.get(owner)
        if entry is not None and entry.uid == uid and not entry.granted:
            del self._open[owner]

    def unsettled(self, owner: OwnerKey, victim: Pod, pods: Sequence[Pod], *, now: float, wall: float) -> str | None:
        """Why the owner's next pod has to wait, or ``None``.

        Args:
            owner: the controller.
            victim: the pod that is to go next; what it lacks itself is no reason to keep it.
            pods: the owner's pods at this moment.
            now: seconds on a monotonic clock.
            wall: seconds since the epoch, to compare with creation times.
        """
        return self._missing(owner, victim, pods, now) or _not_running(owner, victim, pods, wall) or _new(pods, wall)

    def _missing(self, owner: OwnerKey, victim: Pod, pods: Sequence[Pod], now: float) -> str | None:
        entry = self._open.get(owner)
        if entry is None or entry.uid == victim.uid:  # another try at the same pod
            return None
        if not entry.granted:
            return f"the eviction of {entry.pod}, of the same {_words(owner)}, has not been answered"
        have = strength(pods, without=entry.uid)
        if (have.alive >= entry.before.alive and have.ready >= entry.before.ready) or now - entry.since > REMEMBERED:
            del self._open[owner]
            return None
        return (
            f"{_words(owner)} has {have.alive} pods, {have.ready} of them ready, since {entry.pod} was evicted; "
            f"before it had {entry.before.alive} and {entry.before.ready}"
        )


def _not_running(owner: OwnerKey, victim: Pod, pods: Iterable[Pod], wall: float) -> str | None:
    """Another pod of the owner that is on its way: it may be the replacement of one that we evicted before a restart.

    While it has no node, its replacement-to-be would compete with it for the same place, and the freed place might be
    filled again. A pod that stays unready for long on its node is ill, and not a matter of waiting.
    """
    for pod in pods:
        if pod.uid == victim.uid or pod.terminal:
            continue
        if pod.deleted is not None:
            if owner[1] == "StatefulSet":  # it makes the replacement only when the old pod is gone
                return f"{pod.name} of the same {_words(owner)} is going, and its replacement comes after that"
        elif not pod.node:
            return f"{pod.name} of the same {_words(owner)} has no node yet"
        elif not pod.ready and pod.created is not None and wall - pod.created < START_GRACE:
            age = max(0, int(wall - pod.created))
            return f"{pod.name} of the same {_words(owner)} was created {age}s ago and is not ready yet"
    return None


def _new(pods: Iterable[Pod], wall: float) -> str | None:
    """A pod that is as new as the victim's replacement would be: the two could not be told apart afterwards.

    Creation times are whole seconds. Pods that run at once, as a simulated kubelet has them, meet this.
    """
    for pod in pods:
        if pod.created is not None and 0 <= wall - pod.created < 1:
            return f"{pod.name} was created within this second, as the next one's replacement would be"
    return None


def _words(owner: OwnerKey) -> str:
    namespace, kind, name = owner
    return f"{kind} {namespace}/{name}"
