"""RemovePodsViolatingNodeTaints: evicts pods that do not tolerate the taints of their node."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.api.reasons import NODE_TAINTS_VIOLATED
from trimtab.api.strategies import NodeTaintsParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.planning.context import PlacementPreference, StrategyContext
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import victim_order
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.outcome import Refusal
from trimtab.kube.objects import Pod, PodSpec, Taint
from trimtab.kube.rules.taints import (
    DELETION_CANDIDATE,
    KARPENTER_DISRUPTED,
    KARPENTER_DISRUPTION,
    NO_SCHEDULE,
    NOT_READY,
    PREFER_NO_SCHEDULE,
    TO_BE_DELETED,
    TRIMTAB_PRESSURE_DOMAIN,
    UNREACHABLE,
    format_taint,
    tolerates,
)
from trimtab.placement.placer import Placer

_TOLERATION_SECONDS: Final = frozenset({NOT_READY, UNREACHABLE})
"""Keys of taints that also exist with NoExecute. A pod's ``tolerationSeconds`` determines when it is evicted."""

_REMOVING: Final = frozenset({TO_BE_DELETED, KARPENTER_DISRUPTED, KARPENTER_DISRUPTION})
"""Keys of taints on nodes that cluster-autoscaler, trimtab's autoscaler or karpenter is draining.

These components evict the pods themselves.
"""

_AUTOSCALERS: Final = _REMOVING | {DELETION_CANDIDATE}
"""The taints in ``_REMOVING``, and the taint on nodes that may be removed soon."""


class TaintCounts(Struct, frozen=True):
    """The number of taints that pods with one spec do not tolerate, by taint set (:attr:`NodeTable.taint_sets`).

    Attributes:
        spec: the spec, which is referenced so that its id stays valid.
        hard: number of NoSchedule taints.
        soft: number of PreferNoSchedule taints.
        soft_by_slot: number of PreferNoSchedule taints by slot: int64, shape (nodes.capacity,).
        lightest: the lowest number of PreferNoSchedule taints on an eligible node, regardless of free capacity;
            ``None`` if no node is eligible.
    """

    spec: PodSpec
    hard: list[int]
    soft: list[int]
    soft_by_slot: IntArray
    lightest: int | None


