"""Kopf's side of the ClusterAutoscaler: thin closures that hand it to its controller."""

from __future__ import annotations

from typing import Any, Final

import kopf

from trimtab.api.cluster_autoscaler import NAME
from trimtab.autoscaling.controller import AutoscalerController, refuse
from trimtab.autoscaling.services import Services
from trimtab.kube.resources import CLUSTER_AUTOSCALERS

LONGEST_STOP: Final = 28.0
"""Seconds that the daemon gets to return nodes that can still be kept; Kopf calls this its cancellation backoff."""

LONGEST_CANCEL: Final = 2.0
"""Seconds that it gets to end once it is cancelled."""

LONGEST_CLEANING: Final = 180.0
"""Seconds after which a deleted ClusterAutoscaler goes, whatever could not be taken from nodes."""

_RESOURCE: Final = (CLUSTER_AUTOSCALERS.group, CLUSTER_AUTOSCALERS.version, CLUSTER_AUTOSCALERS.plural)


def register(registry: kopf.OperatorRegistry, services: Services) -> None:
    """Register the handlers of ClusterAutoscaler.

    A daemon for the one that is named ``default``, and a handler of its deletion, which Kopf's finalizer makes wait
    for: it takes what is ours from nodes, also where the process that put it there is no more.
    """
    controllers: dict[str, AutoscalerController] = {}  # by UID: a successor of the same name is another one

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

    _register_daemon(registry, services, controllers)
    _register_deletion(registry, services, controllers)


def _register_daemon(
    registry: kopf.OperatorRegistry, services: Services, controllers: dict[str, AutoscalerController]
) -> None:
    @kopf.daemon(
        *_RESOURCE,
        registry=registry,
        when=_ours,
        cancellation_backoff=LONGEST_STOP,
        cancellation_timeout=LONGEST_CANCEL,
    )
    async def autoscaler(body: kopf.Body, uid: str | None, stopped: kopf.DaemonStopped, **_: Any) -> None:
        controller = controllers[uid or ""] = AutoscalerController(services)
        controller.observe(body)
        try:
            await controller.run(stopped)
        finally:
            controllers.pop(uid or "", None)


def _register_deletion(
    registry: kopf.OperatorRegistry, services: Services, controllers: dict[str, AutoscalerController]
) -> None:
    @kopf.on.delete(*_RESOURCE, registry=registry, when=_ours, timeout=LONGEST_CLEANING, backoff=2.0)
    async def deleted(uid: str | None, **_: Any) -> None:
        if uid in controllers:
            raise kopf.TemporaryError("the loop has not ended yet", delay=1.0)
        controller = AutoscalerController(services)
        try:
            await controller.clean_up()
        finally:
            await controller.stop()


def _ours(name: str | None, **_: Any) -> bool:
    return name == NAME


def _others(name: str | None, **_: Any) -> bool:
    return name != NAME
