"""Computes scale-up options: which pods fit on a new node of each group, and which groups are tried first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.scale_up.pod_classes import PodClass
from trimtab.autoscaling.scale_up.upcoming_nodes import probe_nodes
from trimtab.autoscaling.template.node_template import NodeTemplate
from trimtab.cluster.resources import CPU, MEMORY, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import ResourceList
from trimtab.kube.objects import Pod, Taint
from trimtab.kube.rules.taints import PREFER_NO_SCHEDULE, tolerates
from trimtab.placement.placer import Placer


class ScaleUpCandidate(Struct, frozen=True, eq=False):
    """A node group that can be scaled up.

    Attributes:
        group: the group.
        template: the template of its nodes.
        free: int64, shape (resources,): free capacity of a new node.
    """

    group: NodeGroup
    template: NodeTemplate
    free: IntArray

    @property
    def amounts(self) -> ResourceList:
        """Return the capacity of a node. Limits and waste are computed from it."""
        return self.template.node.capacity or self.template.node.allocatable


class ScaleUpOption(Struct, frozen=True, eq=False):
    """A possible scale-up of one group.

    Attributes:
        candidate: the group with its template.
        nodes: the number of nodes to add.
        pods: the number of pods that fit on them.
        taken: int64, shape (resources,): total requests of these pods.
        similar: groups among which the nodes are balanced, including the candidate.
    """

    candidate: ScaleUpCandidate
    nodes: int
    pods: int
    taken: IntArray
    similar: tuple[ScaleUpCandidate, ...] = ()

    @property
    def group(self) -> NodeGroup:
        """Return the group to scale up."""
        return self.candidate.group

    @property
    def unused(self) -> dict[str, Fraction]:
        """Return the unrequested shares of cpu and memory of the new nodes, from 0 to 1."""
        amounts = self.candidate.amounts
        return {
            name: 1 - Fraction(int(self.taken[column]), self.nodes * amounts[name])
            for name, column in (("cpu", CPU), ("memory", MEMORY))
            if amounts.get(name)
        }

    @property
    def waste(self) -> Fraction:
        """Return the sum of the unrequested shares of cpu and memory of the new nodes.

        It is an exact number from 0 to 2.
        """
        return sum(self.unused.values(), start=Fraction(0))


def find_fitting_groups(
    snapshot: Snapshot,
    placer: Placer,
    templates: Mapping[str, NodeTemplate],
    *,
    groups: Sequence[NodeGroup],
    found: Iterable[PodClass],
) -> tuple[list[ScaleUpCandidate], dict[int, frozenset[str]]]:
    """Find the groups whose new nodes fit each class of pods.

    Args:
        snapshot: the cluster state. New nodes are added to it only during the call.
        placer: placer on the snapshot; runs the scheduler's filters.
        templates: node templates by group id.
        groups: groups with a template.
        found: classes of pods.

    Returns:
        The groups with the free capacity of a new node, and for each class number, the ids of the groups whose nodes
        fit the class.
    """
    nodes = snapshot.nodes
    with probe_nodes(snapshot, (templates[group.id] for group in groups)) as slots:
        fits = {}
        for each in found:
            snapshot.row(each.first.spec)  # a new resource widens all rows, so compute rows before reading them
            mask = placer.feasible(each.first) if each.countable else placer.eligible(each.first)
            fits[each.number] = frozenset(id_ for id_, slot in slots.items() if mask[slot])
        free = {id_: nodes.allocatable[slot] - nodes.requested[slot] for id_, slot in slots.items()}
    return [ScaleUpCandidate(group, templates[group.id], free[group.id]) for group in groups], fits


GroupsByClass = Mapping[int, frozenset[str]]


def rounds_by_soft_taints(
    fits: GroupsByClass, found: Sequence[PodClass], candidates: Sequence[ScaleUpCandidate]
) -> tuple[GroupsByClass, ...]:
    """Return the groups to try for each class, in rounds.

    Pods that are not placed in one round are tried in the next. The first round contains only the groups with the
    fewest PreferNoSchedule taints that the class does not tolerate. The second contains all groups that fit. The
    scheduler avoids existing nodes with such taints if it can, so adding a tainted node for these pods would defeat the
    taint. Cluster-autoscaler ignores these taints.

    Args:
        fits: for each class number, the ids of the groups whose nodes fit the class.
        found: the classes.
        candidates: the groups that can be scaled up.

    Returns:
        One round if no such taint makes a difference, otherwise two.
    """
    soft = {
        each.group.id: taints
        for each in candidates
        if (taints := tuple(taint for taint in each.template.node.taints if taint.effect == PREFER_NO_SCHEDULE))
    }
    if not soft:
        return (fits,)
    without_soft_taints = {each.number: _without_soft_taints(each.first, fits[each.number], soft) for each in found}
    return (fits,) if without_soft_taints == fits else (without_soft_taints, fits)


def _without_soft_taints(pod: Pod, groups: frozenset[str], soft: Mapping[str, Sequence[Taint]]) -> frozenset[str]:
    taint_counts = {id_: sum(_is_soft(taint, pod) for taint in soft.get(id_, ())) for id_ in groups}
    fewest = min(taint_counts.values(), default=0)
    return frozenset(id_ for id_, number in taint_counts.items() if number == fewest)


def _is_soft(taint: Taint, pod: Pod) -> bool:
    return not any(tolerates(each, taint) for each in pod.spec.tolerations)
