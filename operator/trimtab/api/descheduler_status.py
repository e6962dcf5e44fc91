"""What trimtab reports in a DeschedulerPolicy's status.

Everything in it is bounded: a status is read whole by every watcher and stored whole on every write. What does not fit
is in the events and the metrics.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from trimtab.api.base import BigCount, NaturalInt, ShortText, Status, bounded, doc
from trimtab.api.conditions import Condition
from trimtab.api.eviction_memory import Memory

MAX_KEPT: Final = 50
MAX_EVICTIONS: Final = 20
MAX_COUNTS: Final = 256

Outcome = Literal["Planned", "Evicted", "Started", "Refused", "Kept"]

Reason = Annotated[str, Meta(min_length=1, max_length=128)]
ObjectName = Annotated[str, Meta(max_length=253)]


class LastRun(Status, frozen=True):
    """The last cycle that ran, in numbers."""

    time: Annotated[datetime, doc("When the cycle started.")]
    completed: Annotated[datetime | None, doc("When it ended; not there while it runs.")] = None
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("The mode in which it ran.")] = "Simulate"
    run: Annotated[ObjectName, doc("The DeschedulingRun that tells of it; empty where none was written.")] = ""
    duration_seconds: Annotated[float, Meta(ge=0), doc("How long it took, in seconds.")] = 0.0
    planned: Annotated[NaturalInt, doc("Moves that were planned.")] = 0
    evicted: Annotated[NaturalInt, doc("Pods that were evicted.")] = 0
    started: Annotated[
        NaturalInt, doc("Pods that were on their way out, but not gone, when the cycle ended: see lastEvictions.")
    ] = 0
    refused: Annotated[NaturalInt, doc("Evictions that the API server refused or that failed.")] = 0
    kept: Annotated[NaturalInt, doc("Pods that were considered and left where they are.")] = 0
    nodes: Annotated[NaturalInt, doc("Nodes that were looked at.")] = 0
    pods: Annotated[NaturalInt, doc("Pods that were looked at.")] = 0


class Count(Status, frozen=True):
    """How many pods of the last cycle had one outcome for one reason."""

    strategy: Annotated[str, bounded("The strategy.", least=1, limit=128)]
    reason: Annotated[Reason, doc("The reason's code, in CamelCase.")]
    outcome: Annotated[
        Outcome,
        doc(
            "Planned: would be moved (Simulate, Approve). Evicted, Refused: by the API server. Started: on its way "
            "out, but not gone when the cycle ended. Kept: left alone."
        ),
    ]
    count: Annotated[NaturalInt, doc("How many pods.")]


class KeptPod(Status, frozen=True):
    """A pod that a strategy considered and left where it is, or a node for which it can do nothing."""

    strategy: Annotated[ObjectName, doc("The strategy that considered it.")]
    reason: Annotated[Reason, doc("Why it was left: the reason's code.")]
    namespace: Annotated[ObjectName, doc("The pod's namespace.")] = ""
    pod: Annotated[ObjectName, doc("The pod's name; empty where a whole node is meant.")] = ""
    node: Annotated[ObjectName, doc("The node it runs on, or that is meant.")] = ""
    message: Annotated[ShortText, doc("Why it was left, in words and numbers.")] = ""


class Eviction(Status, frozen=True):
    """A pod that was evicted."""

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    strategy: Annotated[ObjectName, doc("The strategy that asked for it.")]
    reason: Annotated[Reason, doc("Why: the reason's code.")]
    time: Annotated[datetime, doc("When the API server took the eviction, or when the pod was on its way out.")]
    node: Annotated[ObjectName, doc("The node it ran on.")] = ""
    target: Annotated[ObjectName, doc("The node on which it was found to fit; empty of a pod that had ended.")] = ""
    message: Annotated[ShortText, doc("Why, in words and numbers.")] = ""


def list_map(*keys: str) -> dict[str, Any]:
    """What a schema says of a list whose items are told apart by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


class DeschedulerStatus(Status, frozen=True):
    """What was done, when, and why."""

    observed_generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec that this status is about.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        bounded("Ready, Progressing, Degraded and Effective.", limit=16, **list_map("type")),
    ] = ()
    last_run: Annotated[LastRun | None, doc("The last cycle, in numbers.")] = None
    next_run: Annotated[datetime | None, doc("When the next cycle is due.")] = None
    evicted: Annotated[BigCount, doc("Pods that this policy evicted since it was made.")] = 0
    counts: Annotated[
        tuple[Count, ...],
        bounded(
            "The last cycle's pods by strategy, reason and outcome.",
            limit=MAX_COUNTS,
            **list_map("strategy", "reason", "outcome"),
        ),
    ] = ()
    kept: Annotated[
        tuple[KeptPod, ...],
        bounded(
            "Pods and nodes of the last cycle that were considered and left, the first of them; counts has all.",
            limit=MAX_KEPT,
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    last_evictions: Annotated[
        tuple[Eviction, ...],
        bounded("The latest evictions, the newest first.", limit=MAX_EVICTIONS, **{"x-kubernetes-list-type": "atomic"}),
    ] = ()
    memory: Annotated[Memory, doc("What became of evictions, and which owners are left alone for it.")] = Memory()


def status_patch(status: Status) -> dict[str, Any]:
    """The status as a JSON merge patch of the whole status.

    What is not there becomes null, which a merge patch deletes; within lists, which a merge patch replaces whole, it is
    left out, because the schema knows no nulls.
    """
    wire = _prune(msgspec.to_builtins(status), in_list=False)
    assert isinstance(wire, dict)
    return wire


def _prune(value: Any, *, in_list: bool) -> Any:
    if isinstance(value, dict):
        return {key: _prune(item, in_list=in_list) for key, item in value.items() if not (in_list and item is None)}
    if isinstance(value, list | tuple):
        return [_prune(item, in_list=True) for item in value]
    return value
