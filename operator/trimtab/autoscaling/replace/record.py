"""What is being replaced, as it stands in the ClusterAutoscaler's status: no process need remember it.

A replacement is written down when its new nodes are asked for. From then on each pass reads in the cluster how far it
is: as long as new nodes are missing nothing else happens; once all are ready the old ones may be drained; when these
are gone it is done. It is given up after its deadline, or when the new nodes cannot come any more; then all nodes are
ordinary ones again, and nothing else is replaced for a while, or the same would be tried again and again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import MAX_REPLACEMENTS, Replacement, ReplacingGroup
from trimtab.autoscaling.groups import Groups
from trimtab.autoscaling.template.learned import Standing, standing
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node

DRAINING: Final = 1800.0
"""Seconds that the old nodes have to be drained in, after the new ones had their time to come."""
UNSEEN: Final = 60.0
"""Seconds in which a group's object may not show yet what it was asked for."""
HOLD: Final = 3600.0
"""Seconds after a replacement was given up in which nothing else is replaced."""

ENABLED: Final = "Enabled"


class Replacing(Struct, frozen=True):
    """How far replacements are.

    Attributes:
        old: nodes that may be drained, however much of them is used: all that take their places are ready.
        new: nodes that were added for that, and stay for now.
        records: what is to stand in the status.
        waits: why no other replacement may begin, in words; empty where one may.
        given_up: what was given up just now, with the reason in its message.
    """

    old: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    records: tuple[Replacement, ...] = ()
    waits: str = ""
    given_up: tuple[Replacement, ...] = ()


NONE: Final = Replacing()


def replacing(
    records: Iterable[Replacement], snapshot: Snapshot, groups: Groups, spec: ClusterAutoscalerSpec, *, now: float
) -> Replacing:
    """How far the replacements of a status are; pure, and the same for the same picture.

    Args:
        records: of the status before the pass.
        snapshot: the cluster.
        groups: of the snapshot.
        spec: of the ClusterAutoscaler; with ``replace`` Disabled all are dropped.
        now: seconds since the epoch.
    """
    if spec.scaling_down.replace != ENABLED or not spec.scaling_down.enabled:
        return NONE
    startup = frozenset(spec.startup_taints)
    old: set[str] = set()
    new: set[str] = set()
    kept: list[Replacement] = []
    ended: list[Replacement] = []
    for record in records:
        if record.given_up is not None:
            if 0 <= now - record.given_up.timestamp() < HOLD:
                kept.append(record)
            continue
        there = [each.name for each in record.nodes if _is_there(each.name, each.uid, snapshot)]
        if not there:
            continue
        coming, ready = _new_nodes(record, snapshot, groups, startup, now=now)
        wrong = _wrong(record, groups, len(ready), now=now)
        if wrong:
            ended.append(replace(record, given_up=_time(now), message=wrong))
            continue
        new.update(coming)
        wanted = sum(each.to - each.from_ for each in record.groups)
        if len(ready) >= wanted:
            old.update(there)
            message = f"{len(there)} of {len(record.nodes)} nodes are still to go"
        else:
            message = f"{len(ready)} of {wanted} new nodes are ready"
        kept.append(replace(record, message=message))
    return Replacing(
        old=frozenset(old),
        new=frozenset(new),
        records=tuple([*kept, *ended][-MAX_REPLACEMENTS:]),
        waits=_waits([*kept, *ended]),
        given_up=tuple(ended),
    )


def with_begun(records: tuple[Replacement, ...], begun: Replacement | None) -> tuple[Replacement, ...]:
    """The records with the one that a plan begins, for the status of the pass that asks for its nodes.

    If the process ends in between there is a record without nodes, which is given up, or there are nodes without a
    record, which are ordinary ones.
    """
    return records if begun is None else (*records, begun)[-MAX_REPLACEMENTS:]


def _waits(records: Iterable[Replacement]) -> str:
    for record in records:
        if record.given_up is not None:
            return f"a replacement was given up at {record.given_up:%Y-%m-%dT%H:%M:%SZ}: {record.message}"
        return f"another replacement goes on: {record.message}"
    return ""


def _wrong(record: Replacement, groups: Groups, ready: int, *, now: float) -> str:
    """Why a replacement is given up; empty where it goes on."""
    wanted = sum(each.to - each.from_ for each in record.groups)
    if now >= record.deadline.timestamp():
        if ready < wanted:
            return f"{ready} of {wanted} new nodes are ready, and the time for it is over"
        return "the old nodes could not be drained in time"
    if ready >= wanted or now - record.since.timestamp() < UNSEEN:
        return ""
    for each in record.groups:
        group = groups.by_id.get(each.id)
        if group is None:
            return f"the group {each.id}, which was to get new nodes, is gone"
        if group.target < each.to:
            return f"{group.kind} {group.key} was asked for {each.to} nodes, and its size is {group.target} now"
    return ""


def _is_there(name: str, uid: str, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(name)
    return node is not None and (not uid or node.uid == uid)


def _new_nodes(
    record: Replacement, snapshot: Snapshot, groups: Groups, startup: frozenset[str], *, now: float
) -> tuple[list[str], list[str]]:
    """The nodes that came for it, at most as many as were asked for; and which of them are ready."""
    coming: list[str] = []
    ready: list[str] = []
    for each in record.groups:
        nodes = sorted(_since(record, each, snapshot, groups), key=lambda node: (node.created or 0.0, node.name))
        own = nodes[: max(0, each.to - each.from_)]
        coming += [node.name for node in own]
        ready += [node.name for node in own if standing(node, now=now, startup=startup) is not Standing.UNWELL]
    return coming, ready


def _since(record: Replacement, each: ReplacingGroup, snapshot: Snapshot, groups: Groups) -> list[Node]:
    """The nodes of a group that were made since it was asked for them."""
    group = groups.by_id.get(each.id)
    since = int(record.since.timestamp())
    names = () if group is None else group.nodes
    found = (snapshot.nodes.get(name) for name in names)
    return [node for node in found if node is not None and node.created is not None and node.created >= since]


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
