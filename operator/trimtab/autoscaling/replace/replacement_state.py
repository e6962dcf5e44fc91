"""Tracks the replacements in progress, which the ClusterAutoscaler's status stores across restarts.

A replacement is written to the status when its new nodes are requested. Each iteration then derives its progress from
the cluster. While new nodes are missing, no other node is replaced. Once all of them are ready, the old nodes may be
drained. When the old nodes are gone, the replacement is complete. It is abandoned after its deadline, or if the new
nodes can no longer register. Then all its nodes are treated as ordinary nodes, and no node is replaced for a while, so
that the same replacement is not retried immediately.
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
from trimtab.autoscaling.template.build import SampleQuality, sample_quality
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node

DRAIN_TIMEOUT: Final = 1800.0
"""Seconds for draining the old nodes, after the time in which the new nodes must register."""
VISIBILITY_DELAY: Final = 60.0
"""Seconds for which a group's object may still contain the old size after a request."""
GIVE_UP_BACKOFF: Final = 3600.0
"""Seconds for which no node is replaced after a replacement was abandoned."""

ENABLED: Final = "Enabled"


class ReplacementState(Struct, frozen=True):
    """The progress of replacements.

    Attributes:
        old: names of nodes that may be drained regardless of their utilization, because all nodes that replace them are
            ready.
        new: names of nodes that were added as replacements. They are kept until the old nodes are gone.
        records: the replacements to write to the status.
        waiting_reason: the reason why no other replacement may start; empty if one may start.
        given_up: the replacements that were abandoned in this iteration. Their messages contain the reason.
    """

    old: frozenset[str] = frozenset()
    new: frozenset[str] = frozenset()
    records: tuple[Replacement, ...] = ()
    waiting_reason: str = ""
    given_up: tuple[Replacement, ...] = ()


NO_REPLACEMENTS: Final = ReplacementState()


def replacement_state(
    records: Iterable[Replacement], snapshot: Snapshot, groups: Groups, spec: ClusterAutoscalerSpec, *, now: float
) -> ReplacementState:
    """Return the progress of the replacements in a status.

    Args:
        records: the replacements in the status before the iteration.
        snapshot: the cluster state.
        groups: the node groups of the snapshot.
        spec: spec of the ClusterAutoscaler. If ``replace`` is Disabled, all replacements are dropped.
        now: the current time in seconds since the epoch.
    """
    if spec.scaling_down.replace != ENABLED or not spec.scaling_down.enabled:
        return NO_REPLACEMENTS
    startup = frozenset(spec.startup_taints)
    old: set[str] = set()
    new: set[str] = set()
    kept: list[Replacement] = []
    ended: list[Replacement] = []
    for record in records:
        if record.given_up is not None:
            if 0 <= now - record.given_up.timestamp() < GIVE_UP_BACKOFF:
                kept.append(record)
            continue
        there = [each.name for each in record.nodes if _exists(each.name, each.uid, snapshot)]
        if not there:
            continue
        coming, ready = _new_nodes(record, snapshot, groups, startup, now=now)
        wrong = _give_up_reason(record, groups, len(ready), now=now)
        if wrong:
            ended.append(replace(record, given_up=_time(now), message=wrong))
            continue
        new.update(coming)
        wanted = sum(each.to - each.from_ for each in record.groups)
        if len(ready) >= wanted:
            old.update(there)
            message = f"{len(there)} of {len(record.nodes)} old nodes are still to be removed"
        else:
            message = f"{len(ready)} of {wanted} new nodes are ready"
        kept.append(replace(record, message=message))
    return ReplacementState(
        old=frozenset(old),
        new=frozenset(new),
        records=tuple([*kept, *ended][-MAX_REPLACEMENTS:]),
        waiting_reason=_waiting_reason([*kept, *ended]),
        given_up=tuple(ended),
    )


def with_new_record(records: tuple[Replacement, ...], begun: Replacement | None) -> tuple[Replacement, ...]:
    """Return the replacements for the status, including one that a plan starts.

    The status is written in the iteration that requests the new nodes. If the process ends before both are done, there
    is either a replacement without nodes, which will be abandoned, or there are nodes without a replacement, which are
    treated as ordinary nodes.
    """
    return records if begun is None else (*records, begun)[-MAX_REPLACEMENTS:]


def _waiting_reason(records: Iterable[Replacement]) -> str:
    for record in records:
        if record.given_up is not None:
            return f"a replacement was given up at {record.given_up:%Y-%m-%dT%H:%M:%SZ}: {record.message}"
        return f"another replacement is in progress: {record.message}"
    return ""


def _give_up_reason(record: Replacement, groups: Groups, ready: int, *, now: float) -> str:
    """Return the reason why a replacement must be abandoned; empty if it continues."""
    wanted = sum(each.to - each.from_ for each in record.groups)
    if now >= record.deadline.timestamp():
        if ready < wanted:
            return f"only {ready} of {wanted} new nodes became ready in time"
        return "the old nodes could not be drained in time"
    if ready >= wanted or now - record.since.timestamp() < VISIBILITY_DELAY:
        return ""
    for each in record.groups:
        group = groups.by_id.get(each.id)
        if group is None:
            return f"node group {each.id}, from which new nodes were requested, no longer exists"
        if group.target < each.to:
            return f"the target size of {group.kind} {group.key} was set to {each.to}, but is {group.target} now"
    return ""


def _exists(name: str, uid: str, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(name)
    return node is not None and (not uid or node.uid == uid)


def _new_nodes(
    record: Replacement, snapshot: Snapshot, groups: Groups, startup: frozenset[str], *, now: float
) -> tuple[list[str], list[str]]:
    """Return the nodes that registered for a replacement, and the ready ones among them.

    At most as many nodes are returned as were requested.
    """
    coming: list[str] = []
    ready: list[str] = []
    for each in record.groups:
        nodes = sorted(_nodes_since(record, each, snapshot, groups), key=lambda node: (node.created or 0.0, node.name))
        own = nodes[: max(0, each.to - each.from_)]
        coming += [node.name for node in own]
        ready += [
            node.name for node in own if sample_quality(node, now=now, startup=startup) is not SampleQuality.UNHEALTHY
        ]
    return coming, ready


def _nodes_since(record: Replacement, each: ReplacingGroup, snapshot: Snapshot, groups: Groups) -> list[Node]:
    """Return the nodes of a group that were created after the replacement requested them."""
    group = groups.by_id.get(each.id)
    since = int(record.since.timestamp())
    names = () if group is None else group.nodes
    found = (snapshot.nodes.get(name) for name in names)
    return [node for node in found if node is not None and node.created is not None and node.created >= since]


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
