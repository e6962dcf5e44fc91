"""Determines whether an owner has replaced its last evicted pod, so that its next pod may be evicted.

There are two sources. :class:`OwnerRecovery` records the evictions and the number of pods that the owner had before
them. The current pods of the owner are checked as well, for example whether one is not on a node yet, because their
state is known even after a restart of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.disruption.evictor.requests import Requester
from trimtab.disruption.protections import START_GRACE
from trimtab.kube.objects import Pod

RECOVERY_TIMEOUT: Final = 900.0
"""Seconds after which a recorded eviction is ignored.

The owner may have a pod that never becomes ready, or it may have been scaled down if its desired number of pods is
unknown. The state of its current pods is still checked.
"""

CHECK_PERIOD: Final = 1.0
"""Minimum number of seconds between two counts of an owner's pods when its evictions are recorded."""

_SWEEP_THRESHOLD: Final = 1000
"""Minimum number of recorded owners at which expired records are removed."""


class ReplicaCount(Struct, frozen=True):
    """Counts of an owner's pods: ``alive`` pods are not terminal or terminating; ``ready`` pods are also Ready."""

    alive: int
    ready: int


def count_replicas(pods: Iterable[Pod], *, without: Container[str] = ()) -> ReplicaCount:
    """Count an owner's pods, except those whose UID is in ``without``."""
    alive = [pod for pod in pods if not pod.terminal and pod.deleted is None and pod.uid not in without]
    return ReplicaCount(alive=len(alive), ready=sum(pod.ready for pod in alive))


@dataclass(slots=True)
class _OpenEviction:
    victims: dict[str, str]
    """The evicted pods: UID to name."""

    before: ReplicaCount
    since: float
    requester: Requester | None
    unanswered: set[str] = field(default_factory=set)
    checked: float = 0.0
    """When the owner's pods were counted last."""

    def over(self, pods: Iterable[Pod], desired: int | None, now: float) -> bool:
        """Return whether the owner has as many pods as before or as desired, or the evictions have expired."""
        have, wanted = count_replicas(pods, without=self.victims), self.before
        if desired is not None and have.alive <= desired:  # otherwise its watch is behind the one of the pods
            wanted = ReplicaCount(min(wanted.alive, desired), min(wanted.ready, desired))
        recovered = have.alive >= wanted.alive and have.ready >= wanted.ready
        return recovered or now - self.since > RECOVERY_TIMEOUT


