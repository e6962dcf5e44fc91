"""Whether pods of nodes that would go have places on nodes that stay and on new ones, and which new ones. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from trimtab.api.cluster_limits import ResourceLimits
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.scale_up.asking import ask_groups
from trimtab.autoscaling.scale_up.balancing import Finder
from trimtab.autoscaling.scale_up.classes import PodClass, alike, clashes, classes
from trimtab.autoscaling.scale_up.counted import Counting, filled
from trimtab.autoscaling.scale_up.expanders import Context, choose
from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.option import Candidate
from trimtab.autoscaling.scale_up.standing_in import add
from trimtab.autoscaling.scale_up.there import places_there
from trimtab.autoscaling.scale_up.together import Together
from trimtab.autoscaling.scale_up.waiting import Waiting
from trimtab.autoscaling.template import NodeTemplate
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer

_CHEAPEST: Final = ("Price", "LeastWaste")
_NOTHING: Final = Context()

New = list[tuple[str, tuple[Pod, ...]]]
"""New nodes: the group's id, and the pods that it would have."""


class Trial:
    """Tries what would become of pods.

    Args:
        snapshot: the cluster; as before after each trial.
        placer: of the snapshot.
        templates: of groups, by their ids.
        limits: of the ClusterAutoscaler: while nodes are replaced old and new ones are there at once.
    """

    def __init__(
        self, snapshot: Snapshot, placer: Placer, templates: Mapping[str, NodeTemplate], limits: ResourceLimits
    ) -> None:
        self._snapshot = snapshot
        self._placer = placer
        self._templates = templates
        self._limits = limits
        self._everything = [node for node in snapshot.nodes.at if node is not None]

    def new_nodes(self, nodes: Sequence[Node], pods: Iterable[Pod], groups: Sequence[NodeGroup]) -> New | None:
        """The new nodes that it would take; ``None`` where some pod would find no place.

        Args:
            nodes: those that would go.
            pods: those of them that need a place, in any order.
            groups: those that may grow.
        """
        with self._snapshot.fork():
            lifted = [self._placer.lift(pod) for pod in sorted(pods, key=lambda each: (-each.priority, each.key))]
            for node in nodes:
                self._snapshot.remove(node)
            found = places_there(self._placer, alike(lifted), {})
            left = classes(found.left, self._snapshot)
            return self._grown(left, groups) if left else []

    def _grown(self, left: Sequence[PodClass], groups: Sequence[NodeGroup]) -> New | None:
        candidates, fits = ask_groups(self._snapshot, self._placer, self._templates, groups=groups, found=left)
        if not all(fits.values()):
            return None
        waiting = Waiting(left)
        headroom = Headroom(self._limits, self._everything)
        rows = {each.number: self._snapshot.row(each.first.spec) for each in left}
        finder = Finder(candidates, (), enabled=False)
        counting = Counting(fits, rows, clashes(left, self._snapshot), finder)
        new: New = []
        while options := counting.options(candidates, waiting, headroom):
            option, _ = choose(options, _CHEAPEST, _NOTHING)
            headroom.take(option.group, option.candidate.template.node, option.nodes)
            new += [(option.group.id, pods) for pods in filled(option.packing, waiting)]
        if waiting.classes(counted=False):
            self._together(waiting, new, headroom, candidates, fits)
        return None if waiting else new

    def _together(
        self,
        waiting: Waiting,
        new: New,
        headroom: Headroom,
        candidates: Sequence[Candidate],
        fits: Mapping[int, frozenset[str]],
    ) -> None:
        """The same for pods that look at others, beside all that has been counted."""
        names = []
        for number, (id_, pods) in enumerate(new, start=1):
            names.append(f"new-{number:06}-of-{id_}")
            add(self._snapshot, self._templates[id_], names[-1])
            for pod in pods:
                self._snapshot.move(pod, names[-1])
        together = Together(self._placer, headroom, candidates, fits, opened=len(names))
        while True:
            for place, pod in together.join(waiting, names):
                new[place] = (new[place][0], (*new[place][1], pod))
            options = together.options(waiting)
            if not options:
                return
            option, _ = choose(options, _CHEAPEST, _NOTHING)
            for name, pods in together.commit(option, waiting):
                names.append(name)
                headroom.take(option.group, option.candidate.template.node, 1)
                new.append((option.group.id, pods))
