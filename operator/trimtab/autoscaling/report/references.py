"""What events about groups are about."""

from __future__ import annotations

from trimtab.autoscaling.groups import NodeGroup
from trimtab.kube.reference import ObjectReference


def group_reference(group: NodeGroup | None) -> ObjectReference | None:
    """The object that holds a group's size; ``None`` where the group is not known any more."""
    if group is None:
        return None
    return ObjectReference(
        kind=group.kind,
        name=group.name,
        namespace=group.namespace,
        uid=group.uid,
        api_version=group.api_version,
    )
