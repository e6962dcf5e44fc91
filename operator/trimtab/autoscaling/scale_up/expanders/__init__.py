"""Expanders: how to choose among groups that could take the pods. One a file; :mod:`.registry` has them all."""

from trimtab.autoscaling.scale_up.expanders.expander import Context
from trimtab.autoscaling.scale_up.expanders.registry import choose

__all__ = ["Context", "choose"]
