"""What several strategies ask of the containers of a pod."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from trimtab.api.base import MAX_INT32, bounded, doc
from trimtab.api.strategies.base import SET

OwnerKind = Annotated[str, bounded("A kind.", least=1, limit=63)]

ExitCode = Annotated[int, Meta(ge=-MAX_INT32 - 1, le=MAX_INT32)]

ExitCodes = Annotated[
    tuple[ExitCode, ...],
    bounded("Only pods of which a container has ended with one of these exit codes. Without it: any.", limit=64, **SET),
]

IncludingInitContainers = Annotated[bool, doc("Whether init containers are looked at as well as containers.")]
