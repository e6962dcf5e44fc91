"""Determines which policy handles a node, and where policies conflict with each other, kubelets or themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.bounds import named, plural
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.kube.objects import Node
from trimtab.kube.rules.selectors import label_matcher
from trimtab.pressure.thresholds import ThresholdComparison, ThresholdWarning


class PolicyConflict(Struct, frozen=True):
    """A conflict of a policy with another policy, with the kubelets of its nodes, or of its own thresholds.

    Attributes:
        policy: the name of the policy.
        reason: ``NodesHandledByOtherPolicy``, ``ThresholdNotAboveKubelet`` or ``SoftThresholdNotAboveHard``.
        message: the details.
        other: the name of the policy that handles the nodes; empty for a conflict of thresholds.
        nodes: the names of the affected nodes, sorted.
    """

    policy: str
    reason: str
    message: str
    other: str = ""
    nodes: tuple[str, ...] = ()


class Assignment(Struct, frozen=True):
    """The policies of nodes.

    Attributes:
        policies: the policy that handles each node, by the node's name. Nodes that no policy selects are absent.
        overlaps: the nodes that a policy selects and another one handles, by the names of the two policies.
    """

    policies: Mapping[str, NodePressurePolicy]
    overlaps: Mapping[tuple[str, str], tuple[str, ...]]


def assign_nodes(nodes: Iterable[Node], policies: Sequence[NodePressurePolicy]) -> Assignment:
    """Assign each node to the first policy by name that selects it.

    Args:
        nodes: the nodes, in any order.
        policies: all policies, whatever their mode, in any order.
    """
    matchers = [
        (policy, None if policy.spec.node_selector is None else label_matcher(policy.spec.node_selector.compile()))
        for policy in sorted(policies, key=lambda policy: policy.name)
    ]
    found: dict[str, NodePressurePolicy] = {}
    overlaps: dict[tuple[str, str], list[str]] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        for policy, matches in matchers:
            if matches is not None and not matches(node.labels):
                continue
            first = found.setdefault(node.name, policy)
            if first is not policy:
                overlaps.setdefault((policy.name, first.name), []).append(node.name)
    return Assignment(found, {names: tuple(each) for names, each in sorted(overlaps.items())})


def policy_conflicts(assignment: Assignment) -> tuple[PolicyConflict, ...]:
    """Return the conflicts between policies, sorted by the names of the policies."""
    found = []
    for (policy, first), names in assignment.overlaps.items():
        message = (
            f"NodePressurePolicy {first}, whose name sorts first, handles {plural(len(names), 'node')} that this "
            f"policy also selects: {named(names)}"
        )
        found.append(PolicyConflict(policy, reasons.NODES_HANDLED_BY_OTHER_POLICY, message, first, names))
    return tuple(found)


def threshold_conflicts(
    policy: NodePressurePolicy, capacities: Mapping[str, Mapping[str, int]] | None = None
) -> tuple[PolicyConflict, ...]:
    """Return the thresholds of a policy that have no effect, because a more urgent one is met no later.

    These are thresholds at which the kubelet evicts as early as trimtab, or earlier, and soft thresholds that are not
    above the hard one. The API server compares the latter only if both are quantities, or both percentages.
    A quantity and a percentage can only be compared for a capacity. Without capacities, such pairs are skipped.

    Args:
        policy: the policy.
        capacities: the capacity of each signal, by the name of the node and the signal.

    Returns:
        one conflict for each threshold, in the order of :func:`~trimtab.pressure.thresholds.thresholds_of`.
    """
    comparison = ThresholdComparison(policy.spec)
    always = comparison.warnings()
    found = [PolicyConflict(policy.name, each.reason, each.message) for each in always]
    on_nodes: dict[ThresholdWarning, list[str]] = {}
    for name, of_signals in sorted((capacities or {}).items()):
        for warning in comparison.warnings(of_signals):
            if warning not in always:
                on_nodes.setdefault(warning, []).append(name)
    for warning, names in on_nodes.items():
        shown = f"{warning.message} on {plural(len(names), 'node')}: {named(names)}"
        found.append(PolicyConflict(policy.name, warning.reason, shown, nodes=tuple(names)))
    return tuple(found)
