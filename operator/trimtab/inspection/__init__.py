"""Answers questions about a cluster: why objects are as they are, what would be done, and what would happen if.

Everything here is pure except :mod:`~trimtab.inspection.live`: :class:`~trimtab.inspection.cluster.ClusterInput` ->
document. The command line and the operator's inspection API collect the input, each in its own way, and return the same
documents.
"""
