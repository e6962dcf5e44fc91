"""Whether selectors match: label selectors, node selectors and their terms, field selectors.

The rules are those of k8s.io/apimachinery ``labels`` and component-helpers ``nodeaffinity`` (v0.36). Matching never
fails: an expression that Kubernetes itself cannot evaluate (an unknown operator, In without values, a value that no
label can have, a bound that is no integer) makes its selector or term match nothing, as kube-scheduler treats it. What
a person writes is checked before with :func:`label_selector_errors`.

Selectors are turned into a function once and kept: planners ask the same few hundred selectors about every pod.
Where one selector meets many objects, hold on to :func:`label_matcher` or :func:`node_matcher` and save the look-up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from trimtab.kube.objects.selector import LabelRequirement, LabelSelector, NodeSelector, NodeSelectorTerm
from trimtab.kube.rules.selector_syntax import (
    FieldRequirement,
    FieldSelector,
    SelectorError,
    is_label_key,
    is_label_value,
    parse_field_selector,
    parse_label_selector,
    selector_string,
)

__all__ = [
    "FieldRequirement",
    "FieldSelector",
    "LabelMatcher",
    "NodeMatcher",
    "SelectorError",
    "label_matcher",
    "label_selector_errors",
    "matches_fields",
    "matches_labels",
    "matches_node_selector",
    "matches_node_term",
    "node_matcher",
    "node_term_matcher",
    "parse_field_selector",
    "parse_label_selector",
    "selector_string",
    "selects_no_node",
]

LabelMatcher = Callable[[Mapping[str, str]], bool]
"""Called with labels."""

NodeMatcher = Callable[[Mapping[str, str], str], bool]
"""Called with a node's labels and its name."""

