"""The Kopf handlers of MachineAutoscalers, which forward events to the controller.

A plain event handler is used, so that Kopf adds no finalizer and no annotation: there may be 500 objects, OpenShift's
operator may have to take them over again, and its own finalizer suffices. One daemon per object would mean 500 waiting
tasks.
"""

from __future__ import annotations

from typing import Any

import kopf

from trimtab.autoscaling.machine_autoscalers.controller import MachineAutoscalerController
from trimtab.kube.resources import MACHINE_AUTOSCALERS


def register(registry: kopf.OperatorRegistry, controller: MachineAutoscalerController) -> None:
    """Register the handlers of MachineAutoscalers. Kopf starts and stops the controller together with the operator."""
    resource = (MACHINE_AUTOSCALERS.group, MACHINE_AUTOSCALERS.version, MACHINE_AUTOSCALERS.plural)

    @kopf.on.startup(registry=registry)
    async def start_machine_autoscalers(**_: Any) -> None:
        controller.start()

    @kopf.on.cleanup(registry=registry)
    async def stop_machine_autoscalers(**_: Any) -> None:
        await controller.stop()

    @kopf.on.event(*resource, registry=registry)
    async def machine_autoscaler_changed(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002
        controller.observe(body, deleted=type == "DELETED")
