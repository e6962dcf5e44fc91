"""When a pod goes: the rule itself, for one pod. :mod:`.columns` is the same for many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from trimtab.disruption.protections.mirror_pod import ANNOTATION as MIRROR
from trimtab.kube.objects import Pod, Taint, Toleration
from trimtab.tainting.deadlines.standing import StandingTaint
from trimtab.tainting.deadlines.tolerance import FOREVER, Tolerating, tolerance

SCHEDULED: Final = "PodScheduled"


class Deadline(Struct, frozen=True, gc=False):
    """When a pod has to leave its node, and why.

    Attributes:
        key: ``namespace/name``.
        uid: the pod's: a later one of the name has a time of its own.
        node: where it is.
        due: seconds since the epoch; in the past where its time is over.
        since: from when the taint's time counts for this pod.
        taint: the one that ends its time: of several the first to do so, then by key and value.
        toleration: by which it bears the taint until then; ``None`` where none matches and it goes at once.
    """

    key: str
    uid: str
    node: str
    due: float
    since: float
    taint: Taint
    toleration: Toleration | None


def deadline(pod: Pod, standing: Sequence[StandingTaint], rule: Tolerating, *, now: float) -> Deadline | None:
    """When a pod has to leave a node with these taints; ``None`` where it may stay for ever or need not be told to go.

    Each taint gives the pod the time that its tolerations bear it for (:func:`.tolerance`), from when the taint was put
    on or, if that is later, from when the pod came to the node: who lands on an old taint has the full time. The first
    of these times to end counts. Neither the order of taints nor of tolerations has a say.

    Args:
        pod: on that node.
        standing: the node's NoExecute taints, by key and value.
        rule: how tolerations are read.
        now: seconds since the epoch; only times to come depend on it.
    """
    if not concerned(pod):
        return None
    tolerations = rule.complete(pod.spec.tolerations)
    start = start_on_node(pod, now=now)
    found: Deadline | None = None
    for each in standing:
        how = tolerance(tolerations, each.taint, rule)
        since = max(min(each.since, now), start)
        if how.seconds < FOREVER and (found is None or since + how.seconds < found.due):
            found = Deadline(pod.key, pod.uid, pod.node, since + how.seconds, since, each.taint, how.toleration)
    return found


def concerned(pod: Pod) -> bool:
    """Whether taints end this pod's time at all.

    Not of pods that have ended: their logs and exit codes are still of use, and they hold nothing. Not of those that
    are going already. Not of mirror pods: the kubelet makes them anew as long as the node's file is there.
    """
    return pod.deleted is None and not pod.terminal and MIRROR not in pod.annotations


def start_on_node(pod: Pod, *, now: float) -> float:
    """Since when a pod is on its node, in seconds since the epoch; at the latest now.

    ``status.startTime``, which the kubelet writes once, when it takes the pod; on a node whose kubelet is silent when
    the scheduler bound it, and where nobody says that, when it was made. Where the node's clock is ahead it is now
    until that time has come: the pod's time ends later by that difference, and never too soon.
    """
    if pod.started is not None and pod.started <= now:
        return pod.started
    scheduled = next((each.since for each in pod.conditions if each.type == SCHEDULED and each.status == "True"), None)
    if scheduled is not None:
        return min(scheduled, now)
    if pod.started is not None or pod.created is None:
        return now
    return min(pod.created, now)
