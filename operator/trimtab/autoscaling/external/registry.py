"""All providers outside of the cluster, as the process' settings want them."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.autoscaling.external.expander import advisor
from trimtab.autoscaling.external.externalgrpc import external_grpc
from trimtab.autoscaling.external.kwok import kwok
from trimtab.autoscaling.external.settings import ExternalSettings
from trimtab.autoscaling.external.source import Source, Sources
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import Api


def open_sources(settings: ExternalSettings, *, api: Api, snapshot: Callable[[], Snapshot]) -> Sources:
    """What the settings name; nothing is asked, and gRPC is not even loaded, before the first pass.

    Args:
        settings: of the process.
        api: the API server.
        snapshot: the cluster at present: providers are told of nodes what the cluster says of them.
    """
    found: list[Source] = []
    if settings.cloud_provider is not None:
        found.append(external_grpc(settings.cloud_provider, node_of=lambda name: snapshot().nodes.get(name)))
    if settings.kwok_namespace:
        found.append(kwok(api, settings.kwok_namespace, snapshot=snapshot))
    return Sources(found, advisor(settings.expander))