_SETS: Final = frozenset({"In", "NotIn"})
_PRESENCE: Final = frozenset({"Exists", "DoesNotExist"})
_BOUNDS: Final = frozenset({"Gt", "Lt"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")
_INT64: Final = range(-(2**63), 2**63)


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector selects an object with these labels: nil selects nothing, an empty one everything."""
    return label_matcher(selector)(labels)


def matches_node_selector(selector: NodeSelector | None, labels: Mapping[str, str], name: str) -> bool:
    """Whether one of the terms selects the node.

    ``None`` is a pod that requires nothing and selects every node; a selector without terms selects none.
    """
    return node_matcher(selector)(labels, name)


def matches_node_term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether all expressions of the term hold for the node; a term without any selects no node."""
    return node_term_matcher(term)(labels, name)


def selects_no_node(term: NodeSelectorTerm) -> bool:
    """Whether the term is empty, or one that Kubernetes cannot evaluate: no node matches, whatever it is like."""
    return node_term_matcher(term) is _no_node


def matches_fields(selector: FieldSelector, fields: Mapping[str, str]) -> bool:
    """Whether all terms hold; a field that is absent is the empty text."""
    return all((fields.get(term.field, "") == term.value) is term.equal for term in selector.requirements)


@lru_cache(maxsize=16384)
def label_matcher(selector: LabelSelector | None) -> LabelMatcher:
    """The selector as a function of labels."""
    if selector is None or label_selector_errors(selector):
        return _nothing
    predicates = [_predicate(requirement) for requirement in selector.match_expressions]
    if selector.match_labels:
        predicates.insert(0, _all_equal(selector.match_labels))
    return _all_of(predicates)


@lru_cache(maxsize=4096)
def node_matcher(selector: NodeSelector | None) -> NodeMatcher:
    """The node selector as a function of a node's labels and name."""
    if selector is None:
        return _any_node
    terms = [matcher for matcher in map(node_term_matcher, selector.terms) if matcher is not _no_node]
    if not terms:
        return _no_node
    if len(terms) == 1:
        return terms[0]
    return lambda labels, name: any(term(labels, name) for term in terms)


@lru_cache(maxsize=4096)
def node_term_matcher(term: NodeSelectorTerm) -> NodeMatcher:
    """The term as a function of a node's labels and name."""
    if not term.match_expressions and not term.match_fields:
        return _no_node
    if any(True for requirement in term.match_expressions for _ in _errors(requirement, _SETS | _PRESENCE | _BOUNDS)):
        return _no_node
    if not all(_names_one_node(requirement) for requirement in term.match_fields):
        return _no_node
    on_labels = _all_of([_predicate(requirement) for requirement in term.match_expressions])
    on_name = [(requirement.values[0], requirement.operator == "In") for requirement in term.match_fields]
    if not on_name:
        return lambda labels, _name: on_labels(labels)
    return lambda labels, name: all((name == value) is equal for value, equal in on_name) and on_labels(labels)


def label_selector_errors(selector: LabelSelector) -> tuple[str, ...]:
    """What the API server would refuse in a label selector, one sentence each, beginning with the field."""
    errors = [f"matchLabels: {key!r} is no valid label key" for key in selector.match_labels if not is_label_key(key)]
    errors += [
        f"matchLabels[{key}]: {value!r} is no valid label value"
        for key, value in selector.match_labels.items()
        if not is_label_value(value)
    ]
    for index, requirement in enumerate(selector.match_expressions):
        errors += [f"matchExpressions[{index}].{error}" for error in _errors(requirement, _SETS | _PRESENCE)]
    return tuple(errors)


def _errors(requirement: LabelRequirement, operators: frozenset[str]) -> Iterable[str]:
    """Why Kubernetes cannot evaluate the requirement (apimachinery ``labels.NewRequirement``)."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if not is_label_key(key):
        yield f"key: {key!r} is no valid label key"
    if operator not in operators:
        yield f"operator: {operator!r} is not allowed; use {', '.join(sorted(operators))}"
    elif operator in _SETS and not values:
        yield f"values: {operator} needs at least one value"
    elif operator in _PRESENCE and values:
        yield f"values: {operator} takes no values"
    elif operator in _BOUNDS and (len(values) != 1 or _int64(values[0]) is None):
        yield f"values: {operator} needs exactly one integer of 64 bits"
    for value in values:
        if not is_label_value(value):
            yield f"values: {value!r} is no valid label value"


def _names_one_node(requirement: LabelRequirement) -> bool:
    return (
        requirement.key == "metadata.name" and requirement.operator in ("In", "NotIn") and len(requirement.values) == 1
    )


def _predicate(requirement: LabelRequirement) -> LabelMatcher:
    """A valid requirement as a function of labels; NotIn and DoesNotExist hold where the key is absent."""
    key, operator, values = requirement.key, requirement.operator, frozenset(requirement.values)
    if operator == "In":
        return lambda labels: labels.get(key) in values
    if operator == "NotIn":
        return lambda labels: labels.get(key) not in values
    if operator == "Exists":
        return lambda labels: key in labels
    if operator == "DoesNotExist":
        return lambda labels: key not in labels
    return _bound(key, requirement.values[0], above=operator == "Gt")


def _bound(key: str, text: str, *, above: bool) -> LabelMatcher:
    """Gt or Lt: both sides as integers; false where the label is absent or no integer."""
    bound = _int64(text)

    def holds(labels: Mapping[str, str]) -> bool:
        number = _int64(labels.get(key, ""))
        if number is None or bound is None:
            return False
        return number > bound if above else number < bound

    return holds


def _all_equal(wanted: Mapping[str, str]) -> LabelMatcher:
    if len(wanted) == 1:
        [(key, value)] = wanted.items()
        return lambda labels: labels.get(key) == value
    items = wanted.items()
    return lambda labels: items <= labels.items()


def _all_of(predicates: list[LabelMatcher]) -> LabelMatcher:
    """The conjunction; one and two predicates, by far the most frequent, without a loop."""
    if not predicates:
        return _everything
    if len(predicates) == 1:
        return predicates[0]
    if len(predicates) == 2:
        first, second = predicates
        return lambda labels: first(labels) and second(labels)

    def holds(labels: Mapping[str, str]) -> bool:
        for predicate in predicates:  # noqa: SIM110  a generator would cost more than what it runs
            if not predicate(labels):
                return False
        return True

    return holds


def _int64(text: str) -> int | None:
    """What Go's ``strconv.ParseInt(text, 10, 64)`` reads, or ``None``."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def _nothing(_labels: Mapping[str, str]) -> bool:
    return False


def _everything(_labels: Mapping[str, str]) -> bool:
    return True


def _no_node(_labels: Mapping[str, str], _name: str) -> bool:
    return False


def _any_node(_labels: Mapping[str, str], _name: str) -> bool:
    return True
