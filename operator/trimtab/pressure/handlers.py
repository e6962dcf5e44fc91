"""The Kopf handlers of NodePressurePolicies, which start the shared tasks and forward events to the controllers."""

from __future__ import annotations

from typing import Any

import kopf

from trimtab.controller.kopf_handlers import register_clean_up, register_loops
from trimtab.kube.resources import NODE_PRESSURE_POLICIES
from trimtab.pressure.controller import NodePressurePolicyController
from trimtab.pressure.coordinator import PressureCoordinator
from trimtab.pressure.dependencies import PressureDependencies


def register(registry: kopf.OperatorRegistry, dependencies: PressureDependencies) -> None:
    """Register the handlers of NodePressurePolicy.

    The shared tasks run as long as the Kopf operator. When a policy is deleted, the conditions and taints of its nodes
    are removed before its finalizer, even if the process that wrote them does not run any more.
    """
    shared = PressureCoordinator(dependencies)
    running: dict[str, NodePressurePolicyController] = {}

    @kopf.on.startup(registry=registry)
    async def start_tasks(**_: Any) -> None:
        shared.start()

    @kopf.on.cleanup(registry=registry)
    async def stop_tasks(**_: Any) -> None:
        await shared.stop()

    register_loops(
        registry,
        NODE_PRESSURE_POLICIES,
        make=lambda name: NodePressurePolicyController(name, dependencies, shared),
        running=running,
    )

    register_clean_up(registry, NODE_PRESSURE_POLICIES, running=running, clean_up=shared.remove_marks)
