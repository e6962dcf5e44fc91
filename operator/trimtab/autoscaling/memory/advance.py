"""From one pass to the next: what has become of what was asked for. Pure: no I/O, no clock.

A group's target is the truth, and its machines and nodes say how much of it is there. What is missing is waited for:
each part of it since it was asked for, or since it was first seen to be missing where nobody here asked (somebody
edited the target, a machine was replaced, the process before this one was killed), and until its own deadline. Nothing
else tells what has come and what has not, so it does not matter who asked, or which process.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.groups import GroupMachine, Groups, NodeGroup
from trimtab.autoscaling.memory.backoff import settled
from trimtab.autoscaling.memory.findings import Finding, Findings
from trimtab.autoscaling.memory.group_memory import GroupMemory
from trimtab.autoscaling.memory.readiness import Readiness, readiness
from trimtab.autoscaling.memory.state import GroupRecord, OpenScaleUp, State
from trimtab.kube.objects import Node


def advance(
    state: State,
    groups: Groups,
    nodes: Mapping[str, Node],
    spec: ClusterAutoscalerSpec,
    now: float,
    *,
    standing: Mapping[str, Readiness] | None = None,
) -> tuple[State, Findings]:
    """What is remembered after looking at the cluster, and what was learned.

    Args:
        state: what was remembered before.
        groups: of the snapshot.
        nodes: of the snapshot, by name.
        spec: of the ClusterAutoscaler.
        now: seconds since the epoch.
        standing: what each node is, where the caller knows that already.
    """
    now = float(int(now))
    if standing is None:
        standing = readiness(nodes, groups, now=now, startup=spec.startup_taints)
    records: dict[str, GroupRecord] = {}
    open_: dict[str, tuple[OpenScaleUp, ...]] = {}
    told: list[Finding] = []
    upcoming: dict[str, int] = {}
    asked: dict[str, str] = {}
    hopeless: dict[str, tuple[GroupMachine, ...]] = {}
    shortfall: dict[str, int] = {}
    added = [state.last_scale_up]
    provision = spec.provision_seconds
    for group in groups.all:
        memory = GroupMemory(group, state, standing, now=now, seconds=provision_seconds(group, provision))
        memory.advance(nodes)
        told += memory.told
        added.append(memory.added)
        if memory.record != _NOTHING:
            records[group.id] = memory.record
        if memory.increases:
            open_[group.id] = memory.increases
        if memory.upcoming != group.upcoming:
            upcoming[group.id] = memory.upcoming
        if memory.asked:
            asked[group.id] = memory.asked
        if memory.hopeless:
            hopeless[group.id] = memory.hopeless
        if memory.shortfall:
            shortfall[group.id] = memory.shortfall
    after = replace(
        state,
        groups=_with_absent(records, state, groups, now),
        scale_ups=open_,
        targets={group.id: target for group in groups.all if (target := _target(group, open_))},
        unneeded={name: min(since, now) for name, since in state.unneeded.items()},
        last_scale_up=_latest(added, now),
        last_scale_down=_latest([state.last_scale_down], now),
        last_scale_down_failure=_latest([state.last_scale_down_failure], now),
    )
    return after, Findings(tuple(told), upcoming, asked, hopeless, shortfall)


_NOTHING = GroupRecord()


def provision_seconds(group: NodeGroup, default: float) -> float:
    """How long machines of a group may take to become nodes: its own option, else ``maxNodeProvisionTime``."""
    own = group.options.provision_seconds
    return default if own is None else own


def _target(group: NodeGroup, open_: Mapping[str, tuple[OpenScaleUp, ...]]) -> int:
    return open_[group.id][-1].to if group.id in open_ else group.target


def _with_absent(records: dict[str, GroupRecord], state: State, groups: Groups, now: float) -> dict[str, GroupRecord]:
    """With the failures of groups that are not there at present: their limits may only be mistyped for a while."""
    for id_, record in state.groups.items():
        if id_ not in groups.by_id:
            left = settled(replace(record, given_up=0, troubled=()), now)
            if left.failures:
                records[id_] = left
    return dict(sorted(records.items()))


def _latest(times: list[float | None], now: float) -> float | None:
    return max((min(time, now) for time in times if time is not None), default=None)
