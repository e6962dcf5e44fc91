"""Reason codes: every reason that trimtab reports, in one list.

The codes are a stable API. The same code appears in plans, events, conditions and metric labels, so that users can
search for it. The accompanying message contains the details. Codes are CamelCase and at most 128 characters long
(events.k8s.io/v1 limits ``reason``). They are ``Final`` strings rather than an enum, so that other modules can add
codes and no conversion to JSON is needed.
"""

from __future__ import annotations

from typing import Final

# ── Why a pod is moved ───────────────────────────────────────────────────────────────────────────────────────────────

DUPLICATE_ON_NODE: Final = "DuplicateOnNode"
"""The node runs more pods of the owner than in an even distribution, and another feasible node runs fewer."""
NODE_OVERUTILIZED: Final = "NodeOverutilized"
"""The node's requests or measured usage exceed the target threshold of a resource that the pod uses, and the pod fits
on an underutilized node."""
INTER_POD_ANTI_AFFINITY_VIOLATED: Final = "InterPodAntiAffinityViolated"
"""The pod shares a topology domain with another pod although a required anti-affinity term of one of them forbids it.
"""
NODE_UNDERUTILIZED: Final = "NodeUnderutilized"
"""The node's requests are at or below every threshold, and all its pods fit on other nodes."""
INTER_POD_AFFINITY_VIOLATED: Final = "InterPodAffinityViolated"
"""Another feasible node satisfies the pod's inter-pod affinity, and the pod's node satisfies it less or not at all."""
NODE_AFFINITY_VIOLATED: Final = "NodeAffinityViolated"
"""The node does not satisfy the pod's node selector or node affinity, and another feasible node does."""
NODE_TAINTS_VIOLATED: Final = "NodeTaintsViolated"
"""The node has a taint that the pod does not tolerate, and the pod fits on another node."""
TOPOLOGY_SPREAD_VIOLATED: Final = "TopologySpreadViolated"
"""The pod's topology domain exceeds the maxSkew of a topology spread constraint, and the pod fits in a domain with
fewer pods."""
TOO_MANY_RESTARTS: Final = "TooManyRestarts"
"""The pod's containers have restarted ``podRestartThreshold`` times or more."""
POD_LIFE_TIME_EXCEEDED: Final = "PodLifeTimeExceeded"
"""The pod is older than ``maxPodLifeTimeSeconds`` and matches the other parameters of PodLifeTime."""
POD_STATE_MATCHED: Final = "PodStateMatched"
"""The pod has a state, a condition or an exit code that the parameters of PodLifeTime list, and the parameters set no
maximum age."""
POD_FAILED: Final = "PodFailed"
"""The pod has failed and matches the parameters of RemoveFailedPods. The pod is only deleted, so it needs no target
node."""

# ── What a scheduler does with a pod ─────────────────────────────────────────────────────────────────────────────────

SCHEDULED: Final = "Scheduled"
"""The pending pod fits on the node, which has the highest score of the feasible nodes."""
UNSCHEDULABLE: Final = "Unschedulable"
"""The pending pod fits on no node. The message lists kube-scheduler's reasons and the number of nodes for each."""
PREEMPTED: Final = "Preempted"
"""The pod has a lower priority than a pending pod that fits on no node, and its removal makes room for that pod."""
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
"""Reason of the condition DisruptionTarget of a pod that is preempted. kube-scheduler uses the same reason, so pod
failure policies of Jobs work unchanged."""
FAILED_SCHEDULING: Final = "FailedScheduling"
"""Event: a scheduling attempt failed, because the pod fits on no node or because of an error. The pod is retried."""
SCHEDULER_ERROR: Final = "SchedulerError"
"""Reason of a pod's condition PodScheduled=False: an error ended the last scheduling attempt. The pod is retried."""
OTHER_NODE_PREFERRED: Final = "OtherNodePreferred"
"""The scheduler policy would place the running pod on another node. The reason is only reported, because schedulers do
not move running pods."""

# ── Why a pod is kept: no better node ────────────────────────────────────────────────────────────────────────────────

NO_PLACE: Final = "NoPlace"
"""The pod fits on no other node. The message lists kube-scheduler's reasons and the number of nodes for each."""
REPLACEMENT_LARGER: Final = "ReplacementLarger"
"""The pod fits on another node, but the replacement pod that its controller would create does not. The pod template
requests more than the running pod, for example because the pod was resized in place, or permits fewer nodes, for
example because it sets ``nodeName``. The message contains the differences. A node is kept for this reason if the reason
applies to one of its pods."""
NO_IMPROVEMENT: Final = "NoImprovement"
"""The pod fits on another node, but moving it would not reduce the strategy's violation."""
NOT_ENOUGH_NODES: Final = "NotEnoughNodes"
"""The strategy needs at least two feasible nodes, or more underutilized nodes than ``numberOfNodes``."""
NOT_MEASURED: Final = "NotMeasured"
"""The strategy uses metrics, but the node has none, so no pod is moved from or to the node."""
NO_UNDERUTILIZED_NODES: Final = "NoUnderutilizedNodes"
"""No schedulable node is at or below every threshold, so there is no underutilized node to move pods to."""
DESTINATION_UNNEEDED: Final = "DestinationUnneeded"
"""The node is underutilized, but an autoscaler is about to remove it, so LowNodeUtilization moves no pod to it. The
message names the taint or annotation."""
NAMESPACE_NOT_EVICTABLE: Final = "NamespaceNotEvictable"
"""The strategy's ``evictableNamespaces.exclude`` lists the pod's namespace."""
NOT_IN_SCOPE: Final = "NotInScope"
"""The policy's ``namespaces`` or ``podSelector`` does not select the pod, so its node cannot be drained completely."""
IRRELEVANT_RESOURCE: Final = "IrrelevantResource"
"""The pod does not request, or with metrics use, any resource whose threshold the node exceeds, so its eviction would
not help."""

# ── Why a pod is kept: limits and budgets ────────────────────────────────────────────────────────────────────────────

LIMIT_REACHED: Final = "LimitReached"
"""The policy has reached a limit per cycle, node, namespace or owner. The message names the limit."""
PLAN_DEADLINE_EXCEEDED: Final = "PlanDeadlineExceeded"
"""The time for planning has elapsed, or has almost elapsed and the pod's namespace has used more than its share. The
next plan evaluates the pod or node again."""
DISRUPTION_BUDGET: Final = "DisruptionBudget"
"""A PodDisruptionBudget allows no further disruption. The message contains the name and the numbers."""
COOLING_DOWN: Final = "CoolingDown"
"""The strategy's last eviction of a pod of this owner was ineffective, so the next eviction is delayed. The delay
doubles after each ineffective eviction. Also the reason of the condition Effective while evictions of some owners are
delayed."""
GAVE_UP: Final = "GaveUp"
"""The strategy evicted ``cooldown.attempts`` pods of this owner in a row without effect, and evicts no more of them.
The condition Effective is False, and its message lists the owners."""
WAITING_FOR_OWNER: Final = "WaitingForOwner"
"""The eviction waits until the owner has replaced the pod that trimtab evicted last, regardless of the controller that
evicted it. It also waits while an EvictionRequest of another component is evicting a pod of the owner."""
WAITING_FOR_BUDGET: Final = "WaitingForBudget"
"""The eviction waits because evictions in progress may already use up the pod's PodDisruptionBudget, whose status is
not up to date yet."""
WAITING_FOR_EVICTION: Final = "WaitingForEviction"
"""The eviction waits because another controller is evicting the same pod, or because an EvictionRequest of another
component asks for its eviction."""
WAITING_FOR_PLAN: Final = "WaitingForPlan"
"""The eviction waits until another controller has finished planning. Before the request, the eviction is checked
against the current state of the cluster."""
WAITING_FOR_EVICTION_LIMIT: Final = "WaitingForEvictionLimit"
"""The eviction waits for an operator-wide limit: ``maxConcurrentEvictions`` or ``evictionsPerMinute``, in total or per
namespace. The message names the limit."""
OWNER_NOT_SETTLED: Final = "OwnerNotSettled"
"""The replacement of another pod of the same owner is not running yet."""
CYCLE_DEADLINE: Final = "CycleDeadline"
"""The cycle reached its deadline before this pod was evicted. The next cycle evaluates the pod again."""
WINDOW_CLOSED: Final = "WindowClosed"
"""The policy's window closed before this pod was evicted. The pod is evaluated again in the next window."""
SHUTTING_DOWN: Final = "ShuttingDown"
"""trimtab is shutting down and starts no further eviction. The next leader evaluates the pod again."""
POLICY_CHANGED: Final = "PolicyChanged"
"""The policy was changed or deleted, or began to conflict with another one, before this pod was evicted. If the policy
exists and is valid, its next cycle evaluates the pod again."""
TAINT_DEADLINE: Final = "TaintDeadline"
"""The pod is due to be evicted within ten minutes because of a NoExecute taint on its node, so moving it now would
disrupt its owner twice. The message contains the taint and the toleration."""
DISRUPTION_UNDERWAY: Final = "DisruptionUnderway"
"""The pod has the condition DisruptionTarget, because another component is already evicting, preempting or deleting
it."""
LEASE_LOST: Final = "LeaseLost"
"""The eviction was not sent because this process may have lost its Lease to another leader."""

