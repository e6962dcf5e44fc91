"""Our own plan for the same cluster under the same policy, read as `trimtab plan --policy` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.differential.server import Manifest
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.plan import Evict, Kept, Plan
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.imports.v1alpha2 import import_policy
from trimtab.descheduling.planner import plan


@dataclass(frozen=True)
class Ours:
    """What we would do.

    Attributes:
        snapshot: the cluster as it is.
        now: the moment that the plan was made for.
        policies: ours, as the file comes to.
        plan: the plan.
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


def ours(snapshot: Snapshot, now: float, policy: Manifest) -> Ours:
    """Plan under a v1alpha2 policy."""
    policies = import_policy(policy).policies
    return Ours(snapshot, now, policies, plan(snapshot, policies, now=now))
