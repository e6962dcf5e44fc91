"""Whether nodes live: what was heard of them, whom to ask, and what is written of those that say nothing."""

from trimtab.tainting.health.heard import Answer, Heard, excused, listen, silent_ones
from trimtab.tainting.health.judging import AskFirst, Judgement, Verdict, judge
from trimtab.tainting.health.marks import MarkPodNotReady, MarkUnknown, mark_unknown, pods_not_ready

__all__ = [
    "Answer",
    "AskFirst",
    "Heard",
    "Judgement",
    "MarkPodNotReady",
    "MarkUnknown",
    "Verdict",
    "excused",
    "judge",
    "listen",
    "mark_unknown",
    "pods_not_ready",
    "silent_ones",
]
