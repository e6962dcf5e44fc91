"""Selectors as people and query parameters write them: ``app=web,tier notin (db),!old`` and ``spec.nodeName=n1``.

The grammars are those of k8s.io/apimachinery v0.36 (``labels.Parse`` and ``fields.ParseSelector``). Label selectors
become the same :class:`~trimtab.kube.objects.LabelSelector` that objects hold, so there is one way to match; matching
is in :mod:`trimtab.kube.rules.selectors`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import Labels
from trimtab.kube.objects.selector import LabelRequirement, LabelSelector

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
    """A selector is not valid; the message names the selector, the place and what is allowed."""


class FieldRequirement(Struct, frozen=True, gc=False):
    """One term of a field selector: the field equals (or, with ``equal`` false, differs from) the value."""

    field: str
    value: str
    equal: bool = True


class FieldSelector(Struct, frozen=True, gc=False):
    """Terms that must all hold; none matches everything."""

    requirements: tuple[FieldRequirement, ...] = ()


def is_label_key(text: str) -> bool:
    """Whether the API server takes this as a label's key: ``app``, ``example.com/app``."""
    prefix, slash, name = text.rpartition("/")
    if slash and (len(prefix) > 253 or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= 63 and _NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether the API server takes this as a label's value; empty is one."""
    return not text or (len(text) <= 63 and _NAME.fullmatch(text) is not None)


def parse_label_selector(text: str) -> LabelSelector:
    """Read ``a=b,c==d,e!=f,g in (x,y),h notin (z),i,!j``; the empty text selects everything.

    Equalities become ``match_labels`` (a second one on the same key an expression, so that both must hold). ``>`` and
    ``<``, which ``kubectl -l`` knows, have no place in a LabelSelector and are refused.

    Raises:
        SelectorError: the text does not follow the grammar, or a key or value is no valid label.
    """
    return _Parser(text).parse()


def selector_string(selector: LabelSelector) -> str:
    """Write a selector as a ``labelSelector`` query parameter; equal selectors give equal texts.

    A nil selector (which matches nothing) has no such form; the empty one is ``""``.

    Raises:
        SelectorError: an expression has an operator that label selectors don't know, or In/NotIn has no values.
    """
    terms = [(key, f"{key}={value}") for key, value in selector.match_labels.items()]
    terms += [(requirement.key, _expression_string(requirement)) for requirement in selector.match_expressions]
    return ",".join(text for _, text in sorted(set(terms)))


def parse_field_selector(text: str, *, fields: Collection[str] = ()) -> FieldSelector:
    r"""Read ``spec.nodeName=n1,status.phase!=Running``; ``\`` escapes ``,``, ``=`` and itself in values.

    Args:
        text: the selector; the empty text selects everything.
        fields: the fields that may be named; empty for any.

    Raises:
        SelectorError: a term has no operator or a wrong escape, or names no field or one that is not allowed.
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
            rf"field selector {text!r}: in value {value!r} a '\' must stand before every ',', '=' and '\', "
            "and before nothing else"
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
    """Reads the tokens of one label selector from left to right."""

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
        """One requirement; an equality has the operator ``=``, which is not a LabelSelector's."""
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
        """``(a,b)``, sorted and without repetition; between two commas stands the empty value."""
        self._expect("(")
        values = {self._value()}
        while self._peek() == ",":
            self._take()
            values.add(self._value())
        self._expect(")")
        return tuple(sorted(values))

    def _value(self) -> str:
        """The value that follows, empty where a separator or the end does."""
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
