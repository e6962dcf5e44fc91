"""The input of all inspections: a cluster at one time, with the policies in it and what was recorded about it.

Example::

    cluster = ClusterInput(snapshot=snapshot, now=now, policies=PolicySet(cluster_autoscaler=autoscaler))
    document = explain_node_group(cluster, "openshift-machine-api/workers-a")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.api.scheduler_policy import SchedulerPolicy
from trimtab.api.taint_manager import TaintManager
from trimtab.inspection.node_stats import NodeStats

if TYPE_CHECKING:
    from trimtab.admission.audit import AuditResult
    from trimtab.api.descheduler_status import EvictionMemory
    from trimtab.api.history_record import HistoryEntry
    from trimtab.autoscaling.scale_up import PlanInputs
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.cluster.usage.measurement import Usage
    from trimtab.cluster.workloads.rollouts import Rollouts
    from trimtab.inspection.planning import JointPlanCache


class PolicySet(Struct, frozen=True, kw_only=True):
    """The custom resources that configure trimtab in one cluster.

    Attributes:
        descheduler: the DeschedulerPolicies, ordered by name.
        cluster_autoscaler: the ClusterAutoscaler; ``None`` if there is none.
        machine_autoscalers: the MachineAutoscalers, ordered by namespace and name.
        priorities: node group patterns by priority, from the ConfigMap of the expander Priority.
        taint_manager: the TaintManager; ``None`` if there is none.
        schedulers: the SchedulerPolicies.
        pressure: the NodePressurePolicies.
        admission: the PlacementAdmission; ``None`` if there is none.
    """

    descheduler: tuple[DeschedulerPolicy, ...] = ()
    cluster_autoscaler: ClusterAutoscaler | None = None
    machine_autoscalers: tuple[MachineAutoscaler, ...] = ()
    priorities: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    taint_manager: TaintManager | None = None
    schedulers: tuple[SchedulerPolicy, ...] = ()
    pressure: tuple[NodePressurePolicy, ...] = ()
    admission: PlacementAdmission | None = None

    @property
    def autoscaled(self) -> bool:
        """Return whether anything configures autoscaling."""
        return self.cluster_autoscaler is not None or bool(self.machine_autoscalers)

    def autoscaling_inputs(self, *, now: float) -> PlanInputs:
        """Return the input of the autoscaling planner. Without a ClusterAutoscaler, it has the default spec."""
        from trimtab.autoscaling.scale_up import PlanInputs

        cluster = self.cluster_autoscaler
        return PlanInputs(
            ClusterAutoscalerSpec() if cluster is None else cluster.spec,
            now,
            self.machine_autoscalers,
            priorities=dict(self.priorities),
            status=ClusterAutoscalerStatus() if cluster is None else cluster.status,
        )


class ClusterInput(Struct, frozen=True, kw_only=True):
    """A cluster at one time, and what else inspections and plans read. Only what a caller needs has to be given.

    Attributes:
        snapshot: the cluster.
        now: the time, in seconds since the epoch.
        read_at: the newest heartbeat of a node, in seconds since the epoch, if the cluster may have been read earlier
            than ``now`` or with another clock; ``None`` if it was read at ``now``.
        source: the source of the snapshot: a file, or the API server's URL.
        policies: the custom resources that configure trimtab.
        memories: earlier evictions from the policies' statuses, by policy name.
        usages: the measured usage for policies that use metrics, by policy name.
        rollouts: the Deployments, if a policy has ``singleReplica: Surge``.
        audit: the result of auditing existing objects, if there is a PlacementAdmission.
        stats: the stats of nodes, from their kubelets or from metrics.k8s.io.
        history: the recorded actions of all controllers, the oldest first.
        managed_fields: the managedFields of objects by kind and name, where they were read.
        revision: the number of changes of the snapshot so far, for ``plans``.
        plans: keeps the joint plan for further documents; ``None`` to make it for each one.
    """

    snapshot: Snapshot
    now: float
    read_at: float | None = None
    source: str = ""
    policies: PolicySet = PolicySet()
    memories: Mapping[str, EvictionMemory] = field(default_factory=dict)
    usages: Mapping[str, Usage] = field(default_factory=dict)
    rollouts: Rollouts | None = None
    audit: AuditResult | None = None
    stats: NodeStats = field(default_factory=NodeStats)
    history: tuple[HistoryEntry, ...] = ()
    managed_fields: Mapping[tuple[str, str], tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    revision: int = 0
    plans: JointPlanCache | None = None

    def planner_options(self) -> dict[str, Any]:
        """Return the keyword arguments of the descheduling planner, except the snapshot."""
        return {"now": self.now, "memories": self.memories, "usages": self.usages, "rollouts": self.rollouts}


def eviction_memories(
    policies: Sequence[DeschedulerPolicy], snapshot: Snapshot, *, now: float
) -> dict[str, EvictionMemory]:
    """Return the memory of earlier evictions from the statuses of policies, by policy name."""
    from trimtab.descheduling.memory.assess import assess, repeating_strategies
    from trimtab.descheduling.memory.cycle_memory import valid_memory

    found = {}
    for policy in policies:
        memory = valid_memory(policy.status.memory, generation=policy.metadata.generation, try_again="")
        spec = policy.spec
        found[policy.name] = assess(memory, snapshot, spec.cooldown, now=now, routine=repeating_strategies(spec))
    return found
