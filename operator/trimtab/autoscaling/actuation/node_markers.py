"""Defines the taints and annotations of removals and unneeded nodes, and builds the patches that change them.

A *marker* is a taint, a cordon or an annotation that a removal adds to a node. A removal adds the taint, the cordon and
two annotations in one request. :data:`REMOVING` contains the value of the taint, so that a later process can determine
that trimtab added the taint. :data:`CORDONED_BY` is set only if trimtab cordoned the node. The operator never removes a
taint or cordon that an administrator or another autoscaler added.

An unneeded node gets the annotation :data:`UNNEEDED_SINCE`, and upstream's soft taint with the same time. The soft
taint makes the scheduler prefer other nodes. Together they are the *unneeded record* of the node.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation.removal import RemovalSettings
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.node_patches import (
    NodeChange,
    NodeFields,
    Operation,
    add_value,
    append_taints,
    expect_value,
    patch_node,
    remove_annotation,
    remove_taints,
    set_annotations,
)
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import DELETION_CANDIDATE, NO_SCHEDULE, PREFER_NO_SCHEDULE, TO_BE_DELETED

REMOVING: Final = "trimtab.dev/removing"
"""Node annotation with the value of the taint that trimtab added (:data:`~trimtab.kube.rules.taints.TO_BE_DELETED`)."""

CORDONED_BY: Final = "trimtab.dev/cordoned-by"
"""Node annotation that is set if trimtab cordoned the node, and absent if an administrator cordoned it."""

CORDONED_BY_US: Final = "cluster-autoscaler"

DELAY_DELETION: Final = "delay-deletion.cluster-autoscaler.kubernetes.io/"
"""Prefix of node annotations that delay the deletion of the node for a limited time."""

_ANNOTATIONS: Final = frozenset({REMOVING, CORDONED_BY, UNNEEDED_SINCE})
_TAINTS: Final = frozenset({TO_BE_DELETED, DELETION_CANDIDATE})

_SECONDS: Final = re.compile(r"[0-9]{1,11}")


class RemovalMarkers(Struct, frozen=True):
    """The markers of a removal on a node: taint, cordon and annotations.

    Attributes:
        tainted: the value of the taint; ``None`` if the node is not tainted.
        removing: the value of the annotation :data:`REMOVING`; empty if the node does not have it.
        cordoned: whether trimtab cordoned the node, according to :data:`CORDONED_BY`.
    """

    tainted: str | None = None
    removing: str = ""
    cordoned: bool = False

    @property
    def ours(self) -> bool:
        """Return whether trimtab added the taint."""
        return self.tainted is not None and self.tainted == self.removing

    @property
    def foreign(self) -> bool:
        """Return whether another program added the taint."""
        return self.tainted is not None and self.tainted != self.removing

    @property
    def any(self) -> bool:
        """Return whether the node has any of trimtab's removal annotations."""
        return bool(self.removing) or self.cordoned

    @property
    def since(self) -> float | None:
        """Return the time at which trimtab added the taint, in seconds since the epoch.

        It is ``None`` if trimtab did not add the taint, or if the time is unknown.
        """
        return float(self.removing) if self.ours and _SECONDS.fullmatch(self.removing) else None


def has_markers(node: Node) -> bool:
    """Return whether the node has a removal marker or an unneeded record, by trimtab or by another program."""
    return not node.annotations.keys().isdisjoint(_ANNOTATIONS) or any(taint.key in _TAINTS for taint in node.taints)


def removal_markers(node: Node) -> RemovalMarkers:
    """Return the removal markers on a node from the cache."""
    return _markers([(taint.key, taint.value) for taint in node.taints], node.annotations)


def markers_of(fields: NodeFields) -> RemovalMarkers:
    """Return the removal markers on a node, given the fields that a patch depends on."""
    return _markers([(each.get("key", ""), each.get("value", "")) for each in fields.taints], fields.annotations)


def taint_and_cordon(at: int, *, cordon: bool) -> NodeChange:
    """Return a function that builds the patch to taint a node, and to cordon it unless it is already cordoned.

    The patch appends the taint, so that concurrent changes to other taints are preserved. If a taint with the same key
    and effect was added in the meantime, the API server rejects the patch.

    Args:
        at: the time to store as the taint's value, in seconds since the epoch.
        cordon: whether to cordon the node.
    """
    value = str(at)

    def change(fields: NodeFields) -> list[Operation]:
        markers = markers_of(fields)
        if markers.ours and markers.removing == value:
            return []  # an earlier attempt succeeded, but its response was lost
        taint = {"key": TO_BE_DELETED, "value": value, "effect": NO_SCHEDULE}
        annotations = {REMOVING: value}
        operations: list[Operation] = [expect_value("/metadata/uid", fields.uid)]
        if cordon and not fields.unschedulable:
            operations += [expect_value("/spec/unschedulable", None), add_value("/spec/unschedulable", True)]
            annotations[CORDONED_BY] = CORDONED_BY_US
        operations += set_annotations(fields, annotations)
        operations += append_taints(fields, taint)
        return operations

    return change


def untaint_and_uncordon(fields: NodeFields) -> list[Operation]:
    """Build the patch that removes trimtab's removal markers but no taint or cordon that another program added."""
    markers = markers_of(fields)
    if not markers.any:
        return []
    operations: list[Operation] = [expect_value("/metadata/uid", fields.uid)]
    if markers.ours:
        operations += remove_taints(fields, TO_BE_DELETED)
    if markers.cordoned:
        operations += remove_annotation(fields, CORDONED_BY)
        if fields.unschedulable:
            operations += [expect_value("/spec/unschedulable", True), {"op": "remove", "path": "/spec/unschedulable"}]
    if markers.removing:
        operations += remove_annotation(fields, REMOVING)
    return operations


