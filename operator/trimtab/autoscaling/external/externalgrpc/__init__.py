"""Provider for servers of cluster-autoscaler's ``externalgrpc`` service ``CloudProvider``."""

from trimtab.autoscaling.external.externalgrpc.source import external_grpc

__all__ = ["external_grpc"]
