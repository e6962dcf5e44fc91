"""The log line of each eviction and deletion that the API server granted, for all controllers.

Refusals are logged by the controllers, because only they know whether they retry.
"""

from __future__ import annotations

import logging

from trimtab.api.history_record import HistoryEntry
from trimtab.controller.reporter import pod_fields
from trimtab.disruption.evictor.requests import EvictionRequest
from trimtab.disruption.outcome import DELETED, STARTED, AttemptResult
from trimtab.kube.objects import Pod

log = logging.getLogger(__name__)


def log_eviction(entry: HistoryEntry, request: EvictionRequest, answer: AttemptResult, pod: Pod) -> None:
    """Log that a pod is evicted or deleted.

    Args:
        entry: the entry of the history, whose values are the fields of the line.
        request: the request that the API server granted.
        answer: its result, Evicted, Deleted or Started.
        pod: the pod as it was before the request.
    """
    fields = {
        "controller": entry.controller,
        "policy": entry.policy,
        "strategy": entry.strategy,
        **pod_fields(request.key, entry.uid, entry.node),
        "owner": entry.owner,
        "target": entry.target,
        "result": answer.result,
        "reason": entry.reason,
        "detail": entry.message,
    }
    if answer.result == STARTED:
        message = "Eviction of pod %s from node %s is in progress: %s"
        log.info(message, request.key, entry.node, answer.message, extra=fields)
        return
    done = "Deleted" if answer.result == DELETED else "Evicted"
    done = "Replaced" if request.how == "Surge" else "Removed terminal" if pod.terminal else done
    log.info(
        "%s pod %s from node %s (%s: %s)", done, request.key, entry.node, entry.reason, entry.message, extra=fields
    )
