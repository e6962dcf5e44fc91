"""What is remembered from pass to pass, and what of that has come true: pure, and kept in the cluster.

A process begins with :func:`recall`. A pass goes :func:`readiness`, :func:`advance`, :func:`health`, and plans
:func:`with_memory` of these. What it then does it notes in the state (:func:`~trimtab.autoscaling.growing.noted` for
groups that are asked for more or set right, :func:`lowered` for each removal of nodes that is done), and the state is
written into the status (:func:`remember`).
"""

from trimtab.autoscaling.memory.advance import advance, provision_seconds
from trimtab.autoscaling.memory.asked import answered, begun, lowered
from trimtab.autoscaling.memory.backoff import backoff_words
from trimtab.autoscaling.memory.findings import Finding, Findings
from trimtab.autoscaling.memory.health import Health, HealthSettings, health
from trimtab.autoscaling.memory.planning import remembering, with_memory
from trimtab.autoscaling.memory.readiness import Readiness, readiness
from trimtab.autoscaling.memory.state import GroupRecord, OpenScaleUp, State, Trouble, recall, remember

__all__ = [
    "Finding",
    "Findings",
    "GroupRecord",
    "Health",
    "HealthSettings",
    "OpenScaleUp",
    "Readiness",
    "State",
    "Trouble",
    "advance",
    "answered",
    "backoff_words",
    "begun",
    "health",
    "lowered",
    "provision_seconds",
    "readiness",
    "recall",
    "remember",
    "remembering",
    "with_memory",
]
