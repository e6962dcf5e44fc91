"""The strategies in the order in which they run, whatever the order of a policy's text.

Rules that pods state themselves come first, the even spread after them, and the balance of nodes last: what is moved
because it must be also changes how many pods of an owner are where, and both change how full nodes are, so that the
last one judges what the others leave behind. The other way round the balance would be upset as soon as it was found.
A strategy also respects what those before it have settled (:meth:`Strategy.unwelcome`); those after it may not.
"""

from __future__ import annotations

from typing import Final

from trimtab.descheduling.strategies.inter_pod_anti_affinity import RemovePodsViolatingInterPodAntiAffinity
from trimtab.descheduling.strategies.low_node_utilization import LowNodeUtilization
from trimtab.descheduling.strategies.node_affinity import RemovePodsViolatingNodeAffinity
from trimtab.descheduling.strategies.remove_duplicates import RemoveDuplicates
from trimtab.descheduling.strategies.strategy import AnyStrategy

IN_ORDER: Final[tuple[type[AnyStrategy], ...]] = (
    RemovePodsViolatingNodeAffinity,
    RemovePodsViolatingInterPodAntiAffinity,
    RemoveDuplicates,
    LowNodeUtilization,
)
