"""RemoveDuplicates and its parameters."""

from __future__ import annotations

from typing import Annotated

from trimtab.api.base import Spec, bounded, doc
from trimtab.api.strategies.base import SET, Strategy


class DuplicatesParams(Spec, frozen=True):
    """Which owners may keep several pods on one node."""

    exclude_owner_kinds: Annotated[
        tuple[Annotated[str, bounded("A kind.", least=1, limit=63)], ...],
        bounded("Kinds of owners whose pods are left alone, e.g. StatefulSet or ReplicaSet.", limit=16, **SET),
    ] = ()


class RemoveDuplicatesParams(Spec, frozen=True):
    """Parameters of RemoveDuplicates."""

    remove_duplicates: Annotated[DuplicatesParams, doc("Which owners may keep several pods on one node.")] = (
        DuplicatesParams()
    )


class RemoveDuplicates(Strategy, frozen=True):
    """Spreads the pods of one owner over the nodes that can run them."""

    params: Annotated[RemoveDuplicatesParams, doc("Parameters of RemoveDuplicates.")] = RemoveDuplicatesParams()
