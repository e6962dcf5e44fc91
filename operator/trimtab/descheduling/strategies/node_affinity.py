"""RemovePodsViolatingNodeAffinity: evicts pods whose node does not match their node affinity."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from trimtab.api.reasons import NODE_AFFINITY_VIOLATED
from trimtab.api.strategies import PREFERRED, REQUIRED, NodeAffinityParams
from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.descheduling.planning.context import PlacementPreference, StrategyContext
from trimtab.descheduling.planning.scope import PolicyScope
from trimtab.descheduling.planning.victim_order import victim_order
from trimtab.descheduling.strategies.strategy import Measure, Strategy
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import Cause
from trimtab.kube.objects import Node, Pod, PodSpec
from trimtab.kube.rules.selectors import node_term_matcher
from trimtab.placement.filters.nodes import NodeAffinity
from trimtab.placement.placer import Placer


class RemovePodsViolatingNodeAffinity(Strategy[NodeAffinityParams]):
    """Moves pods whose required rules are violated first, then pods for which another node has a higher weight.

    Required: a pod is moved if its node does not match its node selector or required node affinity, and another node
    can run it. Node selectors are included (upstream considers only node affinity).

    Preferred: a pod is moved if a node that can run it matches preferred terms with a strictly higher sum of weights
    than its own node. Upstream compares with the node of the highest weight even if that node cannot run the pod, and
    therefore evicts some pods in every cycle.

    In both cases, if preferred terms are enforced, the target is the node with the highest weight among those that can
    run the pod.
    """

    NAME = "RemovePodsViolatingNodeAffinity"
    objection_text = "node(s) had a lower preferred node affinity weight"

    def __init__(self, params: NodeAffinityParams, scope: PolicyScope, placer: Placer) -> None:
        super().__init__(params, scope, placer)
        self._required = REQUIRED in params.node_affinity_type
        self._preferred = PREFERRED in params.node_affinity_type
        self._rule = NodeAffinity(self.snapshot)
        self._anywhere: BoolArray = np.ones(self.snapshot.nodes.capacity, dtype=np.bool_)
        self._weights: dict[int, tuple[PodSpec, IntArray]] = {}
        self._stuck: dict[int, tuple[int, Refusal]] = {}

    def plan(self, context: StrategyContext) -> None:
        """Plan moves node by node, in the order of node names, and in victim order on each node."""
        nodes = self.snapshot.nodes
        stating = {pod.node for pod in self.snapshot.pods.values() if _has_node_affinity(pod.spec)}
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
        """Return the number of pods whose required rules are violated and, if enforced, the missed preferred weight."""
        violations, missed = 0, 0
        for slot in self.scope.sources:
            for pod in self.snapshot.pods_on(self.snapshot.nodes.node(slot).name):
                if not pod.terminal and pod.deleted is None and self.scope.covers(pod):
                    violations += self._required and self._violates(pod)
                    missed += self._shortfall(pod) if self._preferred else 0
        return float(violations), float(missed)

    def worse_slots(self, pod: Pod) -> Collection[int]:
        """Return the slots whose preferred terms have a lower weight for the pod than those of its current node."""
        if not self._preferred or not pod.spec.affinity.node.preferred:
            return ()
        weights = self._weight(pod.spec)
        less: list[int] = np.flatnonzero(weights < weights[self._slot_of(pod)]).tolist()
        return less

    def may_object(self) -> bool:
        """Return whether the policy enforces preferred terms."""
        return self._preferred

    def _repair(self, context: StrategyContext, pod: Pod, slot: int) -> None:
        spec = id(pod.spec)
        known = self._stuck.get(spec)
        if known is not None and known[0] == len(context.plan_state.actions) and self.placer.ignores_other_pods(pod):
            # Thousands of pods may require a label that was removed. No node has it, so they share the result.
            refusal = context.blocker(pod, (Cause(pod),)) or known[1]
            context.keep(pod, refusal.reason, refusal.message)
            return
        rank = -self._weight(pod.spec) if self._preferred else None
        preference = PlacementPreference(self._anywhere, "", rank)
        source = self.snapshot.nodes.node(slot)
        found: int | Refusal = context.blocker(pod, (Cause(pod),)) or context.find_node(pod, preference)
        if isinstance(found, int):
            text = f"{unmet(pod.spec, source)}; {self.snapshot.nodes.node(found).name} matches"
            refused = context.plan_move(pod, found, reason=NODE_AFFINITY_VIOLATED, message=text, causes=(Cause(pod),))
        else:
            refused = found
        if refused is not None:
            context.keep(pod, refused.reason, refused.message)

    def _improve(self, context: StrategyContext, pod: Pod, slot: int) -> None:
        weights = self._weight(pod.spec)
        here = int(weights[slot])
        name = self.snapshot.nodes.node(slot).name
        preference = PlacementPreference(
            weights > here, f"node(s) had a preferred node affinity weight of {here} or less", -weights
        )
        context.try_move(
            pod,
            preference,
            reason=NODE_AFFINITY_VIOLATED,
            message=lambda target: (
                f"preferred node affinity weight of {name} is {here}; "
                f"{self.snapshot.nodes.node(target).name} has {int(weights[target])}"
            ),
            causes=(Cause(pod),),
        )

    def _violates(self, pod: Pod) -> bool:
        spec = pod.spec
        if not spec.node_selector and spec.affinity.node.required is None:
            return False
        passing = self._rule.passing(pod)
        return passing is not None and not passing[self._slot_of(pod)]

    def _shortfall(self, pod: Pod) -> int:
        """Return how much higher the weight of the best eligible node is than that of the pod's node; 0 if it is not.

        Free capacity is ignored.
        """
        if not pod.spec.affinity.node.preferred:
            return 0
        weights = self._weight(pod.spec)
        suits = self.placer.eligible(self.placer.replacement(pod)) & self.scope.destinations
        return max(0, int(np.max(weights, where=suits, initial=0)) - int(weights[self._slot_of(pod)]))

    def _weight(self, spec: PodSpec) -> IntArray:
        """Return the sum of the weights of matching preferred terms on each node: int64, shape (nodes.capacity,)."""
        found = self._weights.get(id(spec))
        if found is None:
            nodes = self.snapshot.nodes
            weights = np.zeros(nodes.capacity, dtype=np.int64)
            terms = [(node_term_matcher(each.term), each.weight) for each in spec.affinity.node.preferred]
            for slot in nodes.slot_of.values() if terms else ():
                node = nodes.node(slot)
                weights[slot] = sum(weight for matches, weight in terms if matches(node.labels, node.name))
            found = self._weights[id(spec)] = (spec, weights)  # the spec is kept, so that the id stays valid
        return found[1]

    def _slot_of(self, pod: Pod) -> int:
        return self.snapshot.nodes.slot_of[pod.node]


def _has_node_affinity(spec: PodSpec) -> bool:
    affinity = spec.affinity.node
    return bool(spec.node_selector) or affinity.required is not None or bool(affinity.preferred)


def unmet(spec: PodSpec, node: Node) -> str:
    """Return a description of the pod's requirements that the node does not meet, with the compared labels."""
    for key, value in spec.node_selector.items():
        have = node.labels.get(key)
        if have != value:
            has = f"{key}={have}" if have is not None else f"no label {key}"
            return f"{node.name} has {has}, the pod's node selector requires {key}={value}"
    required = spec.affinity.node.required
    number = 0 if required is None else len(required.terms)
    if number == 1:
        return f"{node.name} does not match the pod's required node affinity"
    return f"{node.name} matches none of the pod's {number} required node affinity terms"
