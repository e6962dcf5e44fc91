"""Plans replacements: fewer or cheaper nodes of other groups in place of existing ones.

This module does no I/O and reads no clock. It plans only while the cluster is at rest: no node is upcoming or being
removed. It ranks the drainable nodes by the price that is saved per moved pod, and searches for the longest prefix of
that list whose pods fit on cheaper nodes. Each plan must lower the price by at least a threshold, so that plans cannot
alternate.

The pods of one namespace must not prevent replacements of nodes that have only pods of other namespaces:

- A pending pod prevents only the replacement of the node on which it will run, and replacements by nodes on which it
  could take the place of a moved pod.
- Nodes with pods that block the drain, fit nowhere or use up the time of the plan are left out or come last. Others are
  evaluated in their place.
- If there are many such nodes, the planner evaluates the other nodes in a random order.
- If the best-ranked nodes are not replaced for another reason, e.g. because their pods fit on existing nodes or need
  equally expensive ones, the plan also tries some nodes at random, each alone.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.cluster_autoscaler import KIND, NAME, ResourceLimits
from trimtab.api.cluster_autoscaler_status import MAX_REPLACED, ReplacedNode, Replacement, ReplacingGroup
from trimtab.api.plan import Kept, ScaleUp
from trimtab.autoscaling.groups import Groups, MachineState, NodeGroup
from trimtab.autoscaling.replace.candidates import ReplacementCandidate, ReplacementCandidates
from trimtab.autoscaling.replace.replacement_state import DRAIN_TIMEOUT, ENABLED, ReplacementState
from trimtab.autoscaling.scale_down.eligibility import scale_down_delay
from trimtab.autoscaling.scale_down.planner import ScaleDownPlan
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan
from trimtab.autoscaling.scale_up.balancing import SimilarGroupFinder
from trimtab.autoscaling.scale_up.binpacking import CountingEstimator, assign_pods
from trimtab.autoscaling.scale_up.coscheduling import CoschedulingEstimator
from trimtab.autoscaling.scale_up.expanders import ExpanderContext, choose, price_of
from trimtab.autoscaling.scale_up.limits import Headroom
from trimtab.autoscaling.scale_up.options import ScaleUpCandidate, find_fitting_groups
from trimtab.autoscaling.scale_up.pending_pods import place_on_existing
from trimtab.autoscaling.scale_up.pod_classes import (
    PodClass,
    UnplacedPods,
    build_pod_classes,
    find_conflicts,
    group_equal_pods,
)
from trimtab.autoscaling.scale_up.upcoming_nodes import add_template_node
from trimtab.autoscaling.template import NodeTemplate, build_templates
from trimtab.autoscaling.template.node_template import TO_BE_DELETED
from trimtab.cluster.disruption_signals import as_removed
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.placement.placer import Placer, hold_nominated
from trimtab.placement.plan_budget import PlanBudget, planning_cost

_IGNORED_REASONS: Final = frozenset(
    {
        reasons.TERMINATING,
        reasons.SCHEDULING_GATED,
        reasons.DAEMON_SET_POD,
        reasons.PRIORITY_BELOW_THRESHOLD,
        reasons.POD_TOO_COMPLEX,
        reasons.NAMESPACE_TOO_COMPLEX,
        reasons.NOT_UNSCHEDULABLE,
        reasons.NO_GROUP_FITS,
    }
)
"""Reasons why a pending pod takes no room on new nodes.

