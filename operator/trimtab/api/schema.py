"""From types to structural schemas: the OpenAPI v3 that a CustomResourceDefinition takes.

A structural schema (apiextensions/v1) has one type at every place, no references and no unions. So types are walked
rather than their JSON schema rewritten: what a type adds that JSON schema has no word for (CEL rules, list types, the
class behind an object) is at hand, and what cannot be said structurally is an error here and not at the API server.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import inspect as types

from trimtab.api.base import MAX_INT32, Spec

Schema = dict[str, Any]

_KEY_ORDER: Final = {
    key: place
    for place, key in enumerate(("type", "format", "description", "default", "enum", "required", "properties"))
}


@functools.cache
def structural_schema(type_: type) -> Schema:
    """The structural schema of a type.

    Objects get the description of the field they stand in, else their class's docstring. Defaults are the scalars among
    the defaults of what users write; a status says what it was given. ``Optional`` is a field that may be left out,
    never null.

    Raises:
        TypeError: the type cannot be said structurally; the message names the class and the field.
    """
    schema = _ordered(_convert(types.type_info(type_), where=type_.__name__))
    assert isinstance(schema, dict)
    return schema


def _ordered(value: Any) -> Any:
    """Type and description first, bounds and rules last: schemas are read by people as well."""
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
        raise TypeError(f"{where}: a structural schema cannot say {type(node).__name__}")
    return converter(node, where)


def _annotate(schema: Schema, extra: Mapping[str, Any]) -> Schema:
    """Put a field's own description and keys over those of its type; rules of both hold."""
    rules = [*schema.get("x-kubernetes-validations", ()), *extra.get("x-kubernetes-validations", ())]
    merged = {**schema, **extra}
    if rules:
        merged["x-kubernetes-validations"] = rules
    return merged


def _struct(node: types.StructType, where: str) -> Schema:
    del where
    cls = node.cls
    schema: Schema = {"type": "object", "description": docstring(cls)}
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


def docstring(cls: type) -> str:
    """A class's docstring without line breaks inside paragraphs."""
    paragraphs = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _union(node: types.UnionType, where: str) -> Schema:
    members = [member for member in node.types if not isinstance(member, types.NoneType)]
    if len(members) == 1:
        return _convert(members[0], where=where)
    bare = {type(member) for member in members}
    if bare == {types.IntType, types.StrType}:
        return {"x-kubernetes-int-or-string": True}
    raise TypeError(f"{where}: a structural schema has one type at a place; only int | str may stand together")


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
        raise TypeError(f"{where}: only literal strings can be said")
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
