"""What all wire structs share, and the types of their fields."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

Time = Annotated[datetime, Meta(tz=True)]
Quantity = str | int | float
"""A quantity as text or, as the API server takes it too, as a bare number."""
Quantities = dict[str, Quantity]


class Message(Struct, rename="camel", omit_defaults=True, gc=False):
    """What all wire structs share: keys in camel case, and protobuf's way to ask what is there."""

    def HasField(self, name: str) -> bool:  # noqa: N802 (protobuf's name)
        """Whether an optional field is there; asked only of fields that may be ``None``."""
        return getattr(self, name) is not None
