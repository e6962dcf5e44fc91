"""The seam to what makes machines: how a group's size is set, and which machines go when it falls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers.outcome import Removal, Scaled
from trimtab.kube.resources import Resource


class Provider(Protocol):
    """Acts on groups. Nothing is raised for what happens to a group; each outcome says it."""

    async def increase(self, group: NodeGroup, to: int) -> Scaled:
        """Ask for more machines: once, and only if the target is still what the plan was made on.

        Args:
            group: as it was planned on.
            to: the new target, at most its maximum.
        """
        ...

    async def lower(self, group: NodeGroup, to: int) -> Scaled:
        """Ask for fewer machines without taking any away: what was asked for and never made is not asked for any more.

        Nothing is lowered to less than the machines that are there, by what was planned on and by what the provider
        says at that moment: else it would have to choose among them.

        Args:
            group: as it was planned on.
            to: the new target, at least its minimum.
        """
        ...

    async def remove(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> Removal:
        """Take these machines away: mark all of them, then lower the target once by their number.

        If anything fails before that, or it fails itself, the marks are taken back; where it is in doubt, they stay,
        so that no other machine goes instead.

        Args:
            group: as it was planned on.
            machines: of the group; what ran on their nodes is gone.
            now: seconds since the epoch, for the marks.
        """
        ...

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        """Take marks of ours back; those of others stay.

        Args:
            group: whose machines they are.
            machines: their names.
            mark: the marks' text where it is known (:attr:`Removal.mark`), which saves reading each machine.

        Returns:
            The machines that could not be asked, or said no; to be tried again.
        """
        ...


class Dialect(Struct, frozen=True):
    """How one API of machines says things.

    Attributes:
        api_group: of all its kinds.
        scalable: the plural of each kind that has a size, by kind.
        machines: the plural of its machines.
        mark: the annotation that lets a machine go first.
        failed_tie: whether a failed machine goes as readily as a marked one.
    """

    api_group: str
    scalable: Mapping[str, str]
    machines: str
    mark: str
    failed_tie: bool

    def scaled(self, group: NodeGroup) -> Resource:
        """The resource that holds the group's size, in the version that the group was read in."""
        return Resource(self.api_group, _version(group), self.scalable[group.kind], group.kind)

    def machine(self, group: NodeGroup) -> Resource:
        """The resource of its machines, in the same version."""
        return Resource(self.api_group, _version(group), self.machines, "Machine")

    def rules(self) -> tuple[dict[str, list[str]], ...]:
        """The rights that acting takes, as rules of a ClusterRole; reading what groups are made of is not among them.

        Sizes are written through the scale subresource only: nothing else of a group can be changed with these.
        """
        scales = [f"{plural}/scale" for plural in sorted(self.scalable.values())]
        return (
            {"apiGroups": [self.api_group], "resources": scales, "verbs": ["get", "patch"]},
            {"apiGroups": [self.api_group], "resources": [self.machines], "verbs": ["get", "patch"]},
        )


def _version(group: NodeGroup) -> str:
    return group.api_version.rpartition("/")[2]
