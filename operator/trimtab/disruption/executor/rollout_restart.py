"""Restarts a Deployment, so that its rollout replaces a single replica before the old pod is deleted."""

from __future__ import annotations

from typing import Final

from trimtab.api.plan import Evict
from trimtab.api.reasons import EVICTION_FAILED, EVICTION_REFUSED, PLAN_OUTDATED, ROLLOUT_IN_PROGRESS
from trimtab.cluster.workloads.rollouts import RESTARTED_AT, Rollout, rollout_of
from trimtab.disruption.outcome import FAILED, REFUSED, SKIPPED, STARTED, AttemptResult
from trimtab.disruption.protections.surge import restart_blocker, rollout_progress
from trimtab.kube import verbs
from trimtab.kube.api import Api, ApiError, Conflict, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab.kube.objects import Pod
from trimtab.kube.resources import DEPLOYMENTS

PERMISSION_HINT: Final = (
    "the permission to restart Deployments is granted by the chart value controllers.descheduler.surge"
)


async def restart(api: Api, action: Evict, pod: Pod, *, mark: str, timeout: float) -> AttemptResult:
    """Restart the pod's Deployment as ``kubectl rollout restart`` does.

    The Deployment is read and checked first. The patch contains the ``resourceVersion`` that was read, so it fails if
    the Deployment was scaled, paused or changed in between. If the response is lost, a retry with the same ``mark``
    finds the restart (:func:`confirm_restart`). An API error is returned as a result and never raised.

    Args:
        api: the API server.
        action: a planned eviction that is carried out as a surge.
        pod: the current pod.
        mark: the time of the restart, which becomes the value of the template's annotation ``restartedAt``.
        timeout: timeout of each request in seconds.
    """
    sent = False
    try:
        found = await verbs.get(api, DEPLOYMENTS, action.deployment, namespace=action.namespace, timeout=timeout)
        rollout = rollout_of(found)
        if rollout.restarted_at == mark:
            return _started(action)
        blocker = restart_blocker(rollout, pod) or rollout_progress(rollout)
        if blocker is not None:
            return AttemptResult(REFUSED, blocker.reason, blocker.message)
        sent = True
        await verbs.merge_patch(
            api, DEPLOYMENTS, rollout.name, _patch(rollout, mark), namespace=rollout.namespace, timeout=timeout
        )
    except NotFound:
        return AttemptResult(SKIPPED, PLAN_OUTDATED, f"Deployment {action.deployment} no longer exists")
    except TooManyRequests as error:
        return AttemptResult(REFUSED, EVICTION_REFUSED, error.message, retry=True, retry_after=error.retry_after)
    except Conflict as error:
        return AttemptResult(FAILED, EVICTION_FAILED, error.message, retry=True)
    except Forbidden as error:
        return AttemptResult(FAILED, EVICTION_FAILED, f"{error.message}; {PERMISSION_HINT}")
    except (ServerError, Unreachable) as error:
        return AttemptResult(FAILED, EVICTION_FAILED, str(error), retry=True, uncertain=sent)
    except ApiError as error:
        return AttemptResult(FAILED, EVICTION_FAILED, error.message)
    return _started(action)


async def confirm_restart(api: Api, action: Evict, *, mark: str, timeout: float) -> AttemptResult:
    """Read the Deployment after a lost response to find out whether it was restarted.

    Without this call, a retry would treat the restart as one that a user started.

    Args:
        api: the API server.
        action: the surge whose restart was requested.
        mark: the time of the restart.
        timeout: timeout of the request in seconds.

    Returns:
        Started if it was restarted; otherwise a result with ``retry``, which is ``uncertain`` if the API server did not
        respond.
    """
    try:
        found = await verbs.get(api, DEPLOYMENTS, action.deployment, namespace=action.namespace, timeout=timeout)
    except NotFound:
        return AttemptResult(SKIPPED, PLAN_OUTDATED, f"Deployment {action.deployment} no longer exists")
    except (ApiError, Unreachable) as error:
        message = f"no response to the restart, and reading the Deployment failed: {error}"
        return AttemptResult(FAILED, EVICTION_FAILED, message, retry=True, uncertain=True)
    if rollout_of(found).restarted_at == mark:
        return _started(action)
    message = f"no response to the restart, and Deployment {action.deployment} was not restarted"
    return AttemptResult(FAILED, EVICTION_FAILED, message, retry=True)


def _started(action: Evict) -> AttemptResult:
    message = f"restarted Deployment {action.deployment}, which creates a new pod before it deletes {action.pod}"
    return AttemptResult(STARTED, ROLLOUT_IN_PROGRESS, message)


def _patch(rollout: Rollout, mark: str) -> dict[str, object]:
    return {
        "metadata": {"resourceVersion": rollout.resource_version},
        "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: mark}}}},
    }