# ── Why a pod is kept: another pod would be the cause of its eviction ────────────────────────────────────────────────

CAUSED_FROM_OTHER_NAMESPACE: Final = "CausedFromOtherNamespace"
"""The pod would be evicted only because of pods in other namespaces, and the policy's ``crossNamespace`` is Deny. The
message names one of the other pods."""
CAUSE_OF_LOWER_PRIORITY: Final = "CauseOfLowerPriority"
"""The pod would be evicted only because of pods with a lower priority, or with the same priority if they are in other
namespaces."""
CAUSE_UNMOVABLE: Final = "CauseUnmovable"
"""The pod would be evicted because of a pod in another namespace whose own settings prevent its eviction (no
controller, annotations, local storage, or a PodDisruptionBudget that allows no disruptions). The message names the
other pod and the rule."""
CAUSE_NOT_SCHEDULED: Final = "CauseNotScheduled"
"""The pod would be evicted because of a pod in another namespace that no scheduler placed, because it was created with
``spec.nodeName``."""

# ── Why a pod is kept: protections ───────────────────────────────────────────────────────────────────────────────────

CRITICAL_POD: Final = "CriticalPod"
"""The pod has a system-critical priority class, a priority of at least 2000000000, or the deprecated critical-pod
annotation. This protection cannot be disabled."""
BARE_POD: Final = "BarePod"
"""No controller owns the pod, so it would not be recreated. ``protections.disabled: [FailedBarePods]`` disables this
protection for failed pods only."""
STATIC_POD: Final = "StaticPod"
"""The pod is a static pod of the kubelet. This protection cannot be disabled."""
MIRROR_POD: Final = "MirrorPod"
"""The pod is the mirror of a static pod in the API server. This protection cannot be disabled."""
DAEMON_SET_POD: Final = "DaemonSetPod"
"""The pod belongs to a DaemonSet and would be recreated on the same node. This protection cannot be disabled."""
POD_TOO_COMPLEX: Final = "PodTooComplex"
"""The pod exceeds one of the operator's limits (``--max-pod-...``) for resource names, affinity terms, selector values,
tolerations, labels or bytes. The message contains the numbers. trimtab neither moves nor places the pod but counts its
requests on its node. This protection cannot be disabled."""
POD_GROUPS_STAY: Final = "PodGroupsStay"
"""The pod belongs to a PodGroup (``spec.schedulingGroup``). The eviction of one pod may stop the work of all pods of
the group. This protection cannot be disabled, and it also prevents the removal of the pod's node."""
NAMESPACE_TOO_COMPLEX: Final = "NamespaceTooComplex"
"""The pods of the namespace together exceed one of the operator's limits (``--max-namespace-...``) for affinity terms
and spread constraints, selector values, bytes of annotations or bytes of large specs. trimtab neither moves nor places
the pods that contribute to the number. This protection cannot be disabled."""
LOCAL_STORAGE: Final = "LocalStorage"
"""The pod has an emptyDir or hostPath volume, whose data would be lost. ``protections.disabled:
[PodsWithLocalStorage]`` disables this protection."""
SYSTEM_NAMESPACE: Final = "SystemNamespace"
"""The pod is in a system namespace such as kube-system. ``protections.disabled: [SystemNamespaces]`` disables this
protection."""
PERSISTENT_VOLUME_CLAIM: Final = "PersistentVolumeClaim"
"""The pod uses a PersistentVolumeClaim, and ``protections.extra`` contains PodsWithPVC. If ``protectedStorageClasses``
is set, only pods with a claim of these classes or of an unknown class are protected."""
RESOURCE_CLAIM: Final = "ResourceClaim"
"""The pod uses a ResourceClaim, and ``protections.extra`` contains PodsWithResourceClaims."""
NO_DISRUPTION_BUDGET: Final = "NoDisruptionBudget"
"""No PodDisruptionBudget selects the pod, and ``protections.extra`` contains PodsWithoutPDB."""
TOO_FEW_REPLICAS: Final = "TooFewReplicas"
"""The pod's owner has fewer pods than ``protections.minReplicas``."""
CANNOT_SURGE: Final = "CannotSurge"
"""The pod is the only ready pod of its owner and ``singleReplica`` is Surge, but a rollout cannot create its
replacement before the pod terminates. The message contains the reason."""
ROLLOUT_IN_PROGRESS: Final = "RolloutInProgress"
"""A rollout of the single replica's Deployment, which trimtab or another client started, is still in progress."""
POD_TOO_YOUNG: Final = "PodTooYoung"
"""The pod started less than ``protections.minPodAge`` ago or has not started yet. For RemoveFailedPods: the failed pod
was created less than ``minPodLifetimeSeconds`` ago."""
PRIORITY_TOO_HIGH: Final = "PriorityTooHigh"
"""The pod's priority is at or above the policy's ``priorityThreshold``."""
UNKNOWN_PRIORITY_CLASS: Final = "UnknownPriorityClass"
"""``priorityThreshold`` names a PriorityClass that does not exist, so no pod is evicted. This protection cannot be
disabled."""
EVICT_ANNOTATION: Final = "EvictAnnotation"
"""The pod's annotation ``descheduler.alpha.kubernetes.io/evict`` has a value other than "true". This protection cannot
be disabled."""
NO_EVICTION_ANNOTATION: Final = "NoEvictionAnnotation"
"""The pod has the annotation ``descheduler.alpha.kubernetes.io/prefer-no-eviction``, and the policy's
``noEvictionPolicy`` is Mandatory."""
UNKNOWN_NAMESPACE: Final = "UnknownNamespace"
"""The policy has a ``namespaceSelector``, and the labels of the pod's namespace are unknown. This protection cannot be
disabled."""
POD_STARTING: Final = "PodStarting"
"""The pod is Pending, because it is not bound to a node yet or is still starting on its node."""
TERMINATING: Final = "Terminating"
"""The pod is already terminating."""
TERMINAL: Final = "Terminal"
"""The pod has completed (phase Succeeded or Failed) and uses no resources of the node."""

# ── Why a part of the operator does not work (/readyz, conditions, metrics) ──────────────────────────────────────────

RESOURCE_NOT_SERVED: Final = "ResourceNotServed"
"""A controller waits because the API server does not serve one of its resources, usually because a CRD is not
installed. /readyz names the resource."""
INACTIVE: Final = "Inactive"
"""A part of the operator made no progress for ``--max-inactivity`` although it had work to do, so the process exits."""
FAILING: Final = "Failing"
"""Every attempt of a part of the operator has failed for ``--max-failing-time``, so the process exits."""

# ── Why a client of probes or metrics is refused (`trimtab_http_refused_total`) ──────────────────────────────────────

