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
    """A planned eviction of a pod, or a planned deletion of a terminated pod."""

    namespace: Annotated[ObjectName, doc("Namespace of the pod.")]
    pod: Annotated[ObjectName, doc("Name of the pod.")]
    uid: Annotated[str, bounded("UID of the pod. A new pod with the same name is not evicted.", limit=64)]
    node: Annotated[ObjectName, doc("Name of the node on which the pod runs.")]
    strategy: Annotated[ObjectName, doc("Name of the strategy that requested the eviction.")]
    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains why the pod is evicted.")]
    target: Annotated[
        ObjectName,
        doc(
            "Name of the node on which the plan reserved capacity for the replacement pod. Empty if the pod has "
            "already terminated."
        ),
    ] = ""
    owner: Annotated[
        str, bounded("Controller of the pod, in the form Kind/name. Empty if the pod has no controller.", limit=512)
    ] = ""
    how: Annotated[
        How,
        doc(
            "How the pod is evicted. Evict uses the eviction API. If the pod has already terminated, the "
            "eviction API only deletes it. Surge restarts the pod's Deployment with a rolling update, so that "
            "the new pod is Ready before the old pod terminates."
        ),
    ] = "Evict"
    cause: Annotated[
        str,
        bounded(
            "Pod in another namespace that causes the eviction, in the form namespace/name. Such a pod has, for "
            "example, anti-affinity to the evicted pod. Empty if no pod in another namespace causes the eviction.",
            limit=317,
        ),
    ] = ""
    message: Annotated[
        ShortText,
        doc(
            "Human-readable message that explains why the pod is evicted and contains the observed values and the "
            "limits."
        ),
    ] = ""


class KeptCount(Status, frozen=True):
    """A reason why a strategy planned no eviction, and the number of pods and nodes to which this reason applies."""

    strategy: Annotated[ObjectName, doc("Name of the strategy that considered the pods and nodes.")]
    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains why no eviction is planned.")]
    count: Annotated[NaturalInt, doc("Number of pods and nodes to which this reason applies.")]


class RunPlan(Status, frozen=True, omit_defaults=True):
    """The plan, computed from the state of the cluster when the run was created. Immutable."""

    policy: Annotated[Name, doc("Name of the DeschedulerPolicy that made the plan.")]
    policy_uid: Annotated[
        str,
        bounded(
            "UID of the DeschedulerPolicy that made the plan, which distinguishes it from other policies with the same "
            "name.",
            limit=64,
        ),
    ]
    policy_generation: Annotated[
        int,
        Meta(ge=0),
        doc(
            "The metadata.generation of the DeschedulerPolicy when the plan was made. In Approve mode, the run expires "
            "if the policy's spec changes before the run is completed.",
            format="int64",
        ),
    ]
    mode: Annotated[Literal["Simulate", "Approve", "Act"], doc("Mode of the DeschedulerPolicy when the plan was made.")]
    time: Annotated[datetime, doc("Time at which the plan was made.")]
    planned: Annotated[
        NaturalInt, doc("Total number of planned evictions, including those that are omitted from actions.")
    ]
    kept: Annotated[
        NaturalInt,
        doc("Total number of pods and nodes for which strategies planned no eviction."),
    ]
    approve_until: Annotated[
        datetime | None,
        doc("Time until which the run can be approved. Unset if the mode is not Approve or no eviction is planned."),
    ] = None
    actions: Annotated[
        tuple[RunAction, ...],
        bounded(
            "Planned evictions in the order of execution. The list may be truncated. The number of omitted "
            "evictions is in actionsOmitted.",
            limit=MAX_ACTIONS,
            **ATOMIC,
        ),
    ] = ()
    actions_omitted: Annotated[
        NaturalInt,
        doc(
            "Number of planned evictions that are omitted from actions because its length is limited. Approving the "
            "run does not approve the omitted evictions."
        ),
    ] = 0
    kept_reasons: Annotated[
        tuple[KeptCount, ...],
        bounded(
            "Number of pods and nodes for which strategies planned no eviction, by strategy and reason.",
            limit=MAX_KEPT_REASONS,
            **ATOMIC,
        ),
    ] = ()
    kept_pods: Annotated[
        tuple[KeptPod, ...],
        bounded(
            "Pods and nodes for which strategies planned no eviction. The list may be truncated. The "
            "number of omitted entries is in keptOmitted.",
            limit=MAX_KEPT_PODS,
            **ATOMIC,
        ),
    ] = ()
    kept_omitted: Annotated[
        NaturalInt, doc("Number of pods and nodes that are omitted from keptPods because its length is limited.")
    ] = 0
    nodes: Annotated[NaturalInt, doc("Number of nodes in the cluster when the plan was made.")] = 0
    pods: Annotated[NaturalInt, doc("Number of pods in the cluster when the plan was made.")] = 0


