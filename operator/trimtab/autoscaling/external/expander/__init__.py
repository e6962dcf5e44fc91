"""Client for servers of cluster-autoscaler's expander API, which choose among node groups."""

from trimtab.autoscaling.external.expander.advisor import NAME, Advisor, advisor

__all__ = ["NAME", "Advisor", "advisor"]
