"""Builds and applies JSON patches (RFC 6902) of a node's taints and annotations, with optimistic concurrency.

    def change(fields: NodeFields) -> list[Operation]:
        return [expect_value("/metadata/uid", fields.uid), *append_taints(fields, {"key": "a", "effect": "NoSchedule"})]

    await patch_node(api, node.name, node.uid, change, fields=NodeFields.from_cache(node), timeout=10.0)

A patch addresses list elements by index and tests that each element is still the expected one. Concurrent changes to
other taints and annotations are preserved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict, Invalid, NotFound
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES

Operation = Mapping[str, Any]
"""An operation of a JSON patch (RFC 6902)."""


class NodeFields(Struct, frozen=True):
    """The fields of a node that patches depend on.

    Attributes:
        uid: UID of the node.
        taints: ``spec.taints`` of the node.
        unschedulable: whether the node is cordoned.
        annotations: the annotations of the node. A node from the cache has only those that the cache stores.
        annotated: whether the node has any annotation, including those that the cache does not store.
    """

    uid: str
    taints: tuple[Mapping[str, Any], ...]
    unschedulable: bool
    annotations: Mapping[str, str]
    annotated: bool

    @classmethod
    def from_cache(cls, node: Node) -> NodeFields:
        """Return the fields of a node from the cache.

        The node is assumed to have annotations. If it has none, the API server rejects the patch.
        """
        taints = tuple({"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints)
        return cls(node.uid, taints, node.unschedulable, node.annotations, annotated=True)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> NodeFields:
        """Return the fields of a node that the API server returned."""
        metadata, spec = manifest["metadata"], manifest.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        return cls(
            uid=metadata.get("uid", ""),
            taints=tuple(spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            annotations=annotations,
            annotated=bool(annotations),
        )


NodeChange = Callable[[NodeFields], Sequence[Operation]]
"""A function that builds the patch for a node. The patch is empty if there is nothing to change."""


def set_annotations(fields: NodeFields, annotations: Mapping[str, str]) -> list[Operation]:
    """Return the operations that set annotations on a node, even if it has no annotations yet."""
    if not fields.annotated:
        return [expect_value("/metadata/annotations", None), add_value("/metadata/annotations", dict(annotations))]
    return [add_value(_annotation_path(key), value) for key, value in annotations.items()]


def remove_annotation(fields: NodeFields, key: str) -> list[Operation]:
    """Return the operations that remove an annotation if its value is still the one in ``fields``."""
    path = _annotation_path(key)
    return [expect_value(path, fields.annotations[key]), {"op": "remove", "path": path}]


def append_taints(fields: NodeFields, *taints: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that append taints to a node, even if it has no taints yet."""
    if taints and not fields.taints:
        return [expect_value("/spec/taints", None), add_value("/spec/taints", list(taints))]
    return [add_value("/spec/taints/-", taint) for taint in taints]


def remove_taints(fields: NodeFields, *keys: str) -> list[Operation]:
    """Return the operations that remove the first taint with each key, if it is still at the same index.

    The last one is removed first, so that no removal shifts the index of another one.
    """
    places = {taint.get("key"): place for place, taint in reversed([*enumerate(fields.taints)])}
    operations: list[Operation] = []
    for place in sorted((places[key] for key in keys if key in places), reverse=True):
        taint, path = fields.taints[place], f"/spec/taints/{place}"
        operations.append(expect_value(f"{path}/key", taint["key"]))
        if taint.get("value"):
            operations.append(expect_value(f"{path}/value", taint["value"]))
        operations.append({"op": "remove", "path": path})
    return operations


def _annotation_path(key: str) -> str:
    return f"/metadata/annotations/{key.replace('~', '~0').replace('/', '~1')}"


def expect_value(path: str, value: Any) -> Operation:
    """Return the operation that lets the API server reject the patch unless the field has this value."""
    return {"op": "test", "path": path, "value": value}


def add_value(path: str, value: Any) -> Operation:
    """Return the operation that sets a field, or inserts an element into a list."""
    return {"op": "add", "path": path, "value": value}


MAX_TRIES: Final = 4
"""The maximum number of attempts to apply a patch while other clients keep changing the node."""


async def patch_node(
    api: Api, node: str, uid: str, change: NodeChange, *, fields: NodeFields | None = None, timeout: float
) -> bool:
    """Patch a node without overwriting concurrent changes by other clients.

    Args:
        api: the API server.
        node: name of the node.
        uid: UID of the node; empty to accept any node with that name.
        change: builds the patch.
        fields: the state of the node in the cache; ``None`` to read the node from the API server first.
        timeout: the timeout of each request in seconds.

    Returns:
        True if the node exists. False if it was deleted, or replaced by a node with the same name.

    Raises:
        ApiError: the API server rejects the patch, or every attempt failed because another client had changed the node.
        Unreachable: no response was received, and the patch may have been applied.
    """
    for left in reversed(range(MAX_TRIES)):
        if fields is None:
            try:
                fields = NodeFields.from_manifest(await verbs.get(api, NODES, node, timeout=timeout))
            except NotFound:
                return False
            if uid and fields.uid != uid:
                return False
        operations = change(fields)
        if not operations:
            return True
        try:
            await verbs.json_patch(api, NODES, node, operations, timeout=timeout)
        except NotFound:
            return False
        except (Conflict, Invalid):
            if not left:
                raise
            fields = None
            continue
        return True
    raise AssertionError("the last attempt returns or raises")
