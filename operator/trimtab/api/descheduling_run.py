"""DeschedulingRun: the plan of one cycle of a DeschedulerPolicy, its approval and its outcome.

The plan is in the spec and immutable, so that exactly the plan that a user has read and approved is executed. The only
mutable field of the spec is ``approved``, which can be set from false to true once, while the run is pending; CEL rules
of the CRD enforce this for every client. trimtab has no permission to change a spec and reports in the status.

All lists are bounded, because an object must stay well below etcd's limit (1.5 MiB); omitted entries are counted.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import (
    API_VERSION,
    ATOMIC,
    Name,
    NaturalInt,
    ObjectMeta,
    ObjectName,
    ReasonCode,
    Rule,
    ShortText,
    Spec,
    Status,
    bounded,
    doc,
)
from trimtab.api.conditions import Condition, condition_list
from trimtab.api.descheduler_status import KeptPod
from trimtab.api.plan import How

KIND: Final = "DeschedulingRun"

MAX_ACTIONS: Final = 500
MAX_KEPT_PODS: Final = 200
MAX_KEPT_REASONS: Final = 256

Phase = Literal["Simulated", "Pending", "Acting", "Completed", "Expired", "Interrupted"]
Result = Literal["Evicted", "Started", "Refused", "Gone", "Skipped", "Failed"]


class RunAction(Status, frozen=True, omit_defaults=True):
    """A planned eviction of a pod, or the planned deletion of a terminated pod."""

    namespace: Annotated[ObjectName, doc("The namespace of the pod.")]
    pod: Annotated[ObjectName, doc("The name of the pod.")]
    uid: Annotated[
        str, bounded("The UID of the pod. Only this pod is evicted, not a new pod with the same name.", limit=64)
    ]
    node: Annotated[ObjectName, doc("The node that the pod runs on.")]
    strategy: Annotated[ObjectName, doc("The strategy that requested the eviction.")]
    reason: Annotated[ReasonCode, doc("The reason code for the eviction.")]
    target: Annotated[
        ObjectName,
        doc(
            "The node on which the plan reserved capacity for the replacement; empty for pods that have already "
            "terminated."
        ),
    ] = ""
    owner: Annotated[str, bounded("The controller of the pod, as Kind/name.", limit=512)] = ""
    how: Annotated[
        How,
        doc(
            "Evict: the pod is evicted through the eviction API. Surge: its Deployment is restarted with a rolling "
            "update, so that the new pod is Ready before this pod terminates."
        ),
    ] = "Evict"
    cause: Annotated[
        str,
        bounded(
            "The pod in another namespace whose scheduling rule causes the eviction, as namespace/name; empty "
            "if the eviction is not caused by a pod in another namespace.",
            limit=317,
        ),
    ] = ""
    message: Annotated[ShortText, doc("Why the pod is evicted, with the values that were compared.")] = ""


class KeptCount(Status, frozen=True):
    """Number of candidates that a strategy did not select for eviction, for a given reason."""

    strategy: Annotated[ObjectName, doc("The name of the strategy.")]
    reason: Annotated[ReasonCode, doc("The reason code.")]
    count: Annotated[NaturalInt, doc("Number of candidates.")]


class RunPlan(Status, frozen=True, omit_defaults=True):
    """The plan, computed from the state of the cluster when the run was created. Immutable."""

    policy: Annotated[Name, doc("The name of the policy.")]
    policy_uid: Annotated[
        str, bounded("The UID of the policy. A later policy with the same name has its own runs.", limit=64)
    ]
    policy_generation: Annotated[
        int,
        Meta(ge=0),
        doc("The generation of the policy's spec. If the spec changes, its pending runs expire.", format="int64"),
    ]
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("The policy's mode when the plan was made.")]
    time: Annotated[datetime, doc("When the plan was made.")]
    planned: Annotated[NaturalInt, doc("Total number of planned evictions, including those omitted from actions.")]
    kept: Annotated[NaturalInt, doc("Total number of candidates that are not evicted.")]
    approve_until: Annotated[
        datetime | None, doc("The run can be approved until this time; unset if there is nothing to approve.")
    ] = None
    actions: Annotated[
        tuple[RunAction, ...],
        bounded(
            "The planned evictions in the order of execution. If there are too many, only the first ones are listed.",
            limit=MAX_ACTIONS,
            **ATOMIC,
        ),
    ] = ()
    actions_omitted: Annotated[
        NaturalInt,
        doc(
            "Number of planned evictions that are omitted from actions to limit its size. Approving the run "
            "does not approve them."
        ),
    ] = 0
    kept_reasons: Annotated[
        tuple[KeptCount, ...],
        bounded("Number of candidates that are not evicted, by strategy and reason.", limit=MAX_KEPT_REASONS, **ATOMIC),
    ] = ()
    kept_pods: Annotated[
        tuple[KeptPod, ...],
        bounded(
            "Candidates that are not evicted. The list is truncated; keptOmitted contains the number of the others.",
            limit=MAX_KEPT_PODS,
            **ATOMIC,
        ),
    ] = ()
    kept_omitted: Annotated[
        NaturalInt, doc("Number of candidates that are omitted from keptPods to limit its size.")
    ] = 0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster when the plan was made.")] = 0
    pods: Annotated[NaturalInt, doc("Number of pods in the cluster when the plan was made.")] = 0


class DeschedulingRunSpec(Spec, frozen=True):
    """The plan and its approval."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.approved || !oldSelf.approved",
            message="an approval cannot be taken back; suspend the policy to stop its evictions",
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
            "The plan. It cannot be changed.",
            Rule(rule="self == oldSelf", message="a plan cannot be changed", reason="FieldValueForbidden"),
        ),
    ]
    approved: Annotated[
        bool,
        doc(
            "Approves the execution of the plan, in mode Approve. Can be set to true once, while status.phase is "
            "Pending, and cannot be reverted. Each eviction is validated again before it is executed."
        ),
    ] = False


