"""Kopf's side of the TaintManager: thin closures that hand it to its controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import kopf

from trimtab.api.taint_manager import NAME
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.controller import TaintManagerController, refuse
from trimtab.tainting.services import Services

LONGEST_STOP: Final = 28.0
"""Seconds that the daemon gets to let end what is in flight; Kopf calls this its cancellation backoff."""

LONGEST_CANCEL: Final = 2.0
"""Seconds that it gets to end once it is cancelled."""

LONGEST_CLEANING: Final = 180.0
"""Seconds after which a deleted TaintManager goes, whatever could not be taken from nodes."""

_RESOURCE: Final = (TAINT_MANAGERS.group, TAINT_MANAGERS.version, TAINT_MANAGERS.plural)


def register(registry: kopf.OperatorRegistry, services: Services, *, telling: Callable[[], Awaitable[None]]) -> None:
    """Register the handlers of TaintManager.

    A daemon for the one that is named ``default``, and a handler of its deletion, which Kopf's finalizer makes wait
    for: it takes our annotations off nodes, also where the process that put them there is no more.

    Args:
        registry: of the operator.
        services: what the controller needs.
        telling: posts what is told, from Kopf's start to its end.
    """
    controllers: dict[str, TaintManagerController] = {}  # by UID: a successor of the same name is another one

    @kopf.on.event(*_RESOURCE, registry=registry, when=_ours)
    async def changed(body: kopf.Body, uid: str | None, type: str | None, **_: Any) -> None:  # noqa: A002
        controller = controllers.get(uid or "")
        if controller is None:
            return
        if type == "DELETED":
            controller.end()  # Kopf forgets the daemon of an object that went without its finalizer
        elif not body["metadata"].get("deletionTimestamp"):
            controller.observe(body)

    @kopf.on.event(*_RESOURCE, registry=registry, when=_others)
    async def misnamed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        if type != "DELETED":
            await refuse(services, body)

    _register_telling(registry, telling)
    _register_daemon(registry, services, controllers)
    _register_deletion(registry, services, controllers)


def _register_telling(registry: kopf.OperatorRegistry, telling: Callable[[], Awaitable[None]]) -> None:
    tasks: list[asyncio.Future[None]] = []

    @kopf.on.startup(registry=registry)
    async def start_telling(**_: Any) -> None:
        tasks.append(asyncio.ensure_future(telling()))

    @kopf.on.cleanup(registry=registry)
    async def stop_telling(**_: Any) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _register_daemon(
    registry: kopf.OperatorRegistry, services: Services, controllers: dict[str, TaintManagerController]
) -> None:
    @kopf.daemon(
        *_RESOURCE,
        registry=registry,
        when=_ours,
        cancellation_backoff=LONGEST_STOP,
        cancellation_timeout=LONGEST_CANCEL,
    )
    async def taint_manager(body: kopf.Body, uid: str | None, stopped: kopf.DaemonStopped, **_: Any) -> None:
        controller = controllers[uid or ""] = TaintManagerController(services)
        controller.observe(body)
        try:
            await controller.run(stopped)
        finally:
            controllers.pop(uid or "", None)


def _register_deletion(
    registry: kopf.OperatorRegistry, services: Services, controllers: dict[str, TaintManagerController]
) -> None:
    @kopf.on.delete(*_RESOURCE, registry=registry, when=_ours, timeout=LONGEST_CLEANING, backoff=2.0)
    async def deleted(uid: str | None, **_: Any) -> None:
        if uid in controllers:
            raise kopf.TemporaryError("the loop has not ended yet", delay=1.0)
        await TaintManagerController(services).clean_up()


def _ours(name: str | None, **_: Any) -> bool:
    return name == NAME


def _others(name: str | None, **_: Any) -> bool:
    return name != NAME
