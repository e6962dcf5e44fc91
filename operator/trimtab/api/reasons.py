"""Reason codes: the one list of words with which trimtab says why.

A reason is stable API. The same word stands in a plan, in an event, in a policy's status and as a metric's label, so
that one can be searched for in all others; the message beside it has the numbers. CamelCase, at most 128 characters
(events.k8s.io/v1 limits ``reason``). Codes are ``Final`` strings rather than an enum: features of later releases add
their own without touching a closed type, and values need no conversion on their way to JSON.
"""

from __future__ import annotations

from typing import Final

# ── Why a pod is moved ──────────────────────────────────────────────────────────────────────────────────────────────

DUPLICATE_ON_NODE: Final = "DuplicateOnNode"
"""The node runs more pods of this owner than its fair share, and another feasible node runs fewer."""

NODE_OVERUTILIZED: Final = "NodeOverutilized"
"""The node's requests, or its real use, exceed the target of a resource that this pod has some of, and an underutilized
node takes it."""

INTER_POD_ANTI_AFFINITY_VIOLATED: Final = "InterPodAntiAffinityViolated"
"""The pod and another one share a topology domain though a required anti-affinity term of either forbids it."""

NODE_UNDERUTILIZED: Final = "NodeUnderutilized"
"""The node's requests are at or below every threshold, and all its pods have a place on other nodes."""

INTER_POD_AFFINITY_VIOLATED: Final = "InterPodAffinityViolated"
"""The pod's pod affinity no longer holds where it is, or less of it than on another node that takes the pod."""

NODE_AFFINITY_VIOLATED: Final = "NodeAffinityViolated"
"""The node no longer satisfies the pod's node selector or node affinity, and another one that takes the pod does."""

NODE_TAINTS_VIOLATED: Final = "NodeTaintsViolated"
"""The node has a taint that the pod does not tolerate, and another node takes the pod."""

TOPOLOGY_SPREAD_VIOLATED: Final = "TopologySpreadViolated"
"""A topology spread constraint of the pod counts too many pods in its domain, and one with fewer takes the pod."""

TOO_MANY_RESTARTS: Final = "TooManyRestarts"
"""The pod's containers have been restarted ``podRestartThreshold`` times or more."""

POD_LIFE_TIME_EXCEEDED: Final = "PodLifeTimeExceeded"
"""The pod was created longer ago than ``maxPodLifeTimeSeconds``, and is as PodLifeTime's other parameters say."""

POD_STATE_MATCHED: Final = "PodStateMatched"
"""The pod is in a state, has a condition or an exit code that PodLifeTime names, whatever its age."""

POD_FAILED: Final = "PodFailed"
"""The pod has failed, and is as RemoveFailedPods' parameters say. It holds no place and is only removed."""

# ── Why a pod stays: nothing better is to be had ────────────────────────────────────────────────────────────────────

NO_PLACE: Final = "NoPlace"
"""No node takes the pod; the message says, node by node, why not (kube-scheduler's words)."""

NO_IMPROVEMENT: Final = "NoImprovement"
"""A node takes the pod, but the strategy's measure of its violation would not fall: strictly better or not at all."""

NOT_ENOUGH_NODES: Final = "NotEnoughNodes"
"""The strategy needs more nodes than it has: fewer than two feasible ones, or too few underutilized (numberOfNodes)."""

NOT_MEASURED: Final = "NotMeasured"
"""The strategy judges by real use, and nobody has measured the node: nothing is moved off it or onto it."""

NO_UNDERUTILIZED_NODES: Final = "NoUnderutilizedNodes"
"""No schedulable node is at or below every threshold, so nothing can be moved to one."""

NAMESPACE_NOT_EVICTABLE: Final = "NamespaceNotEvictable"
"""The strategy's ``evictableNamespaces.exclude`` names the pod's namespace."""

NOT_IN_SCOPE: Final = "NotInScope"
"""The policy does not look at the pod (namespaces, podSelector), so its node cannot be emptied."""

IRRELEVANT_RESOURCE: Final = "IrrelevantResource"
"""The pod requests, or really uses, nothing of what the node has too much of: moving it would not relieve the node."""

# ── Why a pod stays: disruption is held back ────────────────────────────────────────────────────────────────────────

LIMIT_REACHED: Final = "LimitReached"
"""A limit of the policy (cycle, node, namespace or owner) is used up; the message names it."""

DISRUPTION_BUDGET: Final = "DisruptionBudget"
"""A PodDisruptionBudget allows no (further) disruption; the message names the budget and its numbers."""

COOLING_DOWN: Final = "CoolingDown"
"""The strategy's last eviction of a pod of this owner did not help: it came back, stays Pending, or is wanted away
from where it came to. The next waits, twice as long each time. Effective: which owners are left alone for this."""

