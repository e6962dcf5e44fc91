"""Kopf's side of the ClusterAutoscaler."""

from __future__ import annotations

from functools import partial

import kopf

from trimtab.api.cluster_autoscaler import NAME
from trimtab.autoscaling.controller import AutoscalerController, refuse
from trimtab.autoscaling.services import Services
from trimtab.kube.daemons import register_singleton
from trimtab.kube.resources import CLUSTER_AUTOSCALERS


def register(registry: kopf.OperatorRegistry, services: Services) -> None:
    """Register the handlers of ClusterAutoscaler; its deletion waits until what is ours is taken from nodes."""
    register_singleton(
        registry,
        CLUSTER_AUTOSCALERS,
        NAME,
        make=partial(AutoscalerController, services),
        refuse=partial(refuse, services),
    )
