"""Reports the outcome of evictions in events, and in the log if they were not made."""

from __future__ import annotations

import logging
from typing import Final

from trimtab.api.plan import SURGE, Evict
from trimtab.api.reasons import CYCLE_DEADLINE, POLICY_CHANGED, SHUTTING_DOWN, WINDOW_CLOSED
from trimtab.controller.reporter import pod_fields
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, STARTED, Outcome
from trimtab.kube.events.event import NORMAL, WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import ObjectReference, node_reference, pod_reference

log = logging.getLogger(__name__)

EVICT: Final = "Evict"
RESTART: Final = "Restart"
"""The value of the field ``action`` of events about pods that are restarted."""


def report_outcome(outcome: Outcome, *, policy: ObjectReference, recorder: Recorder) -> None:
    """Emit events on the pod and on the policy if the eviction was made, was refused or failed, or log why it was not.

    The event's reason is the reason code of the planned move or of the refusal. The plan, the policy's status and the
    metrics use the same codes.
    """
    _log(outcome)
    action = outcome.action
    origin = f"(DeschedulerPolicy {action.policy}, strategy {action.strategy})"
    pod, node = pod_reference(action.key, action.uid), node_reference(action.node, "")
    if outcome.result == EVICTED:
        moved, then = f"{_moved(action)}: {action.message}", _expected(action)
        recorder.event(
            pod,
            reason=action.reason,
            action=_event_action(action),
            note=f"{moved} {origin}{then}",
            type=NORMAL,
            related=node,
        )
        note = f"{action.key} {moved} (strategy {action.strategy}){then}"
        recorder.event(policy, reason=action.reason, action=_event_action(action), note=note, type=NORMAL, related=pod)
    elif outcome.result == STARTED:
        note = f"eviction from {action.node} {origin} {outcome.message}"
        recorder.event(pod, reason=outcome.reason, action=_event_action(action), note=note, type=NORMAL, related=node)
        note = f"eviction of {action.key} from {action.node} (strategy {action.strategy}) {outcome.message}"
        recorder.event(policy, reason=outcome.reason, action=_event_action(action), note=note, type=NORMAL, related=pod)
    elif outcome.result in {REFUSED, FAILED}:
        note = f"not evicted from {action.node}: {outcome.message} {origin}"
        recorder.event(pod, reason=outcome.reason, action=_event_action(action), note=note, type=WARNING, related=node)
        note = f"{action.key} not evicted from {action.node}: {outcome.message} (strategy {action.strategy})"
        recorder.event(
            policy, reason=outcome.reason, action=_event_action(action), note=note, type=WARNING, related=pod
        )


_NOT_STARTED: Final = frozenset({CYCLE_DEADLINE, WINDOW_CLOSED, SHUTTING_DOWN, POLICY_CHANGED})
"""Reasons that may apply to thousands of pods at once. They are logged at level DEBUG."""


def _log(outcome: Outcome) -> None:
    action = outcome.action
    if outcome.result in {EVICTED, STARTED}:
        return  # the evictor logs it
    fields = {
        "policy": action.policy,
        "strategy": action.strategy,
        **pod_fields(action.key, action.uid, action.node),
        "owner": action.owner,
        "target": action.target,
        "result": outcome.result,
        "reason": outcome.reason,
        "detail": outcome.message,
    }
    level = logging.INFO
    if outcome.result in {REFUSED, FAILED}:
        level = logging.WARNING
    elif outcome.reason in _NOT_STARTED:
        level = logging.DEBUG
    log.log(level, "Did not evict pod %s from node %s: %s", action.key, action.node, outcome.message, extra=fields)


def _moved(action: Evict) -> str:
    if not action.target:
        return f"removed from {action.node} after it had terminated"
    if action.how == SURGE:
        return f"replaced on {action.node} by a rollout of Deployment {action.deployment}"
    return f"evicted from {action.node}"


def _expected(action: Evict) -> str:
    return f"; its replacement is expected to be scheduled to {action.target}" if action.target else ""


def _event_action(action: Evict) -> str:
    return RESTART if action.how == SURGE else EVICT