TOO_MANY_CONNECTIONS: Final = "TooManyConnections"
"""The server, or this client's address, has reached the maximum number of open connections. If the server is full, it
closes a connection of a client with many connections to accept one of a client with fewer."""
TOO_MANY_REQUESTS: Final = "TooManyRequests"
"""This client's address, or all clients together, exceeded the allowed rate of requests or of new connections."""
INCOMPLETE_REQUEST: Final = "IncompleteRequest"
"""The client did not send a complete and valid request, or did not complete the TLS handshake, within the timeout."""
REQUEST_TOO_LARGE: Final = "RequestTooLarge"
"""The request line and headers, including pipelined data, or the body exceed the size limit."""
SLOW_CLIENT: Final = "SlowClient"
"""The client did not read the response within the timeout."""
UNAUTHENTICATED: Final = "Unauthenticated"
"""The request for metrics has no bearer token, or one that the API server does not accept (401)."""
UNAUTHORIZED: Final = "Unauthorized"
"""The token's user has no permission to `get` the non-resource URL `/metrics` (403)."""
REVIEW_FAILED: Final = "ReviewFailed"
"""The operator could not check the token, because the API server does not respond or the operator lacks the permission
(503)."""

# ── What the operator reports about itself ───────────────────────────────────────────────────────────────────────────

ANOTHER_OPERATOR_ACTIVE: Final = "AnotherOperatorActive"
"""Contended: another process runs the same controllers without leader election or with another Lease, and both continue
to act. Also reported as an event on the operators' Lease, as a log entry and in the metric
`trimtab_other_operators`."""
NO_OTHER_OPERATOR: Final = "NoOtherOperator"
"""Not contended: no other operator is active any longer."""

# ── Outcomes of evictions ────────────────────────────────────────────────────────────────────────────────────────────

EVICTED: Final = "Evicted"
"""The API server accepted the eviction. Also an event on the controller of the evicted pods."""
ROLLED_OUT: Final = "RolledOut"
"""The Deployment was restarted, its new pod is ready, and the old pod is terminating."""
EVACUATED: Final = "Evacuated"
"""The controller that took over the eviction (e.g. KubeVirt) has moved the workload."""
EVICTION_IN_BACKGROUND: Final = "EvictionInBackground"
"""A controller that migrates the workload itself (e.g. KubeVirt) took over the eviction and has not finished yet."""
EVACUATION_FAILED: Final = "EvacuationFailed"
"""The controller that took over the eviction gave up or did not finish within ten minutes, and the pod is still on its
node."""
EVICTION_REFUSED: Final = "EvictionRefused"
"""An admission webhook or policy refused the eviction, or the API server refused it until the cycle's deadline. The
message is the response of the API server."""
EVICTION_FAILED: Final = "EvictionFailed"
"""The eviction failed because of a missing permission, an unreachable API server or a server error."""
ALREADY_GONE: Final = "AlreadyGone"
"""The pod had been deleted, or replaced by another pod with the same name, before it was evicted."""
PLAN_OUTDATED: Final = "PlanOutdated"
"""The pod, its node or the target node changed between planning and eviction, so that the move is no longer valid. For
policies that use metrics, a changed usage has the same effect."""
NO_LONGER_PLANNED: Final = "NoLongerPlanned"
"""The eviction was approved, but the plan that is made right before its execution no longer contains it, or contains it
for another reason."""

# ── Conditions of DeschedulerPolicies ────────────────────────────────────────────────────────────────────────────────

CYCLE_COMPLETED: Final = "CycleCompleted"
"""Ready: the last cycle completed."""
WAITING_FOR_FIRST_CYCLE: Final = "WaitingForFirstCycle"
"""Ready is Unknown: no cycle has run for this generation of the spec yet. Ready is True with this reason if the spec is
valid and has a schedule, because the first cycle may be hours away."""
CYCLE_RUNNING: Final = "CycleRunning"
"""Progressing: a cycle is planning or evicting."""
IDLE: Final = "Idle"
"""Not progressing: waiting for the next cycle."""
OUTSIDE_WINDOWS: Final = "OutsideWindows"
"""Not progressing: no window of ``spec.windows`` is open, so no pod is evicted. The message contains the time at which
the next window opens. Also the reason of Ready=True while a valid policy waits for its first window."""
SUSPENDED: Final = "Suspended"
"""Not progressing: ``spec.suspend`` is true. Also the reason of Ready=True while no cycle has run for this generation
of the spec."""
INVALID_POLICY: Final = "InvalidPolicy"
"""Not ready, degraded: the spec is invalid. The message names the fields."""
POLICY_CONFLICT: Final = "PolicyConflict"
"""Not ready, degraded: this policy and another one would undo each other's evictions, so neither of them runs."""
SCHEDULER_CONFLICT: Final = "SchedulerConflict"
"""Not ready, degraded: the scheduler's scoring strategy (flag ``--scoring``) would undo the evictions of a strategy of
the policy."""
CLUSTER_UNREACHABLE: Final = "ClusterUnreachable"
"""Degraded: the API server does not respond, or the operator's cache is too stale to plan with."""
PLAN_STALE: Final = "PlanStale"
"""Degraded: the next plan is overdue by several intervals. The message contains the numbers."""
STATUS_STALE: Final = "StatusStale"
"""Degraded: updates of the status have failed for one to three minutes, so the rest of the status may be out of date.
The message contains the number of seconds and the last error."""
CYCLE_FAILED: Final = "CycleFailed"
"""Degraded: the last cycle failed. The message contains the error."""
NAMESPACE_NOT_FOUND: Final = "NamespaceNotFound"
"""Degraded: ``namespaces.include`` names a namespace that does not exist. In a plan, ``kept`` contains an entry of kind
Namespace for each included or excluded namespace that does not exist."""
USAGE_NOT_MEASURED: Final = "UsageNotMeasured"
"""Degraded: some or all metrics that a strategy uses could not be read."""
EVICTIONS_FAILED: Final = "EvictionsFailed"
"""Degraded: the API server refused evictions of the last cycle for a reason other than a PodDisruptionBudget."""
PERMISSIONS_MISSING: Final = "PermissionsMissing"
"""The condition PermissionsMissing is True: trimtab's service account lacks permissions that the object needs. The
message lists each permission and the chart value that grants it. Also the reason of Ready=False and Degraded=True,
unless only the permission to write events is missing."""
PERMISSIONS_GRANTED: Final = "PermissionsGranted"
"""The condition PermissionsMissing is False: the service account has all permissions that the object needs."""
ALL_WELL: Final = "AllWell"
"""The condition Degraded is False, because no problem was detected."""
SETTINGS_CONFLICT: Final = "SettingsConflict"
"""Conflicting: LowNodeUtilization of a DeschedulerPolicy spreads load over nodes, while scaleDown of the
ClusterAutoscaler removes underutilized nodes. Both continue to act. The message names the other object, the conflicting
settings and what to change."""
NO_CONFLICT: Final = "NoConflict"
"""Not conflicting: no setting of the other object works against this one."""

# ── Conditions of SchedulerPolicies ──────────────────────────────────────────────────────────────────────────────────

SCHEDULING: Final = "Scheduling"
"""Ready: the policy is valid, and its pods are scheduled. Progressing: pods are waiting to be scheduled or retried."""
SCHEDULER_NAME_CONFLICT: Final = "SchedulerNameConflict"
"""Not ready, degraded: an older SchedulerPolicy has the same ``schedulerName`` and schedules these pods. The message
names it."""

# ── Conditions and events of the PlacementAdmission ──────────────────────────────────────────────────────────────────

