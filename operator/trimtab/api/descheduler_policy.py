"""DeschedulerPolicy: which pods are to move when, how many at once, and which never.

The resource is cluster-scoped; several may live side by side, each with its own scope, pace and report.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    API_VERSION,
    INCLUDE_OR_EXCLUDE,
    NamespaceName,
    NaturalInt,
    ObjectMeta,
    PositiveInt,
    Rule,
    Spec,
    bounded,
    doc,
)
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.protections import PriorityThreshold, Protections
from trimtab.api.scalars import APPROVAL_RULE, COOLDOWN_RULE, DURATION_RULE, INTERVAL_RULE, Duration, parse_duration
from trimtab.api.schedule import Schedule
from trimtab.api.selector import Selector
from trimtab.api.strategies import SET, Strategies
from trimtab.api.windows import MAX_WINDOWS, Window

DEFAULT_INTERVAL: Final = 300
"""Seconds between two cycles where a policy gives neither interval nor schedule."""

MAX_RUNS: Final = 50

KIND: Final = "DeschedulerPolicy"

Mode = Literal["Simulate", "Approve", "Act"]
SingleReplica = Literal["Evict", "Surge"]


class Limits(Spec, frozen=True):
    """How many pods may be evicted. A limit that is not given does not limit."""

    per_cycle: Annotated[PositiveInt | None, doc("Most evictions in one cycle.")] = None
    per_node: Annotated[PositiveInt | None, doc("Most evictions from one node in one cycle.")] = None
    per_namespace: Annotated[PositiveInt | None, doc("Most evictions in one namespace in one cycle.")] = None
    per_owner: Annotated[
        PositiveInt | None, doc("Most evictions of pods of one owner (ReplicaSet, StatefulSet, Job, …) in one cycle.")
    ] = None
    per_minute: Annotated[
        PositiveInt,
        doc(
            "The pace: most evictions in any minute while acting. It governs acting only and never shortens a plan; "
            "what is not done before the next cycle is due is planned anew."
        ),
    ] = 30


class Cooldown(Spec, frozen=True):
    """What happens when an eviction did not help.

    It did not if the pod's replacement came back to the same node or finds none, or if it came to another node from
    which the same strategy would evict it again. Then the strategy leaves the owner's pods alone for a while, twice as
    long each time, and in the end for good: until the pod template or this spec changes, or the annotation
    trimtab.dev/try-again of the policy gets another value. The status says so, in memory and the condition Effective.
    """

    initial: Annotated[Duration, doc("How long an owner is left alone at first.", DURATION_RULE, COOLDOWN_RULE)] = "10m"
    maximum: Annotated[Duration, doc("How long it is left alone at most.", DURATION_RULE, COOLDOWN_RULE)] = "24h"
    attempts: Annotated[
        int, Meta(ge=1, le=20), doc("How many evictions in a row may fail to help before the strategy gives up.")
    ] = 3
    pending_deadline: Annotated[
        Duration,
        doc(
            "How long a replacement may be Pending until its eviction counts as one that did not help.",
            DURATION_RULE,
            COOLDOWN_RULE,
        ),
    ] = "5m"

    def seconds(self, failures: int) -> int:
        """How long an owner is left alone after so many evictions in a row that did not help."""
        longest = parse_duration(self.maximum)
        return min(longest, parse_duration(self.initial) << min(failures - 1, 32))

    @property
    def pending_seconds(self) -> int:
        """``pendingDeadline`` in seconds."""
        return parse_duration(self.pending_deadline)


class Namespaces(Spec, frozen=True):
    """Which namespaces' pods may be moved; all where nothing is given, but for the protected SystemNamespaces."""

    cel: ClassVar[tuple[Rule, ...]] = (INCLUDE_OR_EXCLUDE,)

    include: Annotated[
        tuple[NamespaceName, ...],
        bounded("Only pods of these namespaces are moved. Not together with exclude.", least=1, limit=256, **SET),
    ] = ()
    exclude: Annotated[
        tuple[NamespaceName, ...],
        bounded("Pods of these namespaces are not moved. Not together with include.", least=1, limit=256, **SET),
    ] = ()


