"""Computes the deadlines of pods on nodes with NoExecute taints, without side effects.

:mod:`.rule` computes the deadline of one pod, :mod:`.tracker` maintains the deadlines of a whole cluster incrementally,
and :mod:`.report` formats them for ``trimtab plan``, events and the status.
"""

from trimtab.tainting.deadlines.report import (
    TaintDeletions,
    describe_deadline,
    describe_toleration,
    next_deadlines,
    overdue,
    plan_deletions,
)
from trimtab.tainting.deadlines.rule import (
    SINCE_ANNOTATION,
    Deadline,
    NodeTaints,
    ObservedTaint,
    Tolerance,
    TolerationRule,
    deadline,
    observe_taints,
    since_annotation,
    start_on_node,
    tolerance,
)
from trimtab.tainting.deadlines.tracker import DeadlineChange, TaintDeadlineTracker, deadlines

__all__ = [
    "SINCE_ANNOTATION",
    "Deadline",
    "DeadlineChange",
    "NodeTaints",
    "ObservedTaint",
    "TaintDeadlineTracker",
    "TaintDeletions",
    "Tolerance",
    "TolerationRule",
    "deadline",
    "deadlines",
    "describe_deadline",
    "describe_toleration",
    "next_deadlines",
    "observe_taints",
    "overdue",
    "plan_deletions",
    "since_annotation",
    "start_on_node",
    "tolerance",
]
