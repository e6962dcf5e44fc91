"""Which rights a mode needs, and which of them are missing: said at once, not when the first pod is due."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from trimtab.api.taint_manager import EARLIER_ONLY, EVICT, OBSERVE, OWN, Mode, TaintManagerSpec
from trimtab.kube.access import Right, allowed
from trimtab.kube.api import ApiError, Unreachable
from trimtab.kube.objects import NODE_LEASES
from trimtab.kube.resources import CONFIG_MAPS, LEASES, NODES, PODS
from trimtab.tainting.lifecycle.record import NAME as RECORD
from trimtab.tainting.services import Services

log = logging.getLogger(__name__)

LOOK_AGAIN: Final = 15.0
"""Seconds until missing rights are asked for again: an administrator has to act first."""


def needed(spec: TaintManagerSpec, *, namespace: str) -> tuple[Right, ...]:
    """What a TaintManager must be allowed beyond reading and its own report.

    Args:
        spec: its mode, and whether pods are evicted at all.
        namespace: the operator's own.
    """
    evicted = any(each.policy == EVICT for each in spec.taints)
    ending = (
        Right("delete", PODS),
        *([Right("create", PODS, "eviction")] if evicted else []),
        Right("patch", PODS, "status"),
        Right("patch", NODES),
    )
    nodes = (
        Right("get", NODES),
        Right("patch", NODES, "status"),
        Right("get", LEASES, namespace=NODE_LEASES),
        Right("create", CONFIG_MAPS, namespace=namespace),
        Right("get", CONFIG_MAPS, namespace=namespace, name=RECORD),
        Right("patch", CONFIG_MAPS, namespace=namespace, name=RECORD),
    )
    needs: dict[Mode, tuple[Right, ...]] = {OBSERVE: (), EARLIER_ONLY: ending, OWN: (*ending, *nodes)}
    return needs[spec.mode]


class Rights:
    """Asks once for each spec, and again while something is missing.

    A right that is taken away later shows in what fails.

    Args:
        services: the API, the clock, the operator's namespace.
        spec: of the TaintManager.

    Attributes:
        missing: the rights that the mode needs and that are not there, in words; empty as long as nothing is known.
    """

    def __init__(self, services: Services, spec: TaintManagerSpec) -> None:
        self.missing: tuple[str, ...] = ()
        self._services = services
        self._spec = spec
        self._changed = asyncio.Event()
        self._changed.set()

    def configure(self, spec: TaintManagerSpec) -> None:
        """Ask anew, for this spec."""
        self._spec = spec
        self._changed.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            known = await self._ask(needed(self._spec, namespace=self._services.namespace))
            if not known or self.missing:
                await self._pause()
                self._changed.set()

    async def _ask(self, rights: tuple[Right, ...]) -> bool:
        """Find out what is missing; whether that is known now."""
        missing = []
        for right in rights:
            try:
                if not await allowed(self._services.api, right):
                    missing.append(right.words)
            except (ApiError, Unreachable) as error:
                log.info("Whether we may %s is not known: %s", right.words, error)
                return False
        self.missing = tuple(missing)
        return True

    async def _pause(self) -> None:
        """Wait for a while, or for another spec."""
        waiting = asyncio.create_task(self._changed.wait())
        sleeping = asyncio.create_task(self._services.clock.sleep(LOOK_AGAIN))
        try:
            await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            sleeping.cancel()