ENFORCING: Final = "Enforcing"
"""Ready: the rules of the PlacementAdmission change and refuse requests."""
WARNING_ONLY: Final = "WarningOnly"
"""Ready: ``spec.mode`` is Warn, so the rules only warn clients and count what they would do."""
INVALID_PLACEMENT_ADMISSION: Final = "InvalidPlacementAdmission"
"""Not ready, degraded: the PlacementAdmission's spec is invalid. The message names the fields. The last valid rules
remain in effect. Also the reason of an event."""
WEBHOOKS_NOT_REGISTERED: Final = "WebhooksNotRegistered"
"""Not ready: the webhook configurations lack webhooks that the PlacementAdmission needs, so the API server does not
apply its rules. The message contains the cause."""
NO_REPLICA: Final = "NoReplica"
"""Not ready, degraded: no replica serves the webhooks, so the failure policies of the rules apply. The last replica
writes this condition when it shuts down."""
REPLICA_DEGRADED: Final = "ReplicaDegraded"
"""Degraded: a replica cannot apply the rules or cannot maintain its certificate. The message names the replica and the
problem. Also the reason of an event."""

# ── Conditions of DeschedulingRuns ───────────────────────────────────────────────────────────────────────────────────

SIMULATED: Final = "Simulated"
"""Complete: the run only shows what the policy would do."""
WAITING_FOR_APPROVAL: Final = "WaitingForApproval"
"""Not approved: the run waits until a user sets ``spec.approved``. An event with the same reason names the run. The
policy's condition Progressing has this reason too."""
APPROVED: Final = "Approved"
"""Approved: a user has set ``spec.approved``."""
SUPERSEDED: Final = "Superseded"
"""Expired: a newer run has a different plan, or the policy's spec changed. The run can no longer be approved."""
APPROVAL_EXPIRED: Final = "ApprovalExpired"
"""Expired: the run was not approved within ``approvalDeadline``, or not completed within ``approvalDeadline`` after its
approval."""
RUN_COMPLETED: Final = "RunCompleted"
"""Complete: every action of the run has an outcome."""
RUN_INTERRUPTED: Final = "RunInterrupted"
"""Not complete: trimtab stopped or the cycle failed while the run was being executed in Act mode. The next cycle makes
a new plan."""

# ── Conditions of the ClusterAutoscaler ──────────────────────────────────────────────────────────────────────────────

ITERATION_COMPLETED: Final = "IterationCompleted"
"""Ready: the last iteration completed. The message summarizes its result."""
WAITING_FOR_FIRST_ITERATION: Final = "WaitingForFirstIteration"
"""Ready is Unknown: no iteration has run for this generation of the spec yet."""
SCALING: Final = "Scaling"
"""Progressing: requested nodes have not registered yet, or nodes are being removed. The message names them."""
INVALID_AUTOSCALER: Final = "InvalidAutoscaler"
"""Not ready, degraded: the ClusterAutoscaler's spec is invalid. The message names the fields."""
ITERATION_FAILED: Final = "IterationFailed"
"""Not ready, degraded: the last iteration failed. The message contains the error."""
CLUSTER_UNHEALTHY: Final = "ClusterUnhealthy"
"""Not ready, degraded: so many nodes are not ready that a network problem is likely, so no node group is scaled. Also
the reason of an event, of pending pods for which no nodes are added, and of nodes that are not removed."""
NO_NODE_GROUP_SCALABLE: Final = "NoNodeGroupScalable"
"""Not ready: every node group is in backoff, unhealthy or paused, so no node is added for pending pods. The message
contains the reason for each group. Nodes of groups in backoff are still removed."""
NODE_GROUPS_UNHEALTHY: Final = "NodeGroupsUnhealthy"
"""Degraded: some node groups are not scaled because too many of their nodes are not ready. Other groups are scaled."""
NODE_GROUPS_FAILING: Final = "NodeGroupsFailing"
"""Degraded: requested nodes did not register in time, and their node groups are in backoff."""
REMOVALS_FAILING: Final = "RemovalsFailing"
"""Degraded: the last node removal failed, and none has succeeded since."""
INVALID_NODE_GROUPS: Final = "InvalidNodeGroups"
"""Degraded: some MachineAutoscalers or node group annotations are invalid. The other node groups are scaled."""
PRIORITY_CONFIG_MAP_INVALID: Final = "PriorityConfigMapInvalid"
"""Degraded: the ConfigMap of the expander Priority is missing or invalid, so the other expanders decide. Also the
reason of an event."""

# ── Events of the autoscaler ─────────────────────────────────────────────────────────────────────────────────────────

TRIGGERED_SCALE_UP: Final = "TriggeredScaleUp"
"""Event on a pending pod: a node group was scaled up for it. The note contains the group and its sizes before and
after."""
NOT_TRIGGER_SCALE_UP: Final = "NotTriggerScaleUp"
"""Event on a pending pod: no node is added for it. The note contains a reason code and the reason for each node
group."""
SCALED_UP_GROUP: Final = "ScaledUpGroup"
"""Event: the target size of a node group was increased."""
FAILED_TO_SCALE_UP_GROUP: Final = "FailedToScaleUpGroup"
"""Event: the target size of a node group could not be increased. The note contains a reason code."""
SCALE_UP_TIMED_OUT: Final = "ScaleUpTimedOut"
"""Event: requested nodes did not register in time. The node group is in backoff, and the next plan no longer expects
these nodes."""
SCALE_DOWN: Final = "ScaleDown"
"""Event on a node: the node is being removed. Event on a pod: the pod was evicted because its node is being removed.
Event on the ClusterAutoscaler: a node with pods was removed."""
SCALE_DOWN_EMPTY: Final = "ScaleDownEmpty"
"""Event: a node without pods that had to move to another node was removed."""
SCALE_DOWN_FAILED: Final = "ScaleDownFailed"
"""Event on a node: the removal of the node was aborted. Also an event on the pod that blocked the removal."""
SCALE_DOWN_BLOCKED: Final = "ScaleDownBlocked"
"""Event on a node: scale-down would remove it, but something prevents that. The note contains the reason code."""
CLUSTER_AUTOSCALER_CLEANUP: Final = "ClusterAutoscalerCleanup"
"""Event on a node: taints or a cordon that an earlier process left behind were removed."""

# ── Why a node group is scaled up, and why pods stay pending ─────────────────────────────────────────────────────────

PENDING_PODS: Final = "PendingPods"
"""Pending pods fit neither on existing nor on upcoming nodes, but they fit on new nodes of this group."""
FITS_ON_NODE: Final = "FitsOnNode"
"""The pod fits on an existing node, so no node is added for it."""
FITS_ON_UPCOMING_NODE: Final = "FitsOnUpcomingNode"
"""The pod fits on a node that has been requested and has not registered yet."""
FITS_AFTER_MOVES: Final = "FitsAfterMoves"
"""The pod fits on a node once the descheduler has completed its current moves. Two minutes after the descheduler
first tried to evict a pod for such a move, the autoscaler no longer waits for that move, and the pending pod can
trigger a scale-up."""
FITS_AFTER_REMOVALS: Final = "FitsAfterRemovals"
"""The pod fits on a node after another node, which is being removed, no longer exists. Until then, the removed node
counts as a domain of the pod's topology spread constraint. Ten minutes after the pod became unschedulable, it can
trigger a scale-up."""
NOMINATED: Final = "Nominated"
"""The scheduler has nominated a node for the pod. The pod fits on that node when the preempted and terminating pods
there have ended."""
NOT_UNSCHEDULABLE: Final = "NotUnschedulable"
"""The scheduler has not marked the pod as unschedulable, and the pod's scheduler is not one of ``bypassedSchedulers``.
"""
SCHEDULING_GATED: Final = "SchedulingGated"
"""The pod has scheduling gates, so the scheduler ignores it until they are removed."""
SCALE_UP_DELAYED: Final = "ScaleUpDelayed"
"""The pod is younger than ``newPodScaleUpDelay``, or than the delay in its annotation
``cluster-autoscaler.kubernetes.io/pod-scale-up-delay``."""
PRIORITY_BELOW_THRESHOLD: Final = "PriorityBelowThreshold"
"""The pod's priority is below ``podPriorityThreshold``, so no node is added for it."""
NO_NODE_GROUPS: Final = "NoNodeGroups"
"""There is no node group to scale up: no MachineAutoscaler has a target, and no MachineSet has size limits."""
NO_GROUP_FITS: Final = "NoGroupFits"
"""The pod does not fit on a new node of any group. The message lists kube-scheduler's reasons for each group."""
MAX_SIZE_REACHED: Final = "MaxSizeReached"
"""The pod fits on a new node of a group, but the group is at its maximum size or reaches it with nodes that are already
planned."""
MAX_NODES_TOTAL_REACHED: Final = "MaxNodesTotalReached"
"""The pod fits on a new node of a group, but the cluster would exceed ``maxNodesTotal``."""
MAX_NODES_PER_NAMESPACE_REACHED: Final = "MaxNodesPerNamespaceReached"
"""The pod fits on a new node of a group, but pods of its namespace would use more nodes than ``maxNodesPerNamespace``.
"""
MAX_CORES_REACHED: Final = "MaxCoresReached"
"""The pod fits on a new node of a group, but the cluster would exceed ``resourceLimits.cores.max``."""
MAX_MEMORY_REACHED: Final = "MaxMemoryReached"
"""The pod fits on a new node of a group, but the cluster would exceed ``resourceLimits.memory.max`` (in GiB)."""
MAX_GPUS_REACHED: Final = "MaxGpusReached"
"""The pod fits on a new node of a group, but the cluster would exceed the number of GPUs of a type in
``resourceLimits.gpus``."""
GROUP_BACKS_OFF: Final = "GroupBacksOff"
"""The pod fits on a new node of a group, but the group is in backoff after a failed scale-up. The message contains the
time at which the backoff ends.
"""
SCALE_UP_NOT_SEEN: Final = "ScaleUpNotSeen"
"""The pod fits on a new node of a group that was just scaled up, but trimtab has not observed the new size yet. The
next iteration evaluates the pod again."""
GROUP_UNHEALTHY: Final = "GroupUnhealthy"
"""The group is not scaled, because too many of its nodes are not ready."""
BELOW_MINIMUM: Final = "BelowMinimum"
"""The group is below its minimum size. It is scaled up to the minimum only if ``enforceNodeGroupMinSize`` is
Enabled."""