class RunOutcome(Status, frozen=True, omit_defaults=True):
    """The outcome of one action."""

    namespace: Annotated[ObjectName, doc("The namespace of the pod.")]
    pod: Annotated[ObjectName, doc("The name of the pod.")]
    uid: Annotated[str, bounded("The UID of the pod.", limit=64)]
    result: Annotated[
        Result,
        doc(
            "Evicted: the API server accepted the eviction and the pod is gone or terminating. Started: the "
            "eviction continues asynchronously and had not finished when the cycle ended. Refused: the API "
            "server refused the eviction, for example because of a PodDisruptionBudget, or the validation directly "
            "before the request did. Gone: the pod no longer existed. Skipped: no request was sent, because the "
            "action was outdated or the cycle ended. Failed: the request failed for another reason."
        ),
    ]
    reason: Annotated[ReasonCode, doc("The reason code of the outcome.")]
    time: Annotated[datetime, doc("When the outcome was observed.")]
    message: Annotated[ShortText, doc("Human-readable details of the outcome.")] = ""


class DeschedulingRunStatus(Status, frozen=True):
    """The progress and outcome of the run."""

    phase: Annotated[
        Phase | None,
        doc(
            "Simulated: the plan is for information only. Pending: waiting for spec.approved. Acting: the "
            "evictions are being executed. Completed: every action has an outcome. Expired: superseded by a "
            "newer run or a changed spec, not approved in time, or not finished in time; it can no longer be "
            "approved. Interrupted: the operator stopped or the cycle failed during execution; a later cycle "
            "makes a new plan."
        ),
    ] = None
    conditions: Annotated[
        tuple[Condition, ...], condition_list("The conditions Approved (in mode Approve) and Complete.")
    ] = ()
    approved_at: Annotated[
        datetime | None,
        doc(
            "When the operator observed the approval. The run must be executed within the policy's "
            "approvalDeadline after this time."
        ),
    ] = None
    completed: Annotated[datetime | None, doc("When the run ended.")] = None
    evicted: Annotated[NaturalInt, doc("Number of evicted pods.")] = 0
    started: Annotated[
        NaturalInt,
        doc("Number of pods whose eviction was accepted but that were not deleted yet when the cycle ended."),
    ] = 0
    refused: Annotated[NaturalInt, doc("Number of evictions that were refused or failed.")] = 0
    skipped: Annotated[NaturalInt, doc("Number of actions that were not executed, or whose pod no longer existed.")] = 0
    repeats: Annotated[
        NaturalInt,
        doc(
            "Number of later cycles whose plan was identical to this plan or a part of it. No separate run is "
            "created for such a cycle."
        ),
    ] = 0
    last_repeat: Annotated[datetime | None, doc("Time of the most recent cycle that is counted in repeats.")] = None
    outcomes: Annotated[
        tuple[RunOutcome, ...],
        bounded(
            "The outcomes of spec.plan.actions, in the order in which they were observed.", limit=MAX_ACTIONS, **ATOMIC
        ),
    ] = ()


class DeschedulingRun(Spec, frozen=True):
    """Records one cycle of a DeschedulerPolicy: the plan, the reasons and the outcome.

    trimtab creates it. In mode Approve the plan is executed after a user has set spec.approved to true. spec.approved
    is the only mutable field, so anyone with the patch permission on deschedulingruns can approve runs.
    """

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            # The API server ignores the status on creation: this rule also rejects a run that is created approved.
            rule="!self.spec.approved || has(self.status)",
            message="a run cannot be approved before its phase is Pending",
            field_path=".spec.approved",
            reason="FieldValueForbidden",
        ),
        Rule(
            rule="self.spec.approved == oldSelf.spec.approved || "
            "(has(self.status) && has(self.status.phase) && self.status.phase == 'Pending')",
            message="only a run in phase Pending can be approved; an expired run is superseded by a newer run",
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
        """Return the run's name."""
        return self.metadata.name
