"""The state of a node under pressure, which lasts across restarts in an annotation of the node.

The kubelet keeps the same state in memory only (``managerImpl``): when each threshold was first met, and when each
condition was last observed.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.clock import calendar_time
from trimtab.pressure.thresholds import CONDITION_OF

ANNOTATION: Final = "pressure.trimtab.dev/state"
"""The node annotation with the state as JSON. It exists only while the node has a state."""

CONDITION_TYPES: Final = {
    "MemoryPressure": "pressure.trimtab.dev/MemoryPressure",
    "DiskPressure": "pressure.trimtab.dev/DiskPressure",
    "PIDPressure": "pressure.trimtab.dev/PIDPressure",
}
"""The types of the node conditions that trimtab sets. The kubelet overwrites its own conditions."""

TAINT_KEYS: Final = {
    "MemoryPressure": "pressure.trimtab.dev/memory",
    "DiskPressure": "pressure.trimtab.dev/disk",
    "PIDPressure": "pressure.trimtab.dev/pid",
}
"""The keys of the NoSchedule taints that trimtab adds to nodes under pressure, by condition."""

_KEYS: Final = frozenset(f"{hardness}/{signal}" for hardness in ("hard", "soft") for signal in CONDITION_OF)


class NodeState(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The state of one node. Times are in seconds since the epoch.

    Attributes:
        first_met: when each threshold was first met, by :attr:`~trimtab.pressure.thresholds.Threshold.key`. A threshold
            stays in it until its minimum reclaim is available.
        past_grace: the keys of those thresholds that have been met for their grace period. Only for these, the minimum
            reclaim must be available (``managerImpl.thresholdsMet``).
        last_met: when a threshold of each condition was last met, by condition. Entries that are older than the
            transition period are removed, and with them the condition. While a threshold of the condition is met,
            the value may be as old as the time at which it was first met: it need not be stored at each reading.
        refused_since: when the API server first refused the eviction of each pod that is due, by UID of the pod.
        evicting: UID of the pod whose eviction was last requested; empty after the pod has left the node.
        measured_at: when the kubelet had measured each signal at that request, by the node's clock.
    """

    first_met: Mapping[str, float] = {}
    past_grace: tuple[str, ...] = ()
    last_met: Mapping[str, float] = {}
    refused_since: Mapping[str, float] = {}
    evicting: str = ""
    measured_at: Mapping[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self.first_met or self.last_met or self.refused_since or self.evicting or self.measured_at)

    def refused(self, uid: str, now: float, *, ranked: Sequence[str] = ()) -> NodeState:
        """Return the state after the API server has refused to evict a pod.

        The number of pods is limited. If it is exceeded, the pod that would be evicted last is dropped: one that is not
        in ``ranked`` and was refused last, or else the last one in it.

        Args:
            uid: UID of the pod.
            now: the time in seconds since the epoch.
            ranked: UIDs of the pods on the node that may be evicted, in eviction order.
        """
        if uid in self.refused_since:
            return self
        refused = {**self.refused_since, uid: stored_time(now)}
        if len(refused) > _MAX_REFUSED:
            places = {each: place for place, each in enumerate(ranked)}
            last = max(refused, key=lambda each: (places.get(each, len(places)), refused[each]))
            if last == uid:
                return self
            del refused[last]
        return replace(self, refused_since=refused)


NO_STATE: Final = NodeState()

_TIMES: Final = ("firstMet", "lastMet", "refusedSince", "measuredAt")
_MAX_LENGTH: Final = 16_384
_MAX_REFUSED: Final = 128


def stored_time(now: float) -> float:
    """Return the time as the annotation stores it, with milliseconds, rounded down.

    The state in memory has the same precision as the annotation. Therefore a restart changes no decision.
    """
    return math.floor(now * 1000.0) / 1000.0


def stored_measurement_time(at: float) -> float:
    """Return the time of a measurement as the annotation stores it.

    It is rounded up, so that the same measurement does not count as newer than the stored time.
    """
    return math.ceil(at * 1000.0) / 1000.0


def encode_state(state: NodeState) -> str | None:
    """Return the value of the annotation: JSON with RFC 3339 times; ``None`` if the node has no state."""
    if not state:
        return None
    document: dict[str, Any] = msgspec.to_builtins(state)
    for name in _TIMES:
        if name in document:
            document[name] = {key: _format_time(at) for key, at in sorted(document[name].items())}
    return msgspec.json.encode(document).decode()


def decode_state(text: str | None) -> NodeState:
    """Return the state in the value of the annotation.

    Unknown keys, invalid times and anything else that :func:`encode_state` does not write are ignored, because users
    may edit annotations.
    """
    if not text or len(text) > _MAX_LENGTH:
        return NO_STATE
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return NO_STATE
    if not isinstance(document, dict):
        return NO_STATE
    first_met = _times(document, "firstMet", _KEYS)
    past_grace = document.get("pastGrace")
    evicting = document.get("evicting")
    return NodeState(
        first_met=first_met,
        past_grace=tuple(key for key in first_met if key in past_grace) if isinstance(past_grace, list) else (),
        last_met=_times(document, "lastMet", CONDITION_TYPES),
        refused_since=_times(document, "refusedSince", None),
        evicting=evicting if isinstance(evicting, str) else "",
        measured_at=_times(document, "measuredAt", CONDITION_OF),
    )


def _times(document: dict[str, Any], name: str, keys: Container[str] | None) -> dict[str, float]:
    """Return the valid entries of a map of times, sorted by key."""
    entries = document.get(name)
    if not isinstance(entries, dict) or len(entries) > _MAX_REFUSED:
        return {}
    found = {key: _parse_time(text) for key, text in sorted(entries.items()) if keys is None or key in keys}
    return {key: at for key, at in found.items() if at is not None}


def _format_time(at: float) -> str:
    return calendar_time(at).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _parse_time(text: object) -> float | None:
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()
