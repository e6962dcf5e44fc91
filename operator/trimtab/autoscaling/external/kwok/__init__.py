"""Node groups defined by the node templates of kwok, which simulates nodes to test autoscaling."""

from trimtab.autoscaling.external.kwok.source import kwok

__all__ = ["kwok"]