It needs no node, fits on no new node, or its scheduler has not looked for one. A tenant can name a scheduler that does
not exist.
"""


def not_at_rest_reason(
    snapshot: Snapshot,
    groups: Groups,
    inputs: PlanInputs,
    *,
    replacements: ReplacementState,
    up: ScaleUpPlan,
    down: ScaleDownPlan,
) -> str:
    """Return the reason why no node may be replaced now; empty if the cluster is at rest.

    Args:
        snapshot: the cluster state.
        groups: the node groups of the snapshot.
        inputs: the inputs of the plan.
        replacements: the replacements in progress.
        up: the scale-ups of the same plan.
        down: the removals of the same plan.
    """
    if inputs.cluster_unhealthy or replacements.waiting_reason:
        return inputs.cluster_unhealthy or replacements.waiting_reason
    if up.actions:
        return "this plan adds nodes"
    for group in groups.all:
        if inputs.upcoming.get(group.id, group.upcoming):
            return f"nodes of {group.kind} {group.key} are upcoming"
        if any(each.marked for each in group.machines) or group.in_state(MachineState.DELETING):
            return f"machines of {group.kind} {group.key} are being deleted"
    if down.actions or down.unneeded:
        return "unneeded nodes are removed first"
    removing = sorted(node.name for node in snapshot.nodes.at if node is not None and _is_being_removed(node))
    if removing:
        return f"node {removing[0]} is being removed"
    late = scale_down_delay(inputs.spec, inputs.status, now=inputs.now)
    return "" if late is None else late.message


def _is_being_removed(node: Node) -> bool:
    return node.deleted is not None or any(taint.key == TO_BE_DELETED for taint in node.taints)


_CHEAPEST: Final = ("Price", "LeastWaste")
_NO_CONTEXT: Final = ExpanderContext()

NewNodes = list[tuple[str, tuple[Pod, ...]]]
"""New nodes: the group's id, and the pods that are placed on the node."""


class TrialResult(Struct, frozen=True):
    """The result of trying to replace a set of nodes.

    Attributes:
        new: the new nodes that the pods need; ``None`` if a pod does not fit.
        stuck: names of the nodes because of which the set cannot be replaced: one of their pods fits on no node, or
            the time of the plan does not suffice for them.
    """

    new: NewNodes | None
    stuck: frozenset[str] = frozenset()


_FAILED: Final = TrialResult(None)


class ReplacementTrial:
    """Determines the new nodes with which a set of nodes could be replaced.

    Args:
        snapshot: the cluster state. It is restored after each trial.
        placer: places pods on the snapshot.
        templates: the node templates by group id.
        limits: ``resourceLimits`` of the ClusterAutoscaler. Old and new nodes exist at the same time during a
            replacement.
        budget: the time limit of the plan.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        placer: Placer,
        templates: Mapping[str, NodeTemplate],
        limits: ResourceLimits,
        budget: PlanBudget,
    ) -> None:
        self._snapshot = snapshot
        self._budget = budget
        self._placer = placer
        self._templates = templates
        self._limits = limits
        self._everything = [node for node in snapshot.nodes.at if node is not None]

    def try_nodes(self, nodes: Sequence[Node], pods: Iterable[Pod], groups: Sequence[NodeGroup]) -> TrialResult:
        """Return the new nodes that the pods need.

        Args:
            nodes: the nodes to remove.
            pods: their pods that need another node, in any order.
            groups: the groups that may be scaled up.
        """
        in_order = sorted(pods, key=lambda each: (-each.priority, each.key))
        old = {pod.key: pod.node for pod in in_order}
        with self._snapshot.fork():
            hold_nominated(self._snapshot)
            lifted = [self._placer.displace(pod) for pod in in_order]
            for node in nodes:
                self._snapshot.put(as_removed(node))
            found = place_on_existing(self._placer, group_equal_pods(lifted), {}, self._budget)
            if len(found.reserved) + sum(map(len, found.unplaced)) < len(lifted):
                return _FAILED  # pods were skipped because of the time limit
            left = build_pod_classes(found.unplaced, self._snapshot)
            if not left:
                return TrialResult([])
            candidates, fits = find_fitting_groups(
                self._snapshot, self._placer, self._templates, groups=groups, found=left
            )
            waiting = UnplacedPods(left)
            stuck = [pod for each in left if not fits[each.number] for pod in each.pods]
            new = [] if stuck else self._scale_up_for(left, waiting, candidates, fits)
            # Countable pods are left over only because of limits, to which the pods of all nodes contribute.
            stuck += [pod for each in waiting.classes(countable=False) for pod in waiting.pods(each.number)]
            return TrialResult(None if waiting else new, frozenset(old[pod.key] for pod in stuck))

    def _scale_up_for(
        self,
        left: Sequence[PodClass],
        waiting: UnplacedPods,
        candidates: Sequence[ScaleUpCandidate],
        fits: Mapping[int, frozenset[str]],
    ) -> NewNodes:
        """Return new nodes for unplaced pods, and remove the pods that fit on them from ``waiting``."""
        headroom = Headroom(self._limits, self._everything)
        rows = {each.number: self._snapshot.row(each.first.spec) for each in left}
        finder = SimilarGroupFinder(candidates, (), enabled=False)
        counting = CountingEstimator(fits, rows, find_conflicts(left, self._snapshot), finder)
        new: NewNodes = []
        while options := counting.options(candidates, waiting, headroom):
            option, _ = choose(options, _CHEAPEST, _NO_CONTEXT)
            headroom.reserve(option.group, option.candidate.template.node, option.nodes)
            new += [(option.group.id, pods) for pods in assign_pods(option.packing, waiting)]
        if waiting.classes(countable=False):
            self._coschedule(waiting, new, headroom, candidates, fits)
        return new

    def _coschedule(
        self,
        waiting: UnplacedPods,
        new: NewNodes,
        headroom: Headroom,
        candidates: Sequence[ScaleUpCandidate],
        fits: Mapping[int, frozenset[str]],
    ) -> None:
        """Place pods that depend on other pods on the new nodes found so far and on further new nodes."""
        names = []
        for number, (id_, pods) in enumerate(new, start=1):
            names.append(f"new-{number:06}-of-{id_}")
            add_template_node(self._snapshot, self._templates[id_], names[-1])
            for pod in pods:
                self._snapshot.move(pod, names[-1])
        together = CoschedulingEstimator(
            self._placer, headroom, candidates, fits, opened=len(names), budget=self._budget
        )
        while True:
            for place, pod in together.join(waiting, names):
                new[place] = (new[place][0], (*new[place][1], pod))
            options = together.options(waiting)
            if not options:
                return
            option, _ = choose(options, _CHEAPEST, _NO_CONTEXT)
            for name, pods in together.commit(option, waiting):
                names.append(name)
                headroom.reserve(option.group, option.candidate.template.node, 1)
                new.append((option.group.id, pods))


STRATEGY: Final = "Replace"
"""The strategy name in a plan's reasons for replacements."""

