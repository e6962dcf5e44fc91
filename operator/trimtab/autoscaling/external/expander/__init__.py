"""Servers of cluster-autoscaler's expander API, which choose among groups."""

from trimtab.autoscaling.external.expander.advisor import Advisor, advisor

__all__ = ["Advisor", "advisor"]
