"""Opens the external providers and the expander that are configured in the settings of the process.

They are never configured by an object of the cluster. Otherwise a user who may write a ClusterAutoscaler could make the
operator read its key and connect to another server.
"""

from __future__ import annotations

from msgspec import Struct

from trimtab.autoscaling.external.expander import advisor
from trimtab.autoscaling.external.externalgrpc import external_grpc
from trimtab.autoscaling.external.grpc_channel import GrpcEndpoint
from trimtab.autoscaling.external.kwok import kwok
from trimtab.autoscaling.external.source import ExternalSource, ExternalSources
from trimtab.cluster.lister import Lister
from trimtab.kube.api import Api


class ExternalSettings(Struct, frozen=True):
    """The configuration of external providers. A provider that is not configured is disabled.

    Attributes:
        cloud_provider: a provider of cluster-autoscaler's ``externalgrpc``.
        expander: a server for the expander Grpc.
        kwok_namespace: namespace of kwok's ConfigMaps, whose node templates become node groups.
    """

    cloud_provider: GrpcEndpoint | None = None
    expander: GrpcEndpoint | None = None
    kwok_namespace: str = ""


def open_sources(settings: ExternalSettings, *, api: Api, lister: Lister) -> ExternalSources:
    """Create the configured providers.

    Nothing is read, and gRPC is not loaded, before the first iteration.

    Args:
        settings: the settings of the process.
        api: the API server.
        lister: reads single objects from the informers' caches.
    """
    found: list[ExternalSource] = []
    if settings.cloud_provider is not None:
        found.append(external_grpc(settings.cloud_provider, node_of=lister.node))
    if settings.kwok_namespace:
        found.append(kwok(api, settings.kwok_namespace, lister=lister))
    return ExternalSources(found, advisor(settings.expander))
