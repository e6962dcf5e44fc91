"""Which pods are on which node, by the watches alone.

The snapshot knows as well, but planners try moves on it in their threads, for seconds; a deadline is asked for on the
event loop, at any moment, and of where pods are, not of where they might be. It costs an entry a pod.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.kube.objects import Pod
from trimtab.tainting.deadlines.columns import Item


class PlacedPods:
    """The pods that have a node, whether or not the node is there."""

    def __init__(self) -> None:
        self._on: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._node_of)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A listener of the store of pods: one came, changed or went; what is told twice is no error."""
        pod = new or old
        if pod is None:
            return
        key = pod.key
        node = new.node if new is not None else ""
        before = self._node_of.get(key, "")
        if before and before != node:
            self._leave(key, before)
        if new is not None and node:
            self._on.setdefault(node, {})[key] = new
            self._node_of[key] = node

    def on(self, node: str) -> Iterable[Item]:
        """The pods on a node with their keys, in no particular order."""
        return self._on.get(node, {}).items()

    def every(self) -> Iterable[Item]:
        """All of them."""
        return (item for there in self._on.values() for item in there.items())

    def _leave(self, key: str, node: str) -> None:
        there = self._on[node]
        del there[key], self._node_of[key]
        if not there:
            del self._on[node]