class RemovePodsViolatingNodeTaints(Strategy[NodeTaintsParams]):
    """Evicts pods because of NoSchedule taints first, then because of PreferNoSchedule taints if these are enabled.

    NoSchedule: a pod is moved if it does not tolerate such a taint on its node, and another node can run it.
    PreferNoSchedule: a pod is moved if a node with fewer such taints can run it. The taint manager handles NoExecute
    taints. It also handles ``not-ready`` and ``unreachable`` with any effect unless ``includedTaints`` names them,
    because a pod that tolerates them for five minutes should not be evicted earlier. All taints of a node that a
    cluster autoscaler is removing are ignored, since the autoscaler evicts its pods. The taints of nodes under pressure
    (``pressure.trimtab.dev/``) are ignored unless ``includedTaints`` names them, because the node-pressure controller
    evicts only as many pods as necessary.
    """

    NAME = "RemovePodsViolatingNodeTaints"
    objection_text = "node(s) had more PreferNoSchedule taints that the pod does not tolerate"

    def __init__(self, params: NodeTaintsParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        nodes = self.snapshot.nodes
        effects = {NO_SCHEDULE, PREFER_NO_SCHEDULE} if params.include_prefer_no_schedule else {NO_SCHEDULE}
        self._looked_at: list[tuple[Taint, ...]] = [
            ()
            if _being_removed(params, taints)
            else tuple(taint for taint in taints if taint.effect in effects and _considers(params, taint))
            for taints in nodes.taint_sets
        ]
        """The taints that the policy enforces, by taint set."""
        self._set_of: list[int] = nodes.taints.tolist()
        self._sources = tuple(slot for slot in scope.sources if self._looked_at[self._set_of[slot]])
        self._anywhere: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
        self._counts: dict[int, TaintCounts] = {}
        self._by_slot: dict[tuple[int, ...], IntArray] = {}
        self._stuck: dict[tuple[int, int, int], tuple[int, Refusal]] = {}

    def plan(self, context: StrategyContext) -> None:
        """Plan moves node by node, in the order of node names, and in victim order on each node."""
        for slot in self._sources:
            for pod in sorted(context.candidates(slot, self._breaks_a_rule), key=victim_order):
                self._repair(context, pod, slot)
        if not self.params.include_prefer_no_schedule:
            return
        for slot in self._sources:
            pods = context.candidates(slot, lambda pod: self._soft(pod) > 0 and not self._breaks_a_rule(pod))
            for pod in sorted(pods, key=lambda pod: victim_order(pod, self._excess(pod))):
                self._repair(context, pod, slot)

    def measure(self) -> Measure:
        """Return the number of pods with untolerated NoSchedule taints and of avoidable PreferNoSchedule taints."""
        broken, spared = 0, 0
        for slot in self._sources:
            for pod in self.snapshot.pods_on(self.snapshot.nodes.node(slot).name):
                if not pod.terminal and pod.deleted is None and self.scope.covers(pod):
                    broken += self._breaks_a_rule(pod)
                    spared += self._excess(pod)
        return float(broken), float(spared)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots with more PreferNoSchedule taints than the pod's current node and the best eligible node."""
        if not self.params.include_prefer_no_schedule:
            return ()
        counts = self._counts_of(pod)
        if counts.lightest is None:
            return ()
        borne = max(counts.lightest, counts.soft[self._taint_set_of(pod)])
        more: list[int] = np.flatnonzero(counts.soft_by_slot > borne).tolist()
        return more

    def may_object(self) -> bool:
        """Return whether the policy enforces PreferNoSchedule taints."""
        return self.params.include_prefer_no_schedule

    def _repair(self, context: StrategyContext, pod: Pod, slot: int) -> None:
        counts, home = self._counts_of(pod), self._set_of[slot]
        hard, soft = counts.hard[home], counts.soft[home]
        alike = (id(pod.spec), hard, soft)
        known = self._stuck.get(alike)
        found: int | Refusal | None = context.blocker(pod)
        if (
            found is None
            and known is not None
            and known[0] == len(context.plan_state.actions)
            and self.placer.ignores_other_pods(pod)
        ):
            found = known[1]  # thousands of pods of one template may fit no other node
        if found is None:
            found = context.find_node(pod, self._preference(counts, hard, soft))
            if isinstance(found, Refusal) and self.placer.ignores_other_pods(pod):
                self._stuck[alike] = (len(context.plan_state.actions), found)
        if isinstance(found, int):
            text = self._message(pod, slot, found)
            refused = context.plan_move(pod, found, reason=NODE_TAINTS_VIOLATED, message=text)
        else:
            refused = found
        if refused is not None:
            context.keep(pod, refused.reason, refused.message)

    def _preference(self, counts: TaintCounts, hard: int, soft: int) -> PlacementPreference:
        """Return a preference for nodes with the fewest PreferNoSchedule taints. Filters handle NoSchedule taints."""
        rank = counts.soft_by_slot if self.params.include_prefer_no_schedule else None
        if hard:
            return PlacementPreference(self._anywhere, "", rank)
        otherwise = f"node(s) had {soft} or more PreferNoSchedule taints that the pod does not tolerate"
        return PlacementPreference(counts.soft_by_slot < soft, otherwise, rank)

    def _message(self, pod: Pod, slot: int, target: int) -> str:
        nodes = self.snapshot.nodes
        here = self._untolerated(pod.spec, slot)
        there = self._untolerated(pod.spec, target)
        has = f"has only {', '.join(there)}" if there else "has none"
        names = f"taint{'s' if len(here) != 1 else ''} {', '.join(here)}"
        return (
            f"{nodes.node(slot).name} has the {names}, which the pod does not tolerate; {nodes.node(target).name} {has}"
        )

    def _untolerated(self, spec: PodSpec, slot: int) -> list[str]:
        """Return the taints on a node that the pod does not tolerate, formatted as kubectl does."""
        return [format_taint(taint) for taint in _untolerated(spec, self._looked_at[self._set_of[slot]])]

    def _breaks_a_rule(self, pod: Pod) -> bool:
        return self._counts_of(pod).hard[self._taint_set_of(pod)] > 0

    def _soft(self, pod: Pod) -> int:
        return self._counts_of(pod).soft[self._taint_set_of(pod)]

    def _excess(self, pod: Pod) -> int:
        """Return how many more PreferNoSchedule taints the pod's node has than the best eligible node."""
        counts = self._counts_of(pod)
        return 0 if counts.lightest is None else max(0, counts.soft[self._taint_set_of(pod)] - counts.lightest)

    def _taint_set_of(self, pod: Pod) -> int:
        """Return the number of the taint set of the pod's node."""
        return self._set_of[self.snapshot.nodes.slot_of[pod.node]]

    def _counts_of(self, pod: Pod) -> TaintCounts:
        found = self._counts.get(id(pod.spec))
        if found is None:
            found = self._counts[id(pod.spec)] = self._weigh(pod)
        return found

    def _weigh(self, pod: Pod) -> TaintCounts:
        hard, soft = [], []
        for taints in self._looked_at:
            effects = [taint.effect for taint in _untolerated(pod.spec, taints)]
            hard.append(effects.count(NO_SCHEDULE))
            soft.append(effects.count(PREFER_NO_SCHEDULE))
        by_slot = self._by_slot.get(tuple(soft))
        if by_slot is None:  # shared, because one array per spec would take half a gigabyte
            by_slot = self._by_slot[tuple(soft)] = np.array(soft, dtype=np.int64)[self.snapshot.nodes.taints]
        lightest = None
        if self.params.include_prefer_no_schedule:
            suits = self.placer.eligible(self.placer.replacement(pod)) & self.scope.destinations
            lightest = int(by_slot[suits].min()) if suits.any() else None
        return TaintCounts(pod.spec, hard, soft, by_slot, lightest)


def _considers(params: NodeTaintsParams, taint: Taint) -> bool:
    """Return whether the policy enforces taints with this key and value."""
    names = {taint.key, f"{taint.key}={taint.value}"}
    if params.included_taints:
        return not names.isdisjoint(params.included_taints)
    if taint.key in _TOLERATION_SECONDS | _AUTOSCALERS or taint.key.startswith(f"{TRIMTAB_PRESSURE_DOMAIN}/"):
        return False
    return names.isdisjoint(params.excluded_taints)


def _being_removed(params: NodeTaintsParams, taints: Iterable[Taint]) -> bool:
    """Return whether the taints show that a cluster autoscaler is removing the node.

    Taints that the policy includes explicitly are not considered.
    """
    return any(taint.key in _REMOVING and not _considers(params, taint) for taint in taints)


def _untolerated(spec: PodSpec, taints: Iterable[Taint]) -> list[Taint]:
    return [taint for taint in taints if not any(tolerates(each, taint) for each in spec.tolerations)]
