"""Evictions and what became of them, in a line."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.unit.descheduling.planning import DUPLICATES, NOW, ago, policy, web
from trimtab.api.descheduler_policy import Cooldown
from trimtab.api.descheduler_status import EvictionMemory, Setback, WatchedEviction
from trimtab.api.scalars import to_time
from trimtab.descheduling.memory.cooldown import moved_owner
from trimtab.kube.objects import Pod

COOLDOWN = Cooldown()
MINUTE, HOUR = 60.0, 3600.0


def a_pod(name: str, on: str = "", *, age: float = 0.0, owner: str = "web", **fields: Any) -> Pod:
    """A pod of a ReplicaSet, created ``age`` seconds before NOW; negative: after it."""
    built: Pod = web(name, on, owner=owner).uid(f"uid-{name}").created(ago(age)).build()
    return msgspec.structs.replace(built, **fields)


def watched(pod: str = "old", node: str = "n1", /, *, age: float = 60.0, **fields: Any) -> WatchedEviction:
    """The eviction of a pod ``age`` seconds before NOW; its siblings were created at least an hour ago."""
    values: dict[str, Any] = {
        **whose(),
        "pod": pod,
        "uid": f"uid-{pod}",
        "node": node,
        "target": "n2",
        "time": to_time(NOW - age),
        "after": to_time(NOW - HOUR),
    }
    return WatchedEviction(**{**values, **fields})


def setback(failures: int = 1, *, age: float = 60.0, lasts: float = 540.0, **fields: Any) -> Setback:
    """Evictions that did not help, the last found out ``age`` seconds before NOW; the cooldown ends in ``lasts``."""
    values: dict[str, Any] = {
        **whose(),
        "failures": failures,
        "time": to_time(NOW - age),
        "until": to_time(NOW + lasts),
        "trouble": "CameBack",
        "node": "n1",
        "landed": "n1",
        "replacement": "uid-earlier",
        "gave_up": failures >= 3,
    }
    return Setback(**{**values, **fields})


def whose(strategy: str = DUPLICATES) -> dict[str, Any]:
    """Whose pods :func:`a_pod` makes, as fields of an entry."""
    found = moved_owner(a_pod("any"), strategy)
    assert found is not None
    return {**msgspec.structs.asdict(found)}


def memory(*entries: WatchedEviction | Setback, **fields: Any) -> EvictionMemory:
    """A memory of these."""
    return EvictionMemory(
        watched=tuple(each for each in entries if isinstance(each, WatchedEviction)),
        setbacks=tuple(each for each in entries if isinstance(each, Setback)),
        **fields,
    )


def written(memory: EvictionMemory) -> EvictionMemory:
    """The memory as the next process reads it from the policy's status."""
    from tests.fakes.api import merged
    from trimtab.api.base import status_patch
    from trimtab.api.descheduler_status import DeschedulerStatus

    wire = msgspec.json.encode(merged({}, status_patch(DeschedulerStatus(memory=memory))))
    return msgspec.json.decode(wire, type=DeschedulerStatus).memory


__all__ = ["COOLDOWN", "HOUR", "MINUTE", "NOW", "a_pod", "memory", "policy", "setback", "watched", "whose", "written"]