GAVE_UP: Final = "GaveUp"
"""As many evictions in a row of this owner's pods by this strategy did not help as ``cooldown.attempts`` allows. Not
effective: which owners these are."""

OWNER_NOT_SETTLED: Final = "OwnerNotSettled"
"""The replacement of another pod of the same owner does not run yet; this one waits for it."""

CYCLE_DEADLINE: Final = "CycleDeadline"
"""The cycle's time was up before the pod's turn came; the next cycle judges it anew."""

WINDOW_CLOSED: Final = "WindowClosed"
"""The policy's window closed before the pod's turn came; the pod is judged anew in the next one."""

SHUTTING_DOWN: Final = "ShuttingDown"
"""trimtab is stopping and starts nothing new; whoever takes over judges the pod anew."""

LEASE_LOST: Final = "LeaseLost"
"""The eviction was not sent: another process may lead by now."""

# ── Why a pod stays: it is protected ────────────────────────────────────────────────────────────────────────────────

CRITICAL_POD: Final = "CriticalPod"
"""A system-critical priority class or priority (>= 2000000000), or the old critical-pod annotation. Never lifted."""

BARE_POD: Final = "BarePod"
"""No controller owns the pod: nothing would bring it back. ``protections.disabled: [FailedBarePods]`` lifts it for
pods that have failed, and for no other."""

STATIC_POD: Final = "StaticPod"
"""A static pod: it comes from the kubelet's own files, not from the API server. Never lifted."""

MIRROR_POD: Final = "MirrorPod"
"""The API server's mirror of a static pod. Never lifted."""

DAEMON_SET_POD: Final = "DaemonSetPod"
"""A DaemonSet's pod: it belongs to its node and would come back there. Never lifted."""

LOCAL_STORAGE: Final = "LocalStorage"
"""An emptyDir or hostPath volume: data would be lost. Lifted by ``protections.disabled: [PodsWithLocalStorage]``."""

SYSTEM_NAMESPACE: Final = "SystemNamespace"
"""A namespace of the cluster itself, as kube-system is. Lifted by ``protections.disabled: [SystemNamespaces]``."""

PERSISTENT_VOLUME_CLAIM: Final = "PersistentVolumeClaim"
"""The pod uses a PersistentVolumeClaim, and ``protections.extra`` has PodsWithPVC; where
``protectedStorageClasses`` is given, one of these classes or of a class that is not known."""

RESOURCE_CLAIM: Final = "ResourceClaim"
"""The pod uses a ResourceClaim, and ``protections.extra`` has PodsWithResourceClaims."""

NO_DISRUPTION_BUDGET: Final = "NoDisruptionBudget"
"""No PodDisruptionBudget selects the pod, and ``protections.extra`` has PodsWithoutPDB."""

TOO_FEW_REPLICAS: Final = "TooFewReplicas"
"""The pod's owner has fewer pods than ``protections.minReplicas``."""

CANNOT_SURGE: Final = "CannotSurge"
"""The only ready pod of its owner, and ``singleReplica`` is Surge, but no rollout can make the new pod first; the
message says why, with the numbers."""

ROLLOUT_IN_PROGRESS: Final = "RolloutInProgress"
"""The Deployment of a single replica is being rolled out already; or its restart was begun, and goes on by itself."""

POD_TOO_YOUNG: Final = "PodTooYoung"
"""The pod started less than ``protections.minPodAge`` ago, or has not started; or it has failed and was created less
than RemoveFailedPods' ``minPodLifetimeSeconds`` ago."""

PRIORITY_TOO_HIGH: Final = "PriorityTooHigh"
"""The pod's priority is at or above the policy's ``priorityThreshold``."""

UNKNOWN_PRIORITY_CLASS: Final = "UnknownPriorityClass"
"""``priorityThreshold`` names a PriorityClass that does not exist, so no pod is known to be below it. Never lifted."""

EVICT_ANNOTATION: Final = "EvictAnnotation"
"""The annotation ``descheduler.alpha.kubernetes.io/evict`` says something else than "true". Never lifted."""

NO_EVICTION_ANNOTATION: Final = "NoEvictionAnnotation"
"""The pod has the annotation ``descheduler.alpha.kubernetes.io/prefer-no-eviction``, and the policy's
``noEvictionPolicy`` is Mandatory."""

UNKNOWN_NAMESPACE: Final = "UnknownNamespace"
"""The policy has a ``namespaceSelector``, and the labels of the pod's namespace are not known. Never lifted."""

POD_STARTING: Final = "PodStarting"
"""The pod is bound to its node and not running yet, though not for so long that it must be stuck."""

TERMINATING: Final = "Terminating"
"""The pod is already going."""

TERMINAL: Final = "Terminal"
"""The pod has run to its end (Succeeded or Failed): it holds no place."""

