"""Preemption: selects the node and the pods of lower priority to remove so that a pending pod fits.

    planner = PreemptionPlanner(snapshot, placer)
    found = planner.plan(pod)          # Preemption, or NoPreemption with the reason
    planner.reserve(found)             # within a fork: later pods of the batch cannot use the capacity

Source: kube-scheduler v1.36 ``framework/preemption`` and ``plugins/defaultpreemption``. The candidate nodes, the
reprieved victims and the ranking of nodes are those of kube-scheduler. The differences are:

- Candidates are examined in the order of node names. The first one is derived from the UID of the first preemptor of
  the plan instead of a random number, so that plans are deterministic and all preemptors of a plan use the same cached
  candidates.
- Terminating pods are not victims. A pod that fits once they have ended is nominated to their node and preempts no pod,
  unless their grace periods exceed ``MAX_WAIT`` and victims on another node make room earlier.
- A nominated pod waits only while it fits once the terminating pods on its node have ended. kube-scheduler waits for
  all pods there that terminate because of a preemption (``podTerminatingByPreemption``). The condition that marks them
  is no substitute: the Eviction API writes it with another reason, and the executor corrects that only afterwards.
- The victims of a plan are treated as terminating and the preemptor's capacity is reserved. So a batch never selects a
  victim twice, and no other pod of the batch is bound to the reserved capacity.
- Preemptors of equal priority in a batch may be planned again so that more of them are nominated
  (:mod:`trimtab.scheduling.batch_preemptions`).

The candidate of a node is cached until the pods of the node change, or until their PodDisruptionBudgets allow another
number of them to be removed. In a batch of identical pods, each further pod therefore needs only a comparison of at
most a few hundred cached candidates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final
from zlib import crc32

import msgspec
import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import PODS, BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube.objects import LabelSelector, Pod, PodDisruptionBudget, PodSpec
from trimtab.placement.feasibility import fit_error_message
from trimtab.placement.filters.nodes import shortage_text
from trimtab.placement.placer import Placer
from trimtab.placement.slot_cache import SlotCache, Slots
from trimtab.scheduling.reservations import Reservations

NEVER: Final = "Never"

MIN_CANDIDATES: Final = 100
MIN_CANDIDATES_PERCENTAGE: Final = 10
"""Number of candidates to examine: this percentage of the nodes on which preemption may help, but at least
``MIN_CANDIDATES`` (as in ``DefaultPreemptionArgs``)."""

MAX_WAIT: Final = 600
"""Longest grace period, in seconds, of terminating pods that a pod waits for rather than preempting other pods."""

NOT_HELPFUL: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "No preemption victims found for incoming pod"
POLICY_NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
"""Messages of kube-scheduler v1.36, as are the constants above."""

_PRIORITY_OFFSET: Final = 2**31


class Preemption(Struct, frozen=True):
    """The victims on a node whose removal makes room for a pod.

    Attributes:
        pod: the preemptor.
        node: the name of the node that the preemptor will fit on.
        slot: slot of the node.
        victims: the pods to remove, most important first; empty if pods that are already terminating make enough room.
        violating: ``namespace/name`` of the victims whose removal violates a PodDisruptionBudget.
    """

    pod: Pod
    node: str
    slot: int
    victims: tuple[Pod, ...]
    violating: frozenset[str] = frozenset()

    @property
    def violations(self) -> int:
        """Number of victims whose removal violates a PodDisruptionBudget."""
        return len(self.violating)


class NoPreemption(Struct, frozen=True):
    """The result if preemption does not help a pod.

    Attributes:
        pod: the pod.
        message: the reason, as the clause that kube-scheduler adds to FailedScheduling.
        keeps_nomination: whether a pod that is nominated to a node still waits for it. It does not if there is no
            candidate.
    """

    pod: Pod
    message: str
    keeps_nomination: bool = False


_Rank = tuple[int, bool, int, int, int, float]


class _Allowance(Struct, frozen=True):
    """What a candidate depends on of a PodDisruptionBudget that selects pods on the node.

    Attributes:
        budget: the budget as it was read.
        pods: number of pods on the node that use the budget's allowance.
        allowed: number of them that the budget allowed to remove.
    """

    budget: PodDisruptionBudget
    pods: int
    allowed: int


class _Candidate(Struct, frozen=True):
    """The victims on one node, and the rank by which the node is compared with others."""

    victims: tuple[Pod, ...]
    violating: frozenset[str]
    rank: _Rank
    allowances: tuple[_Allowance, ...]
    ended: tuple[Pod, ...]
    """The pods of lower priority that are no longer on the node once the preemptor fits: victims, terminating pods."""


_NO_VICTIMS: Final[_Rank] = (0, False, -_PRIORITY_OFFSET, 0, 0, 0.0)
"""The best rank: terminating pods make enough room, and none of them has a long grace period."""


class _NoRoom(Struct, frozen=True):
    """The reasons of the filter that a node fails even if all pods of lower priority are removed."""

    reasons: tuple[str, ...]


_UNKNOWN: Final = _Candidate((), frozenset(), (0, False, 0, 0, 0, 0.0), (), ())
"""Placeholder for a node that was not examined."""


class _Kept(Struct):
    """The cached candidates for pods with equal requests and priority, by slot, and the spec of the last such pod."""

    seen: int
    by_slot: dict[int, _Candidate | _NoRoom]
    spec: PodSpec


class PreemptionPlanner:
    """Plans preemptions on one snapshot. Keep it for the lifetime of the snapshot, because it caches candidates.

    Args:
        snapshot: the cluster. Its changes are taken into account immediately.
        placer: evaluates whether pods fit.
        ledger: the remaining allowances of PodDisruptionBudgets. By default, it is created from the snapshot.
        reservations: the pods that are placed on the nodes that they are nominated to. By default, there are none.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        placer: Placer,
        *,
        ledger: BudgetLedger | None = None,
        reservations: Reservations | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._placer = placer
        self._ledger = ledger or BudgetLedger(snapshot)
        self._reservations = Reservations(snapshot) if reservations is None else reservations
        self._selectors = _selectors(snapshot)
        self._start: int | None = None
        self._kept: dict[object, _Kept] = {}
        self._below: SlotCache[tuple[int, int], np.int64] = SlotCache(snapshot.nodes, recompute_share=1)
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        first = self._snapshot.nodes.changes - self._snapshot.nodes.capacity  # older ones have few valid candidates
        kept = ((key, each) for key, each in self._kept.items() if id(each.spec) in used and each.seen >= first)
        self._kept = {key: each for key, each in kept if self._drop_touched(each)}

    def start_cycle(self, ledger: BudgetLedger) -> None:
        """Start a scheduling cycle with the current PodDisruptionBudgets.

        Args:
            ledger: the remaining allowances, which several planners of one cycle share.
        """
        self._ledger = ledger
        self._start = None
        selectors = _selectors(self._snapshot)
        if self._selectors != selectors:  # a budget may select pods for which a candidate has not read it
            self._selectors = selectors
            self._kept.clear()

    def plan(self, pod: Pod) -> Preemption | NoPreemption:
        """Choose a node and victims for a pod that fits on no node.

        Args:
            pod: the pending pod; it must not be placed on any node in the snapshot.
        """
        waiting = self.waiting(pod)
        if waiting is not None:
            return waiting
        resolvable = self._resolvable(pod)
        possible = self._possible(pod, resolvable)
        found = self._best(pod, possible, int(np.count_nonzero(resolvable)))
        if isinstance(found, Counter):
            return NoPreemption(pod, self._message(pod, resolvable, found))
        return self._preemption(pod, *found)

    def _preemption(self, pod: Pod, slot: int, best: _Candidate) -> Preemption:
        name = self._snapshot.nodes.node(slot).name
        victims = tuple(self._snapshot.pods[each.key] for each in best.victims)  # a cached version may be outdated
        return Preemption(pod, name, slot, victims, best.violating)

    def reserve(self, preemption: Preemption) -> None:
        """Mark the victims as terminating and place the preemptor, so that later plans take both into account.

        Call this within a fork of the snapshot. As in the cluster, the victims still use capacity of the node until
        they have ended.
        """
        for victim in preemption.victims:
            self._ledger.take(victim)
            self._snapshot.put(msgspec.structs.replace(victim, deleted=0.0))
        self._reservations.add(preemption.pod, self._placer, preemption.slot)

    def release(self, preemption: Preemption) -> None:
        """Undo :meth:`reserve`. Later preemptions on the same node must have been released before."""
        self._reservations.lift(preemption.pod)
        for victim in preemption.victims:
            self._snapshot.put(victim)
            self._ledger.take_back(victim)

    def plan_on(self, pod: Pod, slot: int) -> Preemption | None:
        """Choose victims on one node, or return ``None`` if preemption does not help there."""
        found = self._best(pod, np.array([slot], dtype=np.int64), 1)
        return None if isinstance(found, Counter) else self._preemption(pod, *found)

    def possible_without(self, pod: Pod, others: Mapping[int, Sequence[Pod]]) -> list[int]:
        """Return the slots on which a pod might fit without all pods of lower priority, and without some others.

        Args:
            pod: the preemptor.
            others: the other pods by the slot on which their capacity is reserved.

        Returns:
            The slots in the order of ``others``.
        """
        nodes = self._snapshot.nodes
        slots = np.array([*others], dtype=np.int64)
        if not slots.size:
            return []
        freed = np.array([sum(self._snapshot.row(each.spec) for each in pods) for pods in others.values()])
        freed += nodes.allocatable[slots] - nodes.requested[slots]
        freed += self._below.of((pod.priority, nodes.axis.width), self._requested_below)[slots]
        mask = self._resolvable(pod)[slots]
        for column, amount in self._snapshot.amounts(pod.spec).wanted:
            mask &= freed[:, column] >= amount
        found: list[int] = slots[mask].tolist()
        return found

    def ignores_other_pods(self, pod: Pod) -> bool:
        """See :meth:`~trimtab.placement.feasibility.Feasibility.ignores_other_pods`."""
        return self._placer.ignores_other_pods(pod)

    def waiting(self, pod: Pod) -> NoPreemption | None:
        """Return the result for a pod that may not preempt now, for example because its victims are terminating."""
        refusal = self._ineligible(pod)
        return None if refusal is None else NoPreemption(pod, refusal, keeps_nomination=True)

    # --- candidates -----------------------------------------------------------------------------------------------

    def _ineligible(self, pod: Pod) -> str | None:
        """Return the reason why the pod may not preempt now, or ``None`` (``PodEligibleToPreemptOthers``)."""
        if pod.spec.preemption_policy == NEVER:
            return POLICY_NEVER
        slot = self._snapshot.nodes.slot_of.get(pod.nominated_node)
        if slot is not None and self._placer.eligible(pod)[slot] and self._placer.refusal(pod) is None:
            ending = [each for each in self._lower(pod, slot) if each.deleted is not None]
            if ending and not isinstance(self._reprieve(pod, slot, ending, ()), _NoRoom):
                with self._reservations.suspended(pod, self._placer) as suspended:
                    if not suspended or not self._reasons_after(pod, slot, ending):
                        return TERMINATING
        return None

    def _resolvable(self, pod: Pod) -> BoolArray:
        """Return the slots on which the pod might fit if pods were removed: bool, shape (capacity,)."""
        nodes = self._snapshot.nodes
        if self._placer.refusal(pod) is not None:
            return np.zeros(nodes.capacity, dtype=np.bool_)
        mask: BoolArray = self._placer.eligible(pod).copy()
        for column, amount in self._snapshot.amounts(pod.spec).wanted:
            mask &= nodes.allocatable[:, column] >= amount  # the node could never hold the pod
        return mask

    def _possible(self, pod: Pod, resolvable: BoolArray) -> IntArray:
        """Return the slots that would have enough free capacity if all pods of lower priority were removed.

        The result has dtype int64 and is in the order of node names.
        """
        nodes = self._snapshot.nodes
        mask = resolvable & self._has_lower(pod)
        for _, short in self._short(pod):
            mask &= ~short
        order = nodes.order()
        found: IntArray = order[mask[order]]
        return found

    def _has_lower(self, pod: Pod) -> BoolArray:
        """Return the slots of nodes with pods of lower priority: bool, shape (capacity,)."""
        found: BoolArray = (
            self._below.of((pod.priority, self._snapshot.nodes.axis.width), self._requested_below)[:, PODS] > 0
        )
        return found

    def _short(self, pod: Pod) -> Iterator[tuple[int, BoolArray]]:
        """Yield each resource column that the pod uses, and the slots with too little without pods of lower priority.

        The arrays are bool, shape (capacity,).
        """
        nodes = self._snapshot.nodes
        below = self._below.of((pod.priority, nodes.axis.width), self._requested_below)
        for column, amount in self._snapshot.amounts(pod.spec).wanted:
            yield column, nodes.allocatable[:, column] - nodes.requested[:, column] + below[:, column] < amount

    def _requested_below(self, key: tuple[int, int], slots: Slots) -> IntArray:
        """Return the sum of the requests of pods below a priority: int64, shape (slots, width).

        Args:
            key: the priority and the number of resource columns.
            slots: the slots to compute.
        """
        priority, width = key
        nodes = self._snapshot.nodes
        numbers = np.arange(nodes.capacity, dtype=np.int64)[slots]
        found: IntArray = np.zeros((len(numbers), width), dtype=np.int64)
        for row, slot in zip(found, numbers.tolist(), strict=True):
            node = nodes.at[slot] if slot < len(nodes.at) else None
            if node is None:
                continue
            specs: dict[int, tuple[PodSpec, int]] = {}
            for _, pod in self._snapshot.items_on(node.name):
                if (pod.spec.priority or 0) < priority and not pod.terminal:
                    spec, number = specs.get(id(pod.spec), (pod.spec, 0))
                    specs[id(spec)] = (spec, number + 1)
            for spec, number in specs.values():
                row += number * self._snapshot.row(spec)
        return found

    def _best(self, pod: Pod, possible: IntArray, potential: int) -> tuple[int, _Candidate] | Counter[str]:
        """Return the slot of the best candidate and the candidate, or the number of nodes by reason if there is none.

        As in kube-scheduler, not all nodes are examined. The search continues at least until it finds a node on which
        no removal violates a PodDisruptionBudget. Each cycle starts at another node, so that the victims are not always
        on the first nodes. In a tie, the candidate that was examined first is the best one.

        Args:
            pod: the preemptor.
            possible: the slots to examine, in the order of node names.
            potential: number of nodes on which the pod might fit if pods were removed (``potentialNodes``).
        """
        nodes = self._snapshot.nodes
        if self._start is None:
            self._start = crc32(pod.uid.encode())
        # A position among all nodes: one among the possible nodes would shift when a preemption removes one of them.
        start = np.searchsorted(nodes.rank()[possible], self._start % max(len(nodes), 1))
        ordered = np.roll(possible, -start)
        # The victims of other preemptors may leave room for this pod too, and then it needs no victims.
        shared = self._reservations.mask()[ordered]
        ordered = np.concatenate((ordered[shared], ordered[~shared]))
        enough = max(potential * MIN_CANDIDATES_PERCENTAGE // 100, MIN_CANDIDATES) + int(np.count_nonzero(shared))
        kept = self._kept_for(pod)
        reasons: Counter[str] = Counter()
        slots = iter(ordered.tolist())
        while candidates := self._next_candidates(pod, slots, enough, kept, reasons):
            found = self._first_without_reservations(pod, candidates, reasons)
            if found is not None:
                return found
        return reasons

    def _next_candidates(
        self,
        pod: Pod,
        slots: Iterator[int],
        enough: int,
        kept: dict[int, _Candidate | _NoRoom],
        reasons: Counter[str],
    ) -> list[tuple[int, _Candidate]]:
        """Return candidates until there are enough, and count the reasons of the nodes that are none."""
        found: list[tuple[int, _Candidate]] = []
        best: _Candidate | None = None
        for slot in slots:
            candidate = kept.get(slot, _UNKNOWN)
            if isinstance(candidate, _Candidate) and (candidate is _UNKNOWN or self._changed(candidate)):
                candidate = kept[slot] = self._examine(pod, slot)
            if isinstance(candidate, _NoRoom):
                reasons.update(dict.fromkeys(candidate.reasons, 1))
                continue
            found.append((slot, candidate))
            if best is None or candidate.rank < best.rank:
                best = candidate
            # Violations are the first criterion, so if any candidate has none, the best has none.
            if (len(found) >= enough and not best.violating) or best.rank == _NO_VICTIMS:
                break
        return found

    def _first_without_reservations(
        self, pod: Pod, candidates: Sequence[tuple[int, _Candidate]], reasons: Counter[str]
    ) -> tuple[int, _Candidate] | None:
        """Return the best candidate on which the pod also fits without the reservations, which are suspended only once.

        Args:
            pod: the preemptor.
            candidates: the candidates and their slots, at least one, in the order in which they were examined.
            reasons: the reasons of candidates that are better but on which the pod does not fit are counted here.
        """
        with self._reservations.suspended(pod, self._placer) as suspended:
            if not suspended:
                return min(candidates, key=_rank_of)
            for slot, candidate in sorted(candidates, key=_rank_of):
                if not (texts := self._reasons_after(pod, slot, candidate.ended)):
                    return slot, candidate
                reasons.update(dict.fromkeys(texts, 1))
        return None

    def _reasons_after(self, pod: Pod, slot: int, ended: Iterable[Pod]) -> tuple[str, ...]:
        """Return why a node is not feasible for a pod after other pods have ended; empty if it is feasible."""
        with self._snapshot.fork():
            for each in ended:
                self._snapshot.remove(each)
            return self._placer.first_reasons(pod, slot)

    def _kept_for(self, pod: Pod) -> dict[int, _Candidate | _NoRoom]:
        """Return the cached candidates for pods with the same requests and priority, except those of changed slots."""
        nodes = self._snapshot.nodes
        alone = self._placer.ignores_other_pods(pod)
        if not alone:
            return {}  # a change on one node can change what fits on another
        key = (self._snapshot.amounts(pod.spec).wanted, pod.priority)
        known = self._kept.get(key)
        if known is None or not self._drop_touched(known):
            known = self._kept[key] = _Kept(nodes.changes, {}, pod.spec)
        known.spec = pod.spec
        return known.by_slot

    def _drop_touched(self, kept: _Kept) -> bool:
        """Drop the candidates of slots that have changed. Return whether the other candidates are valid."""
        touched = self._snapshot.nodes.touched_since(kept.seen)
        if touched is None:
            return False
        for slot in touched:
            kept.by_slot.pop(slot, None)
        kept.seen += len(touched)
        return True

    def _changed(self, candidate: _Candidate) -> bool:
        """Return whether the PodDisruptionBudgets of a candidate have changed in a way that matters to it."""
        budgets = self._snapshot.budgets
        for each in candidate.allowances:
            budget = budgets.get(each.budget.key)
            if budget is None or budget.disrupted_pods != each.budget.disrupted_pods:
                return True
            if self._allowed(budget, each.pods) != each.allowed:
                return True
        return False

    def _allowed(self, budget: PodDisruptionBudget, pods: int) -> int:
        return min(max(self._ledger.left(budget), 0), pods)

    # --- victims --------------------------------------------------------------------------------------------------

    def _examine(self, pod: Pod, slot: int) -> _Candidate | _NoRoom:
        """Return the victims on one node: all pods of lower priority that cannot be kept (``SelectVictimsOnNode``)."""
        lower = sorted(self._lower(pod, slot), key=_importance)
        violating, others, allowances = self._split([each for each in lower if each.deleted is None])
        ending = [each for each in lower if each.deleted is not None and not _is_slow(each)]
        slow = [each for each in lower if each.deleted is not None and _is_slow(each)]
        removed = self._reprieve(pod, slot, ending, (*slow, *violating, *others))
        if isinstance(removed, _NoRoom):
            return removed
        chosen = {id(each) for each in removed}
        keys = frozenset(each.key for each in violating if id(each) in chosen)
        waits = any(id(each) in chosen for each in slow)
        victims = tuple(sorted((each for each in removed if each.deleted is None), key=_importance))
        return _Candidate(victims, keys, _rank(victims, len(keys), waits), allowances, (*ending, *removed))

    def _lower(self, pod: Pod, slot: int) -> list[Pod]:
        """Return the pods of lower priority on a node, including terminating ones."""
        on_node = self._snapshot.pods_on(self._snapshot.nodes.node(slot).name)
        return [each for each in on_node if each.priority < pod.priority and not each.terminal]

    def _split(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod], tuple[_Allowance, ...]]:
        """Return the pods whose removal violates a budget, the other pods, and the budgets with their allowances.

        As in ``filterPodsWithPDBViolation``, the pods consume the allowances of the budgets in the given order.
        """
        read: dict[str, PodDisruptionBudget] = {}
        counts: Counter[str] = Counter()
        violating: list[Pod] = []
        others: list[Pod] = []
        for pod in pods:
            violates = False
            for budget in self._ledger.matching(pod) if pod.labels else ():
                read[budget.key] = budget
                if pod.name in budget.disrupted_pods:
                    continue
                counts[budget.key] += 1
                violates = violates or counts[budget.key] > self._ledger.left(budget)
            (violating if violates else others).append(pod)
        allowances = (
            _Allowance(budget, counts[key], self._allowed(budget, counts[key])) for key, budget in read.items()
        )
        return violating, others, tuple(allowances)

    def _reprieve(self, pod: Pod, slot: int, ending: Sequence[Pod], removable: Sequence[Pod]) -> list[Pod] | _NoRoom:
        """Return the pods on a node that cannot be kept, if the pod fits without all pods of lower priority.

        Args:
            pod: the preemptor.
            slot: slot of the node.
            ending: terminating pods of lower priority on the node, which use nothing any more.
            removable: the other pods of lower priority. The method tries to keep them in this order.
        """
        if self._placer.ignores_other_pods(pod):
            return self._reprieve_by_amounts(pod, slot, ending, removable)
        return self._reprieve_by_filters(pod, slot, ending, removable)

    def _reprieve_by_amounts(
        self, pod: Pod, slot: int, ending: Sequence[Pod], removable: Sequence[Pod]
    ) -> list[Pod] | _NoRoom:
        """Reprieve pods for a pod that only needs resources, by comparing requests without changing the snapshot."""
        nodes = self._snapshot.nodes
        wanted = self._snapshot.amounts(pod.spec).wanted
        columns = [column for column, _ in wanted]
        free = (nodes.allocatable[slot, columns] - nodes.requested[slot, columns]).tolist()
        rows = {}
        for each in (*ending, *removable):
            row = rows[id(each)] = self._snapshot.row(each.spec)[columns].tolist()
            free = [have + amount for have, amount in zip(free, row, strict=True)]
        spare = [have - amount for have, (_, amount) in zip(free, wanted, strict=True)]
        short = [column for column, amount in zip(columns, spare, strict=True) if amount < 0]
        if short:
            return _NoRoom(tuple(shortage_text(self._snapshot, column) for column in short))
        victims = []
        for each in removable:
            after = [have - amount for have, amount in zip(spare, rows[id(each)], strict=True)]
            if min(after) >= 0:
                spare = after
            else:
                victims.append(each)
        return victims

    def _reprieve_by_filters(
        self, pod: Pod, slot: int, ending: Sequence[Pod], removable: Sequence[Pod]
    ) -> list[Pod] | _NoRoom:
        """Reprieve pods for a pod whose placement depends on other pods, by evaluating the filters in a fork."""
        with self._snapshot.fork():
            for each in (*ending, *removable):
                self._snapshot.remove(each)
            if reasons := self._placer.first_reasons(pod, slot):
                return _NoRoom(reasons)
            victims = []
            for each in removable:
                self._snapshot.put(each)
                if self._placer.first_failing_filter(pod, slot) is not None:
                    self._snapshot.remove(each)
                    victims.append(each)
            return victims

    def _message(self, pod: Pod, resolvable: BoolArray, reasons: Counter[str]) -> str:
        """Return the message for a pod without candidates.

        Args:
            pod: the pod.
            resolvable: the slots on which the pod might fit if pods were removed.
            reasons: number of nodes by reason, of those that have enough resources without pods of lower priority.
        """
        nodes = self._snapshot.nodes
        lower = resolvable & self._has_lower(pod)
        counts = reasons + Counter(
            {
                NOT_HELPFUL: int(np.count_nonzero(nodes.used & ~resolvable)),
                NO_VICTIMS: int(np.count_nonzero(resolvable & ~lower)),
            }
        )
        for column, short in self._short(pod):
            counts[shortage_text(self._snapshot, column)] += int(np.count_nonzero(lower & short))
        return fit_error_message(len(nodes), counts)


