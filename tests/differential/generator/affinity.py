"""Node selectors, node affinity, tolerations, pod affinity and anti-affinity."""

from __future__ import annotations

from typing import Any

from tests.builders import HOSTNAME, ZONE, PodBuilder, expression
from tests.differential.generator.names import APPS, NAMESPACES, REGION
from tests.differential.generator.rng import RandomSource


def add_node_rules(rng: RandomSource, made: PodBuilder) -> None:
    """Add a node selector, required and preferred node affinity terms, and tolerations."""
    if rng.one_in(10):
        made.node_selector(**rng.pick(*({"disk": "ssd"},) * 6, {"disk": "ssd", "gen": "5"}, {"none": "x"}))
    for _ in range(rng.pick(0, 0, 0, 0, 0, 0, 0, 1, 2)):
        fields = rng.several(lambda: _field(rng), 0, 0, 1, 2)
        expressions = rng.several(lambda: _expression(rng), 0, 1, 1, 2)
        if rng.one_in(20):
            # The API server accepts this value, and no node matches it. In a preferred term kube-scheduler returns an
            # error, unless only one node fits: see placement.scores.node_affinity.
            expressions.append(expression("gen", rng.pick("Gt", "Lt"), "x"))
        made.node_affinity(*expressions, fields=tuple(fields))
    for _ in range(rng.pick(0, 0, 0, 1, 2)):
        weight = rng.pick(1, 10, 33, 100)
        made.prefers_nodes(weight, *rng.several(lambda: _expression(rng), 0, 1, 1, 2))
        if rng.one_in(5):
            affinity = made._at("spec", "affinity", "nodeAffinity")
            preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"][-1]["preference"]
            preferred["matchFields"] = [_field(rng)]
    made.merge(spec={"tolerations": rng.several(lambda: _toleration(rng), 0, 0, 1, 2)})


def add_pod_rules(rng: RandomSource, made: PodBuilder, *, required: int, preferred: int) -> None:
    """Add affinity and anti-affinity, each with a probability of one in ``required`` or one in ``preferred``."""
    if rng.one_in(required):
        for term in rng.several(lambda: _term(rng), 1, 1, 2):
            made.affinity(**term)
    if rng.one_in(required):
        for term in rng.several(lambda: _term(rng), 1, 1, 2):
            made.anti_affinity(**term)
    if rng.one_in(preferred):
        for term in rng.several(lambda: _term(rng), 1, 2, 3):
            made.affinity(preferred=rng.pick(1, 20, 100), **term)
    if rng.one_in(preferred):
        for term in rng.several(lambda: _term(rng), 1, 2, 3):
            made.anti_affinity(preferred=rng.pick(1, 20, 100), **term)


def _expression(rng: RandomSource) -> dict[str, Any]:
    return rng.pick(
        expression("disk", "In", "ssd"),
        expression("disk", "NotIn", "ssd"),
        expression(ZONE, "In", rng.pick("a", "b", "c")),
        expression(ZONE, "NotIn", "a", "b"),
        expression(ZONE, "DoesNotExist"),
        expression("gen", "Gt", rng.pick("0", "4", "7")),
        expression("gen", "Lt", rng.pick("6", "0")),
        expression("gen", "Exists"),
        expression("rack", "NotIn", "r1"),
    )


def _field(rng: RandomSource) -> dict[str, Any]:
    return expression("metadata.name", rng.pick("In", "In", "NotIn"), f"n{rng.number(0, 14)}")


def _toleration(rng: RandomSource) -> dict[str, Any]:
    if rng.one_in(8):
        return {"operator": "Exists"} | rng.pick({}, {"effect": "NoSchedule"}, {"effect": "PreferNoSchedule"})
    found: dict[str, Any] = {"key": rng.pick("t", "t", "u", "soft", "node.kubernetes.io/unschedulable")}
    found |= rng.pick({"operator": "Exists"}, {"operator": "Equal", "value": "v"}, {"value": "v"}, {})
    effects = ("", "", "NoSchedule", "NoExecute", "PreferNoSchedule")
    effect = rng.pick(*effects)
    if effect == "NoExecute" and rng.one_in(2):
        found["tolerationSeconds"] = rng.pick(0, 300)
    return found | ({"effect": effect} if effect else {})


def random_selector(rng: RandomSource) -> dict[str, Any]:
    """Generate a label selector over the pods' labels."""
    expressions = [expression("app", rng.pick("In", "NotIn"), *rng.pick(("a",), ("a", "b"), ("c",)))]
    return rng.pick(
        {"matchLabels": {"app": rng.pick(*APPS)}},
        {"matchLabels": {"app": rng.pick(*APPS)}},
        {"matchExpressions": expressions},
        {"matchLabels": {"tier": "front"}, "matchExpressions": expressions},
        {"matchExpressions": [expression("tier", rng.pick("Exists", "Exists", "DoesNotExist"))]},
        {},
    )


def _term(rng: RandomSource) -> dict[str, Any]:
    term: dict[str, Any] = {"topology_key": rng.pick(HOSTNAME, HOSTNAME, ZONE, ZONE, REGION, "disk", "rack")}
    term["labelSelector"] = random_selector(rng)
    if rng.one_in(12):
        term["labelSelector"] = None  # without a selector, the term matches no pod
    if rng.one_in(3):
        term["namespaces"] = rng.sample(NAMESPACES, rng.pick(1, 1, 2))
    if rng.one_in(3):
        by_name = {"matchLabels": {"kubernetes.io/metadata.name": "grey"}}
        by_absence = {"matchExpressions": [expression("team", "DoesNotExist")]}
        term["namespaceSelector"] = rng.pick({"matchLabels": {"team": "x"}}, {}, by_name, by_absence)
    # The API server rejects a key that is in the selector as well, and keys without a selector.
    if rng.one_in(4) and "tier" not in str(term) and term["labelSelector"] is not None:
        term[rng.pick("matchLabelKeys", "mismatchLabelKeys")] = ["tier"]
    return term
