"""Critical pods: without them the cluster may stop working."""

from __future__ import annotations

from typing import Final

from trimtab.api.reasons import CRITICAL_POD
from trimtab.disruption.protections.protection import Protection
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
"""scheduling ``SystemCriticalPriority``: twice the highest priority that users may give."""

CLASSES: Final = frozenset({"system-node-critical", "system-cluster-critical"})

ANNOTATION: Final = "scheduler.alpha.kubernetes.io/critical-pod"
"""How pods were marked before there were priorities. Its presence counts; its value was always empty."""


class CriticalPods(Protection):
    """Refuses pods of critical priority, of a critical class, and with the old annotation."""

    name = CRITICAL_POD
    liftable = False
    of_template = True

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod stays, or ``None``."""
        if pod.priority >= SYSTEM_CRITICAL_PRIORITY:
            return self.refuse(f"priority {pod.priority} is system-critical (at least {SYSTEM_CRITICAL_PRIORITY})")
        if pod.spec.priority_class_name in CLASSES:
            return self.refuse(f"priority class {pod.spec.priority_class_name} is system-critical")
        if ANNOTATION in pod.annotations:
            return self.refuse(f"the pod has the annotation {ANNOTATION}")
        return None
