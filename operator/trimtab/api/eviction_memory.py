"""What a policy remembers of its evictions: part of its status, so that it outlives the process, and bounded like it.

These values are also what the descheduler reasons with (:mod:`trimtab.descheduling.memory`): what is written and read
back is the same, so that a restart in between changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

from msgspec import Meta

from trimtab.api.base import BigCount, NaturalInt, Status, bounded, doc

MAX_WATCHED: Final = 200
MAX_SETBACKS: Final = 200

Name = Annotated[str, Meta(max_length=253)]
Uid = Annotated[str, Meta(max_length=128)]

TRY_AGAIN: Final = "trimtab.dev/try-again"
"""The policy's annotation with which somebody asks to forget what went wrong; every new value asks once."""

Trouble = Literal["CameBack", "Pending", "WantedAway", "Stayed"]
"""CameBack: to the node it was evicted from. Pending: no node took the replacement. WantedAway: it came to another
node, from which the same strategy would evict it again. Stayed: who took the eviction over did not move the pod, or the
rollout that was to renew it was undone or came to nothing."""


class Owned(Status, frozen=True):
    """Whose pods are meant, and which strategy moved them."""

    strategy: Annotated[Name, doc("The strategy.")]
    namespace: Annotated[Name, doc("The namespace of the owner and its pods.")]
    kind: Annotated[Name, doc("The owner's kind: Deployment, StatefulSet, ….")]
    name: Annotated[Name, doc("The owner's name.")]
    template: Annotated[
        str, Meta(max_length=64), doc("A digest of what the pod's template says; with another one it counts anew.")
    ]


class WatchedEviction(Owned, frozen=True):
    """An eviction of which it is not yet known whether it helped."""

    pod: Annotated[Name, doc("The evicted pod's name.")]
    uid: Annotated[Uid, doc("The evicted pod's UID.")]
    node: Annotated[Name, doc("The node it was evicted from.")]
    target: Annotated[Name, doc("The node on which it was found to fit.")]
    time: Annotated[datetime, doc("When it was evicted; while a cycle acts, when that began.")]
    after: Annotated[
        datetime | None, doc("When the newest of the owner's pods was created at that time: its replacement is newer.")
    ] = None
    background: Annotated[
        bool, doc("Whether somebody took the eviction over and carries it out in the background.")
    ] = False
    restarted: Annotated[bool, doc("Whether its Deployment was restarted, and the rollout goes on by itself.")] = False
    replacement: Annotated[Uid, doc("The UID of the pod that came for it; empty until it is on a node.")] = ""
    landed: Annotated[Name, doc("The other node to which that came.")] = ""
    landed_time: Annotated[datetime | None, doc("When that was seen.")] = None


class Setback(Owned, frozen=True):
    """An owner whose evictions by a strategy did not help, and until when it is left alone."""

    failures: Annotated[NaturalInt, doc("Evictions in a row that did not help.")]
    time: Annotated[datetime, doc("When the last of them was found not to have helped.")]
    until: Annotated[datetime, doc("No further eviction before this time.")]
    trouble: Annotated[Trouble, doc("What became of the last one: CameBack, Pending, WantedAway or Stayed.")]
    node: Annotated[Name, doc("The node from which it was evicted.")] = ""
    landed: Annotated[Name, doc("The node to which its replacement came; empty where that is Pending.")] = ""
    replacement: Annotated[Uid, doc("The replacement's UID.")] = ""
    gone_time: Annotated[datetime | None, doc("Since when the owner has no pods; without pods it is forgotten.")] = None
    gave_up: Annotated[bool, doc("Whether there will be no further eviction, whatever the time.")] = False


class Memory(Status, frozen=True):
    """What a policy remembers of its evictions. It holds for one generation of the spec."""

    generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec under which this was learnt.", format="int64")
    ] = 0
    asked: Annotated[Name, doc("The value of the annotation trimtab.dev/try-again that was last followed.")] = ""
    watched: Annotated[
        tuple[WatchedEviction, ...],
        bounded("Evictions that are watched.", limit=MAX_WATCHED, **{"x-kubernetes-list-type": "atomic"}),
    ] = ()
    setbacks: Annotated[
        tuple[Setback, ...],
        bounded(
            "Owners that are left alone for a while, or for good.",
            limit=MAX_SETBACKS,
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    forgotten: Annotated[BigCount, doc("How many entries were dropped for want of room since the policy was made.")] = 0
