"""When pods go that are on a node with NoExecute taints: pure, and the same after a restart.

:mod:`.standing` says since when taints stand, :mod:`.tolerance` for how long a pod bears one, :mod:`.rule` when a pod
goes, :mod:`.columns` the same for all pods of a cluster at once, :mod:`.book` what of it changes with the cluster,
:mod:`.planner` what ``trimtab plan`` shows of it, :mod:`.report` what the status does.
"""

from trimtab.tainting.deadlines.book import Change, DeadlineBook
from trimtab.tainting.deadlines.columns import deadlines
from trimtab.tainting.deadlines.placed import PlacedPods
from trimtab.tainting.deadlines.planner import PodsOnTaints, plan_deletions
from trimtab.tainting.deadlines.report import next_deadlines, overdue
from trimtab.tainting.deadlines.rule import Deadline, deadline, start_on_node
from trimtab.tainting.deadlines.standing import SINCE_ANNOTATION, NodeTaints, StandingTaint, note, observe
from trimtab.tainting.deadlines.tolerance import Tolerance, Tolerating, tolerance
from trimtab.tainting.deadlines.words import deadline_in_words, toleration_in_words

__all__ = [
    "SINCE_ANNOTATION",
    "Change",
    "Deadline",
    "DeadlineBook",
    "NodeTaints",
    "PlacedPods",
    "PodsOnTaints",
    "StandingTaint",
    "Tolerance",
    "Tolerating",
    "deadline",
    "deadline_in_words",
    "deadlines",
    "next_deadlines",
    "note",
    "observe",
    "overdue",
    "plan_deletions",
    "start_on_node",
    "tolerance",
    "toleration_in_words",
]
