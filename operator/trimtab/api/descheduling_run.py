"""DeschedulingRun: what one cycle of a DeschedulerPolicy planned, whether somebody approved it, and what became of it.

The plan stands in the spec and never changes, so that what is carried out is what was read before it was approved. Of
all the spec only ``approved`` can be written later, from false to true, once, and only while the run waits for it: the
definition's rules say so, whoever writes. trimtab itself has no right to write a spec; it reports in the status.

An object must stay far from what etcd takes (1.5 MiB), so everything is bounded; what is cut is counted beside it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import API_VERSION, Name, NaturalInt, ObjectMeta, Rule, ShortText, Spec, Status, bounded, doc
from trimtab.api.conditions import Condition
from trimtab.api.descheduler_status import KeptPod, ObjectName, Reason, list_map
from trimtab.api.plan import How

KIND: Final = "DeschedulingRun"

MAX_ACTIONS: Final = 500
MAX_KEPT_PODS: Final = 200
MAX_KEPT_REASONS: Final = 256

Phase = Literal["Simulated", "Pending", "Acting", "Completed", "Expired", "Interrupted"]
Result = Literal["Evicted", "Started", "Refused", "Gone", "Skipped", "Failed"]

_ATOMIC: Final = {"x-kubernetes-list-type": "atomic"}


class RunAction(Status, frozen=True, omit_defaults=True):
    """A pod that the plan moves or removes."""

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    uid: Annotated[str, bounded("The pod's UID: a later pod of the same name is never hit.", limit=64)]
    node: Annotated[ObjectName, doc("The node it runs on.")]
    strategy: Annotated[ObjectName, doc("The strategy that asked for it.")]
    reason: Annotated[Reason, doc("Why: the reason's code.")]
    target: Annotated[ObjectName, doc("The node on which its place was reserved; empty of a pod that had ended.")] = ""
    owner: Annotated[str, bounded("Its controller, as Kind/name.", limit=512)] = ""
    how: Annotated[
        How, doc("Evict, or Surge: its Deployment is restarted, so that the new pod is ready before this one goes.")
    ] = "Evict"
    message: Annotated[ShortText, doc("Why, in words and numbers.")] = ""


class KeptCount(Status, frozen=True):
    """How many candidates one strategy left where they are for one reason."""

    strategy: Annotated[ObjectName, doc("The strategy.")]
    reason: Annotated[Reason, doc("The reason's code.")]
    count: Annotated[NaturalInt, doc("How many candidates.")]


class RunPlan(Status, frozen=True, omit_defaults=True):
    """What was planned, on the cluster as it was at that time. It never changes."""

    policy: Annotated[Name, doc("The policy's name.")]
    policy_uid: Annotated[
        str, bounded("The policy's UID: a later policy of the same name has runs of its own.", limit=64)
    ]
    policy_generation: Annotated[
        int,
        Meta(ge=0),
        doc("The generation of the policy's spec. A changed spec makes its runs expire.", format="int64"),
    ]
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("The mode in which the policy was.")]
    time: Annotated[datetime, doc("When the plan was made.")]
    planned: Annotated[NaturalInt, doc("Moves that were planned, those that actions leaves out among them.")]
    kept: Annotated[NaturalInt, doc("Candidates that were considered and left where they are.")]
    approve_until: Annotated[
        datetime | None, doc("Until when the run can be approved; without anything to approve there is no such time.")
    ] = None
    actions: Annotated[
        tuple[RunAction, ...],
        bounded(
            "The moves in the order of the plan, the first of them where they are many.", limit=MAX_ACTIONS, **_ATOMIC
        ),
    ] = ()
    actions_omitted: Annotated[
        NaturalInt,
        doc("Moves that were planned and for which there was no room here. Approving the run does not approve them."),
    ] = 0
    kept_reasons: Annotated[
        tuple[KeptCount, ...],
        bounded("Candidates that were left, by strategy and reason.", limit=MAX_KEPT_REASONS, **_ATOMIC),
    ] = ()
    kept_pods: Annotated[
        tuple[KeptPod, ...], bounded("Candidates that were left, the first of them.", limit=MAX_KEPT_PODS, **_ATOMIC)
    ] = ()
    kept_omitted: Annotated[NaturalInt, doc("Candidates that were left and for which there was no room here.")] = 0
    nodes: Annotated[NaturalInt, doc("Nodes that were looked at.")] = 0
    pods: Annotated[NaturalInt, doc("Pods that were looked at.")] = 0


class DeschedulingRunSpec(Spec, frozen=True):
    """The plan, and whether it is approved."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.approved || !oldSelf.approved",
            message="an approval cannot be taken back; suspend the policy to stop what it does",
            field_path=".approved",
            reason="FieldValueForbidden",
        ),
        Rule(
            rule="!self.approved || (self.plan.mode == 'Approve' && has(self.plan.actions))",
            message="there is nothing to approve: the policy's mode is not Approve, or nothing was planned",
            field_path=".approved",
            reason="FieldValueForbidden",
        ),
    )

    plan: Annotated[
        RunPlan,
        doc(
            "What was planned. It never changes.",
            Rule(rule="self == oldSelf", message="a plan cannot be changed", reason="FieldValueForbidden"),
        ),
    ]
    approved: Annotated[
        bool,
        doc(
            "Lets trimtab carry the plan out, in mode Approve. It can be set once, while status.phase is Pending, and "
            "not be taken back. Each move is judged again before it is made."
        ),
    ] = False


