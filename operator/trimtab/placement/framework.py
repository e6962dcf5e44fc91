"""What a filter is."""

from __future__ import annotations

from collections.abc import Hashable
from typing import ClassVar, Protocol

import numpy as np

from trimtab.cluster.resources import BoolArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod


class Filter(Protocol):
    """A rule that a node must pass for a pod; made once per snapshot, so it may cache.

    A pod under question must not be counted on a node: callers take it out of the snapshot (in a fork) first.
    """

    name: ClassVar[str]

    def __init__(self, snapshot: Snapshot) -> None: ...

    def passing(self, pod: Pod) -> BoolArray | None:
        """Which slots pass: bool, shape (nodes.capacity,); ``None`` where the rule does not concern the pod.

        The array may be a cached one: callers must not write to it. Free slots may be either.
        """
        ...

    def reasons(self, pod: Pod, slot: int) -> tuple[str, ...]:
        """Why the node in ``slot``, which did not pass, fails: kube-scheduler's own texts."""
        ...


class StaticFilter:
    """A rule that reads nothing of a node but labels, taints, name and cordon, and of a pod but its spec.

    The verdicts of all nodes are computed once per distinct :meth:`key` and kept until a node changes.
    """

    name: ClassVar[str]
    reason: ClassVar[str]

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

    def reasons(self, pod: Pod, slot: int) -> tuple[str, ...]:
        """See :meth:`Filter.reasons`."""
        del pod, slot
        return (self.reason,)
