"""Kopf's side of MachineAutoscalers: thin closures that hand events to their controller.

A plain event handler, which puts no finalizer of Kopf's and no annotation on anything: there may be five hundred of
them, OpenShift's operator may have to take them over again, and its finalizer does all that one is needed for. A daemon
each would be five hundred tasks that wait.
"""

from __future__ import annotations

from typing import Any

import kopf

from trimtab.autoscaling.machine_autoscalers.controller import MachineAutoscalerController
from trimtab.kube.resources import MACHINE_AUTOSCALERS


def register(registry: kopf.OperatorRegistry, controller: MachineAutoscalerController) -> None:
    """Register the handlers of MachineAutoscalers; the controller works from Kopf's start to its end."""
    resource = (MACHINE_AUTOSCALERS.group, MACHINE_AUTOSCALERS.version, MACHINE_AUTOSCALERS.plural)

    @kopf.on.startup(registry=registry)
    async def start_machine_autoscalers(**_: Any) -> None:
        controller.start()

    @kopf.on.cleanup(registry=registry)
    async def stop_machine_autoscalers(**_: Any) -> None:
        await controller.stop()

    @kopf.on.event(*resource, registry=registry)
    async def machine_autoscaler_changed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        controller.observe(body, gone=type == "DELETED")
