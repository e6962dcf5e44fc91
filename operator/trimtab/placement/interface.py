"""The interfaces and base classes of filters and score plugins."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from typing import ClassVar, Final, Literal, Protocol, runtime_checkable

import numpy as np

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec

Failure = tuple[tuple[str, ...], IntArray]
"""A group of failures: the reasons in kube-scheduler's words, and the slots that fail for exactly these reasons."""

Reads = Literal["node", "resources", "pods"]
"""The data that a filter depends on: only the node, the requested resources on it, or the pods on this and other nodes.
"""

MAX_SCORE: Final = 100
"""The highest score of a node (kube-scheduler v1.36 ``MaxNodeScore``)."""

_MAX_VERDICTS: Final = 512
"""Maximum number of cached arrays. Every pod of a DaemonSet requires a different node, and 5,000 arrays of 8 kB would
use too much memory."""


class Filter(Protocol):
    """A condition that a node must satisfy to be feasible for a pod.

    Each snapshot has its own instance, which may cache results.

    The evaluated pod must not be counted on a node. Callers remove a bound pod from the snapshot (in a fork) first.
    """

    name: ClassVar[str]
    reads: ClassVar[Reads]
    reads_conditions: ClassVar[bool]
    """Whether a filter that depends only on the node reads the statuses of conditions, which change often."""

    def __init__(self, snapshot: Snapshot) -> None: ...

    def may_concern(self, spec: PodSpec) -> bool:
        """Return whether the filter could reject a pod with this spec in some cluster.

        This method is called once per spec. If it returns false, the filter is skipped for all pods with this spec.
        Most pods have no host ports, volumes or constraints.
        """
        ...

    def concerns(self, pod: Pod) -> bool:
        """Return whether the filter could reject any node for the pod.

        The method must be cheap, and return true if this is unknown.
        """
        ...

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        """Return whether another pod on a node may be the reason why some node passes for the pod.

        The method is only called for filters that read pods. It must return true if this is unknown. The result depends
        only on the other pod's namespace and labels, and on whether it has volumes.
        """
        ...

    def refusal(self, pod: Pod) -> str | None:
        """Return the reason if the filter rejects the pod on all nodes (PreFilter), otherwise ``None``.

        The reason does not depend on the nodes, so the scheduler's message contains it without a node count.
        """
        ...

    def passing(self, pod: Pod) -> BoolArray | None:
        """Return the slots that pass, or ``None`` if the filter does not affect the pod.

        The array is bool, shape (nodes.capacity,), with any value in free slots. It may be cached, so callers must not
        write to it. Call this method only if :meth:`refusal` returns ``None``.
        """
        ...

    def passing_among(self, pod: Pod, slots: IntArray) -> IntArray:
        """Return those of the given slots (int64) that pass, in the given order.

        The slots must be those of nodes. For few slots, this may be faster than :meth:`passing`.
        """
        ...

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        """Yield the given slots, which did not pass, grouped by their reasons. Each slot is in exactly one group."""
        ...


@runtime_checkable
class ErrorReportingFilter(Filter, Protocol):
    """A filter whose plugin may abort scheduling because of an error on one node.

    The scheduler then does not place the pod, unless it has already found enough other nodes
    (``findNodesThatPassFilters``).
    """

    def errors(self, pod: Pod) -> Mapping[int, str]:
        """Return the plugin's errors by slot. Slots with an error do not pass. The result is nearly always empty."""
        ...


@runtime_checkable
class AntiAffinityFilter(Filter, Protocol):
    """A filter that evaluates the required anti-affinity of bound pods."""

    def rejected_by_others(self, pod: Pod) -> BoolArray | None:
        """Return the slots that the required anti-affinity of bound pods rejects: bool, shape (capacity,).

        The result is ``None`` if no bound pod has required anti-affinity.
        """
        ...


class NodeFilter:
    """Base class of filters that evaluate nodes. See :class:`Filter` for the methods.

    Attributes:
        reason: kube-scheduler's reason for a node that does not pass.
    """

    name: ClassVar[str]
    reason: ClassVar[str] = ""
    reads: ClassVar[Reads] = "pods"
    reads_conditions: ClassVar[bool] = False

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    def may_concern(self, spec: PodSpec) -> bool:
        return True

    def concerns(self, pod: Pod) -> bool:
        return self.may_concern(pod.spec)

    def helped_by(self, pod: Pod, other: Pod) -> bool:
        return True

    def refusal(self, pod: Pod) -> str | None:
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        raise NotImplementedError

    def passing_among(self, pod: Pod, slots: IntArray) -> IntArray:
        passing = self.passing(pod)
        return slots if passing is None else slots[passing[slots]]

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        return (((self.reason,), slots),)


