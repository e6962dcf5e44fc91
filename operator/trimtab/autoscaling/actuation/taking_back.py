"""Taking a removal back: taint and cordon off the node, the mark off its machine; what is not ours stays."""

from __future__ import annotations

import logging
from typing import Protocol

from trimtab.autoscaling.actuation.batches import Batches
from trimtab.autoscaling.actuation.picture import Picture
from trimtab.autoscaling.actuation.settings import RemovalSettings
from trimtab.autoscaling.actuation.signs import returning
from trimtab.autoscaling.actuation.writing import write
from trimtab.autoscaling.groups import MachineState
from trimtab.autoscaling.providers import Removal
from trimtab.kube.api import Api, ApiError, Conflict, Invalid, ServerError, TooManyRequests, Unreachable
from trimtab.kube.clock import Clock
from trimtab.kube.guarded import NotLeading

log = logging.getLogger(__name__)

_PASSING = (Conflict, Invalid, ServerError, TooManyRequests, Unreachable)
"""What another try may find otherwise."""


class Means(Protocol):
    """What it takes."""

    @property
    def picture(self) -> Picture:
        """The live picture."""
        ...

    @property
    def batches(self) -> Batches:
        """Who knows the groups' providers."""
        ...

    @property
    def clock(self) -> Clock:
        """Where the time comes from."""
        ...

    @property
    def settings(self) -> RemovalSettings:
        """How to try."""
        ...


async def give_back(means: Means, api: Api, node: str, uid: str, *, group: str, removal: Removal | None = None) -> str:
    """Return a node to how it was.

    The machine's mark goes first: with the taint gone a marked machine would be the first to go with all that runs
    there by then.

    Args:
        means: what it takes.
        api: the API server; asked only while this process leads.
        node: its name.
        uid: only this very node; empty for whichever has the name.
        group: the id of its group.
        removal: what was asked for, where something was: what it marked may not be in the picture yet.

    Returns:
        What is left and why, in words; empty where all was returned. Another pass tries again.
    """
    clock, settings = means.clock, means.settings
    until = clock.monotonic() + settings.returning
    tries = 0
    while True:
        try:
            unmarked = await unmark(means, node, group, removal)
            await write(api, node, uid, returning, timeout=settings.timeout)
        except NotLeading as error:
            return str(error)
        except _PASSING as error:
            why = f"taint and cordon: {error}"
        except ApiError as error:
            return f"taint and cordon: {error}"
        except Exception as error:  # a defect here must not keep the node among those that go, where nobody sees to it
            log.exception("node %s could not be returned to how it was", node)
            return f"{type(error).__name__}: {error}"
        else:
            why = unmarked
        if not why or clock.monotonic() >= until:
            return why
        await clock.sleep(settings.error_backoff.delay(tries))
        tries += 1


async def unmark(means: Means, node: str, group: str, removal: Removal | None) -> str:
    """Take our mark off the node's machine; returns what was left, in words."""
    found = (await means.picture.groups()).by_id.get(group)
    if found is None:
        return ""
    provider = means.batches.provider(found)
    ours = () if removal is None else removal.machines
    marked = [
        each.name
        for each in found.machines
        if each.node == node and each.state is not MachineState.DELETING and (each.marked or each.name in ours)
    ]
    if provider is None or not marked:
        return ""
    left = await provider.unmark(found, marked, mark="" if removal is None else removal.mark)
    return f"the mark of machine {', '.join(left)}" if left else ""
