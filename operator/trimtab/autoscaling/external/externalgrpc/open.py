"""An external provider with all that belongs to it."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.autoscaling.external.externalgrpc.client import CloudProvider
from trimtab.autoscaling.external.externalgrpc.provider import ExternalProvider
from trimtab.autoscaling.external.externalgrpc.source import PATIENCE, ExternalGrpc
from trimtab.autoscaling.external.freshness import Freshness
from trimtab.autoscaling.external.grpc_channel import CALL_SECONDS, GrpcChannel
from trimtab.autoscaling.external.settings import GrpcEndpoint
from trimtab.kube.objects import Node


def external_grpc(
    endpoint: GrpcEndpoint,
    *,
    node_of: Callable[[str], Node | None],
    call_seconds: float = CALL_SECONDS,
    patience: float = PATIENCE,
) -> ExternalGrpc:
    """The source of an external provider's groups.

    Args:
        endpoint: where the provider is.
        node_of: the node of that name as the cluster has it.
        call_seconds: the time limit of a call.
        patience: seconds that a pass waits for all answers.
    """
    client = CloudProvider(GrpcChannel(endpoint, seconds=call_seconds))
    freshness = Freshness()
    return ExternalGrpc(client, ExternalProvider(client, freshness, node_of=node_of), freshness, patience=patience)
