"""Plans what all policies of a cluster would do together: one joint plan of nodes, pods and taints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from trimtab.api import reasons
from trimtab.api.plan import Kept, Plan

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.descheduling.planning.planner import StrategyMeasures
    from trimtab.inspection.cluster import ClusterInput, PolicySet
    from trimtab.kube.clock import Clock
    from trimtab.pressure.preview import PressurePlan

M = TypeVar("M")


CHANGED_SECONDS: Final = 5.0
"""Seconds for which a kept plan is used although the snapshot has changed.

In a large cluster it always changes, and a plan takes seconds.
"""
UNCHANGED_SECONDS: Final = 30.0
"""Seconds for which a kept plan is used while nothing changes. Plans also depend on the time."""


class JointPlanCache:
    """Keeps the last joint plan of a cluster that changes, because the documents of many questions need it.

    A plan is replaced when it is too old, or when the spec of a policy has changed.

    Args:
        clock: provides the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: tuple[Plan, float, int, object] | None = None

    def get(self, cluster: ClusterInput) -> Plan:
        """Return the kept plan, or make one and keep it."""
        at, key = self._clock.monotonic(), _policy_generations(cluster.policies)
        if self._kept is not None:
            plan, made_at, revision, made_for = self._kept
            # Readings of nodes are not part of the revision.
            unchanged = revision == cluster.revision and not cluster.policies.pressure
            most = UNCHANGED_SECONDS if unchanged else CHANGED_SECONDS
            if key == made_for and at - made_at < most:
                return plan
        plan = _make_joint_plan(cluster)
        self._kept = plan, at, cluster.revision, key
        return plan

    def drop_expired(self) -> None:
        """Free the kept plan if it is too old for further documents."""
        if self._kept is not None and self._clock.monotonic() - self._kept[1] >= UNCHANGED_SECONDS:
            self._kept = None


def _policy_generations(policies: PolicySet) -> tuple[tuple[str, str, int], ...]:
    """Return what changes with each change of a policy's spec."""
    single: tuple[Any, ...] = (policies.cluster_autoscaler, policies.taint_manager, policies.admission)
    several: tuple[Any, ...] = (
        *policies.descheduler,
        *policies.machine_autoscalers,
        *policies.schedulers,
        *policies.pressure,
    )
    return tuple(
        (type(each).__name__, each.metadata.uid, each.metadata.generation)
        for each in (*single, *several)
        if each is not None
    )


def joint_plan(cluster: ClusterInput) -> Plan:
    """Return the joint plan of nodes, pods and taints: the one that ``cluster.plans`` keeps, or a new one."""
    return _make_joint_plan(cluster) if cluster.plans is None else cluster.plans.get(cluster)


def _make_joint_plan(cluster: ClusterInput) -> Plan:
    """Plan nodes, pods and taints, and return one plan.

    Moved pods do not use capacity that is reserved for pending pods or by the autoscaler. Pods are not moved from or to
    nodes under pressure if another pod is evicted there.
    """
    from trimtab.descheduling.planning.planner import plan_evictions as move

    snapshot, policies = cluster.snapshot, cluster.policies
    under_pressure = plan_pressure_of(cluster)
    with snapshot.fork():
        _apply_pressure(snapshot, under_pressure, now=cluster.now)
        scheduled = None
        if policies.schedulers:
            from trimtab.scheduling.preview import plan_scheduling

            scheduled = plan_scheduling(snapshot, policies.schedulers)
        made, _ = _plan_nodes_and_pods(
            cluster, lambda: (move(snapshot, policies.descheduler, **cluster.planner_options()), None)
        )
    if scheduled is not None:
        made = msgspec.structs.replace(made, scheduling=scheduled.actions, kept=(*scheduled.kept, *made.kept))
    return _complete(made, cluster, under_pressure)