# ── Outcomes of scale-ups ────────────────────────────────────────────────────────────────────────────────────────────

SCALE_UP_COMPLETED: Final = "ScaleUpCompleted"
"""All nodes of a scale-up that trimtab requested are ready. The message contains the seconds from the request until the
last of them was ready."""
MACHINE_FAILED: Final = "MachineFailed"
"""A machine failed before it registered as a node. The group is in backoff immediately, and other groups are scaled up
for the pods."""
NODE_NOT_STARTED: Final = "NodeNotStarted"
"""A new node registered but did not become ready in time. The group is in backoff."""
TARGET_CHANGED: Final = "TargetChanged"
"""Another client changed the size of a node group during a scale-up. The autoscaler uses the new size from then on."""
TARGET_LOWERED: Final = "TargetLowered"
"""The target size of a node group was reduced by the number of nodes that did not register."""
DELETE_UNREGISTERED: Final = "DeleteUnregistered"
"""Machines that failed or did not register as nodes in time were deleted. Upstream uses the same reason."""

# ── Why nodes are replaced, and why not ──────────────────────────────────────────────────────────────────────────────

REPLACEMENT: Final = "Replacement"
"""Nodes are added to replace more expensive ones, or a node is removed because its replacements are ready."""
REPLACEMENT_IN_PROGRESS: Final = "ReplacementInProgress"
"""The node was added as a replacement and is kept until the replaced nodes are removed."""
REPLACEMENT_GIVEN_UP: Final = "ReplacementGivenUp"
"""The replacement was aborted because the new nodes did not register or the old nodes could not be drained in time. The
next replacement starts after a delay."""
REPLACEMENT_WAITS: Final = "ReplacementWaits"
"""No replacement starts while nodes are being added or removed, or shortly after that. No new nodes of a group are used
while pods are pending that could run on these nodes in place of the moved pods. The message names the cause."""
NOT_CHEAPER: Final = "NotCheaper"
"""Replacing nodes of this group with nodes of other groups would not save enough (``replaceThreshold``)."""
PRICE_UNKNOWN: Final = "PriceUnknown"
"""The group has no price per node and hour (annotation ``trimtab.dev/price``), so its nodes are not replaced."""

# ── Why a node is removed, and why not ───────────────────────────────────────────────────────────────────────────────

UNDERUTILIZED: Final = "Underutilized"
"""The node's utilization has been at or below the threshold for ``unneededTime``, and its pods fit on other nodes."""
EMPTY: Final = "Empty"
"""For ``unneededTime``, the node has run no pods that would have to move to another node."""
UNREADY: Final = "Unready"
"""The node has been unready and unneeded for longer than ``unreadyTime``."""
SCALE_DOWN_DISABLED: Final = "ScaleDownDisabled"
"""``scaleDown.enabled`` is false, so no node is removed."""
SCALE_DOWN_DISABLED_ANNOTATION: Final = "ScaleDownDisabledAnnotation"
"""The node's annotation ``cluster-autoscaler.kubernetes.io/scale-down-disabled`` is "true"."""
NOT_AUTOSCALED: Final = "NotAutoscaled"
"""The node belongs to no node group that is scaled."""
CURRENTLY_BEING_DELETED: Final = "CurrentlyBeingDeleted"
"""The node or its machine is already being deleted."""
NOT_UNDERUTILIZED: Final = "NotUnderutilized"
"""The node's utilization (requests divided by allocatable) is above the threshold."""
NODE_GROUP_MIN_SIZE_REACHED: Final = "NodeGroupMinSizeReached"
"""The node group is at its minimum size or reaches it with removals that are planned or in progress."""
MINIMAL_RESOURCE_LIMIT_EXCEEDED: Final = "MinimalResourceLimitExceeded"
"""If the node were removed, the cluster would have fewer cores, less memory or fewer GPUs than the minimum in
``resourceLimits``."""
BLOCKED_BY_POD: Final = "BlockedByPod"
"""A pod on the node must not be evicted. The message names the pod and the rule."""
BLOCKED_BY_ON_COMPLETION_POD: Final = "BlockedByOnCompletionPod"
"""The node is kept until one of its pods has run to completion (``safe-to-evict: on-completion``)."""
HELD_TOO_LONG: Final = "HeldTooLong"
"""A PodDisruptionBudget that allows no disruptions has blocked the removal for longer than ``maxHold``. trimtab never
overrides the budget, so an administrator should act. The message names the pod and the budget."""
NO_PLACE_TO_MOVE_PODS: Final = "NoPlaceToMovePods"
"""A pod of the node fits on no other node. The message names the pod and lists kube-scheduler's reasons."""
NEEDED_FOR_OTHER_PODS: Final = "NeededForOtherPods"
"""The node is needed for pending pods or for pods of nodes that are being removed."""
NOT_UNNEEDED_LONG_ENOUGH: Final = "NotUnneededLongEnough"
"""The node is unneeded, but not for ``unneededTime`` yet."""
NOT_UNREADY_LONG_ENOUGH: Final = "NotUnreadyLongEnough"
"""The node is unready and unneeded, but not for ``unreadyTime`` yet."""
DELAY_AFTER_ADD: Final = "DelayAfterAdd"
"""Nodes were added less than ``delayAfterAdd`` ago, so no node is removed."""
DELAY_AFTER_DELETE: Final = "DelayAfterDelete"
"""A node was removed less than ``delayAfterDelete`` ago, so no other node is removed."""
DELAY_AFTER_FAILURE: Final = "DelayAfterFailure"
"""A node removal failed less than ``delayAfterFailure`` ago, so no node is removed."""

# ── Why a node removal failed ────────────────────────────────────────────────────────────────────────────────────────

