"""Planning: computes a plan from a snapshot of the cluster, policies and a time, without I/O or clocks.

``planner`` runs the strategies on a shared ``plan_state``, which each strategy accesses through a ``context``.
``recheck`` validates a planned move again immediately before its eviction. The other modules contain indexes and
calculations that strategies use.
"""
