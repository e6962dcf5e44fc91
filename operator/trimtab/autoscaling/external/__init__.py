"""Node groups of external providers, which are read once per iteration. Each kind of provider has its own package."""

from trimtab.autoscaling.external.grpc_channel import GrpcEndpoint
from trimtab.autoscaling.external.registry import ExternalSettings, open_sources
from trimtab.autoscaling.external.source import ExternalSource, ExternalSources

__all__ = ["ExternalSettings", "ExternalSource", "ExternalSources", "GrpcEndpoint", "open_sources"]
