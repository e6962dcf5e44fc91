"""Remedies that change a node's cordon, taints or labels, or a pod's selectors, spread constraints or affinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from trimtab.kube.frozen import Labels
from trimtab.kube.objects import (
    LabelRequirement,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    Taint,
    Toleration,
    TopologySpread,
    WeightedPodTerm,
)
from trimtab.kube.rules.selectors import matches_node_term
from trimtab.kube.rules.taints import UNSCHEDULABLE, find_untolerated_taint
from trimtab.placement.node_masks import term_mask
from trimtab.placement.remedies.costs import (
    CHANGE_SELECTOR,
    EACH_ADDITIONAL,
    LABEL,
    RECOVER,
    RELABEL,
    RELAX_CONSTRAINT,
    TOGGLE,
    TOLERATE,
    UNTAINT,
)
from trimtab.placement.remedies.interface import IMPOSSIBLE, Costs, RefusalRemedy, Remedy, RemedyCase, Step, node_step
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY


def untolerated_taints(taints: tuple[Taint, ...], pod: Pod) -> tuple[Taint, ...]:
    """Return the taints that the pod does not tolerate."""
    return tuple(taint for taint in taints if find_untolerated_taint((taint,), pod.spec.tolerations) is not None)


def set_by_kubernetes(taint: Taint) -> bool:
    """Return whether Kubernetes itself adds the taint while a node has a problem, and removes it afterwards.

    Removing such a taint does not help, because Kubernetes would add it again. Tolerating it does not help, because the
    pod would not run on that node.
    """
    domain = taint.key.partition("/")[0]
    return domain in ("node.kubernetes.io", "node.cloudprovider.kubernetes.io")


def cost_by_taints(case: RemedyCase, cost: Callable[[tuple[Taint, ...]], float]) -> Costs:
    """Return a cost per node that depends only on its untolerated taints: float64, shape (capacity,).

    Nodes without untolerated taints have the cost 0.
    """
    nodes = case.snapshot.nodes
    found = [untolerated_taints(taints, case.pod) for taints in nodes.taint_sets]
    return np.array([cost(taints) if taints else 0.0 for taints in found])[nodes.taints]


def taint_cost(taints: tuple[Taint, ...], price: float) -> float:
    """Return the cost of tolerating or removing taints: ``price``, plus :data:`EACH_ADDITIONAL` per additional taint.

    The cost is :data:`IMPOSSIBLE` if Kubernetes itself adds one of the taints, or if the only one is the cordon taint.
    """
    ours = without_cordon(taints)
    if not ours or any(map(set_by_kubernetes, ours)):
        return IMPOSSIBLE
    return price + EACH_ADDITIONAL * (len(ours) - 1)


def without_cordon(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the taints without the cordon taint (``node.kubernetes.io/unschedulable``)."""
    return tuple(taint for taint in taints if taint.key != UNSCHEDULABLE)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def _taint_json(taint: Taint) -> dict[str, str]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, **value, "effect": taint.effect}


OURS: Final = ("node-role.kubernetes.io", "node-restriction.kubernetes.io")
"""Label domains of Kubernetes in which users may set labels."""


class NodeRequirement(Struct, frozen=True):
    """One requirement on a node's label or name.

    Attributes:
        requirement: the requirement.
        term: the index of its term in the required node affinity, or ``None`` for a label of the node selector.
        of_name: whether the requirement is in ``matchFields``.
    """

    requirement: LabelRequirement
    term: int | None = None
    of_name: bool = False

    @property
    def alone(self) -> NodeSelectorTerm:
        """Return a term that contains only this requirement."""
        if self.of_name:
            return NodeSelectorTerm(match_fields=(self.requirement,))
        return NodeSelectorTerm(match_expressions=(self.requirement,))


def _selector_requirements(spec: PodSpec) -> list[NodeRequirement]:
    return [NodeRequirement(LabelRequirement(key, "In", (value,))) for key, value in spec.node_selector.items()]


def _term_requirements(spec: PodSpec) -> list[list[NodeRequirement]]:
    """Return the requirements of each term of the required node affinity. A node must match one of the terms."""
    required = spec.affinity.node.required
    return [] if required is None else [list(_of_term(number, term)) for number, term in enumerate(required.terms)]


