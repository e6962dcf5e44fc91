"""Which pods a new node of each group would take, asked of all groups at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_up.classes import PodClass
from trimtab.autoscaling.scale_up.option import Candidate
from trimtab.autoscaling.scale_up.standing_in import probes
from trimtab.autoscaling.template import NodeTemplate
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.placer import Placer


def ask_groups(
    snapshot: Snapshot,
    placer: Placer,
    templates: Mapping[str, NodeTemplate],
    *,
    groups: Sequence[NodeGroup],
    found: Sequence[PodClass],
) -> tuple[list[Candidate], dict[int, frozenset[str]]]:
    """What each group could add for pods that wait.

    Args:
        snapshot: the cluster; new nodes are in it while they are asked about.
        placer: asks the scheduler's filters.
        templates: what a new node of a group would be, by the group's id.
        groups: that have a template.
        found: classes of pods.

    Returns:
        The groups with what is free on a new node of each, and which of them would take a pod of each
        class, by its number.
    """
    for each in found:
        snapshot.row(each.first.spec)  # new resources widen rows: before any row is read
    nodes = snapshot.nodes
    with probes(snapshot, (templates[group.id] for group in groups)) as slots:
        fits = {}
        for each in found:
            mask = placer.feasible(each.first) if each.counted else placer.eligible(each.first)
            fits[each.number] = frozenset(id_ for id_, slot in slots.items() if mask[slot])
        free = {id_: nodes.allocatable[slot] - nodes.requested[slot] for id_, slot in slots.items()}
    return [Candidate(group, templates[group.id], free[group.id]) for group in groups], fits
