"""The base class of all structs for JSON and YAML, and the types of their fields."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct, field

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[datetime, Meta(tz=True)]
Quantity = str | int | float
"""A quantity as a string or as a number, which the API server also accepts."""
Quantities = dict[str, Quantity]


class Message(Struct, rename="camel", omit_defaults=True, gc=False):
    """The base class of structs. Keys are in camel case, and ``HasField`` works as for protobuf messages.

    Unknown keys are ignored, because a dump contains all fields. Known keys must have the right type.
    """

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name)
        """Return whether an optional field, one that may be ``None``, is present."""
        return getattr(self, name) is not None


class _SpecFields(Message):
    node_name: Message | None = field(name="f:nodeName", default=None)


class FieldsV1(Message):
    """The fields of an object that a manager owns, as far as they are read."""

    spec: _SpecFields | None = field(name="f:spec", default=None)
