"""All classes of differences, in the order in which they are tried: the first that proves itself names a difference."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.classes.duplicates import DUPLICATES
from tests.descheduler_differential.classes.places import FIRST, LAST
from tests.descheduler_differential.classes.protections import PROTECTIONS
from tests.descheduler_differential.classes.spread import SPREAD
from tests.descheduler_differential.classes.strategies import STRATEGIES
from tests.descheduler_differential.classes.utilization import UTILIZATION
from tests.descheduler_differential.facts import Case, Difference

CLASSES: Final = (*PROTECTIONS, *FIRST, *STRATEGIES, *DUPLICATES, *UTILIZATION, *SPREAD, *LAST)

UNSEEN: Final = {
    "Memory": "a first plan has nothing to remember",
    "OneMoveAPod": "what the simulation evicts is gone for the strategies after it, too, a moment later",
    "UnknownIsProtected": "a claim that is not found protects on both sides, and an unknown class ends their start-up",
    "PodsWithoutPDBWorks": "their simulation protects the right pods",
    "ZeroLimit": "we refuse such a policy",
    "OneOfAnOwner": "about acting",
    "TakenOver": "about acting",
    "BudgetsOfMachines": "about machines, whose pods are not drawn",
    "SingleReplicas": "not asked for by a policy of theirs",
    "RetriedRefusals": "about acting",
    "UtilizationOrder": "which node comes first shows only where the room ends, as PooledRoom",
    "ThresholdKeys": "they refuse such a policy",
}
"""Names of the table under which no difference can be counted here, and why."""


def name_of(case: Case, difference: Difference) -> str | None:
    """The class of a difference, ``None`` where there is none: then somebody is wrong."""
    for named in CLASSES:
        if named.explains(case, difference):
            return named.name
    return None
