"""The costs of the kinds of changes. They reflect how disruptive and slow a change is, and whether it can be undone.

The numbers only define an order; they are not amounts of money. From cheap to expensive:

1. *Waiting* for pods that are terminating anyway.
2. *Toggles*: a cordon or a scheduling gate. One command removes it, another one restores it, and no pod is affected.
   However, it was set on purpose.
3. *Permitting more nodes*, which the owner of the pod can do without affecting other pods (a toleration), and *labels
   and taints of a node*, which also affect other pods, now and later. Adding a label is more expensive than adding a
   toleration. Changing a label is much more expensive, because labels describe properties of the node.
4. *Giving up a constraint* of the pod (a selector, spread, affinity, a port).
5. *Moving other pods* that fit elsewhere, which interrupts them.
6. *Hardware*: an unhealthy node must be repaired, and an additional node costs money and takes minutes to start.
7. *Lowering requests*: the pod gets less than its owner considers necessary, and may be throttled or killed.
8. *Evicting other pods* that fit on no other node, which makes them unavailable. Pods of higher priority come next.
9. *A node larger than any existing one*, which an administrator must decide on.
10. *Evicting protected pods*: the API server would refuse the eviction because of a PodDisruptionBudget.

The cost of several changes on one node is the sum of their costs, so the cheapest plan is not always the one with the
fewest changes.
"""

from __future__ import annotations

from typing import Final

WAIT: Final = 0.5
"""Wait for terminating pods."""

TOGGLE: Final = 1.0
"""Uncordon a node, or remove a scheduling gate."""

TOLERATE: Final = 2.0
"""Add a toleration to the pod."""

REQUEST: Final = 11.0
"""Lower the pod's requests.

The cost is this value plus :data:`REQUEST_SHARE` times the fraction by which they are lowered.
"""

REQUEST_SHARE: Final = 10.0
"""Cost of removing a request completely. Lowering it by a tenth costs a tenth of this."""

LARGEST_CUT: Final = 0.5
"""Maximum fraction by which a request is lowered."""

LABEL: Final = 3.0
"""Add a label to a node."""

UNTAINT: Final = 3.5
"""Remove a taint from a node."""

CHANGE_SELECTOR: Final = 4.0
"""Change the pod's node selector, or its maxSkew."""

RELAX_CONSTRAINT: Final = 5.0
"""Turn the pod's required affinity or spread constraint into a preference, or use another host port."""

RELABEL: Final = 6.0
"""Change or remove a label of a node."""

MOVE: Final = 6.0
"""Move pods that fit on other nodes. The cost is this value plus :data:`MOVE_EACH` for each pod."""

MOVE_EACH: Final = 1.0

BIND_CLAIM: Final = 5.0
"""Create or bind a PersistentVolumeClaim."""

RECOVER: Final = 9.0
"""Repair a node, or upgrade its kubelet."""

ADD_NODE: Final = 10.0
"""Add a node with the shape of an existing one."""

EVICT_EACH: Final = 12.0
"""Evict a pod that fits on no other node. It replaces :data:`MOVE_EACH` for this pod."""

HIGHER_PRIORITY: Final = 20.0
"""Additional cost of each evicted pod of higher priority."""

PROTECTED: Final = 40.0
"""Additional cost of each evicted pod whose eviction would be refused now."""

LARGER_NODE: Final = 30.0
"""Add a node larger than any existing one."""

EACH_ADDITIONAL: Final = 0.5
"""Additional cost of each further label, taint or term in one change."""
