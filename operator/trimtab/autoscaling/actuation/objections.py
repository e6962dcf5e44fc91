"""Why removals are not to begin, or to end: held against a pass's own picture. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.node_removal import RemoveNode
from trimtab.autoscaling.actuation.removal import Phase, RemovalState
from trimtab.autoscaling.actuation.signs import signs_of
from trimtab.autoscaling.actuation.stray_marks import strays
from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.autoscaling.providers import Provider
from trimtab.autoscaling.scale_down.eligibility import DISABLED
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Node

JUST_NOW: Final = 30.0
"""Seconds in which a pass's picture may be of before what was written or ended."""


class Removing(Protocol):
    """A removal that goes on."""

    @property
    def state(self) -> RemovalState:
        """How far it is."""
        ...

    @property
    def can_end(self) -> bool:
        """Whether the node can still be kept."""
        ...


def in_vain(
    action: RemoveNode,
    groups: Groups,
    provider: Callable[[NodeGroup], Provider | None],
    *,
    going: Collection[str],
) -> Refusal | None:
    """Why a removal would come to nothing in the end, which is better known before pods are evicted for it.

    Args:
        action: of the plan.
        groups: that the plan was made on.
        provider: who acts on a group, ``None`` where nobody does.
        going: names of nodes for which a removal runs: that their machines are marked is no wonder.
    """
    group = groups.by_id.get(action.group)
    if group is None:
        return Refusal(reasons.SCALE_TARGET_GONE, f"{action.group} is no group any more")
    if provider(group) is None:
        return Refusal(reasons.SCALE_REFUSED, f"nothing here speaks {group.api_version}")
    if not action.machine:
        return Refusal(reasons.SCALE_REFUSED, f"{group.kind} {group.key} shows no machine for the node")
    ours = {machine.name for machine in group.machines if machine.node in going}
    rivals = [name for name in strays(group) if name not in ours]
    if rivals:
        return Refusal(reasons.SCALE_REFUSED, f"{', '.join(rivals)}: marked by somebody else, and might go instead")
    return None


def objections(
    removals: Mapping[str, Removing],
    nodes: Mapping[str, Node],
    groups: Groups,
    spec: ClusterAutoscalerSpec | None,
    *,
    now: float,
    halted: str = "",
) -> dict[str, Refusal]:
    """The removals that are not to go on, by node, each with the reason.

    Args:
        removals: by node.
        nodes: of the cluster, by name.
        groups: of the same picture.
        spec: of the ClusterAutoscaler; ``None`` where there is none.
        now: seconds since the epoch.
        halted: why the whole cluster is left as it is, in words; empty where it is not.
    """
    found: dict[str, Refusal] = {}
    for name, removal in removals.items():
        group = groups.by_id.get(removal.state.group)
        refusal = (
            _unwanted(spec) or _of_cluster(halted) or _of_group(group) or _of_node(nodes.get(name), removal.state, now)
        )
        if refusal is not None:
            found[name] = refusal
    return found | _below_minimum([each for name, each in removals.items() if name not in found], groups)


def _unwanted(spec: ClusterAutoscalerSpec | None) -> Refusal | None:
    if spec is None:
        return Refusal(reasons.AUTOSCALER_GONE, "there is no ClusterAutoscaler any more")
    if spec.mode != "Act":
        return Refusal(reasons.SIMULATED, f"spec.mode is {spec.mode}")
    if not spec.scaling_down.enabled:
        return Refusal(reasons.SCALE_DOWN_DISABLED, "spec.scaleDown.enabled is false")
    return None


def _of_cluster(halted: str) -> Refusal | None:
    return Refusal(reasons.CLUSTER_UNHEALTHY, halted) if halted else None


def _of_group(group: NodeGroup | None) -> Refusal | None:
    if group is None:
        return Refusal(reasons.SCALE_TARGET_GONE, "its group is none any more")
    if group.paused:
        return Refusal(reasons.GROUP_PAUSED, f"{group.kind} {group.key} is not scaled: {group.paused}")
    return None


def _of_node(node: Node | None, state: RemovalState, now: float) -> Refusal | None:
    if node is None or (state.uid and node.uid != state.uid):
        return Refusal(reasons.ALREADY_GONE, "the node is gone, or another has its name")
    if node.annotations.get(DISABLED) == "true":
        return Refusal(reasons.SCALE_DOWN_DISABLED_ANNOTATION, f"its annotation {DISABLED} says true")
    if now - state.since > JUST_NOW and not signs_of(node).ours and state.phase is not Phase.TAINTING:
        return Refusal(reasons.TAINT_TAKEN_OFF, "somebody has taken its taint off, and so means to keep it")
    return None


def _below_minimum(removals: list[Removing], groups: Groups) -> dict[str, Refusal]:
    """The removals begun last of groups that would have too few nodes with all of them; sizes may have changed."""
    by_group: dict[str, list[Removing]] = {}
    for removal in removals:
        by_group.setdefault(removal.state.group, []).append(removal)
    found = {}
    for id_, own in by_group.items():
        group = groups.by_id[id_]
        ending = [each for each in own if each.can_end]
        verifying = {each.state.node for each in own if each.state.phase is Phase.VERIFYING}
        if len(ending) + len(verifying) < len(own):
            continue  # its size is being changed at this moment
        there = sum(node not in verifying for node in group.nodes)
        short = group.minimum - (min(group.target, there) - len(ending))
        last = sorted(ending, key=lambda each: (-each.state.since, each.state.node))
        for each in last[: max(0, short)]:
            message = f"{group.kind} {group.key} must have {group.minimum} nodes at least, and has {there}"
            found[each.state.node] = Refusal(reasons.NODE_GROUP_MIN_SIZE_REACHED, message)
    return found
