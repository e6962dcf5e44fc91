"""What pods ask of nodes and of other pods."""

from __future__ import annotations

from typing import Any

from tests.builders import HOSTNAME, ZONE, PodBuilder, expression
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import APPS, NAMESPACES, REGION


def add_node_rules(chance: Chance, made: PodBuilder) -> None:
    """Selectors, required and preferred terms, and tolerations."""
    if chance.one_in(10):
        made.node_selector(**chance.pick(*({"disk": "ssd"},) * 6, {"disk": "ssd", "gen": "5"}, {"none": "x"}))
    for _ in range(chance.pick(0, 0, 0, 0, 0, 0, 0, 1, 2)):
        fields = chance.some(lambda: _field(chance), 0, 0, 1, 2)
        expressions = chance.some(lambda: _expression(chance), 0, 1, 1, 2)
        if chance.one_in(20):
            # The API server takes it, and no node passes. In a preferred term it is an error of the scheduler's, unless
            # just one node is left: see placement.scores.node_affinity.
            expressions.append(expression("gen", chance.pick("Gt", "Lt"), "x"))
        made.node_affinity(*expressions, fields=tuple(fields))
    for _ in range(chance.pick(0, 0, 0, 1, 2)):
        weight = chance.pick(1, 10, 33, 100)
        made.prefers_nodes(weight, *chance.some(lambda: _expression(chance), 0, 1, 1, 2))
        if chance.one_in(5):
            affinity = made._at("spec", "affinity", "nodeAffinity")
            preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"][-1]["preference"]
            preferred["matchFields"] = [_field(chance)]
    made.merge(spec={"tolerations": chance.some(lambda: _toleration(chance), 0, 0, 1, 2)})


def add_pod_rules(chance: Chance, made: PodBuilder, *, required: int, preferred: int) -> None:
    """Affinity and anti-affinity: of so many pods, one has it."""
    if chance.one_in(required):
        for term in chance.some(lambda: _term(chance), 1, 1, 2):
            made.affinity(**term)
    if chance.one_in(required):
        for term in chance.some(lambda: _term(chance), 1, 1, 2):
            made.anti_affinity(**term)
    if chance.one_in(preferred):
        for term in chance.some(lambda: _term(chance), 1, 2, 3):
            made.affinity(preferred=chance.pick(1, 20, 100), **term)
    if chance.one_in(preferred):
        for term in chance.some(lambda: _term(chance), 1, 2, 3):
            made.anti_affinity(preferred=chance.pick(1, 20, 100), **term)


def _expression(chance: Chance) -> dict[str, Any]:
    return chance.pick(
        expression("disk", "In", "ssd"),
        expression("disk", "NotIn", "ssd"),
        expression(ZONE, "In", chance.pick("a", "b", "c")),
        expression(ZONE, "NotIn", "a", "b"),
        expression(ZONE, "DoesNotExist"),
        expression("gen", "Gt", chance.pick("0", "4", "7")),
        expression("gen", "Lt", chance.pick("6", "0")),
        expression("gen", "Exists"),
        expression("rack", "NotIn", "r1"),
    )


def _field(chance: Chance) -> dict[str, Any]:
    return expression("metadata.name", chance.pick("In", "In", "NotIn"), f"n{chance.number(0, 14)}")


def _toleration(chance: Chance) -> dict[str, Any]:
    if chance.one_in(8):
        return {"operator": "Exists"} | chance.pick({}, {"effect": "NoSchedule"}, {"effect": "PreferNoSchedule"})
    found: dict[str, Any] = {"key": chance.pick("t", "t", "u", "soft", "node.kubernetes.io/unschedulable")}
    found |= chance.pick({"operator": "Exists"}, {"operator": "Equal", "value": "v"}, {"value": "v"}, {})
    effects = ("", "", "NoSchedule", "NoExecute", "PreferNoSchedule")
    effect = chance.pick(*effects)
    if effect == "NoExecute" and chance.one_in(2):
        found["tolerationSeconds"] = chance.pick(0, 300)
    return found | ({"effect": effect} if effect else {})


def random_selector(chance: Chance) -> dict[str, Any]:
    """A label selector over what pods carry."""
    expressions = [expression("app", chance.pick("In", "NotIn"), *chance.pick(("a",), ("a", "b"), ("c",)))]
    return chance.pick(
        {"matchLabels": {"app": chance.pick(*APPS)}},
        {"matchLabels": {"app": chance.pick(*APPS)}},
        {"matchExpressions": expressions},
        {"matchLabels": {"tier": "front"}, "matchExpressions": expressions},
        {"matchExpressions": [expression("tier", chance.pick("Exists", "Exists", "DoesNotExist"))]},
        {},
    )


def _term(chance: Chance) -> dict[str, Any]:
    term: dict[str, Any] = {"topology_key": chance.pick(HOSTNAME, HOSTNAME, ZONE, ZONE, REGION, "disk", "rack")}
    term["labelSelector"] = random_selector(chance)
    if chance.one_in(12):
        term["labelSelector"] = None  # no selector at all picks nothing
    if chance.one_in(3):
        term["namespaces"] = chance.sample(NAMESPACES, chance.pick(1, 1, 2))
    if chance.one_in(3):
        by_name = {"matchLabels": {"kubernetes.io/metadata.name": "grey"}}
        by_absence = {"matchExpressions": [expression("team", "DoesNotExist")]}
        term["namespaceSelector"] = chance.pick({"matchLabels": {"team": "x"}}, {}, by_name, by_absence)
    # The API server takes a key in the selector or among the keys only, and keys only beside a selector.
    if chance.one_in(4) and "tier" not in str(term) and term["labelSelector"] is not None:
        term[chance.pick("matchLabelKeys", "mismatchLabelKeys")] = ["tier"]
    return term
