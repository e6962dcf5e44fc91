"""Taint and Untaint: the actions that put the node lifecycle's taints on nodes and take them off."""

from __future__ import annotations

from msgspec import Struct

from trimtab.api.pod_deletion import PlannedTaint


class TaintNode(Struct, frozen=True, gc=False, tag_field="action", tag="Taint"):
    """Put this taint on a node, now; it is not there yet, with whatever value.

    ``reason`` is one of :mod:`trimtab.api.reasons`; ``message`` has the conditions and rates compared.
    """

    node: str
    taint: PlannedTaint
    reason: str
    message: str


class UntaintNode(Struct, frozen=True, gc=False, tag_field="action", tag="Untaint"):
    """Take the taint of this key and effect off a node, now.

    It is an action of its own, so that nobody who counts or reads ``Taint`` takes it for the opposite of what it is.
    """

    node: str
    taint: PlannedTaint
    reason: str
    message: str


NodeTainting = TaintNode | UntaintNode
"""What is done to the taints of nodes."""
