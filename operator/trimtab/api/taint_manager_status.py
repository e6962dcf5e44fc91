"""What trimtab reports in the TaintManager's status: all of it bounded, what is cut is counted.

Deadlines are not kept here: they come anew from taints and pods, so that a lost status changes no pod's time.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from trimtab.api.base import BigCount, NaturalInt, ShortText, Status, bounded, doc
from trimtab.api.conditions import Condition
from trimtab.api.descheduler_status import ObjectName, list_map

MAX_ZONES: Final = 100
MAX_DEADLINES: Final = 50
MAX_REFUSED: Final = 50
MAX_STUCK: Final = 50

_ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}

ZoneState = Literal["Normal", "PartialDisruption", "FullDisruption"]
TaintText = Annotated[str, Meta(max_length=400)]
TolerationText = Annotated[str, Meta(max_length=512)]


class ZoneStatus(Status, frozen=True):
    """A zone: how its nodes are, and how fast those that failed are tainted."""

    name: Annotated[str, bounded("region/zone by the nodes' labels; empty for nodes without.", limit=160)]
    state: Annotated[
        ZoneState,
        doc(
            "Normal, PartialDisruption (too many nodes are not ready) or FullDisruption (none is ready). With every "
            "zone in FullDisruption nothing is tainted."
        ),
    ]
    nodes: Annotated[NaturalInt, doc("Nodes in it, those left out that are labelled exclude-disruption.")] = 0
    not_ready: Annotated[NaturalInt, doc("Those of them that are not ready.")] = 0
    nodes_per_second: Annotated[float, Meta(ge=0), doc("Nodes a second that may be tainted in it.")] = 0.0
    waiting: Annotated[NaturalInt, doc("Nodes that wait to be tainted.")] = 0


class NextDeadline(Status, frozen=True):
    """A pod whose time on its node is limited."""

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    node: Annotated[ObjectName, doc("Its node.")]
    due: Annotated[datetime, doc("When it goes.")]
    taint: Annotated[TaintText, doc("The taint that ends its time, as key=value:effect.")]
    toleration: Annotated[TolerationText, doc("The toleration that says how long; empty where none matches.")] = ""


class RefusedPod(Status, frozen=True):
    """A pod whose time is over and that somebody does not let go."""

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    node: Annotated[ObjectName, doc("Its node.")]
    due: Annotated[datetime, doc("When it was to go.")]
    attempts: Annotated[NaturalInt, doc("How often it was tried.")] = 0
    message: Annotated[ShortText, doc("Who refused and why: a webhook, a PodDisruptionBudget.")] = ""


class StuckNode(Status, frozen=True):
    """A dead node with pods that cannot end there; out-of-service would free them, which trimtab never sets itself."""

    name: Annotated[ObjectName, doc("The node.")]
    terminating: Annotated[NaturalInt, doc("Its pods that are terminating.")] = 0
    message: Annotated[ShortText, doc("What can be done.")] = ""


class PodCounts(Status, frozen=True):
    """How many nodes and pods, now and since the TaintManager was made."""

    tainted_nodes: Annotated[NaturalInt, doc("Nodes with a NoExecute taint.")] = 0
    pods_with_deadline: Annotated[NaturalInt, doc("Pods whose time on their node is limited.")] = 0
    overdue: Annotated[NaturalInt, doc("Those of them whose time is over.")] = 0
    held: Annotated[NaturalInt, doc("Those of them that userTaintRates hold back.")] = 0
    deleted: Annotated[BigCount, doc("Pods that were deleted.")] = 0
    evicted: Annotated[BigCount, doc("Pods that were evicted.")] = 0
    nodes_tainted: Annotated[BigCount, doc("NoExecute taints that were put on nodes.")] = 0


class TaintManagerStatus(Status, frozen=True):
    """What the taint manager does, and which pods go next."""

    observed_generation: Annotated[
        int, Meta(ge=0), doc("The generation of the spec that this status is about.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...], bounded("Ready, Progressing and Degraded.", limit=16, **list_map("type"))
    ] = ()
    zones: Annotated[tuple[ZoneStatus, ...], bounded("The zones, by name.", limit=MAX_ZONES, **_ATOMIC)] = ()
    zones_omitted: Annotated[NaturalInt, doc("Zones for which there was no room here.")] = 0
    counts: Annotated[PodCounts, doc("How many nodes and pods.")] = PodCounts()
    next_deadlines: Annotated[
        tuple[NextDeadline, ...],
        bounded("The pods that go next, the soonest first.", limit=MAX_DEADLINES, **_ATOMIC),
    ] = ()
    deadlines_omitted: Annotated[NaturalInt, doc("Pods with a deadline for which there was no room here.")] = 0
    refused: Annotated[
        tuple[RefusedPod, ...],
        bounded("Pods that somebody does not let go, the longest due first.", limit=MAX_REFUSED, **_ATOMIC),
    ] = ()
    refused_omitted: Annotated[NaturalInt, doc("Such pods for which there was no room here.")] = 0
    stuck_nodes: Annotated[
        tuple[StuckNode, ...],
        bounded("Dead nodes on which pods are terminating and cannot end, by name.", limit=MAX_STUCK, **_ATOMIC),
    ] = ()
    stuck_nodes_omitted: Annotated[NaturalInt, doc("Such nodes for which there was no room here.")] = 0