# ── How an eviction ended ───────────────────────────────────────────────────────────────────────────────────────────

EVICTED: Final = "Evicted"
"""The API server took the eviction."""

ROLLED_OUT: Final = "RolledOut"
"""The Deployment was restarted and has its new pod; the old one goes."""

EVACUATED: Final = "Evacuated"
"""Who had taken the eviction over has moved the pod."""

EVICTION_IN_BACKGROUND: Final = "EvictionInBackground"
"""Who moves the pod himself (KubeVirt) has taken the eviction over and not ended yet: the pod is on its way out."""

EVACUATION_FAILED: Final = "EvacuationFailed"
"""Who took the eviction over has given it up, or not ended within ten minutes: the pod stays."""

EVICTION_REFUSED: Final = "EvictionRefused"
"""The API server refused the eviction until the cycle's deadline; the message has its words."""

EVICTION_FAILED: Final = "EvictionFailed"
"""The eviction failed for another cause than a budget: forbidden, unreachable, a server error."""

ALREADY_GONE: Final = "AlreadyGone"
"""The pod was gone, or another one had its name, when its turn came: nothing was evicted."""

PLAN_OUTDATED: Final = "PlanOutdated"
"""Between planning and acting the pod, its node or its destination changed so that the move no longer holds; their real
use, too, where the policy judges by it."""

NO_LONGER_PLANNED: Final = "NoLongerPlanned"
"""The move was approved, and judged again before it was made: a plan made by then does not make it, or makes it for
another reason."""

# ── What a policy's conditions say ──────────────────────────────────────────────────────────────────────────────────

CYCLE_COMPLETED: Final = "CycleCompleted"
"""Ready: the last cycle ran to its end."""

WAITING_FOR_FIRST_CYCLE: Final = "WaitingForFirstCycle"
"""Ready unknown: no cycle has run since this generation was written."""

CYCLE_RUNNING: Final = "CycleRunning"
"""Progressing: a cycle is planning or acting."""

IDLE: Final = "Idle"
"""Not progressing: waiting for the next cycle."""

OUTSIDE_WINDOWS: Final = "OutsideWindows"
"""Not progressing: none of ``spec.windows`` is open, and the policy may not act; the message says when one opens."""

SUSPENDED: Final = "Suspended"
"""Not progressing: ``spec.suspend`` holds the policy."""

INVALID_POLICY: Final = "InvalidPolicy"
"""Not ready, degraded: the spec cannot be used; the message names the fields."""

POLICY_CONFLICT: Final = "PolicyConflict"
"""Not ready, degraded: the policy and another one would undo each other; neither plans anything."""

SCHEDULER_CONFLICT: Final = "SchedulerConflict"
"""Not ready, degraded: the scheduler, as ``--scoring`` says of it, would undo what a strategy of the policy does."""

CLUSTER_UNREACHABLE: Final = "ClusterUnreachable"
"""Degraded: the API server does not answer, or the picture of the cluster is too old to plan on."""

CYCLE_FAILED: Final = "CycleFailed"
"""Degraded: the last cycle ended with an error; the message names it."""

USE_NOT_MEASURED: Final = "UseNotMeasured"
"""Degraded: a strategy judges by real use, which could not be read, or not all of it."""

EVICTIONS_FAILED: Final = "EvictionsFailed"
"""Degraded: the last cycle ran, but the API server refused evictions for another cause than a budget."""

ALL_WELL: Final = "AllWell"
"""Not degraded."""

# ── What a run's conditions say ─────────────────────────────────────────────────────────────────────────────────────

SIMULATED: Final = "Simulated"
"""Complete: the run only shows what would be done."""

WAITING_FOR_APPROVAL: Final = "WaitingForApproval"
"""Not approved: the run waits for ``spec.approved``; the event of the same name says which run."""

APPROVED: Final = "Approved"
"""Approved: somebody has set ``spec.approved``."""

SUPERSEDED: Final = "Superseded"
"""Expired: a newer run plans otherwise, or the policy's spec has changed. It can no longer be approved."""

APPROVAL_EXPIRED: Final = "ApprovalExpired"
"""Expired: nobody approved the run within ``approvalDeadline``, or it was not finished as long after its approval."""

RUN_COMPLETED: Final = "RunCompleted"
"""Complete: every action has its outcome."""

RUN_INTERRUPTED: Final = "RunInterrupted"
"""Not complete: trimtab ended, or the cycle failed, while the run acted in mode Act; the next cycle plans anew."""

# ── What the autoscaler's conditions say ────────────────────────────────────────────────────────────────────────────

PASS_COMPLETED: Final = "PassCompleted"
"""Ready: the last pass ran to its end; the message says what came of it."""