MAX_TRIALS: Final = 24
"""Maximum number of node sets that one plan tries. Most iterations find no replacement and must be fast."""
RANDOM_TRIALS: Final = 9
"""Maximum number of single nodes at random that a plan also tries if none of these sets saves enough."""
MAX_FAMILIES: Final = 8
"""Maximum number of groups whose nodes are also tried separately from those of other groups."""

_COMPETING: Final = 0.25
"""Share of the planning time for pending pods that could take the room of moved pods."""

_LENGTHS: Final = (MAX_REPLACED, 15, 10, 7, 5, 4, 3, 2, 1)
_NAMED: Final = 3


class ReplacementOption(Struct, frozen=True):
    """A set of nodes, and the new nodes that could replace it.

    Attributes:
        old: the nodes to remove.
        new: the new nodes, each with its pods.
        before: the total price of the old nodes per hour.
        after: the total price of the new nodes per hour.
    """

    old: tuple[ReplacementCandidate, ...]
    new: NewNodes
    before: Fraction
    after: Fraction

    @property
    def saved(self) -> Fraction:
        """Return the saving as a fraction of the price of the old nodes."""
        return (self.before - self.after) / self.before

    @property
    def merit(self) -> tuple[Fraction, int, int]:
        """Return the sort key. Larger is better: the saving, then fewer pods that move, then fewer nodes."""
        return self.before - self.after, -sum(len(each.moving) for each in self.old), -len(self.old)


class ReplacePlan(Struct, frozen=True):
    """The result of the replacement planner.

    Attributes:
        actions: scale-ups for the new nodes, by group id.
        record: the replacement to write to the status when the new nodes are requested; ``None`` if nothing is
            replaced.
        kept: the reasons why no node is replaced, or why the nodes of a group are not replaced.
    """

    actions: tuple[ScaleUp, ...] = ()
    record: Replacement | None = None
    kept: tuple[Kept, ...] = ()


