"""Which nodes take a pod, and why others don't: the filters, asked for all nodes at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from msgspec import Struct

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import Erring, Failure, Filter
from trimtab.placement.judgement import Judgement

_MOST_MASKS: Final = 512
_MOST_SPECS: Final = 16_384


class NodeVerdict(Struct, frozen=True, gc=False):
    """Whether a pod fits a node and, where not, kube-scheduler's reasons (those of the first filter that failed)."""

    node: str
    fits: bool
    reasons: tuple[str, ...] = ()


class Rules(Struct, frozen=True):
    """The rules that may concern pods of one spec, in order, all of them and by what they read.

    Attributes:
        all: every one.
        on_room: those that compare amounts.
        on_pods: those that look at other pods.
        erring: those that may give up with an error.
    """

    all: tuple[Filter, ...]
    on_room: tuple[Filter, ...]
    on_pods: tuple[Filter, ...]
    erring: tuple[Erring, ...]

    @classmethod
    def of(cls, rules: tuple[Filter, ...], erring: tuple[Erring, ...]) -> Rules:
        """Sort them.

        Args:
            rules: those that may concern the spec.
            erring: all that may err, whatever the spec: to ask a rule's type is slow, and there are thousands of specs.
        """
        return cls(
            all=rules,
            on_room=tuple(rule for rule in rules if rule.reads == "room"),
            on_pods=tuple(rule for rule in rules if rule.reads == "pods"),
            erring=tuple(rule for rule in erring if rule in rules),
        )


