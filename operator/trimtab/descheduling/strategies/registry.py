"""Lists the strategies in the order in which they run, regardless of their order in a policy.

Strategies for pods' scheduling rules come first, then the even spread of an owner's pods, and the balance of node
utilization last. A move for a scheduling rule changes the spread of an owner's pods, and both change the utilization of
nodes, so later strategies plan with the result of the earlier ones. In the opposite order, later moves would
immediately upset the balance. Anti-affinity runs before affinity, so that affinity is evaluated with the new nodes of
the pods that anti-affinity moves. LowNodeUtilization and HighNodeUtilization never run together in a policy, so their
order does not matter. A strategy does not undo what earlier strategies have improved (:meth:`Strategy.worse_slots`).

Among the scheduling rules, taints come before node affinity, because preferred node affinity must not keep a pod on a
node whose taints it does not tolerate. Topology spread comes after the rules about single pods and pairs, because their
moves change its counts. It comes before the spread of an owner's pods, because pods request the former but not the
latter.

Strategies that restart pods, because of restarts or age, run between the scheduling rules and the spread of an owner's
pods. They run after the rules, because moving a pod that violates a rule restarts it as well, and because evictions of
old pods should not use up the limits. They run before the spread and the balance, which should consider the new nodes
of restarted pods. Restart counts come before age, because pods that restart often are failing. RemoveFailedPods runs
last: failed pods use no capacity, so no other strategy depends on it, and its deletions count against the limits.
"""

from __future__ import annotations

from typing import Final

from trimtab.descheduling.strategies.high_node_utilization import HighNodeUtilization
from trimtab.descheduling.strategies.inter_pod_affinity import RemovePodsViolatingInterPodAffinity
from trimtab.descheduling.strategies.inter_pod_anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from trimtab.descheduling.strategies.low_node_utilization import LowNodeUtilization
from trimtab.descheduling.strategies.node_affinity import RemovePodsViolatingNodeAffinity
from trimtab.descheduling.strategies.node_taints import RemovePodsViolatingNodeTaints
from trimtab.descheduling.strategies.remove_duplicates import RemoveDuplicates
from trimtab.descheduling.strategies.restart_pods import PodLifeTime, RemoveFailedPods, RemovePodsHavingTooManyRestarts
from trimtab.descheduling.strategies.strategy import AnyStrategy
from trimtab.descheduling.strategies.topology_spread import RemovePodsViolatingTopologySpreadConstraint

IN_ORDER: Final[tuple[type[AnyStrategy], ...]] = (
    RemovePodsViolatingNodeTaints,
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingInterPodAntiAffinity,
    RemovePodsViolatingInterPodAffinity,
    RemovePodsViolatingTopologySpreadConstraint,
    RemovePodsHavingTooManyRestarts,
    PodLifeTime,
    RemoveDuplicates,
    LowNodeUtilization,
    HighNodeUtilization,
    RemoveFailedPods,
)

IN_PLACE: Final[frozenset[str]] = frozenset(kind.NAME for kind in IN_ORDER if kind.IN_PLACE)
"""Names of the strategies that restart pods: the replacement may run on the same node."""

WHOLE_NODES: Final[frozenset[str]] = frozenset(kind.NAME for kind in IN_ORDER if kind.WHOLE_NODES)
"""Names of the strategies that drain nodes completely or not at all."""
