"""The look at a pod right before its eviction: is it still the one the plan meant, where the plan saw it?"""

from __future__ import annotations

from trimtab.api.plan import Evict
from trimtab.api.reasons import (
    ALREADY_GONE,
    EVICTION_FAILED,
    EVICTION_IN_BACKGROUND,
    PLAN_OUTDATED,
    TERMINAL,
    TERMINATING,
)
from trimtab.disruption.answer import Answer
from trimtab.disruption.attempt import LOST_ANSWER
from trimtab.disruption.background import underway
from trimtab.disruption.outcome import FAILED, GONE, SKIPPED
from trimtab.kube.objects import Pod


def inspect(action: Evict, pod: Pod | None, *, asked: bool) -> Answer | None:
    """Why the action ends here, or ``None`` to go on with it.

    Args:
        action: the planned eviction.
        pod: what has its name now.
        asked: whether its eviction was asked for and the answer lost: if it is going, it goes because of us.
    """
    if not action.uid:
        return Answer(FAILED, EVICTION_FAILED, "the plan has no UID for the pod, so that another one could be hit")
    if pod is None or pod.uid != action.uid:
        if asked:
            return LOST_ANSWER
        told = "the pod has gone" if pod is None else "another pod has its name by now"
        return Answer(GONE, ALREADY_GONE, told)
    if pod.deleted is not None:
        return LOST_ANSWER if asked else Answer(GONE, TERMINATING, "the pod is being deleted already")
    if underway(pod) and not asked:  # where it was, asking again tells whether it was taken over for us
        return Answer(GONE, EVICTION_IN_BACKGROUND, "the pod is being moved in the background already")
    if pod.terminal and action.target:
        return Answer(SKIPPED, TERMINAL, f"the pod has run to its end (phase {pod.phase})")
    if not (pod.terminal or action.target):
        return Answer(SKIPPED, PLAN_OUTDATED, f"the plan removes what has ended, but the pod is of phase {pod.phase}")
    if pod.node != action.node:
        where = f"runs on {pod.node}" if pod.node else "has no node"
        return Answer(SKIPPED, PLAN_OUTDATED, f"the plan saw the pod on {action.node}, but it {where}")
    return None
