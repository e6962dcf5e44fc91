"""What a filter is."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import ClassVar, Literal, Protocol

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod

Failure = tuple[tuple[str, ...], IntArray]
"""Reasons, in kube-scheduler's own words, and the slots that fail for just these."""

Reads = Literal["node", "room", "pods"]
"""What of a node a filter reads: the node itself, what its pods request in all, or which pods it and others hold."""


class Filter(Protocol):
    """A rule that a node must pass for a pod; made once per snapshot, so it may cache.

    A pod under question must not be counted on a node: callers take it out of the snapshot (in a fork) first.
    """

    name: ClassVar[str]
    reads: ClassVar[Reads]

    def __init__(self, snapshot: Snapshot) -> None: ...

    def concerns(self, pod: Pod) -> bool:
        """Whether any node could fail for the pod; cheap, and true where that is not known."""
        ...

    def passing(self, pod: Pod) -> BoolArray | None:
        """Which slots pass: bool, shape (nodes.capacity,); ``None`` where the rule does not concern the pod.

        The array may be a cached one: callers must not write to it. Free slots may be either.
        """
        ...

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """Why nodes fail that did not pass: ``slots`` in groups of one set of reasons each, none left out."""
        ...


class StaticFilter:
    """A rule that reads nothing of a node but labels, taints, name and cordon, and of a pod but its spec.

    The verdicts of all nodes are computed once per distinct :meth:`key` and kept until a node changes.
    """

    name: ClassVar[str]
    reason: ClassVar[str]
    reads: ClassVar[Reads] = "node"

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._verdicts: dict[Hashable, BoolArray] = {}
        self._version = -1

    def key(self, pod: Pod) -> Hashable | None:
        """What of the pod the rule reads, ``None`` where it does not concern the pod."""
        raise NotImplementedError

    def allows(self, pod: Pod, node: Node) -> bool:
        """Whether one node passes."""
        raise NotImplementedError

    def concerns(self, pod: Pod) -> bool:
        """See :meth:`Filter.concerns`."""
        return self.key(pod) is not None

    def passing(self, pod: Pod) -> BoolArray | None:
        """See :meth:`Filter.passing`."""
        key = self.key(pod)
        if key is None:
            return None
        nodes = self.snapshot.nodes
        if self._version != nodes.version:
            self._verdicts.clear()
            self._version = nodes.version
        found = self._verdicts.get(key)
        if found is None:
            found = np.zeros(nodes.capacity, dtype=np.bool_)
            for slot in nodes.slot_of.values():
                found[slot] = self.allows(pod, nodes.node(slot))
            self._verdicts[key] = found
        return found

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """See :meth:`Filter.failures`."""
        del pod
        return (((self.reason,), slots),)
