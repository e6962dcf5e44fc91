"""The seam between groups and what makes their machines: a provider finds its candidates in the snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Protocol

from msgspec import Struct

from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import AnyMachine, AnyMachineSet


class Candidate(Struct, frozen=True):
    """An object whose number of machines could be set, whether or not it has limits.

    Attributes:
        id: of the group it would be.
        source: the object.
        machines: those that it makes.
        nodes: names of its nodes as far as it tells them itself (MachinePools).
        provider_ids: of its machines as far as it tells them itself (MachinePools).
        governed: what else sets its size, in words; then it is no group. Empty where nothing does.
        paused: why it must not be scaled at present, in words.
    """

    id: str
    source: AnyMachineSet
    machines: tuple[AnyMachine, ...] = ()
    nodes: tuple[str, ...] = ()
    provider_ids: tuple[str, ...] = ()
    governed: str = ""
    paused: str = ""


class Provider(Protocol):
    """One API of machines.

    Attributes:
        api_group: the API's group.
    """

    api_group: ClassVar[str]

    def candidates(self, snapshot: Snapshot) -> Iterator[Candidate]:
        """Everything in the snapshot that makes machines, in any order."""
        ...