class DeschedulerPolicySpec(Spec, frozen=True):
    """What is to be done."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!(has(self.interval) && has(self.schedule))",
            message="interval and schedule cannot be given together",
            field_path=".schedule",
            reason="FieldValueForbidden",
        ),
        Rule(
            rule="self.mode != 'Approve' || self.runsHistoryLimit > 0",
            message="mode Approve needs runs to approve: runsHistoryLimit must be at least 1",
            field_path=".runsHistoryLimit",
        ),
    )

    strategies: Annotated[Strategies, doc("The strategies by name, each with enabled and params.")]
    mode: Annotated[
        Mode,
        doc(
            "Simulate plans and reports, and moves nothing. Approve writes the plan as a DeschedulingRun and evicts "
            "what still holds of it once somebody has set the run's spec.approved. Act evicts what was planned."
        ),
    ] = "Simulate"
    suspend: Annotated[bool, doc("Holds the policy: no cycle starts while it is true.")] = False
    interval: Annotated[
        Duration | None,
        doc(
            "The time between the starts of two cycles, e.g. 30s, 5m or 1h30m. Not together with schedule; without "
            "either, 5m.",
            DURATION_RULE,
            INTERVAL_RULE,
        ),
    ] = None
    schedule: Annotated[
        Schedule | None, doc("Times at which cycles start, instead of an interval. Not together with interval.")
    ] = None
    windows: Annotated[
        tuple[Window, ...],
        bounded(
            "When pods may be evicted; always without any. Mode Act plans and evicts only while one of the windows is "
            "open, and mode Approve carries runs out only then; whatever only plans goes on at all times. What is not "
            "done when the window closes is left, and planned anew in the next.",
            least=1,
            limit=MAX_WINDOWS,
            **{"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    approval_deadline: Annotated[
        Duration,
        doc(
            "How long a run waits to be approved in mode Approve, e.g. 30m, and after that, how long it may act.",
            DURATION_RULE,
            APPROVAL_RULE,
        ),
    ] = "1h"
    runs_history_limit: Annotated[
        int,
        Meta(ge=0, le=MAX_RUNS),
        doc(
            "How many DeschedulingRuns of this policy are kept; older ones are deleted, but never one that waits or "
            "acts. 0 writes none, and is not for mode Approve."
        ),
    ] = 10
    grace_period_seconds: Annotated[
        NaturalInt | None,
        doc(
            "How many seconds evicted pods have to end, instead of their own terminationGracePeriodSeconds; 0 ends "
            "them at once, without a word. Best left out: a pod's author knows what it needs."
        ),
    ] = None
    single_replica: Annotated[
        SingleReplica,
        doc(
            "How a ready pod goes that is the only one of its owner. Evict: as all others, which is an outage until "
            "its successor is ready. Surge: its Deployment is restarted by a rollout, so that the new pod is ready "
            "before the old one goes; where that cannot be (no Deployment, maxSurge and maxUnavailable do not allow "
            "it, a volume that one node can use), the pod stays."
        ),
    ] = "Evict"
    limits: Limits = Limits()
    cooldown: Cooldown = Cooldown()
    protections: Protections = Protections()
    namespaces: Namespaces = Namespaces()
    namespace_selector: Annotated[
        Selector | None,
        doc("Which namespaces' pods may be moved, by the namespaces' labels, beside namespaces; all without it."),
    ] = None
    pod_selector: Annotated[Selector | None, doc("Which pods may be moved, by label; all without it.")] = None
    node_selector: Annotated[
        Selector | None,
        doc("Which nodes are looked at, by label, as sources and as destinations of moves; all without it."),
    ] = None
    priority_threshold: PriorityThreshold | None = None

    def next_due(self, *, last: float) -> float:
        """When the next cycle is due if the last one started at ``last``; both in seconds since the epoch.

        Raises:
            ValueError: interval or schedule is not valid, see :func:`trimtab.api.checks.validate`.
        """
        if self.schedule is not None:
            return self.schedule.next_due(after=last)
        return last + (parse_duration(self.interval) if self.interval else DEFAULT_INTERVAL)

    @property
    def approval_seconds(self) -> int:
        """``approvalDeadline`` in seconds."""
        return parse_duration(self.approval_deadline)


class DeschedulerPolicy(Spec, frozen=True):
    """Which pods of the cluster are to be moved to better nodes, when, how many at once, and which never.

    Without spec.mode a policy simulates: it plans, reports in its status and events, and moves nothing.
    """

    spec: DeschedulerPolicySpec
    metadata: ObjectMeta = ObjectMeta()
    status: DeschedulerStatus = DeschedulerStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = API_VERSION
    kind: Literal["DeschedulerPolicy"] = KIND

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.metadata.name
