"""What became of evictions, and whom to leave alone for it. Pure: values in, values out.

The upstream descheduler is stateless by design (KEP-753), and so evicts a pod that comes back to its node in every
cycle for ever. Here each eviction is watched until its replacement is found, and what did not help puts owner and
strategy on a cool-down that doubles, and ends in giving up. The values are those of the policy's status
(:mod:`trimtab.api.eviction_memory`): they outlive the process, and are bounded (:mod:`~.bounds`).

Two findings are told apart from a mere "it moved": the replacement came back to the same node or finds none
(:mod:`~.assess`); or it came to another node, from which the same strategy would evict it again
(:mod:`~.second_thoughts`).
"""
