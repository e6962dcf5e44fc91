"""Why pods stay pending: what each group says, and what of that is the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Kept
from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.scale_up.limits import Cut
from trimtab.autoscaling.scale_up.told import kept, named
from trimtab.kube.objects import Pod
from trimtab.placement.judgement import Judgement


class World(Struct, frozen=True):
    """What there is to say about groups, whatever the pod.

    Attributes:
        groups: all of them, in the order of their ids.
        slots: of a new node of each group whose template is known.
        cuts: what keeps groups from growing that could, by the groups' ids.
        untold: why a template is not known, by the groups' ids.
    """

    groups: Sequence[NodeGroup]
    slots: Mapping[str, int]
    cuts: Mapping[str, Cut]
    untold: Mapping[str, str]


def explain(pods: Sequence[Pod], judgement: Judgement, world: World) -> list[Kept]:
    """One entry for each pod of a class for which no node is added.

    Args:
        pods: those of the class that are left.
        judgement: of the class' first pod, on a picture with a new node of each group.
        world: the groups.
    """
    reason, message = _why(judgement, world)
    return [kept(pod, reason, message) for pod in pods]


def _why(judgement: Judgement, world: World) -> tuple[str, str]:
    if not world.groups:
        return (
            reasons.NO_NODE_GROUPS,
            "there is no node group: no MachineAutoscaler has a target, and no set has both sizes",
        )
    if judgement.refusal is not None:
        return reasons.NO_GROUP_FITS, f"no node would take the pod: {judgement.refusal}"
    texts = {slot: found for found, slots in judgement.failures for slot in slots.tolist()}
    held: list[tuple[NodeGroup, Cut]] = []
    failing: dict[str, list[str]] = {}
    for group in world.groups:
        slot = world.slots.get(group.id)
        if slot is None:
            failing.setdefault("what a node would be like is not known", []).append(group.key)
        elif slot in texts:
            for text in texts[slot]:
                failing.setdefault(text, []).append(group.key)
        else:
            held.append((group, world.cuts.get(group.id, _BLOCKED)))
    parts = [f"{len(keys)} {text} ({named(keys)})" for text, keys in failing.items()]
    sentence = ", ".join(sorted(parts))
    number = len(world.groups)
    if not held:
        unknown = [group for group in world.groups if group.id not in world.slots]
        reason = reasons.NO_TEMPLATE if len(unknown) == number else reasons.NO_GROUP_FITS
        return reason, f"0/{number} node groups would take the pod: {sentence}."
    told = named([f"{group.key}: {cut.message}" for group, cut in held])
    others = f" Others would not: {sentence}." if sentence else ""
    return held[0][1].reason, f"{len(held)}/{number} node groups would take the pod, but cannot grow: {told}.{others}"


_BLOCKED = Cut(reasons.NO_GROUP_FITS, "its next node would, but not once the other new nodes and their pods are there")