class PodFilter(NodeFilter):
    """Base class of filters that accept or reject a pod without evaluating nodes."""

    reads: ClassVar[Reads] = "node"

    def passing(self, pod: Pod) -> BoolArray | None:
        return None

    def failures(self, pod: Pod, slots: IntArray) -> Iterable[Failure]:
        return ()


class StaticFilter(NodeFilter):
    """Base class of filters that depend only on the node object and the pod's spec.

    The result for all nodes is computed once per distinct :meth:`key` and cached until a node changes. It is computed
    from the columns of the node table, once per label value or taint set instead of once per node.
    """

    reads: ClassVar[Reads] = "node"

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._verdicts: dict[Hashable, BoolArray] = {}
        self._version = -1
        snapshot.nodes.caches.add(self)

    def forget_removed(self, used: Set[int]) -> None:
        """See :class:`~trimtab.cluster.node_table.SpecCache`."""
        self._verdicts.clear()

    def key(self, pod: Pod) -> Hashable | None:
        """Return what the filter reads from the pod, as a cache key, or ``None`` if it does not affect the pod."""
        raise NotImplementedError

    def compute(self, pod: Pod) -> BoolArray:
        """Return the slots that pass: bool, shape (capacity,), a fresh array with any value in free slots."""
        raise NotImplementedError

    def concerns(self, pod: Pod) -> bool:
        return self.key(pod) is not None

    def passing(self, pod: Pod) -> BoolArray | None:
        key = self.key(pod)
        if key is None:
            return None
        version = self.snapshot.nodes.static_version(conditions=self.reads_conditions)
        if self._version != version or len(self._verdicts) >= _MAX_VERDICTS:
            self._verdicts.clear()
            self._version = version
        found = self._verdicts.get(key)
        if found is None:
            found = self._verdicts[key] = self.compute(pod)
        return found


class Score(Protocol):
    """Scores the feasible nodes for a pod. Each snapshot has its own instance.

    As for filters, the evaluated pod must not be counted on a node.
    """

    @property
    def name(self) -> str:
        """Return the plugin's name, or for a legacy priority its name in the scheduler Policy."""
        ...

    @property
    def weight(self) -> int:
        """Return the factor by which the plugin's scores are multiplied before those of all plugins are added."""
        ...

    def scores(self, pod: Pod, among: BoolArray) -> IntArray | int:
        """Return a score of 0 to :data:`MAX_SCORE` for each slot, not yet multiplied by the weight.

        As in kube-scheduler, scores are normalized over the nodes in ``among``.

        Args:
            pod: the pod.
            among: the candidate nodes, at least one: bool, shape (capacity,).

        Returns:
            The scores as int64, shape (capacity,), with undefined values outside ``among``, or one number if all nodes
            have the same score. The array may be cached, so callers must not write to it.
        """
        ...


@runtime_checkable
class CouplingScore(Score, Protocol):
    """A score that knows which nodes' scores change when a pod is placed, besides that of the pod's node."""

    def coupled_by(self, pod: Pod) -> frozenset[str] | None:
        """Return the topology keys of the domains in which scores change when an equal pod is placed.

        The result is empty if only the score of the pod's node changes, and ``None`` if any score may change.
        """
        ...


NO_KEYS: Final[frozenset[str]] = frozenset()
"""The result of :meth:`CouplingScore.coupled_by` for scores that depend only on the node."""


def normalized(raw: IntArray, among: BoolArray, *, reverse: bool = False, best: int = MAX_SCORE) -> IntArray | int:
    """Scale raw scores so that the largest one becomes ``best`` (``helper.DefaultNormalizeScore``, v1.36).

    Args:
        raw: int64, shape (capacity,), not negative.
        among: the candidate slots: bool, same shape.
        reverse: whether the largest raw score is scaled to 0 instead of ``best``.
        best: the highest score.
    """
    largest = int(np.where(among, raw, 0).max()) if len(raw) else 0
    if largest == 0:
        return best if reverse else 0
    found: IntArray = best * raw // largest
    return best - found if reverse else found


FilterFactory = Callable[[Snapshot], Filter]
"""Creates a filter for a snapshot: the filter's class, or a function that passes the arguments of a scheduler Policy to
it."""

ScoreFactory = Callable[[Snapshot], Score]
"""Creates a score plugin for a snapshot: the plugin's class, or a function that passes further arguments to it."""