def joint_plan_and_measures(cluster: ClusterInput) -> tuple[Plan, Sequence[StrategyMeasures]]:
    """Return the joint plan without SchedulerPolicies, and the measures of the strategies before and after it."""
    from trimtab.descheduling.planning.planner import plan_and_measure

    snapshot, under_pressure = cluster.snapshot, plan_pressure_of(cluster)
    with snapshot.fork():
        _apply_pressure(snapshot, under_pressure, now=cluster.now)
        made, measures = _plan_nodes_and_pods(
            cluster, lambda: plan_and_measure(snapshot, cluster.policies.descheduler, **cluster.planner_options())
        )
    return _complete(made, cluster, under_pressure), measures or ()


def plan_pressure_of(cluster: ClusterInput) -> PressurePlan | None:
    """Plan node pressure; ``None`` without NodePressurePolicies."""
    if not cluster.policies.pressure:
        return None
    from trimtab.pressure.preview import plan_pressure

    readings = cluster.stats.readings(cluster.snapshot, now=cluster.now)
    return plan_pressure(cluster.snapshot, cluster.policies.pressure, readings, now=cluster.now)


def _complete(made: Plan, cluster: ClusterInput, under_pressure: PressurePlan | None) -> Plan:
    """Add what does not depend on the other plans: pressure, taints, deadlines, audited objects, missing namespaces."""
    if under_pressure is not None:  # these evictions come first, because they do not wait for others
        made = msgspec.structs.replace(
            made,
            actions=(*under_pressure.evictions, *made.actions),
            kept=(*under_pressure.kept, *made.kept),
            node_pressure=tuple(msgspec.to_builtins(each) for each in under_pressure.nodes),
        )
    manager = cluster.policies.taint_manager
    if manager is not None:
        from trimtab.tainting.preview import plan_taints

        found = plan_taints(cluster.snapshot, manager.spec, now=cluster.now, recorded=manager.status.next_deadlines)
        made = msgspec.structs.replace(
            made, taints=found.taints, deletions=found.deletions, kept=(*made.kept, *found.kept)
        )
    if cluster.audit is not None:
        made = msgspec.structs.replace(
            made, admissions=cluster.audit.admissions, kept=(*made.kept, *cluster.audit.kept)
        )
    return msgspec.structs.replace(made, kept=(*made.kept, *_missing_namespaces(cluster)))


def _missing_namespaces(cluster: ClusterInput) -> list[Kept]:
    """Return an entry for each namespace that a DeschedulerPolicy names and that does not exist."""
    from trimtab.descheduling.planning.missing_namespaces import missing_namespaces

    return [
        Kept(
            kind="Namespace",
            namespace="",
            name=unknown.name,
            strategy="",
            reason=reasons.NAMESPACE_NOT_FOUND,
            message=unknown.message,
            policy=policy.name,
        )
        for policy in cluster.policies.descheduler
        for unknown in missing_namespaces(policy.spec, cluster.snapshot)
    ]


def _apply_pressure(snapshot: Snapshot, found: PressurePlan | None, *, now: float) -> None:
    """Apply a plan of node pressure to a fork of the snapshot, so that other planners take it into account."""
    if found is not None:
        from trimtab.pressure.preview import apply_plan

        apply_plan(snapshot, found, now=now)


def _plan_nodes_and_pods(cluster: ClusterInput, move: Callable[[], tuple[Plan, M]]) -> tuple[Plan, M | None]:
    """Plan nodes if there is an autoscaler, then call ``move`` to plan pods.

    Return the joint plan and the second result of ``move``, or ``None`` if pods were not planned.
    """
    from trimtab.autoscaling.cluster_state import inputs_from_status
    from trimtab.autoscaling.planner import plan as scale
    from trimtab.autoscaling.planner import reserve

    if not cluster.policies.autoscaled:
        return move()
    snapshot, inputs = cluster.snapshot, cluster.policies.autoscaling_inputs(now=cluster.now)
    scaled, promises = scale(snapshot, inputs_from_status(snapshot, inputs))
    if not cluster.policies.descheduler:
        return scaled, None
    with snapshot.fork():
        reserve(snapshot, promises)
        moved, more = move()
    kept = (*scaled.kept, *moved.kept)
    return Plan(now=cluster.now, actions=moved.actions, kept=kept, scaling=scaled.scaling), more
