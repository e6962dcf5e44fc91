"""Emits events on the controllers of evicted pods, such as a ReplicaSet or StatefulSet, for all requesters.

The first eviction of a controller's pods is reported immediately. Those of the next seconds are reported together in
one event. A token bucket limits the total rate, because one failed node or zone may cost thousands of controllers a pod
at the same time. Events that wait when the process stops are lost; the history contains every eviction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from trimtab.api import reasons
from trimtab.api.bounds import named, plural
from trimtab.api.history_record import HistoryEntry
from trimtab.kube.clock import Clock
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import Pod
from trimtab.kube.resources import ObjectReference, pod_reference
from trimtab.kube.token_bucket import KeyedTokenBuckets, TokenBucket

OWNER_INTERVAL: Final = 10.0
"""Minimum seconds between two events on the same controller."""

RATE: Final = 5.0
"""Maximum events per second on all controllers."""

BURST: Final = 50.0
"""The burst of events on all controllers."""

MAX_OWNERS: Final = 5000
"""Maximum number of controllers whose evictions wait to be reported. Those that have waited longest are dropped."""

FLUSH_INTERVAL: Final = 1.0
"""Seconds between two attempts to report evictions that wait."""

_VERBS: Final = {"Delete": "deleted", "Preempt": "preempted"}
_REQUESTERS: Final = {
    "autoscaler": "cluster autoscaler",
    "descheduler": "DeschedulerPolicy",
    "pressure": "NodePressurePolicy",
    "scheduler": "scheduler",
    "tainting": "taint manager",
}
"""What requested an eviction, by controller. The name of the policy or scheduler follows, if the entry has it."""


class OwnerEvents:
    """Reports evictions on the controllers of the pods.

    Call :meth:`evicted` only from the event loop's thread.

    Args:
        recorder: posts the events.
        clock: provides the time.
    """

    def __init__(self, recorder: Recorder, *, clock: Clock) -> None:
        self._recorder = recorder
        self._clock = clock
        self._waiting: dict[ObjectReference, list[HistoryEntry]] = {}
        self._owners = KeyedTokenBuckets[ObjectReference](1.0 / OWNER_INTERVAL)
        self._total = TokenBucket(rate=RATE, burst=BURST, now=clock.monotonic())
        self._timer: asyncio.TimerHandle | None = None

    def evicted(self, entry: HistoryEntry, pod: Pod) -> None:
        """Report an eviction that succeeded or has started. Do nothing if the pod has no controller.

        Args:
            entry: the eviction, as it is recorded in the history.
            pod: the pod as it was before the eviction.
        """
        controller = pod.controller
        if controller is None or entry.result not in ("Succeeded", "Started"):
            return
        owner = ObjectReference(
            kind=controller.kind,
            name=controller.name,
            namespace=pod.namespace,
            uid=controller.uid,
            api_version=controller.api_version,
        )
        self._waiting.setdefault(owner, []).append(entry)
        if len(self._waiting) > MAX_OWNERS:
            del self._waiting[next(iter(self._waiting))]
        if not self._post(owner) and self._timer is None:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(FLUSH_INTERVAL, self._flush)

    def _flush(self) -> None:
        self._timer = None
        for owner in tuple(self._waiting):
            if self._total.wait(self._clock.monotonic()) > 0.0:
                break
            self._post(owner)
        if self._waiting:
            self._start_timer()

    def _post(self, owner: ObjectReference) -> bool:
        """Post the event on a controller if the limits allow it now, and return whether it was posted."""
        now = self._clock.monotonic()
        if self._owners.next_at(owner) > now or not self._total.take(now):
            return False
        self._owners.take(owner, now)
        groups: dict[tuple[str, ...], list[HistoryEntry]] = {}
        for entry in self._waiting.pop(owner):
            groups.setdefault((entry.reason, _verb(entry), _requester(entry)), []).append(entry)
        for entries in groups.values():
            first, alone = entries[0], len(entries) == 1
            self._recorder.event(
                owner,
                reason=reasons.EVICTED,
                action="Evict",
                note=_single_note(first) if alone else _common_note(entries),
                related=pod_reference(f"{first.namespace}/{first.pod}", first.uid) if alone else None,
            )
        return True


def _single_note(entry: HistoryEntry) -> str:
    done = f"{_verb(entry)} pod" if entry.result == "Succeeded" else "the eviction has started: pod"
    return f"{done} {entry.pod} from node {entry.node}: {entry.message} ({entry.reason}; {_requester(entry)})"


def _common_note(entries: Sequence[HistoryEntry]) -> str:
    first, nodes = entries[0], _distinct(entry.node for entry in entries)
    several = len(_distinct(entry.message for entry in entries)) > 1
    return (
        f"{_verb(first)} {plural(len(entries), 'pod')} from {'node' if len(nodes) == 1 else 'nodes'} {named(nodes)}: "
        f"{named([entry.pod for entry in entries])} ({first.reason}; {_requester(first)}); "
        f"{f'the first one because: {first.message}' if several else first.message}"
    )


def _verb(entry: HistoryEntry) -> str:
    return _VERBS.get(entry.action, "evicted")


def _requester(entry: HistoryEntry) -> str:
    requester = _REQUESTERS[entry.controller]
    if not entry.policy:
        return requester
    return f"{requester} {entry.policy}" + (f", strategy {entry.strategy}" if entry.strategy else "")


def _distinct(texts: Iterable[str]) -> list[str]:
    return sorted(set(texts))
