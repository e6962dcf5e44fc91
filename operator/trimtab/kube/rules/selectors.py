"""Matches label, node and field selectors, and parses their string syntax.

Matching follows k8s.io/apimachinery ``labels`` and component-helpers ``nodeaffinity`` (v0.36), and never fails. An
expression that Kubernetes cannot evaluate (an unknown operator, In without values, an invalid label value, a bound that
is not an integer) makes its selector or term match nothing, as in kube-scheduler. :func:`label_selector_errors` checks
selectors that users write.

Selectors are compiled to functions and cached, because planners match the same few hundred selectors against every pod.
To match one selector against many objects, keep the result of :func:`label_matcher` or :func:`node_matcher`.

The syntax (``app=web,tier notin (db),!old``, ``spec.nodeName=n1``) is that of apimachinery's ``labels.Parse`` and
``fields.ParseSelector``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import Labels
from trimtab.kube.objects.meta import LabelRequirement, LabelSelector, NodeSelector, NodeSelectorTerm

LabelMatcher = Callable[[Mapping[str, str]], bool]
"""A function that reports whether labels match."""

NodeMatcher = Callable[[Mapping[str, str], str], bool]
"""A function that reports whether a node matches, given its labels and its name."""

_SETS: Final = frozenset({"In", "NotIn"})
_PRESENCE: Final = frozenset({"Exists", "DoesNotExist"})
_BOUNDS: Final = frozenset({"Gt", "Lt"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,64}")
_INT64: Final = range(-(2**63), 2**63)


def matches_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether a selector matches labels. ``None`` matches nothing, and an empty selector matches everything."""
    return label_matcher(selector)(labels)


def matches_node_selector(selector: NodeSelector | None, labels: Mapping[str, str], name: str) -> bool:
    """Return whether at least one of the selector's terms matches a node with these labels and this name.

    ``None`` (no requirement) matches every node. A selector without terms matches no node.
    """
    return node_matcher(selector)(labels, name)