WAITING_FOR_FIRST_PASS: Final = "WaitingForFirstPass"
"""Ready unknown: no pass has run since this generation was written."""

SCALING: Final = "Scaling"
"""Progressing: nodes that were asked for are on their way, or nodes are being removed; the message names them."""

INVALID_AUTOSCALER: Final = "InvalidAutoscaler"
"""Not ready, degraded: the ClusterAutoscaler's spec cannot be used; the message names the fields."""

PASS_FAILED: Final = "PassFailed"
"""Not ready, degraded: the last pass ended with an error; the message names it."""

CLUSTER_UNHEALTHY: Final = "ClusterUnhealthy"
"""Not ready, degraded: so many nodes are not ready that nothing is scaled, for what is seen may be the network. Also an
event, and why pods get no nodes, and nodes stay."""

NODE_GROUPS_UNHEALTHY: Final = "NodeGroupsUnhealthy"
"""Degraded: groups have so many nodes that are not ready that these groups are not scaled; all others are."""

NODE_GROUPS_FAILING: Final = "NodeGroupsFailing"
"""Degraded: nodes that were asked for did not come, and their groups are left alone for a while."""

REMOVALS_FAILING: Final = "RemovalsFailing"
"""Degraded: the last removal of a node failed, and none has gone well since."""

INVALID_NODE_GROUPS: Final = "InvalidNodeGroups"
"""Degraded: MachineAutoscalers, or annotations of node groups, are wrong; the rest is scaled."""

PRIORITY_CONFIG_MAP_INVALID: Final = "PriorityConfigMapInvalid"
"""Degraded: the ConfigMap of the expander Priority is missing or cannot be read; the other expanders decide. Also an
event."""

# ── What the autoscaler's events say ────────────────────────────────────────────────────────────────────────────────

TRIGGERED_SCALE_UP: Final = "TriggeredScaleUp"
"""Event on a pending pod: nodes have been asked for, for it among others; the note names the group and its sizes."""

NOT_TRIGGER_SCALE_UP: Final = "NotTriggerScaleUp"
"""Event on a pending pod: no node is added for it; the note has the reason's code, and what each group says."""

SCALED_UP_GROUP: Final = "ScaledUpGroup"
"""Event: a group has been asked for more nodes."""

FAILED_TO_SCALE_UP_GROUP: Final = "FailedToScaleUpGroup"
"""Event: a group could not be asked for more nodes; the note has the reason's code."""

SCALE_UP_TIMED_OUT: Final = "ScaleUpTimedOut"
"""Event: nodes that were asked for did not come in time; the group backs off, and pods are planned without them."""

SCALE_DOWN: Final = "ScaleDown"
"""Event on a node: it is being removed; on a pod: it was evicted for that; on the ClusterAutoscaler: a node with pods
went."""

SCALE_DOWN_EMPTY: Final = "ScaleDownEmpty"
"""Event: a node without pods that need a place went."""

SCALE_DOWN_FAILED: Final = "ScaleDownFailed"
"""Event: a node was to go and stays; also on the pod that keeps it."""

CLUSTER_AUTOSCALER_CLEANUP: Final = "ClusterAutoscalerCleanup"
"""Event on a node: taints or a cordon that an earlier process had left on it were taken away."""

# ── Why a group of nodes grows, and why pods stay pending ───────────────────────────────────────────────────────────

PENDING_PODS: Final = "PendingPods"
"""Pods wait that no node takes which is there or on its way, and new nodes of this group would."""

FITS_ON_NODE: Final = "FitsOnNode"
"""A node that is there takes the pod, so the scheduler will put it on one: none is added for it."""

FITS_ON_UPCOMING_NODE: Final = "FitsOnUpcomingNode"
"""A node that is on its way takes the pod."""

NOMINATED: Final = "Nominated"
"""The scheduler has nominated a node for the pod, and other pods make room for it there."""

NOT_UNSCHEDULABLE: Final = "NotUnschedulable"
"""The scheduler has not said of the pod that it finds no node for it, and is not one of ``bypassedSchedulers``."""

SCHEDULING_GATED: Final = "SchedulingGated"
"""The pod has scheduling gates: nobody places it before they are gone."""

SCALE_UP_DELAYED: Final = "ScaleUpDelayed"
"""The pod is younger than ``newPodScaleUpDelay``, or than its own annotation asks for."""

PRIORITY_BELOW_THRESHOLD: Final = "PriorityBelowThreshold"
"""The pod's priority is below ``podPriorityThreshold``: it runs where there is room, and no node is added for it."""

NO_NODE_GROUPS: Final = "NoNodeGroups"
"""Nothing can grow: no MachineAutoscaler has a target, and no set of machines has both sizes."""

NO_GROUP_FITS: Final = "NoGroupFits"
"""No group's new node would take the pod; the message says of each why not (kube-scheduler's words)."""