def _selectors(snapshot: Snapshot) -> dict[str, LabelSelector | None]:
    return {key: budget.selector for key, budget in snapshot.budgets.items()}


def _rank_of(candidate: tuple[int, _Candidate]) -> _Rank:
    return candidate[1].rank


def _importance(pod: Pod) -> tuple[int, float]:
    """Return a sort key by importance: highest priority first, then earliest start (``MoreImportantPod``)."""
    return -pod.priority, float("inf") if pod.started is None else pod.started


def _is_slow(pod: Pod) -> bool:
    return (pod.spec.termination_grace_period or 0) > MAX_WAIT


def _rank(victims: Sequence[Pod], violations: int, waits: bool) -> _Rank:
    """Return the rank of a candidate; the node with the lowest rank is selected (``pickOneNodeForPreemption``).

    The criteria, in this order: fewest budget violations, no terminating pods whose grace period exceeds ``MAX_WAIT``
    (unlike kube-scheduler), lowest priority of the most important victim, lowest sum of priorities, fewest victims, and
    the latest start of the longest-running victim with the highest priority.
    """
    if not victims:
        return violations, waits, *_NO_VICTIMS[2:]
    highest = victims[0].priority
    starts = [each.started for each in victims if each.priority == highest]
    earliest = min((start for start in starts if start is not None), default=float("inf"))
    total = sum(each.priority + _PRIORITY_OFFSET for each in victims)
    return violations, waits, highest, total, len(victims), -earliest
