"""Structural schemas of the API types, and validation of documents against them.

A structural schema (apiextensions/v1) has one type at every position, no references and no unions. The schema is built
from the Python types rather than from msgspec's JSON schema, which has no CEL rules, list types or classes. A type that
a structural schema cannot express raises an error when the schema is built, before the API server sees it.

msgspec stops at the first error and suggests no similar names. :func:`check` reports all errors of a document, based on
the schema that the API server enforces, so files and ``kubectl apply`` are validated alike.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec import inspect as types

from trimtab.api.base import MAX_INT32, Spec

Schema = dict[str, Any]

_KEY_ORDER: Final = {
    key: place
    for place, key in enumerate(("type", "format", "description", "default", "enum", "required", "properties"))
}


@functools.cache
def structural_schema(type_: type) -> Schema:
    """Return the structural schema of a type.

    The description of an object is that of its field or, if the field has none, the docstring of its class. Spec fields
    with a scalar default have a ``default`` in the schema; status fields do not. Optional fields may be omitted but
    must not be null.

    Raises:
        TypeError: a structural schema cannot express the type; the message names the class and the field.
    """
    schema = _ordered(_convert(types.type_info(type_), where=type_.__name__))
    assert isinstance(schema, dict)
    return schema


def _ordered(value: Any) -> Any:
    """Sort the keys for human readers: type and description first, limits and rules last."""
    if isinstance(value, list):
        return [_ordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "type" not in value:  # the properties of an object, a rule
        return {key: _ordered(item) for key, item in value.items()}
    keys = sorted(value, key=lambda key: _KEY_ORDER.get(key, len(_KEY_ORDER)))
    return {key: _ordered(value[key]) for key in keys}


def _convert(node: types.Type, *, where: str) -> Schema:
    if isinstance(node, types.Metadata):
        return _annotate(_convert(node.type, where=where), node.extra_json_schema or {})
    converter = _CONVERTERS.get(type(node))
    if converter is None:
        raise TypeError(f"{where}: a structural schema cannot express {type(node).__name__}")
    return converter(node, where)


def _annotate(schema: Schema, extra: Mapping[str, Any]) -> Schema:
    """Return a type's schema, extended with a field's description, schema keys and CEL rules."""
    rules = [*schema.get("x-kubernetes-validations", ()), *extra.get("x-kubernetes-validations", ())]
    merged = {**schema, **extra}
    if rules:
        merged["x-kubernetes-validations"] = rules
    return merged


def _struct(node: types.StructType, where: str) -> Schema:
    del where
    cls = node.cls
    schema: Schema = {"type": "object", "description": class_description(cls)}
    properties: Schema = {}
    required = []
    for field in node.fields:
        converted = _convert(field.type, where=f"{cls.__name__}.{field.name}")
        if issubclass(cls, Spec) and isinstance(field.default, str | int | float | bool):
            converted = {**converted, "default": field.default}
        properties[field.encode_name] = converted
        if field.required:
            required.append(field.encode_name)
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = required
    if rules := getattr(cls, "cel", ()):
        schema["x-kubernetes-validations"] = [rule.wire() for rule in rules]
    return schema


def class_description(cls: type) -> str:
    """Return a class's docstring with each paragraph joined into one line."""
    paragraphs = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _union(node: types.UnionType, where: str) -> Schema:
    members = [member for member in node.types if not isinstance(member, types.NoneType)]
    if len(members) == 1:
        return _convert(members[0], where=where)
    bare = {type(member) for member in members}
    if bare == {types.IntType, types.StrType}:
        return {"x-kubernetes-int-or-string": True}
    raise TypeError(f"{where}: a structural schema has one type per field; the only union is int | str")


def _bounds(schema: Schema, names: Mapping[str, Any]) -> Schema:
    return {**schema, **{name: value for name, value in names.items() if value is not None}}


def _text(node: types.StrType, where: str) -> Schema:
    del where
    names = {"minLength": node.min_length, "maxLength": node.max_length, "pattern": node.pattern}
    return _bounds({"type": "string"}, names)


def _number(node: types.IntType | types.FloatType, where: str) -> Schema:
    del where
    schema: Schema
    if isinstance(node, types.IntType):
        within = node.le is not None and node.le <= MAX_INT32
        schema = {"type": "integer", "format": "int32" if within else "int64"}
    else:
        schema = {"type": "number", "format": "double"}
    low = node.ge if node.gt is None else node.gt
    high = node.le if node.lt is None else node.lt
    schema = _bounds(schema, {"minimum": low, "maximum": high, "multipleOf": node.multiple_of})
    if node.gt is not None:
        schema["exclusiveMinimum"] = True
    if node.lt is not None:
        schema["exclusiveMaximum"] = True
    return schema


def _list(node: types.VarTupleType | types.ListType, where: str) -> Schema:
    schema = {"type": "array", "items": _convert(node.item_type, where=f"{where}[]")}
    return _bounds(schema, {"minItems": node.min_length, "maxItems": node.max_length})