MAX_SIZE_REACHED: Final = "MaxSizeReached"
"""A group would take the pod, but has its largest size, or will have it with the nodes that are planned."""

MAX_NODES_TOTAL_REACHED: Final = "MaxNodesTotalReached"
"""A group would take the pod, but the cluster would have more nodes than ``maxNodesTotal``."""

MAX_CORES_REACHED: Final = "MaxCoresReached"
"""A group would take the pod, but the cluster would have more cores than ``resourceLimits.cores.max``."""

MAX_MEMORY_REACHED: Final = "MaxMemoryReached"
"""A group would take the pod, but the cluster would have more memory than ``resourceLimits.memory.max``, in GiB."""

MAX_GPUS_REACHED: Final = "MaxGpusReached"
"""A group would take the pod, but the cluster would have more GPUs of a type than ``resourceLimits.gpus`` allows."""

GROUP_BACKS_OFF: Final = "GroupBacksOff"
"""A group would take the pod, but failed to bring nodes a short while ago; the message says until when it is left."""

SCALE_UP_NOT_SEEN: Final = "ScaleUpNotSeen"
"""A group would take the pod, but was asked for nodes a moment ago and does not show it yet: the next pass knows."""

GROUP_UNHEALTHY: Final = "GroupUnhealthy"
"""Too many of the group's nodes are not ready, or what makes its machines does not answer: it is left as it is."""

BELOW_MINIMUM: Final = "BelowMinimum"
"""A group is smaller than its minimum: it is raised to that only where ``enforceNodeGroupMinSize`` is Enabled."""

# ── What became of nodes that were asked for ────────────────────────────────────────────────────────────────────────

SCALE_UP_COMPLETED: Final = "ScaleUpCompleted"
"""All nodes of an increase are there."""

MACHINE_FAILED: Final = "MachineFailed"
"""A machine failed before it became a node; the group backs off at once, and pods are planned elsewhere."""

NODE_NOT_STARTED: Final = "NodeNotStarted"
"""A new node joined and did not become ready in the time that nodes have to start; the group backs off."""

TARGET_CHANGED: Final = "TargetChanged"
"""Somebody else set a group's size while nodes were waited for; the new size is the truth."""

TARGET_LOWERED: Final = "TargetLowered"
"""A group's size was lowered by nodes that never came."""

DELETE_UNREGISTERED: Final = "DeleteUnregistered"
"""Machines were taken away that failed, or did not become nodes in time (upstream's name)."""

# ── Why nodes are replaced by others, and why not ───────────────────────────────────────────────────────────────────

REPLACEMENT: Final = "Replacement"
"""Nodes are added to take the place of dearer ones, or a node goes whose place others have taken."""

REPLACEMENT_GOES_ON: Final = "ReplacementGoesOn"
"""The node was added to take the place of others, and stays until these are gone."""

REPLACEMENT_GIVEN_UP: Final = "ReplacementGivenUp"
"""New nodes did not come, or the old ones could not be drained in time; nothing else is replaced for a while."""

REPLACEMENT_WAITS: Final = "ReplacementWaits"
"""Nothing is replaced while pods wait, nodes come or go, or shortly after; the message says what it waits for."""

NOT_CHEAPER: Final = "NotCheaper"
"""No other group's nodes would hold the pods of a group's nodes for so much less that it is worth moving them."""

PRICE_UNKNOWN: Final = "PriceUnknown"
"""The group does not say what a node of it costs an hour (annotation ``trimtab.dev/price``): none is replaced."""

# ── Why a node is removed, and why one stays ────────────────────────────────────────────────────────────────────────

UNDERUTILIZED: Final = "Underutilized"
"""The node's pods request at most the threshold, have been so few for long enough, and have places on other nodes."""

EMPTY: Final = "Empty"
"""Nothing on the node needs a place elsewhere, and that has been so for long enough."""

UNREADY: Final = "Unready"
"""The node has been unready and unneeded for longer than ``unreadyTime``."""

SCALE_DOWN_DISABLED: Final = "ScaleDownDisabled"
"""``scaleDown.enabled`` is false: no node is removed."""

SCALE_DOWN_DISABLED_ANNOTATION: Final = "ScaleDownDisabledAnnotation"
"""The node's annotation ``cluster-autoscaler.kubernetes.io/scale-down-disabled`` says "true"."""

NOT_AUTOSCALED: Final = "NotAutoscaled"
"""No group that is scaled has the node."""

CURRENTLY_BEING_DELETED: Final = "CurrentlyBeingDeleted"
"""The node, or its machine, is on its way out already."""

NOT_UNDERUTILIZED: Final = "NotUnderutilized"
"""The node's pods request more than the threshold of what is allocatable."""

