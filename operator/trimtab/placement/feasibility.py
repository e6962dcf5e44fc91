"""Determines which nodes are feasible for a pod, with kube-scheduler's filters, and explains why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.interface import (
    AntiAffinityFilter,
    ErrorReportingFilter,
    Failure,
    Filter,
    FilterFactory,
    NodeFilter,
)

NO_NODES: Final = "no nodes available to schedule pods"
"""kube-scheduler's message in a cluster without nodes (v1.36 ``ErrNoNodesAvailable``)."""


def fit_error_message(number: int, counts: Mapping[str, int], *, fits: int = 0) -> str:
    """Return kube-scheduler v1.36's ``FitError.Error`` message without its preemption part.

    A node is counted once for each of its reasons. The parts of the message are sorted as strings, so "10 x" comes
    before "2 x".

    Args:
        number: number of nodes.
        counts: number of nodes by reason. Reasons without nodes are omitted.
        fits: number of feasible nodes. If there are any, kube-scheduler has no message, and the result is trimtab's own
            in the same format.
    """
    texts = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    start = f"{fits}/{number} nodes are available"
    if texts:
        return f"{start}: {', '.join(texts)}."
    return f"{start}." if fits else f"{start}:"


def prefilter_message(number: int, refusal: str) -> str:
    """Return kube-scheduler's message (``FitError.Error``) for a pod that a PreFilter plugin rejects on all nodes."""
    return f"0/{number} nodes are available: {refusal}."


_NOT_SCHEDULED: Final = frozenset(("Complexity", "NamespaceComplexity", "SchedulingGates", "DynamicResources"))
"""Filters with trimtab's own messages. kube-scheduler does not schedule gated pods, and trimtab evaluates neither
ResourceClaims nor pods that are too complex.
"""


class Diagnosis(Struct, frozen=True, eq=False):
    """The result of filtering all nodes for a pod, like kube-scheduler's ``Diagnosis``.

    Attributes:
        nodes: number of nodes.
        refusal: the reason why the pod was rejected before any node was examined, or ``None`` if the nodes were
            examined.
        refused_by: the name of the filter that returned ``refusal``, or empty.
        error: whether ``refusal`` is an error that makes the scheduler abort. The scheduler reports such an error
            verbatim.
        failures: groups of slots with their reasons. Every infeasible slot is in exactly one group, and feasible slots
            are in none. A group may be empty.
    """

    nodes: int
    refusal: str | None
    failures: tuple[Failure, ...]
    refused_by: str = ""
    error: bool = False

    @property
    def fits(self) -> int:
        """Return the number of feasible nodes."""
        return 0 if self.refusal is not None else self.nodes - sum(len(slots) for _, slots in self.failures)

    def message(self) -> str:
        """Return kube-scheduler's message if no node is feasible, otherwise a message in the same format."""
        if self.refusal is not None and (self.error or self.refused_by in _NOT_SCHEDULED):
            return self.refusal
        if not self.nodes:
            return NO_NODES
        if self.refusal is not None:
            return prefilter_message(self.nodes, self.refusal)
        counts: Counter[str] = Counter()
        for texts, slots in self.failures:
            counts.update(dict.fromkeys(texts, len(slots)))
        return fit_error_message(self.nodes, counts, fits=self.fits)


_MAX_MASKS: Final = 512
_MAX_SPECS: Final = 16_384


class NodeVerdict(Struct, frozen=True, gc=False):
    """Whether a pod fits on a node.

    If it does not, ``reasons`` are those of the first filter that the node fails, in kube-scheduler's words.
    """

    node: str
    fits: bool
    reasons: tuple[str, ...] = ()


class FiltersOfSpec(Struct, frozen=True):
    """The filters that may reject nodes for pods with one spec, in kube-scheduler's order, and subsets of them.

    Attributes:
        all: all filters that may reject nodes for these pods.
        refusing: the filters that may reject a pod before any node is examined.
        on_resources: the filters that compare resource amounts.
        on_pods: the filters that read other pods.
        erring: the filters whose plugin may abort scheduling with an error.
    """

    all: tuple[Filter, ...]
    refusing: tuple[Filter, ...]
    on_resources: tuple[Filter, ...]
    on_pods: tuple[Filter, ...]
    erring: tuple[ErrorReportingFilter, ...]

    @classmethod
    def of(cls, rules: tuple[Filter, ...], erring: tuple[ErrorReportingFilter, ...]) -> FiltersOfSpec:
        """Create the subsets from the filters that may affect a spec.

        Args:
            rules: the filters that may affect the spec.
            erring: all filters of the profile that may abort, regardless of the spec. The caller passes them, because
                it is slow to test the type of each filter for thousands of specs.
        """
        return cls(
            all=rules,
            refusing=_refusing(rules),
            on_resources=tuple(rule for rule in rules if rule.reads == "resources"),
            on_pods=tuple(rule for rule in rules if rule.reads == "pods"),
            erring=tuple(rule for rule in erring if rule in rules),
        )


