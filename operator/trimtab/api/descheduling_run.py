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
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase, for the eviction.")]
    target: Annotated[
        ObjectName,
        doc(
            "The node on which the plan reserved capacity for the replacement pod; empty for pods that have "
            "already terminated."
        ),
    ] = ""
    owner: Annotated[str, bounded("The controller of the pod, as Kind/name; empty if it has none.", limit=512)] = ""
    how: Annotated[
        How,
        doc(
            "How the pod is evicted. Evict: through the eviction API. Surge: its Deployment is restarted with a "
            "rolling update, so that the new pod is Ready before this pod terminates."
        ),
    ] = "Evict"
    cause: Annotated[
        str,
        bounded(
            "The pod in another namespace because of which this pod is evicted, as namespace/name, for example "
            "a pod with anti-affinity to this pod. Empty if there is none.",
            limit=317,
        ),
    ] = ""
    message: Annotated[ShortText, doc("Why the pod is evicted, with the values that were compared.")] = ""


class KeptCount(Status, frozen=True):
    """Number of pods and nodes for which one strategy plans no eviction, for one reason."""

    strategy: Annotated[ObjectName, doc("The strategy that considered the pods and nodes.")]
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase: why no eviction is planned.")]
    count: Annotated[NaturalInt, doc("Number of pods and nodes.")]


class RunPlan(Status, frozen=True, omit_defaults=True):
    """The plan, computed from the state of the cluster when the run was created. Immutable."""

    policy: Annotated[Name, doc("The name of the DeschedulerPolicy.")]
    policy_uid: Annotated[
        str, bounded("The UID of the DeschedulerPolicy. A later policy with the same name has its own runs.", limit=64)
    ]
    policy_generation: Annotated[
        int,
        Meta(ge=0),
        doc(
            "The metadata.generation of the policy when the plan was made. In mode Approve, the run expires if "
            "the policy's spec changes before the run is completed.",
            format="int64",
        ),
    ]
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("The policy's mode when the plan was made.")]
    time: Annotated[datetime, doc("When the plan was made.")]
    planned: Annotated[NaturalInt, doc("Total number of planned evictions, including those omitted from actions.")]
    kept: Annotated[
        NaturalInt,
        doc("Total number of pods and nodes that strategies considered but for which no eviction is planned."),
    ]
    approve_until: Annotated[
        datetime | None,
        doc("The run can be approved until this time; unset if the mode is not Approve or no eviction is planned."),
    ] = None
    actions: Annotated[
        tuple[RunAction, ...],
        bounded(
            "The planned evictions in the order of execution. The list may be truncated; actionsOmitted is the "
            "number of omitted evictions.",
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
        bounded(
            "Number of pods and nodes for which no eviction is planned, by strategy and reason.",
            limit=MAX_KEPT_REASONS,
            **ATOMIC,
        ),
    ] = ()
    kept_pods: Annotated[
        tuple[KeptPod, ...],
        bounded(
            "Pods that strategies considered but that are not evicted, and nodes that they could not balance or "
            "drain. The list may be truncated; keptOmitted is the number of omitted entries.",
            limit=MAX_KEPT_PODS,
            **ATOMIC,
        ),
    ] = ()
    kept_omitted: Annotated[
        NaturalInt, doc("Number of pods and nodes that are omitted from keptPods to limit its size.")
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
            "The evictions that the policy planned, and why it planned no others. The plan cannot be changed.",
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
    """The outcome of one planned eviction."""

    namespace: Annotated[ObjectName, doc("The namespace of the pod.")]
    pod: Annotated[ObjectName, doc("The name of the pod.")]
    uid: Annotated[str, bounded("The UID of the pod.", limit=64)]
    result: Annotated[
        Result,
        doc(
            "Evicted: the API server accepted the eviction, and the pod is gone or terminating. Started: the "
            "eviction was still in progress when the cycle ended, because another controller or a rolling "
            "restart completes it. Refused: the API server refused the eviction, for example because of a "
            "PodDisruptionBudget, or the eviction failed the validation directly before the request. Gone: the "
            "pod no longer existed. Skipped: no request was sent, because the planned eviction was outdated or "
            "the cycle ended. Failed: the request failed for another reason."
        ),
    ]
    reason: Annotated[ReasonCode, doc("Reason code, in CamelCase, for the result.")]
    time: Annotated[datetime, doc("When the outcome was observed.")]
    message: Annotated[ShortText, doc("Human-readable details of the outcome.")] = ""


class DeschedulingRunStatus(Status, frozen=True):
    """The progress and outcome of the run."""

    phase: Annotated[
        Phase | None,
        doc(
            "Simulated: the plan is for information only. Pending: the run waits for spec.approved. Acting: the "
            "evictions are being executed. Completed: every planned eviction has an outcome, or none was "
            "planned. Expired: the run was superseded by a newer run or a changed spec, not approved in time, "
            "or not finished in time; it can no longer be approved. Interrupted: the operator stopped or the "
            "cycle failed during execution; a later cycle makes a new plan."
        ),
    ] = None
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Conditions: Approved (a user has approved the run; set only in mode Approve); Complete (every "
            "planned eviction has an outcome, or the plan is only simulated)."
        ),
    ] = ()
    approved_at: Annotated[
        datetime | None,
        doc(
            "When the operator observed the approval. The run must be executed within the policy's "
            "approvalDeadline after this time."
        ),
    ] = None
    completed: Annotated[datetime | None, doc("When the run ended; unset in the phases Pending and Acting.")] = None
    evicted: Annotated[NaturalInt, doc("Number of pods that the run evicted.")] = 0
    started: Annotated[
        NaturalInt,
        doc(
            "Number of pods whose eviction was still in progress when the cycle ended: another controller "
            "completes it, or a rolling restart of the Deployment replaces the pod."
        ),
    ] = 0
    refused: Annotated[NaturalInt, doc("Number of evictions that were refused or failed.")] = 0
    skipped: Annotated[
        NaturalInt, doc("Number of planned evictions that were not executed, or whose pod no longer existed.")
    ] = 0
    repeats: Annotated[
        NaturalInt,
        doc(
            "Number of later cycles that produced the same plan or, in mode Approve, a subset of it. No "
            "separate DeschedulingRun is created for these cycles."
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
    """Records one cycle of a DeschedulerPolicy: the planned evictions, the reasons and the outcome.

    trimtab creates DeschedulingRuns. In mode Approve, the plan is executed after a user has set spec.approved to true.
    spec.approved is the only mutable field, so anyone with the patch permission on deschedulingruns can approve runs.
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