def _markers(taints: Sequence[tuple[str, str]], annotations: Mapping[str, str]) -> RemovalMarkers:
    return RemovalMarkers(
        tainted=next((value for key, value in taints if key == TO_BE_DELETED), None),
        removing=annotations.get(REMOVING, ""),
        cordoned=annotations.get(CORDONED_BY) == CORDONED_BY_US,
    )


log = logging.getLogger(__name__)


class UnneededRecord(Struct, frozen=True):
    """The unneeded record to write to a node: an annotation, and the soft taint if enabled.

    Attributes:
        node: the node.
        since: when the node became unneeded, in seconds since the epoch; ``None`` to remove the record because the node
            is needed again.
        soft_taint: whether to add the soft taint.
    """

    node: Node
    since: float | None
    soft_taint: bool


def records_to_write(
    nodes: Iterable[Node],
    unneeded: Mapping[str, float],
    removing: Collection[str],
    *,
    soft_taints: bool,
    limit: int,
    begun_by: float = math.inf,
) -> list[UnneededRecord]:
    """Return the unneeded records to write.

    Records to remove come first, then the records of the nodes that have been unneeded the longest. Many nodes are
    unneeded for only a few seconds, such as a new node before its pods are bound. Two extra requests for each such node
    would account for most of the cost of adding it. Therefore the time is at first written only to the status.

    Args:
        nodes: all nodes of the cluster.
        unneeded: for each unneeded node, when it became unneeded, in seconds since the epoch.
        removing: names of the nodes that are being removed. They are skipped.
        soft_taints: whether to add the soft taint to unneeded nodes.
        limit: the maximum number of records to return.
        begun_by: nodes that have no record yet are skipped if they became unneeded after this time, in seconds since
            the epoch.
    """
    stale: list[UnneededRecord] = []
    fresh: list[UnneededRecord] = []
    for node in nodes:
        since = unneeded.get(node.name)
        if since is None and not has_markers(node):
            continue
        if node.name in removing or node.deleted is not None:
            continue
        markers = removal_markers(node)
        if markers.ours or (markers.foreign and (since is not None or UNNEEDED_SINCE not in node.annotations)):
            continue  # another autoscaler removes the node, so only trimtab's record is removed
        if since is not None and since > begun_by and not has_unneeded_record(node):
            continue
        mark = UnneededRecord(node, since, soft_taints and since is not None)
        if _is_current(mark):
            continue
        (stale if since is None else fresh).append(mark)
    stale.sort(key=lambda mark: mark.node.name)
    fresh.sort(key=lambda mark: (mark.since or 0.0, mark.node.name))
    return [*stale, *fresh][:limit]


def has_unneeded_record(node: Node) -> bool:
    """Return whether the node has the annotation or the soft taint of an unneeded node."""
    return UNNEEDED_SINCE in node.annotations or any(taint.key == DELETION_CANDIDATE for taint in node.taints)


def _is_current(mark: UnneededRecord) -> bool:
    """Return whether the node already has this record. Times are compared in whole seconds."""
    annotation = mark.node.annotations.get(UNNEEDED_SINCE)
    taints = [taint.value for taint in mark.node.taints if taint.key == DELETION_CANDIDATE]
    if mark.since is None:
        return annotation is None and not taints
    return _same_second(annotation, mark.since) and taints == ([str(int(mark.since))] if mark.soft_taint else [])


def _same_second(annotation: str | None, since: float) -> bool:
    try:
        return annotation is not None and int(datetime.fromisoformat(annotation).timestamp()) == int(since)
    except ValueError:
        return False


def record_change(mark: UnneededRecord) -> NodeChange:
    """Return a function that builds the patch to write or remove an unneeded record."""

    def change(fields: NodeFields) -> list[Operation]:
        operations: list[Operation] = []
        value = "" if mark.since is None else str(int(mark.since))
        taint = next((each for each in fields.taints if each.get("key") == DELETION_CANDIDATE), None)
        keep = mark.soft_taint and taint is not None and taint.get("value") == value
        left = fields.taints
        if taint is not None and not keep:
            operations += remove_taints(fields, DELETION_CANDIDATE)
            left = tuple(each for each in fields.taints if each is not taint)
        if mark.soft_taint and not keep:
            made = {"key": DELETION_CANDIDATE, "value": value, "effect": PREFER_NO_SCHEDULE}
            if left or not fields.taints:
                operations += append_taints(fields, made)
            else:  # the removal above leaves an empty list
                operations.append(add_value("/spec/taints/-", made))
        if mark.since is None:
            if UNNEEDED_SINCE in fields.annotations:
                operations += remove_annotation(fields, UNNEEDED_SINCE)
        elif fields.annotations.get(UNNEEDED_SINCE) != rfc3339(mark.since):
            operations += set_annotations(fields, {UNNEEDED_SINCE: rfc3339(mark.since)})
        return [expect_value("/metadata/uid", fields.uid), *operations] if operations else []

    return change


async def write_unneeded_records(api: Api, found: Iterable[UnneededRecord], settings: RemovalSettings) -> None:
    """Write unneeded records concurrently. The next reconcile retries those that fail.

    Args:
        api: the API client. It checks before each request that this process is the leader.
        found: the records to write.
        settings: contains the request timeout.
    """

    async def one(mark: UnneededRecord) -> None:
        node = mark.node
        try:
            await patch_node(
                api,
                node.name,
                node.uid,
                record_change(mark),
                fields=NodeFields.from_cache(node),
                timeout=settings.timeout,
            )
        except (ApiError, Unreachable) as error:
            log.debug("Failed to update the unneeded-since annotation of node %s; retrying: %s", node.name, error)

    await asyncio.gather(*(one(mark) for mark in found))
