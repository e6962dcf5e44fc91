"""RemovePodsViolatingNodeTaints: pods leave nodes whose taints they do not tolerate."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.api.reasons import NODE_TAINTS_VIOLATED
from trimtab.api.strategies import NodeTaintsParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.context import Context, Wish, pending
from trimtab.descheduling.order import victim_order
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod, PodSpec, Taint
from trimtab.kube.rules.taints import (
    DELETION_CANDIDATE,
    NO_SCHEDULE,
    NOT_READY,
    PREFER_NO_SCHEDULE,
    TO_BE_DELETED,
    UNREACHABLE,
    taint_in_words,
    tolerates,
)
from trimtab.placement.placer import Placer

_TOLERATION_SECONDS: Final = frozenset({NOT_READY, UNREACHABLE})
"""Taints that come with a NoExecute twin: how long a pod stays is for its ``tolerationSeconds`` to say."""

_AUTOSCALERS: Final = frozenset({TO_BE_DELETED, DELETION_CANDIDATE})
"""Taints by which a cluster autoscaler takes a node away, or may do so soon: it moves the pods itself, if it does."""


class Burden(Struct, frozen=True):
    """The taints that pods of one spec do not tolerate, by set of taints (:attr:`NodeTable.taint_sets`).

    Attributes:
        spec: held, so that its id stays its own.
        hard: how many NoSchedule taints.
        soft: how many PreferNoSchedule taints.
        soft_by_slot: the same of each slot; int64, shape (nodes.capacity,).
        lightest: the least of them on the nodes that suit the pods, however full; ``None`` where none does.
    """

    spec: PodSpec
    hard: list[int]
    soft: list[int]
    soft_by_slot: IntArray
    lightest: int | None


class RemovePodsViolatingNodeTaints(Strategy[NodeTaintsParams]):
    """NoSchedule taints first, then PreferNoSchedule ones where they are looked at.

    NoSchedule: the pod's node has one that the pod does not tolerate, and another node takes the pod. PreferNoSchedule:
    a node takes it that has fewer of them. NoExecute taints are the taint manager's, and so are ``not-ready`` and
    ``unreachable`` of any effect unless ``includedTaints`` names them: a pod that tolerates their NoExecute for five
    minutes means to stay so long. What a cluster autoscaler taints is the autoscaler's likewise: a node that it takes
    away is left alone with all its taints, for its cordon is one of them.
    """

    NAME = "RemovePodsViolatingNodeTaints"
    unwelcome_text = "node(s) had more PreferNoSchedule taints that the pod does not tolerate"

    def __init__(self, params: NodeTaintsParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        nodes = self.snapshot.nodes
        effects = {NO_SCHEDULE, PREFER_NO_SCHEDULE} if params.include_prefer_no_schedule else {NO_SCHEDULE}
        self._looked_at: list[tuple[Taint, ...]] = [
            ()
            if _taken_away(params, taints)
            else tuple(taint for taint in taints if taint.effect in effects and _considers(params, taint))
            for taints in nodes.taint_sets
        ]
        """By set of taints."""
        self._set_of: list[int] = nodes.taints.tolist()
        self._sources = tuple(slot for slot in scope.sources if self._looked_at[self._set_of[slot]])
        self._anywhere: BoolArray = np.ones(nodes.capacity, dtype=np.bool_)
        self._burdens: dict[int, Burden] = {}
        self._by_slot: dict[tuple[int, ...], IntArray] = {}
        self._stuck: dict[tuple[int, int, int], tuple[int, Refusal]] = {}

    def plan(self, context: Context) -> None:
        """Node by node in the order of names, its pods in victim order."""
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
        """Pods with a NoSchedule taint that they do not tolerate, then PreferNoSchedule taints that others spare."""
        broken, spared = 0, 0
        for slot in self._sources:
            for pod in self.snapshot.pods_on(self.snapshot.nodes.node(slot).name):
                if not pod.terminal and pod.deleted is None and self.scope.covers(pod):
                    broken += self._breaks_a_rule(pod)
                    spared += self._excess(pod)
        return float(broken), float(spared)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes with more PreferNoSchedule taints than the pod's own, unless no node that suits it has fewer."""
        if not self.params.include_prefer_no_schedule:
            return ()
        burden = self._burden(pod)
        if burden.lightest is None:
            return ()
        borne = max(burden.lightest, burden.soft[self._home(pod)])
        more: list[int] = np.flatnonzero(burden.soft_by_slot > borne).tolist()
        return more

    def may_object(self) -> bool:
        """Whether PreferNoSchedule taints are looked at."""
        return self.params.include_prefer_no_schedule

    def _repair(self, context: Context, pod: Pod, slot: int) -> None:
        burden, home = self._burden(pod), self._set_of[slot]
        hard, soft = burden.hard[home], burden.soft[home]
        alike = (id(pod.spec), hard, soft)
        known = self._stuck.get(alike)
        found: int | Refusal | None = context.obstacle(pod)
        if found is None and known is not None and known[0] == len(context.board.actions) and self.placer.plain(pod):
            found = known[1]  # a tainted pool may hold thousands of one template, and none of them has a place
        if found is None:
            found = context.find(pod, self._wish(burden, hard, soft))
            if isinstance(found, Refusal) and self.placer.plain(pod):
                self._stuck[alike] = (len(context.board.actions), found)
        if isinstance(found, int):
            text = self._message(pod, slot, found)
            refused = context.move(pod, found, reason=NODE_TAINTS_VIOLATED, message=text)
        else:
            refused = found
        if refused is not None:
            context.keep(pod, refused.reason, refused.message)

    def _wish(self, burden: Burden, hard: int, soft: int) -> Wish:
        """The nodes with the fewest PreferNoSchedule taints; filters see to the others."""
        rank = burden.soft_by_slot if self.params.include_prefer_no_schedule else None
        if hard:
            return Wish(self._anywhere, "", rank)
        otherwise = f"node(s) had {soft} or more PreferNoSchedule taints that the pod does not tolerate"
        return Wish(burden.soft_by_slot < soft, otherwise, rank)

    def _message(self, pod: Pod, slot: int, target: int) -> str:
        nodes = self.snapshot.nodes
        here = self._untolerated(pod.spec, slot)
        there = self._untolerated(pod.spec, target)
        has = f"has {', '.join(there)} only" if there else "has none such"
        names = f"taint{'s' if len(here) != 1 else ''} {', '.join(here)}"
        return (
            f"{nodes.node(slot).name} has the {names}, which the pod does not tolerate; {nodes.node(target).name} {has}"
        )

    def _untolerated(self, spec: PodSpec, slot: int) -> list[str]:
        """The taints of a node that the pod does not tolerate, as kubectl writes them."""
        return [taint_in_words(taint) for taint in _untolerated(spec, self._looked_at[self._set_of[slot]])]

    def _breaks_a_rule(self, pod: Pod) -> bool:
        return self._burden(pod).hard[self._home(pod)] > 0

    def _soft(self, pod: Pod) -> int:
        return self._burden(pod).soft[self._home(pod)]

    def _excess(self, pod: Pod) -> int:
        """By how many PreferNoSchedule taints the pod's node has more than one that suits it, however full."""
        burden = self._burden(pod)
        return 0 if burden.lightest is None else max(0, burden.soft[self._home(pod)] - burden.lightest)

    def _home(self, pod: Pod) -> int:
        """The set of taints of the pod's node."""
        return self._set_of[self.snapshot.nodes.slot_of[pod.node]]

    def _burden(self, pod: Pod) -> Burden:
        found = self._burdens.get(id(pod.spec))
        if found is None:
            found = self._burdens[id(pod.spec)] = self._weigh(pod)
        return found

    def _weigh(self, pod: Pod) -> Burden:
        hard, soft = [], []
        for taints in self._looked_at:
            effects = [taint.effect for taint in _untolerated(pod.spec, taints)]
            hard.append(effects.count(NO_SCHEDULE))
            soft.append(effects.count(PREFER_NO_SCHEDULE))
        by_slot = self._by_slot.get(tuple(soft))
        if by_slot is None:  # shared: an array of all nodes for each of thousands of specs would take half a gigabyte
            by_slot = self._by_slot[tuple(soft)] = np.array(soft, dtype=np.int64)[self.snapshot.nodes.taints]
        lightest = None
        if self.params.include_prefer_no_schedule:
            suits = self.placer.eligible(pending(pod)) & self.scope.destinations
            lightest = int(by_slot[suits].min()) if suits.any() else None
        return Burden(pod.spec, hard, soft, by_slot, lightest)


def _considers(params: NodeTaintsParams, taint: Taint) -> bool:
    """Whether the policy looks at taints of this key and value."""
    names = {taint.key, f"{taint.key}={taint.value}"}
    if params.included_taints:
        return not names.isdisjoint(params.included_taints)
    return names.isdisjoint(params.excluded_taints) and taint.key not in _TOLERATION_SECONDS | _AUTOSCALERS


def _taken_away(params: NodeTaintsParams, taints: Iterable[Taint]) -> bool:
    """Whether a cluster autoscaler takes nodes with these taints away, and the policy does not ask for just that."""
    return any(taint.key == TO_BE_DELETED and not _considers(params, taint) for taint in taints)


def _untolerated(spec: PodSpec, taints: Iterable[Taint]) -> list[Taint]:
    return [taint for taint in taints if not any(tolerates(each, taint) for each in spec.tolerations)]