def _refusing(rules: Iterable[Filter]) -> tuple[Filter, ...]:
    """Return the filters that may reject a pod before any node is examined. The others inherit ``refusal``."""
    return tuple(rule for rule in rules if type(rule).refusal is not NodeFilter.refusal)


class FeasibilityChecker:
    """Runs the filters on one snapshot. Reuse an instance for the lifetime of the snapshot, because it caches results.

    Args:
        snapshot: the cluster; changes to it take effect immediately.
        filters: the filters in kube-scheduler's order.
        checks_all: whether a diagnosis contains the reasons of all filters that a node fails, instead of only the
            first.
    """

    def __init__(self, snapshot: Snapshot, filters: tuple[FilterFactory, ...], *, checks_all: bool = False) -> None:
        self.snapshot = snapshot
        self._checks_all = checks_all
        self._filters: tuple[Filter, ...] = tuple(kind(snapshot) for kind in filters)
        self._on_nodes = tuple(rule for rule in self._filters if rule.reads == "node")
        self._refusing_nodes = _refusing(self._on_nodes)
        self._reads_conditions = any(rule.reads_conditions for rule in self._on_nodes)
        self._anti_affinity = next((rule for rule in self._filters if isinstance(rule, AntiAffinityFilter)), None)
        self._erring = tuple(rule for rule in self._filters if isinstance(rule, ErrorReportingFilter))
        self._asked: dict[int, tuple[PodSpec, FiltersOfSpec]] = {}
        self._rule_sets: dict[tuple[Filter, ...], FiltersOfSpec] = {}
        self._eligible: dict[frozenset[int] | None, tuple[list[BoolArray], BoolArray]] = {}
        self._eligible_of: dict[tuple[int, str], tuple[PodSpec, BoolArray]] = {}
        self._version = -1
        snapshot.nodes.caches.add(self)

    @property
    def filters(self) -> tuple[Filter, ...]:
        """Return the filters in kube-scheduler's order."""
        return self._filters

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._asked = {key: each for key, each in self._asked.items() if key in used}
        self._eligible.clear()  # its keys are ids of arrays that the filters also drop
        self._eligible_of.clear()

    def refusal(self, pod: Pod) -> str | None:
        """Return the reason if the pod is rejected before any node is examined, otherwise ``None``."""
        found = self.refusing_filter(pod)
        return None if found is None else found[1]

    def refusing_filter(self, pod: Pod) -> tuple[Filter, str] | None:
        """Return the first filter that rejects the pod before any node is examined, and its reason, or ``None``.

        This includes a filter that makes the scheduler abort with an error.
        """
        rules = self._rules(pod.spec)
        for rule in rules.refusing:
            found = rule.refusal(pod)
            if found is not None:
                return rule, found
        for erring in rules.erring:
            errors = erring.errors(pod)
            if errors:
                text = self._error(pod, erring, errors)
                if text is not None:
                    return erring, f'running "{erring.name}" filter plugin: {text}'
        return None

    def _error(self, pod: Pod, erring: Filter, errors: Mapping[int, str]) -> str | None:
        """Return the error that aborts the scheduler's search, or ``None`` if nothing aborts it.

        This is the error on the first node by name that passes all earlier filters. The scheduler stops early if it
        finds enough feasible nodes, and then does not encounter the error.
        """
        nodes = self.snapshot.nodes
        reached: BoolArray = nodes.used.copy()
        for rule in self._filters[: self._filters.index(erring)]:
            passing = rule.passing(pod)
            if passing is not None:
                reached &= passing
        if np.count_nonzero(self._mask(pod)) >= _num_feasible_nodes_to_find(len(nodes)):
            return None
        return next((errors[slot] for slot in nodes.order().tolist() if slot in errors and reached[slot]), None)

    def feasible(self, pod: Pod) -> BoolArray:
        """Return the slots that pass all filters for a pending pod: bool, shape (capacity,), a fresh array."""
        if self.refusal(pod) is not None:
            return np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        return self._mask(pod)

    def feasible_among(self, pod: Pod, slots: IntArray) -> IntArray:
        """Return those of the given slots that pass all filters for a pending pod, in the given order.

        Filters that read other pods run first, because :meth:`eligible` is computed again after a node was added.

        Args:
            pod: the pod.
            slots: int64, slots of nodes.
        """
        if self.refusal(pod) is not None:
            return slots[:0]
        rules = self._rules(pod.spec)
        for rule in (*rules.on_pods, *rules.on_resources):
            if not len(slots):
                return slots
            slots = rule.passing_among(pod, slots)
        return slots[self.eligible(pod)[slots]] if len(slots) else slots

    def _mask(self, pod: Pod) -> BoolArray:
        mask: BoolArray = self.eligible(pod).copy()
        rules = self._rules(pod.spec)
        for rule in (*rules.on_resources, *rules.on_pods):
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def _rules(self, spec: PodSpec) -> FiltersOfSpec:
        found = self._asked.get(id(spec))
        if found is None:
            if len(self._asked) >= _MAX_SPECS:
                self._asked.clear()
            asked = tuple([rule for rule in self._filters if rule.may_concern(spec)])
            rules = self._rule_sets.get(asked)
            if rules is None:
                rules = self._rule_sets[asked] = FiltersOfSpec.of(asked, self._erring)
            found = self._asked[id(spec)] = (spec, rules)  # keeps the spec alive, so that its id is not reused
        return found[1]

    def eligible(self, pod: Pod) -> BoolArray:
        """Return the slots that pass all filters that depend on neither requested resources nor other pods.

        All slots are false if a filter rejects the pod because of its spec, as for a pod with ResourceClaims.

        The result is bool, shape (capacity,). Specs with equal node requirements share one array, so callers must not
        write to it. The pod's ``node`` must be empty unless the pod requests that node.
        """
        nodes = self.snapshot.nodes
        most = len(self._eligible) >= _MAX_MASKS or len(self._eligible_of) >= _MAX_SPECS
        version = nodes.static_version(conditions=self._reads_conditions)
        if most or self._version != version:
            self._eligible.clear()
            self._eligible_of.clear()
            self._version = version
        asked = (id(pod.spec), pod.node)
        found = self._eligible_of.get(asked)
        if found is None:
            verdicts = [passing for rule in self._on_nodes if (passing := rule.passing(pod)) is not None]
            refused = any(rule.refusal(pod) is not None for rule in self._refusing_nodes)
            if refused:
                verdicts = [np.zeros(nodes.capacity, dtype=np.bool_)]
            key = None if refused else frozenset(map(id, verdicts))
            known = self._eligible.get(key)
            if known is None:  # keeps the arrays alive, so that their ids are not reused
                known = self._eligible[key] = (verdicts, np.logical_and.reduce([nodes.used, *verdicts]))
            found = self._eligible_of[asked] = (pod.spec, known[1])  # keeps the spec alive
        return found[1]

    def passing_pod_filters(self, pod: Pod) -> BoolArray:
        """Return the slots that pass all filters that depend on other pods: bool, shape (capacity,)."""
        if self.refusal(pod) is not None:
            return np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        mask: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._rules(pod.spec).on_pods:
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def ignores_other_pods(self, pod: Pod) -> bool:
        """Return whether the pod's feasible nodes do not depend on other pods, apart from their resource usage.

        Such a pod need not be removed from its node before it is evaluated for other nodes, because no filter counts it
        there.
        """
        for rule in self._rules(pod.spec).on_pods:  # noqa: SIM110 - a generator would be slower
            if rule.concerns(pod):
                return False
        return True

    def is_helped_by(self, pod: Pod, other: Pod) -> bool:
        """Return whether another pod on a node may be the reason why some node is feasible for the pod.

        The result depends only on the other pod's namespace and labels, and on whether it has volumes.
        """
        return any(rule.concerns(pod) and rule.helped_by(pod, other) for rule in self._rules(pod.spec).on_pods)

    def is_only_repelled(self, pod: Pod) -> bool:
        """Return whether other pods affect the pod's feasible nodes only by their usage and required anti-affinity.

        This depends only on the pod, and not on the pods that are bound.
        """
        spec = pod.spec
        if spec.volumes or spec.host_ports or spec.affinity.pod_required or spec.affinity.anti_required:
            return False
        others = (rule for rule in self._rules(pod.spec).on_pods if rule is not self._anti_affinity)
        return self._anti_affinity is not None and not any(rule.concerns(pod) for rule in others)

    def rejected_by_anti_affinity(self, pod: Pod) -> BoolArray | None:
        """Return the slots that the required anti-affinity of bound pods rejects: bool, shape (capacity,).

        The result is ``None`` if no bound pod has required anti-affinity.
        """
        return None if self._anti_affinity is None else self._anti_affinity.rejected_by_others(pod)

    def diagnose(self, pod: Pod) -> Diagnosis:
        """Evaluate all nodes for a pod. The result contains the reasons of the first filter that each node fails.

        If the profile checks all filters, the reasons are those of every filter that the node fails.
        """
        refused = self.refusing_filter(pod)
        if refused is not None:
            rule, text = refused
            error = rule.refusal(pod) is None
            return Diagnosis(len(self.snapshot.nodes), text, (), rule.name, error)
        failures = self._all_failures(pod) if self._checks_all else self._failures(pod)
        return Diagnosis(len(self.snapshot.nodes), None, tuple(failures))

    def node_verdicts(self, pod: Pod) -> list[NodeVerdict]:
        """Return a verdict for each node, ordered by node name.

        The reasons are those of the first filter that the node fails.
        """
        nodes = self.snapshot.nodes
        diagnosis = self.diagnose(pod)
        if diagnosis.refusal is not None:
            return [NodeVerdict(nodes.node(slot).name, False, (diagnosis.refusal,)) for slot in nodes.order().tolist()]
        reasons: dict[int, tuple[str, ...]] = {}
        for texts, slots in diagnosis.failures:
            reasons.update(dict.fromkeys(slots.tolist(), texts))
        return [
            NodeVerdict(nodes.node(slot).name, slot not in reasons, reasons.get(slot, ()))
            for slot in nodes.order().tolist()
        ]

    def unschedulable_message(self, pod: Pod, further: Iterable[tuple[BoolArray, str]] = ()) -> str:
        """Return kube-scheduler's message for a pending pod that fits on no node.

        Args:
            pod: the pod, with an empty ``node``.
            further: additional filters in order, each given as the slots that pass (bool, shape (capacity,)) and the
                reason for the other slots.
        """
        diagnosis = self.diagnose(pod)
        if diagnosis.refusal is not None or not further:
            return diagnosis.message()
        failures = list(diagnosis.failures)
        left: BoolArray = self.snapshot.nodes.used.copy()
        for _, slots in failures:
            left[slots] = False
        for passing, text in further:
            failures.append(((text,), np.flatnonzero(left & ~passing)))
            left &= passing
        return Diagnosis(diagnosis.nodes, None, tuple(failures)).message()

    def failing_filters(self, pod: Pod) -> list[tuple[Filter, BoolArray]]:
        """Return every filter that at least one node fails, in order, with all slots that fail it.

        Unlike :meth:`diagnose`, which stops at the first filter that a node fails, this shows everything that prevents
        the pod from running on a node. The arrays are bool, shape (capacity,), and fresh. Call this method only if
        :meth:`refusal` returns ``None``.
        """
        found = []
        used = self.snapshot.nodes.used
        for rule in self._rules(pod.spec).all:
            passing = rule.passing(pod)
            if passing is not None:
                failing: BoolArray = used & ~passing
                if failing.any():
                    found.append((rule, failing))
        return found

    def first_failing_filter(self, pod: Pod, slot: int) -> Filter | None:
        """Return the first filter that the slot's node fails, or ``None`` if the node is feasible.

        Call this method only if :meth:`refusal` returns ``None``.
        """
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is not None and not passing[slot]:
                return rule
        return None

    def first_reasons(self, pod: Pod, slot: int) -> tuple[str, ...]:
        """Return the reasons of :meth:`first_failing_filter`; empty if the node is feasible."""
        rule = self.first_failing_filter(pod, slot)
        if rule is None:
            return ()
        return next(texts for texts, slots in rule.failures(pod, np.array([slot], dtype=np.int64)) if len(slots))

    def _failures(self, pod: Pod) -> Iterator[Failure]:
        """Yield the slots of infeasible nodes, grouped by the reasons of the first filter that they fail."""
        left: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._rules(pod.spec).all:
            passing = rule.passing(pod)
            if passing is None:
                continue
            failing = np.flatnonzero(left & ~passing)
            if len(failing):
                yield from rule.failures(pod, failing)
                left &= passing

    def _all_failures(self, pod: Pod) -> Iterator[Failure]:
        """Yield the slots of infeasible nodes, grouped by the reasons of all filters that they fail."""
        groups: list[tuple[str, ...]] = []
        failed: list[BoolArray] = []
        used = self.snapshot.nodes.used
        for rule in self._filters:
            passing = rule.passing(pod)
            failing = np.empty(0, dtype=np.int64) if passing is None else np.flatnonzero(used & ~passing)
            for texts, slots in rule.failures(pod, failing) if len(failing) else ():
                flags: BoolArray = np.zeros(len(used), dtype=np.bool_)
                flags[slots] = True
                groups.append(texts)
                failed.append(flags)
        if not failed:
            return
        table = np.column_stack(failed)
        failing = np.flatnonzero(table.any(axis=1))
        patterns, which = np.unique(table[failing], axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            reasons = dict.fromkeys(text for place in np.flatnonzero(pattern).tolist() for text in groups[place])
            yield tuple(reasons), failing[which.ravel() == number]


def _num_feasible_nodes_to_find(number: int) -> int:
    """Return the number of feasible nodes after which kube-scheduler stops searching (``numFeasibleNodesToFind``)."""
    return number if number < 100 else max(number * max(50 - number // 125, 5) // 100, 100)
