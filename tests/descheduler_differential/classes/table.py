"""All classes of differences in the order of evaluation; the first whose proof is true applies."""

from __future__ import annotations

from typing import Final

from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.duplicates import DUPLICATES
from tests.descheduler_differential.classes.places import FIRST, LAST
from tests.descheduler_differential.classes.protections import PROTECTIONS
from tests.descheduler_differential.classes.spread import SPREAD
from tests.descheduler_differential.classes.strategies import STRATEGIES
from tests.descheduler_differential.classes.utilization import UTILIZATION

CLASSES: Final = (*PROTECTIONS, *FIRST, *STRATEGIES, *DUPLICATES, *UTILIZATION, *SPREAD, *LAST)

UNOBSERVABLE: Final = {
    "Memory": "requires evictions of an earlier cycle",
    "OneMovePerPod": "the descheduler's simulation also removes evicted pods before later strategies",
    "UnresolvedIsProtected": "both protect pods with a missing claim, and an unknown class is an error upstream",
    "PodsWithoutPDBFixed": "the descheduler's simulation protects the right pods",
    "ZeroLimit": "trimtab rejects such a policy",
    "OnePodPerOwner": "appears only while evicting",
    "BackgroundEvictions": "appears only while evicting",
    "VirtualMachineBudgets": "pods of virtual machines are not generated",
    "SingleReplicas": "policies of the descheduler have no such setting",
    "RetriedRefusals": "appears only while evicting",
    "UtilizationOrder": "the order of nodes matters only if capacity is exhausted, as PooledCapacity",
    "ThresholdKeys": "the descheduler rejects such a policy",
    "OpposingStrategies": "trimtab rejects such a policy",
}
"""Names in the table that the suite cannot observe, and why."""


def class_of(case: Case, difference: Difference) -> str | None:
    """Return the class of a difference; ``None`` if it is unexplained."""
    for named in CLASSES:
        if named.explains(case, difference):
            return named.name
    return None
