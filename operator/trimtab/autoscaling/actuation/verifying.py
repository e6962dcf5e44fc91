"""Seeing which machine went, on the picture as it comes in after the group's size was lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.actuation.batches import Batches, Taken
from trimtab.autoscaling.actuation.ending import Ended, failed
from trimtab.autoscaling.actuation.picture import FRESH, Picture
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.groups import NodeGroup
from trimtab.autoscaling.providers import Removal, Verdict, verify
from trimtab.kube.clock import Clock

LAG: Final = 30.0
"""Seconds that the picture may still show the size from before a change that was granted."""

DOUBT: Final = 30.0
"""Seconds in which a change may still come about whose answer was lost: longer than any request takes."""


class Verifying:
    """Waits for machines to go.

    Args:
        picture: the live picture.
        batches: who knows the groups' providers.
        clock: where the time comes from.
        settings: how often to look.
    """

    def __init__(self, picture: Picture, batches: Batches, clock: Clock, settings: RemovalSettings) -> None:
        self._picture = picture
        self._batches = batches
        self._clock = clock
        self._settings = settings

    async def until_gone(self, taken: Taken, group: str, *, seen: bool, leading: Callable[[], None]) -> str:
        """Wait until it is known what became of a machine.

        There is no end to it but that: the size is lowered, and some machine will go.

        Args:
            taken: the machine, and what was asked for.
            group: the id of its group.
            seen: whether the picture has the new size already.
            leading: raises where another process may lead.

        Returns:
            What is said of it: it went.

        Raises:
            Ended: it stays, others went in its place or the size is another by now. Its mark is taken off.
        """
        removal = taken.removal
        assert removal is not None
        while True:
            leading()
            found = (await self._picture.groups()).by_id.get(group)
            if seen or self._shows(found, removal, taken.asked):
                verdict = verify(removal, found)
                if taken.machine in verdict.gone:
                    return f"machine {taken.machine} goes: {removal.after} are asked for instead of {removal.before}"
                if taken.machine in verdict.spared:
                    raise self._spared(taken.machine, found, removal, verdict)
            await self._clock.sleep(max(FRESH, self._settings.poll))

    def _shows(self, group: NodeGroup | None, removal: Removal, asked: float) -> bool:
        """Whether the picture is of after the change, as far as one can tell."""
        if group is None or group.target != removal.before:
            return True
        return self._clock.monotonic() - asked >= (DOUBT if removal.doubt else LAG)

    def _spared(self, machine: str, group: NodeGroup | None, removal: Removal, verdict: Verdict) -> Ended:
        target = "no" if group is None else f"{group.target}"
        others = f"; {', '.join(verdict.wrong)} went" if verdict.wrong else ""
        message = f"machine {machine} stays, {target} machines are wanted by now{others}"
        return failed(reasons.MACHINE_SPARED, f"{removal.message}; {message}" if removal.message else message)