REMOVAL_FAILED: Final = "RemovalFailed"
"""The removal failed with an unexpected error. The message contains the error."""
NODE_UPDATE_FAILED: Final = "NodeUpdateFailed"
"""The API server refused to taint and cordon the node, or did not respond."""
POD_NOT_TERMINATED: Final = "PodNotTerminated"
"""An evicted pod still exists after its grace period plus a tolerance."""
PODS_KEEP_COMING: Final = "PodsKeepComing"
"""Pods that tolerate the node's taint were bound to the node again after each drain."""
TAINT_REMOVED: Final = "TaintRemoved"
"""Another client removed the taint of a node that is being removed, so the node is kept."""
MACHINE_NOT_DELETED: Final = "MachineNotDeleted"
"""The size of the node group was reduced, but other machines were deleted instead of this one, or the size was
increased again. The node's machine is kept."""
WRONG_MACHINE_REMOVED: Final = "WrongMachineRemoved"
"""The controller of the node group deleted a machine without the deletion annotation, because its cache was stale.
trimtab stops the other removals in the group, and waits longer in the next removal before it reduces the size."""
AUTOSCALER_GONE: Final = "AutoscalerGone"
"""The ClusterAutoscaler was deleted, so removals in progress are rolled back."""

# ── Which pods block scale-down ──────────────────────────────────────────────────────────────────────────────────────

CONTROLLER_NOT_FOUND: Final = "ControllerNotFound"
"""The pod's controller does not exist any more, so the pod would not be recreated."""
NOT_REPLICATED: Final = "NotReplicated"
"""No ReplicaSet, StatefulSet, Job or ReplicationController owns the pod, so it would not be recreated."""
UNMOVABLE_KUBE_SYSTEM_POD: Final = "UnmovableKubeSystemPod"
"""The pod is in kube-system, does not belong to a DaemonSet, and is not selected by a PodDisruptionBudget."""
NOT_SAFE_TO_EVICT_ANNOTATION: Final = "NotSafeToEvictAnnotation"
"""The pod's annotation ``cluster-autoscaler.kubernetes.io/safe-to-evict`` is "false"."""
LOCAL_STORAGE_REQUESTED: Final = "LocalStorageRequested"
"""The pod has emptyDir or hostPath volumes, and ``skipNodesWithLocalStorage`` is true."""
NOT_ENOUGH_PDB: Final = "NotEnoughPdb"
"""A PodDisruptionBudget allows no further disruption."""

# ── What a PodDisruptionBudget allows ─────────────────────────────────────────────────────────────────────────────────

DISRUPTIONS_ALLOWED: Final = "DisruptionsAllowed"
"""The budget allows disruptions now."""
ALL_PODS_REQUIRED: Final = "AllPodsRequired"
"""The budget requires all expected pods to be healthy, so it never allows a disruption."""
UNHEALTHY_PODS: Final = "UnhealthyPods"
"""The budget allows no disruption because some of its expected pods are not healthy."""
DISRUPTIONS_IN_PROGRESS: Final = "DisruptionsInProgress"
"""The budget allows no disruption until pods that were evicted are replaced."""
BUDGET_STATUS_STALE: Final = "BudgetStatusStale"
"""The disruption controller has not processed the current spec of the budget, so the API server refuses evictions."""
OVERLAPPING_BUDGETS: Final = "OverlappingBudgets"
"""Several budgets select the same pods, and the Eviction API evicts no pod that several budgets select."""
NO_EXPECTED_PODS: Final = "NoExpectedPods"
"""The disruption controller found no pods of the budget, or could not determine the size of their controller."""
SELECTS_NO_PODS: Final = "SelectsNoPods"
"""The budget selects no pods."""

# ── Problems of node groups ──────────────────────────────────────────────────────────────────────────────────────────

INVALID_LIMITS: Final = "InvalidLimits"
"""The annotations for the minimum and maximum size are incomplete or invalid, so the object is not treated as a node
group."""
INVALID_ANNOTATION: Final = "InvalidAnnotation"
"""An annotation of a node group is invalid and ignored."""
TARGET_NOT_FOUND: Final = "TargetNotFound"
"""The ``scaleTargetRef`` of a MachineAutoscaler names an object that does not exist."""
TARGET_UNSUPPORTED: Final = "TargetUnsupported"
"""The target of a MachineAutoscaler is scaled by another controller, or its kind is not supported."""
TARGET_ALREADY_OWNED: Final = "TargetAlreadyOwned"
"""Another MachineAutoscaler already owns the target, and the limits of that MachineAutoscaler apply."""
NODE_CLAIMED_TWICE: Final = "NodeClaimedTwice"
"""Two machines reference the same node. The node is assigned to the machine that it matches best or, if that is not
clear, to the oldest machine."""
NODE_IDENTITY_MISMATCH: Final = "NodeIdentityMismatch"
"""A machine references a node with a different UID, provider ID, machine or cluster, so the node is not assigned to it.
"""
NODE_NOT_CONFIRMED: Final = "NodeNotConfirmed"
"""A machine references a node, but neither a UID nor an annotation confirms the reference."""
NODE_GROUP_NOT_CONFIRMED: Final = "NodeGroupNotConfirmed"
"""No node belongs to a machine in the object's namespace or to the object's cluster, and ``nodeGroupAutoDiscovery``
does not define what belongs to this cluster, so the object is not treated as a node group. The condition Ready names
an object for each namespace."""
SEVERAL_CLUSTERS: Final = "SeveralClusters"
"""The objects of Cluster API or the Machine API belong to several clusters, ``nodeGroupAutoDiscovery.clusterName`` is
not set, and the annotations of the nodes do not show which of the clusters is this one. No node group of that API is
scaled."""
NO_TEMPLATE: Final = "NoTemplate"
"""The group has no node that can serve as a template, and neither its annotations nor its provider describe its
nodes."""
DAEMON_SET_NOT_CREATED: Final = "DaemonSetNotCreated"
"""The autoscaler expects no pods of a matching DaemonSet on new nodes of the group, because fewer than nine in ten of
the DaemonSet's pods were created."""
DAEMON_SET_NEVER_RAN: Final = "DaemonSetNeverRan"
"""The autoscaler expects no pods of a matching DaemonSet on new nodes of the group, because none of the DaemonSet's
pods was ever bound to a node."""
DAEMON_SET_ON_FEW_NODES: Final = "DaemonSetOnFewNodes"
"""The autoscaler expects no pods of a matching DaemonSet on new nodes of the group, because the group has no ready
node, the DaemonSet does not run on most of the existing nodes that it selects by their labels, so that a quota may
allow no further pod, and the pod requests more than a tenth of a new node."""
DAEMON_SET_NOT_ON_NODES: Final = "DaemonSetNotOnNodes"
"""The autoscaler expects no pods of a matching DaemonSet on new nodes of the group, because the existing nodes do not
run them."""
DAEMON_SET_TOO_LARGE: Final = "DaemonSetTooLarge"
"""The autoscaler expects no pods of a matching DaemonSet on new nodes of the group, because they do not fit next to
pods of DaemonSets with a higher priority."""
STATIC_POD_NOT_COUNTED: Final = "StaticPodNotCounted"
"""The autoscaler does not expect a pod of an existing node on new nodes of the group, although the pod has the
annotation of a static pod. The pod is in no system namespace, and does not run on most nodes of the group."""
DAEMON_SETS_TAKE_ROOM: Final = "DaemonSetsTakeRoom"
"""Pending pods would fit on a new node of the group if the node did not run a pod of the named DaemonSet."""
INVALID_LEARNED_NODE: Final = "InvalidLearnedNode"
"""The annotation ``trimtab.dev/learned-node`` of a node group is implausible and ignored. The autoscaler writes it
again from the next node of the group."""
LEARNED_NODE_OUTDATED: Final = "LearnedNodeOutdated"
"""The node group's template has changed since the annotation ``trimtab.dev/learned-node`` was written, so it is
ignored."""
GROUP_PAUSED: Final = "GroupPaused"
"""The group is currently not scaled, because it is paused, being deleted or being migrated between two APIs, or because
its provider's data is stale."""
PROVIDER_UNREACHABLE: Final = "ProviderUnreachable"
"""An external provider does not respond or returns an error. Its node groups are not scaled until it recovers."""
INVALID_PROVIDER_CONFIG: Final = "InvalidProviderConfig"
"""The configuration of a provider is invalid, so it provides no node groups."""