def _map(node: types.DictType, where: str) -> Schema:
    schema = {"type": "object", "additionalProperties": _convert(node.value_type, where=f"{where}{{}}")}
    return _bounds(schema, {"minProperties": node.min_length, "maxProperties": node.max_length})


def _literal(node: types.LiteralType, where: str) -> Schema:
    if not all(isinstance(value, str) for value in node.values):
        raise TypeError(f"{where}: a structural schema has string literals only")
    return {"type": "string", "enum": list(node.values)}


def _enum(node: types.EnumType, where: str) -> Schema:
    del where
    return {"type": "string", "enum": [member.value for member in node.cls]}


_CONVERTERS: Final[dict[type, Callable[[Any, str], Schema]]] = {
    types.StructType: _struct,
    types.UnionType: _union,
    types.StrType: _text,
    types.IntType: _number,
    types.FloatType: _number,
    types.BoolType: lambda _node, _where: {"type": "boolean"},
    types.DateTimeType: lambda _node, _where: {"type": "string", "format": "date-time"},
    types.VarTupleType: _list,
    types.ListType: _list,
    types.DictType: _map,
    types.LiteralType: _literal,
    types.EnumType: _enum,
    types.AnyType: lambda _node, _where: {"x-kubernetes-preserve-unknown-fields": True},
}


class FieldError(Struct, frozen=True, order=True):
    """A validation error: the path of a field and a message."""

    field: str
    message: str

    def __str__(self) -> str:
        """Return ``field: message``."""
        return f"{self.field}: {self.message}" if self.field else self.message


def parse_errors(field: str, parse: Callable[[str], object], text: str) -> Iterator[FieldError]:
    """Call ``parse`` with a field's value, and yield its ValueError, if any, as an error of the field."""
    try:
        parse(text)
    except ValueError as error:
        yield FieldError(field, str(error))


_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_ARTICLE: Final = {
    "object": "a mapping",
    "array": "a list",
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def join_path(path: str, key: str) -> str:
    """Append a key to a field's path, as kubectl does: keys with special characters are put in brackets."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def check(value: object, schema: Schema, *, path: str = "") -> tuple[FieldError, ...]:
    """Return all errors of a value that violates a schema, in the order of the document.

    Args:
        value: plain data, as decoded from JSON or YAML.
        schema: a structural schema, see :func:`structural_schema`. CEL rules are ignored; :mod:`trimtab.api.rules`
            implements them in Python.
        path: the path of the value, for the errors.
    """
    return tuple(_check(value, schema, path))


def _check(value: object, schema: Schema, path: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if not kind:
        return
    if not _has_type(value, kind):
        yield FieldError(path, f"must be {_ARTICLE[kind]}, not {_show(value)}")
    elif isinstance(value, Mapping):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list | tuple):
        yield from _check_array(value, schema, path)
    elif isinstance(value, str):
        yield from _check_text(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, schema, path)


def _has_type(value: object, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list | tuple)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":  # JSON and the API server treat 3.0 as an integer
            return not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1
        case _:
            return not isinstance(value, bool) and isinstance(value, int | float) and value - value == 0


def _check_object(value: Mapping[Any, object], schema: Schema, path: str) -> Iterator[FieldError]:
    yield from _check_size(len(value), schema, path, names=("minProperties", "maxProperties"), unit="entries")
    properties: Mapping[str, Schema] = schema.get("properties", {})
    every: Schema | None = schema.get("additionalProperties")
    for key, item in value.items():
        if not isinstance(key, str):
            yield FieldError(path, f"has the key {_show(key)}, which must be a string: put it in quotes")
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
    """Return the message about an unknown key, with the most similar known key and all known keys."""
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


_DESCRIBED_PATTERNS: dict[str, str] = {}


def describe_pattern(pattern: str, requirement: str) -> str:
    """Return a pattern, and use ``requirement``, such as "be a list of numbers", in messages instead of it."""
    _DESCRIBED_PATTERNS[pattern] = requirement
    return pattern


def _check_text(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    if "enum" in schema:
        allowed = schema["enum"]
        if value not in allowed:
            yield FieldError(path, f"must be {' or '.join(allowed)}, not {_show(value)}")
        return
    yield from _check_size(len(value), schema, path, names=("minLength", "maxLength"), unit="characters")
    pattern = schema.get("pattern")
    if pattern and not re.fullmatch(pattern.removesuffix("$"), value):
        wanted = _DESCRIBED_PATTERNS.get(pattern) or f"match the pattern {pattern}"
        yield FieldError(path, f"{_show(value)} is invalid: must {wanted}")


def _check_number(value: float, schema: Schema, path: str) -> Iterator[FieldError]:
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and (value < least or (value == least and schema.get("exclusiveMinimum"))):
        yield FieldError(
            path, f"must be {'above' if schema.get('exclusiveMinimum') else 'at least'} {least}, not {value}"
        )
    if most is not None and (value > most or (value == most and schema.get("exclusiveMaximum"))):
        yield FieldError(
            path, f"must be {'below' if schema.get('exclusiveMaximum') else 'at most'} {most}, not {value}"
        )


def _show(value: object) -> str:
    """Format a value for error messages as it is written in YAML, truncated to 80 characters."""
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
