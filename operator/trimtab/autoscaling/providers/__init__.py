"""Providers change node groups: they raise and lower target sizes, and delete chosen machines."""

from trimtab.autoscaling.providers.dialects import (
    DIALECTS,
    annotate_group,
    api_group_of,
    failed_machines_tie,
    providers,
)
from trimtab.autoscaling.providers.outcome import (
    MachineRemoval,
    MarkedMachines,
    ScaleFailure,
    ScaleResult,
    VerifiedRemoval,
    verify_removal,
)
from trimtab.autoscaling.providers.provider import MARK_DELAY, Dialect, Provider

__all__ = [
    "DIALECTS",
    "MARK_DELAY",
    "Dialect",
    "MachineRemoval",
    "MarkedMachines",
    "Provider",
    "ScaleFailure",
    "ScaleResult",
    "VerifiedRemoval",
    "annotate_group",
    "api_group_of",
    "failed_machines_tie",
    "providers",
    "verify_removal",
]
