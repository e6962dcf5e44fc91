"""Servers of cluster-autoscaler's expander API, which choose among groups."""

from trimtab.autoscaling.external.expander.advisor import NAME, Advisor, advisor

__all__ = ["NAME", "Advisor", "advisor"]
