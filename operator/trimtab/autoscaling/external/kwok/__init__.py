"""Groups of kwok's node templates: nodes that nobody runs, for trying autoscaling out."""

from trimtab.autoscaling.external.kwok.open import kwok

__all__ = ["kwok"]