class RunOutcome(Status, frozen=True, omit_defaults=True):
    """What became of one action."""

    namespace: Annotated[ObjectName, doc("The pod's namespace.")]
    pod: Annotated[ObjectName, doc("The pod's name.")]
    uid: Annotated[str, bounded("The pod's UID.", limit=64)]
    result: Annotated[
        Result,
        doc(
            "Evicted: the API server took the eviction. Started: it was begun and goes on by itself, but had not "
            "ended when the cycle did. Refused: it, or the check right before, said no. Gone: there "
            "was nothing left to evict. Skipped: the move no longer held, or its turn did not come. Failed: it was "
            "tried and did not succeed, for another cause than a budget."
        ),
    ]
    reason: Annotated[Reason, doc("The reason's code.")]
    time: Annotated[datetime, doc("When it was known.")]
    message: Annotated[ShortText, doc("The same in words and numbers.")] = ""


class DeschedulingRunStatus(Status, frozen=True):
    """What became of the plan."""

    phase: Annotated[
        Phase | None,
        doc(
            "Simulated: nothing is to be done. Pending: waits for spec.approved. Acting: its moves are being made. "
            "Completed: every action has its outcome. Expired: superseded, or not approved (or not finished) in time; "
            "it can no longer be approved. Interrupted: trimtab ended while it acted, and the policy plans anew."
        ),
    ] = None
    conditions: Annotated[
        tuple[Condition, ...], bounded("Approved (in mode Approve) and Complete.", limit=16, **list_map("type"))
    ] = ()
    approved_at: Annotated[
        datetime | None, doc("When trimtab saw the approval. It acts on it for as long as it would have waited for it.")
    ] = None
    completed: Annotated[datetime | None, doc("When the run ended.")] = None
    evicted: Annotated[NaturalInt, doc("Pods that were evicted.")] = 0
    started: Annotated[NaturalInt, doc("Pods that were on their way out, but not gone, when their cycle ended.")] = 0
    refused: Annotated[NaturalInt, doc("Evictions that were refused or failed.")] = 0
    skipped: Annotated[NaturalInt, doc("Actions that were not tried, or whose pod had gone.")] = 0
    repeats: Annotated[
        NaturalInt, doc("Later cycles that planned the same, or less of it, and so wrote no run of their own.")
    ] = 0
    last_repeat: Annotated[datetime | None, doc("When the last of them ran.")] = None
    outcomes: Annotated[
        tuple[RunOutcome, ...],
        bounded("What became of spec.plan.actions, in the order in which it was known.", limit=MAX_ACTIONS, **_ATOMIC),
    ] = ()


class DeschedulingRun(Spec, frozen=True):
    """One run (cycle) of a DeschedulerPolicy: what it planned and why, and what became of it.

    trimtab writes it. In mode Approve the plan is carried out after somebody has set spec.approved to true, which is
    the only field that can be changed; who may patch this kind may approve.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # A status cannot be given on creation, so this also forbids a run that is born approved.
            rule="!self.spec.approved || has(self.status)",
            message="a run cannot be approved before trimtab has reported it as Pending",
            field_path=".spec.approved",
            reason="FieldValueForbidden",
        ),
        Rule(
            rule="self.spec.approved == oldSelf.spec.approved || "
            "(has(self.status) && has(self.status.phase) && self.status.phase == 'Pending')",
            message="only a run whose phase is Pending can be approved; an expired one is superseded by a newer run",
            field_path=".spec.approved",
            reason="FieldValueForbidden",
        ),
    )

    spec: DeschedulingRunSpec
    metadata: ObjectMeta = ObjectMeta()
    status: DeschedulingRunStatus = DeschedulingRunStatus()
    api_version: Literal["trimtab.dev/v1alpha1"] = API_VERSION
    kind: Literal["DeschedulingRun"] = KIND

    @property
    def name(self) -> str:
        """The run's name."""
        return self.metadata.name
