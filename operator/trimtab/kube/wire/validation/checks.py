"""The building blocks of the tables: what one value may be, and which field of a message may hold what.

A check is called with a value and raises :class:`~trimtab.kube.wire.fields.FieldError` with the path *below* that
value; whoever looked the value up puts its own name before it. So a path is only made where something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from trimtab.kube.wire.fields import FieldError, keyed

Check = Callable[[Any], None]
"""Raises FieldError unless the value is allowed."""

_NEVER: Final = object()
_ENCODER: Final = msgspec.json.Encoder()
_REMEMBERED: Final = 4096
_SHOWN: Final = 80
"""Characters of a value that an error repeats."""


def below(name: str, error: FieldError) -> FieldError:
    """The error as the owner of the field ``name`` tells it."""
    dot = "." if error.path and not error.path.startswith("[") else ""
    return FieldError(f"{name}{dot}{error.path}", error.message)


def at_key(key: str, error: FieldError) -> FieldError:
    """The error as the mapping that holds the value under ``key`` tells it."""
    return below(keyed("", key).removeprefix("."), error)


def shown(value: object) -> str:
    """The value as errors show it: texts in quotes, long ones cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def must_be(allowed: str, value: object) -> FieldError:
    """The error of a value that is not what is allowed; an empty one is missing."""
    if value == "" or value is None:
        return FieldError("", f"is required: {allowed}")
    return FieldError("", f"must be {allowed}, not {shown(value)}")


def alternatives(values: Collection[str]) -> str:
    """``A``, ``A or B``, ``A, B or C``."""
    *most, last = values
    return f"{', '.join(most)} or {last}" if most else last


def one_of(*values: str) -> Check:
    """One of a few texts."""
    known = frozenset(values)
    allowed = alternatives(values)

    def check(value: Any) -> None:
        if value not in known:
            raise must_be(allowed, value)

    return check


def between(low: int, high: int) -> Check:
    """An integer of a range, both ends included."""
    allowed = f"between {low} and {high}"

    def check(value: Any) -> None:
        if not low <= value <= high:
            raise must_be(allowed, value)

    return check


INT32: Final = between(-(2**31), 2**31 - 1)
COUNT32: Final = between(0, 2**31 - 1)
POSITIVE32: Final = between(1, 2**31 - 1)
INT64: Final = between(-(2**63), 2**63 - 1)
COUNT64: Final = between(0, 2**63 - 1)


def matching(good: Callable[[str], bool], allowed: str) -> Check:
    """A text of a format.

    Args:
        good: whether the text is of it.
        allowed: the format in words, as in "must be …".
    """

    def check(value: Any) -> None:
        if not good(value):
            raise must_be(allowed, value)

    return check


def given(what: str) -> Check:
    """Any text but the empty one."""

    def check(value: Any) -> None:
        if not value:
            raise must_be(what, value)

    return check


def needed(check: Check, what: str) -> Check:
    """A message that must be there."""

    def check_needed(value: Any) -> None:
        if value is None:
            raise must_be(what, value)
        check(value)

    return check_needed


def each(check: Check) -> Check:
    """A list, every item of which passes."""

    def check_all(values: Any) -> None:
        for index, value in enumerate(values):
            try:
                check(value)
            except FieldError as error:
                raise below(f"[{index}]", error) from None

    return check_all


def some(check: Check, what: str) -> Check:
    """A list with at least one item, every item of which passes."""
    check_all = each(check)

    def check_some(values: Any) -> None:
        if not values:
            raise FieldError("", f"is required: {what}")
        check_all(values)

    return check_some


def distinct(name: Callable[[Any], Any], what: str, *, field: str = "") -> Check:
    """A list in which nothing is there twice.

    Args:
        name: what must not recur of an item.
        what: the same in words.
        field: of the item that the error points at.
    """

    def check(values: Any) -> None:
        if len(values) < 2:
            return
        seen = set()
        for index, value in enumerate(values):
            identity = name(value)
            if identity in seen:
                path = f"[{index}].{field}" if field else f"[{index}]"
                told = "/".join(identity) if isinstance(identity, tuple) else identity
                raise FieldError(path, f"{what} must be there once only: {shown(told)} is there twice")
            seen.add(identity)

    return check


def both(*checks: Check) -> Check:
    """A value that passes all the checks."""

    def check_all(value: Any) -> None:
        for check in checks:
            check(value)

    return check_all


def remembered(check: Check) -> Check:
    """A check of messages that recur within specs that do not: pods of a DaemonSet differ in their affinity alone.

    What has passed is known again by its bytes, which costs a third of checking it.
    """
    passed: set[bytes] = set()

    def check_new(value: Any) -> None:
        key = _ENCODER.encode(value)
        if key in passed:
            return
        check(value)
        if len(passed) >= _REMEMBERED:
            passed.clear()
        passed.add(key)

    return check_new


class Shape:
    """What the fields of a message may hold: a table of checks, by the attributes' names.

    A field that holds what it holds when it is left out is not checked, unless the message needs it.

    Args:
        message: the wire struct.
        also: checks of the whole message, for what depends on several fields; their errors name the field.
        needs: attributes that are checked even where they are left out, separated by spaces.
        checks: attribute to check.

    Raises:
        KeyError: the struct has no such attribute.
    """

    def __init__(
        self, message: type[msgspec.Struct], *, also: Collection[Check] = (), needs: str = "", **checks: Check
    ) -> None:
        fields = {field.name: field for field in msgspec.structs.fields(message)}
        always = needs.split()
        self._also = tuple(also)
        self._rows = tuple(
            (name, fields[name].encode_name, _NEVER if name in always else _absent(fields[name]), check)
            for name, check in checks.items()
        )
        assert set(always) <= set(checks), f"{message.__name__} needs what it does not check"

    def __call__(self, message: Any) -> None:
        """Check a message.

        Raises:
            FieldError: of the first fault.
        """
        for attribute, name, absent, check in self._rows:
            value = getattr(message, attribute)
            if value == absent:
                continue
            try:
                check(value)
            except FieldError as error:
                raise below(name, error) from None
        for check in self._also:
            check(message)


def _absent(field: msgspec.structs.FieldInfo) -> Any:
    """What the attribute is where the field is left out."""
    if field.default_factory is not msgspec.NODEFAULT:
        made = field.default_factory()
        return made if isinstance(made, list | dict) else _NEVER  # to compare a message costs what checking it does
    return field.default
