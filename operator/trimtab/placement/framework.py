"""What a filter and a score are."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec

Failure = tuple[tuple[str, ...], IntArray]
"""Reasons, in kube-scheduler's own words, and the slots that fail for just these."""

Reads = Literal["node", "room", "pods"]
"""What of a node a filter reads: the node itself, what its pods request in all, or which pods it and others hold."""

MAX_SCORE: Final = 100
"""The best score of a node (kube-scheduler v1.36 ``MaxNodeScore``)."""

_MOST_VERDICTS: Final = 512
"""Every pod of a DaemonSet names a node of its own: 5,000 arrays of 8 kB would be too many."""


class Filter(Protocol):
    """A rule that a node must pass for a pod; made once per snapshot, so it may cache.

    A pod under question must not be counted on a node: callers take it out of the snapshot (in a fork) first.
    """

    name: ClassVar[str]
    reads: ClassVar[Reads]

    def __init__(self, snapshot: Snapshot) -> None: ...

    def may_concern(self, spec: PodSpec) -> bool:
        """Whether a pod of this spec could fail the rule or be refused by it, in whatever cluster.

        Asked once a spec: most pods have no ports, volumes or constraints, and rules about them are not asked at all.
        """
        ...

    def concerns(self, pod: Pod) -> bool:
        """Whether any node could fail for the pod; cheap, and true where that is not known."""
        ...

    def refusal(self, pod: Pod) -> str | None:
        """Why the pod can go nowhere, whatever the nodes are like (the scheduler's PreFilter); ``None`` if it may.

        Told of the pod and not of nodes, so the scheduler's sentence does not count it.
        """
        ...

    def passing(self, pod: Pod) -> BoolArray | None:
        """Which slots pass: bool, shape (nodes.capacity,); ``None`` where the rule does not concern the pod.

        The array may be a cached one: callers must not write to it. Free slots may be either.
        Asked only where :meth:`refusal` says nothing.
        """
        ...

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """Why nodes fail that did not pass: ``slots`` in groups of one set of reasons each, none left out."""
        ...


@runtime_checkable
class Erring(Filter, Protocol):
    """A filter whose plugin may give up on a node with an error, which is no verdict.

    The scheduler then gives up on the pod, unless it found enough other nodes before (``findNodesThatPassFilters``).
    """

    def errors(self, pod: Pod) -> Mapping[int, str]:
        """What is wrong by slot, as the plugin tells it; empty nearly always. Such slots do not pass."""
        ...


class PodFilter:
    """A rule about the pod alone: it is refused or not, and no node is asked."""

    reads: ClassVar[Reads] = "node"

    def __init__(self, snapshot: Snapshot) -> None:
        del snapshot

    def passing(self, pod: Pod) -> BoolArray | None:
        """See :meth:`Filter.passing`: other filters judge the nodes."""
        del pod
        return None

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """See :meth:`Filter.failures`: no node fails here."""
        del pod, slots
        return ()


class StaticFilter:
    """A rule that reads nothing of a node but labels, taints, name and cordon, and of a pod but its spec.

    The verdicts of all nodes are computed once per distinct :meth:`key` and kept until a node changes. They are
    computed on columns, per label value or set of taints, and never node by node.
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

    def judge(self, pod: Pod) -> BoolArray:
        """Which slots pass: a fresh array, bool, shape (capacity,); free slots may be either."""
        raise NotImplementedError

    def may_concern(self, spec: PodSpec) -> bool:
        """See :meth:`Filter.may_concern`: what is asked of nodes is kept per key anyway."""
        del spec
        return True

    def concerns(self, pod: Pod) -> bool:
        """See :meth:`Filter.concerns`."""
        return self.key(pod) is not None

    def refusal(self, pod: Pod) -> str | None:
        """See :meth:`Filter.refusal`: such a rule is about nodes only."""
        del pod
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """See :meth:`Filter.passing`."""
        key = self.key(pod)
        if key is None:
            return None
        nodes = self.snapshot.nodes
        if self._version != nodes.version or len(self._verdicts) >= _MOST_VERDICTS:
            self._verdicts.clear()
            self._version = nodes.version
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = self.judge(pod)
        return found

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """See :meth:`Filter.failures`."""
        del pod
        return (((self.reason,), slots),)


class Score(Protocol):
    """How well nodes suit a pod, those that pass all filters compared with each other; made once per snapshot.

    As for filters, the pod under question must not be counted on a node.
    """

    name: ClassVar[str]
    weight: ClassVar[int]

    def __init__(self, snapshot: Snapshot) -> None: ...

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """0 to :data:`MAX_SCORE` per slot, as kube-scheduler has it after normalizing over ``among``, not weighted.

        Args:
            pod: the pod.
            among: bool, shape (capacity,): the nodes to choose from, at least one.

        Returns:
            int64, shape (capacity,), with anything outside ``among``, or one number where all score the same. The
            array may be a cached one: callers must not write to it.
        """
        ...


def normalized(raw: IntArray, among: BoolArray, *, reverse: bool = False) -> IntArray | int:
    """Raw scores brought to 0 … :data:`MAX_SCORE` by their largest (``helper.DefaultNormalizeScore``, v1.36).

    Args:
        raw: int64, shape (capacity,), none below 0.
        among: bool, same shape; the slots that count.
        reverse: whether the largest is the worst.
    """
    largest = int(np.where(among, raw, 0).max()) if len(raw) else 0
    if largest == 0:
        return MAX_SCORE if reverse else 0
    found: IntArray = MAX_SCORE * raw // largest
    return MAX_SCORE - found if reverse else found
