"""The scale-up planner: a snapshot and a ClusterAutoscaler give new nodes by group. No I/O, no clock, no chance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Kept, ScaleUp
from trimtab.autoscaling.groups import NodeGroup, Problem
from trimtab.autoscaling.scale_up import balancing
from trimtab.autoscaling.scale_up.actions import NewNode, actions
from trimtab.autoscaling.scale_up.asking import ask_groups
from trimtab.autoscaling.scale_up.classes import PodClass, alike, clashes, classes
from trimtab.autoscaling.scale_up.contents import pods_of
from trimtab.autoscaling.scale_up.counted import Counting, filled
from trimtab.autoscaling.scale_up.expanders import Context, choose
from trimtab.autoscaling.scale_up.explained import World, explain
from trimtab.autoscaling.scale_up.inputs import Inputs
from trimtab.autoscaling.scale_up.limits import Cut, Headroom
from trimtab.autoscaling.scale_up.minimum import Raised, raise_to_minimum
from trimtab.autoscaling.scale_up.option import Candidate, Option
from trimtab.autoscaling.scale_up.pending import pending
from trimtab.autoscaling.scale_up.standing_in import MOST, add, probes, stand_in
from trimtab.autoscaling.scale_up.there import places_there
from trimtab.autoscaling.scale_up.together import Together
from trimtab.autoscaling.scale_up.told import STRATEGY, kept
from trimtab.autoscaling.scale_up.waiting import Waiting
from trimtab.autoscaling.scale_up.welcome import Fits, rounds
from trimtab.autoscaling.template import NodeTemplate, templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer


class ScalingUp(Struct, frozen=True):
    """What scale-up plans.

    Attributes:
        actions: one a group that grows, by the groups' ids.
        kept: objects that are wrong, then pending pods for which no node is added, by ``namespace/name``.
        nodes: the nodes that are to be added, in the order in which they were planned.
        reserved: pending pods that have their places on nodes that are there, with their nodes.
    """

    actions: tuple[ScaleUp, ...] = ()
    kept: tuple[Kept, ...] = ()
    nodes: tuple[NewNode, ...] = ()
    reserved: tuple[Pod, ...] = ()


def scale_up(snapshot: Snapshot, inputs: Inputs) -> ScalingUp:
    """Which groups get how many nodes for which pending pods, and why no node is added for others.

    Args:
        snapshot: the cluster; changed while planning and as before afterwards.
        inputs: what to go by.
    """
    with snapshot.fork():
        return _Planner(snapshot, inputs).plan()


class _Planner:
    def __init__(self, snapshot: Snapshot, inputs: Inputs) -> None:
        self._snapshot = snapshot
        self._inputs = inputs
        self._placer = Placer(snapshot)
        found = inputs.grouped(snapshot)
        startup = inputs.spec.startup_taints
        made = templates(snapshot, found.all, now=inputs.now, startup_taints=startup)
        self._groups: tuple[NodeGroup, ...] = found.all
        self._templates: Mapping[str, NodeTemplate] = made.of_group
        self._problems: tuple[Problem, ...] = tuple(sorted((*found.problems, *made.problems)))
        self._decided: dict[str, list[str]] = {}
        self._nodes: list[NewNode] = []
        self._minimum = Raised()

    def plan(self) -> ScalingUp:
        """Plan; in a fork."""
        inputs = self._inputs
        waiting = pending(self._snapshot, inputs.spec, now=inputs.now)
        coming = stand_in(
            self._snapshot,
            self._groups,
            self._templates,
            now=inputs.now,
            startup=inputs.spec.startup_taints,
            upcoming=inputs.upcoming,
        )
        self._headroom = Headroom(inputs.spec.resource_limits, (*self._all_nodes(), *self._given_up()))
        coming |= self._raise_to_minimum()
        found = places_there(self._placer, alike(waiting.asking), coming)
        left = classes(found.left, self._snapshot)
        told: list[Kept] = []
        if left and inputs.halted:
            told = [kept(pod, reasons.CLUSTER_UNHEALTHY, inputs.halted) for each in left for pod in each.pods]
        elif left:
            told = self._help(left)
        pods = sorted((*waiting.kept, *found.kept, *told), key=lambda each: (each.namespace, each.name))
        return ScalingUp(
            actions=actions(self._groups, self._templates, self._nodes, decided=self._decided, raised=self._minimum),
            kept=(*map(_told, self._problems), *self._minimum.kept, *pods),
            nodes=tuple(self._nodes),
            reserved=tuple(pod for pod in found.reserved if pod.node not in coming),
        )

    def _given_up(self) -> Iterator[Node]:
        """Nodes that nobody waits for and that may come all the same: limits hold even then."""
        for group in self._groups:
            more = group.upcoming - self._inputs.upcoming.get(group.id, group.upcoming)
            template = self._templates.get(group.id)
            if more > 0 and template is not None:
                yield from [template.node] * min(more, MOST)

    def _raise_to_minimum(self) -> dict[str, str]:
        """Add what groups lack of their minimum, where that is wished; returns the groups by the new nodes' names."""
        spec = self._inputs.spec
        if self._inputs.halted or spec.enforce_node_group_min_size != "Enabled":
            return {}
        held = {group.id: cut for group in self._groups if (cut := self._held(group)) is not None}
        self._minimum = raise_to_minimum(self._groups, self._templates, held, self._headroom, spec.resource_limits)
        names = {}
        for id_, number in self._minimum.added.items():
            template = self._templates.get(id_)
            for each in range(1, min(number, MOST) + 1 if template is not None else 1):
                names[f"minimum-{each}-of-{id_}"] = id_
        for name, id_ in names.items():
            add(self._snapshot, self._templates[id_], name)
        return names

    def _help(self, found: Sequence[PodClass]) -> list[Kept]:
        """Add nodes for the classes as far as that goes; returns what is told of the rest."""
        waiting = Waiting(found)
        candidates, fits = self._ask(found)
        rows = {each.number: self._snapshot.row(each.first.spec) for each in found}
        seed = _seed(self._snapshot, found) if "Random" in self._inputs.spec.expanders else ""
        context = Context(self._inputs.priorities, seed, self._inputs.advice, lambda option: pods_of(option, waiting))
        spec = self._inputs.spec
        finder = balancing.Finder(candidates, spec.balancing_ignored_labels, enabled=spec.balance_similar_node_groups)
        clashing, tried = clashes(found, self._snapshot), rounds(fits, found, candidates)
        for each in tried:
            counting = Counting(each, rows, clashing, finder)
            while options := counting.options(candidates, waiting, self._headroom):
                option, by = choose(options, spec.expanders, context)
                contents = filled(option.packing, waiting)
                owners = balancing.spread(option.nodes, option.similar, self._headroom)
                for candidate, pods in zip(owners, contents, strict=True):
                    self._grow(candidate, pods)
                self._note(by, owners, options)
        if waiting.classes(counted=False):
            self._together(waiting, candidates, tried, context)
        return self._explain(waiting)

    def _together(
        self,
        waiting: Waiting,
        candidates: Sequence[Candidate],
        tried: Iterable[Fits],
        context: Context,
    ) -> None:
        """The same for classes that cannot be counted, beside all that has been."""
        names = self._materialise()
        for fits in tried:
            together = Together(self._placer, self._headroom, candidates, fits, opened=len(names))
            while True:
                for place, pod in together.join(waiting, names):
                    node = self._nodes[place]
                    self._nodes[place] = NewNode(node.group, (*node.pods, pod))
                options = together.options(waiting)
                if not options:
                    break
                option, by = choose(options, self._inputs.spec.expanders, context)
                for name, pods in together.commit(option, waiting):
                    names.append(name)
                    self._grow(option.candidate, pods)
                self._note(by, [option.candidate], options)

    def _ask(self, found: Sequence[PodClass]) -> tuple[list[Candidate], dict[int, frozenset[str]]]:
        """The groups that may grow, and which of them have nodes that would take a pod of each class."""
        usable = [group for group in self._groups if group.id in self._templates and not self._held(group)]
        asked, fits = ask_groups(self._snapshot, self._placer, self._templates, groups=usable, found=found)
        helpful = frozenset().union(*fits.values())
        return [each for each in asked if each.group.id in helpful], fits

    def _held(self, group: NodeGroup) -> Cut | None:
        """What keeps a group from growing whatever its size."""
        if group.paused:
            return Cut(reasons.GROUP_PAUSED, f"it is not scaled: {group.paused}")
        for reason, words in (
            (reasons.GROUP_UNHEALTHY, self._inputs.unhealthy),
            (reasons.GROUP_BACKS_OFF, self._inputs.backoff),
            (reasons.SCALE_UP_NOT_SEEN, self._inputs.asked),
        ):
            if group.id in words:
                return Cut(reason, words[group.id])
        return None

    def _grow(self, candidate: Candidate, pods: Iterable[Pod]) -> None:
        self._headroom.take(candidate.group, candidate.template.node, 1)
        self._nodes.append(NewNode(candidate.group.id, tuple(pods)))

    def _materialise(self) -> list[str]:
        """Put what has been counted into the picture, for those who look at more than their own node."""
        names = []
        for number, node in enumerate(self._nodes, start=1):
            names.append(f"new-{number:06}-of-{node.group}")
            add(self._snapshot, self._templates[node.group], names[-1])
            for pod in node.pods:
                self._snapshot.move(pod, names[-1])
        return names

    def _note(self, by: str, owners: Sequence[Candidate], options: Sequence[Option]) -> None:
        others = sorted({each.group.key for each in options} - {each.group.key for each in owners})
        if by and others:
            for id_ in {each.group.id for each in owners}:
                self._decided.setdefault(id_, [])
                text = f"{by} chose it over {len(others)} other{'s' if len(others) > 1 else ''}"
                if text not in self._decided[id_]:
                    self._decided[id_].append(text)

    def _explain(self, waiting: Waiting) -> list[Kept]:
        left = waiting.classes()
        if not left:
            return []
        told = []
        with probes(self._snapshot, self._templates.values()) as slots:
            untold = {problem.name: problem.message for problem in self._problems}
            cuts = {}
            for group in self._groups:
                if group.id in slots:
                    cut = self._held(group) or self._headroom.cut(group, self._templates[group.id].node)
                    if cut is not None:
                        cuts[group.id] = cut
            world = World(self._groups, slots, cuts, untold)
            for each in left:
                told += explain(waiting.pods(each.number), self._placer.judge(each.first), world)
        return told

    def _all_nodes(self) -> list[Node]:
        return [node for node in self._snapshot.nodes.at if node is not None]


def _told(problem: Problem) -> Kept:
    return Kept(
        kind=problem.kind,
        namespace=problem.namespace,
        name=problem.name,
        strategy=STRATEGY,
        reason=problem.reason,
        message=problem.message,
    )


def _seed(snapshot: Snapshot, found: Sequence[PodClass]) -> str:
    """What tells this plan from others, the same for the same cluster."""
    digest = hashlib.sha256()
    for name in sorted(snapshot.nodes.slot_of):
        digest.update(name.encode() + b"\0")
    for each in found:
        for pod in each.pods:
            digest.update(pod.key.encode() + b"\1")
    return digest.hexdigest()


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
