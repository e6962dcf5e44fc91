"""Eviction thresholds of a policy, compiled from the kubelet's syntax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.node_pressure_policy import (
    ALLOCATABLE_MEMORY_AVAILABLE,
    CONTAINERFS_AVAILABLE,
    CONTAINERFS_INODES_FREE,
    IMAGEFS_AVAILABLE,
    IMAGEFS_INODES_FREE,
    KNOWN_SIGNALS,
    KUBELET_EVICTION_HARD,
    MEMORY_AVAILABLE,
    NODEFS_AVAILABLE,
    NODEFS_INODES_FREE,
    PID_AVAILABLE,
    SIGNALS,
    SOFT_NEEDS_GRACE,
    NodePressurePolicySpec,
    PressureCondition,
    ThresholdValue,
    parse_reclaim,
    parse_threshold,
)
from trimtab.api.scalars import parse_duration

MEMORY_STALL: Final = "memory.psi.full"
"""The signal of ``memoryStall`` (PSI). The kubelet has no such eviction signal."""

CONDITION_OF: Final[dict[str, PressureCondition]] = {
    MEMORY_AVAILABLE: "MemoryPressure",
    ALLOCATABLE_MEMORY_AVAILABLE: "MemoryPressure",
    MEMORY_STALL: "MemoryPressure",
    NODEFS_AVAILABLE: "DiskPressure",
    NODEFS_INODES_FREE: "DiskPressure",
    IMAGEFS_AVAILABLE: "DiskPressure",
    IMAGEFS_INODES_FREE: "DiskPressure",
    CONTAINERFS_AVAILABLE: "DiskPressure",
    CONTAINERFS_INODES_FREE: "DiskPressure",
    PID_AVAILABLE: "PIDPressure",
}
"""The node condition of each signal (the kubelet's ``signalToNodeCondition``)."""


NO_RECLAIM: Final = ThresholdValue(quantity=0)

_ORDER: Final = {signal: index for index, signal in enumerate((*SIGNALS, MEMORY_STALL))}


class Threshold(Struct, frozen=True):
    """A threshold of a policy.

    Attributes:
        signal: an eviction signal, or :data:`MEMORY_STALL`.
        hard: whether pods are evicted at once.
        value: the available amount below which it is met; for :data:`MEMORY_STALL` the share at which it is met.
        grace: seconds for which it must be met before pods are evicted; 0 for a hard threshold.
        minimum_reclaim: how much more must be available until it is no longer met.
        window: for :data:`MEMORY_STALL`, the average to compare: ``avg10``, ``avg60`` or ``avg300``.
    """

    signal: str
    hard: bool
    value: ThresholdValue
    grace: int = 0
    minimum_reclaim: ThresholdValue = NO_RECLAIM
    window: str = ""

    @property
    def key(self) -> str:
        """Return the key of the threshold in a node's state: ``soft/memory.available``."""
        return f"{'hard' if self.hard else 'soft'}/{self.signal}"

    @property
    def condition(self) -> PressureCondition:
        """Return the node condition of the threshold's signal."""
        return CONDITION_OF[self.signal]


def thresholds_of(spec: NodePressurePolicySpec) -> tuple[Threshold, ...]:
    """Compile the thresholds of a policy (``ParseThresholdConfig`` of the kubelet).

    The kubelet copies a hard threshold of memory.available to allocatableMemory.available, and the thresholds of
    nodefs or imagefs to containerfs. A policy has exactly the thresholds that it contains.

    Returns:
        hard thresholds before soft ones, because the kubelet is closest to killing pods there. Among these, thresholds
        of the memory come first, as in the kubelet (``byEvictionPriority``), which does not order by hardness.

    Raises:
        ValueError: a signal, a threshold or a minimum reclaim is invalid, or a soft threshold has no grace period.
    """
    for mapping in (spec.eviction_hard, spec.eviction_soft, spec.eviction_minimum_reclaim):
        unknown = [signal for signal in mapping if signal not in SIGNALS]
        if unknown:
            raise ValueError(f"{KNOWN_SIGNALS}; not {unknown[0]!r}")
    grace = spec.soft_grace_seconds
    reclaim = {signal: parse_reclaim(text) for signal, text in spec.eviction_minimum_reclaim.items()}
    found = _parsed(spec.eviction_hard, hard=True, reclaim=reclaim)
    for each in _parsed(spec.eviction_soft, hard=False, reclaim=reclaim):
        if each.signal not in grace:
            raise ValueError(f"{SOFT_NEEDS_GRACE}; {each.signal} has none")
        found.append(replace(each, grace=grace[each.signal]))
    stall = spec.memory_stall
    if stall is not None:
        found.append(
            Threshold(
                signal=MEMORY_STALL,
                hard=False,
                value=ThresholdValue(share=stall.percent / 100.0),
                grace=parse_duration(stall.grace_period),
                window=stall.window,
            )
        )
    return tuple(sorted(found, key=_eviction_order))


def kubelet_thresholds(spec: NodePressurePolicySpec) -> tuple[Threshold, ...]:
    """Compile the hard thresholds at which the kubelets of the policy's nodes kill pods.

    The kubelet copies its threshold of memory.available to allocatableMemory.available, because it limits the memory of
    all pods to what is allocatable (``addAllocatableThresholds``).
    """
    found = _parsed(spec.kubelet_eviction_hard or KUBELET_EVICTION_HARD, hard=True, reclaim={})
    if all(each.signal != ALLOCATABLE_MEMORY_AVAILABLE for each in found):
        found += [
            replace(each, signal=ALLOCATABLE_MEMORY_AVAILABLE) for each in found if each.signal == MEMORY_AVAILABLE
        ]
    return tuple(sorted(found, key=_eviction_order))


class ThresholdWarning(Struct, frozen=True):
    """A threshold of a policy that has no effect, because a more urgent one is met no later.

    Attributes:
        reason: ``ThresholdNotAboveKubelet`` if the kubelet already kills pods at the threshold, or
            ``SoftThresholdNotAboveHard``.
        threshold: the threshold.
        message: the values that were compared.
    """

    reason: str
    threshold: Threshold
    message: str


class ThresholdComparison:
    """Compares the thresholds of a policy with the hard ones of the kubelets and of itself, for any number of nodes.

    Args:
        spec: the policy's spec.
    """

    def __init__(self, spec: NodePressurePolicySpec) -> None:
        thresholds = thresholds_of(spec)
        kubelet = {each.signal: each.value for each in kubelet_thresholds(spec)}
        hard = {each.signal: each.value for each in thresholds if each.hard}
        texts = spec.kubelet_eviction_hard or KUBELET_EVICTION_HARD
        self._pairs: list[tuple[ThresholdWarning, ThresholdValue, ThresholdValue]] = []
        for threshold in thresholds:
            signal, name = threshold.signal, "evictionHard" if threshold.hard else "evictionSoft"
            if signal == MEMORY_STALL:
                continue
            text = (spec.eviction_hard if threshold.hard else spec.eviction_soft)[signal]
            message = f"{signal}: the threshold {text} of {name} is not above"
            if signal in kubelet:
                limit = texts.get(signal) or texts[MEMORY_AVAILABLE]
                warning = ThresholdWarning(
                    reasons.THRESHOLD_NOT_ABOVE_KUBELET,
                    threshold,
                    f"{message} {limit}, at which the kubelet kills pods",
                )
                self._pairs.append((warning, threshold.value, kubelet[signal]))
            if signal in hard and not threshold.hard:
                warning = ThresholdWarning(
                    reasons.SOFT_THRESHOLD_NOT_ABOVE_HARD,
                    threshold,
                    f"{message} {spec.eviction_hard[signal]} of evictionHard, so that its grace period has no effect",
                )
                self._pairs.append((warning, threshold.value, hard[signal]))

    def warnings(self, capacities: Mapping[str, int] | None = None) -> tuple[ThresholdWarning, ...]:
        """Return the thresholds of the policy that are not above those of the kubelet, or its own hard ones.

        Args:
            capacities: the capacity of each signal of a node, if it is known. Without it, a percentage and a quantity
                cannot be compared, and such thresholds are omitted.
        """
        found = []
        for warning, mine, theirs in self._pairs:
            capacity = None if capacities is None else capacities.get(warning.threshold.signal)
            if mine.share is not None and theirs.share is not None:
                above = mine.share > theirs.share
            elif capacity is not None or (mine.quantity is not None and theirs.quantity is not None):
                above = mine.of(capacity or 0) > theirs.of(capacity or 0)
            else:
                continue
            if not above:
                found.append(warning)
        return tuple(found)


def _parsed(texts: Mapping[str, str], *, hard: bool, reclaim: Mapping[str, ThresholdValue]) -> list[Threshold]:
    found = []
    for signal, text in texts.items():
        value = parse_threshold(text)
        if value is not None:
            found.append(
                Threshold(signal=signal, hard=hard, value=value, minimum_reclaim=reclaim.get(signal, NO_RECLAIM))
            )
    return found


def _eviction_order(threshold: Threshold) -> tuple[bool, bool, int]:
    return (not threshold.hard, threshold.condition != "MemoryPressure", _ORDER[threshold.signal])