def matches_node_term(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Return whether all expressions of a term match a node. An empty term matches no node."""
    return node_term_matcher(term)(labels, name)


def selects_no_node(term: NodeSelectorTerm) -> bool:
    """Return whether a term cannot match any node, because it is empty or Kubernetes cannot evaluate it."""
    return node_term_matcher(term) is _no_node


def matches_fields(selector: FieldSelector, fields: Mapping[str, str]) -> bool:
    """Return whether all terms of a field selector match an object's fields. An absent field has the value ``""``."""
    return all((fields.get(term.field, "") == term.value) is term.equal for term in selector.requirements)


@lru_cache(maxsize=16384)
def label_matcher(selector: LabelSelector | None) -> LabelMatcher:
    """Return a predicate that reports whether labels match the selector."""
    if selector is None or label_selector_errors(selector):
        return _match_nothing
    predicates = [_predicate(requirement) for requirement in selector.match_expressions]
    if selector.match_labels:
        predicates.insert(0, _all_equal(selector.match_labels))
    return _all_of(predicates)


@lru_cache(maxsize=4096)
def node_matcher(selector: NodeSelector | None) -> NodeMatcher:
    """Return a predicate that reports whether a node's labels and name match the node selector."""
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
    """Return a predicate that reports whether a node's labels and name match the term."""
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
    """Return the errors for which the API server would reject a label selector.

    Each error begins with the field's path.
    """
    keys = selector.match_labels
    errors = [f"matchLabels: {key!r} is not a valid label key" for key in keys if not is_label_key(key)]
    errors += [
        f"matchLabels[{key}]: {value!r} is not a valid label value"
        for key, value in selector.match_labels.items()
        if not is_label_value(value)
    ]
    for index, requirement in enumerate(selector.match_expressions):
        errors += [f"matchExpressions[{index}].{error}" for error in _errors(requirement, _SETS | _PRESENCE)]
    return tuple(errors)


def _errors(requirement: LabelRequirement, operators: frozenset[str]) -> Iterable[str]:
    """Yield the errors of a requirement (apimachinery ``labels.NewRequirement``)."""
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if not is_label_key(key):
        yield f"key: {key!r} is not a valid label key"
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
            yield f"values: {value!r} is not a valid label value"


def _names_one_node(requirement: LabelRequirement) -> bool:
    return (
        requirement.key == "metadata.name" and requirement.operator in ("In", "NotIn") and len(requirement.values) == 1
    )


def _predicate(requirement: LabelRequirement) -> LabelMatcher:
    """Return a predicate for a valid requirement. NotIn and DoesNotExist match if the key is absent."""
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
    """Return a predicate for Gt (``above``) or Lt, which compare a label with an integer.

    The predicate is false if the label is absent or not an integer.
    """
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
    """Return a predicate that is true if all predicates are.

    One and two predicates, which are the most frequent cases, are evaluated without a loop.
    """
    if not predicates:
        return _match_everything
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
    """Parse an integer like Go's ``strconv.ParseInt(text, 10, 64)``. Return ``None`` if it is invalid."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number in _INT64 else None


def _match_nothing(_labels: Mapping[str, str]) -> bool:
    return False


def _match_everything(_labels: Mapping[str, str]) -> bool:
    return True


def _no_node(_labels: Mapping[str, str], _name: str) -> bool:
    return False


def _any_node(_labels: Mapping[str, str], _name: str) -> bool:
    return True


_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_TOKEN: Final = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n]+)")
_SYMBOLS: Final = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_END: Final = ""  # no token is empty

_KEY_RULE: Final = (
    "a label key has at most 63 letters, digits, '-', '_' or '.', begins and ends with a letter or digit, "
    "and may have a DNS subdomain and '/' before it"
)
_VALUE_RULE: Final = (
    "a label value is empty, or has at most 63 letters, digits, '-', '_' or '.' "
    "and begins and ends with a letter or digit"
)


class SelectorError(ValueError):
    """A selector is invalid. The message contains the selector, the position and the allowed syntax."""


class FieldRequirement(Struct, frozen=True, gc=False):
    """A term of a field selector: the field must equal the value, or differ from it if ``equal`` is false."""

    field: str
    value: str
    equal: bool = True


class FieldSelector(Struct, frozen=True, gc=False):
    """A field selector. All of its requirements must match, so a selector without requirements matches everything."""

    requirements: tuple[FieldRequirement, ...] = ()


def is_subdomain(text: str) -> bool:
    """Return whether a string is a DNS-1123 subdomain, as most object names must be."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """Return whether a string is a DNS-1123 label, as the names of namespaces must be."""
    return len(text) <= 63 and "." not in text and is_subdomain(text)


def is_label_key(text: str) -> bool:
    """Return whether a string is a valid label key: ``app``, ``example.com/app``."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Return whether a string is a valid label value, which may be empty."""
    return not text or (len(text) <= 63 and _NAME.fullmatch(text) is not None)


def parse_label_selector(text: str) -> LabelSelector:
    """Parse ``a=b,c==d,e!=f,g in (x,y),h notin (z),i,!j``. An empty string selects everything.

    Equalities become ``match_labels``. A second equality for the same key becomes an expression, so that both must
    match. Unlike ``kubectl -l``, the function rejects ``>`` and ``<``, because a LabelSelector cannot express them.

    Raises:
        SelectorError: the syntax, a key or a value is invalid.
    """
    return _Parser(text).parse()


def selector_string(selector: LabelSelector) -> str:
    """Format a selector as a ``labelSelector`` query parameter. Equal selectors give identical strings.

    The result for an empty selector is ``""``. An absent selector, which matches nothing, has no string form.

    Raises:
        SelectorError: an expression has an invalid operator, or In or NotIn has no values.
    """
    terms = [(key, f"{key}={value}") for key, value in selector.match_labels.items()]
    terms += [(requirement.key, _expression_string(requirement)) for requirement in selector.match_expressions]
    return ",".join(text for _, text in sorted(set(terms)))


def parse_field_selector(text: str, *, fields: Collection[str] = ()) -> FieldSelector:
    r"""Parse ``spec.nodeName=n1,status.phase!=Running``; ``\`` escapes ``,``, ``=`` and itself in values.

    Args:
        text: the selector; an empty string selects everything.
        fields: the allowed fields; if empty, all fields are allowed.

    Raises:
        SelectorError: a term has no operator, no field, an invalid escape, or a field that is not allowed.
    """
    requirements = []
    for term in re.findall(r"(?:\\.|[^,\\]|\\\Z)+", text, re.DOTALL):
        match = re.search(r"!=|==|=", term)
        if match is None:
            raise SelectorError(f"field selector {text!r}: {term!r} is neither field=value nor field!=value")
        name = term[: match.start()]
        if not name:
            raise SelectorError(f"field selector {text!r}: {term!r} names no field")
        if fields and name not in fields:
            raise SelectorError(
                f"field selector {text!r}: field {name!r} is not supported; allowed: {', '.join(sorted(fields))}"
            )
        value = _unescaped(term[match.end() :], text)
        requirements.append(FieldRequirement(name, value, equal=match.group() != "!="))
    return FieldSelector(tuple(requirements))


def _unescaped(value: str, text: str) -> str:
    if re.fullmatch(r"(?:\\[\\,=]|[^\\=])*", value, re.DOTALL) is None:
        raise SelectorError(
            rf"field selector {text!r}: in value {value!r}, escape every ',', '=' and '\' with a '\', and "
            "nothing else"
        )
    return re.sub(r"\\(.)", r"\1", value)


def _expression_string(requirement: LabelRequirement) -> str:
    key, operator, values = requirement.key, requirement.operator, requirement.values
    if operator == "Exists":
        return key
    if operator == "DoesNotExist":
        return f"!{key}"
    if operator in ("In", "NotIn") and values:
        return f"{key} {operator.lower()} ({','.join(sorted(set(values)))})"
    if operator in ("In", "NotIn"):
        raise SelectorError(f"label selector, key {key!r}: {operator} needs at least one value")
    raise SelectorError(
        f"label selector, key {key!r}: operator {operator!r} is not allowed; use In, NotIn, Exists or DoesNotExist"
    )


class _Parser:
    """A recursive-descent parser for one label selector."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match.group(1) for match in _TOKEN.finditer(text)]
        self._next = 0

    def parse(self) -> LabelSelector:
        equal: dict[str, str] = {}
        expressions: list[LabelRequirement] = []
        while self._peek() != _END:
            requirement = self._requirement()
            if requirement.operator == "=" and requirement.key not in equal:
                equal[requirement.key] = requirement.values[0]
            elif requirement.operator == "=":
                expressions.append(LabelRequirement(requirement.key, "In", requirement.values))
            else:
                expressions.append(requirement)
            if self._peek() == _END:
                break
            self._expect(",")
            if self._peek() == _END:
                raise self._error(_END, "a key or '!' after ','")
        return LabelSelector(Labels(equal), tuple(expressions))

    def _requirement(self) -> LabelRequirement:
        """Parse one requirement.

        An equality is returned with the operator ``=``, which a LabelSelector does not have.
        """
        token = self._take()
        negated = token == "!"
        key = self._take() if negated else token
        if key == _END or key in _SYMBOLS:
            raise self._error(key, "a key" if negated else "a key or '!'")
        if not is_label_key(key):
            raise SelectorError(f"label selector {self._text!r}: key {key!r} is not valid: {_KEY_RULE}")
        if negated:
            return LabelRequirement(key, "DoesNotExist")
        if self._peek() in (_END, ","):
            return LabelRequirement(key, "Exists")
        return self._comparison(key)

    def _comparison(self, key: str) -> LabelRequirement:
        operator = self._take()
        if operator in ("=", "=="):
            return LabelRequirement(key, "=", (self._value(),))
        if operator == "!=":
            return LabelRequirement(key, "NotIn", (self._value(),))
        if operator in ("in", "notin"):
            return LabelRequirement(key, "In" if operator == "in" else "NotIn", self._values())
        raise self._error(operator, f"one of =, ==, !=, in, notin after key {key!r}")

    def _values(self) -> tuple[str, ...]:
        """Parse ``(a,b)`` into sorted distinct values. Nothing between two commas is an empty value."""
        self._expect("(")
        values = {self._value()}
        while self._peek() == ",":
            self._take()
            values.add(self._value())
        self._expect(")")
        return tuple(sorted(values))

    def _value(self) -> str:
        """Parse a value, which may be empty."""
        token = self._peek()
        if token in (_END, ",", ")"):
            return ""
        if token in _SYMBOLS:
            raise self._error(token, "a value")
        if not is_label_value(token):
            raise SelectorError(f"label selector {self._text!r}: value {token!r} is not valid: {_VALUE_RULE}")
        return self._take()

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else _END

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            raise self._error(found, f"'{token}'" if token != "," else "',' or the end")

    def _error(self, found: str, expected: str) -> SelectorError:
        what = f"found {found!r}" if found else "the text ends"
        return SelectorError(f"label selector {self._text!r}: {what}, expected {expected}")
