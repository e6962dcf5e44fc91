"""Reports the progress of watches to the health checks, whatever the role of the process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

from trimtab.controller.progress import Component, register_component
from trimtab.kube.resources import Resource
from trimtab.kube.watching.informer import InformerState
from trimtab.kube.watching.store import Store

PROGRESS_PERIOD: Final = 2.0
"""Seconds between two reports on the progress of all watches."""

MAX_SILENCE: Final = 120.0
"""Seconds for which a watch may show no activity. The server sends a bookmark or ends the watch every minute, and the
backoff between two attempts is at most a minute.
"""

DISCONNECTED_PHASES: Final = frozenset(("Retrying", "Refused"))
"""Phases of an informer whose watch is not connected."""


class AnyInformer(Protocol):
    """The interface of :class:`Informer` and :class:`OptionalInformer`."""

    @property
    def resource(self) -> Resource:
        """Return the watched resource."""
        ...

    @property
    def store(self) -> Store[Any]:
        """Return the store that the informer keeps in sync."""
        ...

    @property
    def state(self) -> InformerState:
        """Return the state of the watch."""
        ...

    @property
    def activity(self) -> tuple[int, ...]:
        """Return counters that change with any activity of the watch, including failures."""
        ...

    async def run(self) -> None:
        """Watch until cancelled."""
        ...


async def report_progress(watches: Sequence[AnyInformer]) -> None:
    """Report the progress of informers until cancelled."""
    reported: dict[AnyInformer, tuple[Component, tuple[int, ...]]] = {
        watch: (register_component(f"watch of {watch.resource.plural}"), ()) for watch in watches
    }
    for component, _ in reported.values():
        component.begin()
    while True:
        for watch, (component, before) in reported.items():
            now = watch.activity
            if now == before:
                continue
            reported[watch] = component, now
            if watch.state.phase in DISCONNECTED_PHASES:
                component.fail(watch.state.error, 0.0)
            else:
                component.succeed(0.0)
            component.allow_silence(MAX_SILENCE)
        await asyncio.sleep(PROGRESS_PERIOD)
