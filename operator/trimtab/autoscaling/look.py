"""What a pass sees and plans, in a thread and on a snapshot that it has to itself: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus, Replacement
from trimtab.api.cluster_limits import GIB
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.plan import Plan
from trimtab.autoscaling.groups import ExternalGroups, Groups, groups
from trimtab.autoscaling.memory import (
    Findings,
    Health,
    Readiness,
    State,
    advance,
    health,
    readiness,
    remember,
    with_memory,
)
from trimtab.autoscaling.memory.findings import Finding
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.report import Totals, Waiting
from trimtab.autoscaling.scale_up import Inputs
from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.autoscaling.template import templates
from trimtab.autoscaling.template.recording import Recording, next_records
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node

CORE = 1000
"""Millicores."""


class Asked(Struct, frozen=True):
    """What a pass goes by.

    Attributes:
        spec: of the ClusterAutoscaler.
        status: of the ClusterAutoscaler.
        state: what is remembered.
        now: seconds since the epoch.
        machine_autoscalers: all that can be used.
        external: what providers outside of the cluster say.
        priorities: for the expander Priority.
        advice: for the expander Grpc.
        recording: whether to see what is to be written down of groups' nodes.
    """

    spec: ClusterAutoscalerSpec
    status: ClusterAutoscalerStatus
    state: State
    now: float
    machine_autoscalers: tuple[MachineAutoscaler, ...]
    external: ExternalGroups
    priorities: Mapping[int, tuple[str, ...]] = {}
    advice: Advice | None = None
    recording: bool = False


class Seen(Struct, frozen=True):
    """What a pass saw and planned.

    Attributes:
        groups: of the snapshot.
        nodes: of the snapshot, by name.
        standing: what each node is, by name.
        state: what is remembered, with what has become of it by now, and since when nodes are unneeded.
        findings: what is new about groups.
        health: of the cluster and its groups.
        plan: what to do, and why not more.
        waiting: pods without a node.
        totals: what the cluster has.
        records: what is to be written down of groups' nodes.
        replacements: of nodes by others, for the status, that which the plan begins included.
    """

    groups: Groups
    nodes: Mapping[str, Node]
    standing: Mapping[str, Readiness]
    state: State
    findings: Findings
    health: Health
    plan: Plan
    waiting: Mapping[str, Waiting]
    totals: Totals
    records: tuple[Recording, ...] = ()
    replacements: tuple[Replacement, ...] = ()


def look(snapshot: Snapshot, asked: Asked) -> Seen:
    """See what there is, hold it against what is remembered, and plan.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        asked: what to go by.
    """
    spec, now = asked.spec, asked.now
    found = groups(snapshot, asked.machine_autoscalers, asked.external)
    nodes = {name: snapshot.nodes.node(slot) for name, slot in snapshot.nodes.slot_of.items()}
    standing = readiness(nodes, found, now=now, startup=spec.startup_taints)
    state, findings = advance(asked.state, found, nodes, spec, now, standing=standing)
    well = health(found, standing, state, now=now)
    inputs = Inputs(
        spec,
        now,
        asked.machine_autoscalers,
        priorities=asked.priorities,
        status=remember(state, asked.status),
        external=asked.external,
        advice=asked.advice,
        groups=found,
    )
    inputs = with_memory(inputs, state, findings, well)
    made, promises = plan(snapshot, inputs)
    return Seen(
        groups=found,
        nodes=nodes,
        standing=standing,
        state=replace(state, unneeded=dict(promises.removals.unneeded)),
        findings=replace(findings, told=(*findings.told, *map(_given_up, promises.given_up))),
        health=well,
        plan=made,
        waiting=waiting(snapshot),
        totals=totals(nodes),
        records=_records(snapshot, found, state, asked) if asked.recording else (),
        replacements=promises.replacements,
    )


def _given_up(replacement: Replacement) -> Finding:
    """What is told of a replacement that was given up."""
    nodes = ", ".join(each.name for each in replacement.nodes)
    message = f"{nodes} will not be replaced: {replacement.message}"
    return Finding(replacement.groups[0].id, reasons.REPLACEMENT_GIVEN_UP, message, count=len(replacement.nodes))


def _records(snapshot: Snapshot, found: Groups, state: State, asked: Asked) -> tuple[Recording, ...]:
    """What is to be written down, so that a group without nodes still knows what they are like."""
    startup = asked.spec.startup_taints
    made = templates(snapshot, found.all, now=asked.now, startup_taints=startup)
    boots = {id_: record.boot_seconds for id_, record in state.groups.items()}
    return next_records(found.all, made, snapshot, asked.now, startup_taints=startup, boots=boots)


def waiting(snapshot: Snapshot) -> dict[str, Waiting]:
    """Pods without a node, ``namespace/name``, each with when the scheduler first said that it finds none."""
    found = {}
    for key, pod in snapshot.unbound():
        if pod.terminal:
            continue
        scheduled = next((each for each in pod.conditions if each.type == "PodScheduled"), None)
        refused = scheduled is not None and scheduled.status == "False"
        found[key] = Waiting(pod.uid, scheduled.since if scheduled is not None and refused else None)
    return found


def totals(nodes: Mapping[str, Node]) -> Totals:
    """What the nodes have together, as limits count it: those of the control plane as well, and whole units."""
    cores = memory = 0
    for node in nodes.values():
        amounts = node.capacity or node.allocatable
        cores += amounts.get("cpu", 0)
        memory += amounts.get("memory", 0)
    return Totals(len(nodes), cores // CORE, memory // GIB)
