"""Defines the interface of providers, which change the sizes of groups and choose the machines to delete.

A *mark* is an annotation on a machine that tells the group's controller to delete this machine first when the size is
lowered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from msgspec import Struct

from trimtab.autoscaling.groups import GroupMachine, NodeGroup
from trimtab.autoscaling.providers.outcome import MachineRemoval, MarkedMachines, ScaleResult
from trimtab.kube.resources import Resource

MARK_DELAY: Final = 15.0
"""Default number of seconds between marking machines and lowering the size of their group.

The controller that deletes machines must see the marks first. Its watches usually deliver within milliseconds, but take
seconds in a busy cluster: in a test, nine of ten marks were not visible 11 ms after they were set. The default covers a
lag of 10 s. The delay does no harm, because the nodes are already drained.
"""


class Provider(Protocol):
    """Changes node groups. If a change fails, the methods return a result with the failure and raise nothing."""

    async def increase(self, group: NodeGroup, to: int) -> ScaleResult:
        """Raise the group's target size if it is still the one that the plan was based on.

        Args:
            group: the group that the plan was based on.
            to: the new target, at most the group's maximum.
        """
        ...

    async def lower(self, group: NodeGroup, to: int) -> ScaleResult:
        """Lower the group's target size by nodes that were requested, but whose machines were never created.

        No machine is deleted. The target size is never lowered below the number of machines in the snapshot or at the
        provider; otherwise the provider would choose a machine and delete it.

        Args:
            group: the group that the plan was based on.
            to: the new target, at least the group's minimum.
        """
        ...

    async def mark(self, group: NodeGroup, machines: Sequence[GroupMachine], *, now: float) -> MarkedMachines:
        """Mark machines so that they are deleted first when the group's target size is lowered.

        Nothing is deleted yet. The controller that deletes machines reads marks and target sizes from separate caches.
        So before calling :meth:`remove`, the caller must wait until the controller's cache contains the marks. If a
        mark cannot be set, all marks are removed again. A provider that deletes machines by name sets no marks.

        Args:
            group: the group that the plan was based on.
            machines: machines of the group. Their nodes must be drained.
            now: the current time in seconds since the epoch. It is part of each mark's value.
        """
        ...

    async def remove(self, group: NodeGroup, marked: MarkedMachines, *, count: int | None = None) -> MachineRemoval:
        """Lower the target size so that marked machines are deleted.

        Each machine's mark is read again from the API server first. If the request fails, the marks are removed. If its
        outcome is unknown, they are left in place, so that no other machine is deleted instead.

        Args:
            group: the current group.
            marked: the result of :meth:`mark`.
            count: the number of machines to delete, which the group's controller chooses among the marked ones;
                ``None`` for all. A provider that deletes machines by name always deletes all.
        """
        ...

    async def unmark(self, group: NodeGroup, machines: Sequence[str], *, mark: str = "") -> tuple[str, ...]:
        """Remove marks that trimtab set. Marks of other actors are unchanged.

        Args:
            group: the group of the machines.
            machines: names of the machines.
            mark: value of the marks (:attr:`MachineRemoval.mark`); if it is empty, each machine is read first.

        Returns:
            Names of the machines whose marks could not be removed. The caller must retry.
        """
        ...


class Dialect(Struct, frozen=True):
    """The resource names and rules of one machine API.

    Attributes:
        api_group: the API group.
        scalable: plural resource names of the kinds that have a size, by kind.
        machines: plural resource name of machines.
        mark: the annotation of machines that are deleted first.
        failed_tie: whether the API's controller gives failed and marked machines the same priority when it chooses
            machines to delete.
    """

    api_group: str
    scalable: Mapping[str, str]
    machines: str
    mark: str
    failed_tie: bool

    def scaled(self, group: NodeGroup) -> Resource:
        """Return the resource that contains the group's size, in the version in which the group was read."""
        return Resource(self.api_group, _version(group), self.scalable[group.kind], group.kind)

    def machine(self, group: NodeGroup) -> Resource:
        """Return the resource of the group's machines, in the same version."""
        return Resource(self.api_group, _version(group), self.machines, "Machine")

    def rules(self) -> tuple[dict[str, list[str]], ...]:
        """Return the permissions for changing groups, as rules of a ClusterRole.

        Permissions for reading groups are not included. Sizes are written only through the scale subresource, so these
        permissions allow no other change of a group.
        """
        scales = [f"{plural}/scale" for plural in sorted(self.scalable.values())]
        return (
            {"apiGroups": [self.api_group], "resources": scales, "verbs": ["get", "patch"]},
            {"apiGroups": [self.api_group], "resources": [self.machines], "verbs": ["get", "patch"]},
        )


def _version(group: NodeGroup) -> str:
    return group.api_version.rpartition("/")[2]
