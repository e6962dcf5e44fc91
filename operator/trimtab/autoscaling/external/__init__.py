"""Groups that are no objects of a machine API: asked of their providers, once a pass; one package a kind of provider."""

from trimtab.autoscaling.external.source import Source, Sources

__all__ = ["Source", "Sources"]