NODE_GROUP_MIN_SIZE_REACHED: Final = "NodeGroupMinSizeReached"
"""The node's group has its smallest size, or will have it with the nodes that are to go."""

MINIMAL_RESOURCE_LIMIT_EXCEEDED: Final = "MinimalResourceLimitExceeded"
"""Without the node the cluster would have less than ``resourceLimits`` allows: cores, memory or GPUs."""

BLOCKED_BY_POD: Final = "BlockedByPod"
"""A pod of the node may not be moved; the message names it and the rule."""

BLOCKED_BY_ON_COMPLETION_POD: Final = "BlockedByOnCompletionPod"
"""A pod of the node is to run to its end (``safe-to-evict: on-completion``); the node waits for it."""

NO_PLACE_TO_MOVE_PODS: Final = "NoPlaceToMovePods"
"""A pod of the node finds no place elsewhere; the message names it, with kube-scheduler's words."""

NEEDED_FOR_OTHER_PODS: Final = "NeededForOtherPods"
"""Pods that wait, or pods of nodes that go, have their places on the node."""

NOT_UNNEEDED_LONG_ENOUGH: Final = "NotUnneededLongEnough"
"""The node is not needed, but not recorded as such for ``unneededTime``."""

NOT_UNREADY_LONG_ENOUGH: Final = "NotUnreadyLongEnough"
"""The node is unready and not needed, but not recorded as such for ``unreadyTime``."""

DELAY_AFTER_ADD: Final = "DelayAfterAdd"
"""Nodes were added less than ``delayAfterAdd`` ago: none is removed."""

DELAY_AFTER_DELETE: Final = "DelayAfterDelete"
"""A node was removed less than ``delayAfterDelete`` ago: no other one is."""

DELAY_AFTER_FAILURE: Final = "DelayAfterFailure"
"""Removing a node failed less than ``delayAfterFailure`` ago: none is removed."""

# ── Why a removal that had begun came to nothing ────────────────────────────────────────────────────────────────────

REMOVAL_FAILED: Final = "RemovalFailed"
"""The removal failed in a way that nobody foresaw; the message has the error."""

NODE_NOT_WRITTEN: Final = "NodeNotWritten"
"""The API server did not let the node be tainted and cordoned, or no answer came."""

POD_DID_NOT_END: Final = "PodDidNotEnd"
"""A pod was evicted and is still there after its grace period and some time more."""

PODS_KEEP_COMING: Final = "PodsKeepComing"
"""Pods that tolerate its taint came onto the node as often as it was drained."""

TAINT_TAKEN_OFF: Final = "TaintTakenOff"
"""Somebody took the taint of a node that goes off, and so means to keep it."""

MACHINE_SPARED: Final = "MachineSpared"
"""The group's size was lowered, but other machines went, or the size was raised again: this one stays."""

AUTOSCALER_GONE: Final = "AutoscalerGone"
"""The ClusterAutoscaler was deleted: what was begun is taken back."""

# ── Why a pod keeps its node ────────────────────────────────────────────────────────────────────────────────────────

CONTROLLER_NOT_FOUND: Final = "ControllerNotFound"
"""The pod's controller is gone: nothing would bring the pod back."""

NOT_REPLICATED: Final = "NotReplicated"
"""No ReplicaSet, StatefulSet, Job or ReplicationController owns the pod: nothing would bring it back."""

UNMOVABLE_KUBE_SYSTEM_POD: Final = "UnmovableKubeSystemPod"
"""A pod of kube-system that no PodDisruptionBudget selects, and that is no DaemonSet's."""

NOT_SAFE_TO_EVICT_ANNOTATION: Final = "NotSafeToEvictAnnotation"
"""The pod's annotation ``cluster-autoscaler.kubernetes.io/safe-to-evict`` says "false"."""

LOCAL_STORAGE_REQUESTED: Final = "LocalStorageRequested"
"""The pod has emptyDir or hostPath volumes, and ``skipNodesWithLocalStorage`` is true."""

NOT_ENOUGH_PDB: Final = "NotEnoughPdb"
"""A PodDisruptionBudget allows no (further) disruption."""

# ── What is wrong with a node group ─────────────────────────────────────────────────────────────────────────────────

INVALID_LIMITS: Final = "InvalidLimits"
"""The annotations for a group's smallest and largest size are not both there, or are no such sizes: it is no group."""

INVALID_ANNOTATION: Final = "InvalidAnnotation"
"""An annotation of a group cannot be read; it counts as if it were not there."""

TARGET_NOT_FOUND: Final = "TargetNotFound"
"""A MachineAutoscaler's ``scaleTargetRef`` names an object that is not there."""

TARGET_UNSUPPORTED: Final = "TargetUnsupported"
"""A MachineAutoscaler's target is there, but something else sets its size, or its kind cannot be scaled."""

