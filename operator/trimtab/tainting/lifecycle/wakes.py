"""Which changes are a reason to look at the nodes. Pure."""

from __future__ import annotations

from trimtab.kube.objects import Node


def matters(old: Node | None, new: Node | None) -> bool:
    """Whether the plan may be another one after a node's change; a mere heartbeat or a new image is none.

    Args:
        old: before; ``None`` for one that came.
        new: after; ``None`` for one that went.
    """
    if old is None or new is None:
        return True
    return (
        old.uid != new.uid
        or old.taints != new.taints
        or old.unschedulable != new.unschedulable
        or old.labels != new.labels
        or old.conditions != new.conditions
    )


def failed(old: Node | None, new: Node | None) -> bool:
    """Whether a node was ready and now is not."""
    return old is not None and new is not None and old.uid == new.uid and old.ready and not new.ready
