"""Scale-down's acting: nodes are tainted, looked at again, drained and taken away, or returned to how they were."""

from trimtab.autoscaling.actuation.removal import Phase, RemovalOutcome, RemovalState, Result, Teller
from trimtab.autoscaling.actuation.removals import Removals
from trimtab.autoscaling.actuation.settings import RemovalSettings

__all__ = ["Phase", "RemovalOutcome", "RemovalSettings", "RemovalState", "Removals", "Result", "Teller"]