def _of_term(number: int, term: NodeSelectorTerm) -> Iterator[NodeRequirement]:
    for requirement in term.match_expressions:
        yield NodeRequirement(requirement, number)
    for requirement in term.match_fields:
        yield NodeRequirement(requirement, number, of_name=True)


def unmet(spec: PodSpec, node: Node) -> list[list[NodeRequirement]]:
    """Return the requirements that the node does not meet, for each term of the required node affinity.

    Each entry contains the unmet requirements of the node selector and those of the term.
    """
    always = [wanted for wanted in _selector_requirements(spec) if not _is_met(wanted, node)]
    terms = [
        [wanted for wanted in requirements if not _is_met(wanted, node)] for requirements in _term_requirements(spec)
    ]
    return [[*always, *requirements] for requirements in terms] if terms else [always]


def cheapest_to_meet(case: RemedyCase, price: Callable[[NodeRequirement], Costs | float]) -> Costs:
    """Return the minimum cost, for each slot, of meeting the pod's node requirements: float64, shape (capacity,).

    Args:
        case: the pod.
        price: returns the cost of an unmet requirement. The cost of a node is that of its most expensive requirement,
            plus :data:`EACH_ADDITIONAL` for each other one.
    """
    spec = case.pod.spec
    options = _term_requirements(spec) or [[]]
    found: Costs = np.minimum.reduce(
        [_cost_of_all(case, [*_selector_requirements(spec), *option], price) for option in options]
    )
    return found


def system_label(key: str) -> bool:
    """Return whether Kubernetes or the cloud provider sets labels with this key, such as the hostname or zone."""
    domain = key.partition("/")[0] if "/" in key else ""
    return domain.endswith(("kubernetes.io", "k8s.io")) and domain not in OURS


def _cost_of_all(
    case: RemedyCase, requirements: list[NodeRequirement], price: Callable[[NodeRequirement], Costs | float]
) -> Costs:
    dearest = np.zeros(case.snapshot.nodes.capacity)
    number = np.zeros(case.snapshot.nodes.capacity)
    for wanted in requirements:
        failing = ~term_mask(case.snapshot, wanted.alone)
        dearest = np.maximum(dearest, np.where(failing, price(wanted), 0.0))
        number += failing
    found: Costs = np.where(dearest == IMPOSSIBLE, IMPOSSIBLE, dearest + EACH_ADDITIONAL * np.maximum(number - 1, 0))
    return found


def _is_met(wanted: NodeRequirement, node: Node) -> bool:
    return matches_node_term(wanted.alone, node.labels, node.name)


class Uncordon(Remedy):
    """Unsets ``spec.unschedulable``, and removes the taint that the node controller sets for it."""

    reason: ClassVar = "Uncordon"
    rules: ClassVar = frozenset(("NodeUnschedulable", "TaintToleration"))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        nodes = case.snapshot.nodes
        if rule == "NodeUnschedulable":
            return np.where(nodes.cordoned, TOGGLE, IMPOSSIBLE)
        cordon_only = cost_by_taints(
            case, lambda taints: 0.0 if {taint.key for taint in taints} == {UNSCHEDULABLE} else IMPOSSIBLE
        )
        return np.where(nodes.cordoned, cordon_only, cordon_only + TOGGLE)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        taints = tuple(taint for taint in node.taints if taint.key != UNSCHEDULABLE)
        if node.unschedulable or taints != node.taints:
            changed = replace(node, unschedulable=False, taints=taints)
            change = f"uncordon node {node.name}"
            yield node_step(changed, self.reason, change, TOGGLE, "spec.unschedulable", node.unschedulable, False)


class _TaintRemedy(Remedy):
    rules: ClassVar = frozenset(("TaintToleration",))

    def cost(self, taints: tuple[Taint, ...]) -> float:
        """Return the cost of this remedy for these untolerated taints, or :data:`IMPOSSIBLE` if it does not help."""
        raise NotImplementedError

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return cost_by_taints(case, self.cost)

    def without(self, node: Node, taints: tuple[Taint, ...], change: str, **fields: Any) -> Step:
        """Return a step that removes the taints from the node."""
        left = tuple(taint for taint in node.taints if taint not in taints)
        before, after = [[_taint_json(taint) for taint in each] for each in (node.taints, left)]
        changed = replace(node, taints=left, **fields)
        return node_step(changed, self.reason, change, self.cost(taints), "spec.taints", before, after)


