"""What runs while a TaintManager acts: timers and endings, the notes on nodes, and in mode Own the node lifecycle.

All of it is made anew when acting begins: nothing here knows more than the book, the cluster and the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from trimtab.api.taint_manager import OWN, TaintManagerSpec
from trimtab.kube.objects import Lease, Node
from trimtab.kube.retry import Backoff
from trimtab.tainting.deadlines import Change, Deadline, DeadlineBook
from trimtab.tainting.ending import Ending
from trimtab.tainting.lifecycle import Lifecycle
from trimtab.tainting.lifecycle_settings import lifecycle_settings
from trimtab.tainting.notes import Notes
from trimtab.tainting.rights import Rights
from trimtab.tainting.services import Services
from trimtab.tainting.timers import Timers

log = logging.getLogger(__name__)

RETRY: Final = Backoff(initial=1.0, maximum=30.0)
"""Until a loop that failed is begun anew: a bug, which must not end what still works."""

ENDING: Final = 12.0
"""Seconds that loops get to let end what is in flight; Kopf gives the daemon 28 in all."""

STABLE: Final = 60.0
"""Seconds that a loop ran after which its next failure counts as the first."""


class Keeper:
    """Keeps loops running: one that fails is begun anew after a while, and the others do not notice.

    Args:
        services: the clock.

    Attributes:
        problems: what the loops that wait for a new begin have failed of, by name.
    """

    def __init__(self, services: Services) -> None:
        self.problems: dict[str, str] = {}
        self._clock = services.clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing: set[str] = set()

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a loop from now on."""
        self._closing.discard(name)
        self._tasks[name] = asyncio.create_task(self._keep(name, run), name=f"taint manager: {name}")

    async def end(self, name: str, stop: Callable[[], Awaitable[None]], *, seconds: float) -> None:
        """Ask a loop to end, wait for it so long, then end it at once."""
        self._closing.add(name)
        task = self._tasks.get(name)
        try:
            async with asyncio.timeout(seconds):
                await stop()
                if task is not None:
                    await asyncio.wait({task})
        except TimeoutError:
            log.warning("%s has not ended within %g s", name, seconds)
        except Exception:
            log.exception("%s failed while it ended", name)
        await self.stop(name)

    async def stop(self, name: str = "") -> None:
        """End one loop at once, or all of them."""
        names = [name] if name else list(self._tasks)
        tasks = [self._tasks.pop(each) for each in names if each in self._tasks]
        for each in names:
            self.problems.pop(each, None)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        failures = 0
        while True:
            began = self._clock.monotonic()
            try:
                await run()
            except Exception as error:
                log.exception("%s failed", name)
                self.problems[name] = f"{name}: {type(error).__name__}: {error}"
            if name in self._closing:
                return
            if self._clock.monotonic() - began >= STABLE:
                failures = 0
            await self._clock.sleep(RETRY.delay(failures))
            failures += 1
            self.problems.pop(name, None)


