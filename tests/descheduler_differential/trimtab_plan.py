"""trimtab's plan for the same cluster and the same policy, which is imported as in ``trimtab plan --policy``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.differential.api_client import Manifest
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Evict, Kept, Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.imports.v1alpha2 import import_policy
from trimtab.descheduling.planning.planner import plan_evictions


@dataclass(frozen=True)
class TrimtabPlan:
    """trimtab's plan for a policy of the descheduler.

    Attributes:
        snapshot: the unchanged cluster.
        now: the time of the plan, in seconds since the epoch.
        policies: the imported policies.
        plan: the plan.
        moves: the evictions by pod, ``namespace/name``.
        kept: the kept pods by pod and strategy.
    """

    snapshot: Snapshot
    now: float
    policies: Sequence[DeschedulerPolicy]
    plan: Plan
    moves: dict[str, Evict] = field(default_factory=dict)
    kept: dict[tuple[str, str], Kept] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.moves.update({action.key: action for action in self.plan.actions})
        for kept in self.plan.kept:
            if kept.kind == "Pod":
                self.kept.setdefault((f"{kept.namespace}/{kept.name}", kept.strategy), kept)


def plan_with_trimtab(snapshot: Snapshot, now: float, policy: Manifest) -> TrimtabPlan:
    """Import a v1alpha2 policy and plan with it."""
    policies = import_policy(policy).policies
    return TrimtabPlan(snapshot, now, policies, plan_evictions(snapshot, policies, now=now))
