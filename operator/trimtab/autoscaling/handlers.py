"""The Kopf handlers of the ClusterAutoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import kopf

from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import NAME
from trimtab.autoscaling.controller import AutoscalerController
from trimtab.autoscaling.dependencies import AutoscalerDependencies
from trimtab.autoscaling.report import status_writer
from trimtab.controller.kopf_handlers import register_singleton, reject_other_name
from trimtab.kube.resources import CLUSTER_AUTOSCALERS


def register(registry: kopf.OperatorRegistry, dependencies: AutoscalerDependencies) -> None:
    """Register the handlers of the ClusterAutoscaler.

    The deletion of the ClusterAutoscaler waits until trimtab's taints and annotations are removed from all nodes.
    """
    register_singleton(
        registry,
        CLUSTER_AUTOSCALERS,
        NAME,
        make=partial(AutoscalerController, dependencies),
        refuse=partial(refuse, dependencies),
    )


async def refuse(dependencies: AutoscalerDependencies, body: Mapping[str, Any]) -> None:
    """Report, in the status of a ClusterAutoscaler with any other name, that only one name is allowed.

    OpenShift's CRD admits ClusterAutoscalers with any name.
    """
    await reject_other_name(
        status_writer(dependencies.api, dependencies.clock, name=str(body["metadata"]["name"])),
        body,
        message=f"metadata.name must be {NAME}: there is one ClusterAutoscaler for the whole cluster",
        reason=reasons.INVALID_AUTOSCALER,
        now=dependencies.clock.now(),
    )