class Acting:
    """One stretch of acting, from a mode that does not act to the next.

    Args:
        given: what the loops need.
        spec: of the TaintManager, in a mode that acts.
        book: what is due when.

    Attributes:
        ending: deletes and evicts.
        rights: finds out whether we may do what the mode asks for.
        lifecycle: taints nodes; ``None`` but in mode Own.
    """

    def __init__(self, given: Services, spec: TaintManagerSpec, book: DeadlineBook) -> None:
        services = msgspec.structs.replace(given, stale=lambda: given.stale() or given.hung())
        self.ending = Ending(services, spec, deadline_of=book.deadlines.get, deadlines_of=book.deadlines_of)
        self.lifecycle: Lifecycle | None = None
        self.rights = Rights(services, spec)
        self._services = services
        self._spec = spec
        self._book = book
        self._keeper = Keeper(services)
        self._notes = Notes(services, book.taints)
        self._timers: Timers[Deadline] = Timers(self.ending.due, services.clock)
        self._tainted = 0  # by lifecycles that have ended since

    @property
    def stale(self) -> str | None:
        """What keeps the picture from being acted on now, a watch that hangs among it."""
        return self._services.stale()

    @property
    def problems(self) -> tuple[str, ...]:
        """What keeps loops from running, in words."""
        return tuple(self._keeper.problems[name] for name in sorted(self._keeper.problems))

    @property
    def tainted_so_far(self) -> int:
        """NoExecute taints that were put on nodes since this began."""
        return self._tainted + (self.lifecycle.nodes_tainted if self.lifecycle is not None else 0)

    async def start(self) -> None:
        """Begin, with all that the book holds."""
        for deadline in self._book.deadlines.values():
            self._timers.set(deadline.key, deadline.due, deadline)
        self._notes.everything()
        if self._services.prove is not None:
            self._keeper.start("proof of watches", self._services.prove)
        self._keeper.start("ending pods", self.ending.run)
        self._keeper.start("timers", self._timers.run)
        self._keeper.start("notes", self._notes.run)
        self._keeper.start("rights", self.rights.run)
        await self._lifecycle_as(self._spec)

    async def configure(self, spec: TaintManagerSpec) -> None:
        """Go on by another spec, in a mode that acts."""
        self._spec = spec
        self.rights.configure(spec)
        self.ending.configure(spec)
        await self._lifecycle_as(spec)

    async def stop(self) -> None:
        """Begin nothing more, let what was begun end, and end."""
        await self._keeper.stop("timers")
        await self._keeper.stop("notes")
        await asyncio.gather(self._stop_ending(), self._end_lifecycle())
        await self._keeper.stop()

    async def take_notes_off(self, seconds: float) -> int:
        """Once stopped, take our annotations off all nodes; how many have one still."""
        return await self._notes.take_off(seconds)

    def follow(self, changes: Iterable[Change]) -> None:
        """Deadlines that are other ones now."""
        for change in changes:
            if change.after is None:
                self._timers.cancel(change.key)
            else:
                self._timers.set(change.key, change.after.due, change.after)
            self.ending.changed(change.key)

    def node_changed(self, old: Node | None, new: Node | None) -> None:
        """A node came, changed or went; book and picture have it already."""
        node = new or old
        if node is not None:
            self._notes.look_at(node.name)
            if old is None or new is None or old.taints != new.taints:
                self.ending.node_changed(node.name)
        if self.lifecycle is not None:
            self.lifecycle.node_changed(old, new)

    def lease_changed(self, old: Lease | None, new: Lease | None) -> None:
        """A node's Lease came, was renewed or went."""
        if self.lifecycle is not None:
            self.lifecycle.lease_changed(old, new)

    async def _lifecycle_as(self, spec: TaintManagerSpec) -> None:
        """Have the node lifecycle run by this spec, or not at all."""
        if spec.mode != OWN:
            await self._end_lifecycle()
        elif self.lifecycle is not None:
            self.lifecycle.configure(lifecycle_settings(spec.node_lifecycle))
        else:
            self.lifecycle = Lifecycle(self._for_lifecycle(), lifecycle_settings(spec.node_lifecycle))
            self._keeper.start("node lifecycle", self.lifecycle.run)

    def _for_lifecycle(self) -> Services:
        """With what keeps it alone from acting."""
        services = self._services
        return msgspec.structs.replace(services, stale=lambda: services.stale() or services.blind())

    async def _end_lifecycle(self) -> None:
        if self.lifecycle is None:
            return
        ending, self.lifecycle = self.lifecycle, None
        await self._keeper.end("node lifecycle", ending.stop, seconds=ENDING)
        self._tainted += ending.nodes_tainted

    async def _stop_ending(self) -> None:
        try:
            await self.ending.stop(ENDING)
        except Exception:
            log.exception("ending pods failed while it ended")