# ── Conditions and events of MachineAutoscalers ──────────────────────────────────────────────────────────────────────

LIMITS_SET: Final = "LimitsSet"
"""Ready: the size limits are set on the target."""
ABOVE_MAXIMUM: Final = "AboveMaximum"
"""Ready: the size limits are set, and the target is larger than ``maxReplicas``. trimtab does not scale it down to
``maxReplicas``."""
INVALID_MACHINE_AUTOSCALER: Final = "InvalidMachineAutoscaler"
"""Not ready: the spec is invalid. The message names the fields. Limits that were set earlier are kept."""
LIMITS_NOT_SET: Final = "LimitsNotSet"
"""Not ready: the API server refused to write the limits, or to remove them from an earlier target. trimtab retries."""
SUCCESSFUL_UPDATE: Final = "SuccessfulUpdate"
"""Event: annotations of a target were set, restored or removed. The note lists them."""
FAILED_GET_TARGET: Final = "FailedGetTarget"
"""Event: the target does not exist or cannot be scaled. The note contains the details."""
FAILED_SET_OWNER: Final = "FailedSetOwner"
"""Event: another MachineAutoscaler owns the target. The note names it."""
FAILED_UPDATE_TARGET: Final = "FailedUpdateTarget"
"""Event: the API server refused to write annotations of a target."""
FAILED_VALIDATION: Final = "FailedValidation"
"""Event: the spec is invalid. The note names the fields."""

# ── Why a pod on a tainted node is evicted, and why not ──────────────────────────────────────────────────────────────

NO_EXECUTE_TAINT: Final = "NoExecuteTaint"
"""The node has a NoExecute taint that the pod does not tolerate, or tolerates only for a limited time. The message
contains the taint, the time at which it was added, and the toleration."""
TOLERATES_TAINTS: Final = "ToleratesTaints"
"""The pod tolerates all NoExecute taints of its node without a time limit."""

# ── Conditions and events of the TaintManager ────────────────────────────────────────────────────────────────────────

OBSERVING: Final = "Observing"
"""Ready: ``spec.mode`` is Observe, so the taint manager reports deadlines but does not evict pods."""
MANAGING_TAINTS: Final = "ManagingTaints"
"""Ready: pods are evicted at their deadlines. In TaintAndEvict mode, failed nodes are tainted as well."""
WAITING_FOR_FIRST_SYNC: Final = "WaitingForFirstSync"
"""Ready is Unknown: the caches of nodes and pods have not synced since trimtab started."""
EVICTING_PODS: Final = "EvictingPods"
"""Progressing: pods past their deadline are being deleted or evicted."""
TAINTING_NODES: Final = "TaintingNodes"
"""Progressing: failed nodes are queued to be tainted, zone by zone."""
INVALID_TAINT_MANAGER: Final = "InvalidTaintManager"
"""Not ready, degraded: the TaintManager's spec is invalid. The message names the fields."""
PODS_REFUSED: Final = "PodsRefused"
"""Degraded: a webhook, a PodDisruptionBudget or a missing permission blocks the eviction or deletion of pods past their
deadline. trimtab retries.
"""
PODS_STUCK: Final = "PodsStuck"
"""Degraded: pods on unreachable nodes are terminating and past their grace period. The message says what to do. Also
the reason of an event on the node."""
PODS_NO_LONGER_STUCK: Final = "PodsNoLongerStuck"
"""Event on a node: its pods are no longer stuck terminating."""
NODE_LIFECYCLE_FAILED: Final = "NodeLifecycleFailed"
"""Degraded: the node lifecycle controller failed. The message contains the error. Pods are still evicted at their
deadlines.
"""
TAINT_MANAGER_EVICTION: Final = "TaintManagerEviction"
"""Event: a pod was deleted or evicted at its deadline on a tainted node. Upstream uses the same reason."""
DEADLINE_SET: Final = "DeadlineSet"
"""Event: a deadline was set for a pod on its node, or its deadline changed. The note contains the deadline, the taint
and the toleration."""
DEADLINE_CANCELLED: Final = "DeadlineCancelled"
"""Event: a pod no longer has a deadline on its node."""
DELETION_BY_TAINT_MANAGER: Final = "DeletionByTaintManager"
"""Reason of the condition DisruptionTarget of a pod that is deleted because of a taint. Upstream uses the same reason,
so pod failure policies of Jobs work unchanged."""
MAXIMUM_WAIT_OVER: Final = "MaximumWaitOver"
"""The pod is deleted because its eviction was refused for ``maximumWait``."""
NO_LONGER_DUE: Final = "NoLongerDue"
"""The pod was past its deadline and is no longer due, because a taint was removed, a toleration was added, or the mode
was changed to Observe."""
DELETION_REFUSED: Final = "DeletionRefused"
"""A webhook, an admission policy or a missing permission blocks the deletion of a pod past its deadline. trimtab
retries."""
DELETION_FAILED: Final = "DeletionFailed"
"""The deletion or eviction of a pod past its deadline got no response or a server error. trimtab retries."""

# ── Why a node is tainted, untainted or queued ───────────────────────────────────────────────────────────────────────

NODE_NOT_READY: Final = "NodeNotReady"
"""The node's Ready condition is False or not set yet, so the node is tainted node.kubernetes.io/not-ready."""
NODE_UNREACHABLE: Final = "NodeUnreachable"
"""The node's Ready condition is Unknown, so the node is tainted node.kubernetes.io/unreachable."""
NODE_CONDITION: Final = "NodeCondition"
"""Another condition of the node requires the taint. The message names the condition."""
NODE_CORDONED: Final = "NodeCordoned"
"""The node is cordoned and has the taint node.kubernetes.io/unschedulable."""
NODE_UNCORDONED: Final = "NodeUncordoned"
"""The node is schedulable again, so its taint node.kubernetes.io/unschedulable is removed."""
NODE_CONDITION_ENDED: Final = "NodeConditionEnded"
"""The condition that the taint stands for has another status now, so the taint is removed."""
NODE_RECOVERED: Final = "NodeRecovered"
"""The node is ready again, so its taints not-ready and unreachable are removed."""
ALL_ZONES_DOWN: Final = "AllZonesDown"
"""No node of any zone is ready, so a network problem of the control plane is more likely than failed nodes. NoExecute
taints of failed nodes are removed, and none are added."""
ALL_NODES_IN_DOUBT: Final = "AllNodesInDoubt"
"""Every node is either not ready or has missed two renewals of its Lease. No NoExecute taint is added until it is clear
whether all zones are down."""
OUTAGE_ENDED: Final = "OutageEnded"
"""An outage of all zones has just ended, so every node gets a new grace period before it is tainted."""
ZONE_DISRUPTED: Final = "ZoneDisrupted"
"""Too many nodes of the zone are not ready, so its eviction rate is 0 and no node is tainted."""
EVICTION_RATE_LIMITED: Final = "EvictionRateLimited"
"""The failed node waits to be tainted, because the eviction rate of its zone is limited."""

# ── Why a node is considered failed, or not ──────────────────────────────────────────────────────────────────────────

NODE_STATUS_UNKNOWN: Final = "NodeStatusUnknown"
"""The node stopped renewing its Lease and posting its status. Upstream uses the same reason in node conditions."""
NODE_STATUS_NEVER_UPDATED: Final = "NodeStatusNeverUpdated"
"""The node has never posted its status. Upstream uses the same reason in node conditions."""
STALE_WATCHES: Final = "StaleWatches"
"""The operator's watches have received no event for too long. No node is tainted until the watches recover."""
WATCHES_BEHIND: Final = "WatchesBehind"
"""The API server has a Lease renewal that the operator's watches have not delivered. No node is tainted until the
watches have caught up."""

# ── Why a node group was not scaled ──────────────────────────────────────────────────────────────────────────────────

