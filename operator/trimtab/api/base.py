"""Building blocks of all custom resource types: base structs, CEL rules, bounded scalars, list types and metadata.

The struct types are the single source for the decoded Python values, the schema that the API server enforces and with
which files are validated (:mod:`trimtab.api.schema`), and the reference pages (:mod:`trimtab.api.reference`). Every
field therefore has a description, and every list, map and string has a length limit: the API server estimates the cost
of a CEL rule from the limits of the values that the rule iterates over.
"""

from __future__ import annotations

import functools
from typing import Annotated, Any, ClassVar, Final

import msgspec
import msgspec.structs
from msgspec import Meta, Struct

MAX_INT32: Final = 2**31 - 1
GROUP: Final = "trimtab.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "trimtab.dev/v1alpha1"


class Rule(Struct, frozen=True):
    """A CEL rule that the API server evaluates on every write (apiextensions/v1 ``ValidationRule``).

    Attributes:
        rule: the CEL expression; ``self`` is the object or field that has the rule.
        message: the error message if the rule is false and ``expression`` is empty or not supported by the server.
        expression: a CEL expression for the message (``messageExpression``), to name the wrong key or number; may be
            empty.
        field_path: the field to blame, relative to ``self``, e.g. ``.schedule``; empty blames ``self``.
        reason: FieldValueInvalid (the default), FieldValueForbidden, FieldValueRequired or FieldValueDuplicate.
    """

    rule: str
    message: str
    expression: str = ""
    field_path: str = ""
    reason: str = "FieldValueInvalid"

    def wire(self) -> dict[str, str]:
        """Return the rule as an item of ``x-kubernetes-validations``."""
        out = {"rule": self.rule, "message": self.message}
        if self.expression:
            out["messageExpression"] = self.expression
        if self.field_path:
            out["fieldPath"] = self.field_path
        if self.reason != "FieldValueInvalid":
            out["reason"] = self.reason
        return out


INCLUDE_OR_EXCLUDE: Final = Rule(
    rule="!(has(self.include) && has(self.exclude))",
    message="include and exclude cannot be given together",
    field_path=".exclude",
    reason="FieldValueForbidden",
)
"""Rejects objects that set both ``include`` and ``exclude``."""


class Spec(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all types that users write. Unknown fields are errors, so that typos are not silently ignored."""

    cel: ClassVar[tuple[Rule, ...]] = ()
    """CEL rules for objects of this type. :mod:`trimtab.api.rules` implements the same rules in Python."""


class Status(Struct, frozen=True, rename="camel"):
    """Base of all types that trimtab writes.

    Unknown fields are ignored, so that older versions of trimtab can read statuses of newer versions.
    """

    cel: ClassVar[tuple[Rule, ...]] = ()


class Strategy(Spec, frozen=True):
    """Base of all strategies of a DeschedulerPolicy."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Parameters that are required if the strategy is enabled."""

    needs_one_of: ClassVar[tuple[str, ...]] = ()
    """Parameters of which at least one is required if the strategy is enabled."""

    at_most_one_of: ClassVar[tuple[str, ...]] = ()
    """Mutually exclusive parameters. Lists among them must not be empty, because an empty list is treated as unset."""

    enabled: Annotated[
        bool, doc("Whether the strategy is enabled. Strategies that are not listed in spec.strategies are disabled.")
    ] = True


def doc(text: str, *rules: Rule, **schema: Any) -> Meta:
    """Return the schema metadata of a field: description (for ``kubectl explain``), CEL rules and other schema keys."""
    if rules:
        schema["x-kubernetes-validations"] = [rule.wire() for rule in rules]
    return Meta(description=text, extra_json_schema=schema or None)


def bounded(text: str, *, limit: int, least: int = 0, **schema: Any) -> Meta:
    """Return the schema metadata of a list, map or string: its description and length limits."""
    return Meta(description=text, min_length=least or None, max_length=limit, extra_json_schema=schema or None)


ATOMIC: Final[dict[str, Any]] = {"x-kubernetes-list-type": "atomic"}
"""For lists that are replaced as a whole. Without it, the API server tracks the field managers of every item."""

SET: Final[dict[str, Any]] = {"x-kubernetes-list-type": "set"}
"""For lists with unique items."""


def list_map(*keys: str) -> dict[str, Any]:
    """Return the schema keys of a list whose items are identified by the fields ``keys``."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


PositiveInt = Annotated[int, Meta(ge=1, le=MAX_INT32)]
"""An integer of at least 1. 0 is not allowed, because it could mean "none" or "no limit"; for no limit, users omit the
field."""

NaturalInt = Annotated[int, Meta(ge=0, le=MAX_INT32)]
BigCount = Annotated[int, Meta(ge=0)]
"""A counter that never decreases. It is an int64 with no maximum, because the API server reads limits as floats."""

Percentage = Annotated[float, Meta(ge=0, le=100)]

Name = Annotated[str, Meta(min_length=1, max_length=253)]
"""An object name with at most 253 characters, as in a DNS subdomain."""

ObjectName = Annotated[str, Meta(max_length=253)]
"""An object name in a status. It may be empty."""

ReasonCode = Annotated[str, Meta(min_length=1, max_length=128)]
"""A code of :mod:`trimtab.api.reasons` or of a machine API."""

NamespaceName = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ShortText = Annotated[str, Meta(max_length=1024)]
"""A message in a list of a status. Its length is limited, because an object must not exceed etcd's limit of 1.5 MiB."""


class ObjectMeta(Struct, frozen=True, rename="camel"):
    """The fields of metav1.ObjectMeta that trimtab reads.

    Other fields are ignored, because the API server validates them.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


def status_patch(status: Status) -> dict[str, Any]:
    """Return a JSON merge patch that replaces the whole status of an object.

    Empty fields become null, so that the merge patch deletes what an earlier status had there and ``kubectl describe``
    does not show them. Inside lists, which a merge patch replaces as a whole, they are omitted. A field is empty if it
    is unset, an empty string, list or struct, or a count of omitted entries that is 0, unless the field is required or
    has another default.
    """
    return _patch(status, in_list=False)


def _patch(value: Struct, *, in_list: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _fields(type(value)):
        item = _wire(getattr(value, field.name), in_list=in_list)
        empty = _is_empty(item) or (item == 0 and field.name.endswith("omitted"))
        if not empty or field.required or field.default not in _NO_VALUES:
            found[field.encode_name] = item
        elif not in_list:
            found[field.encode_name] = None
    return found


_fields = functools.cache(msgspec.structs.fields)

_NO_VALUES: Final = ("", (), None, 0, msgspec.NODEFAULT)
"""Defaults of optional fields that may be empty. The default of a field with a default factory is NODEFAULT."""


def _wire(value: Any, *, in_list: bool) -> Any:
    if isinstance(value, Struct):
        return _patch(value, in_list=in_list)
    if isinstance(value, list | tuple):
        return [_wire(item, in_list=True) for item in value]
    return msgspec.to_builtins(value)


def _is_empty(wire: Any) -> bool:
    if isinstance(wire, dict):
        return all(_is_empty(item) for item in wire.values())
    return wire is None or wire == "" or wire == []
