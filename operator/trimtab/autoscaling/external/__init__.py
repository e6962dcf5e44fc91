"""Groups that are no objects of a machine API: their providers are asked once a pass; one package a kind of them."""

from trimtab.autoscaling.external.registry import open_sources
from trimtab.autoscaling.external.settings import ExternalSettings, GrpcEndpoint
from trimtab.autoscaling.external.source import Source, Sources

__all__ = ["ExternalSettings", "GrpcEndpoint", "Source", "Sources", "open_sources"]