class TolerateTaint(_TaintRemedy):
    """Adds a toleration for each untolerated taint that was set on purpose.

    The API server also permits this for a running pod.
    """

    reason: ClassVar = "TolerateTaint"

    def cost(self, taints: tuple[Taint, ...]) -> float:
        return taint_cost(taints, TOLERATE)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        taints = untolerated_taints(node.taints, case.pod)
        cost = self.cost(taints)
        if cost == IMPOSSIBLE:
            return
        before = case.pod.spec.tolerations
        added = (Toleration(each.key, "Equal" if each.value else "Exists", each.value, each.effect) for each in taints)
        after = (*before, *added)
        yield case.pod_step(
            self.reason,
            f"let {case.template} tolerate {' and '.join(map(_taint_text, taints))} of node {node.name}",
            cost,
            field="spec.tolerations",
            before=[_toleration_json(toleration) for toleration in before],
            after=[_toleration_json(toleration) for toleration in after],
            tolerations=after,
        )


def _toleration_json(toleration: Toleration) -> dict[str, Any]:
    found = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
        "tolerationSeconds": toleration.seconds,
    }
    return {name: value for name, value in found.items() if value not in ("", None)}


class RemoveTaint(_TaintRemedy):
    """Removes taints that were set on purpose. This affects other pods as well."""

    reason: ClassVar = "RemoveTaint"

    def cost(self, taints: tuple[Taint, ...]) -> float:
        return taint_cost(taints, UNTAINT)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        taints = untolerated_taints(node.taints, case.pod)
        if self.cost(taints) != IMPOSSIBLE:
            change = f"remove {' and '.join(map(_taint_text, taints))} from node {node.name}"
            yield self.without(node, taints, change)


class RecoverNode(_TaintRemedy):
    """Repairs a node that is not ready, unreachable or under pressure. Kubernetes then removes the node's taint."""

    reason: ClassVar = "RecoverNode"

    def cost(self, taints: tuple[Taint, ...]) -> float:
        ours = without_cordon(taints)
        return RECOVER if ours and all(map(set_by_kubernetes, ours)) else IMPOSSIBLE

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        taints = untolerated_taints(node.taints, case.pod)
        if self.cost(taints) == IMPOSSIBLE:
            return
        conditions = tuple(
            replace(condition, status="True") if condition.type == "Ready" else condition
            for condition in node.conditions
        )
        change = f"repair node {node.name}, so that Kubernetes removes {' and '.join(map(_taint_text, taints))} from it"
        yield self.without(node, taints, change, conditions=conditions)


