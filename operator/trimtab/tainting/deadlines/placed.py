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
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, dict[str, Pod]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        """A listener of the store of pods: one came, changed or went; what is told twice is no error."""
        pod = new or old
        if pod is None:
            return
        key = pod.key
        node = new.node if new is not None else ""
        before = self._pods.get(key)
        if before is not None and before.node != node:
            self._leave(key, before.node)
        if new is not None and node:
            self._on.setdefault(node, {})[key] = self._pods[key] = new

    def get(self, key: str) -> Pod | None:
        """The pod of that ``namespace/name``, if it has a node."""
        return self._pods.get(key)

    def on(self, node: str) -> Iterable[Item]:
        """The pods on a node with their keys, in no particular order."""
        return self._on.get(node, {}).items()

    def every(self) -> Iterable[Item]:
        """All of them, in the order in which they came: so they lie in memory, and a walk takes half the time."""
        return self._pods.items()

    def _leave(self, key: str, node: str) -> None:
        there = self._on[node]
        del there[key], self._pods[key]
        if not there:
            del self._on[node]
