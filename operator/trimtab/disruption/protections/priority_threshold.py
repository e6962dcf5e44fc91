"""The policy's priority threshold: pods of this priority and above stay."""

from __future__ import annotations

from typing import Final

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.protections import PriorityThreshold
from trimtab.api.reasons import PRIORITY_TOO_HIGH, UNKNOWN_PRIORITY_CLASS
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.protections.protection import Context, Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

SYSTEM_CLASSES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""Classes that every cluster has (scheduling ``SystemPriorityClasses``), whether or not a cluster file has them too."""


class UnknownThreshold(Protection):
    """Refuses every pod while the threshold names a class that does not exist: nobody knows who is below it.

    Apart from :class:`PriorityThresholdRule`, because no pod's annotation must lift this one.
    """

    name = UNKNOWN_PRIORITY_CLASS
    liftable = False
    of_template = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        threshold = context.spec.priority_threshold
        unknown = threshold is not None and resolve(threshold, context.snapshot) is None
        wanted = threshold.name if threshold is not None else ""
        message = f"spec.priorityThreshold.name: there is no PriorityClass {wanted!r}; no pod is moved until there is"
        self._refusal = self.refuse(message) if unknown else None

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Whether the policy names a class."""
        return spec.priority_threshold is not None

    def refusal(self, pod: Pod) -> Refusal | None:  # noqa: ARG002
        """Why the pod stays, or ``None``."""
        return self._refusal


class PriorityThresholdRule(Protection):
    """Refuses pods at or above the threshold; a pod without a priority has 0."""

    name = PRIORITY_TOO_HIGH
    of_template = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        threshold = context.spec.priority_threshold
        self._threshold = None if threshold is None else resolve(threshold, context.snapshot)
        self._named = f" ({threshold.name})" if threshold is not None and threshold.name else ""

    @classmethod
    def applies(cls, spec: DeschedulerPolicySpec) -> bool:
        """Whether the policy has a threshold."""
        return spec.priority_threshold is not None

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if self._threshold is None or pod.priority < self._threshold:
            return None
        return self.refuse(f"priority {pod.priority} is not below the threshold {self._threshold}{self._named}")


def resolve(threshold: PriorityThreshold, snapshot: Snapshot) -> int | None:
    """The threshold as a number; ``None`` where its class does not exist."""
    if threshold.name is None:
        return threshold.value
    found = snapshot.priority_classes.get(threshold.name)
    return SYSTEM_CLASSES.get(threshold.name) if found is None else found.value
