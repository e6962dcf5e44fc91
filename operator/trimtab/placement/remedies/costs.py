"""What a change costs: whom it disturbs, how long it takes, whether it can be taken back.

The numbers are an order, not an amount of money. In words, from cheap to dear:

1. *Waiting* for pods that are leaving anyway: nobody does anything.
2. *A switch somebody left on*: a cordon, a scheduling gate. One command, taken back by one, no pod notices. Somebody
   meant it, though: the answer may be "not yet".
3. *The pod's own wishes*, which are its owner's to change and touch no other pod: first what only permits (a
   toleration), then what asks for a little less (requests), then what gives up something that was wanted (a selector, a
   spread, the neighbours, a port).
4. *What a node says of itself*: a taint or a label of it decides on other pods too, now and later. A label that is
   missing is dearer than a toleration, one that is there with another value much dearer, for it states a fact.
5. *Other pods*: moving one that fits elsewhere interrupts it; evicting one that fits nowhere else leaves somebody
   without it, so a new node comes first. A pod of higher priority than the one that wants its room comes last of all.
6. *Hardware*: a node that is ill has to be mended, a further one costs money and minutes, a larger one than any that
   is there needs a decision.

Several changes on one node cost their sum, so the cheapest plan is not always the one with the fewest changes.
"""

from __future__ import annotations

from typing import Final

WAIT: Final = 0.5
"""Pods that are being deleted already go by themselves."""

SWITCH: Final = 1.0
"""Uncordon a node, remove a scheduling gate."""

TOLERATE: Final = 2.0
"""Add a toleration to the pod."""

REQUEST: Final = 3.0
"""Lower the pod's requests: this, and :data:`REQUEST_SHARE` for giving up all of them."""

REQUEST_SHARE: Final = 10.0
"""Times the share of the request that is given up: a tenth is 1."""

LARGEST_CUT: Final = 0.5
"""The share of a request beyond which a smaller one would be another program."""

LABEL: Final = 3.0
"""Add a label that a node lacks."""

UNTAINT: Final = 3.5
"""Remove a taint from a node."""

WISH: Final = 4.0
"""Change the pod's node selector, or the skew it allows."""

NEIGHBOURS: Final = 5.0
"""Make the pod's wish about other pods, or its spread, a preference; take another host port."""

RELABEL: Final = 6.0
"""Change or remove a label that a node has."""

MOVE: Final = 6.0
"""Move pods that fit elsewhere: this, and :data:`MOVE_EACH` for each."""

MOVE_EACH: Final = 1.0

CLAIM: Final = 5.0
"""Make or bind a volume claim."""

RECOVER: Final = 9.0
"""A node must become healthy, or its kubelet newer."""

ADD_NODE: Final = 10.0
"""A further node like one that is there."""

EVICT_EACH: Final = 8.0
"""A pod that has nowhere to go, in place of :data:`MOVE_EACH`."""

OUTRANKED: Final = 20.0
"""On top, for a pod of higher priority."""

LARGER_NODE: Final = 30.0
"""A node larger than any that is there."""

EACH_FURTHER: Final = 0.5
"""For each further label, taint or term in one change."""
