"""Tracks whether evictions helped, and prevents strategies from repeating evictions that do not.

The upstream descheduler is stateless by design (KEP-753). In every cycle it evicts a pod whose replacement always
returns to the same node. trimtab observes each eviction until its replacement is scheduled. An eviction that did not
help starts a cooldown for the owner and the strategy. The cooldown doubles with each failure and finally becomes
permanent.

The memory of a policy contains the observed evictions (``WatchedEviction``) and the setbacks (``Setback``): the
failures and the cooldown of an owner and a strategy. It is part of the policy's status
(:mod:`trimtab.api.descheduler_status`), so it survives restarts, and its size is bounded
(:func:`~.assess.trimmed_memory`).

An eviction counts as a failure if the replacement was scheduled to the same node or to none (:mod:`~.assess`), or if it
was scheduled to a node from which the same strategy would evict it again
(:func:`~.cycle_memory.count_unwanted_targets`). No function does I/O or reads a clock.
"""
