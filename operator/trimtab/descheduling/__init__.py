"""The descheduler: evicts pods that violate a scheduling rule, or that would run better on another node.

``controller`` is the reconcile loop of one DeschedulerPolicy and ``cycle`` one iteration of it: plan, act, report.
``planning`` and ``strategies`` compute plans without I/O. ``runs`` manages DeschedulingRuns, ``memory`` tracks whether
evictions helped, ``report`` writes status, events and metrics, and ``imports`` converts policies of other deschedulers.
"""
