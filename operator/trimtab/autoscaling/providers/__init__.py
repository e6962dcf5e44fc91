"""Acting on node groups: sizes raised, machines taken away; one file an API of machines, registered in one place."""

from trimtab.autoscaling.providers.outcome import Failure, Removal, Scaled, Verdict, verify
from trimtab.autoscaling.providers.provider import Dialect, Provider
from trimtab.autoscaling.providers.registry import DIALECTS, api_group_of, providers

__all__ = [
    "DIALECTS",
    "Dialect",
    "Failure",
    "Provider",
    "Removal",
    "Scaled",
    "Verdict",
    "api_group_of",
    "providers",
    "verify",
]
