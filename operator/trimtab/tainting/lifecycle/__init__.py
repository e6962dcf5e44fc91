"""The node lifecycle's loop: nodes that fail are asked after, marked and tainted, and freed once they are back."""

from trimtab.tainting.lifecycle.loop import Lifecycle

__all__ = ["Lifecycle"]
