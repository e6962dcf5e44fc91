"""Whether a node that says nothing is dead: not by our watches alone. Pure."""

from __future__ import annotations

import enum
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.kube.objects import Node
from trimtab.tainting.conditions import ready_status, unknown_already
from trimtab.tainting.health.heard import Answer, Heard
from trimtab.tainting.lifecycle_settings import LifecycleSettings

BY_STATUS: Final = 480.0
"""Seconds that a node may be silent whose Lease is gone. Kubelets post a status in which nothing is new every 5 minutes
or half as late again (kubelet v1.36 ``nodeStatusReportFrequency``, ``calculateDelay``)."""


class Verdict(enum.Enum):
    """What is to be thought of a node."""

    HEARD = "Heard"  # within its grace period
    ASK = "Ask"  # beyond it, by our watches
    BEHIND = "Behind"  # it lives, and our watches have not told: none of them is to be believed
    UNKNOWN = "Unknown"  # beyond it, by the API server's own word
    STANDS = "Stands"  # beyond it, and its conditions say so already


class AskFirst(Struct, frozen=True, gc=False):
    """A node whose Lease and status are to be read from the API server before it counts as Unknown.

    The reads go past every cache (no ``resourceVersion=0``). What they say comes back as an
    :class:`~trimtab.tainting.health.heard.Answer`.

    Attributes:
        node: its name.
        uid: of the node that is meant.
        silent: for how many seconds we have not heard of it.
        reason: :data:`trimtab.api.reasons.NODE_SILENT`.
        message: the numbers compared.
    """

    node: str
    uid: str
    silent: float
    reason: str
    message: str


class Judgement(Struct, frozen=True, gc=False):
    """What is thought of a node and why.

    Attributes:
        verdict: what.
        silent: for how many seconds we have not heard of it.
        grace: for how many it may be silent.
        due: when it counts as silent too long if nothing is heard, in seconds since the epoch.
    """

    verdict: Verdict
    silent: float
    grace: float
    due: float


def judge(node: Node, heard: Heard, answer: Answer | None, settings: LifecycleSettings, *, now: float) -> Judgement:
    """What is to be thought of a node.

    Upstream's rule is ``now > heard + grace``. A node of whose life we only know by its own clock, because this process
    is younger than its silence, is given time for two renewals first. One whose Lease somebody deleted is given the
    time between two posts of its status: where the namespace of Leases is gone no kubelet can renew, and all are well.

    Args:
        node: as the watches have it.
        heard: what is known of its life.
        answer: what the API server said of it, if it was asked.
        settings: grace periods.
        now: seconds since the epoch.
    """
    grace = settings.node_startup_grace_period if ready_status(node) is None else settings.node_monitor_grace_period
    if heard.lost_lease:
        grace = max(grace, BY_STATUS)
    due = max(heard.at + grace, heard.believed)
    silent = max(0.0, now - heard.at)
    asked = answer if answer is not None and _counts(answer, node, settings, now) else None
    if asked is not None and asked.stamp != heard.stamp:
        verdict = Verdict.BEHIND if asked.at >= heard.at else Verdict.HEARD
    elif now <= due:
        verdict = Verdict.HEARD
    elif unknown_already(node):
        verdict = Verdict.STANDS
    else:
        verdict = Verdict.ASK if asked is None else Verdict.UNKNOWN
    return Judgement(verdict, silent, grace, due)


def ask_first(node: Node, judgement: Judgement) -> AskFirst:
    """The question for a node with :attr:`Verdict.ASK`."""
    message = f"silent for {judgement.silent:.0f}s, may be for {judgement.grace:.0f}s"
    return AskFirst(node.name, node.uid, judgement.silent, reasons.NODE_SILENT, message)


def _counts(answer: Answer, node: Node, settings: LifecycleSettings, now: float) -> bool:
    return answer.uid == node.uid and now - answer.at <= settings.answer_age
