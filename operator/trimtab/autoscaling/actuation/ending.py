"""How a removal is told to end before its end: an exception on its way to the outcome; it never leaves the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trimtab.api import reasons
from trimtab.autoscaling.actuation.removal import Result
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class Ended(Exception):
    """The removal is over, and the node stays.

    Attributes:
        result: Failed or Aborted.
        refusal: why.
        pod: which pod kept the node, if one did.
        silent: whether nothing more may be written: another process may lead by now, and takes care of it.
    """

    def __init__(self, result: Result, refusal: Refusal, *, pod: Pod | None = None, silent: bool = False) -> None:
        super().__init__(refusal.message)
        self.result = result
        self.refusal = refusal
        self.pod = pod
        self.silent = silent


def failed(reason: str, message: str, *, pod: Pod | None = None) -> Ended:
    """It was tried and did not work."""
    return Ended(Result.FAILED, Refusal(reason, message), pod=pod)


def aborted(refusal: Refusal) -> Ended:
    """The node is to stay after all."""
    return Ended(Result.ABORTED, refusal)


def superseded() -> Ended:
    """Another process may lead by now."""
    message = "another process may lead by now, and goes on with it"
    return Ended(Result.ABORTED, Refusal(reasons.LEASE_LOST, message), silent=True)


class Control(Protocol):
    """What tells a removal whether to go on; asked before each request."""

    async def checkpoint(self) -> None:
        """Wait until there is a picture to act on.

        Raises:
            Ended: the removal is not to go on.
        """
        ...

    async def pause(self, seconds: float) -> None:
        """Wait, at most until the removal is to end."""
        ...

    @property
    def say(self) -> Callable[[str], None]:
        """Tells what is being waited for."""
        ...
