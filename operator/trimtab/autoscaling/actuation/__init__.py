"""Carries out scale-down: taints, reviews, drains and removes nodes, or rolls them back if they must be kept."""

from trimtab.autoscaling.actuation.removal import (
    Phase,
    RemovalObserver,
    RemovalOutcome,
    RemovalResult,
    RemovalSettings,
    RemovalState,
)
from trimtab.autoscaling.actuation.removals import Removals

__all__ = ["Phase", "RemovalObserver", "RemovalOutcome", "RemovalResult", "RemovalSettings", "RemovalState", "Removals"]