class DeschedulingRunSpec(Spec, frozen=True):
    """Plan of the run, and whether the plan is approved."""

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
            "Evictions that the policy planned, and the pods and nodes for which the policy planned no eviction. The "
            "plan is immutable.",
            Rule(rule="self == oldSelf", message="a plan cannot be changed", reason="FieldValueForbidden"),
        ),
    ]
    approved: Annotated[
        bool,
        doc(
            "Whether a user has approved the execution of the plan. Only valid in Approve mode. The field can be set "
            "to true only while status.phase is Pending, and cannot be set back to false. The operator validates each "
            "eviction again before executing it. To stop the execution, suspend the policy."
        ),
    ] = False


class RunOutcome(Status, frozen=True, omit_defaults=True):
    """Outcome of a planned eviction."""

    namespace: Annotated[ObjectName, doc("Namespace of the pod.")]
    pod: Annotated[ObjectName, doc("Name of the pod.")]
    uid: Annotated[str, bounded("UID of the pod.", limit=64)]
    result: Annotated[
        Result,
        doc(
            "Result of the planned eviction. Evicted means that the API server accepted the eviction. Started means "
            "that another controller or a rolling restart continues the eviction after the end of the run. Refused "
            "means that the eviction failed the final validation, or that the API server rejected it, for example "
            "because of a PodDisruptionBudget. Gone means that the pod no longer existed. Skipped means that no "
            "request was sent because the plan was outdated or the execution ended. Failed means that the request "
            "failed for another reason."
        ),
    ]
    reason: Annotated[ReasonCode, doc("Reason code in CamelCase that explains the result.")]
    time: Annotated[datetime, doc("Time at which the outcome was observed.")]
    message: Annotated[ShortText, doc("Human-readable message with details about the outcome.")] = ""


class DeschedulingRunStatus(Status, frozen=True):
    """Progress and outcome of the run."""

    phase: Annotated[
        Phase | None,
        doc(
            "Phase of the run. Simulated means that the plan is only informational. Pending means that the run waits "
            "for a user to set spec.approved to true. Acting means that the evictions are being executed. Completed "
            "means that every planned eviction has an outcome, or that no eviction was planned. Expired means that the "
            "run was not approved or completed in time, or that a newer run or a change of the policy's spec "
            "superseded the run. Interrupted means that the operator stopped or the cycle failed during the execution."
        ),
    ] = None
    conditions: Annotated[
        tuple[Condition, ...],
        condition_list(
            "Current conditions of the DeschedulingRun. Approved is True if a user has approved the run, and exists "
            "only in Approve mode. Complete is True if every planned eviction has an outcome, or if the plan is only "
            "simulated."
        ),
    ] = ()
    approved_at: Annotated[
        datetime | None,
        doc(
            "Time at which the operator observed the approval. The run expires if it is not completed within the "
            "policy's approvalDeadline after this time."
        ),
    ] = None
    completed: Annotated[
        datetime | None, doc("Time at which the run ended. Unset while the phase is Pending or Acting.")
    ] = None
    evicted: Annotated[
        NaturalInt, doc("Number of pods that the run evicted, including terminated pods that it deleted.")
    ] = 0
    started: Annotated[
        NaturalInt,
        doc(
            "Number of evictions that were still in progress when the run ended. In each case, another component or a "
            "rolling restart of the Deployment removes the pod later."
        ),
    ] = 0
    refused: Annotated[NaturalInt, doc("Number of evictions that were rejected or failed.")] = 0
    skipped: Annotated[
        NaturalInt, doc("Number of planned evictions that were not executed or whose pod no longer existed.")
    ] = 0
    repeats: Annotated[
        NaturalInt,
        doc(
            "Number of later cycles of the policy that made the same plan or, in Approve mode, a subset of the plan. "
            "For such a cycle, the operator increments this number instead of creating another DeschedulingRun."
        ),
    ] = 0
    last_repeat: Annotated[datetime | None, doc("Start time of the most recent cycle that is counted in repeats.")] = (
        None
    )
    outcomes: Annotated[
        tuple[RunOutcome, ...],
        bounded(
            "Outcomes of the evictions in spec.plan.actions, in the order in which they were observed.",
            limit=MAX_ACTIONS,
            **ATOMIC,
        ),
    ] = ()


class DeschedulingRun(Spec, frozen=True):
    """DeschedulingRun records the plan of one cycle of a DeschedulerPolicy, and the outcome of its evictions.

    trimtab creates DeschedulingRuns. In Approve mode, the plan is executed after a user has set spec.approved to true.
    Users who are allowed to patch deschedulingruns can approve runs. spec.approved is the only mutable field of the
    spec.
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