SCALE_REFUSED: Final = "ScaleRefused"
"""The API server, or the group's limits or state, do not permit the size change. The message contains the reason."""
SCALE_FORBIDDEN: Final = "ScaleForbidden"
"""trimtab's service account lacks the permission to resize the node group. The group is not in backoff: trimtab retries
in the next iteration. The condition PermissionsMissing lists the permission."""
REMOVAL_FORBIDDEN: Final = "RemovalForbidden"
"""trimtab's service account lacks a permission for removing the node, for example to taint it or to evict a pod. The
node is kept, and `delayAfterFailure` does not apply: trimtab retries as soon as the permission is granted. The
condition PermissionsMissing lists the permission."""
SCALE_CONFLICT: Final = "ScaleConflict"
"""Another client changed the group's size after the plan was made. trimtab did not overwrite that size, and the next
plan uses it."""
SCALE_TARGET_GONE: Final = "ScaleTargetGone"
"""The group's object, or a machine to be removed, does not exist any more."""
SCALE_UNREACHABLE: Final = "ScaleUnreachable"
"""The request for the size change got no response, and the size was unchanged afterwards or could not be read."""
SCALE_TIMED_OUT: Final = "ScaleTimedOut"
"""The group's API did not respond in time. Other groups are not affected."""

# ── What placement admission does with an object ─────────────────────────────────────────────────────────────────────

ADMISSION_REFUSED: Final = "AdmissionRefused"
"""A rule of the PlacementAdmission refuses the object. The message is the one that the user receives."""
REQUIRES_PODS_BINDING: Final = "RequiresPodsBinding"
"""A rule of the PlacementAdmission refuses the object unless its user may create ``pods/binding`` in the namespace."""
ADMISSION_MUTATED: Final = "AdmissionMutated"
"""A rule of the PlacementAdmission changes the tolerations, the node selector or the node affinity of the object."""
ADMISSION_WARNED: Final = "AdmissionWarned"
"""A rule of the PlacementAdmission admits the DaemonSet, but kubelets would reject its pods. The message is the warning
that the author of the DaemonSet receives."""
NAMESPACE_EXEMPT: Final = "NamespaceExempt"
"""A rule of the PlacementAdmission would refuse the object, but does not apply to its namespace."""

# ── Node pressure: why the signals of a node are unknown ─────────────────────────────────────────────────────────────

STATS_UNREACHABLE: Final = "StatsUnreachable"
"""The kubelet of the node did not respond in time, or its certificate is not valid."""
STATS_FORBIDDEN: Final = "StatsForbidden"
"""The kubelet, or the API server in front of it, denied access to the stats, or there is no token to read them with."""
STATS_INVALID: Final = "StatsInvalid"
"""The response of the kubelet is not the summary of the node."""
STATS_STALE: Final = "StatsStale"
"""The kubelet responds, but the timestamps of its stats have not changed for three intervals, or were that old at the
operator's first reading."""
STATS_UNKNOWN: Final = "StatsUnknown"
"""The signals of the node have not been read yet, or its stats no longer contain a signal that met a threshold. The
state of the node does not change."""

# ── Node pressure: why pods are, or are not, being evicted from a node ───────────────────────────────────────────────

HARD_THRESHOLD_MET: Final = "HardThresholdMet"
"""A hard threshold of the NodePressurePolicy is met, so a pod is evicted immediately."""
SOFT_THRESHOLD_MET: Final = "SoftThresholdMet"
"""A soft threshold of the NodePressurePolicy has been met for its grace period."""
PRESSURE_FORECAST: Final = "PressureForecast"
"""A soft threshold is met, and its signal is predicted to reach the hard threshold within ``evictionForecast``."""
SOFT_GRACE_PERIOD: Final = "SoftGracePeriod"
"""A soft threshold is met, but its grace period has not passed yet."""
TRANSITION_PERIOD: Final = "TransitionPeriod"
"""No threshold is met any more. The condition and the taint stay for ``evictionPressureTransitionPeriod``."""
EVICTING_POD: Final = "EvictingPod"
"""A pod is leaving the node. The next one is evicted only if a later measurement still meets a threshold."""
WAITING_FOR_STATS: Final = "WaitingForStats"
"""A threshold is met, but the kubelet has not measured its signal again since the last eviction."""
KUBELET_EVICTS: Final = "KubeletEvicts"
"""The kubelet itself reports the condition, or evicted a pod because of node pressure less than a minute ago. During
this time, trimtab evicts no pod from the node."""
NO_EVICTABLE_POD: Final = "NoEvictablePod"
"""A threshold requires an eviction, but every pod of the node is protected or does not use the resource, or its
eviction was refused."""
USAGE_UNKNOWN: Final = "UsageUnknown"
"""The node's measurement does not contain the pod, or says that the pod does not use the resource that runs low."""
SIGNAL_UNKNOWN: Final = "SignalUnknown"
"""The signal of a threshold is missing in the node's measurement, or its value is implausible. The threshold has no
effect on the node."""
FAILED_POD_CLEANUP: Final = "FailedPodCleanup"
"""A kubelet evicted the pod at least ``failedPods.after`` ago, so it is deleted."""
NODE_BEING_REMOVED: Final = "NodeBeingRemoved"
"""An autoscaler is draining the node and evicts its pods."""

# ── Node pressure: conditions and events ─────────────────────────────────────────────────────────────────────────────

NODES_WATCHED: Final = "NodesWatched"
"""Ready: the NodePressurePolicy is valid, and pods are evicted from its nodes if a threshold requires it."""
SIMULATING: Final = "Simulating"
"""Ready: the NodePressurePolicy is valid. Its mode is Simulate, so it only reports which pods it would evict."""
SIGNALS_UNKNOWN: Final = "SignalsUnknown"
"""Degraded: the signals of some nodes are not known. No pod is evicted from these nodes."""
EVICTIONS_REFUSED: Final = "EvictionsRefused"
"""Degraded: the API server refuses to evict pods from nodes under pressure, for example because of a
PodDisruptionBudget. trimtab retries.
"""
THRESHOLD_MET: Final = "ThresholdMet"
"""Reason of the node conditions of the domain ``pressure.trimtab.dev``: a threshold of a NodePressurePolicy is met, or
was met within the transition period.
"""
NODE_PRESSURE_BEGAN: Final = "NodePressureBegan"
"""Event on a node: a threshold of a NodePressurePolicy is met, so the node gets a condition."""
NODE_PRESSURE_ENDED: Final = "NodePressureEnded"
"""Event on a node: no threshold has been met for the transition period, so the condition is removed."""
NODE_PRESSURE_EVICTION: Final = "NodePressureEviction"
"""Event on a pod: it was evicted, or deleted after ``deleteAfter``, because its node is under pressure."""
EVICTION_SIMULATED: Final = "EvictionSimulated"
"""Event on a NodePressurePolicy in Simulate mode: it would evict the pod."""
DELETION_BY_NODE_PRESSURE: Final = "DeletionByNodePressure"
"""Reason of the condition DisruptionTarget of a pod that is deleted because of a hard threshold, after its eviction was
refused for ``deleteAfter``.
"""

# ── Node pressure: conflicts of policies ─────────────────────────────────────────────────────────────────────────────

NODES_HANDLED_BY_OTHER_POLICY: Final = "NodesHandledByOtherPolicy"
"""Another NodePressurePolicy, whose name comes first in alphabetical order, handles some of the selected nodes."""
THRESHOLD_NOT_ABOVE_KUBELET: Final = "ThresholdNotAboveKubelet"
"""A threshold of the NodePressurePolicy is not above the kubelet's hard threshold, so the kubelet evicts first."""
SOFT_THRESHOLD_NOT_ABOVE_HARD: Final = "SoftThresholdNotAboveHard"
"""On some nodes, a soft threshold of the NodePressurePolicy is not above the hard threshold of the same signal, so pods
are evicted without the grace period of the soft threshold."""

# ── Why a pod does not come back in a forecast ──────────────────────────────────────────────────────────────────────

NO_CONTROLLER: Final = "NoController"
"""The pod has no controller, so it is not recreated when its node is removed."""
EVICTION_BLOCKED: Final = "EvictionBlocked"
"""A PodDisruptionBudget does not allow the eviction of the pod, so the drain of the node waits."""