TARGET_ALREADY_OWNED: Final = "TargetAlreadyOwned"
"""Another MachineAutoscaler has the target, and its limits hold."""

NODE_CLAIMED_TWICE: Final = "NodeClaimedTwice"
"""Two machines say that a node is theirs; it counts for the first."""

NO_TEMPLATE: Final = "NoTemplate"
"""The group has no node to learn from, and neither its annotations nor its provider say what one would be like."""

INVALID_LEARNED_NODE: Final = "InvalidLearnedNode"
"""What the annotation ``trimtab.dev/learned-node`` of a group says cannot be, so it is not used; a node replaces it."""

LEARNED_NODE_OUTDATED: Final = "LearnedNodeOutdated"
"""The group's template has changed since its last node was written down: what that was like is not used any more."""

GROUP_PAUSED: Final = "GroupPaused"
"""The group is not to be scaled at present: it is paused, is being deleted, is handed over between two APIs, or its
provider has not said lately what it is."""

PROVIDER_UNREACHABLE: Final = "ProviderUnreachable"
"""A provider outside of the cluster does not answer, or answers with an error; its groups wait until it does."""

INVALID_PROVIDER_CONFIG: Final = "InvalidProviderConfig"
"""What a provider is configured with cannot be read: no groups are made of it."""

# ── What a MachineAutoscaler's conditions and events say ────────────────────────────────────────────────────────────

LIMITS_SET: Final = "LimitsSet"
"""Ready: the target has the limits."""

ABOVE_MAXIMUM: Final = "AboveMaximum"
"""Ready: the target has the limits, and is larger than ``maxReplicas``: it is not shrunk for that."""

INVALID_MACHINE_AUTOSCALER: Final = "InvalidMachineAutoscaler"
"""Not ready: the spec cannot be used; the message names the fields. What the target has from before stays."""

LIMITS_NOT_SET: Final = "LimitsNotSet"
"""Not ready: the API server does not let the limits be written, or taken from an earlier target; it is tried again."""

SUCCESSFUL_UPDATE: Final = "SuccessfulUpdate"
"""Event: annotations of a target were set, put back or removed; the note says which."""

FAILED_GET_TARGET: Final = "FailedGetTarget"
"""Event: the target is not there, or cannot be scaled; the note says which."""

FAILED_SET_OWNER: Final = "FailedSetOwner"
"""Event: another MachineAutoscaler has the target; the note names it."""

FAILED_UPDATE_TARGET: Final = "FailedUpdateTarget"
"""Event: the API server does not let annotations of a target be written."""

FAILED_VALIDATION: Final = "FailedValidation"
"""Event: the spec cannot be used; the note names the fields."""

# ── Why a pod on a tainted node goes, and why it stays ──────────────────────────────────────────────────────────────

NO_EXECUTE_TAINT: Final = "NoExecuteTaint"
"""The node has a NoExecute taint that the pod does not tolerate, or only for a while; the message says since when, and
by which toleration."""

TOLERATES_TAINTS: Final = "ToleratesTaints"
"""The pod tolerates every NoExecute taint of its node without end."""

# ── What the taint manager's conditions and events say ──────────────────────────────────────────────────────────────

OBSERVING: Final = "Observing"
"""Ready: ``spec.mode`` is Observe; deadlines are reported, and nothing is done about them."""

MANAGING_TAINTS: Final = "ManagingTaints"
"""Ready: pods go when their time is over; in mode Own nodes that fail are tainted, too."""

WAITING_FOR_FIRST_LOOK: Final = "WaitingForFirstLook"
"""Ready unknown: nodes and pods have not all been seen yet since trimtab started."""

ENDING_PODS: Final = "EndingPods"
"""Progressing: pods whose time is over are being deleted or evicted."""

TAINTING_NODES: Final = "TaintingNodes"
"""Progressing: nodes that have failed wait for their taint, zone by zone."""

INVALID_TAINT_MANAGER: Final = "InvalidTaintManager"
"""Not ready, degraded: the TaintManager's spec cannot be used; the message names the fields."""

RIGHTS_MISSING: Final = "RightsMissing"
"""Not ready, degraded: the mode needs rights that trimtab's account does not have; the message lists them. With the
chart they are ``controllers.taintManager.rights``."""

PODS_REFUSED: Final = "PodsRefused"
"""Degraded: pods' time is over, and a webhook, a PodDisruptionBudget or a missing right keeps them; they are tried
again."""

PODS_STUCK: Final = "PodsStuck"
"""Degraded: pods of dead nodes are terminating and cannot end there; the message says what can be done. Also an event
on the node."""

NODE_LIFECYCLE_FAILED: Final = "NodeLifecycleFailed"
"""Degraded: the node lifecycle cannot go on; the message has the error. Pods go on to end when they are due."""

