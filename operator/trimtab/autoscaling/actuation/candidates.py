"""Since when nodes are unneeded, written on the nodes, so that their time goes on in a later process.

Beside trimtab's annotation an unneeded node gets upstream's soft taint, with the same time: the scheduler then puts
pods elsewhere where it can, and the node stays unneeded.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from msgspec import Struct

from trimtab.api.plan import rfc3339
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.actuation.signs import (
    Change,
    Operation,
    Seen,
    annotating,
    signs_of,
    tainting,
    unannotating,
    untainting,
)
from trimtab.autoscaling.actuation.writing import write
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE
from trimtab.kube.api import Api, ApiError, Unreachable
from trimtab.kube.objects import Node
from trimtab.kube.rules.taints import DELETION_CANDIDATE, PREFER_NO_SCHEDULE

log = logging.getLogger(__name__)


class Mark(Struct, frozen=True):
    """What is to be written to a node.

    Attributes:
        node: the node.
        since: since when it is unneeded, in seconds since the epoch; ``None`` where it is needed.
        soft_taint: whether it is to have the soft taint.
    """

    node: Node
    since: float | None
    soft_taint: bool


def marks(
    nodes: Iterable[Node],
    unneeded: Mapping[str, float],
    going: Collection[str],
    *,
    soft_taints: bool,
    most: int,
    begun_by: float = math.inf,
) -> list[Mark]:
    """What is to be written, those first whose record is to go, and then those that have been unneeded longest.

    Many nodes are unneeded for moments only: a new one, before its pods are bound. Two requests for each would be most
    of what adding it costs, so these stand in the status alone at first.

    Args:
        nodes: of the cluster.
        unneeded: since when nodes are, by name, in seconds since the epoch.
        going: names of nodes that are being removed: these are left alone.
        soft_taints: whether unneeded nodes are to have the soft taint.
        most: how many may be written.
        begun_by: nodes that say nothing yet, and are unneeded since later than this, are left for another pass; in
            seconds since the epoch.
    """
    stale: list[Mark] = []
    fresh: list[Mark] = []
    for node in nodes:
        since = unneeded.get(node.name)
        if since is None and not node.annotations and not node.taints:
            continue
        if node.name in going or node.deleted is not None:
            continue
        signs = signs_of(node)
        if signs.ours or (signs.foreign and (since is not None or UNNEEDED_SINCE not in node.annotations)):
            continue  # of a node that somebody else removes only our record is taken away
        if since is not None and since > begun_by and not _says_something(node):
            continue
        mark = Mark(node, since, soft_taints and since is not None)
        if _stands(mark):
            continue
        (stale if since is None else fresh).append(mark)
    stale.sort(key=lambda mark: mark.node.name)
    fresh.sort(key=lambda mark: (mark.since or 0.0, mark.node.name))
    return [*stale, *fresh][:most]


def _says_something(node: Node) -> bool:
    return UNNEEDED_SINCE in node.annotations or any(taint.key == DELETION_CANDIDATE for taint in node.taints)


def _stands(mark: Mark) -> bool:
    """Whether the node says it already; times are told to the second."""
    annotation = mark.node.annotations.get(UNNEEDED_SINCE)
    taints = [taint.value for taint in mark.node.taints if taint.key == DELETION_CANDIDATE]
    if mark.since is None:
        return annotation is None and not taints
    return _same(annotation, mark.since) and taints == ([str(int(mark.since))] if mark.soft_taint else [])


def _same(annotation: str | None, since: float) -> bool:
    try:
        return annotation is not None and int(datetime.fromisoformat(annotation).timestamp()) == int(since)
    except ValueError:
        return False


def marking(mark: Mark) -> Change:
    """The patch of one node."""

    def change(seen: Seen) -> list[Operation]:
        operations: list[Operation] = []
        value = "" if mark.since is None else str(int(mark.since))
        taint = next((each for each in seen.taints if each.get("key") == DELETION_CANDIDATE), None)
        keep = mark.soft_taint and taint is not None and taint.get("value") == value
        left = seen.taints
        if taint is not None and not keep:
            operations += untainting(seen, DELETION_CANDIDATE)
            left = tuple(each for each in seen.taints if each is not taint)
        if mark.soft_taint and not keep:
            made = {"key": DELETION_CANDIDATE, "value": value, "effect": PREFER_NO_SCHEDULE}
            if left or not seen.taints:
                operations += tainting(seen, made)
            else:  # the list is there and empty by then
                operations.append({"op": "add", "path": "/spec/taints/-", "value": made})
        if mark.since is None:
            if UNNEEDED_SINCE in seen.annotations:
                operations += unannotating(seen, UNNEEDED_SINCE)
        elif seen.annotations.get(UNNEEDED_SINCE) != rfc3339(mark.since):
            operations += annotating(seen, {UNNEEDED_SINCE: rfc3339(mark.since)})
        return [{"op": "test", "path": "/metadata/uid", "value": seen.uid}, *operations] if operations else []

    return change


async def write_marks(api: Api, found: Iterable[Mark], settings: RemovalSettings) -> None:
    """Write them side by side; what does not go well is tried again in a later pass, which finds it undone.

    Args:
        api: the API server, asked only while this process leads.
        found: what to write.
        settings: how long a request may take.
    """

    async def one(mark: Mark) -> None:
        node = mark.node
        try:
            await write(api, node.name, node.uid, marking(mark), seen=Seen.guess(node), timeout=settings.timeout)
        except (ApiError, Unreachable) as error:
            log.info("since when node %s is unneeded was not recorded: %s", node.name, error)

    await asyncio.gather(*(one(mark) for mark in found))
