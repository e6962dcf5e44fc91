"""The Kopf handlers of the TaintManager.

Changes of nodes and pods do not pass through Kopf: :class:`~trimtab.tainting.controller.ClusterObserver` receives them
from the informers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import kopf

from trimtab.api import reasons
from trimtab.api.taint_manager import NAME, ONE_FOR_ALL
from trimtab.controller.kopf_handlers import register_singleton, reject_other_name
from trimtab.controller.loop import BackgroundTasks
from trimtab.kube.resources import TAINT_MANAGERS
from trimtab.tainting.controller import TaintManagerController
from trimtab.tainting.dependencies import TaintingDependencies
from trimtab.tainting.report import status_writer


def register(registry: kopf.OperatorRegistry, dependencies: TaintingDependencies) -> None:
    """Register the handlers of TaintManager.

    The finalizer of a TaintManager delays its deletion until trimtab's annotation has been removed from all nodes, or
    until :data:`~trimtab.controller.kopf_handlers.CLEANUP_TIMEOUT` has passed. The reporter sends events from the start
    of the operator until its end.
    """
    tasks = BackgroundTasks()

    @kopf.on.startup(registry=registry)
    async def start_posting(**_: Any) -> None:
        tasks.start(dependencies.reporter.run())

    @kopf.on.cleanup(registry=registry)
    async def stop_posting(**_: Any) -> None:
        await tasks.stop()

    register_singleton(
        registry,
        TAINT_MANAGERS,
        NAME,
        make=partial(TaintManagerController, dependencies),
        refuse=partial(refuse, dependencies),
    )


async def refuse(dependencies: TaintingDependencies, body: Mapping[str, Any]) -> None:
    """Set the conditions of a TaintManager that is ignored because its name is not ``default``."""
    await reject_other_name(
        status_writer(dependencies.api, dependencies.clock, name=str(body["metadata"]["name"])),
        body,
        message=f"metadata.name {ONE_FOR_ALL}",
        reason=reasons.INVALID_TAINT_MANAGER,
        now=dependencies.clock.now(),
    )
