"""Tell what became of evictions: events on the pod and the policy, and one log line each."""

from __future__ import annotations

import logging
from typing import Final

from trimtab.api.plan import SURGE, Evict
from trimtab.api.reasons import CYCLE_DEADLINE, SHUTTING_DOWN, WINDOW_CLOSED
from trimtab.disruption.outcome import EVICTED, FAILED, REFUSED, STARTED, Outcome
from trimtab.kube.events.event import NORMAL, WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.reference import ObjectReference
from trimtab.kube.resources import NODES, PODS

log = logging.getLogger(__name__)

EVICT: Final = "Evict"
RESTART: Final = "Restart"
"""What events name as the action."""


def announce(outcome: Outcome, *, policy: ObjectReference, recorder: Recorder) -> None:
    """Log an outcome; where something was evicted, refused or failed, post it to the pod and to the policy.

    The event of an eviction has the reason for which the pod was moved, that of a refusal the reason of the refusal:
    each the word that also stands in the plan, in the policy's status and in the metrics.
    """
    _log(outcome)
    action = outcome.action
    pod = ObjectReference.to(PODS, action.pod, namespace=action.namespace, uid=action.uid)
    node = ObjectReference.to(NODES, action.node)
    if outcome.result == EVICTED:
        told = f"{action.message} (policy {action.policy}, strategy {action.strategy})"
        moved = _moved(action)
        recorder.event(
            pod, reason=action.reason, action=_way(action), note=f"{moved}: {told}", type=NORMAL, related=node
        )
        note = f"{action.key} {moved}: {action.message} (strategy {action.strategy})"
        recorder.event(policy, reason=action.reason, action=_way(action), note=note, type=NORMAL, related=pod)
    elif outcome.result == STARTED:
        note = f"is leaving {action.node}: {outcome.message} (policy {action.policy}, strategy {action.strategy})"
        recorder.event(pod, reason=outcome.reason, action=_way(action), note=note, type=NORMAL, related=node)
        note = f"{action.key} is leaving {action.node}: {outcome.message} (strategy {action.strategy})"
        recorder.event(policy, reason=outcome.reason, action=_way(action), note=note, type=NORMAL, related=pod)
    elif outcome.result in {REFUSED, FAILED}:
        note = f"not evicted from {action.node}: {outcome.message} (policy {action.policy}, strategy {action.strategy})"
        recorder.event(pod, reason=outcome.reason, action=_way(action), note=note, type=WARNING, related=node)
        note = f"{action.key} not evicted from {action.node}: {outcome.message} (strategy {action.strategy})"
        recorder.event(policy, reason=outcome.reason, action=_way(action), note=note, type=WARNING, related=pod)


def _log(outcome: Outcome) -> None:
    action = outcome.action
    fields = _fields(action) | {"result": outcome.result}
    if outcome.result == EVICTED:
        fields |= {"reason": action.reason, "detail": action.message}
        log.info("%s %s", action.key, _moved(action), extra=fields)
        return
    fields |= {"reason": outcome.reason, "detail": outcome.message}
    if outcome.result == STARTED:
        log.info("%s is leaving %s: %s", action.key, action.node, outcome.message, extra=fields)
        return
    level = logging.INFO
    if outcome.result in {REFUSED, FAILED}:
        level = logging.WARNING
    elif outcome.reason in {CYCLE_DEADLINE, WINDOW_CLOSED, SHUTTING_DOWN}:  # of the time; may be said of thousands
        level = logging.DEBUG
    log.log(level, "%s stays on %s: %s", action.key, action.node, outcome.message, extra=fields)


def _moved(action: Evict) -> str:
    if not action.target:
        return f"removed from {action.node}, where it had run to its end"
    if action.how == SURGE:
        return (
            f"renewed by a rollout of Deployment {action.deployment}, from {action.node}, expected on {action.target}"
        )
    return f"evicted from {action.node}, expected on {action.target}"


def _way(action: Evict) -> str:
    return RESTART if action.how == SURGE else EVICT


def _fields(action: Evict) -> dict[str, str]:
    """What a log line holds beside its sentence; ``JsonFormatter`` writes each as a field."""
    return {
        "policy": action.policy,
        "strategy": action.strategy,
        "namespace": action.namespace,
        "pod": action.pod,
        "uid": action.uid,
        "owner": action.owner,
        "from": action.node,
        "expected": action.target,
    }
