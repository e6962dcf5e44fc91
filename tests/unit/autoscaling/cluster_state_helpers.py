"""Helpers that build node groups from short texts, and run iterations on them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.cluster_state import (
    AutoscalerState,
    GroupFindings,
    advance,
    state_from_status,
    status_with_state,
)
from trimtab.autoscaling.groups import GroupMachine, GroupOptions, Groups, MachineState, NodeGroup
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Node, NodeCondition

T0 = 1_795_176_000.0  # 2026-11-20T12:00:00Z
A = "MachineSet/m/a"
MINUTE = 60.0
SPEC = ClusterAutoscalerSpec()


class Observed:
    """A node group in a snapshot.

    Each word describes a machine: ``x`` has no node, ``x=ready`` has a ready node, ``x=new`` has a node that is not
    ready, ``x~ready`` has a ready node that does not confirm it, ``x!`` has failed, ``x-`` is being deleted. ``@5``
    means that it was created 5 seconds after :data:`T0`.
    """

    def __init__(self, target: int, machines: str = "", *, name: str = "a", **more: Any) -> None:
        self.nodes: dict[str, Node] = {}
        made = tuple(self._machine(word) for word in machines.split())
        known: dict[str, Any] = {"minimum": 0, "maximum": 100, "machines": made}
        self.group = NodeGroup(
            id=f"MachineSet/m/{name}",
            api_version="machine.openshift.io/v1beta1",
            kind="MachineSet",
            namespace="m",
            name=name,
            target=target,
            **{**known, **more},
        )

    def _machine(self, word: str) -> GroupMachine:
        word, _, time = word.partition("@")
        created = T0 + float(time or 0)
        unconfirmed = "~" in word
        word, _, how = word.replace("~", "=").partition("=")
        name = word.rstrip("!-")
        state = {"!": MachineState.FAILED, "-": MachineState.DELETING}.get(word[-1], MachineState.PENDING)
        node = ""
        if how:
            node = f"n-{name}"
            self.nodes[node] = _node(node, created, ready=how == "ready")
            state = MachineState.RUNNING if state is MachineState.PENDING else state
        reason = "InsufficientResources" if state is MachineState.FAILED else ""
        made = GroupMachine("m", name, state, node=node, since=created, reason=reason)
        if not unconfirmed:
            return made
        state = MachineState.UNCONFIRMED if state is MachineState.RUNNING else state
        return replace(made, state=state, node="", unconfirmed_node=node)


def _node(name: str, created: float, *, ready: bool) -> Node:
    condition = NodeCondition("Ready", "True" if ready else "False", since=created + 45)
    return Node(name, created=created + 30, conditions=(condition,), allocatable=ResourceList({"cpu": 4000}))


def options(**seconds: float) -> GroupOptions:
    return GroupOptions(**seconds)


def groups_of(*seen: Observed) -> tuple[Groups, dict[str, Node]]:
    by_id = {each.group.id: each.group for each in sorted(seen, key=lambda each: each.group.id)}
    of_node = {node: each.group.id for each in seen for node in each.group.nodes}
    nodes = {name: node for each in seen for name, node in each.nodes.items()}
    return Groups(by_id, of_node), nodes


def after(
    state: AutoscalerState, time: float, *seen: Observed, spec: ClusterAutoscalerSpec = SPEC
) -> tuple[AutoscalerState, GroupFindings]:
    """Run an iteration of a new process, that many seconds after :data:`T0`."""
    groups, nodes = groups_of(*seen)
    made, findings = advance(restarted(state), groups, nodes, spec, T0 + time)
    assert restarted(made) == made
    assert (made, findings) == advance(state, groups, nodes, spec, T0 + time)
    return made, findings


def restarted(state: AutoscalerState) -> AutoscalerState:
    """The state that a new process reads from the status."""
    status = status_with_state(state)
    return state_from_status(msgspec.json.decode(msgspec.json.encode(status), type=type(status)))


def reported(findings: GroupFindings) -> list[tuple[str, int]]:
    return [(each.reason, each.count) for each in findings.reported]
