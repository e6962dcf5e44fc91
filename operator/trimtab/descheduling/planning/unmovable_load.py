"""Computes the load of unmovable pods on overutilized nodes.

Pods of other namespaces are not evicted to compensate for this load. Evictions that compensate for it count toward the
limit of the namespace that causes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import zip_longest
from operator import attrgetter
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.workloads.owners import OwnerKey, owner_key
from trimtab.cluster.workloads.replacements import bound_by_template
from trimtab.descheduling.planning.context import StrategyContext
from trimtab.descheduling.planning.node_usage import UtilizationLevel, target_excesses
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections import is_system_namespace
from trimtab.disruption.protections.causes import Cause, CauseGroup, EvictionCauses, bound_by_name
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import TERMINAL_PHASES, OwnerReference, Pod, PodSpec
from trimtab.placement.topology_spread import hard_constraints


class _TemplateResult(Enum):
    """Whether pods with a given template count as unmovable load."""

    COUNTS = auto()
    DOES_NOT_COUNT = auto()
    UNLESS_BOUND_BY_NAME = auto()
    """A pod counts only if no scheduler placed it."""
    UNLESS_EXCLUDED = auto()
    """A pod also counts if rules exclude it from all other nodes."""
    OPEN = auto()
    """A pod also counts if it is unmovable itself, which differs between the pods."""


_COUNTS: Final = _TemplateResult.COUNTS
_DOES_NOT_COUNT: Final = _TemplateResult.DOES_NOT_COUNT
_OPEN: Final = _TemplateResult.OPEN
_UNLESS_BOUND_BY_NAME: Final = _TemplateResult.UNLESS_BOUND_BY_NAME

_KEY: Final = attrgetter("key")


class _Template(Struct, frozen=True):
    """Values that the pods of a template share. They are referenced here so that their ids stay valid."""

    namespace: str
    spec: PodSpec
    owners: tuple[OwnerReference, ...]
    annotations: Labels
    verdict: _TemplateResult


class CauseLoad(Struct):
    """The load of unmovable pods that may cause the same evictions.

    Attributes:
        amounts: the sum of the pods' usage, by column.
        largest: the pod with the largest amount in the first column with a nonzero amount.
    """

    amounts: list[int]
    largest: Pod

    def amount(self, column: int) -> int:
        """Return the load in a column; the amounts may have fewer columns."""
        return self.amounts[column] if column < len(self.amounts) else 0


class UnmovableLoad:
    """The unmovable pods of one overutilized node, returned by :meth:`UnmovableLoads.on`.

    Args:
        causes: decides which pods may cause the eviction of which others.
        loads: the loads by the evictions that the pods may cause.
    """

    def __init__(self, causes: EvictionCauses, loads: dict[CauseGroup, CauseLoad]) -> None:
        self._causes = causes
        self._loads = loads

    def refusal(
        self, pod: Pod, have: Sequence[int], want: Sequence[int], levels: Sequence[UtilizationLevel]
    ) -> Refusal | None:
        """Return the reason why a pod on the node must not be evicted; ``None`` if it may be evicted.

        The load of the unmovable pods that must not cause the pod's eviction is subtracted from the node's usage. If
        the rest does not exceed a target, the pod must not be evicted.

        Args:
            pod: the candidate.
            have: the node's allocatable amounts by column.
            want: the node's usage by column, after the moves planned so far.
            levels: the targets.
        """
        if not self._loads:
            return None
        loads = [load for kind, load in self._loads.items() if not kind.may_evict(pod.namespace, pod.priority)]
        if not loads or target_excesses(have, _without(want, loads), levels):
            return None
        largest = max(loads, key=lambda load: (load.amounts, load.largest.key)).largest
        refusal = self._causes.refusal(pod, Cause(largest))
        if refusal is None:
            return None
        text = (
            "without the usage of pods that cannot be moved and must not cause this eviction, "
            f"{pod.node} is not above any target"
        )
        return Refusal(refusal.reason, f"{text}: {refusal.message}")

    def causes_of(
        self, pod: Pod, have: Sequence[int], want: Sequence[int], levels: Sequence[UtilizationLevel]
    ) -> tuple[Cause, ...]:
        """Return the unmovable pod that is the reason to evict a pod, with the arguments of :meth:`refusal`.

        It is the largest one of the namespace whose load has the largest share of the resource that exceeds its target
        the most. The loads of a namespace are added, so that a tenant cannot hide its share behind several priorities.
        The result is empty if the node exceeds a target even without its unmovable pods, or if none of them may cause
        the eviction.
        """
        if not self._loads or target_excesses(have, _without(want, self._loads.values()), levels):
            return ()
        may = {kind: load for kind, load in self._loads.items() if kind.may_evict(pod.namespace, pod.priority)}
        others = (load for kind, load in self._loads.items() if kind not in may)
        over = target_excesses(have, _without(want, others), levels)
        if not over:
            return ()
        column, shares = over[0].level.column, Counter[str]()
        for kind, load in may.items():
            shares[kind.namespace] += load.amount(column)
        namespace = max(shares, key=lambda each: (shares[each], each))
        loads = (load for kind, load in may.items() if kind.namespace == namespace)
        return (Cause(max(loads, key=lambda load: load.amount(column)).largest),)


def _without(want: Sequence[int], loads: Iterable[CauseLoad]) -> list[int]:
    rest = list(want)
    for load in loads:
        for column, amount in enumerate(load.amounts):
            rest[column] = max(0, rest[column] - amount)
    return rest


class UnmovableLoads:
    """Finds the unmovable pods of overutilized nodes, one node after the other.

    A pod is unmovable in any of these cases: its own spec or annotations prevent its eviction
    (:meth:`~trimtab.disruption.protections.gate.EvictionRules.unmovable`), no other node is eligible, rules about other
    pods or host ports exclude all other nodes, no scheduler placed it, or the template of its controller names the
    node. The utilization of other nodes is ignored. Pods in system namespaces are not counted, and neither are pods of
    a DaemonSet that puts at least the same load on half of the policy's nodes.

    All pods on these nodes are checked, several times as many as are moved. Therefore values that depend only on a
    template are computed once. Only rules about other pods can change during planning.

    Args:
        context: the strategy's context.
        amounts_of: returns the usage of a pod, by column.
    """

    def __init__(self, context: StrategyContext, amounts_of: Callable[[Pod], Sequence[int]]) -> None:
        self._context = context
        self._amounts_of = amounts_of
        self._last: dict[int, _Template] = {}
        """The template of the last pod with a spec, by the spec's id. It is a fast path, because most specs belong to
        one template.
        """
        self._templates: dict[tuple[str, int, int, int], _Template] = {}
        self._on_most: dict[tuple[OwnerKey, bytes], bool] = {}
        self._suits: dict[int, tuple[BoolArray, frozenset[int]]] = {}
        self._welcome: dict[tuple[str, int, int], tuple[Pod, frozenset[int]]] = {}

    def on(self, slot: int) -> UnmovableLoad:
        """Return the unmovable pods that are currently on one node."""
        context, amounts_of = self._context, self._amounts_of
        loads: dict[CauseGroup, CauseLoad] = {}
        for pod in sorted(self._unmovable(slot), key=_KEY):
            amounts = list(amounts_of(pod))
            kind = context.causes.kind_of(pod)
            load = loads.get(kind)
            if load is None:
                loads[kind] = CauseLoad(amounts, pod)
                continue
            if amounts > list(amounts_of(load.largest)):
                load.largest = pod
            load.amounts = [one + other for one, other in zip_longest(load.amounts, amounts, fillvalue=0)]
        return UnmovableLoad(context.causes, loads)

    def _unmovable(self, slot: int) -> Iterator[Pod]:
        snapshot, last = self._context.snapshot, self._last
        there = snapshot.items_on(snapshot.nodes.node(slot).name)
        for pod in [pod for _, pod in there]:  # a list, because the loop removes pods temporarily
            known = last.get(id(pod.spec))
            if (
                known is None
                or known.owners is not pod.owners
                or known.annotations is not pod.annotations
                or known.namespace != pod.namespace
            ):
                known = last[id(pod.spec)] = self._template(pod)
            verdict = known.verdict
            if verdict is _DOES_NOT_COUNT:
                continue
            if verdict is _UNLESS_BOUND_BY_NAME and not (
                pod.conditions or pod.phase == "Pending" or pod.node_name_managed
            ):
                continue  # most pods
            if pod.deleted is not None or pod.phase in TERMINAL_PHASES:
                continue
            if verdict is _UNLESS_BOUND_BY_NAME:
                if bound_by_name(pod):
                    yield pod
            elif (
                verdict is _COUNTS
                or self._is_excluded(pod, slot)
                or (verdict is _OPEN and self._context.unmovable(pod) is not None)
            ):
                yield pod

    def _template(self, pod: Pod) -> _Template:
        key = (pod.namespace, id(pod.spec), id(pod.owners), id(pod.annotations))
        found = self._templates.get(key)
        if found is None:
            verdict = self._verdict(pod)
            found = _Template(pod.namespace, pod.spec, pod.owners, pod.annotations, verdict)
            self._templates[key] = found
        return found

    def _verdict(self, pod: Pod) -> _TemplateResult:
        if is_system_namespace(pod.namespace):
            return _TemplateResult.DOES_NOT_COUNT
        if any(owner.kind == "DaemonSet" for owner in pod.owners):
            return _TemplateResult.DOES_NOT_COUNT if self._on_most_nodes(pod) else _TemplateResult.COUNTS
        unmovable = self._context.unmovable_by_template(pod)
        if unmovable or bound_by_template(pod, self._context.snapshot):
            return _TemplateResult.COUNTS
        if unmovable is None:
            return _TemplateResult.OPEN
        if _has_node_rules(pod) or _has_pod_rules(pod):
            return _TemplateResult.UNLESS_EXCLUDED
        return _TemplateResult.UNLESS_BOUND_BY_NAME

    def _is_excluded(self, pod: Pod, slot: int) -> bool:
        """Return whether rules exclude the pod from all other nodes, or no scheduler placed it."""
        if bound_by_name(pod):
            return True
        if _has_node_rules(pod) and self._suitable(pod) <= {slot}:
            return True
        return _has_pod_rules(pod) and self._is_kept_out(pod, slot)

    def _on_most_nodes(self, pod: Pod) -> bool:
        owner, context = owner_key(pod), self._context
        if owner is None:
            return False
        snapshot, row = context.snapshot, context.snapshot.row(pod.spec)
        key = (owner, row.tobytes())
        if key not in self._on_most:
            running = (each for each in snapshot.each_owned_by(owner) if not each.terminal)
            alike = {each.node for each in running if (snapshot.row(each.spec) >= row).all()}
            self._on_most[key] = 2 * len(alike) >= len(context.scope.sources)
        return self._on_most[key]

    def _suitable(self, pod: Pod) -> frozenset[int]:
        """Return the slots eligible for the pod, at most two, regardless of free capacity."""
        mask = self._context.placer.eligible(self._context.placer.replacement(pod))
        found = self._suits.get(id(mask))
        if found is None:
            slots = np.flatnonzero(mask & self._context.scope.destinations)[:2].tolist()
            found = self._suits[id(mask)] = (mask, frozenset(slots))  # kept, so that the id stays valid
        return found[1]

    def _is_kept_out(self, pod: Pod, slot: int) -> bool:
        """Return whether rules about other pods exclude the pod from all other eligible nodes."""
        key = (pod.namespace, id(pod.spec), id(pod.labels))
        found = self._welcome.get(key)
        if found is not None and not found[1] <= {slot}:
            return False
        context = self._context
        with context.plan_state.budget.charged(pod.namespace):
            if found is None:
                slots = np.flatnonzero(self._slots_without_conflicts(context.placer.replacement(pod)))[:2].tolist()
                found = self._welcome[key] = (pod, frozenset(slots))  # kept, so that the ids stay valid
                if not found[1] <= {slot}:
                    return False
            mark = context.snapshot.mark()  # check again without the pod, which may exclude its own replacement
            try:
                return set(np.flatnonzero(self._slots_without_conflicts(context.placer.displace(pod))).tolist()) <= {
                    slot
                }
            finally:
                context.snapshot.undo(mark)

    def _slots_without_conflicts(self, pod: Pod) -> BoolArray:
        """Return the eligible slots on which no rule about other pods rejects the pod, regardless of free capacity."""
        placer = self._context.placer
        return placer.eligible(pod) & placer.passing_pod_filters(pod) & self._context.scope.destinations


def _has_node_rules(pod: Pod) -> bool:
    """Return whether the pod has rules that may restrict it to some nodes."""
    return bool(pod.spec.node_selector or pod.spec.affinity.node.required or pod.spec.volumes)


def _has_pod_rules(pod: Pod) -> bool:
    """Return whether the pod has rules because of which other pods may exclude it from nodes."""
    spec = pod.spec
    if spec.affinity.pod_required or spec.affinity.anti_required or spec.host_ports:
        return True
    return bool(hard_constraints(spec))
