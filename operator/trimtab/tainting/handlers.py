"""Kopf's side of the TaintManager."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import kopf

from trimtab.api.taint_manager import NAME
from trimtab.kube.daemons import register_singleton
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.controller import TaintManagerController, refuse
from trimtab.tainting.services import Services


def register(registry: kopf.OperatorRegistry, services: Services, *, telling: Callable[[], Awaitable[None]]) -> None:
    """Register the handlers of TaintManager; its deletion waits until our annotations are off the nodes.

    Args:
        registry: of the operator.
        services: what the controller needs.
        telling: posts what is told, from Kopf's start to its end.
    """
    _register_telling(registry, telling)
    register_singleton(
        registry,
        TAINT_MANAGERS,
        NAME,
        make=partial(TaintManagerController, services),
        refuse=partial(refuse, services),
    )


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
