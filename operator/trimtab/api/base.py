"""What all custom resources share: their Struct settings, rules in CEL, bounded scalars, object metadata.

The types are the one truth. From them come the Python values, the schema in the definition that the API server holds
(:mod:`trimtab.api.schema`), the checks of files (:mod:`trimtab.api.check`) and the reference pages
(:mod:`trimtab.api.reference`). So every field carries its description, and every list, map and string a bound: the
API server's cost estimate of a CEL rule multiplies the bounds of all that the rule may walk.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta, Struct

MAX_INT32: Final = 2**31 - 1
GROUP: Final = "trimtab.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "trimtab.dev/v1alpha1"


class Rule(Struct, frozen=True):
    """A rule in CEL that the API server checks on every write (apiextensions/v1 ValidationRule).

    Attributes:
        rule: the expression; ``self`` is the object that the rule stands on.
        message: what is told when it is false; also what users of a server too old for ``expression`` read.
        expression: CEL that computes the message, to name the offending key or number; ``""`` for none.
        field_path: the field to blame, from the rule's place on, e.g. ``.schedule``; ``""`` blames the place itself.
        reason: FieldValueInvalid (the default), FieldValueForbidden, FieldValueRequired or FieldValueDuplicate.
    """

    rule: str
    message: str
    expression: str = ""
    field_path: str = ""
    reason: str = "FieldValueInvalid"

    def wire(self) -> dict[str, str]:
        """The rule as it stands in ``x-kubernetes-validations``."""
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
"""Of two lists, only those and all but those, at most one is given."""


class Spec(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of everything a user writes: strict, so that a slip of the pen is an error and not a silent default."""

    cel: ClassVar[tuple[Rule, ...]] = ()
    """Rules on objects of this type; :mod:`trimtab.api.checks` says the same in Python."""


class Status(Struct, frozen=True, rename="camel"):
    """Base of everything trimtab writes: lenient, so that a newer version's status never stops an older one."""

    cel: ClassVar[tuple[Rule, ...]] = ()


def doc(text: str, *rules: Rule, **schema: Any) -> Meta:
    """A description, as ``kubectl explain`` shows it, with rules on the value and further keys of its schema."""
    if rules:
        schema["x-kubernetes-validations"] = [rule.wire() for rule in rules]
    return Meta(description=text, extra_json_schema=schema or None)


def bounded(text: str, *, limit: int, least: int = 0, **schema: Any) -> Meta:
    """A description with bounds for a list, a map or a string: at least ``least`` and at most ``limit`` long."""
    return Meta(description=text, min_length=least or None, max_length=limit, extra_json_schema=schema or None)


PositiveInt = Annotated[int, Meta(ge=1, le=MAX_INT32)]
"""At least 1: where 0 could mean "nothing" or "no limit", leaving the field out says the latter."""

NaturalInt = Annotated[int, Meta(ge=0, le=MAX_INT32)]
BigCount = Annotated[int, Meta(ge=0)]
"""A count that only grows (int64; that bound itself cannot be said, for the API server reads bounds as floats)."""

Percentage = Annotated[float, Meta(ge=0, le=100)]

Name = Annotated[str, Meta(min_length=1, max_length=253)]
"""A name of an object: at most a DNS subdomain's length."""

NamespaceName = Annotated[str, Meta(min_length=1, max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ShortText = Annotated[str, Meta(max_length=1024)]
"""A message in a list of a status: many of them must fit into one object (etcd takes 1.5 MiB)."""


class ObjectMeta(Struct, frozen=True, rename="camel"):
    """The parts of metav1.ObjectMeta that trimtab reads; the API server owns its schema, so others are let through."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
