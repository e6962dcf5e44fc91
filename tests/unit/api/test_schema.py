"""Structural schemas from types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, ClassVar, Literal

import pytest
from msgspec import Meta

from trimtab.api.base import Rule, Spec, Status, bounded, doc
from trimtab.api.crds import DEFINITIONS, object_schema
from trimtab.api.schema import structural_schema
from trimtab.api.strategies import Strategies


class Colour(Enum):
    RED = "red"


class Inner(Spec, frozen=True):
    """The inner one.

    It has a second paragraph
    over two lines.
    """

    cel: ClassVar[tuple[Rule, ...]] = (Rule(rule="self.n > 1", message="too small"),)

    n: Annotated[Annotated[int, Meta(ge=1, le=9)] | None, doc("A number.")] = None


class Everything(Spec, frozen=True):
    """Every kind of field."""

    required_text: Annotated[str, Meta(pattern="^a$"), bounded("Text.", least=1, limit=3)]
    flag: bool = True
    number: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    big: int = 0
    choice: Literal["b", "a"] = "b"
    colour: Colour = Colour.RED
    at: datetime | None = None
    names: Annotated[tuple[str, ...], bounded("Names.", limit=4, **{"x-kubernetes-list-type": "set"})] = ()
    shares: Annotated[Mapping[str, Inner], bounded("Shares.", limit=5)] = {}
    inner: Inner = Inner()
    described: Annotated[Inner, doc("Described at its place.", Rule(rule="true", message="never"))] = Inner()
    port: int | str = 0
    anything: Any = None


FIELDS = structural_schema(Everything)["properties"]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (
            "requiredText",
            {"type": "string", "description": "Text.", "minLength": 1, "maxLength": 3, "pattern": "^a$"},
        ),
        ("flag", {"type": "boolean", "default": True}),
        (
            "number",
            {
                "type": "number",
                "format": "double",
                "default": 0.5,
                "minimum": 0,
                "exclusiveMinimum": True,
                "maximum": 1,
                "exclusiveMaximum": True,
            },
        ),
        ("big", {"type": "integer", "format": "int64", "default": 0}),
        ("choice", {"type": "string", "enum": ["a", "b"], "default": "b"}),
        ("colour", {"type": "string", "enum": ["red"]}),
        ("at", {"type": "string", "format": "date-time"}),
        (
            "names",
            {
                "type": "array",
                "description": "Names.",
                "items": {"type": "string"},
                "maxItems": 4,
                "x-kubernetes-list-type": "set",
            },
        ),
        ("port", {"x-kubernetes-int-or-string": True, "default": 0}),
        ("anything", {"x-kubernetes-preserve-unknown-fields": True}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_field_becomes_its_schema(field: str, expected: dict[str, Any]) -> None:
    assert FIELDS[field] == expected


def test_an_object_has_its_docstring_its_fields_and_its_rules() -> None:
    assert FIELDS["inner"] == {
        "type": "object",
        "description": "The inner one.\n\nIt has a second paragraph over two lines.",
        "properties": {
            "n": {"type": "integer", "format": "int32", "description": "A number.", "minimum": 1, "maximum": 9}
        },
        "x-kubernetes-validations": [{"rule": "self.n > 1", "message": "too small"}],
    }
    assert FIELDS["shares"]["additionalProperties"] == FIELDS["inner"]


def test_field_overrides_the_description_and_adds_rules() -> None:
    assert FIELDS["described"]["description"] == "Described at its place."
    assert [rule["message"] for rule in FIELDS["described"]["x-kubernetes-validations"]] == ["too small", "never"]


def test_only_fields_without_a_default_are_required() -> None:
    assert structural_schema(Everything)["required"] == ["requiredText"]


def test_a_status_has_no_defaults() -> None:
    class Report(Status, frozen=True):
        """A report."""

        count: int = 0

    assert "default" not in structural_schema(Report)["properties"]["count"]


def test_non_structural_type_is_rejected_with_class_and_field() -> None:
    class Wrong(Spec, frozen=True):
        """Two types in one place."""

        either: int | list[str] = 0

    with pytest.raises(TypeError, match=r"Wrong\.either"):
        structural_schema(Wrong)


def places(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from places(field, f"{path}.{name}")
    for key, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if key in schema:
            yield from places(schema[key], path + mark)


OURS = {
    **{
        path: schema
        for definition in DEFINITIONS
        for path, schema in places(object_schema(definition), definition.kind)
    },
    **dict(places(structural_schema(Strategies), "Strategies")),
}


def faults(path: str, schema: dict[str, Any]) -> Iterator[str]:
    """What the schema at a path lacks."""
    if path.endswith((".apiVersion", ".kind", ".metadata")):
        return
    if not path.endswith(("[]", "{}")) and not schema.get("description", "").endswith("."):
        yield "description"
    if schema["type"] == "array" and "maxItems" not in schema:
        yield "maxItems"
    if "additionalProperties" in schema and "maxProperties" not in schema:
        yield "maxProperties"
    if schema["type"] == "string" and not {"maxLength", "enum", "format"} & schema.keys():
        yield "maxLength"
    for rule in schema.get("x-kubernetes-validations", ()):
        if not rule["message"] or rule["message"].endswith("."):
            yield f"message of {rule['rule']}"


def test_every_field_has_a_description_and_bounds() -> None:
    """`kubectl explain` describes every field, and no CEL rule exceeds the cost limit of the API server."""
    assert len(OURS) > 700
    assert [f"{path}: {fault}" for path, schema in OURS.items() for fault in faults(path, schema)] == []
