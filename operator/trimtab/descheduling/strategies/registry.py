"""The strategies in the order in which they run, whatever the order of a policy's text.

Rules that pods state themselves come first, the even spread after them, and the balance of nodes last: what is moved
because it must be also changes how many pods of an owner are where, and both change how full nodes are, so that the
last one judges what the others leave behind. The other way round the balance would be upset as soon as it was found.
Pods are parted before others follow those that they must be with: who follows sees where these have gone.
LowNodeUtilization and HighNodeUtilization never run together in a policy; which of them is named first does not matter.
A strategy also respects what those before it have settled (:meth:`Strategy.unwelcome`); those after it may not.

Among the rules, taints come before node affinity: they forbid, and node affinity also prefers, which must not hold a
pod on a node that repels it. Topology spread comes after the rules about single pods and pairs of them, whose moves
change what it counts, and before the spread of an owner's pods, which no pod has asked for.

Pods that are to start anew, after too many restarts or at the end of their time, go between the rules and that spread.
Not before the rules: a pod that breaks one starts anew with that move as well, and a limit is not used up by pods that
are merely old. Not after the spread and the balance: they go in any case, so the others judge where they come to be.
Of the two the restarts come first, for those pods are ill. What has failed is removed last of all: it holds no place,
so that nothing depends on it, and takes nothing but a share of the limits.
"""

from __future__ import annotations

from typing import Final

from trimtab.descheduling.strategies.failed_pods import RemoveFailedPods
from trimtab.descheduling.strategies.high_node_utilization import HighNodeUtilization
from trimtab.descheduling.strategies.inter_pod_affinity import RemovePodsViolatingInterPodAffinity
from trimtab.descheduling.strategies.inter_pod_anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from trimtab.descheduling.strategies.low_node_utilization import LowNodeUtilization
from trimtab.descheduling.strategies.node_affinity import RemovePodsViolatingNodeAffinity
from trimtab.descheduling.strategies.node_taints import RemovePodsViolatingNodeTaints
from trimtab.descheduling.strategies.pod_life_time import PodLifeTime
from trimtab.descheduling.strategies.remove_duplicates import RemoveDuplicates
from trimtab.descheduling.strategies.strategy import AnyStrategy
from trimtab.descheduling.strategies.too_many_restarts import RemovePodsHavingTooManyRestarts
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
"""The names of the strategies that let a pod come back to its node."""

WHOLE_NODES: Final[frozenset[str]] = frozenset(kind.NAME for kind in IN_ORDER if kind.WHOLE_NODES)
"""The names of the strategies that empty a node wholly or not at all."""
