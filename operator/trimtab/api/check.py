"""Checks a document against the schema of its type, and tells everything that is wrong at once.

msgspec stops at the first fault and knows no near misses. Files deserve more: who wrote ``treshold`` wants to read
that, and the other two slips as well, before the next run. The schema is the one that the API server enforces
(:mod:`trimtab.api.schema`), so that a file and ``kubectl apply`` refuse the same things.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.api.schema import Schema


class FieldError(Struct, frozen=True, order=True):
    """One thing that is wrong in an object: where, and what is allowed there."""

    field: str
    message: str

    def __str__(self) -> str:
        """``field: message``."""
        return f"{self.field}: {self.message}" if self.field else self.message


def attempt(field: str, parse: Callable[[str], object], text: str) -> Iterator[FieldError]:
    """What a parser that raises ValueError has to say of a field's text; nothing where it takes it."""
    try:
        parse(text)
    except ValueError as error:
        yield FieldError(field, str(error))


_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_ARTICLE: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def join_path(path: str, key: str) -> str:
    """A field's path with one more key, as kubectl writes it; keys that are no plain word stand in brackets."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def check(value: object, schema: Schema, *, path: str = "") -> tuple[FieldError, ...]:
    """Everything in a value that its schema does not allow, in the order of the document.

    Args:
        value: plain data, as JSON or YAML gives it.
        schema: a structural schema, see :func:`trimtab.api.schema.structural_schema`. Its CEL rules are not looked at:
            :mod:`trimtab.api.checks` has them in Python.
        path: where the value stands.
    """
    return tuple(_check(value, schema, path))


def _check(value: object, schema: Schema, path: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if not kind:
        return
    if not _is(value, kind):
        yield FieldError(path, f"must be {_ARTICLE[kind]}, not {_show(value)}")
    elif isinstance(value, Mapping):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list | tuple):
        yield from _check_array(value, schema, path)
    elif isinstance(value, str):
        yield from _check_text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)


def _is(value: object, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list | tuple)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":  # 3.0 is a whole number, for JSON as for the API server
            return not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1
        case _:
            return not isinstance(value, bool) and isinstance(value, int | float) and value - value == 0


def _check_object(value: Mapping[Any, object], schema: Schema, path: str) -> Iterator[FieldError]:
    yield from _check_size(len(value), schema, path, names=("minProperties", "maxProperties"), unit="entries")
    properties: Mapping[str, Schema] = schema.get("properties", {})
    every: Schema | None = schema.get("additionalProperties")
    for key, item in value.items():
        if not isinstance(key, str):
            yield FieldError(path, f"has the key {_show(key)}, which must be a text: put it into quotes")
        elif key in properties:
            yield from _check(item, properties[key], join_path(path, key))
        elif every is not None:
            yield from _check(item, every, join_path(path, key))
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield FieldError(join_path(path, key), unknown_key(key, tuple(properties)))
    for key in schema.get("required", ()):
        if key not in value:
            yield FieldError(join_path(path, key), "is required")


def unknown_key(key: str, allowed: tuple[str, ...], *, what: str = "field") -> str:
    """What is told of a key that does not exist: the nearest that does, and all that do."""
    import difflib

    near = difflib.get_close_matches(key, allowed, n=1, cutoff=0.7)
    if not near:  # letters alone: Mode for mode, node_affinity_type for nodeAffinityType
        near = [name for name in allowed if _letters(name) == _letters(key)]
    hint = f"; did you mean {near[0]}?" if near else ";"
    return f"unknown {what}{hint} allowed: {', '.join(allowed) or 'none'}"


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _check_array(value: list[object] | tuple[object, ...], schema: Schema, path: str) -> Iterator[FieldError]:
    yield from _check_size(len(value), schema, path, names=("minItems", "maxItems"), unit="items")
    for place, item in enumerate(value):
        yield from _check(item, schema["items"], f"{path}[{place}]")
        if schema.get("x-kubernetes-list-type") == "set" and item in value[:place]:
            yield FieldError(f"{path}[{place}]", f"must not be given twice: {_show(item)}")


def _check_size(size: int, schema: Schema, path: str, *, names: tuple[str, str], unit: str) -> Iterator[FieldError]:
    least, most = schema.get(names[0], 0), schema.get(names[1])
    if size < least:
        yield FieldError(path, f"must have at least {least} {unit}, not {size}")
    if most is not None and size > most:
        yield FieldError(path, f"must have at most {most} {unit}, not {size}")


def _check_text(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    if "enum" in schema:
        allowed = schema["enum"]
        if value not in allowed:
            yield FieldError(path, f"must be {' or '.join(allowed)}, not {_show(value)}")
        return
    yield from _check_size(len(value), schema, path, names=("minLength", "maxLength"), unit="characters")
    pattern = schema.get("pattern")
    if pattern and not re.fullmatch(pattern.removesuffix("$"), value):
        yield FieldError(path, f"must match {pattern}, not {_show(value)}")


def _check_number(value: float, schema: Schema, path: str) -> Iterator[FieldError]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and value < least:
        yield FieldError(path, f"must be at least {least}, not {value}")
    if most is not None and value > most:
        yield FieldError(path, f"must be at most {most}, not {value}")


def _show(value: object) -> str:
    """A value as its author wrote it, cut short."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