class UpgradeKubelet(Remedy):
    """Upgrades a node's kubelet or enables its feature gates. trimtab cannot tell which of the two is needed."""

    reason: ClassVar = "UpgradeKubelet"
    rules: ClassVar = frozenset(("NodeDeclaredFeatures",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return RECOVER

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        missing = sorted(set(case.pod.spec.required_features) - set(node.declared_features))
        declared = tuple(sorted({*node.declared_features, *missing}))
        change = f"upgrade the kubelet of node {node.name}, or enable its feature gates: {', '.join(missing)}"
        changed = replace(node, declared_features=declared)
        before = list(node.declared_features)
        yield node_step(changed, self.reason, change, RECOVER, "status.declaredFeatures", before, list(declared))


class LabelNode(Remedy):
    """Adds or changes labels of a node, except those set by Kubernetes or a cloud provider (hostname, zone, …)."""

    reason: ClassVar = "LabelNode"
    rules: ClassVar = frozenset(("NodeAffinity",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        def price(wanted: NodeRequirement) -> Costs | float:
            key = wanted.requirement.key
            if wanted.of_name or system_label(key):
                return IMPOSSIBLE
            return np.where(case.snapshot.nodes.column(key).ids >= 0, RELABEL, LABEL)

        return cheapest_to_meet(case, price)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        for requirements in unmet(case.pod.spec, node):
            if not requirements or any(
                wanted.of_name or system_label(wanted.requirement.key) for wanted in requirements
            ):
                continue
            changes = {wanted.requirement.key: _label_value(wanted.requirement) for wanted in requirements}
            labels = {**node.labels, **{key: value for key, value in changes.items() if value is not None}}
            for key in [key for key, value in changes.items() if value is None]:
                labels.pop(key, None)
            there = any(key in node.labels for key in changes)
            change = f"label node {node.name}: {', '.join(_label_text(*each, node) for each in changes.items())}"
            cost = (RELABEL if there else LABEL) + EACH_ADDITIONAL * (len(requirements) - 1)
            before = {key: node.labels.get(key) for key in changes}
            changed = replace(node, labels=Labels(labels))
            yield node_step(changed, self.reason, change, cost, "metadata.labels", before, changes)


def _label_value(requirement: LabelRequirement) -> str | None:
    """Return a label value that should meet the requirement, or ``None`` if the label must be removed.

    The caller then checks whether the pod fits.
    """
    match requirement.operator:
        case "In":
            return requirement.values[0] if requirement.values else None
        case "Gt" | "Lt":
            try:
                bound = int(requirement.values[0])
            except (IndexError, ValueError):
                return None
            return str(bound + 1 if requirement.operator == "Gt" else bound - 1)
        case "Exists":
            return ""
        case _:
            return None


def _label_text(key: str, value: str | None, node: Node) -> str:
    had = node.labels.get(key)
    if value is None:
        return f"remove {key} (now {had})"
    return f"{key}={value}" if had is None else f"{key}={value} instead of {had}"


class ChangeSelector(Remedy):
    """Changes the pod's node selector to the node's label values, or removes labels or expressions that do not match.

    It does not change the node name that a DaemonSet pod requires.
    """

    reason: ClassVar = "ChangeSelector"
    rules: ClassVar = frozenset(("NodeAffinity",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        fixed = _is_of_daemon_set(case)
        return cheapest_to_meet(case, lambda wanted: IMPOSSIBLE if wanted.of_name and fixed else CHANGE_SELECTOR)

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        for requirements in unmet(case.pod.spec, node):
            if not requirements or (_is_of_daemon_set(case) and any(wanted.of_name for wanted in requirements)):
                continue
            selector, required = _changed_selector(case, node, requirements)
            spec = case.pod.spec
            yield case.pod_step(
                self.reason,
                f"let {case.template} not require {' and '.join(map(_requirement_text, requirements))}"
                f"{_describe_changed_keys(node, requirements)}",
                CHANGE_SELECTOR + EACH_ADDITIONAL * (len(requirements) - 1),
                **_selector_change(node, requirements),
                node_selector=selector,
                affinity=replace(spec.affinity, node=replace(spec.affinity.node, required=required)),
            )


def _changed_selector(
    case: RemedyCase, node: Node, requirements: list[NodeRequirement]
) -> tuple[Labels, NodeSelector | None]:
    selector = dict(case.pod.spec.node_selector)
    required = case.pod.spec.affinity.node.required
    for wanted in requirements:
        key = wanted.requirement.key
        if wanted.term is None:
            if key in node.labels:
                selector[key] = node.labels[key]
            else:
                del selector[key]
    number = next((wanted.term for wanted in requirements if wanted.term is not None), None)
    if required is not None and number is not None:
        gone = [wanted.requirement for wanted in requirements if wanted.term is not None]
        term = required.terms[number]
        left = NodeSelectorTerm(
            tuple(each for each in term.match_expressions if each not in gone),
            tuple(each for each in term.match_fields if each not in gone),
        )
        terms = (*required.terms[:number], left, *required.terms[number + 1 :])
        # An empty term matches no node, so drop the requirement instead.
        required = NodeSelector(terms) if left.match_expressions or left.match_fields else None
    return Labels(selector), required


def _selector_change(node: Node, requirements: list[NodeRequirement]) -> dict[str, Any]:
    """Return the changed field of the pod's spec, with its old and new value.

    The values are labels of the node selector, or the requirements of a node affinity term.
    """
    if all(wanted.term is None for wanted in requirements):
        asked = {wanted.requirement.key: wanted.requirement.values[0] for wanted in requirements}
        return {"field": "spec.nodeSelector", "before": asked, "after": {key: node.labels.get(key) for key in asked}}
    return {
        "field": "spec.affinity.nodeAffinity",
        "before": [_requirement_text(wanted) for wanted in requirements],
        "after": [],
    }


def _describe_changed_keys(node: Node, requirements: list[NodeRequirement]) -> str:
    keys = [wanted.requirement.key for wanted in requirements if wanted.term is None]
    found = [f"{key}={node.labels[key]}" for key in keys if key in node.labels]
    return f", but {' and '.join(found)}" if found else ""


def _requirement_text(wanted: NodeRequirement) -> str:
    requirement: Any = wanted.requirement
    if wanted.term is None:
        return f"{requirement.key}={requirement.values[0]}"
    values = f" ({', '.join(requirement.values)})" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def _is_of_daemon_set(case: RemedyCase) -> bool:
    owner = case.origin.controller
    return owner is not None and owner.kind == "DaemonSet"


_MAX_SKEW: Final = 2**31 - 1
"""The largest ``maxSkew`` (int32)."""

_MAX_REPLICAS: Final = 1 << 20
"""The upper limit of the binary search. No workload has more pods."""


class RaiseMaxSkew(Remedy):
    """Raises ``maxSkew`` of the pod's DoNotSchedule constraints to the smallest values with which the node passes.

    The values are found by binary search. The remedy does not apply if the node lacks the topology label of a
    constraint.
    """

    reason: ClassVar = "RaiseMaxSkew"
    rules: ClassVar = frozenset(("PodTopologySpread",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return CHANGE_SELECTOR if any(map(_is_hard, case.pod.spec.topology_spread)) else IMPOSSIBLE

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        constraints = case.pod.spec.topology_spread
        hard = [number for number, each in enumerate(constraints) if _is_hard(each)]
        skews = {number: constraints[number].max_skew for number in hard}
        wide = dict.fromkeys(hard, _MAX_REPLICAS)
        if not _passes_with(case, node, rule, wide):
            return
        for number in hard:
            skews[number] = _minimum_skew(case, node, rule, wide, number)
            wide[number] = skews[number]
        raised = {number: skew for number, skew in skews.items() if skew > constraints[number].max_skew}
        texts = [
            f"{constraints[number].topology_key} from {constraints[number].max_skew} to {skew}"
            for number, skew in raised.items()
        ]
        yield case.pod_step(
            self.reason,
            f"raise the maxSkew of {case.template}: {', '.join(texts)}; it fits on node {node.name} then",
            CHANGE_SELECTOR + EACH_ADDITIONAL * (len(raised) - 1),
            field=", ".join(f"spec.topologySpreadConstraints[{number}].maxSkew" for number in raised),
            before=[constraints[number].max_skew for number in raised],
            after=list(raised.values()),
            topology_spread=_with_skews(constraints, raised),
        )


def _is_hard(constraint: TopologySpread) -> bool:
    return constraint.when_unsatisfiable == DO_NOT_SCHEDULE


def _minimum_skew(case: RemedyCase, node: Node, rule: str, wide: dict[int, int], number: int) -> int:
    """Return the smallest ``maxSkew`` of one constraint with which the node passes if the others have large values."""
    low, high = case.pod.spec.topology_spread[number].max_skew, 1
    if _passes_with(case, node, rule, wide | {number: low}):
        return low
    while not _passes_with(case, node, rule, wide | {number: low + high}):
        high *= 2
    failing, passing = low + high // 2, low + high
    while passing - failing > 1:
        middle = (passing + failing) // 2
        if _passes_with(case, node, rule, wide | {number: middle}):
            passing = middle
        else:
            failing = middle
    return passing


def _passes_with(case: RemedyCase, node: Node, rule: str, skews: dict[int, int]) -> bool:
    spec = case.pod.spec
    pod = replace(case.pod, spec=replace(spec, topology_spread=_with_skews(spec.topology_spread, skews)))
    return case.passes(rule, pod, node.name)


def _with_skews(constraints: tuple[TopologySpread, ...], skews: dict[int, int]) -> tuple[TopologySpread, ...]:
    return tuple(
        replace(each, max_skew=min(skews.get(number, each.max_skew), _MAX_SKEW))
        for number, each in enumerate(constraints)
    )


class RelaxSpread(Remedy):
    """Changes DoNotSchedule constraints to ScheduleAnyway, for nodes that lack the topology label of a constraint."""

    reason: ClassVar = "RelaxSpread"
    rules: ClassVar = frozenset(("PodTopologySpread",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        return RELAX_CONSTRAINT if any(_hard_constraints(case)) else IMPOSSIBLE

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        constraints = case.pod.spec.topology_spread
        hard = _hard_constraints(case)
        keys = [each.topology_key for each, is_hard in zip(constraints, hard, strict=True) if is_hard]
        numbers = [number for number, is_hard in enumerate(hard) if is_hard]
        yield case.pod_step(
            self.reason,
            f"let {case.template} prefer, not require, its spread by {', '.join(keys)}: "
            f"it fits on node {node.name} then",
            RELAX_CONSTRAINT + EACH_ADDITIONAL * (len(keys) - 1),
            field=", ".join(f"spec.topologySpreadConstraints[{number}].whenUnsatisfiable" for number in numbers),
            before=DO_NOT_SCHEDULE,
            after=SCHEDULE_ANYWAY,
            topology_spread=tuple(replace(each, when_unsatisfiable=SCHEDULE_ANYWAY) for each in constraints),
        )


def _hard_constraints(case: RemedyCase) -> list[bool]:
    return [each.when_unsatisfiable == DO_NOT_SCHEDULE for each in case.pod.spec.topology_spread]


_FULL_WEIGHT: Final = 100
_AFFINITY_FIELDS: Final = (
    ("pod_required", "pod_preferred", "podAffinity"),
    ("anti_required", "anti_preferred", "podAntiAffinity"),
)


class RelaxAffinity(Remedy):
    """Turns required pod affinity and anti-affinity terms of the pod into preferred terms with the maximum weight.

    The required anti-affinity of other pods is not changed.
    """

    reason: ClassVar = "RelaxAffinity"
    rules: ClassVar = frozenset(("InterPodAffinity",))

    def bound(self, case: RemedyCase, rule: str) -> Costs | float:
        affinity = case.pod.spec.affinity
        return RELAX_CONSTRAINT if affinity.pod_required or affinity.anti_required else IMPOSSIBLE

    def steps(self, case: RemedyCase, node: Node, rule: str) -> Iterator[Step]:
        stated = [fields for fields in _AFFINITY_FIELDS if getattr(case.pod.spec.affinity, fields[0])]
        for chosen in ([each] for each in stated):
            yield _relax_affinity_step(case, node, chosen)
        if len(stated) > 1:
            yield _relax_affinity_step(case, node, stated)


def _relax_affinity_step(case: RemedyCase, node: Node, chosen: list[tuple[str, str, str]]) -> Step:
    affinity = case.pod.spec.affinity
    changes: dict[str, tuple[object, ...]] = {}
    number = 0
    keys = []
    for required, preferred, _ in chosen:
        terms = getattr(affinity, required)
        number += len(terms)
        keys += [term.topology_key for term in terms]
        weighted = tuple(WeightedPodTerm(_FULL_WEIGHT, term) for term in terms)
        changes |= {required: (), preferred: getattr(affinity, preferred) + weighted}
    names = " and ".join(name for _, _, name in chosen)
    return case.pod_step(
        "RelaxAffinity",
        f"let {case.template} prefer, not require, its {names} by {', '.join(keys)}: it fits on node {node.name} then",
        RELAX_CONSTRAINT + EACH_ADDITIONAL * (number - 1),
        field=f"spec.affinity.{chosen[0][2]}" if len(chosen) == 1 else "spec.affinity",
        before="requiredDuringSchedulingIgnoredDuringExecution",
        after="preferredDuringSchedulingIgnoredDuringExecution",
        affinity=replace(affinity, **changes),
    )


class RemoveSchedulingGates(RefusalRemedy):
    """Removes all scheduling gates of the pod. Normally, the controllers that own the gates remove them."""

    reason: ClassVar = "RemoveSchedulingGates"
    rules: ClassVar = frozenset(("SchedulingGates",))

    def steps_to_admit(self, case: RemedyCase) -> Iterator[Step]:
        gates = case.pod.spec.scheduling_gates
        if gates:
            yield case.pod_step(
                self.reason,
                f"remove scheduling gate{'s' * (len(gates) > 1)} {', '.join(gates)} from pod {case.origin.key}",
                TOGGLE,
                field="spec.schedulingGates",
                before=list(gates),
                after=[],
                scheduling_gates=(),
            )
