"""The scale-up planner: computes how many nodes each group needs, from a snapshot and a ClusterAutoscaler.

It does no I/O, reads no clock and uses no randomness.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.plan import Kept, ScaleUp
from trimtab.autoscaling.groups import NO_EXTERNAL_GROUPS, ExternalGroups, Groups, NodeGroup, ObjectProblem
from trimtab.autoscaling.groups import build_groups as groups_of
from trimtab.autoscaling.scale_up import balancing
from trimtab.autoscaling.scale_up.actions import NewNode, RaisedGroups, build_actions, raise_to_minimum
from trimtab.autoscaling.scale_up.additions import AdditionInputs, NodeAdditions, add_fairly
from trimtab.autoscaling.scale_up.blocking_daemon_sets import daemon_sets_blocking_pods
from trimtab.autoscaling.scale_up.expanders.advice import Advice
from trimtab.autoscaling.scale_up.expanders.choice import ExpanderChoice
from trimtab.autoscaling.scale_up.limits import Headroom, LimitReason
from trimtab.autoscaling.scale_up.messages import (
    STRATEGY,
    ExplanationContext,
    GroupVerdict,
    deadline_exceeded,
    explain,
    group_verdicts,
    kept_pod,
)
from trimtab.autoscaling.scale_up.namespace_shares import NamespaceShares
from trimtab.autoscaling.scale_up.options import ScaleUpCandidate, find_fitting_groups, rounds_by_soft_taints
from trimtab.autoscaling.scale_up.pending_pods import (
    place_after_moves,
    place_after_removals,
    place_on_existing,
    select_pending_pods,
)
from trimtab.autoscaling.scale_up.pod_classes import (
    PodClass,
    UnplacedPods,
    build_pod_classes,
    find_conflicts,
    group_equal_pods,
)
from trimtab.autoscaling.scale_up.upcoming_nodes import MAX_ADDED, add_template_node, add_upcoming_nodes, probe_nodes
from trimtab.autoscaling.template import NodeTemplate, build_templates
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.shared_plans import PlannedMove
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer
from trimtab.placement.plan_budget import UNLIMITED, PlanBudget, planning_cost


class PlanInputs(Struct, frozen=True):
    """The inputs of the autoscaling planners, in addition to the snapshot.

    Attributes:
        spec: spec of the ClusterAutoscaler.
        now: the current time in seconds since the epoch.
        machine_autoscalers: all MachineAutoscalers.
        priorities: patterns of group ids by priority, for the expander Priority.
        backoff: the reason why each group in backoff is not scaled up, by group id.
        status: status of the ClusterAutoscaler. It contains the state of scale-down.
        unhealthy_groups: the reason why each unhealthy group is neither scaled up nor down, by group id.
        unobserved_requests: the reason why a group must not be scaled up because its target size does not include the
            last request yet, by group id.
        upcoming: number of upcoming nodes by group id, where it differs from the group's own count.
        starting: group ids by the names of starting nodes that belong to no group, but are among ``upcoming``.
        cluster_unhealthy: the reason why no node is added or removed in the whole cluster; empty if the cluster is
            healthy.
        external: node groups of external providers.
        advice: the responses of the server of the expander Grpc; ``None`` if no server is configured.
        moves: evictions that the descheduler is executing. Pods that fit after them need no new node.
        groups: the groups of the snapshot if the caller has already built them; see :meth:`node_groups`.
        budget: the plan's time budget. Pods that are not evaluated in time are kept with ``PlanDeadlineExceeded``.
    """

    spec: ClusterAutoscalerSpec
    now: float
    machine_autoscalers: tuple[MachineAutoscaler, ...] = ()
    priorities: Mapping[int, tuple[str, ...]] = {}
    backoff: Mapping[str, str] = {}
    status: ClusterAutoscalerStatus = ClusterAutoscalerStatus()
    unhealthy_groups: Mapping[str, str] = {}
    unobserved_requests: Mapping[str, str] = {}
    upcoming: Mapping[str, int] = {}
    starting: Mapping[str, str] = {}
    cluster_unhealthy: str = ""
    external: ExternalGroups = NO_EXTERNAL_GROUPS
    advice: Advice | None = None
    moves: tuple[PlannedMove, ...] = ()
    groups: Groups | None = None
    budget: PlanBudget = UNLIMITED

    def node_groups(self, snapshot: Snapshot) -> Groups:
        """Return the node groups of the snapshot. They are built only if the caller has not built them."""
        if self.groups is not None:
            return self.groups
        return groups_of(
            snapshot,
            self.machine_autoscalers,
            self.external,
            self.spec.node_group_auto_discovery,
            self.status.confirmed_namespaces,
        )

    def paused_reason(self, group: NodeGroup) -> LimitReason | None:
        """Return the reason why a group must not be scaled up regardless of its size, or ``None`` if it may be."""
        if group.paused:
            return LimitReason(reasons.GROUP_PAUSED, f"it is not scaled: {group.paused}")
        for reason, messages in (
            (reasons.GROUP_UNHEALTHY, self.unhealthy_groups),
            (reasons.GROUP_BACKS_OFF, self.backoff),
            (reasons.SCALE_UP_NOT_SEEN, self.unobserved_requests),
        ):
            if group.id in messages:
                return LimitReason(reason, messages[group.id])
        return None


class ScaleUpPlan(Struct, frozen=True):
    """The result of scale-up planning.

    Attributes:
        actions: one action for each group that is scaled up, by group id.
        kept: objects with problems, then the pending pods for which no node is added, by ``namespace/name``.
        nodes: planned nodes in the order in which they were planned.
        reserved: pending pods that fit on existing nodes, bound to these nodes.
        choices: how the expanders chose among groups.
    """

    actions: tuple[ScaleUp, ...] = ()
    kept: tuple[Kept, ...] = ()
    nodes: tuple[NewNode, ...] = ()
    reserved: tuple[Pod, ...] = ()
    choices: tuple[ExpanderChoice, ...] = ()


_EXISTING: Final = 0.4
_ASKING: Final = 0.2
_PACKING: Final = 0.3
_EXPLAINING: Final = 0.1
"""Shares of the time budget by stage, so that a slow stage does not exhaust the time of the next."""


def scale_up(snapshot: Snapshot, inputs: PlanInputs) -> ScaleUpPlan:
    """Plan how many nodes are added to which groups for pending pods, and why other pods remain pending.

    Args:
        snapshot: the cluster state. Planning changes it and restores it.
        inputs: the ClusterAutoscaler and all other inputs.
    """
    with snapshot.fork():
        return _Planner(snapshot, inputs).plan()


class PodScaleUp(Struct, frozen=True):
    """What scale-up planning decides for one pending pod.

    Attributes:
        plan: the plan for all pending pods.
        groups: the verdict of each group for the pod, in the order of group ids.
    """

    plan: ScaleUpPlan
    groups: tuple[GroupVerdict, ...]


def scale_up_of_pod(snapshot: Snapshot, inputs: PlanInputs, pod: Pod) -> PodScaleUp:
    """Plan as :func:`scale_up` does, and evaluate each group for one pod after the plan.

    Args:
        snapshot: the cluster state. Planning changes it and restores it.
        inputs: the ClusterAutoscaler and all other inputs.
        pod: a pending pod of the snapshot.
    """
    with snapshot.fork():
        planner = _Planner(snapshot, inputs)
        return PodScaleUp(planner.plan(), planner.verdicts(pod))


class _Planner:
    def __init__(self, snapshot: Snapshot, inputs: PlanInputs) -> None:
        self._snapshot = snapshot
        self._inputs = inputs
        self._placer = Placer(snapshot)
        found = inputs.node_groups(snapshot)
        made = build_templates(snapshot, found.all, now=inputs.now, spec=inputs.spec)
        self._groups: tuple[NodeGroup, ...] = found.all
        self._templates: Mapping[str, NodeTemplate] = made.of_group
        self._problems: tuple[ObjectProblem, ...] = tuple(sorted((*found.problems, *made.problems)))
        self._uncounted = made.uncounted
        self._blocking_daemon_sets: list[Kept] = []
        self._decided: dict[str, list[str]] = {}
        self._choices: tuple[ExpanderChoice, ...] = ()
        self._nodes: list[NewNode] = []
        self._minimum = RaisedGroups()
        self._namespace_shares: NamespaceShares | None = None

    def plan(self) -> ScaleUpPlan:
        """Return the plan. It is computed on a fork of the snapshot."""
        inputs = self._inputs
        # 1. Select the pending pods that nodes may be added for.
        pending_pods = select_pending_pods(self._snapshot, inputs.spec, now=inputs.now)
        # 2. Add nodes that were requested earlier, and nodes that groups need to reach their minimum size.
        upcoming = add_upcoming_nodes(
            self._snapshot,
            self._groups,
            self._templates,
            now=inputs.now,
            startup=inputs.spec.startup_taints,
            upcoming=inputs.upcoming,
        )
        # A starting node that belongs to no group yet is counted as upcoming, by its group's template.
        existing = [node for node in self._all_nodes() if inputs.starting.get(node.name) not in self._templates]
        self._headroom = Headroom(inputs.spec.resource_limits, (*existing, *self._overdue_nodes()))
        upcoming |= self._raise_to_minimum()
        self._upcoming = upcoming
        # 3. Place pods on these nodes and on existing ones, and on nodes that planned evictions or removals will free.
        budget = inputs.budget.stage(_EXISTING)
        found = place_on_existing(self._placer, group_equal_pods(pending_pods.eligible), upcoming, budget)
        after_moves = place_after_moves(self._placer, found.unplaced, upcoming, inputs.moves, now=inputs.now)
        after_removals = place_after_removals(self._placer, after_moves.unplaced, upcoming, now=inputs.now)
        left = build_pod_classes(after_removals.unplaced, self._snapshot)
        # 4. Plan new nodes for the rest, unless the cluster is unhealthy.
        unplaced_entries: list[Kept] = []
        if left and inputs.cluster_unhealthy:
            unplaced_entries = [
                kept_pod(pod, reasons.CLUSTER_UNHEALTHY, inputs.cluster_unhealthy) for each in left for pod in each.pods
            ]
        elif left:
            unplaced_entries = self._add_nodes(left)
        # 5. Build the actions, and an entry for each object that gets none.
        pods = sorted(
            (*pending_pods.kept, *found.kept, *after_moves.kept, *after_removals.kept, *unplaced_entries),
            key=lambda each: (each.namespace, each.name),
        )
        return ScaleUpPlan(
            actions=build_actions(
                self._groups, self._templates, self._nodes, decided=self._decided, raised=self._minimum
            ),
            kept=(
                *map(_problem_entry, self._problems),
                *map(_problem_entry, self._uncounted),
                *self._blocking_daemon_sets,
                *self._minimum.kept,
                *pods,
            ),
            nodes=tuple(self._nodes),
            reserved=tuple(pod for pod in found.reserved if pod.node not in upcoming),
            choices=self._choices,
        )

    def _overdue_nodes(self) -> Iterator[Node]:
        """Yield the nodes that missed their deadline and may still register. They count toward the limits."""
        starting = Counter(self._inputs.starting.values())
        for group in self._groups:
            more = group.upcoming + starting[group.id] - self._inputs.upcoming.get(group.id, group.upcoming)
            template = self._templates.get(group.id)
            if more > 0 and template is not None:
                yield from [template.node] * min(more, MAX_ADDED)

    def _raise_to_minimum(self) -> dict[str, str]:
        """Raise groups to their minimum size if the spec enables this.

        Returns:
            Group ids by the names of the new nodes.
        """
        spec = self._inputs.spec
        if self._inputs.cluster_unhealthy or spec.enforce_node_group_min_size != "Enabled":
            return {}
        paused = {
            group.id: limit_reason for group in self._groups if (limit_reason := self._paused_reason(group)) is not None
        }
        self._minimum = raise_to_minimum(self._groups, self._templates, paused, self._headroom, spec.resource_limits)
        names = {}
        for id_, number in self._minimum.added.items():
            template = self._templates.get(id_)
            for each in range(1, min(number, MAX_ADDED) + 1 if template is not None else 1):
                names[f"minimum-{each}-of-{id_}"] = id_
        for name, id_ in names.items():
            add_template_node(self._snapshot, self._templates[id_], name)
        return names

    def _add_nodes(self, found: Sequence[PodClass]) -> list[Kept]:
        """Add nodes for the classes as far as possible, and return the entries for pods that remain pending.

        First the nodes are planned for all pods together. If that plan leaves out pods of one namespace while others
        get nodes, or exceeds a namespace's limit, nodes are shared out among namespaces instead.
        """
        skipped: list[PodClass] = []
        problem = self._problem(found, skipped)
        mark = self._snapshot.mark()
        made = NodeAdditions(problem, self._headroom.copy(), self._inputs.budget.stage(_PACKING / 2))
        made.add()
        shares = self._namespace_shares = self._shares(made, problem)
        if shares is None:
            self._snapshot.commit(mark)
        else:
            self._snapshot.undo(mark)
            made = add_fairly(problem, self._headroom, shares, self._inputs.budget.stage(_PACKING / 2))
        self._headroom, self._nodes, self._decided = made.headroom, made.nodes, made.decided
        self._choices = tuple(made.choices)
        late = (deadline_exceeded(pod, self._inputs.budget) for each in skipped for pod in each.pods)
        return [*self._explain(made.waiting), *late]

    def _problem(self, found: Sequence[PodClass], skipped: list[PodClass]) -> AdditionInputs:
        """Return the inputs for planning new nodes.

        Classes that were not evaluated in time are added to ``skipped``.
        """
        spec = self._inputs.spec
        candidates, fits = self._fitting_groups(found, skipped)
        late = {each.number for each in skipped}
        found = [each for each in found if each.number not in late]
        rows = {each.number: self._snapshot.row(each.first.spec) for each in found}
        finder = balancing.SimilarGroupFinder(
            candidates, spec.balancing_ignored_labels, enabled=spec.balance_similar_node_groups
        )
        return AdditionInputs(
            snapshot=self._snapshot,
            placer=self._placer,
            templates=self._templates,
            candidates=candidates,
            classes=found,
            rounds=rounds_by_soft_taints(fits, found, candidates),
            rows=rows,
            conflicts=find_conflicts(found, self._snapshot),
            finder=finder,
            expanders=spec.expanders,
            priorities=self._inputs.priorities,
            seed=_seed(self._snapshot, found) if "Random" in spec.expanders else "",
            advice=self._inputs.advice,
        )

    def _shares(self, made: NodeAdditions, problem: AdditionInputs) -> NamespaceShares | None:
        """Return how many nodes each namespace uses, not counting planned ones, to redistribute an unfair plan.

        Return ``None`` if the plan is fair. A plan is unfair if it adds nodes but leaves pods pending that would fit in
        some group, or if a namespace exceeds its limit.
        """
        limit = self._inputs.spec.resource_limits.max_nodes_per_namespace or 0
        namespaces = {each.first.namespace for each in problem.classes}
        left = [each for each in made.waiting.classes() if any(fits[each.number] for fits in problem.rounds)]
        if not made.nodes and not (limit and left):
            return None
        short = len(namespaces) > 1 and bool(left)
        if not short and not limit:
            return None
        names = dict.fromkeys(name for group in self._groups for name in group.nodes)
        shares = NamespaceShares(self._snapshot, names | dict.fromkeys(self._upcoming), limit)
        planned = shares.copy()
        for node in made.nodes:
            planned.add(node.pods, self._templates[node.group].node.allocatable)
        return shares if short or left or planned.exceeded(namespaces) else None

    def _fitting_groups(
        self, found: Sequence[PodClass], skipped: list[PodClass]
    ) -> tuple[list[ScaleUpCandidate], dict[int, frozenset[str]]]:
        """Return the groups that can be scaled up, and for each class number, the ids of those that fit the class."""
        usable = [group for group in self._groups if group.id in self._templates and not self._paused_reason(group)]
        ordered = self._inputs.budget.stage(_ASKING).fair_order(found, _namespace, _cost, skipped)
        candidates, fits = find_fitting_groups(
            self._snapshot, self._placer, self._templates, groups=usable, found=ordered
        )
        helpful = frozenset().union(*fits.values())
        return [each for each in candidates if each.group.id in helpful], fits

    def _paused_reason(self, group: NodeGroup) -> LimitReason | None:
        return self._inputs.paused_reason(group)

    def verdicts(self, pod: Pod) -> tuple[GroupVerdict, ...]:
        """Return the verdict of each group for a pod after :meth:`plan`."""
        with probe_nodes(self._snapshot, self._templates.values()) as slots:
            planned = self._snapshot.pods.get(pod.key, pod)
            pending = self._placer.unbind(planned) if planned.node else planned
            return group_verdicts(
                self._placer.diagnose(pending), self._context(slots, self._group_limits(), pod.namespace)
            )

    def _context(
        self, slots: Mapping[str, int], limits: Mapping[str, LimitReason], namespace: str
    ) -> ExplanationContext:
        """Return the information about groups for the pods of a namespace.

        Args:
            slots: slots of a new node of each group, by group id.
            limits: the result of :meth:`_group_limits`.
            namespace: the namespace of the pods.
        """
        limit = None if self._namespace_shares is None else self._namespace_shares.limit_reason(namespace)
        return ExplanationContext(self._groups, slots, limits if limit is None else dict.fromkeys(slots, limit))

    def _group_limits(self) -> dict[str, LimitReason]:
        """Return the reason why a group cannot be scaled up further, by group id."""
        found = {}
        for group in self._groups:
            if group.id in self._templates:
                limit = self._paused_reason(group) or self._headroom.limit_reason(group, self._templates[group.id].node)
                if limit is not None:
                    found[group.id] = limit
        return found

    def _explain(self, waiting: UnplacedPods) -> list[Kept]:
        left = waiting.classes()
        if not left:
            return []
        entries = []
        with probe_nodes(self._snapshot, self._templates.values()) as slots:
            limits = self._group_limits()
            skipped: list[PodClass] = []
            for each in self._inputs.budget.stage(_EXPLAINING).fair_order(left, _namespace, _cost, skipped):
                context = self._context(slots, limits, each.first.namespace)
                entries += explain(waiting.pods(each.number), self._placer.diagnose(each.first), context)
            entries += (
                deadline_exceeded(pod, self._inputs.budget) for each in skipped for pod in waiting.pods(each.number)
            )
        unfitting = {f"{each.namespace}/{each.name}" for each in entries if each.reason == reasons.NO_GROUP_FITS}
        classes = [each for each in left if waiting.pods(each.number)[0].key in unfitting]
        self._blocking_daemon_sets = daemon_sets_blocking_pods(
            self._snapshot, self._placer, self._templates.values(), classes
        )
        return entries

    def _all_nodes(self) -> list[Node]:
        return [node for node in self._snapshot.nodes.at if node is not None]


def _namespace(each: PodClass) -> str:
    return each.first.namespace


def _cost(each: PodClass) -> int:
    return planning_cost(each.first.spec)


def _problem_entry(problem: ObjectProblem) -> Kept:
    return Kept(
        kind=problem.kind,
        namespace=problem.namespace,
        name=problem.name,
        strategy=STRATEGY,
        reason=problem.reason,
        message=problem.message,
    )


def _seed(snapshot: Snapshot, found: Sequence[PodClass]) -> str:
    """Return the seed of the Random expander. Identical cluster states yield the same seed."""
    digest = hashlib.sha256()
    for name in sorted(snapshot.nodes.slot_of):
        digest.update(name.encode() + b"\0")
    for each in found:
        for pod in each.pods:
            digest.update(pod.key.encode() + b"\1")
    return digest.hexdigest()


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