def plan(
    snapshot: Snapshot,
    groups: Groups,
    inputs: PlanInputs,
    *,
    replacements: ReplacementState,
    up: ScaleUpPlan,
    down: ScaleDownPlan,
) -> ReplacePlan:
    """Plan which nodes to replace, and the new nodes.

    Args:
        snapshot: the cluster state. It is changed while planning and restored afterwards.
        groups: the node groups of the snapshot.
        inputs: the inputs of the plan, including the ClusterAutoscaler's spec.
        replacements: the replacements in progress.
        up: the scale-ups of the same plan.
        down: the removals of the same plan.
    """
    scaling = inputs.spec.scaling_down
    if scaling.replace != ENABLED or not scaling.enabled:
        return ReplacePlan()
    against = not_at_rest_reason(snapshot, groups, inputs, replacements=replacements, up=up, down=down)
    if against:
        return ReplacePlan(kept=(_kept(KIND, "", NAME, reasons.REPLACEMENT_WAITS, against),))
    with snapshot.fork():
        return _ReplacementPlanner(snapshot, groups, inputs, up).plan()


class _ReplacementPlanner:
    def __init__(self, snapshot: Snapshot, groups: Groups, inputs: PlanInputs, up: ScaleUpPlan) -> None:
        self._snapshot, self._groups, self._inputs = snapshot, groups, inputs
        self._prices = {group.id: price for group in groups.all if (price := price_of(group)) is not None}
        priced = [group for group in groups.all if group.id in self._prices]
        made = build_templates(snapshot, priced, now=inputs.now, spec=inputs.spec)
        self._templates: Mapping[str, NodeTemplate] = made.of_group
        self._targets = [group for group in priced if self._may_scale_up(group)]
        self._placer = Placer(snapshot)
        limits = inputs.spec.resource_limits
        self._trial = ReplacementTrial(snapshot, self._placer, self._templates, limits, inputs.budget)
        self._trials = MAX_TRIALS
        self._up = up

    def plan(self) -> ReplacePlan:
        """Make the plan. The snapshot must be a fork, because it is changed."""
        # 1. Reserve room for pending pods, on existing nodes and on the new nodes that they could occupy.
        receivers = self._reserve_pending()
        competing = self._competing_pods() if len(self._prices) > 1 and self._targets else {}
        self._targets = [group for group in self._targets if group.id not in competing]
        # 2. Find the best nodes to replace.
        unpriced = (
            *(_unpriced(group) for group in self._groups.all if group.id not in self._prices and group.nodes),
            *(_competing(self._groups.by_id[id_], pod) for id_, pod in sorted(competing.items())),
        )
        if len(self._prices) < 2 or not self._targets:
            return ReplacePlan(kept=unpriced)
        candidates = ReplacementCandidates(
            self._snapshot, self._placer, self._groups, self._inputs, self._prices, receivers
        )
        best, tried = self._best(candidates), candidates.groups
        if best is None or best.saved < self._threshold:
            message = self._not_cheaper(best)
            kept_groups = [
                _kept(group.kind, group.namespace, group.name, reasons.NOT_CHEAPER, message) for group in tried
            ]
            return ReplacePlan(kept=(*unpriced, *kept_groups))
        return ReplacePlan(self._actions(best), self._record(best), unpriced)

    def _reserve_pending(self) -> frozenset[str]:
        """Bind pending pods to the existing nodes that the scale-up plan chose, and return the names of these nodes."""
        for pod in self._up.reserved:
            self._placer.reserve(replace(pod, node=""), self._snapshot.nodes.slot_of[pod.node])
        return frozenset(pod.node for pod in self._up.reserved)

    def _competing_pods(self) -> dict[str, str]:
        """Return a pending pod for each group on whose new nodes the scheduler could run it in place of moved pods.

        Such a pod stays pending because of a limit or a delay. If nodes for other pods were added, it could exceed the
        limit of its namespace. A pod that is not evaluated in time counts for all groups.
        """
        left = [
            pod
            for each in self._up.kept
            if each.kind == "Pod" and each.reason not in _IGNORED_REASONS
            if (pod := self._snapshot.pods.get(f"{each.namespace}/{each.name}")) is not None and not pod.node
        ]
        if not left:
            return {}
        classes = build_pod_classes(group_equal_pods(left), self._snapshot)
        skipped: list[PodClass] = []
        in_turn = self._inputs.budget.stage(_COMPETING).fair_order(
            classes, lambda each: each.first.namespace, lambda each: planning_cost(each.first.spec), skipped
        )
        _, fits = find_fitting_groups(
            self._snapshot, self._placer, self._templates, groups=self._targets, found=in_turn
        )
        if skipped:  # the time did not suffice to determine the groups
            return {group.id: skipped[0].first.key for group in self._targets}
        found: dict[str, str] = {}
        for each in classes:
            for id_ in fits.get(each.number, ()):
                found.setdefault(id_, each.first.key)
        return found

    @property
    def _threshold(self) -> Fraction:
        return Fraction(self._inputs.spec.scaling_down.replace_threshold)

    def _may_scale_up(self, group: NodeGroup) -> bool:
        inputs = self._inputs
        blocked = group.paused or any(
            group.id in words for words in (inputs.backoff, inputs.unhealthy_groups, inputs.unobserved_requests)
        )
        return not blocked and group.id in self._templates and group.target < group.maximum

    def _best(self, candidates: ReplacementCandidates) -> ReplacementOption | None:
        """Return the first option that saves enough, or the best one if none does.

        Options for nodes of all groups come first, then options for each group, and then those for nodes at random.
        """
        best: ReplacementOption | None = None
        groups = candidates.groups
        families: tuple[NodeGroup | None, ...] = (None, *groups) if len(groups) > 1 else groups
        for family in families[: 1 + MAX_FAMILIES]:
            found = self._best_of(candidates, family)
            if found is not None and (best is None or found.merit > best.merit):
                best = found
            if self._suffices(best):
                return best
        return (self._random_option(candidates) if groups else None) or best

    def _random_option(self, candidates: ReplacementCandidates) -> ReplacementOption | None:
        """Return an option for one node of a random group that saves enough; ``None`` if none of those tried does.

        A set of several nodes at random could move pods for nothing, because one of the nodes may save enough for all.
        """
        self._trials = RANDOM_TRIALS
        order = random.Random(int(self._inputs.now))
        for each in candidates.of(order.choice(candidates.groups), order=order):
            found = self._option([each], self._try([each]).new or None)
            if self._suffices(found):
                return found
        return None

    def _best_of(self, candidates: ReplacementCandidates, family: NodeGroup | None) -> ReplacementOption | None:
        """Return the best option among the nodes of a group; ``None`` for the nodes of all groups.

        Nodes that a trial found stuck are left out. If no option saves enough without them, other nodes are collected
        in their place. Sets with stuck nodes come last, because all of their prefixes may contain such nodes.
        """
        best: ReplacementOption | None = None
        stuck: set[str] = set()
        with_stuck: list[Sequence[ReplacementCandidate]] = []
        accepted: Sequence[ReplacementCandidate] = ()
        while not self._suffices(best):
            collected = candidates.of(family, stuck)
            if [each.node for each in collected] == [each.node for each in accepted]:
                break
            accepted = collected
            while (result := self._try(accepted)).stuck:
                with_stuck.append(accepted)
                stuck |= result.stuck
                accepted = [each for each in accepted if each.node.name not in stuck]
            best = self._better(best, self._best_prefix(accepted, result))
            if not stuck:
                break
        while with_stuck and not self._suffices(best):
            best = self._better(best, self._best_prefix(with_stuck.pop(), _FAILED))
        return best

    def _best_prefix(self, accepted: Sequence[ReplacementCandidate], result: TrialResult) -> ReplacementOption | None:
        """Return the best option among the nodes, whose trial had this result, and their prefixes."""
        best: ReplacementOption | None = None
        for length in (len(accepted), *(length for length in _LENGTHS if length < len(accepted))):
            if length < len(accepted):
                result = self._try(accepted[:length])
            if result.new == []:
                break  # the pods fit on existing nodes, so neither this set nor a part of it needs a replacement
            best = self._better(best, self._option(accepted[:length], result.new))
        return best

    def _better(self, best: ReplacementOption | None, found: ReplacementOption | None) -> ReplacementOption | None:
        options = [each for each in (best, found) if each is not None]
        return max(options, key=lambda each: (self._suffices(each), each.merit), default=None)

    def _suffices(self, option: ReplacementOption | None) -> bool:
        return option is not None and option.saved >= self._threshold

    def _try(self, old: Sequence[ReplacementCandidate]) -> TrialResult:
        """Try to replace a set of nodes, as long as trials and time are left."""
        sources = {each.group.id for each in old}
        targets = [group for group in self._targets if group.id not in sources]
        budget = self._inputs.budget
        if not old or not targets or not self._trials:
            return _FAILED
        late = frozenset(each.node.name for each in old if any(budget.exceeded(name) for name in each.slow))
        if late or budget.over:
            return TrialResult(None, late)
        self._trials -= 1
        pods = (pod for each in old for pod in each.moving)
        return self._trial.try_nodes([each.node for each in old], pods, targets)

    def _option(self, old: Sequence[ReplacementCandidate], new: NewNodes | None) -> ReplacementOption | None:
        before = sum((self._prices[each.group.id] for each in old), start=Fraction(0))
        if new is None or not before:
            return None
        after = sum((self._prices[id_] for id_, _ in new), start=Fraction(0))
        return ReplacementOption(tuple(old), new, before, after)

    def _not_cheaper(self, best: ReplacementOption | None) -> str:
        threshold = f"replaceThreshold is {_percent(self._threshold)}"
        if best is None:
            return f"the pods of its drainable nodes do not fit on nodes of other groups; {threshold}"
        if best.after >= best.before:
            return f"nodes of other groups would not be cheaper; {threshold}"
        return f"the best option saves {_percent(best.saved)}; {threshold}"

    def _actions(self, best: ReplacementOption) -> tuple[ScaleUp, ...]:
        counts = Counter(id_ for id_, _ in best.new)
        return tuple(self._action(self._groups.by_id[id_], counts[id_], best) for id_ in sorted(counts))

    def _action(self, group: NodeGroup, nodes: int, best: ReplacementOption) -> ScaleUp:
        names = [each.node.name for each in best.old]
        shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        moved = sum(len(each.moving) for each in best.old)
        return ScaleUp(
            machine_set=group.key,
            from_=group.target,
            to=group.target + nodes,
            reason=reasons.REPLACEMENT,
            pods=(),  # these would be reported and counted as pending pods
            message=(
                f"{plural(len(best.new), 'new node')} for {float(best.after):g} an hour in place of "
                f"{plural(len(names), 'node')} for {float(best.before):g}: {shown}; saves {_percent(best.saved)}, "
                f"replaceThreshold is {_percent(self._threshold)}; {plural(moved, 'pod')} to move"
            ),
            group=group.id,
        )

    def _record(self, best: ReplacementOption) -> Replacement:
        counts = dict(sorted(Counter(id_ for id_, _ in best.new).items()))
        own = (self._groups.by_id[id_].options.provision_seconds for id_ in counts)
        usual = self._inputs.spec.provision_seconds
        now = int(self._inputs.now)
        deadline = now + max(usual if each is None else each for each in own) + DRAIN_TIMEOUT
        return Replacement(
            nodes=tuple(ReplacedNode(each.node.name, each.node.uid) for each in best.old),
            groups=tuple(
                ReplacingGroup(id_, self._groups.by_id[id_].target, self._groups.by_id[id_].target + count)
                for id_, count in counts.items()
            ),
            since=datetime.fromtimestamp(now, UTC),
            deadline=datetime.fromtimestamp(int(deadline), UTC),
            message=f"0 of {sum(counts.values())} new nodes are ready",
        )


def _competing(group: NodeGroup, pod: str) -> Kept:
    message = f"the pending pod {pod} could take the room that new nodes of this group have for moved pods"
    return _kept(group.kind, group.namespace, group.name, reasons.REPLACEMENT_WAITS, message)


def _unpriced(group: NodeGroup) -> Kept:
    message = "its annotation trimtab.dev/price is missing or is not a price per hour"
    return _kept(group.kind, group.namespace, group.name, reasons.PRICE_UNKNOWN, message)


def _kept(kind: str, namespace: str, name: str, reason: str, message: str) -> Kept:
    return Kept(kind=kind, namespace=namespace, name=name, strategy=STRATEGY, reason=reason, message=message)


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.3g}%"
