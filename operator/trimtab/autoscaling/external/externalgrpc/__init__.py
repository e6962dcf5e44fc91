"""Providers of cluster-autoscaler's ``externalgrpc``: any server of its gRPC service ``CloudProvider``."""

from trimtab.autoscaling.external.externalgrpc.open import external_grpc

__all__ = ["external_grpc"]
