"""The loop of the one ClusterAutoscaler: a pass every ten seconds, or as soon as there is a reason for one.

Everything a pass starts from stands in the cluster: in the status, on nodes and on the objects of groups. What is only
in memory may be lost at any point.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import NAME, ClusterAutoscaler
from trimtab.api.conditions import DEGRADED, PROGRESSING, READY, ConditionStatus, find_condition
from trimtab.api.decode import decode_cluster_autoscaler
from trimtab.autoscaling.one_pass import Passes
from trimtab.autoscaling.report import without_pass
from trimtab.autoscaling.services import Services
from trimtab.autoscaling.status_keeper import StatusKeeper
from trimtab.kube.daemons import Stopped
from trimtab.kube.errors import InputError
from trimtab.kube.guarded import Guarded

log = logging.getLogger(__name__)

PERIOD: Final = 10.0
"""Seconds between the beginnings of two passes where nothing else is a reason for one (upstream's scan interval)."""

SOON: Final = 1.0
"""Seconds until the pass after one that has done something."""

BETWEEN: Final = 0.2
"""Seconds from the end of a pass to the next at least, and as long as the pass took: others need the picture, too."""

BLIND: Final = 5.0
"""Seconds without a picture that can be planned on before the status says so: a watch that is renewed takes less."""

LOOK_AGAIN: Final = 0.5

RETURNING: Final = 150.0
"""Seconds that it may take to return all nodes when the ClusterAutoscaler is deleted."""


class AutoscalerController:
    """Runs the ClusterAutoscaler until it is stopped.

    Args:
        services: what passes need.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._keeper = StatusKeeper(Guarded(services.api, services.leading), services.clock)
        self._passes = Passes(services, self._keeper)
        self._autoscaler: ClusterAutoscaler | None = None
        self._problem: InputError | None = None
        self._generation = 0
        self._uid = ""
        self._ended = False
        self._blind_since: float | None = None

    def observe(self, body: Mapping[str, Any]) -> None:
        """Take the ClusterAutoscaler in as it is written now; a new generation is a reason for a pass."""
        metadata = body["metadata"]
        generation, uid = int(metadata.get("generation", 0)), str(metadata.get("uid", ""))
        if uid != self._uid:
            self._passes.take_up(body.get("status") or {})
        elif generation == self._generation:
            return
        self._generation, self._uid = generation, uid
        try:
            self._autoscaler, self._problem = decode_cluster_autoscaler(dict(body)), None
            self._services.trigger.bypassed = frozenset(self._autoscaler.spec.scale_up.bypassed_schedulers)
        except InputError as problem:
            self._autoscaler, self._problem = None, problem
        self._services.trigger.wake()

    def end(self) -> None:
        """End :meth:`run`: the ClusterAutoscaler is gone, whoever took our finalizer away."""
        self._ended = True
        self._services.trigger.wake()

    async def run(self, stopped: Stopped) -> None:
        """Make passes until stopped; what is in flight then is finished or returned."""
        watcher = asyncio.create_task(self._watch(stopped), name="stop of the autoscaler")
        trigger, clock = self._services.trigger, self._services.clock
        try:
            while self._goes_on(stopped):
                trigger.clear()
                began = clock.monotonic()
                done = await self._turn_safely()
                took = clock.monotonic() - began
                await clock.sleep(max(BETWEEN, took))
                if self._goes_on(stopped):
                    spent = clock.monotonic() - began
                    await trigger.wait(max(0.0, (SOON if done else self._period()) - spent))
        finally:
            watcher.cancel()
            if self._ended:
                await self._clean_up_safely()
            await self._passes.stop()

    async def clean_up(self) -> None:
        """Return all nodes that are being removed and take everything of ours from nodes: there is no autoscaler.

        Raises:
            TimeoutError: not everything could be taken away in time.
        """
        clock = self._services.clock
        async with asyncio.timeout(RETURNING):
            rest = 1
            while rest:
                if self._services.stale() is None:
                    rest = await self._passes.clean_up()
                if rest:
                    await clock.sleep(LOOK_AGAIN)

    async def stop(self) -> None:
        """End what :meth:`clean_up` has begun, without :meth:`run`."""
        await self._passes.stop()

    async def _clean_up_safely(self) -> None:
        try:
            await self.clean_up()
        except Exception:  # the next ClusterAutoscaler's first pass finds what is left
            log.exception("not everything could be taken from nodes after the ClusterAutoscaler was deleted")

    def _goes_on(self, stopped: Stopped) -> bool:
        return not stopped and not self._ended

    def _period(self) -> float:
        """Seconds to the next look; while the picture is stale it is looked at more often."""
        return LOOK_AGAIN if self._blind_since is not None else PERIOD

    async def _watch(self, stopped: Stopped) -> None:
        while not stopped:
            await stopped.wait()
        self._services.trigger.wake()

    async def _turn_safely(self) -> bool:
        """One turn of the loop; whatever goes wrong ends in the status and the log, never in the loop."""
        started = self._services.clock.now()
        try:
            return await self._one()
        except Exception as error:
            log.exception("a pass of the autoscaler failed")
            message = f"{type(error).__name__}: {error}"
            self._tell((READY, False, reasons.PASS_FAILED, message), (DEGRADED, True, reasons.PASS_FAILED, message))
            if self._autoscaler is not None:
                self._passes.failed(self._autoscaler, started, message)
            return False

    async def _one(self) -> bool:
        if self._autoscaler is None:
            await self._hold_invalid()
            return False
        if not self._can_see():
            return False
        return await self._passes.run(self._autoscaler)

    async def _hold_invalid(self) -> None:
        """The spec cannot be used: nothing is done, and what is under way is returned."""
        if self._problem is None:
            return
        message = str(self._problem)
        self._tell(
            (READY, False, reasons.INVALID_AUTOSCALER, message),
            (PROGRESSING, False, reasons.IDLE, "nothing is scaled"),
            (DEGRADED, True, reasons.INVALID_AUTOSCALER, message),
        )
        if self._services.stale() is None:
            await self._passes.hold(None)

    def _can_see(self) -> bool:
        """Whether there is a picture to plan on; the status says after a while what is wrong with it."""
        wrong = self._services.stale()
        now = self._services.clock.monotonic()
        if wrong is None:
            self._blind_since = None
            return True
        self._passes.let_others()
        if self._blind_since is None:
            self._blind_since = now
        if now - self._blind_since >= BLIND:
            known = find_condition(self._keeper.status.conditions, READY) is not None
            waiting = (
                () if known else ((READY, "Unknown", reasons.WAITING_FOR_FIRST_PASS, "no pass has been made yet"),)
            )
            self._tell(*waiting, (DEGRADED, True, reasons.CLUSTER_UNREACHABLE, wrong))
        return False

    def _tell(self, *conditions: tuple[str, ConditionStatus | bool, str, str]) -> None:
        now = self._services.clock.now()
        self._keeper.put(without_pass(self._keeper.status, conditions, generation=self._generation, now=now))


async def refuse(services: Services, body: Mapping[str, Any]) -> None:
    """Say in the status of a ClusterAutoscaler of another name that there is only one.

    Our definition refuses others; OpenShift's own, which a cluster may have in its place, lets them in.
    """
    metadata = body["metadata"]
    keeper = StatusKeeper(services.api, services.clock, name=str(metadata["name"]))
    keeper.take_up(body.get("status") or {})
    message = f"metadata.name must be {NAME}: there is one ClusterAutoscaler for the whole cluster"
    before = find_condition(keeper.status.conditions, READY)
    if before is not None and before.message == message:
        return
    conditions = (
        (READY, False, reasons.INVALID_AUTOSCALER, message),
        (DEGRADED, True, reasons.INVALID_AUTOSCALER, message),
    )
    generation = int(metadata.get("generation", 0))
    keeper.put(without_pass(keeper.status, conditions, generation=generation, now=services.clock.now()))
    await keeper.stop()