class OwnerRecovery:
    """Records which owners have fewer pods than before, because of evictions. All requesters share one instance."""

    def __init__(self) -> None:
        self._open: dict[OwnerKey, _OpenEviction] = {}
        self._sweep_at = _SWEEP_THRESHOLD

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        owner: OwnerKey,
        victim: Pod,
        pods: Callable[[], Sequence[Pod]],
        *,
        desired: int | None = None,
        now: float,
        requester: Requester | None = None,
    ) -> None:
        """Record that the eviction of a pod is being requested.

        A requester that does not wait for owners may evict several pods of one owner. The owner has then recovered when
        it has as many pods as before the first of these evictions. Earlier evictions from which the owner has recovered
        are dropped.

        Args:
            owner: the pod's controller.
            victim: the pod to evict.
            pods: returns the owner's current pods, including the victim. It is called at most once a second for each
                owner, because a tainted node may cost an owner of thousands of pods hundreds of them within a second.
            desired: the owner's desired number of pods; ``None`` if it is unknown.
            now: seconds on the monotonic clock.
            requester: the requester of the eviction.
        """
        if len(self._open) >= self._sweep_at:  # otherwise, owners that never lose a second pod would never be removed
            self._open = {key: entry for key, entry in self._open.items() if now - entry.since <= RECOVERY_TIMEOUT}
            self._sweep_at = max(_SWEEP_THRESHOLD, 2 * len(self._open))
        entry = self._open.get(owner)
        if entry is None or entry.victims.keys() <= {victim.uid} or self._is_over(entry, pods, desired, now):
            entry = self._open[owner] = _OpenEviction({}, count_replicas(pods()), now, requester, checked=now)
        entry.victims[victim.uid] = victim.name
        entry.unanswered.add(victim.uid)
        entry.since, entry.requester = now, requester

    def _is_over(
        self, entry: _OpenEviction, pods: Callable[[], Sequence[Pod]], desired: int | None, now: float
    ) -> bool:
        if entry.unanswered or now - entry.checked < CHECK_PERIOD:
            return False
        entry.checked = now
        return entry.over(pods(), desired, now)

    def grant(self, owner: OwnerKey, uid: str, *, now: float) -> None:
        """Record that the eviction of the pod with this UID was granted."""
        entry = self._open.get(owner)
        if entry is not None and uid in entry.victims:
            entry.unanswered.discard(uid)
            entry.since = now

    def close(self, owner: OwnerKey, uid: str) -> None:
        """Record that the pod with this UID was not evicted."""
        entry = self._open.get(owner)
        if entry is not None and uid in entry.unanswered:
            entry.unanswered.discard(uid)
            del entry.victims[uid]
            if not entry.victims:
                del self._open[owner]

    def requester(self, owner: OwnerKey) -> Requester | None:
        """Return the requester of the owner's last eviction; ``None`` if no eviction of the owner is recorded."""
        entry = self._open.get(owner)
        return None if entry is None else entry.requester

    def unsettled(
        self,
        owner: OwnerKey,
        victim: Pod,
        pods: Sequence[Pod],
        *,
        desired: int | None = None,
        now: float,
        now_epoch: float,
    ) -> str | None:
        """Return the reason why the owner's next pod must not be evicted yet; ``None`` if it may be evicted.

        Args:
            owner: the controller.
            victim: the next pod to evict. Its own state is ignored.
            pods: the owner's current pods.
            desired: the owner's desired number of pods; ``None`` if it is unknown. An owner that was scaled down needs
                no more pods.
            now: seconds on the monotonic clock.
            now_epoch: seconds since the epoch, to compare with creation times.
        """
        return (
            self._missing(owner, victim, pods, desired, now)
            or _not_running(owner, victim, pods, now_epoch)
            or _just_created(pods, now_epoch)
        )

    def _missing(
        self, owner: OwnerKey, victim: Pod, pods: Sequence[Pod], desired: int | None, now: float
    ) -> str | None:
        entry = self._open.get(owner)
        others = () if entry is None else tuple(uid for uid in entry.victims if uid != victim.uid)
        if entry is None or not others:  # a retry for the same pod
            return None
        names = entry.victims[others[0]] + (f" and {len(others) - 1} more" if len(others) > 1 else "")
        if not entry.unanswered.isdisjoint(others):
            return f"the eviction of {names}, of the same {owner}, is in flight"
        if entry.over(pods, desired, now):
            del self._open[owner]
            return None
        have = count_replicas(pods, without=entry.victims)
        return (
            f"{owner} has {have.alive} pods, {have.ready} of them ready, since {names} "
            f"{'was' if len(others) == 1 else 'were'} evicted; before that, it had {entry.before.alive} pods, "
            f"{entry.before.ready} of them ready"
        )


def _not_running(owner: OwnerKey, victim: Pod, pods: Iterable[Pod], now_epoch: float) -> str | None:
    """Return the reason to wait if another pod of the owner is starting or terminating; otherwise ``None``.

    Such pods may result from an eviction that an earlier process made. A pod without a node would compete for nodes
    with the replacement of the next victim. A pod that has been on its node for long and is not ready is failing, so it
    does not block the eviction.
    """
    for pod in pods:
        if pod.uid == victim.uid or pod.terminal:
            continue
        if pod.deleted is not None:
            if owner.plain_kind == "StatefulSet":  # it creates the replacement only when the old pod no longer exists
                return f"{pod.name} of the same {owner} is terminating; its replacement is created after that"
        elif not pod.node:
            return f"{pod.name} of the same {owner} has no node yet"
        elif not pod.ready and pod.created is not None and now_epoch - pod.created < START_GRACE:
            age = max(0, int(now_epoch - pod.created))
            return f"{pod.name} of the same {owner} was created {age}s ago and is not ready yet"
    return None


def _just_created(pods: Iterable[Pod], now_epoch: float) -> str | None:
    """Return the reason to wait if a pod was created in the current second; otherwise ``None``.

    It could not be distinguished later from the victim's replacement, because creation times are whole seconds. This
    happens with pods that start immediately, for example on a simulated kubelet.
    """
    for pod in pods:
        if pod.created is not None and 0 <= now_epoch - pod.created < 1:
            return f"{pod.name} was created in the current second, so a replacement could not be distinguished from it"
    return None
