"""Reports the outcome of evictions: one log line each, and events on the pod and the policy."""

from __future__ import annotations

import logging
from typing import Final

from trimtab.api.plan import SURGE, Evict
from trimtab.api.reasons import CYCLE_DEADLINE, SHUTTING_DOWN, WINDOW_CLOSED
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, STARTED, Outcome
from trimtab.kube.events.event import NORMAL, WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.resources import NODES, PODS, ObjectReference

log = logging.getLogger(__name__)

EVICT: Final = "Evict"
RESTART: Final = "Restart"
"""The value of the field ``action`` of events about pods that are restarted."""


def report_outcome(outcome: Outcome, *, policy: ObjectReference, recorder: Recorder) -> None:
    """Log an outcome, and emit events on the pod and on the policy if the eviction was made, was refused or failed.

    The event's reason is the reason code of the planned move or of the refusal. The plan, the policy's status and the
    metrics use the same codes.
    """
    _log(outcome)
    action = outcome.action
    origin = f"(DeschedulerPolicy {action.policy}, strategy {action.strategy})"
    pod = ObjectReference.to(PODS, action.pod, namespace=action.namespace, uid=action.uid)
    node = ObjectReference.to(NODES, action.node)
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


def _log(outcome: Outcome) -> None:
    action = outcome.action
    fields = _fields(action) | {"result": outcome.result}
    if outcome.result == EVICTED:
        fields |= {"reason": action.reason, "detail": action.message}
        done = _LOGGED[_kind(action)]
        log.info(
            "%s pod %s from node %s (%s: %s)",
            done,
            action.key,
            action.node,
            action.reason,
            action.message,
            extra=fields,
        )
        return
    fields |= {"reason": outcome.reason, "detail": outcome.message}
    if outcome.result == STARTED:
        log.info(
            "Eviction of pod %s from node %s is in progress: %s", action.key, action.node, outcome.message, extra=fields
        )
        return
    level = logging.INFO
    if outcome.result in {REFUSED, FAILED}:
        level = logging.WARNING
    elif outcome.reason in {CYCLE_DEADLINE, WINDOW_CLOSED, SHUTTING_DOWN}:  # may apply to thousands of pods at once
        level = logging.DEBUG
    log.log(level, "Did not evict pod %s from node %s: %s", action.key, action.node, outcome.message, extra=fields)


_LOGGED: Final = {"evict": "Evicted", "restart": "Replaced", "remove": "Removed terminal"}


def _kind(action: Evict) -> str:
    if not action.target:
        return "remove"
    return "restart" if action.how == SURGE else "evict"


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


def _fields(action: Evict) -> dict[str, str]:
    """Return the structured fields of the log line for an action. ``JsonFormatter`` writes them as JSON fields."""
    return {
        "policy": action.policy,
        "strategy": action.strategy,
        "namespace": action.namespace,
        "pod": action.pod,
        "uid": action.uid,
        "owner": action.owner,
        "node": action.node,
        "target": action.target,
    }
