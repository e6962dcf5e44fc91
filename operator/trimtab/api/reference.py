"""The reference page of each custom resource, made from the same schema that the API server gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from trimtab.api.crds import DEFINITIONS, MISSPELT, Definition, object_schema
from trimtab.api.schema import Schema, structural_schema
from trimtab.api.strategies import Strategies

_HEADER: Final = "<!-- Made by `trimtab crds --docs` from the types in operator/trimtab/api: change those. -->\n"
_UNSERVED: Final = (
    "**No controller of this version acts on it**, so the chart does not install its definition; `crds/` has it.\n"
)
_BOUNDS: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
    ("minProperties", "maxProperties", " entries"),
)
_TOO_BIG_TO_MATTER: Final = 2**31 - 1


def reference_files() -> dict[str, str]:
    """The content of ``docs/reference/``: file name to Markdown, the same text on every run."""
    return {f"{definition.kind.lower()}.md": reference_page(definition) for definition in DEFINITIONS}


def reference_page(definition: Definition) -> str:
    """One kind's page: how it is called, then every object in it with its fields."""
    schema = object_schema(definition)
    names = " or ".join(f"`kubectl get {name}`" for name in (definition.plural, *definition.short_names))
    scope = "namespaced" if definition.namespaced else "cluster-scoped"
    columns = "\n".join(f"- **{column.name}**: {column.description}" for column in definition.columns)
    lines = [
        _HEADER,
        f"# {definition.kind}\n",
        f"`{definition.api_version}`, {scope}: {names}, or all of trimtab's kinds with `kubectl get trimtab`.\n",
        f"{schema['description']}\n",
        *([] if definition.installed else [_UNSERVED]),
        f"Columns of `kubectl get`:\n\n{columns}\n",
    ]
    for part in ("spec", "status"):
        lines += _sections(_readable(schema["properties"][part]), part)
    return "\n".join(lines).rstrip() + "\n"


def _readable(schema: Schema) -> Schema:
    """The schema with each strategy's own parameters, instead of the one map that the API server needs."""
    properties = schema["properties"]
    if "strategies" not in properties:
        return schema
    return {**schema, "properties": {**properties, "strategies": structural_schema(Strategies)}}


def _sections(schema: Schema, path: str) -> Iterator[str]:
    """A section for an object, then those of the objects in it, depth first."""
    yield f"## {path}\n"
    yield f"{schema['description']}\n"
    every: Mapping[str, Schema] = schema.get("properties", {})
    properties = {name: field for name, field in every.items() if name not in MISSPELT}
    if properties:
        yield "| Field | Type | Description |\n|---|---|---|"
        required = schema.get("required", ())
        for name, field in properties.items():
            yield f"| `{name}`{' (required)' if name in required else ''} | {_type(field)} | {_text(field)} |"
        yield ""
    rules = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
    if rules:
        yield "Rules:\n\n" + "\n".join(f"- {rule}" for rule in rules) + "\n"
    for name, field in properties.items():
        inner, inner_path = field, f"{path}.{name}"
        if field["type"] == "array":
            inner, inner_path = field["items"], f"{inner_path}[]"
        if inner.get("type") == "object" and inner.get("properties"):
            yield from _sections(inner, inner_path)


def _type(field: Schema) -> str:
    if field["type"] == "array":
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return "time" if field.get("format") == "date-time" else str(field["type"])


def _text(field: Schema) -> str:
    """A field's description with what it allows, in one cell."""
    parts = [field.get("description", "")]
    values = field.get("enum") or field.get("items", {}).get("enum")
    if values:
        parts.append(f"One of {', '.join(f'`{value}`' for value in values)}.")
    rules = field.get("x-kubernetes-validations", ()) if field["type"] == "string" else ()
    if (limits := _limits(field)) and not rules:
        parts.append(f"{limits[0].upper()}{limits[1:]}.")
    if limits := _limits(field.get("additionalProperties", {})):
        parts.append(f"Each value {limits}.")
    parts += [f"{rule['message'][0].upper()}{rule['message'][1:]}." for rule in rules]
    if "default" in field:
        parts.append(f"Default: `{_default(field['default'])}`.")
    return " ".join(parts).replace("|", "\\|").replace("\n", " ")


def _limits(field: Schema) -> str:
    """``1 to 16 items``, ``at least 1``; bounds that only say how big the integer is are left out."""
    for low, high, unit in _BOUNDS:
        least, most = (_said(field.get(key)) for key in (low, high))
        if least is not None and most is not None:
            return f"{least} to {most}{unit}"
        if least is not None or most is not None:
            return f"at least {least}{unit}" if most is None else f"at most {most}{unit}"
    return ""


def _said(bound: float | None) -> float | None:
    return bound if bound is not None and abs(bound) < _TOO_BIG_TO_MATTER else None


def _default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
