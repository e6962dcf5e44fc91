"""What events are about: pods by ``namespace/name``, nodes, and the objects of groups."""

from __future__ import annotations

from trimtab.autoscaling.groups import NodeGroup
from trimtab.kube.reference import ObjectReference
from trimtab.kube.resources import NODES, PODS


def pod_reference(key: str, uid: str) -> ObjectReference:
    """A pod by ``namespace/name``."""
    namespace, _, name = key.partition("/")
    return ObjectReference.to(PODS, name, namespace=namespace, uid=uid)


def node_reference(name: str, uid: str) -> ObjectReference:
    """A node."""
    return ObjectReference.to(NODES, name, uid=uid)


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