TAINT_MANAGER_EVICTION: Final = "TaintManagerEviction"
"""Event: a pod was deleted or evicted because its time on a tainted node was over (upstream's name)."""

DEADLINE_SET: Final = "DeadlineSet"
"""Event: a pod's time on its node is limited, or ends at another time than before; the note says when, by which taint
and which toleration."""

DEADLINE_CANCELLED: Final = "DeadlineCancelled"
"""Event: a pod's time on its node is not limited any more."""

DELETION_BY_TAINT_MANAGER: Final = "DeletionByTaintManager"
"""Condition DisruptionTarget of a pod that is deleted because of a taint: upstream's word, which Jobs' policies use."""

MAXIMUM_WAIT_OVER: Final = "MaximumWaitOver"
"""The pod was to be evicted, that was refused for as long as ``maximumWait`` says, and so it is deleted."""

TIME_NOT_OVER: Final = "TimeNotOver"
"""The pod's time was over and is not any more: a taint went, a toleration came, or the mode is Observe."""

DELETION_REFUSED: Final = "DeletionRefused"
"""A webhook, an admission policy or a missing right does not let a pod go whose time is over; it is tried again."""

DELETION_FAILED: Final = "DeletionFailed"
"""The deletion or eviction of a pod whose time is over got no answer, or the API server failed; it is tried again."""

# ── Why a node is tainted, is freed of a taint, or waits ────────────────────────────────────────────────────────────

NODE_NOT_READY: Final = "NodeNotReady"
"""The node's Ready condition is False, or it has not said yet whether it is ready: taint not-ready."""

NODE_UNREACHABLE: Final = "NodeUnreachable"
"""The node's Ready condition is Unknown: taint unreachable."""

NODE_CONDITION: Final = "NodeCondition"
"""Another condition of the node asks for the taint; the message names it."""

NODE_CORDONED: Final = "NodeCordoned"
"""The node is unschedulable, and has the taint that says so."""

NODE_CONDITION_ENDED: Final = "NodeConditionEnded"
"""Nothing asks for the taint any more: it is taken off."""

NODE_RECOVERED: Final = "NodeRecovered"
"""The node is ready again: its NoExecute taints are taken off at once."""

ALL_ZONES_DOWN: Final = "AllZonesDown"
"""No node of any zone is ready: rather we are cut off than they are. NoExecute taints are taken off, and none is put
on."""

ALL_NODES_IN_DOUBT: Final = "AllNodesInDoubt"
"""Every node is down or has missed two renewals of its Lease: no NoExecute taint is put on until it is clear whether
all zones are down."""

OUTAGE_ENDED: Final = "OutageEnded"
"""All zones were down until just now: nodes get their grace period anew before one is tainted."""

ZONE_DISRUPTED: Final = "ZoneDisrupted"
"""Too many nodes of the zone are not ready for any to be tainted: its rate is 0."""

EVICTION_RATE_LIMITED: Final = "EvictionRateLimited"
"""Another node of the zone was tainted, or has failed before this one; it is tainted in its turn."""

# ── What is thought of a node that says nothing ─────────────────────────────────────────────────────────────────────

NODE_SILENT: Final = "NodeSilent"
"""By our watches the node has been silent for longer than its grace period: the API server is asked before it counts as
Unknown."""

NODE_STATUS_UNKNOWN: Final = "NodeStatusUnknown"
"""The node has stopped renewing its Lease and posting its status; upstream's word in the conditions."""

NODE_STATUS_NEVER_UPDATED: Final = "NodeStatusNeverUpdated"
"""The node has never posted its status; upstream's word in the conditions."""

STALE_WATCHES: Final = "StaleWatches"
"""Our own watches have said nothing for too long: nothing is done about nodes until they do."""

WATCHES_BEHIND: Final = "WatchesBehind"
"""The API server knows of a renewal that our watches have not told of: nothing is done about nodes until they have."""

# ── Why a node group was not scaled ─────────────────────────────────────────────────────────────────────────────────

SCALE_REFUSED: Final = "ScaleRefused"
"""The group must not be scaled so, by its limits or its state, or the API server refused; the message says which."""

SCALE_CONFLICT: Final = "ScaleConflict"
"""Somebody changed the group's size since the plan was made; nothing was written, and the next plan counts anew."""

SCALE_TARGET_GONE: Final = "ScaleTargetGone"
"""The group's object, or a machine that was to go, is not there any more."""

SCALE_UNREACHABLE: Final = "ScaleUnreachable"
"""No answer came, and whether the size has changed could not be found out, or it has not."""

SCALE_TIMED_OUT: Final = "ScaleTimedOut"
"""The group's API did not answer within the time that a group gets; other groups go on."""
