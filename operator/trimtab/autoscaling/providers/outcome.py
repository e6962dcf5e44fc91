"""Defines the results of changing a node group.

Failures are values instead of exceptions, so that a failing group does not affect the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.kube.api import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)


class ScaleFailure(StrEnum):
    """The kind of a failure to scale a group. Each value is a code of :mod:`trimtab.api.reasons`."""

    REFUSED = reasons.SCALE_REFUSED
    FORBIDDEN = reasons.SCALE_FORBIDDEN
    CONFLICT = reasons.SCALE_CONFLICT
    NOT_FOUND = reasons.SCALE_TARGET_GONE
    UNREACHABLE = reasons.SCALE_UNREACHABLE
    TIMED_OUT = reasons.SCALE_TIMED_OUT

    @classmethod
    def from_error(cls, error: ApiError | Unreachable) -> ScaleFailure:
        """Return the kind of failure that an error of a request is. A failed test of a JSON patch is a conflict."""
        match error:
            case NotFound():
                return cls.NOT_FOUND
            case Invalid() | Conflict():
                return cls.CONFLICT
            case TooManyRequests() | ServerError() | Unreachable():
                return cls.UNREACHABLE
            case Forbidden(lacks_permission=True):
                return cls.FORBIDDEN
            case _:
                return cls.REFUSED


class ScaleError(Exception):
    """A failure inside a provider, which the provider converts to a result.

    Attributes:
        failure: the kind of failure.
        message: the error message.
        doubt: whether the size may have changed despite the failure, or may still change.
    """

    def __init__(self, failure: ScaleFailure, message: str, *, doubt: bool = False) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message
        self.doubt = doubt


class ScaleResult(Struct, frozen=True):
    """The result of changing the size of one group.

    Attributes:
        group: id of the group.
        before: the target size that the plan was based on.
        after: the requested target size.
        failure: the reason why the change failed; ``None`` if it succeeded.
        message: the error message; empty if it succeeded.
        doubt: whether the target size may have changed despite the failure. The next snapshot contains the actual size.
        calls: number of requests that were sent.
    """

    group: str
    before: int
    after: int
    failure: ScaleFailure | None = None
    message: str = ""
    doubt: bool = False
    calls: int = 0

    @property
    def done(self) -> bool:
        """Return whether the group has the new target size."""
        return self.failure is None


class MarkedMachines(Struct, frozen=True):
    """The result of :meth:`Provider.mark`: machines that are deleted first when the group's size is lowered.

    Attributes:
        group: id of the group.
        machines: the machines by name, including those in ``added``.
        added: names of failed machines that the caller did not choose, but that the controller might delete instead of
            chosen ones.
        text: value of the mark annotation. It is empty if no mark is needed, because exactly these machines are deleted
            first; then the caller need not wait.
        failure: the reason why the machines were not marked; ``None`` if they were.
        message: the error message; empty if they were marked.
        calls: number of requests that were sent.
        left_marked: names of the machines whose marks could not be removed after a failure.
    """

    group: str
    machines: tuple[GroupMachine, ...] = ()
    added: tuple[str, ...] = ()
    text: str = ""
    failure: ScaleFailure | None = None
    message: str = ""
    calls: int = 0
    left_marked: tuple[str, ...] = ()


class MachineRemoval(ScaleResult, frozen=True):
    """The result of deleting machines; :func:`verify_removal` compares it with later states of the group.

    Attributes:
        machines: names of the machines that may be deleted, sorted, including those in ``added``. There are more than
            ``before - after`` of them if the size is lowered in several steps.
        added: names of failed machines that the caller did not choose, but that the controller might delete instead of
            chosen ones.
        others: names of the group's other machines that were not being deleted.
        mark: value of the mark annotation; empty if none was set.
        left_marked: names of the machines whose marks could not be removed after a failure of the removal.
    """

    machines: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    mark: str = ""
    left_marked: tuple[str, ...] = ()


class VerifiedRemoval(Struct, frozen=True):
    """The machines that were deleted after a size change, and those that still may be.

    Attributes:
        deleted: chosen machines that have been deleted or are being deleted.
        pending: chosen machines that may still be deleted.
        kept: chosen machines that will not be deleted, because others were deleted instead or the target size was
            changed. The caller must remove their marks, and the taints and cordons of their nodes.
        unexpected: machines that were deleted although they were not chosen.
        settled: whether the group's controller has finished, so that no machine is pending.
    """

    deleted: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    settled: bool = True


def machine_names(machines: Sequence[GroupMachine]) -> tuple[str, ...]:
    """Return the names of the machines, sorted."""
    return tuple(sorted(machine.name for machine in machines))


def verify_removal(removal: MachineRemoval, group: NodeGroup | None) -> VerifiedRemoval:
    """Determine from a later snapshot which machines were deleted.

    Args:
        removal: the result of the removal. The response may have been lost.
        group: the group in a later snapshot; ``None`` if it no longer exists.
    """
    if group is None:
        return VerifiedRemoval(deleted=removal.machines, unexpected=removal.others)
    alive = {each.name for each in group.machines if each.state is not MachineState.DELETING}
    deleted = tuple(name for name in removal.machines if name not in alive)
    left = tuple(name for name in removal.machines if name in alive)
    wrong = tuple(name for name in removal.others if name not in alive)
    # More machines than the target: the group's controller has not chosen yet, and marked machines come first.
    settled = not left or len(alive) <= group.target
    return VerifiedRemoval(
        deleted=deleted,
        pending=() if settled else left,
        kept=left if settled else (),
        unexpected=wrong,
        settled=settled,
    )
