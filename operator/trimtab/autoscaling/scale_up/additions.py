"""Plans new nodes for pending pods: for all pods together, or shared among namespaces if limits are scarce."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.bounds import plural
from trimtab.autoscaling.scale_up import balancing
from trimtab.autoscaling.scale_up.actions import NewNode
from trimtab.autoscaling.scale_up.binpacking import CountingEstimator, assign_pods, pods_of_option
from trimtab.autoscaling.scale_up.coscheduling import CoschedulingEstimator
from trimtab.autoscaling.scale_up.expanders import ExpanderContext, choose, compare
from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.autoscaling.scale_up.expanders.choice import ExpanderChoice
from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.namespace_shares import NamespaceShares
from trimtab.autoscaling.scale_up.options import GroupsByClass, ScaleUpCandidate, ScaleUpOption
from trimtab.autoscaling.scale_up.pod_classes import ClassConflicts, PodClass, UnplacedPods
from trimtab.autoscaling.scale_up.upcoming_nodes import add_template_node
from trimtab.autoscaling.template.node_template import NodeTemplate
from trimtab.cluster.resources import IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget

MAX_CHOICES: Final = 50
"""Maximum number of decisions that a plan keeps to explain them."""

MAX_TEXTS: Final = 3
"""Maximum number of decisions that the message about a group describes."""


class AdditionInputs(Struct, frozen=True, eq=False):
    """The inputs for planning new nodes.

    Attributes:
        snapshot: the cluster state, including upcoming nodes.
        placer: placer on the snapshot.
        templates: node templates by group id.
        candidates: the groups that can be scaled up.
        classes: classes of unschedulable pods.
        rounds: for each round, a mapping from class numbers to the ids of the groups whose nodes fit the class.
        rows: int64, shape (resources,): the requests of one pod of a class, by class number.
        conflicts: classes that must not share a node.
        finder: finds the similar groups among which new nodes are balanced.
        expanders: names of the expanders (``spec.expanders``).
        priorities: patterns for the expander Priority.
        seed: seed of the expander Random.
        advice: the responses of the external server, for the expander Grpc; ``None`` if no server is configured.
    """

    snapshot: Snapshot
    placer: Placer
    templates: Mapping[str, NodeTemplate]
    candidates: Sequence[ScaleUpCandidate]
    classes: Sequence[PodClass]
    rounds: Sequence[GroupsByClass]
    rows: Mapping[int, IntArray]
    conflicts: ClassConflicts
    finder: balancing.SimilarGroupFinder
    expanders: Sequence[str]
    priorities: Mapping[int, tuple[str, ...]] = {}
    seed: str = ""
    advice: Advice | None = None


class NodeAdditions:
    """Collects planned nodes.

    Nodes for pods that bin packing cannot place by counting are also added to the snapshot.

    Args:
        problem: the inputs for planning new nodes.
        headroom: what remains of the limits. New nodes are subtracted from it.
        budget: the time budget.

    Attributes:
        nodes: planned nodes in the order in which they were planned.
        decided: messages that say which expander preferred a group to others, by group id.
        choices: the first decisions of the expanders.
        headroom: what remains of the limits.
        waiting: the pods that have not been placed yet.
    """

    def __init__(self, problem: AdditionInputs, headroom: Headroom, budget: PlanBudget = UNLIMITED) -> None:
        self._problem = problem
        self._budget = budget
        self.headroom = headroom
        self.nodes: list[NewNode] = []
        self.decided: dict[str, list[str]] = {}
        self.choices: list[ExpanderChoice] = []
        self.waiting = UnplacedPods(problem.classes)
        self._names: list[str] = []

    @property
    def late(self) -> bool:
        """Return whether the time budget is exhausted."""
        return self._budget.over

    def add(self, numbers: Collection[int] | None = None) -> None:
        """Add nodes for unplaced pods as far as the limits allow.

        Args:
            numbers: numbers of the classes to add nodes for; ``None`` for all classes.
        """
        problem = self._problem
        waiting, rounds = self.waiting, problem.rounds
        if numbers is not None:
            waiting = waiting.subset(numbers)
            rounds = [{number: each[number] for number in numbers} for each in rounds]
        context = ExpanderContext(
            problem.priorities, problem.seed, problem.advice, lambda option: pods_of_option(option, waiting)
        )
        for each in rounds:
            counting = CountingEstimator(each, problem.rows, problem.conflicts, problem.finder)
            while not self.late and (options := counting.options(problem.candidates, waiting, self.headroom)):
                option, by = choose(options, problem.expanders, context)
                contents = assign_pods(option.packing, waiting)
                owners = balancing.balance_nodes(option.nodes, option.similar, self.headroom)
                for candidate, pods in zip(owners, contents, strict=True):
                    self._add_node(candidate, pods)
                self._note(by, owners, options, context)
        if waiting.classes(countable=False):
            self._add_coscheduled(waiting, rounds, context)

    def join(self, numbers: Collection[int]) -> None:
        """Place unplaced pods on planned nodes that have free capacity.

        Args:
            numbers: numbers of the classes whose pods are placed.
        """
        self._add_to_snapshot()
        estimator = self._estimator({})
        self._record_joined(estimator.join(self.waiting.subset(numbers), self._names, countable=None))

    def _add_coscheduled(
        self, waiting: UnplacedPods, rounds: Iterable[GroupsByClass], context: ExpanderContext
    ) -> None:
        """Add nodes for classes that cannot be placed by counting, after filling the nodes planned so far."""
        self._add_to_snapshot()
        for fits in rounds:
            estimator = self._estimator(fits)
            while not self.late:
                self._record_joined(estimator.join(waiting, self._names))
                options = estimator.options(waiting)
                if not options:
                    break
                option, by = choose(options, self._problem.expanders, context)
                for name, pods in estimator.commit(option, waiting):
                    self._names.append(name)
                    self._add_node(option.candidate, pods)
                self._note(by, [option.candidate], options, context)

    def _estimator(self, fits: GroupsByClass) -> CoschedulingEstimator:
        problem, opened = self._problem, len(self._names)
        return CoschedulingEstimator(
            problem.placer, self.headroom, problem.candidates, fits, opened=opened, budget=self._budget
        )

    def _record_joined(self, found: Iterable[tuple[int, Pod]]) -> None:
        for place, pod in found:
            node = self.nodes[place]
            self.nodes[place] = NewNode(node.group, (*node.pods, pod))

    def _add_node(self, candidate: ScaleUpCandidate, pods: Iterable[Pod]) -> None:
        self.headroom.reserve(candidate.group, candidate.template.node, 1)
        self.nodes.append(NewNode(candidate.group.id, tuple(pods)))

    def _add_to_snapshot(self) -> None:
        """Add the planned nodes to the snapshot, because the remaining pods depend on other nodes and pods."""
        snapshot = self._problem.snapshot
        for node in self.nodes[len(self._names) :]:
            name = f"new-{len(self._names) + 1:06}-of-{node.group}"
            self._names.append(name)
            add_template_node(snapshot, self._problem.templates[node.group], name)
            for pod in node.pods:
                snapshot.move(pod, name)

    def _note(
        self,
        by: str,
        owners: Sequence[ScaleUpCandidate],
        options: Sequence[ScaleUpOption],
        context: ExpanderContext,
    ) -> None:
        """Record how the chosen option compares with the others. After :data:`MAX_CHOICES`, only their number."""
        ids = tuple(dict.fromkeys(each.group.id for each in owners))
        others = len({each.group.id for each in options} - set(ids))
        if len(self.choices) < MAX_CHOICES:
            choice = replace(compare(options, self._problem.expanders, context), owners=ids)
            self.choices.append(choice)
            text = choice.describe()
        else:
            text = f"{by} chose it over {plural(others, 'other')}"
        for id_ in ids if by and others else ():
            found = self.decided.setdefault(id_, [])
            if text not in found and len(found) < MAX_TEXTS:
                found.append(text)


def add_fairly(
    problem: AdditionInputs, headroom: Headroom, shares: NamespaceShares, budget: PlanBudget = UNLIMITED
) -> NodeAdditions:
    """Plan new nodes so that no namespace exhausts the limits alone.

    Pods of higher priority come first. Among pods of one priority, each namespace may add the same number of nodes;
    namespaces that need more then share the rest. Nodes that cannot be shared equally go to the namespace that uses the
    fewest nodes; if several use equally few, to the one with the oldest pod. A pod may be placed on a new node that was
    added for another namespace.

    Args:
        problem: the inputs for planning new nodes.
        headroom: what remains of the limits.
        shares: the number of nodes that each namespace uses. New nodes are added to it.
        budget: the time budget.
    """
    made = NodeAdditions(problem, headroom, budget)
    by_priority: dict[int, dict[str, list[PodClass]]] = {}
    for each in problem.classes:
        by_priority.setdefault(each.first.priority, {}).setdefault(each.first.namespace, []).append(each)
    for priority in sorted(by_priority, reverse=True):
        _share_out(made, by_priority[priority], problem.candidates, shares)
    headroom.clear_limit()
    if made.nodes and made.waiting:
        for priority in sorted(by_priority, reverse=True):
            made.join([each.number for classes in by_priority[priority].values() for each in classes])
    return made


def _share_out(
    made: NodeAdditions,
    by_namespace: Mapping[str, Sequence[PodClass]],
    candidates: Sequence[ScaleUpCandidate],
    shares: NamespaceShares,
) -> None:
    """Add nodes for pods of one priority in rounds, with the same number of nodes for each namespace."""
    oldest = {
        namespace: min(pod.created or 0.0 for each in classes for pod in each.pods)
        for namespace, classes in by_namespace.items()
    }
    numbers = {namespace: [each.number for each in classes] for namespace, classes in by_namespace.items()}
    active = set(by_namespace)
    while active and not made.late:
        made.headroom.clear_limit()
        part = max(1, _room(candidates, made.headroom) // len(active))
        for namespace in sorted(active, key=lambda each: (shares.used(each), oldest[each], each)):
            before = len(made.nodes)
            if before:
                made.join(numbers[namespace])
            allowed = min(part, shares.allowed(namespace))
            if allowed and made.waiting.subset(numbers[namespace]):
                made.headroom.limit_next(allowed)
                made.add(numbers[namespace])
            added = len(made.nodes) - before
            shares.grant(namespace, added)
            if added < part or not made.waiting.subset(numbers[namespace]):
                active.discard(namespace)


def _room(candidates: Sequence[ScaleUpCandidate], headroom: Headroom) -> int:
    """Return an upper bound on the number of nodes that the limits still allow for all groups together."""
    in_cluster = max((headroom.cluster_room(each.template.node) for each in candidates), default=0)
    return min(in_cluster, sum(headroom.room(each.group) for each in candidates))