class Judge:
    """Asks the filters on one snapshot; keep it as long as the snapshot, for its caches.

    Args:
        snapshot: the picture; changes to it are seen at once.
        filters: the rules, in kube-scheduler's order.
    """

    def __init__(self, snapshot: Snapshot, filters: tuple[type[Filter], ...]) -> None:
        self.snapshot = snapshot
        self._filters: tuple[Filter, ...] = tuple(kind(snapshot) for kind in filters)
        self._on_nodes = tuple(rule for rule in self._filters if rule.reads == "node")
        self._erring = tuple(rule for rule in self._filters if isinstance(rule, Erring))
        self._asked: dict[int, tuple[PodSpec, Rules]] = {}
        self._rule_sets: dict[tuple[Filter, ...], Rules] = {}
        self._eligible: dict[frozenset[int] | None, tuple[list[BoolArray], BoolArray]] = {}
        self._eligible_of: dict[tuple[int, str], tuple[PodSpec, BoolArray]] = {}
        self._version = -1

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The rules, in kube-scheduler's order."""
        return self._filters

    def refusal(self, pod: Pod) -> str | None:
        """Why the pod can go nowhere, whatever the nodes are like; ``None`` if it may."""
        found = self.refusing(pod)
        return None if found is None else found[1]

    def refusing(self, pod: Pod) -> tuple[Filter, str] | None:
        """The first rule that refuses the pod whatever the nodes are like, with its reason; ``None`` if none does.

        So does one with whose error the scheduler gives up on the pod; it does not itself refuse it.
        """
        rules = self._rules(pod.spec)
        for rule in rules.all:
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
        """The error that ends the scheduler's search, at the first such node by name; ``None`` where it has enough.

        It comes upon a node that passes all rules before, and it looks at all nodes unless it finds enough that fit.
        """
        nodes = self.snapshot.nodes
        reached: BoolArray = nodes.used.copy()
        for rule in self._filters[: self._filters.index(erring)]:
            passing = rule.passing(pod)
            if passing is not None:
                reached &= passing
        if np.count_nonzero(self._mask(pod)) >= _enough(len(nodes)):
            return None
        return next((errors[slot] for slot in nodes.order().tolist() if slot in errors and reached[slot]), None)

    def feasible(self, pod: Pod) -> BoolArray:
        """The slots on which a pending pod can run: bool, shape (capacity,), a fresh array."""
        if self.refusal(pod) is not None:
            return np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        return self._mask(pod)

    def _mask(self, pod: Pod) -> BoolArray:
        mask: BoolArray = self.eligible(pod).copy()
        rules = self._rules(pod.spec)
        for rule in (*rules.on_room, *rules.on_pods):
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def _rules(self, spec: PodSpec) -> Rules:
        """The rules that may concern pods of a spec."""
        found = self._asked.get(id(spec))
        if found is None:
            if len(self._asked) >= _MOST_SPECS:
                self._asked.clear()
            asked = tuple([rule for rule in self._filters if rule.may_concern(spec)])
            rules = self._rule_sets.get(asked)
            if rules is None:
                rules = self._rule_sets[asked] = Rules.of(asked, self._erring)
            found = self._asked[id(spec)] = (spec, rules)  # the spec is held: its id stays its own
        return found[1]

    def eligible(self, pod: Pod) -> BoolArray:
        """The slots whose nodes suit the pod, however full they are and whatever runs there.

        None where a rule refuses the pod for its spec: where ResourceClaims can be met, nobody knows.

        Bool, shape (capacity,); one array for all specs that ask the same of nodes, so callers must not write to it.
        As everywhere here, the pod's ``node`` is to be empty, unless it asks for that node.
        """
        nodes = self.snapshot.nodes
        most = len(self._eligible) >= _MOST_MASKS or len(self._eligible_of) >= _MOST_SPECS
        if most or self._version != nodes.version:
            self._eligible.clear()
            self._eligible_of.clear()
            self._version = nodes.version
        asked = (id(pod.spec), pod.node)
        found = self._eligible_of.get(asked)
        if found is None:
            verdicts = [passing for rule in self._on_nodes if (passing := rule.passing(pod)) is not None]
            refused = any(rule.refusal(pod) is not None for rule in self._on_nodes)
            if refused:
                verdicts = [np.zeros(nodes.capacity, dtype=np.bool_)]
            key = None if refused else frozenset(map(id, verdicts))
            known = self._eligible.get(key)
            if known is None:  # the verdicts are held: their ids stay their own
                known = self._eligible[key] = (verdicts, np.logical_and.reduce([nodes.used, *verdicts]))
            found = self._eligible_of[asked] = (pod.spec, known[1])  # the spec is held: its id stays its own
        return found[1]

    def neighbourly(self, pod: Pod) -> BoolArray:
        """The slots where the pods that are there, or around there, let the pod in: bool, shape (capacity,)."""
        if self.refusal(pod) is not None:
            return np.zeros(self.snapshot.nodes.capacity, dtype=np.bool_)
        mask: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._rules(pod.spec).on_pods:
            passing = rule.passing(pod)
            if passing is not None:
                mask &= passing
        return mask

    def plain(self, pod: Pod) -> bool:
        """Whether only nodes and room decide where the pod can run.

        Such a pod can be judged where it is, for its presence changes nothing on other nodes.
        """
        for rule in self._rules(pod.spec).on_pods:  # noqa: SIM110 - a generator takes as long as the rules themselves
            if rule.concerns(pod):
                return False
        return True

    def judge(self, pod: Pod) -> Judgement:
        """What is wrong with which nodes, each under the first filter that it fails, as kube-scheduler tells it."""
        refused = self.refusing(pod)
        if refused is not None:
            rule, text = refused
            error = rule.refusal(pod) is None
            return Judgement(len(self.snapshot.nodes), text, (), rule.name, error)
        return Judgement(len(self.snapshot.nodes), None, tuple(self._failures(pod)))

    def verdicts(self, pod: Pod) -> list[NodeVerdict]:
        """Every node in the order of names, with the reasons of the first filter it fails, or the pod's refusal."""
        nodes = self.snapshot.nodes
        judgement = self.judge(pod)
        if judgement.refusal is not None:
            return [NodeVerdict(nodes.node(slot).name, False, (judgement.refusal,)) for slot in nodes.order().tolist()]
        reasons: dict[int, tuple[str, ...]] = {}
        for texts, slots in judgement.failures:
            reasons.update(dict.fromkeys(slots.tolist(), texts))
        return [
            NodeVerdict(nodes.node(slot).name, slot not in reasons, reasons.get(slot, ()))
            for slot in nodes.order().tolist()
        ]

    def why_not(self, pod: Pod, further: Iterable[tuple[BoolArray, str]] = ()) -> str:
        """kube-scheduler's sentence for a pending pod that fits nowhere.

        Args:
            pod: the pod, as if pending.
            further: rules beyond the filters, in order: which slots pass (bool, shape (capacity,)), and the text for
                those that do not.
        """
        judgement = self.judge(pod)
        if judgement.refusal is not None or not further:
            return judgement.sentence()
        failures = list(judgement.failures)
        left: BoolArray = self.snapshot.nodes.used.copy()
        for _, slots in failures:
            left[slots] = False
        for passing, text in further:
            failures.append(((text,), np.flatnonzero(left & ~passing)))
            left &= passing
        return Judgement(judgement.nodes, None, tuple(failures)).sentence()

    def failing(self, pod: Pod) -> list[tuple[Filter, BoolArray]]:
        """Every rule that some node fails, in the filters' order, with all slots that fail it.

        Other than :meth:`judge`, which stops at a node's first: what would have to change for a node to take the pod
        is all of it. Bool, shape (capacity,), fresh arrays. Asked only where :meth:`refusal` says nothing.
        """
        found = []
        used = self.snapshot.nodes.used
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is not None:
                failing: BoolArray = used & ~passing
                if failing.any():
                    found.append((rule, failing))
        return found

    def obstacle(self, pod: Pod, slot: int) -> Filter | None:
        """The first rule that the node in ``slot`` fails, ``None`` where it takes the pod.

        Asked only where :meth:`refusal` says nothing.
        """
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is not None and not passing[slot]:
                return rule
        return None

    def _failures(self, pod: Pod) -> Iterator[Failure]:
        """Each slot with a node that fails, once, under the first filter that it fails."""
        left: BoolArray = self.snapshot.nodes.used.copy()
        for rule in self._filters:
            passing = rule.passing(pod)
            if passing is None:
                continue
            failing = np.flatnonzero(left & ~passing)
            if len(failing):
                yield from rule.failures(pod, failing)
                left &= passing


def _enough(number: int) -> int:
    """After how many fitting nodes the scheduler stops to look (v1.36 ``numFeasibleNodesToFind``, by default)."""
    return number if number < 100 else max(number * max(50 - number // 125, 5) // 100, 100)
