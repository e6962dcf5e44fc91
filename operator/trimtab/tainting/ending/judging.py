"""What is to be done with a pod that was due: asked anew right before each request. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.taint_manager import EVICT, TaintManagerSpec
from trimtab.kube.objects import Pod
from trimtab.tainting.deadlines.rule import Deadline, concerned
from trimtab.tainting.ending.answer import Answer, gone
from trimtab.tainting.ending.outcome import What


class Move(enum.Enum):
    """What is to be done."""

    DELETE = "Delete"
    EVICT = "Evict"
    WAIT = "Wait"  # its time is not over yet
    NOTHING = "Nothing"


class Verdict(Struct, frozen=True, gc=False):
    """What is to be done with a pod now.

    Attributes:
        move: what.
        deadline: as it counts now.
        until: to evict until then, in seconds since the epoch, and to delete from then on; its time where it waits.
        waited: whether it is deleted because its eviction had been refused for as long as its policy allows.
        why: where nothing is to be done.
    """

    move: Move
    deadline: Deadline
    until: float = 0.0
    waited: bool = False
    why: Answer | None = None


def waits(spec: TaintManagerSpec) -> dict[str, float]:
    """For how many seconds a pod is evicted before it is deleted, by the taint's key; without one it is deleted."""
    return {each.key: float(each.maximum_wait_seconds) for each in spec.taints if each.policy == EVICT}


def _no_others(_: Pod) -> tuple[Deadline, ...]:
    return ()


def judge(
    asked: Deadline,
    found: Deadline | None,
    pod: Pod | None,
    *,
    waits: Mapping[str, float],
    now: float,
    each: Callable[[Pod], Iterable[Deadline]] = _no_others,
) -> Verdict:
    """What is to be done with a pod whose time was over.

    Args:
        asked: the deadline that was due.
        found: the one that the pod has now, ``None`` for none.
        pod: who has its name now.
        waits: how long pods are evicted, see :func:`waits`.
        now: seconds since the epoch.
        each: the deadline that each taint of its node alone gives a pod. Who waits for its eviction is deleted when
            any of them would have it deleted: if its node dies meanwhile, as the dead node's other pods.
    """
    if pod is None or pod.uid != asked.uid:
        why = "the pod had gone" if pod is None else "another pod had its name"
        return Verdict(Move.NOTHING, asked, why=gone(why))
    if pod.deleted is not None:
        return Verdict(Move.NOTHING, asked, why=gone("the pod was being deleted already"))
    if found is None or found.uid != asked.uid or found.node != pod.node or not concerned(pod):
        return Verdict(Move.NOTHING, asked, why=not_due("no taint ends the pod's time any more"))
    if found.due > now:
        return Verdict(Move.WAIT, found, until=found.due)
    if found.taint.key not in waits:
        return Verdict(Move.DELETE, found)
    ends = ((one.due + waits.get(one.taint.key, 0.0), one.taint.key in waits) for one in (found, *each(pod)))
    until, by_waiting = min(ends)
    if now < until:
        return Verdict(Move.EVICT, found, until=until)
    return Verdict(Move.DELETE, found, until=until, waited=by_waiting)


def not_due(message: str) -> Answer:
    """The pod's time is not over any more."""
    return Answer(What.NOT_DUE, reasons.TIME_NOT_OVER, message)
