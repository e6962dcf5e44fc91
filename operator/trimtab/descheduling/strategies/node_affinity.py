"""RemovePodsViolatingNodeAffinity: pods whose node does not, or no longer, have what they ask of a node."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from trimtab.api.reasons import NODE_AFFINITY_VIOLATED
from trimtab.api.strategies import PREFERRED, REQUIRED, NodeAffinityParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.context import Context, Wish, pending
from trimtab.descheduling.order import victim_order
from trimtab.descheduling.scope import Scope
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Node, Pod, PodSpec
from trimtab.kube.rules.selectors import node_term_matcher
from trimtab.placement.filters.node_affinity import NodeAffinity
from trimtab.placement.placer import Placer


class RemovePodsViolatingNodeAffinity(Strategy[NodeAffinityParams]):
    """Required rules first, then preferences.

    Required: the node fails the pod's node selector or required node affinity, and another node takes the pod. A plain
    node selector is a rule as good as an affinity (upstream looks at the latter only).

    Preferred: a node that takes the pod has a strictly higher sum of weights than the pod's own. Upstream compares with
    the heaviest node whether or not it takes the pod, and so evicts some pods for ever.

    In both cases the pod goes to the heaviest node that takes it, if preferences are looked at.
    """

    NAME = "RemovePodsViolatingNodeAffinity"
    unwelcome_text = "node(s) suited the pod's preferred node affinity less"

    def __init__(self, params: NodeAffinityParams, scope: Scope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._required = REQUIRED in params.node_affinity_type
        self._preferred = PREFERRED in params.node_affinity_type
        self._rule = NodeAffinity(self.snapshot)
        self._anywhere: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        self._weights: dict[int, tuple[PodSpec, IntArray]] = {}
        self._stuck: dict[int, tuple[int, Refusal]] = {}

    def plan(self, context: Context) -> None:
        """Node by node in the order of names, its pods in victim order."""
        nodes = self.snapshot.nodes
        stating = {pod.node for pod in self.snapshot.pods.values() if _states_something(pod.spec)}
        sources = [slot for slot in self.scope.sources if nodes.node(slot).name in stating]
        if self._required:
            for slot in sources:
                for pod in sorted(context.candidates(slot, self._violates), key=victim_order):
                    self._repair(context, pod, slot)
        if self._preferred:
            for slot in sources:
                pods = context.candidates(slot, lambda pod: self._shortfall(pod) > 0 and not self._violates(pod))
                for pod in sorted(pods, key=lambda pod: victim_order(pod, self._shortfall(pod))):
                    self._improve(context, pod, slot)

    def measure(self) -> Measure:
        """Pods on nodes that fail their rules, then the weight they miss, each where it is looked at."""
        violations, missed = 0, 0
        for slot in self.scope.sources:
            for pod in self.snapshot.pods_on(self.snapshot.nodes.node(slot).name):
                if not pod.terminal and pod.deleted is None and self.scope.covers(pod):
                    violations += self._required and self._violates(pod)
                    missed += self._shortfall(pod) if self._preferred else 0
        return float(violations), float(missed)

    def unwelcome(self, pod: Pod) -> Collection[int]:
        """Nodes of less weight than the pod's own."""
        if not self._preferred or not pod.spec.affinity.node.preferred:
            return ()
        weights = self._weight(pod.spec)
        less: list[int] = np.flatnonzero(weights < weights[self._home(pod)]).tolist()
        return less

    def may_object(self) -> bool:
        """Whether preferences are looked at."""
        return self._preferred

    def _repair(self, context: Context, pod: Pod, slot: int) -> None:
        spec = id(pod.spec)
        known = self._stuck.get(spec)
        if known is not None and known[0] == len(context.board.actions) and self.placer.plain(pod):
            # Thousands of pods may want a label that is gone. Their own nodes fail for it, so all fare alike.
            refusal = context.obstacle(pod) or known[1]
            context.keep(pod, refusal.reason, refusal.message)
            return
        rank = -self._weight(pod.spec) if self._preferred else None
        wish = Wish(self._anywhere, "", rank)
        source = self.snapshot.nodes.node(slot)
        found: int | Refusal = context.obstacle(pod) or context.find(pod, wish)
        if isinstance(found, int):
            text = f"{unmet(pod.spec, source)}; {self.snapshot.nodes.node(found).name} matches"
            refused = context.move(pod, found, reason=NODE_AFFINITY_VIOLATED, message=text)
        else:
            refused = found
        if refused is not None:
            context.keep(pod, refused.reason, refused.message)

    def _improve(self, context: Context, pod: Pod, slot: int) -> None:
        weights = self._weight(pod.spec)
        here = int(weights[slot])
        name = self.snapshot.nodes.node(slot).name
        wish = Wish(weights > here, f"node(s) had a preferred node affinity weight of {here} or less", -weights)
        context.try_move(
            pod,
            wish,
            reason=NODE_AFFINITY_VIOLATED,
            message=lambda target: (
                f"preferred node affinity weight of {name} is {here}; "
                f"{self.snapshot.nodes.node(target).name} has {int(weights[target])}"
            ),
        )

    def _violates(self, pod: Pod) -> bool:
        spec = pod.spec
        if not spec.node_selector and spec.affinity.node.required is None:
            return False
        passing = self._rule.passing(pod)
        return passing is not None and not passing[self._home(pod)]

    def _shortfall(self, pod: Pod) -> int:
        """By how much the heaviest node that suits the pod outweighs its own, however full; 0 if none does."""
        if not pod.spec.affinity.node.preferred:
            return 0
        weights = self._weight(pod.spec)
        suits = self.placer.eligible(pending(pod)) & self.scope.destinations
        return max(0, int(np.max(weights, where=suits, initial=0)) - int(weights[self._home(pod)]))

    def _weight(self, spec: PodSpec) -> IntArray:
        """The sum of the weights of the preferred terms that each node matches; int64, shape (nodes.capacity,)."""
        found = self._weights.get(id(spec))
        if found is None:
            nodes = self.snapshot.nodes
            weights = np.zeros(nodes.capacity, dtype=np.int64)
            terms = [(node_term_matcher(each.term), each.weight) for each in spec.affinity.node.preferred]
            for slot in nodes.slot_of.values() if terms else ():
                node = nodes.node(slot)
                weights[slot] = sum(weight for matches, weight in terms if matches(node.labels, node.name))
            found = self._weights[id(spec)] = (spec, weights)  # the spec is held: its id stays its own
        return found[1]

    def _home(self, pod: Pod) -> int:
        return self.snapshot.nodes.slot_of[pod.node]


def _states_something(spec: PodSpec) -> bool:
    affinity = spec.affinity.node
    return bool(spec.node_selector) or affinity.required is not None or bool(affinity.preferred)


def unmet(spec: PodSpec, node: Node) -> str:
    """Which of a pod's requirements the node fails, with the labels that were compared."""
    for key, value in spec.node_selector.items():
        have = node.labels.get(key)
        if have != value:
            has = f"{key}={have}" if have is not None else f"no label {key}"
            return f"{node.name} has {has}, the pod's node selector wants {key}={value}"
    required = spec.affinity.node.required
    number = 0 if required is None else len(required.terms)
    if number == 1:
        return f"{node.name} does not match the pod's required node affinity"
    return f"{node.name} matches none of the pod's {number} required node affinity terms"
