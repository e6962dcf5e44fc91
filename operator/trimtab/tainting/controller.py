"""The loop of the one TaintManager: who acts, by which spec, and what the status says of it.

Pods and nodes come as events, and what they change is done at once (:mod:`.following`, :mod:`.acting`). This loop turns
every other second, and as soon as the TaintManager changes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from trimtab.api import reasons
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, find_condition
from trimtab.api.decode import decode_taint_manager
from trimtab.api.taint_manager import OBSERVE, ONE_FOR_ALL, TaintManager, TaintManagerSpec
from trimtab.kube.daemons import Stopped
from trimtab.kube.errors import InputError
from trimtab.tainting.acting import Acting
from trimtab.tainting.deadlines import Tolerating
from trimtab.tainting.following import Following
from trimtab.tainting.looking import Done, Lasting, look
from trimtab.tainting.notes import Notes
from trimtab.tainting.report import LOOK_EVERY, StatusKeeper, build_status, with_conditions
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)

BLIND: Final = 5.0
"""Seconds without a picture that can be acted on before the status says so: a watch that is renewed takes less."""

SHARE: Final = 20
"""How many times longer the time between two looks is than what one takes: 150,000 deadlines take some."""

TAKING_OFF: Final = 10.0
"""Seconds that it may take to take our annotations off nodes when nobody acts any more."""

CLEANING: Final = 60.0
"""The same when the TaintManager is deleted, which can be tried again."""

LOOK_AGAIN: Final = 0.2
"""Seconds until it is looked again whether everything has been listed."""


class TaintManagerController:
    """Carries the TaintManager out until it is stopped.

    Args:
        services: what the loops need.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._following: Following | None = None
        self._acting: Acting | None = None
        self._manager: TaintManager | None = None
        self._problem: InputError | None = None
        self._applied: TaintManagerSpec | None = None
        self._generation = 0
        self._uid = ""
        self._ended = False
        self._done = Done()
        self._stale = Lasting(BLIND)
        self._blind = Lasting(BLIND)
        self._keeper = StatusKeeper(services.api, services.clock)
        self._wake = asyncio.Event()

    def observe(self, body: Mapping[str, Any]) -> None:
        """Take the TaintManager in as it is written now; a new generation is carried out at once."""
        metadata = body["metadata"]
        generation, uid = int(metadata.get("generation", 0)), str(metadata.get("uid", ""))
        if (generation, uid) == (self._generation, self._uid):
            return
        if uid != self._uid:
            self._keeper.take_up(body.get("status") or {})
        self._generation, self._uid = generation, uid
        try:
            self._manager, self._problem = decode_taint_manager(dict(body)), None
        except InputError as problem:
            self._manager, self._problem = None, problem
        self._wake.set()

    def end(self) -> None:
        """End :meth:`run`: the TaintManager is gone, whoever took our finalizer away."""
        self._ended = True
        self._wake.set()

    async def run(self, stopped: Stopped) -> None:
        """Carry out until stopped; requests that are in flight then are waited for."""
        watcher = asyncio.create_task(self._watch(stopped), name="stop of the taint manager")
        try:
            while not stopped and not self._ended:
                self._wake.clear()
                await self._wait(await self._turn_safely())
        finally:
            watcher.cancel()
            await self._rest(forever=self._ended)
            if self._following is not None:
                self._following.end()
            await self._keeper.stop()

    async def clean_up(self) -> None:
        """Take our annotations off all nodes: there is no TaintManager. Taints stay as they are.

        Raises:
            TimeoutError: not all could be taken off in time.
        """
        async with asyncio.timeout(CLEANING):
            while self._services.stale() is not None:
                await self._services.clock.sleep(LOOK_AGAIN)
        left = await Notes(self._services, {}).take_off(CLEANING)
        if left:
            raise TimeoutError(f"{left} nodes have an annotation of ours still")

    async def stop(self) -> None:
        """End what :meth:`clean_up` has begun, without :meth:`run`."""
        await self._keeper.stop()

    async def _watch(self, stopped: Stopped) -> None:
        while not stopped:
            await stopped.wait()
        self._wake.set()

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _turn_safely(self) -> float:
        """One turn; whatever goes wrong ends in the status and the log, never in the loop. Seconds until the next."""
        try:
            return await self._turn()
        except Exception as error:
            log.exception("a turn of the taint manager failed")
            self._tell((DEGRADED, True, reasons.PASS_FAILED, f"{type(error).__name__}: {error}"))
            return LOOK_EVERY

    async def _turn(self) -> float:
        if self._manager is None:
            await self._hold_invalid()
            return LOOK_EVERY
        spec, ready = self._manager.spec, True
        if self._following is None and self._services.stale() is not None:
            ready = False
        else:
            following = self._follow(spec)
            await self._act_by(spec, following)
            following.mend()
        began = self._services.clock.monotonic()
        self._report(spec)
        took = self._services.clock.monotonic() - began
        return max(LOOK_EVERY if ready else LOOK_AGAIN, SHARE * took)

    def _follow(self, spec: TaintManagerSpec) -> Following:
        """The book by this spec, from the first look at everything on."""
        rule = Tolerating.of(spec)
        if spec is not self._applied:
            self._services.teller.configure(spec, uid=self._uid)
        if self._following is None:
            following = Following(self._services, rule)
            following.begin(notes=spec.mode != OBSERVE)
            self._following = following  # not before: who has not seen everything knows of no deadline
        else:
            self._following.read_by(rule)
        return self._following

    async def _act_by(self, spec: TaintManagerSpec, following: Following) -> None:
        """Have those act that the mode asks for."""
        if spec is not self._applied:
            pods, nodes = len(following.book.deadlines), len(following.book.taints)
            log.info("mode %s; %d pods on %d nodes with NoExecute taints have a deadline", spec.mode, pods, nodes)
        if spec.mode == OBSERVE:
            await self._rest()
        elif self._acting is None:
            self._acting = following.acting = Acting(self._services, spec, following.book)
            try:
                await self._acting.start()
            except Exception:
                await self._rest(forever=False)  # to be begun anew, and as a whole
                raise
        elif spec is not self._applied:
            await self._acting.configure(spec)
        self._applied = spec

    async def _rest(self, *, forever: bool = True) -> None:
        """Act no more.

        Args:
            forever: whether nobody goes on from here: then our annotations are taken off nodes, for nobody keeps them
                true. If not, another process needs them.
        """
        if self._acting is None:
            return
        log.info("nobody acts on taints from now on: what is in flight ends")
        acting, self._acting = self._acting, None
        if self._following is not None:
            self._following.acting = None
        await acting.stop()
        self._done = self._done.and_by(acting)
        if forever and (left := await acting.take_notes_off(TAKING_OFF)):
            log.warning("%d nodes have an annotation of ours still, which nobody keeps true", left)

    async def _hold_invalid(self) -> None:
        """The spec cannot be used: nothing is done."""
        await self._rest()
        if self._problem is None:
            return
        message = str(self._problem)
        self._tell(
            (READY, False, reasons.INVALID_TAINT_MANAGER, message),
            (PROGRESSING, False, reasons.IDLE, "nothing is done"),
            (DEGRADED, True, reasons.INVALID_TAINT_MANAGER, message),
        )

    def _report(self, spec: TaintManagerSpec) -> None:
        """Have the status say how things are."""
        now = self._services.clock.monotonic()
        wrong = self._services.stale() if self._acting is None else self._acting.stale
        seen = look(
            spec,
            self._following,
            self._acting,
            generation=self._generation,
            stale=self._stale.told(wrong, now),
            blind=self._blind.told(self._services.blind(), now),
            done=self._done,
            now=self._services.clock.now(),
        )
        status = build_status(seen, self._keeper.status, base=self._keeper.base)
        self._keeper.put(status)
        self._services.teller.observe(status)

    def _tell(self, *conditions: tuple[str, bool, str, str]) -> None:
        now = self._services.clock.now()
        self._keeper.put(with_conditions(self._keeper.status, *conditions, generation=self._generation, now=now))


async def refuse(services: Services, body: Mapping[str, Any]) -> None:
    """Say in the status of a TaintManager of another name that there is only one.

    The definition refuses others; one that was made before it did is still there.
    """
    metadata = body["metadata"]
    keeper = StatusKeeper(services.api, services.clock, name=str(metadata["name"]))
    keeper.take_up(body.get("status") or {})
    message = f"metadata.name {ONE_FOR_ALL}"
    before = find_condition(keeper.status.conditions, READY)
    if before is not None and before.message == message:
        return
    conditions = (
        (READY, False, reasons.INVALID_TAINT_MANAGER, message),
        (DEGRADED, True, reasons.INVALID_TAINT_MANAGER, message),
    )
    generation = int(metadata.get("generation", 0))
    keeper.put(with_conditions(keeper.status, *conditions, generation=generation, now=services.clock.now()))
    await keeper.stop()
