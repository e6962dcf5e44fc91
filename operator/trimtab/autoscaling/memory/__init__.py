"""What is remembered from pass to pass, and what of that has come true: pure, and kept in the cluster."""

from trimtab.autoscaling.memory.state import GroupRecord, OpenScaleUp, State, Trouble, recall, remember

__all__ = ["GroupRecord", "OpenScaleUp", "State", "Trouble", "recall", "remember"]
