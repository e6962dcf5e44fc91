"""Groups pods of the same template into equivalence classes, so that each template is evaluated only once.

A cluster may have 150,000 pods but far fewer templates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api.reasons import NOT_ENOUGH_PDB
from trimtab.autoscaling.scale_down.drainability import (
    DRAIN,
    SKIP,
    DrainContext,
    DrainOutcome,
    DrainVerdict,
    block,
    judge,
    judge_template,
    of_daemon_set,
)
from trimtab.autoscaling.scale_down.eligibility import unready
from trimtab.cluster.affinity import bind
from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.replacements import bound_by_template
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer

_TERMINAL_PHASES: Final = ("Succeeded", "Failed")


class PlacementClass(Struct, frozen=True, eq=False):
    """Pods that the scheduler's filters cannot distinguish: they have the same requests and fit on the same nodes.

    Attributes:
        number: the number of the class, from 0.
        wanted: the columns and amounts of the requests, excluding zeros
            (:attr:`trimtab.cluster.resources.Amounts.wanted`).
        eligible: bool, shape (capacity,): the slots of feasible nodes, regardless of their free capacity.
        sample: one of the pods, in the form of a pending pod.
    """

    number: int
    wanted: tuple[tuple[int, int], ...]
    eligible: BoolArray
    sample: Pod


class EquivalenceClass(Struct, frozen=True, eq=False):
    """Pods of one template in one namespace that are running and not being deleted.

    Attributes:
        template: the shared objects. They are referenced here so that their ids, which are part of the key, are not
            reused.
        verdict: the result of the drain rules, excluding PodDisruptionBudgets.
        budgets: whether a PodDisruptionBudget selects the pods.
        is_daemon: whether the pods belong to a DaemonSet. Such pods are deleted with their node.
        needs_placement: whether the pods need another node. This is false for DaemonSet pods, static pods, pods below
            the priority cutoff, and pods that return to a node that is not ready (:func:`returns_to_unready_node`).
        placement_class: the placement class of the pods; ``None`` if their placement also depends on other pods or on
            volumes.
        repelled_class: set if ``placement_class`` is ``None``, and the placement depends on other pods only because of
            their required anti-affinity. The pods then fit on the nodes on which a pod of this class fits and that this
            anti-affinity does not reject.
    """

    template: tuple[object, ...]
    verdict: DrainVerdict
    budgets: bool
    is_daemon: bool
    needs_placement: bool
    placement_class: PlacementClass | None
    repelled_class: PlacementClass | None = None


ClassifiedPods = tuple[tuple[Pod, EquivalenceClass], ...]
"""Pods with their equivalence classes."""


def namespaces_with_dependent_pods(pods: ClassifiedPods) -> tuple[str, ...]:
    """Return the sorted namespaces of the pods that need another node, and whose placement depends on other pods.

    Placing all other pods takes almost no time.
    """
    found = {pod.namespace for pod, each in pods if each.needs_placement and each.placement_class is None}
    return tuple(sorted(found))


def returns_to_unready_node(pod: Pod, snapshot: Snapshot) -> bool:
    """Return whether a pod is on a node that is not ready, and its controller's template sets ``nodeName``.

    Such a pod can run on no other node, and keeping the node does not make it run either.
    """
    node = snapshot.nodes.get(pod.node)
    return node is not None and unready(node) and bound_by_template(pod, snapshot)


def is_running(pod: Pod) -> bool:
    """Return whether the pod is running or pending, and not being deleted.

    The drain result of a class applies only to such pods.
    """
    return pod.deleted is None and pod.phase not in _TERMINAL_PHASES


class NodeDrain(Struct, frozen=True):
    """The result of evaluating the drain of a node.

    Attributes:
        moving: the pods that need another node, sorted by ``namespace/name``, with their classes.
        evicted: the pods whose evictions were charged to PodDisruptionBudgets.
        blocking: the pod that blocks the removal; ``None`` if no pod does. If a pod does, no eviction was charged.
        verdict: the drain result of the blocking pod.
    """

    moving: ClassifiedPods = ()
    evicted: tuple[Pod, ...] = ()
    blocking: Pod | None = None
    verdict: DrainVerdict = DRAIN


class EquivalenceClasses:
    """The equivalence classes of a snapshot's pods. They are computed on demand.

    Args:
        placer: places pods on the snapshot.
        context: the state and the settings of the drain rules.
        priority_cutoff: the priority below which pods block no removal. They are evicted, but need no other node.
        pending: pods that are placed before nodes are removed. Pods that conflict with their anti-affinity get no
            placement class.
        held_too_long: names of nodes that pod annotations no longer protect from removal.
    """

    def __init__(
        self,
        placer: Placer,
        context: DrainContext,
        *,
        priority_cutoff: int,
        pending: Iterable[Pod] = (),
        held_too_long: Collection[str] = (),
    ) -> None:
        self._placer = placer
        self._context = context
        self._held_too_long = held_too_long
        self._without_holds = replace(context, holds=False)
        self._priority_cutoff = priority_cutoff
        self._repelling_terms = {
            bind(term, pod.namespace) for pod in pending for term in pod.spec.affinity.anti_required
        }
        self._known: defaultdict[tuple[bool, bool], dict[tuple[str, int, int, int, int], EquivalenceClass]] = (
            defaultdict(dict)
        )
        """By whether pod annotations protect the node from removal, and whether the node is not ready."""
        self._class_of_spec: dict[tuple[object, ...], PlacementClass | None] = {}
        self._classes: dict[tuple[tuple[tuple[int, int], ...], int, bool], PlacementClass] = {}

    def of(self, pod: Pod) -> EquivalenceClass:
        """Return the equivalence class of a pod."""
        return self._classify((pod,), pod.node)[0][1]

    def on(self, node: str) -> ClassifiedPods:
        """Return the pods of a node with their classes, sorted by ``namespace/name``."""
        return self._classify(self._placer.snapshot.pods_on(node), node)

    def _classify(self, pods: Iterable[Pod], name: str) -> ClassifiedPods:
        node = self._placer.snapshot.nodes.get(name)
        known = self._known[self._holds(name), node is not None and unready(node)]
        classified = []
        for pod in pods:
            key = (pod.namespace, id(pod.spec), id(pod.labels), id(pod.owners), id(pod.annotations))
            found = known.get(key)
            if found is None:
                found = known[key] = self._make(pod)
            classified.append((pod, found))
        return tuple(classified)

    def drain(self, pods: ClassifiedPods) -> NodeDrain:
        """Evaluate the drain rules for a node's pods, and charge the evictions to the PodDisruptionBudgets.

        Call :meth:`take_back` if the node is not removed after all.
        """
        moving: list[tuple[Pod, EquivalenceClass]] = []
        charged: list[Pod] = []
        for pod, pod_class in pods:
            live = is_running(pod)
            verdict = pod_class.verdict if live else self._judge(pod)
            if verdict.outcome is DrainOutcome.SKIP or pod_class.is_daemon:
                continue
            if verdict.outcome is DrainOutcome.DRAIN and pod_class.budgets:
                refusal = self._context.budgets.refusal(pod)
                if refusal is None:
                    self._context.budgets.take(pod)
                    charged.append(pod)
                else:
                    verdict = block(NOT_ENOUGH_PDB, refusal.message)
            if verdict.outcome is not DrainOutcome.DRAIN:
                self.take_back(charged)
                return NodeDrain(blocking=pod, verdict=verdict)
            if live and pod_class.needs_placement:
                moving.append((pod, pod_class))
        return NodeDrain(tuple(moving), tuple(charged))

    def take_back(self, evicted: Iterable[Pod]) -> None:
        """Refund the evictions that :meth:`drain` charged, because the node is not removed."""
        for pod in evicted:
            self._context.budgets.take_back(pod)

    def _judge(self, pod: Pod) -> DrainVerdict:
        return SKIP if pod.priority < self._priority_cutoff else judge(pod, self._context_of(pod))

    def _holds(self, node: str) -> bool:
        return node not in self._held_too_long

    def _context_of(self, pod: Pod) -> DrainContext:
        return self._context if self._holds(pod.node) else self._without_holds

    def _make(self, pod: Pod) -> EquivalenceClass:
        expendable = pod.priority < self._priority_cutoff
        sample = replace(pod, node="", deleted=None, phase="Running")
        # An expendable pod needs no other node, but its PodDisruptionBudget is respected.
        verdict = DRAIN if expendable else judge_template(sample, self._context_of(pod))
        is_daemon = of_daemon_set(pod)
        needed = replace(self._placer.replacement(pod), deleted=None, phase="Running")
        placement_class = self._placement_class_of(needed)
        return EquivalenceClass(
            template=(pod.spec, pod.labels, pod.owners, pod.annotations),
            verdict=verdict,
            budgets=bool(self._context.budgets.matching(pod)),
            is_daemon=is_daemon,
            needs_placement=not expendable
            and verdict.outcome is not DrainOutcome.SKIP
            and not is_daemon
            and not returns_to_unready_node(pod, self._placer.snapshot),
            placement_class=placement_class,
            repelled_class=self._repelled_class_of(needed) if placement_class is None else None,
        )

    def _placement_class_of(self, sample: Pod) -> PlacementClass | None:
        """Return the placement class of a pod's template.

        Templates with equal specs share it, unless labels affect their placement. It is ``None`` if the placement also
        depends on other pods or on volumes.
        """
        spec = sample.spec
        if self._is_repelled(sample):
            return None
        if spec.volumes or self._placer.snapshot.any_anti_affinity:
            return self._compute_placement_class(sample)
        key = (
            self._placer.snapshot.amounts(spec).wanted,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread,
            spec.host_ports,
            spec.resource_claims,
            spec.required_features,
            spec.scheduling_gates,
            spec.complexity,
            self._placer.snapshot.complexity.exceeded(sample),
        )
        if key not in self._class_of_spec:
            self._class_of_spec[key] = self._compute_placement_class(sample)
        return self._class_of_spec[key]

    def _is_repelled(self, sample: Pod) -> bool:
        labels = self._placer.snapshot.namespace_labels(sample.namespace)
        return any(term.matches(sample.namespace, sample.labels, labels) for term in self._repelling_terms)

    def _repelled_class_of(self, sample: Pod) -> PlacementClass | None:
        if not self._placer.is_only_repelled(sample) or self._placer.refusal(sample) is not None:
            return None
        return self._class(sample, repelled=True)

    def _compute_placement_class(self, sample: Pod) -> PlacementClass | None:
        if not self._placer.ignores_other_pods(sample) or self._placer.refusal(sample) is not None:
            return None
        return self._class(sample, repelled=False)

    def _class(self, sample: Pod, *, repelled: bool) -> PlacementClass:
        wanted = self._placer.snapshot.amounts(sample.spec).wanted
        eligible = self._placer.eligible(sample)
        key = (wanted, id(eligible), repelled)
        found = self._classes.get(key)
        if found is None:
            found = self._classes[key] = PlacementClass(len(self._classes), wanted, eligible, sample)
        return found
