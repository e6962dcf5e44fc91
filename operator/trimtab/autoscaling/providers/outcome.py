"""What came of acting on a node group: values, for one group's failure is no other group's affair."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from trimtab.api import reasons
from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup


class Failure(StrEnum):
    """Why a group was not scaled; each is a code of :mod:`trimtab.api.reasons`."""

    REFUSED = reasons.SCALE_REFUSED
    CONFLICT = reasons.SCALE_CONFLICT
    NOT_FOUND = reasons.SCALE_TARGET_GONE
    UNREACHABLE = reasons.SCALE_UNREACHABLE
    TIMED_OUT = reasons.SCALE_TIMED_OUT


class Failed(Exception):
    """A failure on its way to its outcome; it never leaves this package.

    Attributes:
        failure: of which kind.
        message: in words.
        doubt: whether the size may have changed all the same, now or a moment later.
    """

    def __init__(self, failure: Failure, message: str, *, doubt: bool = False) -> None:
        super().__init__(message)
        self.failure = failure
        self.message = message
        self.doubt = doubt


class Scaled(Struct, frozen=True):
    """What came of one group.

    Attributes:
        group: its id.
        before: the target that was planned on.
        after: the target that was asked for.
        failure: why it is not so; ``None`` where it is.
        message: in words; empty where all went well.
        doubt: after a failure, whether the target may have changed all the same. The next snapshot tells.
        calls: requests that were sent.
    """

    group: str
    before: int
    after: int
    failure: Failure | None = None
    message: str = ""
    doubt: bool = False
    calls: int = 0

    @property
    def done(self) -> bool:
        """Whether the group has the new target."""
        return self.failure is None


class Removal(Scaled, frozen=True):
    """What came of removing machines; to be held against later states of the group by :func:`verify`.

    Attributes:
        machines: names of the machines that are to go, by name; those that were added for the sake of ties included.
        added: of these, failed ones that nobody asked for: the provider's API would take them as readily.
        others: names of all other machines that the group had then and that were not being deleted.
        mark: the text of the marks; empty where none was set.
        left_marked: machines whose marks could not be taken back after a failure.
    """

    machines: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    mark: str = ""
    left_marked: tuple[str, ...] = ()


class Verdict(Struct, frozen=True):
    """Which machines went.

    Attributes:
        gone: of those that were to go, the ones that went or are being deleted.
        waiting: of those that were to go, the ones that still may.
        spared: of those that were to go, the ones that stay: others went in their place, or the target is another by
            now. To repair: take marks, taints and cordons back; the next plan counts anew.
        wrong: machines that went and were not to.
        settled: whether the group's controller is done, so that nothing is waiting.
    """

    gone: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    settled: bool = True


def names(machines: Sequence[GroupMachine]) -> tuple[str, ...]:
    """The machines' names, sorted."""
    return tuple(sorted(machine.name for machine in machines))


def verify(removal: Removal, group: NodeGroup | None) -> Verdict:
    """Which machines went, seen from a later snapshot; pure, and without a request.

    Args:
        removal: what was asked for, also where its answer was lost.
        group: the group as it is now; ``None`` where it is no more.
    """
    if group is None:
        return Verdict(gone=removal.machines, wrong=removal.others)
    alive = {each.name for each in group.machines if each.state is not MachineState.DELETING}
    gone = tuple(name for name in removal.machines if name not in alive)
    left = tuple(name for name in removal.machines if name in alive)
    wrong = tuple(name for name in removal.others if name not in alive)
    # More machines than are wanted: its controller has yet to choose, and ours are still the first that may go.
    settled = not left or len(alive) <= group.target
    return Verdict(
        gone=gone,
        waiting=() if settled else left,
        spared=left if settled else (),
        wrong=wrong,
        settled=settled,
    )
